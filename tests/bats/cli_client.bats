# What the client says to a daemon and how it takes answers, against a stand-in for ntrd.
load common

setup() { ntr_setup; ntr_fake; }
teardown() { ntr_teardown; }

# The request that a command line becomes.
request()
{
	"$@" --json </dev/null | json '["request"]'
}

assert_request()
{
	local want=$1
	shift
	run /usr/bin/python3 -c 'import json,sys
got, want = json.loads(sys.argv[1]), json.loads(sys.argv[2])
[got.pop(k, None) for k in ("fds", "width", "stream")]
sys.exit(0 if got == want else f"got {got}, want {want}")' "$(request "$@")" "$want"
	assert_success
}

@test "requests are those of docs/protocol.md" {
	assert_request '{"op":"new","name":"a"}' ntr new a
	assert_request '{"op":"new","name":"a","wsroot":"/w","durability":"relaxed"}' ntr new a --root /w --durability relaxed
	mkdir d; echo >t.tar
	assert_request '{"op":"new","name":"a","from_dir":"d"}' ntr new a --from d
	assert_request '{"op":"new","name":"a","from_tar":"t.tar"}' ntr new a --from t.tar
	assert_request '{"op":"new","name":"a","from_rev":"b@123abcd"}' ntr new a --from b@123abcd
	assert_request '{"op":"fork","source":"a~1","name":"b"}' ntr fork a~1 b
	assert_request '{"op":"fork","source":"a","name":"b"}' ntr fork -s a b
	assert_request '{"op":"rename","old":"a","new":"b"}' ntr rename a b
	assert_request '{"op":"rm","name":"a","discard":true}' ntr rm a --discard
	assert_request '{"op":"show","session":"default","rev":"abc"}' ntr show abc
	assert_request '{"op":"status","session":"x"}' ntr status -s x
	assert_request '{"op":"commit","session":"x","message":"m"}' ntr commit -s x -m m
	assert_request '{"op":"discard","session":"default"}' ntr discard
	assert_request '{"op":"rollback","session":"x","steps":2,"discard":false,"force":false}' ntr rollback -s x --steps 2
	assert_request '{"op":"rollback","session":"x","rev":"abc","discard":true,"force":true}' \
		ntr rollback -s x --discard --force abc
	assert_request '{"op":"stop","session":"x"}' ntr stop -s x
	echo hi >f
	chmod 640 f
	assert_request '{"op":"put","session":"x","path":"f","mode":416}' ntr put -s x f
	assert_request '{"op":"put","session":"x","path":"dir/f","mode":416}' ntr put -s x f dir/
	assert_request '{"op":"get","session":"x","rev":"x~1","path":"p/q"}' ntr get -s x~1 p/q out
	assert_request '{"op":"export","session":"x","rev":"x@ab","format":"dir","label":"new"}' ntr export -s x@ab --dir new
	assert_request '{"op":"export","session":"x","format":"tar","label":"o.tar"}' ntr export -s x --tar o.tar
	[[ -d new && -f o.tar ]]
}

@test "the session: -s, NTR_SESSION, default" {
	assert_request '{"op":"status","session":"default"}' ntr status
	export NTR_SESSION=env
	assert_request '{"op":"status","session":"env"}' ntr status
	assert_request '{"op":"status","session":"opt"}' ntr status -s opt
	assert_request '{"op":"status","session":"opt"}' ntr -s opt status
}

@test "inside a call the client says so" {
	export NTR_SESSION=env NTR_CALL=1
	assert_request '{"op":"status","session":"x","inside":"env"}' ntr status -s x
}

@test "names that are no UTF-8 travel as base64" {
	f=$'caf\xe9'
	echo x >"$f"
	chmod 600 "$f"
	assert_request '{"op":"put","session":"default","path":{"base64":"Y2Fm6Q=="},"mode":384}' ntr put "$f"
}

@test "run: streams, exit code, environment" {
	run -3 ntr run -- sh -c 'echo out; echo err >&2; exit 3'
	assert_line out
	assert_line err
	run ntr run -- cat <<<'from stdin'
	assert_output 'from stdin'
	export A=1 PWD NTR_SOMETHING=x
	ntr run --env B=2 -- env >got
	grep -qx A=1 got
	grep -qx B=2 got
	grep -qx "NTR_STORE=$NTR_STORE" got
	run grep -E '^(PWD|OLDPWD|SHLVL|_|NTR_SOMETHING)=' got
	assert_failure
}

@test "run: what follows the first word is the command's" {
	run ntr run printf '%s ' -s --json -- -c x
	assert_output '-s --json -- -c x '
	run ntr run -- printf '%s ' -- --help
	assert_output '-- --help '
}

@test "run: scripts" {
	run ntr run -c 'echo $((6 * 7))'
	assert_output 42
	run ntr run - <<<'echo from-dash'
	assert_output from-dash
	run ntr run <<<'echo from-stdin'
	assert_output from-stdin
	run ntr run </dev/null
	assert_success
	assert_output ''
}

@test "run --json" {
	run -5 --separate-stderr ntr run --json -- sh -c 'echo out; echo err >&2; exit 5'
	assert_equal "$stderr" ''
	assert_equal "$(json '["stdout"]' <<<"$output")" out
	assert_equal "$(json '["stderr"]' <<<"$output")" err
	run /usr/bin/python3 -c 'import json,sys; print(*json.loads(sys.argv[1]))' "$output"
	assert_output 'stdout stderr exit_code timed_out truncated duration commit changes'
}

