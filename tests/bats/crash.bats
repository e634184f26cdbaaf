# Whatever is killed: acknowledged commits are there, written work comes back, the next command works.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

@test "kill -9 of the daemon, of the supervisor, of the call" {
	run /usr/bin/python3 "$NTR_TESTS/crash/kills.py" --rounds "${NTR_KILLS:-6}"
	assert_success
	echo "$output"
}

@test "a killed daemon leaves no dead mount, no process; its successor cleans up" {
	ntr run -c 'echo 1 > f; sleep 300 >/dev/null 2>&1 & echo $! > pid'
	local pid; pid=$(ntr run -- cat pid)
	kill -9 "$(ntr daemon status --json | json '["pid"]')"
	for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
	run kill -0 "$pid"
	assert_failure
	run ntr run -- cat f
	assert_output 1
	run ls "$NTR_STORE/versions"
	assert_success
}

@test "a second owner of a store is refused, naming the holder" {
	ntr run -c true
	local pid; pid=$(ntr daemon status --json | json '["pid"]')
	run "$NTR_BIN/ntrd" --store "$NTR_STORE" --foreground
	assert_failure
	assert_output --partial "$pid"
}

@test "fsck finds nothing wrong in a store in use, and names a flipped byte" {
	ntr run -c 'for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/urandom > f$i; done'
	run ntr fsck
	assert_success
	ntr daemon stop
	local sst; sst=$(ls -S "$NTR_STORE"/db/*.sst | head -1)
	/usr/bin/python3 - "$sst" <<-'P'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.seek(50000); b = f.read(1); f.seek(50000); f.write(bytes([b[0] ^ 1]))
	P
	run ntr fsck
	assert_failure 1
	refute_output ""
}
