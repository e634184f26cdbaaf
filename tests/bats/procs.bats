# Processes that live on between calls: those whose main thread has ended, and what is stored through shared mappings.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# A process of a thread alone: the main one ends at once.
leaderless() {
	cat >"$TEST_DIR/leaderless.py" <<-'P'
		import ctypes, sys, threading, time
		def run():
		    for _ in range(3000): # should nobody end it
		        with open(sys.argv[1], 'w') as f: f.write('x')
		        time.sleep(0.01)
		threading.Thread(target=run).start()
		ctypes.CDLL(None).pthread_exit(None)
	P
}

@test "a process whose main thread has ended is in the background, and a rollback ends it" {
	leaderless
	ntr run -c 'echo base > base'
	ntr run -c "/usr/bin/python3 $TEST_DIR/leaderless.py tick </dev/null >/dev/null 2>&1 & while [ ! -s tick ]; do sleep 0.05; done; sleep 0.2"
	run ntr log -n 1 --json
	assert_equal "$(json '["background"]' <<<"$output")" true
	run ntr ps
	assert_output --partial leaderless.py
	run timeout -s KILL 20 ntr rollback '~1'
	assert_success
	assert_output --partial ended
	run ntr ps --json
	assert_output ""
	run timeout -s KILL 20 ntr run -c 'ls'
	assert_output base
}

@test "a timeout ends a call whose main thread has ended" {
	leaderless
	run timeout -s KILL 20 ntr run --timeout 1 -- /usr/bin/python3 "$TEST_DIR/leaderless.py" "$TEST_DIR/work/tick"
	assert_failure 124
	assert_file_exists tick
	rm tick
	sleep 0.3
	assert_file_not_exists tick
}
