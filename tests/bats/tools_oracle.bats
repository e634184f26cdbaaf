# The oracle: random file operations, spread over many calls with commits, folds, forks, rollbacks, restarts and crashes
# between them, give what they give in a plain directory. Longer: tests/long/oracle.sh.
load common

setup() { ntr_setup; }
teardown() {
	chmod -R u+rwx "$TEST_DIR" 2>/dev/null || true
	ntr_teardown
}

oracle() {
	command -v cc >/dev/null || skip "no C compiler"
	TMPDIR=$TEST_DIR run /usr/bin/python3 "$NTR_TESTS/helpers/oracle.py" "$@"
	assert_success
	echo "$output"
}

@test "random operations over many calls give what a plain directory gives" {
	oracle --seed "${NTR_SEED:-1}" --sequences 2 --ops 1500 --each 150
}

@test "what a kill leaves of random operations is what a cut at one system call leaves" {
	oracle --seed "${NTR_SEED:-1}" --sequences 1 --ops 1500 --each 150 --kills
}

@test "long random sequences" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	oracle --seed 100 --sequences 8 --ops 5000 --each 100
	oracle --seed 100 --sequences 8 --ops 5000 --each 100 --kills
}
