# A disk that fails writes or reads, or hangs; limits on files and descriptors; a stopped daemon: what a person sees, and
# that nothing is lost and work goes on by itself as soon as it can. The faults are those of tests/helpers/faultio.c.
load bad_common
load faultio

setup() { faultio_setup; }

teardown()
{
	: >"$FAULTIO"
	[[ -z ${STOPPED:-} ]] || kill -CONT "$STOPPED" 2>/dev/null || true
	ntr_teardown
}

# A fresh one, as faultio_daemon.
daemon()
{
	ntr daemon stop
	faultio_daemon "$@"
}
fault() { echo "$*" >"$FAULTIO"; }
commits() { ntr log --json | wc -l; }
# Until it works again, which takes a second at most.
soon() { local i; for i in {1..40}; do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; "$@"; }
same_daemon() { assert_equal "$(ntr daemon status --json | json '["pid"]')" "$pid"; }
cold() # what is committed is in files, and in no cache
{
	ntr daemon stop
	ntr sessions >/dev/null
	ntr daemon stop
}

@test "writes that fail: told, nothing lost, and work goes on by itself" {
	daemon
	ntr run -c 'echo 1 > f'
	local op
	# EIO EDQUOT EROFS
	for op in write=5 sync=5 write=122 write=30; do
		fault "$op"
		run -125 ntr run -c "echo $op > f; echo $op >> all; exit 3"
		assert_output --partial 'ntr: '
		assert_output --regexp 'Input/output error|Disk quota exceeded|Read-only file system'
		assert_output --partial 'what the command wrote is kept'
		assert_output --partial '`ntr commit -s default`'
		run ntr commit -m broken
		assert_failure 1
		assert_message
		run -1 ntr rollback --steps 1
		assert_message
		run -125 ntr run -s "other" -- true
		assert_message
		assert_equal "$(ntr cat f)" "$op" # reading goes on
		grep -q 'takes no writes (.*); tried again with every write' "$NTR_STORE/ntrd.log"
		fault
		soon ntr commit -m mended
		grep -q 'went on after a failed write' "$NTR_STORE/ntrd.log"
		assert_equal "$(ntr cat f)" "$op"
	done
	same_daemon
	assert_equal "$(ntr cat all | wc -l)" 4
	assert_equal "$(ntr log --json | grep -c mended)" 4
	ntr fsck
	ntr daemon stop
	assert_equal "$(ntr run -- tail -1 all)" write=30
	ntr fsck
}

@test "an import that meets a failing disk leaves nothing" {
	daemon
	mkdir src
	for i in {1..40}; do head -c 300K /dev/urandom >src/$i; done
	fault write=5
	run -1 ntr new big --from src
	assert_message 'Input/output error'
	fault
	soon ntr new big --from src
	cmp <(ntr cat -s big 7) src/7
	same_daemon
	ntr fsck
}

@test "a limit on the size of files" {
	daemon
	ntr run -c 'echo 1 > f'
	prlimit --pid "$pid" --fsize=2000000:
	run -125 ntr run -c 'head -c 10M /dev/urandom > big; sha256sum big > sum'
	assert_output --partial 'File too large'
	assert_output --partial 'what the command wrote is kept'
	prlimit --pid "$pid" --fsize=unlimited:
	soon ntr commit -m later
	same_daemon
	assert_equal "$(ntr run -- sha256sum -c sum)" 'big: OK'
	ntr fsck
}

@test "reads that fail" {
	ntr run -c 'head -c 3000000 /dev/urandom > big; sha256sum big > sum; echo small > small'
	cold
	daemon
	ntr run -- cat small
	fault read=5
	run -1 ntr run -- cat big
	assert_output --partial 'cat: big: Input/output error'
	run -1 ntr cat big
	assert_message 'read big: Input/output error' '`ntr fsck`'
	run -1 ntr export --dir out
	assert_message 'Input/output error'
	run -1 ntr fsck
	grep -q 'a READ failed: Input/output error; check the disk' "$NTR_STORE/ntrd.log"
	fault
	assert_equal "$(ntr run -- sha256sum -c sum)" 'big: OK'
	soon ntr fsck
}

