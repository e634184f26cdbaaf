#!/usr/bin/env bash
# stress-one.sh SECONDS: stress-ng's filesystem stressors with --verify, fio's verifying jobs and dbench, in a session of
# $NTR_STORE. What fails there is run in a plain directory too: what fails there as well is the tool's or the kernel's.
# One line each; fails when the session alone did.
set -uo pipefail
seconds=$1
plain=$(mktemp -d "${TMPDIR:-/tmp}/ntr-stress.XXXXXX")
log=$plain.log bad=0
trap 'rm -rf "$plain" "$log"' EXIT

# one LABEL CMD…: in the session, and where that fails, in the plain directory.
one() {
	local label=$1 status=0 there=0 began=$SECONDS
	shift
	timeout $((seconds * 4 + 120)) ntr run -s stress -- "$@" >"$log" 2>&1 || status=$?
	# 1 of stress-ng: it does not like its arguments
	if [ $status -eq 1 ] && [[ $label = stress-ng* ]]; then
		cat "$log"
		bad=1
	elif [ $status -ne 0 ]; then
		if [ "$(id -u)" -ne 0 ] && [ "$label" = "stress-ng chown" ] && ! grep 'fail: ' "$log" | grep -qv 'errno=22'; then
			printf '%-22s only EINVAL for EPERM (docs/design.md, section 7)\n' "$label"
			return
		fi
		(cd "$plain" && timeout $((seconds * 4 + 120)) "$@" >"$log.plain" 2>&1) || there=$?
		if [ $there -eq $status ]; then
			printf '%-22s exit %s, in a plain directory too: %s\n' "$label" $status "$(grep -v '^$' "$log" | grep -ivE 'dispatching|setting to|metrics|info:.*(successful|passed)' | head -1 | cut -c1-120)"
		else
			printf '%-22s FAILED: exit %s, in a plain directory %s\n' "$label" $status $there
			grep -E 'fail|error|skip' "$log" | head -5
			bad=1
		fi
		rm -f "$log.plain"
	else
		printf '%-22s clean, %s s\n' "$label" $((SECONDS - began))
	fi
	find "$plain" -mindepth 1 -delete 2>/dev/null
}

ntr new stress >/dev/null
# Those that take a folder to work in; procfs, sysfs and the like are others' filesystems.
all="access chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap file-ioctl dnotify
filename flock fpunch fsize fstat getdent hdd inotify io iomix lease link locka lockf lockofd mknod open readahead rename seek
sendfile symlink sync-file touch umask unlink utime xattr chattr handle inode-flags metamix mmap mmapfixed msync aio aiol
io-uring fanotify splice vm-splice tee"
known=$(stress-ng --help 2>&1)
sizes() {
	case $1 in
	copy-file) echo --copy-file-bytes 128m ;;
	fallocate | hdd | iomix | readahead | sync-file) echo --$1-bytes 64m ;;
	seek) echo --seek-size 64m ;;
	esac
}
for s in $all; do
	grep -qE -- "--$s N" <<<"$known" || continue
	one "stress-ng $s" stress-ng "--$s" 2 $(sizes "$s") --verify -t "$seconds" --temp-path .
done

# Written and verified, then verified from the commit below, then changed there.
job() {
	local label=$1
	shift
	one "fio $label" fio --name="$label" --filename="fio.$label" --size=64m --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--runtime="$seconds" "$@"
	ntr stop -s stress >/dev/null || bad=1
	one "fio $label, committed" fio --name="$label" --filename="fio.$label" --size=64m --verify=crc32c --verify_fatal=1 \
		--verify_only "$@"
	one "fio $label, again" fio --name="$label" --filename="fio.$label" --size=64m --verify=crc32c --verify_fatal=1 \
		--do_verify=1 --runtime="$seconds" "$@"
	ntr run -s stress -- rm -f "fio.$label"
}
job seq --rw=write --bs=128k --ioengine=psync
job rand --rw=randwrite --bs=4k --ioengine=psync --fsync=64
job mmap --rw=randwrite --bs=4k --ioengine=mmap
job aio --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 --direct=1
job uring --rw=randwrite --bs=8k --ioengine=io_uring --iodepth=16
job trim --rw=write --bs=64k --ioengine=sync --overwrite=1

loadfile=/usr/share/dbench/client.txt
[ -e $loadfile ] || loadfile=$(find /usr/share -name client.txt -path '*dbench*' 2>/dev/null | head -1)
one dbench dbench -D . -c "$loadfile" -t "$seconds" 4

ntr fsck >"$log" 2>&1 && echo "fsck                   clean" || { cat "$log"; bad=1; }
ntr rm --discard stress >/dev/null 2>&1
ntr daemon stop || bad=1
exit $bad
