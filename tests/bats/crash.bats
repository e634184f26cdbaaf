# Whatever is killed: acknowledged commits are there, written work comes back, the next command works. And commits beside
# processes that go on writing.
load common

setup() { ntr_setup; }
teardown() {
	[ -z "${STOPPED:-}" ] || kill -CONT "$STOPPED" 2>/dev/null || true
	ntr_teardown
}

kill_daemon() { kill -9 "$(ntr daemon status --json | json '["pid"]')"; }

# Whether process $1 ends within ten seconds.
ends() {
	for _ in {1..100}; do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	return 1
}

@test "kill -9 of the daemon, a supervisor, a call, a pass-through, of all, in the middle of everything" {
	run /usr/bin/python3 "$NTR_TESTS/crash/kills.py" --rounds "${NTR_KILLS:-4}" --load 1
	assert_success
	echo "$output"
}

@test "a killed daemon leaves no dead mount, no process; its successor cleans up" {
	ntr run -c 'echo 1 > f; sleep 300 >/dev/null 2>&1 & echo $! > pid'
	local pid; pid=$(ntr run -- cat pid)
	kill_daemon
	ends "$pid"
	run ntr run -- cat f
	assert_output 1
	run ls "$NTR_STORE/versions"
	assert_success
}

@test "over a dead versions mount nothing blocks: processes get errors and are ended, ls answers" {
	ntr run -c 'for i in {1..50}; do head -c 100000 /dev/urandom > f$i; done'
	ntr stop
	# One reads what only the daemon has, one sits in a directory of it, one has a committed file mapped.
	ntr run -c '(while cat f* >/dev/null 2>&1; do :; done) >/dev/null 2>&1 </dev/null &
		echo $! > pids
		mkdir d; (cd d; exec sleep 300) >/dev/null 2>&1 </dev/null & echo $! >> pids
		/usr/bin/python3 -c "
import mmap, time
with open(\"f50\", \"rb\") as f: m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
while True:
    sum(m[::4096])
    time.sleep(0.01)" >/dev/null 2>&1 </dev/null & echo $! >> pids'
	local pids pid
	pids=$(ntr run -- cat pids)
	mkdir "$TEST_DIR/mnt"
	ntr mount default~0 "$TEST_DIR/mnt"
	run ls "$TEST_DIR/mnt"
	assert_line f1
	kill_daemon
	run timeout 10 ls -l "$NTR_STORE/versions" "$NTR_STORE/plain" "$TEST_DIR/mnt" "$TEST_DIR/mnt/f1"
	refute [ "$status" -eq 124 ]
	for pid in $pids; do ends "$pid"; done
	run ntr run -c 'cat f1 | wc -c'
	assert_output 100000
	ntr umount "$TEST_DIR/mnt" || fusermount3 -uz "$TEST_DIR/mnt" || umount -l "$TEST_DIR/mnt"
	run timeout 10 ls "$TEST_DIR/mnt"
	assert_output ""
}

@test "a daemon that is killed while it reads a mount of its own holds up nothing" {
	local pause pauses='0.03 0.07 0.15' began job
	# Who may not end a mount waits for the kernel's limit: that, and up to 15 s.
	if ((EUID)); then
		export NTR_FUSE_TIMEOUT=1 pauses=0.1
	fi
	ntr run -c 'mkdir d; for i in {1..4000}; do echo $i > d/$i; done'
	mkdir "$TEST_DIR/mnt"
	for pause in $pauses; do
		ntr mount default~0 "$TEST_DIR/mnt"
		ntr new "copy$pause" --from "$TEST_DIR/mnt" >/dev/null 2>&1 &
		job=$!
		sleep "$pause"
		kill_daemon
		began=$SECONDS
		run timeout 60 ntr run -- cat d/7
		assert_line 7
		((SECONDS - began < 30))
		wait "$job" || true
		run timeout 10 ntr umount "$TEST_DIR/mnt"
		refute [ "$status" -eq 124 ]
	done
	run ntr fsck
	assert_success
}

@test "a mode that a killed daemon had lent to read a directory is no change" {
	[ "$(id -u)" -ne 0 ] || skip "root needs no mode to read"
	ntr run --no-commit -c 'mkdir d e; echo 1 > d/f; echo 2 > g; echo 3 | tee h i j; chmod 311 d; chmod 200 e g; chmod 0 h j; chmod 444 i'
	kill_daemon
	# What absorb does to look into them, cut short: before the mode is lent, while it is, after it was given back.
	local upper; upper=$(dirname "$NTR_STORE"/upper/*/u/d)
	local object
	mkdir "$upper/../lent"
	for object in d:311 e:200 g:200 h:0 i:444 j:0; do
		ln -s "${object#*:}" "$upper/../lent/$(stat -c %i "$upper/${object%:*}")"
	done
	chmod 711 "$upper/d"
	chmod 700 "$upper/e"
	chmod 600 "$upper/g" "$upper/h"
	chmod 640 "$upper/i" # the session had set it meanwhile
	run ntr run -- stat -c '%n %a' d e g h i j
	assert_output $'d 311\ne 200\ng 200\nh 0\ni 640\nj 0'
	run ntr run -c 'chmod u+r d g && getfattr -d -m - d g; cat d/f g'
	assert_output $'1\n2'
}

@test "a second owner of a store is refused, naming the holder" {
	ntr run -c true
	local pid; pid=$(ntr daemon status --json | json '["pid"]')
	run "$NTR_BIN/ntrd" --store "$NTR_STORE" --foreground
	assert_failure
	assert_output --partial "$pid"
}

@test "commits beside a process that writes files in turn are each of one moment, and do it no harm" {
	local writer="$NTR_TESTS/helpers/inturn.py" i commit n=0 records pause ticks child
	ntr run -c "mkdir w; /usr/bin/python3 '$writer' write w 3 </dev/null >/dev/null 2>&1 & echo \$! > pid
		sleep 300 </dev/null >/dev/null 2>&1 & echo \$! > stopped; kill -STOP \$!"
	STOPPED=$(ntr run -- cat stopped)
	for i in {1..20}; do
		ntr commit -m "$i"
		[ $((i % 5)) -ne 0 ] || ntr run -c "head -c 5000000 /dev/urandom > big$i; mv big$i moved$i"
	done
	ends "$(ntr run -- cat pid)"
	# Stopped by its user before: it still is.
	run cut -d' ' -f3 "/proc/$STOPPED/stat"
	assert_output T
	read -r records pause ticks child < <(ntr run -- cat w/report)
	echo "$records records, longest pause $pause s, $ticks ticks of 20 ms"
	[ "$records" -gt 1000 ]
	[ "$child" -eq 7 ]
	[ "$ticks" -gt 50 ]
	/usr/bin/python3 -c "import sys; sys.exit(float('$pause') > 1.5)"
	for commit in $(ntr log --json | /usr/bin/python3 -c 'import json,sys; [print(json.loads(l)["commit"]) for l in sys.stdin]'); do
		rm -rf out
		mkdir out
		ntr export -s "default@$commit" --dir out
		[ -e out/w/a4 ] || continue
		/usr/bin/python3 "$writer" check out/w
		n=$((n + 1))
	done
	[ "$n" -ge 15 ]
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

@test "what waits for a call can be interrupted: it then does nothing" {
	local what pid i
	ntr run -c 'echo 1 >f'
	ntr run -c 'echo 2 >f'
	for what in 'rollback --steps 1' 'commit -m late' 'discard' 'rm default'; do
		ntr run -c 'echo 3 >f; echo >started; sleep 60' &
		for i in {1..100}; do
			ntr sessions --json | grep -q '"running": *true' && break
			sleep 0.05
		done
		# shellcheck disable=SC2086
		setsid timeout -s INT --foreground 0.5 ntr $what >out 2>&1 || true
		sleep 0.3
		kill -INT %% && wait %% || true
		sleep 0.2
		assert_equal "$(ntr run --no-commit -c 'cat f')" 3
		assert_equal "$(ntr log --json | grep -c late || true)" 0
		ntr run -c 'echo 2 >f; rm -f started'
	done
	# The line moves on: what was not interrupted is done in its turn.
	ntr run -c 'sleep 1; echo 4 >f' &
	sleep 0.3
	env --default-signal=INT ntr rollback --steps 1 >out1 2>&1 & # a shell without a terminal has it ignored
	pid=$!
	ntr commit -m after >out2 2>&1 &
	sleep 0.2
	kill -INT "$pid"
	wait
	assert_equal "$(ntr run --no-commit -c 'cat f')" 4
}