@test "run: the terminal is passed on" {
	run script -qec 'ntr run -- sh -c "test -t 0 && test -t 1 && test -t 2 && echo all-terminals"' /dev/null
	assert_output --partial all-terminals
}

@test "run: signals are forwarded, also a second one; 128+N" {
	cat >trap.sh <<-'END'
		n=0
		trap 'n=$((n + 1)); echo "int $n"; [ $n = 2 ] && exit 7' INT
		trap 'echo usr1' USR1
		echo ready
		while :; do sleep 0.05; done
	END
	ntr run -- bash "$PWD/trap.sh" >out &
	pid=$!
	for _ in {1..100}; do grep -q ready out 2>/dev/null && break; sleep 0.05; done
	kill -USR1 $pid
	sleep 0.3
	kill -INT $pid
	sleep 0.3
	kill -INT $pid
	status=0
	wait $pid || status=$?
	assert_equal $status 7
	run cat out
	assert_line usr1
	assert_line 'int 1'
	assert_line 'int 2'
	ntr run -- sleep 30 &
	pid=$!
	sleep 0.5
	kill -TERM $pid
	status=0
	wait $pid || status=$?
	assert_equal $status 143
}

@test "run: a timeout is 124 and a note" {
	NTR_FAKE=timeout run -124 --separate-stderr ntr run --timeout 5m -- echo hi
	assert_output hi
	assert_equal "$stderr" \
		'ntr: run: timed out: the call ran longer than its limit of 5m and was ended; give more with --timeout'
}

@test "run: an error of the daemon is 125" {
	NTR_FAKE=refuse run -125 ntr run -- true
	assert_output 'ntr: run: refused; ask again'
}

@test "a daemon that dies" {
	export NTR_FAKE=die
	run -125 ntr run -- true
	assert_output "ntr: run: the daemon ended unexpectedly; its last words are in $NTR_STORE/ntrd.log; the next command starts it again"
	run -1 ntr status
	assert_output --partial 'ntr: status: the daemon ended unexpectedly; its last words are in'
	unset NTR_FAKE
	run ntr run -- echo again
	assert_output again
}

@test "a daemon that does not start" {
	NTR_FAKE=silent run -1 ntr status
	assert_output "ntr: status: the daemon did not start: fake ntrd: no such library; see $NTR_STORE/ntrd.log; 'ntr doctor' checks this machine"
	NTR_LIBEXEC=$TEST_DIR/nowhere run -125 ntr run -- true
	assert_output --partial "ntr: run: cannot start the daemon $TEST_DIR/nowhere/ntrd: No such file or directory"
}

@test "a locked store is asked again, then its error is told" {
	SECONDS=0
	NTR_FAKE=busy run -1 ntr status
	assert_output 'ntr: open store: it is locked; wait'
	assert [ $SECONDS -ge 8 ]
	assert [ $SECONDS -le 30 ]
}

@test "another protocol" {
	NTR_FAKE=protocol run -1 ntr status
	assert_output --partial 'ntr: status: the daemon (version 9.9) speaks protocol 99, this ntr (version '
	assert_output --partial 'kill '
	kill "$(sed 's/.*kill //' <<<"$output")"
}

@test "many clients start one daemon" {
	for i in {1..8}; do
		ntr status -s "s$i" --json >"out.$i" &
	done
	wait
	for i in {1..8}; do
		assert_equal "$(json '["request"]["session"]' <"out.$i")" "s$i"
	done
}

@test "daemon status and stop" {
	run -1 ntr daemon status
	assert_output "ntr: daemon: none runs for the store $NTR_STORE; it starts with the first command that needs it"
	run ntr daemon stop
	assert_success
	assert_output ''
	ntr status >/dev/null
	run ntr daemon status
	assert_success
	run ntr daemon stop
	assert_success
	run -1 ntr daemon status
}

@test "files of the caller: what can go wrong" {
	mkdir d full
	touch full/x
	run -1 ntr put d
	assert_output "ntr: put: d is a directory; a directory becomes a session with 'ntr new NAME --from DIR'"
	run -1 ntr put missing
	assert_output 'ntr: put: missing: No such file or directory'
	run -1 ntr get a nowhere/b
	assert_output --partial 'ntr: get: nowhere/b: No such file or directory'
	run -1 ntr export --dir full
	assert_output 'ntr: export: full is not empty; give a new or empty directory'
	run -1 ntr new x --from ./missing
	assert_output 'ntr: new: --from ./missing: No such file or directory'
	run -2 script -qec 'ntr export --tar -' /dev/null
	assert_output --partial 'would write an archive to the terminal'
	run -1 ntr mount x missing
	assert_output 'ntr: mount: missing: No such file or directory; make the directory first'
	run -1 ntr mount x full/x
	assert_output --partial 'full/x: Not a directory'
}

@test "start-up is fast" {
	/usr/bin/python3 - <<-'END'
		import subprocess, time
		best = 1
		for _ in range(50):
		    t = time.perf_counter()
		    subprocess.run(["ntr", "version"], stdout=subprocess.DEVNULL)
		    best = min(best, time.perf_counter() - t)
		print(f"# best of 50: {best * 1e3:.2f} ms")
		assert best < 0.02
	END
}
