#!/usr/bin/env bash
# stress-one.sh SECONDS [SESSIONS]: stress-ng's filesystem stressors with --verify, fio's verifying jobs and dbench, each for
# SECONDS, in SESSIONS sessions of $NTR_STORE side by side. What fails is run on the plain filesystem and on a plain overlay of it
# too, and what the tool complained of is compared: one line each. Fails when the session said something that neither did.
set -uo pipefail
seconds=$1 sessions=${2:-3}
work=$(mktemp -d "${TMPDIR:-/tmp}/ntr-stress.XXXXXX")
trap 'rm -rf "$work"' EXIT
limit=$((seconds * 4 + 180))

# complaints LOG: what a tool found wrong, without the numbers that differ from run to run.
complaints() {
	grep -aE 'fail: |fail(ed)?[: ]|error|corrupt|mismatch|verify:' "$1" | grep -avE 'dispatching|info: +\[[0-9]+\] (successful|failed:)|: run completed|err= 0' |
		sed -E 's/^stress-ng: //; s/\[[0-9]+\] //; s/0x[0-9a-f]+/N/g; s/[0-9]{2,}/N/g; s/(stressor|instance|process) [0-9]+/\1 N/g' | sort -u
}

# on_plain LOG CMD…; on_overlay LOG CMD…: with the same rights, in an empty folder, after "${first[@]}"; the status of CMD.
first=(true)
# shellcheck disable=SC2016 # for the inner shell: COUNT FIRST… CMD…
after_first=(bash -c '"${@:2:$1}" >/dev/null && exec "${@:$1+2}"' -)
on_plain() {
	local log=$1 dir status=0
	shift
	dir=$(mktemp -d "$work/plain.XXXXXX")
	(cd "$dir" && timeout "$limit" "${after_first[@]}" ${#first[@]} "${first[@]}" "$@" >"$log" 2>&1) || status=$?
	rm -rf "$dir"
	return $status
}
on_overlay() {
	local log=$1 dir status=0 ns=(unshare -m) drop=() options=redirect_dir=on,xino=on,metacopy=on
	shift
	dir=$(mktemp -d "$work/overlay.XXXXXX")
	mkdir "$dir"/{lower,upper,work,merged}
	if [ "$(id -u)" -ne 0 ]; then
		ns=(unshare -U --map-root-user -m)
		drop=(unshare -U "--map-user=$(id -u)" "--map-group=$(id -g)" --)
		options=xino=on,userxattr
	fi
	# shellcheck disable=SC2016 # for the inner shell
	timeout "$limit" "${ns[@]}" bash -c 'cd "$1" && mount -t overlay overlay -o "lowerdir=lower,upperdir=upper,workdir=work,$2" merged &&
		cd merged && shift 2 && exec "$@"' - "$dir" "$options" "${drop[@]}" \
		"${after_first[@]}" ${#first[@]} "${first[@]}" "$@" >"$log" 2>&1 || status=$?
	rm -rf "$dir" 2>/dev/null || chmod -R u+rwx "$dir" && rm -rf "$dir"
	return $status
}

# complains_alike STATUS MINE LOG CMD…: so does plain overlayfs, in one of a few tries: some failures are races of the
# program's own processes. Leaves its status in `overlay`.
complains_alike() {
	local status=$1 mine=$2 log=$3 try
	shift 3
	for try in 1 2 3 4 5 6; do
		overlay=0
		on_overlay "$log.overlay.$try" "$@" || overlay=$?
		[ $overlay -eq "$status" ] || continue
		complaints "$log.overlay.$try" >>"$log.seen"
		[ -n "$(comm -23 <(echo "$mine") <(complaints "$log.plain" | sort -u - "$log.seen"))" ] || return 0
	done
	return 1
}

# judge LABEL STATUS LOG CMD…: after a failure.
judge() {
	local label=$1 status=$2 log=$3 plain=0 overlay=- mine new verdict
	shift 3
	on_plain "$log.plain" "$@" || plain=$?
	mine=$(complaints "$log")
	if [ $plain -eq $status ] && new=$(comm -23 <(echo "$mine") <(complaints "$log.plain")) && [ -z "$new" ]; then
		verdict="on the plain filesystem too"
	elif complains_alike "$status" "$mine" "$log" "$@"; then
		verdict="on plain overlayfs too"
	else
		verdict="FAILED here alone (plain filesystem: $plain, plain overlayfs: $overlay)"
		echo "$label" >>"$work/failed"
	fi
	{
		printf '%-26s exit %s, %s\n' "$label" "$status" "$verdict"
		if [ -n "$mine" ]; then head -8 <<<"$mine"; else grep -avE '^$|dispatching|setting to|successful' "$log" | head -3; fi | cut -c1-160 | sed 's/^/    /'
		case $verdict in
		FAILED*) tail -5 "$log" | sed 's/^/    | /' ;;
		esac
	} >"$log.verdict"
	cat "$log.verdict"
}

# one SESSION LABEL CMD…
one() {
	local session=$1 label=$2 status=0 began=$SECONDS log
	log=$(mktemp "$work/log.XXXXXX")
	shift 2
	timeout "$limit" ntr run -s "$session" -- "$@" >"$log" 2>&1 || status=$?
	if [ $status -eq 1 ] && [[ $label = stress-ng* ]]; then # it does not like its arguments
		cat "$log"
		echo "$label" >>"$work/failed"
	elif [ $status -ne 0 ]; then
		judge "$label" $status "$log" "$@"
	else
		printf '%-26s clean, %s s\n' "$label" $((SECONDS - began))
	fi
	rm -f "$log" "$log".*
}

stressor() {
	local options=()
	case $2 in
	copy-file) options=(--copy-file-bytes 128m) ;;
	fallocate | hdd | iomix | readahead | revio | sync-file) options=("--$2-bytes" 64m) ;;
	mmap) options=(--mmap-file --mmap-bytes 64m) ;;
	seek) options=(--seek-size 64m) ;;
	esac
	one "$1" "stress-ng $2" stress-ng "--$2" 2 "${options[@]}" --verify -t "$seconds" --temp-path .
}

