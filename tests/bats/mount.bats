# ntr mount: the live session read-write, commits read-only; edits made there are kept.
load common

setup() { ntr_setup; mkdir m; }
teardown() {
	cd "$TEST_DIR/work" && mountpoint -q m && ntr umount m
	ntr_teardown
}

@test "a live session at a directory: both sides see each other's writes" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	assert_equal "$(cat m/f)" 1
	echo 2 >m/f
	echo new >m/g
	mkdir m/d && mv m/g m/d/
	run ntr run -- cat f d/g
	assert_output $'2\nnew'
	ntr run -c 'echo 3 > f'
	assert_equal "$(cat m/f)" 3
	ntr umount m
	assert_equal "$(ls m)" ""
	run ntr run -- cat f d/g
	assert_output $'3\nnew'
}

@test "an edit through the mount survives a rollback, a fork and an rm" {
	ntr run -c 'echo 1 > f'
	ntr run -c 'echo 2 > f'
	ntr mount default m
	echo edited >m/e
	ntr fork default f
	run ntr run -s f -- cat e
	assert_output edited
	echo again >m/e2
	run ntr rollback default~2
	assert_success
	assert_output --partial 'kept in'
	# the mount shows the state that was rolled back to
	assert_equal "$(cat m/f)" 1
	assert_equal "$(ls m)" f
	echo after >m/after
	run ntr run -- cat after
	assert_output after
	ntr umount m
	ntr run --no-commit -c 'echo last > last'
	run ntr rm default
	assert_success
	local staged; staged=$(grep -oE '[0-9a-f]{12,40}' <<<"$output" | head -1)
	[ -n "$staged" ]
	run ntr cat -s f f
	assert_output 2
}

@test "a commit, read-only, any number at once" {
	ntr run -c 'echo 1 > f'
	ntr run -c 'echo 2 > f'
	mkdir old older
	ntr mount default~1 old
	ntr mount default m
	assert_equal "$(cat old/f)" 1
	assert_equal "$(cat m/f)" 2
	run bash -c 'echo x > old/f'
	assert_failure
	ntr rollback --steps 1
	assert_equal "$(cat old/f)" 1
	ntr umount old
	ntr umount m
}

@test "mistakes are told" {
	run ntr mount nosuch m
	assert_failure 1
	assert_output --partial "ntr: "
	ntr run -c 'echo 1 > f'
	run ntr mount default ./nothere
	assert_failure 1
	run ntr umount m
	assert_failure 1
	assert_output --partial "ntr: "
}

@test "a busy mount is not taken away" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	local fd
	exec {fd}<m/f
	run ntr umount m
	assert_failure 1
	assert_output --partial "ntr: "
	exec {fd}<&-
	ntr umount m
}

# Root's mount goes with the session; an ordinary user's stays, and answers nothing any more.
unmounted() { ((EUID == 0)) || umount -l m; }

@test "stop leaves a mount alone in which a file is open for writing, and loses nothing of what it takes away" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	local fd
	exec {fd}>>m/log
	echo one >&$fd
	run ntr stop
	assert_failure 1
	assert_output --partial "has files open"
	assert_output --partial "or use --discard"
	echo two >&$fd
	assert_equal "$(cat m/log)" $'one\ntwo'
	exec {fd}>&-
	echo three >>m/log
	ntr stop
	unmounted
	run ntr cat -s default log
	assert_output $'one\ntwo\nthree'
}

@test "what is appended in a mount while the session is stopped is there, or is refused" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	/usr/bin/python3 - m/log acked <<'EOF' &
import os, sys
n = 0
try:
    while True:
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, b"%08d\n" % n)
        os.close(fd)
        n += 1
        with open(sys.argv[2] + ".new", "w") as f:
            f.write(str(n))
        os.rename(sys.argv[2] + ".new", sys.argv[2])
except OSError:
    pass
EOF
	local writer=$!
	sleep 0.5
	ntr run --no-commit -- sh -c 'head -c 30000000 /dev/urandom > big'
	for i in {1..50}; do ntr stop && break; sleep 0.05; done
	# root's mount is taken away, and then the writer writes beside it; a user's answers nothing any more
	kill $writer 2>/dev/null || true
	wait $writer || true
	local acked; acked=$(cat acked)
	((acked > 0))
	unmounted
	local there; there=$(ntr cat -s default log | wc -l)
	[ -f m/log ] && there=$((there + $(wc -l <m/log)))
	((there >= acked)) || fail "acknowledged: $acked, there: $there"
}

@test "a busy writer in a mount fails no commit" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	/usr/bin/python3 - m <<'EOF' &
import os, sys
try:
    while True:
        for i in range(30):
            with open(f"{sys.argv[1]}/t{i}", "w") as f:
                f.write("x" * 5000)
        for i in range(30):
            os.unlink(f"{sys.argv[1]}/t{i}")
except OSError:
    pass
EOF
	local writer=$! i
	for i in {1..30}; do ntr run -c "echo $i >x"; done
	kill $writer
	wait $writer || true
	ntr umount m
	run ntr cat x
	assert_output 30
}

@test "a mount that its caller attaches late is awaited" {
	((EUID == 0)) || skip "an ordinary user's mount is a helper's, which is there before the reply"
	command -v strace >/dev/null || skip "no strace"
	ntr run -c 'for i in {1..200}; do echo $i >f$i; done'
	strace -o /dev/null -e trace=move_mount -e inject=move_mount:delay_enter=4000000 ntr mount default m &
	local mounting=$!
	sleep 1
	run ntr stop
	assert_failure
	assert_output --partial "it is just being mounted"
	wait $mounting
	echo written >m/host # the session was not folded meanwhile
	run ntr run -- cat host
	assert_output written
	ntr umount m
	ntr stop
}