# Over io_uring where it is on, and over /dev/fuse.
@test "reads that hang: an error after the watchdog's time, and work goes on" {
	ntr run -c 'head -c 3000000 /dev/urandom > big; sha256sum big > sum; echo small > small'
	local off began transport
	for off in 0 1; do
		# an ordinary user's daemon has no way to end a connection: the kernel does, later
		[[ $off == 0 || $(id -u) == 0 || -w /sys/fs/fuse/connections || ${NTR_LONG:-} ]] || continue
		cold
		daemon NTR_FUSE_TIMEOUT=1 NTR_URING=$off
		ntr run -c 'cat small; echo work > work' --no-commit
		transport=$(ntr daemon status --json | json '["transport"]')
		fault read=hang
		began=$SECONDS
		run -1 ntr run --no-commit -- cat big
		assert_output --regexp 'cat: big: (Input/output error|Software caused connection abort|Transport endpoint is not connected)'
		[[ $((SECONDS - began)) -le 60 ]]
		if [[ $transport == io_uring ]]; then
			grep -q 'a READ has not been answered for 1 s' "$NTR_STORE/ntrd.log"
			grep -q 'ended its connection\|cannot be ended from here' "$NTR_STORE/ntrd.log"
		else
			grep -q 'a READ was not answered within 1 s: the reader got EIO' "$NTR_STORE/ntrd.log"
		fi
		# who waits can be ended meanwhile
		run -124 bash -c 'timeout 1 ntr cat big >got'
		fault
		assert_equal "$(ntr run --no-commit -- sha256sum -c sum)" 'big: OK'
		assert_equal "$(ntr run -- cat work)" work
		same_daemon
	done
	ntr fsck
}

@test "callers and a daemon with few descriptors: idle sessions make room" {
	cat >many <<-'END'
		ulimit -n 64
		for i in {1..30}; do ntr run -s s$i -c "echo $i > f; mkdir d; head -c 20000 /dev/urandom > d/x" || exit; done
		for i in {1..30}; do [[ $(ntr run -s s$i -- cat f) == $i ]] || exit; done
		ntr fork s1 s31
		ntr export -s s31 --dir out
		ntr daemon stop
		ntr fsck
	END
	run bash -ex many
	assert_success
	ntr daemon stop
	# background processes keep their sessions open: then there is no more room
	cat >busy <<-'END'
		ulimit -n 64
		for i in {1..30}; do ntr run -s s$i -c 'sleep 300 >/dev/null 2>&1 &' || exit; done
	END
	run -125 bash busy
	assert_message 'Too many open files' 'raise the limit on open files (ulimit -n)' '`ntr daemon stop`'
	assert_equal "$(ntr run -s s1 -- cat f)" 1
	ntr fsck
}

@test "a stopped daemon: the client says so, and can be interrupted" {
	daemon
	ntr run -c 'echo 1 > f'
	STOPPED=$pid
	kill -STOP "$pid"
	for cmd in 'log' 'run -- true'; do
		run -124 timeout -s INT 5 ntr $cmd
		assert_output "ntr: ${cmd%% *}: waiting: the daemon (pid $pid) is stopped; \`kill -CONT $pid\` lets it go on, \`kill -KILL $pid\` ends it (nothing that was written is lost)"
	done
	kill -CONT "$pid"
	ntr run -c 'echo 2 > f; sleep 60' >out 2>&1 &
	local call=$!
	soon ntr run -s other -- true
	for _ in {1..50}; do [[ $(ntr cat f) == 2 ]] && break; sleep 0.1; done
	kill -STOP "$pid"
	sleep 4
	kill -INT "$call"
	wait "$call" && false || assert_equal $? 130
	assert_equal "$(wc -l <out)" 1
	kill -CONT "$pid"
	soon ntr run -- true
	assert_equal "$(ntr run -- cat f)" 2
	same_daemon
}

@test "a stopped daemon whose view is read: the kernel ends the wait" {
	[[ ${NTR_LONG:-} ]] || skip "takes a minute (NTR_LONG=1)"
	[[ $(uname -r | awk -F. '{ print $1 * 100 + $2 }') -ge 615 ]] || skip "kernel before 6.15"
	ntr run -c 'head -c 3000000 /dev/urandom > big; sha256sum big > sum'
	cold
	daemon NTR_FUSE_TIMEOUT=1
	ntr run --no-commit -c 'echo work > work; (while [[ ! -e go ]]; do sleep 0.1; done; cat big) > got 2>&1 &'
	echo >go
	ntr put go go
	STOPPED=$pid
	kill -STOP "$pid"
	sleep 50
	kill -CONT "$pid"
	assert_equal "$(ntr run -- sha256sum -c sum)" 'big: OK'
	assert_equal "$(ntr run -- cat work)" work
	ntr fsck
}
