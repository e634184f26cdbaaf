#!/usr/bin/env bash
# memory-one.sh FILES MIB SESSIONS: the daemon's peak of resident memory in each of a session's large jobs, and what
# must bound it. One line a job; status 1 when a bound is broken. The store is $NTR_STORE.
set -euo pipefail
files=$1 mib=$2 sessions=$3 status=0
work=$(mktemp -d "${TMPDIR:-/tmp}/ntr-memory.XXXXXX")
trap 'ntr daemon stop; rm -rf "$work"' EXIT

pid() { ntr daemon status --json | /usr/bin/python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])'; }
# field PID NAME: of /proc/PID/status, in MiB
field() { awk -v f="$2:" '$1 == f { print int($2 / 1024) }' "/proc/$1/status"; }
fresh() { ntr daemon stop; rm -rf "$NTR_STORE"; ntr sessions >/dev/null; daemon=$(pid); }
again() { ntr daemon stop; ntr sessions >/dev/null; daemon=$(pid); }
# bound WHAT MIB GOT
bound() {
	printf 'memory: %-58s %5s MiB of %s\n' "$1" "$3" "$2"
	[ "$3" -le "$2" ] || { echo "memory: $1: more than $2 MiB"; status=1; }
}
# peak WHAT MIB COMMAND…: the daemon's while the command runs
peak() {
	local what=$1 most=$2
	shift 2
	echo 5 >"/proc/$daemon/clear_refs"
	"$@" >/dev/null
	bound "$what" "$most" "$(field "$daemon" VmHWM)"
}
make_files='import os, sys
n = int(sys.argv[1])
for i in range(n):
    if i % 1000 == 0: os.mkdir("d%d" % (i // 1000)); os.chdir("d%d" % (i // 1000))
    fd = os.open("f%d" % i, os.O_WRONLY | os.O_CREAT, 0o644); os.write(fd, b"file %d\n" % i * 20); os.close(fd)
    if i % 1000 == 999: os.chdir("..")'
make_tar='import io, sys, tarfile
with tarfile.open(sys.argv[2], "w", format=tarfile.USTAR_FORMAT) as t:
    for i in range(int(sys.argv[1])):
        data = b"file %d\n" % i * 20; h = tarfile.TarInfo("d%d/f%d" % (i // 1000, i)); h.size = len(data); h.mode = 0o644
        t.addfile(h, io.BytesIO(data))'

fresh
bound "a daemon that has done nothing" 100 "$(field "$daemon" VmRSS)"
peak "one file of $mib MiB, written and committed" 700 ntr run -c "head -c ${mib}M /dev/urandom >big"
peak "its fold" 700 ntr stop
again
peak "the same file, read from its commit" 700 ntr run -c 'cat big >/dev/null'
again
peak "a page in the middle of it changed and committed" 700 ntr run -c \
	"head -c 4096 /dev/urandom | dd of=big bs=4k seek=$((mib * 128)) conv=notrunc status=none"
fresh
peak "a commit of $files new files" 900 ntr run -- /usr/bin/python3 -c "$make_files" "$files"
peak "their fold" 900 ntr stop
again
peak "$files inodes looked up (find)" 700 ntr run -c 'find . -type f -size +100k'
held=$(ntr daemon status --json | /usr/bin/python3 -c 'import json,sys; o=json.load(sys.stdin); print(o["fuse_inodes"], o["fuse_table_bytes"] >> 20)')
echo "memory: inodes the kernel holds, and MiB of their table: $held"
again
peak "all of them read" 700 ntr run -c 'find . -type f -exec cat {} + | wc -c'
peak "all of them removed and committed" 900 ntr run -c 'rm -rf d*'
/usr/bin/python3 -c "$make_tar" "$files" "$work/many.tar"
fresh # after that: a daemon that has nothing to do ends
peak "an import of $files small files" 900 ntr new many --from "$work/many.tar"
rm "$work/many.tar"
mkdir "$work/out"
peak "an export of them" 700 ntr export -s many --dir "$work/out/x"
rm -rf "$work/out"
fresh
echo 5 >"/proc/$daemon/clear_refs"
for ((i = 0; i < sessions; i++)); do ntr run -s "s$i" -c 'echo 1 >f' >/dev/null; done
bound "$sessions live sessions" 300 "$(field "$daemon" VmHWM)"
supervisors=$(for p in $(pgrep -P "$daemon" ntr-init); do awk '$1 == "Pss:" { print $2 }' "/proc/$p/smaps_rollup"; done |
	awk '{ s += $1 } END { print int(s / 1024) }')
bound "their supervisors together (Pss)" $((sessions + 20)) "${supervisors:-0}"
exit $status
