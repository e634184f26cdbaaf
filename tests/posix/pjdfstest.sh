#!/usr/bin/env bash
# pjdfstest.sh session|folded SOURCE: pjd/pjdfstest (a checkout of https://github.com/pjd/pjdfstest) in a session, as root.
# `folded`: every single system call of its scripts is a call of its own with a fold after it, so that it meets committed
# files only. A script's own shell runs outside: cd, mkdir and the like are sent inside. Prints prove's result and what failed.
set -euo pipefail
how=$1 src=$2
[ "$(id -u)" -eq 0 ] || { echo "pjdfstest has to be run by root" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/ntr-pjd.XXXXXX")
trap 'ntr daemon stop >/dev/null; rm -rf "$work"' EXIT
cp -r "$src/tests" "$work/tests"
mkdir "$work/real"
if [ -x "$src/pjdfstest" ]; then
	cp "$src/pjdfstest" "$work/real/"
else # what its configure would find on Linux with glibc
	for f in SYS_SYSMACROS_H FACCESSAT FCHMODAT FCHOWNAT FSTATAT LINKAT MKDIRAT MKFIFOAT MKNODAT OPENAT POSIX_FALLOCATE \
		READLINKAT RENAMEAT SYMLINKAT UTIMENSAT STRUCT_STAT_ST_ATIM STRUCT_STAT_ST_CTIM STRUCT_STAT_ST_MTIM; do
		echo "#define HAVE_$f 1"
	done >"$work/config.h"
	cc -O1 -D_GNU_SOURCE -include "$work/config.h" -I"$work" -o "$work/real/pjdfstest" "$src/pjdfstest.c"
fi

session() {
	cp "$work/real/pjdfstest" "$work/pjdfstest"
	ntr run -c "mkdir t && cd t && prove -r '$work/tests'"
}

folded() {
	cat >"$work/pjdfstest" <<-'EOF'
		#!/bin/sh
		out=$(ntr run -s "$PJD_SESSION" --cwd "$PJD_CWD" -- "${0%/*}/real/pjdfstest" "$@"; echo "rc$?")
		ntr stop -s "$PJD_SESSION" >/dev/null 2>&1
		printf '%s' "${out%rc*}"
		exit "${out##*rc}"
	EOF
	chmod +x "$work/pjdfstest"
	cat >"$work/head" <<-'EOF'
		PJD_SESSION=pjd$$
		PJD_CWD=/workspace
		export PJD_SESSION PJD_CWD
		df() { echo "ntr overlay"; }
	EOF
	cat >"$work/tail" <<-'EOF'
		in_session() { ntr run -s "$PJD_SESSION" --cwd "$PJD_CWD" -- "$@"; r=$?; ntr stop -s "$PJD_SESSION" >/dev/null 2>&1; return $r; }
		cd() { case $1 in /*) PJD_CWD=$1 ;; .) ;; *) PJD_CWD=$PJD_CWD/$1 ;; esac; }
		pwd() { echo "$PJD_CWD"; }
		mkdir() { in_session mkdir "$@"; }
		rm() { in_session rm "$@"; }
		cp() { in_session cp "$@"; }
		dd() { case " $* " in *" of="*) in_session dd "$@" ;; *) command dd "$@" ;; esac; }
	EOF
	cat "$work/head" "$src/tests/misc.sh" "$work/tail" >"$work/tests/misc.sh"
	# shellcheck disable=SC2016
	sed -i 's/^echo test > \${n0}$/in_session sh -c "echo test >${n0}"/' "$work/tests/open/00.t"
	prove -j2 -r "$work/tests"
}

status=0
"$how" >"$work/log" 2>"$work/errors" || status=$?
grep -vE '\.\. ?(ok|skipped.*)$' "$work/log" || true
exit $status
