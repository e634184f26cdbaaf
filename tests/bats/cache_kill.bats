# The cache beside what can come in between: a rename of the session while processes of it run, and kill -9 of the daemon while a
# commit is on its way to the disk: what was acknowledged is there afterwards. The disk is held up by tests/helpers/faultio.c.
load common
load faultio

setup() { faultio_setup; }

teardown()
{
	: >"$FAULTIO"
	ntr_teardown
}

written() { cat "$NTR_STORE"/db/*.log | wc -c; }

# A call that sets `early` and leaves a process, $1, behind; the commit's sync ($2: sync, or write: not even that much) hangs,
# the process is let go, and has its answer; then the daemon is killed.
killed_in_commit()
{
	local before i
	before=$(written)
	ntr run -c "ntr cache set early e1; echo 2 > f
		(while [ ! -e '$TEST_DIR/go' ]; do sleep 0.02; done; $1; echo \$? > '$TEST_DIR/ack') </dev/null >/dev/null 2>&1 &
		echo $2=hang > '$FAULTIO'" >/dev/null 2>&1 &
	for i in {1..200}; do
		[[ -s $FAULTIO && ($2 = write || $(written) -gt $before) ]] && break
		sleep 0.05
	done
	sleep 0.3 # the commit hangs
	touch "$TEST_DIR/go"
	for i in {1..200}; do
		[[ -s $TEST_DIR/ack ]] && break
		sleep 0.05
	done
	assert_equal "$(cat "$TEST_DIR/ack")" 0
	kill -9 "$pid"
	: >"$FAULTIO"
	wait || true
}

@test "set while the commit is being synced" {
	faultio_daemon
	ntr run -c 'echo 1 > f'
	killed_in_commit 'ntr cache set late v1 && ntr cache set early e2' sync
	assert_equal "$(ntr cache get late)" v1
	assert_equal "$(ntr cache get early)" e2
	assert_equal "$(ntr run -- cat f)" 2
	assert_equal "$(ntr cache get -s default~0 late)" v1
	run ntr fsck
	assert_success
}

@test "set while the commit is being written, and deleted" {
	faultio_daemon
	ntr run -c 'echo 1 > f'
	killed_in_commit 'ntr cache set late v1 && ntr cache rm early' write
	assert_equal "$(ntr cache ls)" late
	assert_equal "$(ntr run -- cat f)" 2
	run ntr fsck
	assert_success
}

@test "killed at any moment of calls that change it, no acknowledged value is older than what is found" {
	local i n found
	for i in {1..6}; do
		ntr run -c "(n=${i}00000; while n=\$((n + 1)); ntr cache set k \$n; do echo \$n > '$TEST_DIR/acked'; done) </dev/null >/dev/null 2>&1 &"
		pid=$(ntr daemon status --json | json '["pid"]')
		(for _ in {1..50}; do ntr run -c 'echo $RANDOM > f' || break; done) >/dev/null 2>&1 &
		sleep "0.$((RANDOM % 6 + 3))"
		kill -9 "$pid"
		wait || true
		n=$(cat "$TEST_DIR/acked")
		found=$(ntr cache get k)
		echo "$found, acknowledged $n"
		((found >= n))
		ntr stop
	done
}

# Leaves a process in session a that runs script $1 once the test says go, and notes its output.
later()
{
	ntr run -s a -c "(while [ ! -e '$TEST_DIR/go' ]; do sleep 0.02; done; { $1; } > '$TEST_DIR/out' 2>&1; touch '$TEST_DIR/done') \
		</dev/null >/dev/null 2>&1 &"
}
go()
{
	local i
	touch "$TEST_DIR/go"
	for i in {1..200}; do
		[[ -e $TEST_DIR/done ]] && return
		sleep 0.05
	done
	return 1
}
names() { ntr sessions --json | json '["name"]'; }

@test "a process of a renamed session uses that session's cache, under whatever name it knows it" {
	ntr cache set -s a old 1
	later 'echo "$(ntr cache get old)"; ntr cache set k v >/dev/null && echo "$(ntr cache get k)"
		ntr cache set -s b b 2 >/dev/null; ntr cache rm old >/dev/null; ntr cache ls'
	ntr rename a b
	go
	assert_equal "$(cat "$TEST_DIR/out")" $'1\nv\nb\nk'
	assert_equal "$(ntr cache ls -s b)" $'b\nk'
	assert_equal "$(names)" b # none was made
}

@test "a new session of the old name is not the old one's processes'" {
	later 'ntr cache set k v && ntr cache get k'
	ntr rename a b
	ntr cache set -s a k mine
	go
	assert_equal "$(ntr cache get -s a k)" mine
	assert_equal "$(ntr cache get -s b k)" v
}

@test "while a call runs, changes from a renamed session's process wait for nobody and join it" {
	later 'timeout 10 ntr cache set k v; echo "rc $?"'
	ntr rename a b
	ntr run -s b -c "touch '$TEST_DIR/go'; while [ ! -e '$TEST_DIR/done' ]; do sleep 0.02; done"
	assert_equal "$(cat "$TEST_DIR/out")" 'rc 0'
	assert_equal "$(ntr cache get -s b~0 k)" v
	assert_equal "$(names)" b
}

@test "a name that no session has any more is told, and none is made" {
	NTR_CALL=x NTR_SESSION=gone run -1 ntr cache set k v
	assert_output "ntr: use the cache of session gone: the request comes from inside that session, which was renamed or removed; name the session with -s; \`ntr sessions\` lists those there are"
	NTR_CALL=x NTR_SESSION=gone run -1 ntr cache rm k
	assert_output --partial 'which was renamed or removed'
	assert_equal "$(ntr sessions --json)" ''
	NTR_CALL=x NTR_SESSION=gone ntr cache set -s new k v
	assert_equal "$(names)" new
}
