#!/usr/bin/env bash
# with-daemon.sh CMD…: a test on the store of $NTR_STORE, whose daemon it ends afterwards.
status=0
"$@" || status=$?
ntr daemon stop || status=1
exit $status
