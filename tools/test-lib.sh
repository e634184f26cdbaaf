# test-lib.sh: what tools/test.sh, .ci/run and tests/long share. Sourced with $top set.
skips=() failures=()
say() { printf '\n== %s\n' "$*"; }

# build_preset NAME: configures and builds one preset, quietly unless it fails.
build_preset() {
	say "build: $1"
	mkdir -p "$top/build"
	local log=$top/build/$1.log
	{ cmake --preset "$1" && ninja -C "$top/build/$1"; } >"$log" 2>&1 || { tail -60 "$log"; exit 1; }
}

run_units() {
	ctest --test-dir "$1" --output-on-failure -j "$(nproc)" --timeout 600 || failures+=("unit tests of $1")
}

open_fuse_device() {
	if [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ]; then chmod 666 /dev/fuse; fi
}

has_uring() { [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ]; }
# In a chroot the kernel refuses user namespaces to everybody; an ordinary user then cannot mount anything.
has_userns() { as_user unshare -Ur true 2>/dev/null; }

# The ordinary user of the tests: the caller, or for root the uid 65534 with a home of its own.
as_user() {
	if [ "$(id -u)" -ne 0 ]; then "$@"; else setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; fi
}

# stage PRESET: the programs and tests in a folder that an ordinary user can read, wherever the checkout is.
stage() {
	stage_dir=$(mktemp -d "${TMPDIR:-/tmp}/ntr-stage.XXXXXX")
	chmod 755 "$stage_dir"
	mkdir -p "$stage_dir/bin"
	cp "$top/build/$1/cli/ntr" "$top/build/$1/cli/ntrd" "$top/build/$1/exec/ntr-init" "$top/build/$1/exec/ntr-pass" \
		"$stage_dir/bin/"
	cp -r "$top/tests" "$stage_dir/tests"
	chmod -R a+rX "$stage_dir"
}

# bats_run WHO LABEL DIR-OF-BINARIES-AND-TESTS FILTER [VAR=VALUE…]
bats_run() {
	local who=$1 label=$2 dir=$3 filter=$4
	shift 4
	local home files=()
	home=$(mktemp -d "${TMPDIR:-/tmp}/ntr-home.XXXXXX")
	mkdir -p "$home/run"
	chmod 700 "$home" "$home/run"
	for f in "$dir"/tests/bats/*${filter}*.bats; do [ -e "$f" ] && files+=("$f"); done
	[ ${#files[@]} -gt 0 ] || { echo "no end-to-end test matches '$filter'"; failures+=("$label"); return; }
	local cmd=(env HOME="$home" XDG_RUNTIME_DIR="$home/run" TMPDIR="$home" NTR_BIN="$dir/bin" NTR_LIBEXEC="$dir/bin"
		"$@" bats --print-output-on-failure "${files[@]}")
	say "end to end: $label"
	if [ "$who" = user ]; then
		[ "$(id -u)" -ne 0 ] || chown -R 65534:65534 "$home"
		as_user "${cmd[@]}" || failures+=("end to end: $label")
	else
		"${cmd[@]}" || failures+=("end to end: $label")
	fi
	rm -rf "$home"
}

# e2e PRESET root|user FILTER: over io_uring where the kernel has it, and over /dev/fuse.
e2e() {
	local preset=$1 who=$2 filter=$3
	if [ "$who" = root ] && [ "$(id -u)" -ne 0 ]; then
		skips+=("$preset as root: not run by root")
		return
	fi
	if [ "$who" = user ] && ! has_userns; then
		skips+=("$preset as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
		return
	fi
	stage "$preset"
	bats_run "$who" "$preset, $who, /dev/fuse" "$stage_dir" "$filter" NTR_URING=0
	if [ "$preset" = system-fuse ]; then
		:
	elif with_uring; then
		bats_run "$who" "$preset, $who, io_uring" "$stage_dir" "$filter" NTR_URING=1
		restore_uring
	else
		skips+=("$preset, $who over io_uring: fuse.enable_uring is not there or cannot be turned on")
	fi
	rm -rf "$stage_dir"
}

# Turns FUSE over io_uring on for the tests where root may; restore_uring puts the old value back.
with_uring() {
	local f=/sys/module/fuse/parameters/enable_uring
	uring_before=$(cat "$f" 2>/dev/null || true)
	[ -n "$uring_before" ] && [ -f "$top/build/libfuse/prefix/lib/libfuse3.a" ] || return 1
	[ "$uring_before" = Y ] || { [ "$(id -u)" -eq 0 ] && echo Y >"$f" 2>/dev/null; } || return 1
	has_uring
}
restore_uring() {
	[ "$uring_before" = Y ] || echo "$uring_before" >/sys/module/fuse/parameters/enable_uring
}

summary() {
	say "summary"
	local s
	for s in "${skips[@]}"; do echo "skipped: $s"; done
	for s in "${failures[@]}"; do echo "FAILED: $s"; done
	[ ${#failures[@]} -eq 0 ] || exit 1
	echo "all passed"
}
