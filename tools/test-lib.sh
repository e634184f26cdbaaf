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

# run_units BUILD [ctest's options…]
run_units() {
	local dir=$1
	shift
	ctest --test-dir "$dir" --output-on-failure -j "$(nproc)" --timeout 600 "$@" || failures+=("unit tests of $dir")
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

# stage PRESET: the programs, and a copy of the sources with the tests in it, in a folder that an ordinary user can read,
# wherever the checkout is. tests/bats finds documents and completion beside itself as in a checkout.
stage() {
	stage_dir=$(mktemp -d "${TMPDIR:-/tmp}/ntr-stage.XXXXXX")
	mkdir -p "$stage_dir/bin"
	cp "$top/build/$1/cli/ntr" "$top/build/$1/cli/ntrd" "$top/build/$1/exec/ntr-init" "$top/build/$1/exec/ntr-pass" \
		"$stage_dir/bin/"
	local helper
	for helper in ntr-powercut.so ntr-powercut-check ntr-powercut-disk; do
		[ ! -f "$top/build/$1/tests/$helper" ] || cp "$top/build/$1/tests/$helper" "$stage_dir/bin/"
	done
	if git -C "$top" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$top" ls-files -z | tar -C "$top" --null -T - -cf - | tar -C "$stage_dir" -xf -
	else
		tar -C "$top" --exclude=./build -cf - . | tar -C "$stage_dir" -xf -
	fi
	chmod -R a+rX "$stage_dir"
}

# bats_run WHO LABEL DIR-OF-BINARIES-AND-TESTS FILTER [VAR=VALUE…]: 0 when all passed.
bats_run() {
	local who=$1 label=$2 dir=$3 filter=$4
	shift 4
	local home files=() status=0 f w
	home=$(mktemp -d "${TMPDIR:-/tmp}/ntr-home.XXXXXX")
	mkdir -m 700 "$home/run"
	for w in ${filter:-.}; do
		for f in "$dir"/tests/bats/*.bats; do [[ $f =~ $w ]] && files+=("$f"); done
	done
	[ ${#files[@]} -gt 0 ] || { echo "no end-to-end test matches '$filter'"; return 1; }
	local cmd=(env HOME="$home" XDG_RUNTIME_DIR="$home/run" TMPDIR="$home" NTR_BIN="$dir/bin" NTR_LIBEXEC="$dir/bin"
		NTR_SOURCE="$dir" "$@" bats --print-output-on-failure "${files[@]}")
	say "end to end: $label"
	if [ "$who" = user ]; then
		chmod 700 "$home"
		[ "$(id -u)" -ne 0 ] || chown -R 65534:65534 "$home"
		(cd "$dir" && as_user "${cmd[@]}") </dev/null || status=1 # the checkout may lie in root's home
	else
		chmod 1777 "$home" # its tests become the ordinary user for a moment
		"${cmd[@]}" </dev/null || status=1
	fi
	rm -rf "$home"
	return $status
}

# e2e PRESET ROOT-FILTER USER-FILTER [VAR=VALUE…]: as root and as an ordinary user, side by side.
e2e() {
	local preset=$1 for_root=$2 for_user=$3 label
	shift 3
	label="$preset $*"
	stage "$preset"
	local root_pid= user_pid= log=$stage_dir/log
	if [ "$(id -u)" -eq 0 ]; then
		bats_run root "$label, root" "$stage_dir" "$for_root" "$@" >"$log.root" 2>&1 &
		root_pid=$!
	else
		skips+=("end to end, $label, as root: not run by root")
	fi
	if has_userns; then
		bats_run user "$label, ordinary user" "$stage_dir" "$for_user" "$@" >"$log.user" 2>&1 &
		user_pid=$!
	else
		skips+=("end to end, $label, as an ordinary user: this place refuses user namespaces (a chroot, or a host's policy)")
	fi
	[ -z "$root_pid" ] || { wait "$root_pid" || failures+=("end to end, $label, root"); cat "$log.root"; }
	[ -z "$user_pid" ] || { wait "$user_pid" || failures+=("end to end, $label, ordinary user"); cat "$log.user"; }
	while read -r s; do skips+=("$s"); done < <(grep -hoE '^ok [0-9]+ .* # skip.*' "$log".* 2>/dev/null | sed 's/^ok [0-9]* //' | sort -u)
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