# Written and verified, then verified from the commit below, then changed there for as long as a stressor runs.
fio_job() {
	local session=$1 name=$2 common write first=(true)
	shift 2
	common=(fio "--name=$name" "--filename=fio.$name" --size=64m --verify=crc32c --verify_fatal=1 "$@")
	write=("${common[@]}" --do_verify=1)
	one "$session" "fio $name" "${write[@]}"
	ntr stop -s "$session" >/dev/null || echo "fio $name: stop" >>"$work/failed"
	first=("${write[@]}")
	one "$session" "fio $name, committed" "${common[@]}" --verify_only
	# shellcheck disable=SC2016 # for the inner shell
	one "$session" "fio $name, again" bash -c 'end=$((SECONDS + $1)); while ((SECONDS < end)); do "${@:2}" || exit; done' - \
		"$seconds" "${write[@]}"
	ntr run -s "$session" -- rm -f "fio.$name"
}

dbench_job() { one "$1" dbench dbench -D . -c "$2" -t "$seconds" 4; }

# lane NUMBER: every job whose turn it is, in a session of its own.
lane() {
	local n=$1 i job
	ntr new "stress$n" >/dev/null
	for ((i = n; i < ${#jobs[@]}; i += sessions)); do
		read -ra job <<<"${jobs[i]}"
		"${job[0]}" "stress$n" "${job[@]:1}"
	done
}

loadfile=/usr/share/dbench/client.txt
[ -e $loadfile ] || loadfile=$(find /usr/share -name client.txt -path '*dbench*' 2>/dev/null | head -1)
jobs=("dbench_job $loadfile"
	"fio_job seq --rw=write --bs=128k --ioengine=psync"
	"fio_job rand --rw=randwrite --bs=4k --ioengine=psync --fsync=64"
	"fio_job mmap --rw=randwrite --bs=4k --ioengine=mmap"
	"fio_job aio --rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 --direct=1"
	"fio_job uring --rw=randwrite --bs=8k --ioengine=io_uring --iodepth=16"
	"fio_job trim --rw=write --bs=64k --ioengine=sync --overwrite=1")
# Those that take a folder to work in; procfs, sysfs and the like are others' filesystems.
known=$(stress-ng --help 2>&1)
for s in access chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fcntl fiemap file-ioctl filename flock fpunch \
	fsize fstat getdent hdd inotify io iomix lease link locka lockf lockofd mknod open readahead rename seek sendfile symlink sync-file \
	touch umask unlink utime xattr chattr handle inode-flags metamix mmap mmapfixed msync msyncmany revio verity aio aiol io-uring fanotify splice \
	vm-splice tee; do
	if grep -qE -- "--$s N" <<<"$known"; then jobs+=("stressor $s"); fi
done

ntr sessions >/dev/null # one daemon for all of them
lanes=()
for ((n = 0; n < sessions; n++)); do
	lane $n &
	lanes+=($!)
done
wait "${lanes[@]}"

if ntr fsck >"$work/fsck" 2>&1; then
	echo "fsck                       clean"
else
	cat "$work/fsck"
	echo fsck >>"$work/failed"
fi
for ((n = 0; n < sessions; n++)); do ntr rm --discard "stress$n" >/dev/null 2>&1; done
ntr daemon stop || echo "daemon stop" >>"$work/failed"
echo "${#jobs[@]} jobs in $SECONDS s"
[ ! -e "$work/failed" ] || { sort -u "$work/failed" | sed 's/^/FAILED: /'; exit 1; }
