# Shared set-up of the end-to-end tests. NTR_BIN: the directory that holds the ntr to test (a build tree's cli/, or an
# installation's bin/). Runs as root and as an ordinary user alike.

bats_require_minimum_version 1.5.0
load /usr/lib/bats/bats-support/load.bash
load /usr/lib/bats/bats-assert/load.bash
load /usr/lib/bats/bats-file/load.bash

NTR_TESTS=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)
: "${NTR_BIN:=$NTR_TESTS/../build/release/cli}"

# A store, a runtime directory and a working directory of the test's own.
ntr_setup()
{
	[[ -x $NTR_BIN/ntr ]] || {
		echo "no ntr in NTR_BIN=$NTR_BIN" >&2
		return 1
	}
	unset NTR_SESSION NTR_CALL NTR_LIBEXEC NTR_FAKE
	TEST_DIR=$(mktemp -d "${TMPDIR:-/tmp}/ntr-bats.XXXXXX")
	export XDG_RUNTIME_DIR=$TEST_DIR/run NTR_STORE=$TEST_DIR/store HOME=$TEST_DIR/home
	mkdir -m 700 "$XDG_RUNTIME_DIR" "$HOME"
	mkdir "$TEST_DIR/work"
	export PATH=$NTR_BIN:$PATH LC_ALL=C.UTF-8 TZ=UTC
	cd "$TEST_DIR/work" || return
}

# Processes that belong to this test's store: the daemon, supervisors and what calls have left behind carry it in their
# environment, and are in other sessions than the test itself.
ntr_processes()
{
	local pid sid own
	own=$(ps -o sid= -p $$)
	grep -lzs "^NTR_STORE=$TEST_DIR/" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
		sid=$(ps -o sid= -p "$pid") && [[ $sid != "$own" ]] && ps -o pid=,args= -p "$pid"
	done || true
}

ntr_mounts()
{
	grep -F " $TEST_DIR/" /proc/self/mountinfo || true
}

# Ends the daemon; nothing of the test may be left behind.
ntr_teardown()
{
	local left status=0
	[[ -n ${TEST_DIR:-} ]] || return 0
	cd /
	unset NTR_FAKE
	ntr daemon stop || status=1
	for _ in {1..50}; do
		left=$(ntr_mounts; ntr_processes)
		[[ -z $left ]] && break
		sleep 0.1
	done
	if [[ -n $left ]]; then
		echo "left behind:" >&2
		echo "$left" >&2
		status=1
	fi
	[[ -z $(ntr_mounts) ]] && rm -rf "$TEST_DIR"
	return $status
}

# Puts the stand-in for ntrd in the real one's place.
ntr_fake()
{
	export NTR_LIBEXEC=$TEST_DIR/libexec
	mkdir -p "$NTR_LIBEXEC"
	ln -sf "$NTR_TESTS/helpers/fake_ntrd.py" "$NTR_LIBEXEC/ntrd"
}

# A member of the JSON object on stdin: json '["changes"]["created"]'
json()
{
	/usr/bin/python3 -c 'import json,sys; v=eval("json.load(sys.stdin)"+sys.argv[1]); print(v if isinstance(v,str) else json.dumps(v))' "$1"
}

# The full id of a session's head.
head_of()
{
	ntr log -s "$1" -n 1 --json | json '["commit"]'
}
