#!/usr/bin/env bash
# test.sh [--unit | --e2e] [FILTER]: the quick tier: builds, runs the unit tests, then the end-to-end tests as root and as an
# ordinary user, over io_uring and over /dev/fuse, and against the system's libfuse. Under ten minutes.
# What cannot run on this machine is listed at the end with its reason.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/test-lib.sh"
part=all filter=
while [ $# -gt 0 ]; do
	case $1 in
	--unit) part=unit ;;
	--e2e) part=e2e ;;
	-*) echo "usage: tools/test.sh [--unit | --e2e] [FILTER]" >&2; exit 2 ;;
	*) filter=$1 ;;
	esac
	shift
done
cd "$top"
tools/packages.sh build run test
tools/libfuse.sh build/libfuse/prefix
build_preset release
if [ $part != e2e ]; then
	say "unit tests"
	if has_userns; then
		run_units build/release
	else
		# These run each test as root and as an ordinary user, and mount in namespaces of their own.
		skips+=("unit tests test_view_*, test_absorb_*, test_versions_mount: this place refuses user namespaces (a chroot, or a host's policy)")
		run_units build/release -E '^test_(view|absorb)_|^test_versions_mount$'
	fi
fi
if [ $part != unit ]; then
	open_fuse_device
	core='slice|mount[.]bats|crash|history'
	if with_uring; then
		e2e release "$filter" "$filter" NTR_URING=1
		restore_uring
		e2e release "${filter:-$core}" "${filter:-$core}" NTR_URING=0
	else
		skips+=("end to end over io_uring: fuse.enable_uring is not there, or cannot be turned on")
		e2e release "$filter" "$filter" NTR_URING=0
	fi
	if [ -f build/libfuse/prefix/lib/libfuse3.a ]; then
		build_preset system-fuse
		e2e system-fuse "${filter:-slice|mount[.]bats}" "${filter:-slice|mount[.]bats}" NTR_URING=0
	fi
fi
summary
