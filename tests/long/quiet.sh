#!/usr/bin/env bash
# quiet.sh PROGRAM: runs a unit test that shows its seeds and figures only, and everything when it fails (or skips all).
log=$(mktemp "${TMPDIR:-/tmp}/ntr-long-log.XXXXXX")
status=0
"$@" >"$log" 2>&1 || status=$?
if [ $status -ne 0 ]; then cat "$log"; else grep -v '^\[\|^ntrd\?: ' "$log"; fi
rm -f "$log"
exit $status
