#!/usr/bin/env bash
# test.sh [--unit | --e2e | --rest] [FILTER]: the quick tier, under ten minutes: builds, runs the unit tests, then the end-to-end
# tests: those that differ by who runs them as root and as an ordinary user, the others as one of the two; over io_uring, and
# the core over /dev/fuse. --rest: the end-to-end tests that this leaves out (the others as the other one, the core against the
# system's libfuse, the building of the project). With FILTER, what matches it as both.
# What cannot run on this machine is listed at the end with its reason.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/tools/test-lib.sh"
part=all filter=
while [ $# -gt 0 ]; do
	case $1 in
	--unit) part=unit ;;
	--e2e) part=e2e ;;
	--rest) part=rest ;;
	-*) echo "usage: tools/test.sh [--unit | --e2e | --rest] [FILTER]" >&2; exit 2 ;;
	*) filter=$1 ;;
	esac
	shift
done
cd "$top"
tools/packages.sh build run test
tools/libfuse.sh build/libfuse/prefix
build_preset release
if [ $part != e2e ] && [ $part != rest ]; then
	say "unit tests"
	if has_userns; then
		run_units build/release
	else
		# These run each test as root and as an ordinary user, and mount in namespaces of their own.
		skips+=("unit tests test_view_*, test_absorb_*, test_versions_mount: this place refuses user namespaces (a chroot, or a host's policy)")
		run_units build/release -E '^test_(view|absorb)_|^test_versions_mount$'
	fi
fi
# Which files run as whom. Each is in one of the lists.
both='slice|mount|history|crash|rename_user|posix|procs'
by_root='contract|cli_|hooks|bad_(disk|faults|import|upper)|powercut|cache|protocol|cold|ci_recipe'
by_user='tools_|py|mcp|bad_(store|host|names)'
later='project'
lists_hold() {
	local f list n
	for f in tests/bats/*.bats; do
		n=0
		for list in "$both" "$by_root" "$by_user" "$later"; do [[ $f =~ ^tests/bats/($list)[^/]*$ ]] && n=$((n + 1)); done
		[ $n -eq 1 ] || failures+=("tools/test.sh: $f is in $n of its lists")
	done
}
named() { echo "/($1)[^/]*[.]bats$"; }
choose() { # sets for_root and for_user; 1: nothing is left
	for_root=$filter for_user=$filter
	[ -z "$filter" ] || return 0
	if [ "$(id -u)" -ne 0 ] || ! has_userns; then # only one of the two can run anything: it runs all, at once
		[ $part != rest ]
	elif [ $part = rest ]; then
		for_root=$(named "$by_user|$later") for_user=$(named "$by_root|$later")
	else
		for_root=$(named "$both|$by_root") for_user=$(named "$both|$by_user")
	fi
}
if [ $part != unit ]; then
	lists_hold
	open_fuse_device
	core='slice|mount[.]bats' uring=1
	with_uring || uring=0
	[ $uring -eq 1 ] || skips+=("end to end over io_uring: fuse.enable_uring is not there, or cannot be turned on")
	! choose || e2e release "$for_root" "$for_user" NTR_URING=$uring
	if [ $uring -eq 1 ]; then
		restore_uring
		[ $part != rest ] || core='crash|history'
		e2e release "${filter:-$core}" "${filter:-$core}" NTR_URING=0
	fi
	if [ $part = rest ] && [ -f build/libfuse/prefix/lib/libfuse3.a ]; then
		build_preset system-fuse
		e2e system-fuse "${filter:-slice|mount[.]bats}" "${filter:-slice|mount[.]bats}" NTR_URING=0
	fi
fi
summary
