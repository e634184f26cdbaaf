# What the tests of bad input share: machines that lack something, made of namespaces.
load common

# Runs a bash script (stdin) in a mount namespace of its own, as the same user: root as it is, others with the rights of a
# user namespace of their own. The store's daemon must not outlive it. Skips where that cannot be.
inside()
{
	local script=$TEST_DIR/inside.bash ns=(unshare -m --propagation private)
	[[ $(id -u) == 0 ]] || ns=(unshare -U -c -m --keep-caps --propagation private)
	"${ns[@]}" true 2>/dev/null || skip "no namespaces for user $(id -u)"
	{
		cat <<-'END'
			mnt() { /usr/bin/python3 "$NTR_TESTS/helpers/mnt.py" "$@"; }
			deny() { /usr/bin/python3 "$NTR_TESTS/helpers/deny.py" "$@"; }
			json() { /usr/bin/python3 -c 'import json,sys; v=eval("json.load(sys.stdin)"+sys.argv[1]); print(v if isinstance(v,str) else json.dumps(v))' "$1"; }
			daemon_pid() { ntr daemon status --json | json '["pid"]'; }
			fail() { echo "failed: $*"; exit 99; }
			# expect STATUS TEXT… -- COMMAND: its exit status, and texts that its output has
			expect() {
				local want=$1 texts=() out got=0 t
				shift
				while [[ $1 != -- ]]; do texts+=("$1"); shift; done
				shift
				out=$("$@" 2>&1 </dev/null) || got=$?
				[[ $got == "$want" ]] || fail "$*: status $got, not $want: $out"
				for t in "${texts[@]}"; do
					[[ $out == *"$t"* ]] || fail "$*: no '$t' in: $out"
				done
			}
			trap 'ntr daemon stop' EXIT
		END
		cat
	} >"$script"
	NTR_TESTS=$NTR_TESTS run "${ns[@]}" bash -eu "$script"
	echo "$output"
	assert_success
}

# A message of ntr's: one line `ntr: WHAT: WHY; WHAT TO DO`.
assert_message()
{
	assert_equal "$(wc -l <<<"$output")" 1
	assert_output --regexp '^ntr: [^:]+: .+; .+$'
	local text
	for text in "$@"; do
		assert_output --partial "$text"
	done
}
