#!/usr/bin/env bash
# pjdfstest.sh HOW SOURCE: pjd/pjdfstest (a checkout of https://github.com/pjd/pjdfstest), as root, where HOW says:
#   plain    in a directory below $TMPDIR
#   overlay  in plain overlayfs, its layers there
#   session  in a session
#   folded   in a session; every single system call of the scripts is a call of its own with a fold after it, so that it
#            meets committed files only
#   lower    in plain overlayfs with every system call on an upper of its own, so that it meets files of lower layers only:
#            what fails there as in `folded` is overlayfs
# In the last two a script's own shell runs outside: cd, mkdir and the like are sent inside. Prints what failed and prove's result;
# with PJD_FAILED=FILE, writes what failed there, a line each, with the random names taken out.
set -euo pipefail
how=$1 src=$2
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" -eq 0 ] || { echo "pjdfstest has to be run by root" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/ntr-pjd.XXXXXX")
clean() {
	[ "$how" != overlay ] || umount "$work/point"
	if [ "$how" = session ] || [ "$how" = folded ]; then
		ntr daemon status | grep transport
		ntr daemon stop >/dev/null
	fi
	rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work" # the scripts become other users
cp -r "$src/tests" "$work/tests"
mkdir "$work/real" "$work/point" "$work/states" "$work/out"
if [ -x "$src/pjdfstest" ]; then
	cp "$src/pjdfstest" "$work/real/"
else # what its configure would find on Linux with glibc
	for f in SYS_SYSMACROS_H FACCESSAT FCHMODAT FCHOWNAT FSTATAT LINKAT MKDIRAT MKFIFOAT MKNODAT OPENAT POSIX_FALLOCATE \
		READLINKAT RENAMEAT SYMLINKAT UTIMENSAT STRUCT_STAT_ST_ATIM STRUCT_STAT_ST_CTIM STRUCT_STAT_ST_MTIM; do
		echo "#define HAVE_$f 1"
	done >"$work/config.h"
	cc -O1 -D_GNU_SOURCE -include "$work/config.h" -I"$work" -o "$work/real/pjdfstest" "$src/pjdfstest.c"
fi

cat >"$work/script" <<-EOF
	#!/bin/sh
	name=\${1#$work/tests/}
	sh "\$1" | tee "$work/out/\$(echo "\$name" | tr / :)"
EOF
chmod +x "$work/script"
scripts() { prove "$@" -e "$work/script" -r "$work/tests"; }

plain() {
	cp "$work/real/pjdfstest" "$work/pjdfstest"
	(cd "$work/point" && scripts)
}

overlay() {
	mkdir "$work/l" "$work/u" "$work/w"
	mount -t overlay -o "lowerdir=$work/l,upperdir=$work/u,workdir=$work/w" pjd "$work/point"
	plain
}

session() {
	cp "$work/real/pjdfstest" "$work/pjdfstest"
	ntr run -c "mkdir t && cd t && prove -e '$work/script' -r '$work/tests'"
}

# each WHERE: every system call by itself, by way of $work/one, which gets the call and finds the directory in PJD_CWD.
each() {
	chmod +x "$work/one"
	cat >"$work/pjdfstest" <<-'EOF'
		#!/bin/sh
		exec "${0%/*}/one" "${0%/*}/real/pjdfstest" "$@"
	EOF
	chmod +x "$work/pjdfstest"
	cat >"$work/head" <<-EOF
		PJD_SESSION=pjd\$\$
		PJD_CWD=$1
		PJD_WORK=$work
		PJD_HERE=$here
		export PJD_SESSION PJD_CWD PJD_WORK PJD_HERE
		df() { echo "ntr overlay"; }
	EOF
	cat >"$work/tail" <<-'EOF'
		cd() { case $1 in /*) PJD_CWD=$1 ;; .) ;; *) PJD_CWD=$PJD_CWD/$1 ;; esac; }
		pwd() { echo "$PJD_CWD"; }
		mkdir() { "$PJD_WORK/one" mkdir "$@"; }
		rm() { "$PJD_WORK/one" rm "$@"; }
		cp() { "$PJD_WORK/one" cp "$@"; }
		ln() { "$PJD_WORK/one" ln "$@"; }
		dd() { case " $* " in *" of="*) "$PJD_WORK/one" dd "$@" ;; *) command dd "$@" ;; esac; }
	EOF
	cat "$work/head" "$src/tests/misc.sh" "$work/tail" >"$work/tests/misc.sh"
	# shellcheck disable=SC2016
	sed -i 's/^echo test > \${n0}$/"$PJD_WORK\/one" sh -c "echo test >${n0}"/' "$work/tests/open/00.t"
	scripts -j4
}

folded() {
	cat >"$work/one" <<-'EOF'
		#!/bin/sh
		ntr run -s "$PJD_SESSION" --cwd "$PJD_CWD" -- "$@"
		status=$?
		ntr stop -s "$PJD_SESSION" >/dev/null 2>&1
		exit $status
	EOF
	each /workspace
}

lower() {
	cat >"$work/one" <<-'EOF'
		#!/bin/sh
		exec /usr/bin/python3 "$PJD_HERE/layers.py" "$PJD_WORK/states/$PJD_SESSION" "$PJD_WORK/point" "$@"
	EOF
	each "$work/point"
}

# Script, number and text of what failed, with the random names, times and inode numbers taken out.
failures() {
	(cd "$work/out" && grep -H '^not ok' -- *.t | grep -v '# TODO') |
		sed -E 's/:/\//; s/pjdfstest_[0-9a-f]+/N/g; s/[0-9a-f]{60,}[0-9a-fx/]*/LONG/g; s/[0-9]{7,}/#/g' || true
}

status=0
"$how" >"$work/log" 2>"$work/errors" || status=$?
failures | tee "${PJD_FAILED:-/dev/null}"
echo "$how: $(cat "$work/out"/*.t | grep -cE '^(not )?ok') assertions, $(failures | wc -l) failed"
grep -vE '\.\. ?(ok|skipped.*)$' "$work/log" | sed '/^Test Summary Report/,/^Files=/{/^Files=/!d}' || true
exit $status
