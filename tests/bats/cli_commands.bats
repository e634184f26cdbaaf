# Every command in its simplest form against the real daemon; error texts and exit codes.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

@test "run: a command, a script, a commit, no commit" {
	run ntr run -- echo hello
	assert_success
	assert_output hello
	run -7 ntr run -c 'echo one > a; exit 7'
	assert_equal "$(ntr log -n 1 --json | json '["exit_code"]')" 7
	n=$(ntr log --json | wc -l)
	ntr run -- cat a
	assert_equal "$(ntr log --json | wc -l)" "$n"
	run -127 ntr run -- no-such-command
	run -126 ntr run -- /etc/passwd
	run -143 ntr run -c 'kill -TERM $$'
}

@test "run --json" {
	ntr run --json -c 'echo out; echo err >&2; mkdir d; echo x > d/f' >got
	assert_equal "$(json '["stdout"]' <got)" out
	assert_equal "$(json '["stderr"]' <got)" err
	assert_equal "$(json '["exit_code"]' <got)" 0
	assert_equal "$(json '["changes"]["created"]' <got)" 2
	assert_regex "$(json '["commit"]' <got)" '^[0-9a-f]{40}$'
	ntr run --json -- true >got
	assert_equal "$(json '["commit"]' <got)" null
	run -3 ntr run --json -c 'exit 3'
}

@test "run: the sticky directory and environment" {
	ntr run -c 'mkdir -p sub && cd sub && export COLOR=red'
	assert_equal "$(ntr run -- pwd)" /workspace/sub
	assert_equal "$(ntr run -c 'echo $COLOR')" red
	assert_equal "$(ntr run --cwd /workspace --env COLOR=blue -c 'echo $PWD $COLOR')" '/workspace blue'
	assert_equal "$(ntr run -c 'echo $PWD $COLOR')" '/workspace/sub red'
}

@test "run: stdin, a script on stdin, a terminal" {
	assert_equal "$(ntr run -- tr a-z A-Z <<<shout)" SHOUT
	assert_equal "$(ntr run - <<<'echo $((1 + 1))')" 2
	assert_equal "$(ntr run <<<'echo bare')" bare
	run script -qec 'ntr run -- sh -c "test -t 0 && test -t 1 && echo tty"' /dev/null
	assert_output --partial tty
}

@test "run: a timeout ends the whole tree" {
	run -124 --separate-stderr ntr run --timeout 1 -c 'sleep 61 & sleep 60'
	assert_equal "$stderr" \
		'ntr: run: timed out: the call ran longer than its limit of 1s and was ended; give more with --timeout'
	run ntr ps
	refute_output --partial 'sleep 6'
	for _ in {1..5}; do
		ntr tool --timeout 0.1 --json terminal '{"command": "sleep 62 & sleep 62 & sleep 62"}' >got || true
		assert_equal "$(json '["structured"]["background"]' <got)" 0
		assert_equal "$(ntr sessions --json | json '["background"]')" 0
	done
	assert_equal "$(ntr run --json --timeout 300ms -- sleep 9 2>/dev/null | json '["timed_out"]')" true
}

@test "run: signals" {
	ntr run -c 'trap "echo got; exit 9" INT; echo ready; while :; do sleep 0.05; done' >out &
	pid=$!
	for _ in {1..100}; do grep -q ready out && break; sleep 0.05; done
	kill -INT $pid
	status=0
	wait $pid || status=$?
	assert_equal $status 9
	assert_equal "$(tail -n 1 out)" got
}

@test "run: calls of a session queue, and a signal takes one out of the queue" {
	ntr run -c 'echo first; sleep 2' >one &
	first=$!
	for _ in {1..100}; do grep -q first one && break; sleep 0.05; done
	ntr run -- echo second >two &
	second=$!
	sleep 0.3
	kill -INT $second
	status=0
	wait $second || status=$?
	assert_equal $status 130
	run cat two
	assert_output ''
	ntr run -s other -- echo at once
	wait $first
}

@test "many clients start one daemon" {
	for i in {1..10}; do
		ntr run -s "s$i" -- echo "$i" >"out.$i" 2>&1 &
	done
	wait
	for i in {1..10}; do
		assert_equal "$(cat "out.$i")" "$i"
	done
	assert_equal "$(ntr_processes | grep -c ntrd)" 1
}

@test "run --no-commit, status, diff, commit, discard" {
	ntr run -c 'echo a > f'
	ntr run --no-commit -c 'echo b > f; touch g'
	run ntr status
	assert_line --regexp '^session default at [0-9a-f]{12}, '
	assert_line --regexp '^    modified  f'
	assert_line --regexp '^    created   g'
	run -1 ntr diff
	assert_line -- '-a'
	assert_line -- '+b'
	run ntr commit -m 'by hand'
	assert_output --regexp '^[0-9a-f]{12}$'
	assert_equal "$(ntr log -n 1 --json | json '["message"]')" 'by hand'
	run ntr commit -m again
	assert_output 'nothing to commit'
	run -0 ntr diff
	assert_output ''
	ntr run --no-commit -c 'rm f'
	ntr discard
	assert_equal "$(ntr run -- cat f)" b
}

@test "run --rm leaves the session alone" {
	ntr run -c 'echo keep > f'
	run ntr run --rm -c 'echo gone > f; cat f'
	assert_output gone
	assert_equal "$(ntr cat f)" keep
	assert_equal "$(ntr sessions --json | wc -l)" 1
}

@test "new, fork, sessions, rename, rm" {
	mkdir -p d/sub
	echo x >d/sub/f
	run ntr new a --from d
	assert_success
	assert_line --regexp '^session a at [0-9a-f]{12}, /workspace$'
	assert_line 'rung none: no boundary; calls run as you, with your network and your files'
	assert_equal "$(ntr cat -s a sub/f)" x
	tar -C d -cf t.tar .
	ntr new b --from t.tar
	assert_equal "$(ntr cat -s b sub/f)" x
	ntr new c --from - <t.tar
	assert_equal "$(ntr cat -s c sub/f)" x
	ntr new e --from a
	assert_equal "$(ntr cat -s e sub/f)" x
	ntr fork a f
	ntr run -s f -c 'echo y > sub/f'
	assert_equal "$(ntr cat -s a sub/f)$(ntr cat -s f sub/f)" xy
	run ntr sessions
	assert_line --regexp '^SESSION +HEAD +ORIGIN +STATE +FILES +SIZE +CREATED'
	assert_line --regexp '^f +[0-9a-f]{12} '
	assert_equal "$(ntr sessions --json | while read -r l; do json '["name"]' <<<"$l"; done | sort | tr -d '\n')" abcef
	ntr rename f g
	assert_equal "$(ntr cat -s g sub/f)" y
	ntr rm g e
	run -1 ntr cat -s g sub/f
	run -1 ntr rm nobody b
	assert_output --partial nobody
	run -1 ntr cat -s b sub/f
	run -1 ntr new a
	assert_output --partial 'ntr: '
	run -2 ntr new 'no/name'
	run -2 ntr new .hidden
	run ntr new w --root /srv/project
	assert_success
	assert_equal "$(ntr run -s w -- pwd)" /srv/project
	run -2 ntr new z --root /
	run -2 ntr new z --root relative
}

@test "log, show, rollback, naming of commits" {
	for i in 1 2 3; do ntr run -c "echo $i > f"; done
	run ntr log
	assert_line --regexp '^COMMIT +TIME +TOOL +EXIT +TOOK +CHANGES +COMMAND'
	assert_line --regexp "^[0-9a-f]{12} .* run +0 .* echo 3 > f"
	assert_equal "$(ntr log -n 2 --json | wc -l)" 2
	second=$(ntr log --json | sed -n 2p | json '["commit"]')
	for rev in "$second" "${second:0:9}" "default@${second:0:7}" default~1 '~1'; do
		run ntr show "$rev"
		assert_success
		assert_line "commit   $second"
		assert_line '    echo 2 > f'
		assert_line --regexp '^    modified  f'
	done
	assert_equal "$(ntr cat -s default~2 f)" 1
	run -1 ntr diff default~2 default~1
	assert_line -- '+2'
	run -1 ntr diff --name-status default~2
	assert_output $'M\tf'
	run -0 ntr diff default~2 -- other
	run ntr rollback "$second"
	assert_success
	assert_line --regexp "^session default at ${second:0:12}"
	assert_equal "$(ntr run -- cat f)" 2
	ntr rollback --steps 1
	assert_equal "$(ntr run -- cat f)" 1
	run -1 ntr rollback --steps 1000
	assert_output --partial 'ntr: '
	run -1 ntr show 0000000
	run -2 ntr diff 0000000
}

@test "ls, cat, put, get" {
	ntr run -c 'mkdir d; echo text > d/f; chmod 750 d/f; ln -s f d/link; printf "a\0b" > d/bin'
	run ntr ls d
	assert_output $'bin\nf\nlink'
	run ntr ls -l d
	assert_line --regexp '^-rwxr-x--- +5 .* f$'
	assert_line --regexp '^lrwxrwxrwx .* link -> f$'
	assert_equal "$(ntr ls d --json | sed -n 2p | json '["size"]')" 5
	assert_equal "$(ntr cat d/f /workspace/d/f)" $'text\ntext'
	ntr get d/bin
	assert_equal "$(od -An -c bin | tr -d ' ')" 'a\0b'
	ntr get d/f renamed
	assert_equal "$(stat -c %a renamed)" 750
	assert_equal "$(ntr get d/f -)" text
	run -1 ntr get d/none keep
	assert_file_not_exists keep
	echo new >local
	chmod 700 local
	ntr put local
	ntr put local d/
	ntr put local d/other
	echo piped | ntr put - d/piped
	assert_equal "$(ntr run -- sh -c 'cat local d/local d/other d/piped; stat -c %a local')" $'new\nnew\nnew\npiped\n700'
	run -1 ntr cat d/none d/f
	assert_line text
	assert_line --regexp '^ntr: .*d/none'
	run -1 ntr cat d
	assert_output --partial 'ntr: '
	run -1 ntr ls nowhere
	assert_output --partial nowhere
}

# Only the kernel follows symlinks: a session that is not live goes live for them.
@test "ls, cat and put through symlinks and .., live or not" {
	ntr run -c 'mkdir d; echo 1 >d/f; ln -s d l; ln -s /workspace/d/f lf; ln -s none gone'
	for live in yes no; do
		stop() { [ $live = yes ] || ntr stop; }
		stop
		assert_equal "$(ntr ls l)" f
		stop
		assert_equal "$(ntr ls -l lf | tail -n 1 | awk '{ print $1 }')" -rw-r--r--
		stop
		assert_equal "$(ntr ls --json gone | json '["target"]')" none
		stop
		assert_equal "$(ntr ls d/../l/)" f
		stop
		assert_equal "$(ntr cat l/f)$(ntr cat lf)$(ntr cat d/../l/f)" 111
		stop
		echo 2 | ntr put - l/../d/g
		assert_equal "$(ntr cat d/g)" 2
		ntr run -c 'rm d/g'
	done
	assert_equal "$(ntr ls -s default~0 --json l | json '["target"]')" d # of a commit, as it is there
}

@test "put and cat in a session that is not live" {
	ntr new quiet
	echo x | ntr put -s quiet - a/b >commit || true
	run ntr sessions --json
	assert_output --partial '"name":"quiet"'
	echo y | ntr put -s quiet - top >commit
	assert_regex "$(cat commit)" '^[0-9a-f]{12}$'
	assert_equal "$(ntr cat -s quiet top)" y
	assert_equal "$(ntr log -s quiet -n 1 --json | json '["tool"]')" put
}

@test "export" {
	ntr run -c 'mkdir d; echo x > d/f; ln -s d/f l'
	ntr export --dir out/deep
	assert_equal "$(cat out/deep/d/f)$(readlink out/deep/l)" xd/f
	run -1 ntr export --dir out/deep
	assert_output 'ntr: export: out/deep is not empty; give a new or empty directory'
	ntr export --tar o.tar
	assert_equal "$(tar -xOf o.tar ./d/f 2>/dev/null || tar -xOf o.tar d/f)" x
	assert_equal "$(ntr export --tar - | tar -t | grep -c f$)" 1
	ntr run -c 'rm -r d l'
	ntr export -s default~1 --dir before
	assert_file_exists before/d/f
	run -1 ntr export -s nobody --tar none.tar
	assert_file_not_exists none.tar
}

@test "ps and stop" {
	ntr run -c 'sleep 300 & echo started'
	for _ in {1..50}; do [[ $(ntr ps) == *"sleep 300"* ]] && break; sleep 0.1; done # until bash's child has become sleep
	run ntr ps
	assert_line --regexp '^ *PID +PPID +STATE +STARTED +COMMAND'
	assert_line --partial 'sleep 300'
	assert_equal "$(ntr ps --json | head -n 1 | json '["cmd"]' | grep -c sleep)" 1
	run ntr stop
	assert_output --partial '1 background process ended'
	run ntr ps
	refute_output --partial 'sleep 300'
}

@test "mount and umount" {
	[[ $(id -u) == 0 || -w /dev/fuse ]] || skip "an ordinary user cannot open /dev/fuse here"
	ntr run -c 'echo one > f'
	mkdir m c
	ntr mount default m
	assert_equal "$(cat m/f)" one
	echo two >m/f
	assert_equal "$(ntr run -- cat f)" two
	ntr mount default~1 c
	run bash -c 'echo no > c/x'
	assert_failure
	exec 9<m/f
	run -1 ntr umount m
	assert_output --partial 'is in use'
	exec 9<&-
	ntr umount m
	ntr umount c
	run -1 ntr umount m
	assert_output --partial 'is no mount point'
}

@test "daemon status and stop" {
	run -1 ntr daemon status
	assert_output "ntr: daemon: none runs for the store $NTR_STORE; it starts with the first command that needs it"
	ntr run -- true
	run ntr daemon status
	assert_line --regexp "^daemon [0-9]+ of $NTR_STORE, up "
	assert_line --regexp '^sessions 1, transport '
	pid=$(ntr daemon status --json | json '["pid"]')
	ntr daemon stop
	assert_file_not_exists "/proc/$pid"
	run ntr daemon stop
	assert_success
	assert_output ''
}

@test "stopping the daemon commits the work of sessions" {
	ntr run --no-commit -c 'echo work > f'
	ntr daemon stop
	assert_equal "$(ntr cat f)" work
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" staged
}

@test "fsck" {
	ntr run -c 'seq 1000 > f'
	run ntr fsck
	assert_success
	assert_line --regexp '^0 problems, sessions 1, commits '
	assert_equal "$(ntr fsck --json | tail -n 1 | json '["problems"]')" 0
}

@test "a daemon that is killed: an error that says where to look, then a fresh start" {
	ntr run -c 'echo safe > f'
	pid=$(ntr daemon status --json | json '["pid"]')
	ntr run -- sleep 60 2>err &
	call=$!
	sleep 1
	kill -KILL "$pid"
	status=0
	wait $call || status=$?
	assert_equal $status 125
	run cat err
	assert_output "ntr: run: the daemon ended unexpectedly; its last words are in $NTR_STORE/ntrd.log; the next command starts it again"
	assert_equal "$(ntr run -- cat f)" safe
}

@test "ntr inside a call: another session works, the own one is refused" {
	command -v ntr >/dev/null
	ntr new other
	run -0 ntr run -c "PATH='$PATH' ntr run -s other -- echo from-inside"
	assert_output from-inside
	run -0 ntr run -c "PATH='$PATH' ntr run -- true || echo refused \$?"
	assert_output --partial 'refused 125'
	# What takes the session, directly or from within another one's call, would wait for this very call.
	for command in 'put /etc/hostname f' 'commit -m x' 'mount default mnt' 'cache rm k'; do
		[[ $command != mount* || $(id -u) -eq 0 ]] || continue # an ordinary user's session cannot mount at all
		run -0 timeout 60 ntr run -c "PATH='$PATH' ntr run -s other -- ntr ${command/ / -s default } || echo refused"
		[[ $command != mount* ]] || run -0 timeout 60 ntr run -c "PATH='$PATH'; mkdir -p /tmp/mnt.$$; ntr run -s other -- ntr mount default /tmp/mnt.$$ || echo refused; rmdir /tmp/mnt.$$"
		assert_output --partial 'refused'
		assert_output --partial 'would wait for itself'
	done
	run -0 timeout 60 ntr run -c "PATH='$PATH' ntr put /etc/hostname f || echo refused \$?"
	assert_output --partial 'refused 1'
}

@test "names that are no UTF-8" {
	f=$'caf\xe9'
	ntr run -- touch "$f"
	run ntr ls --json
	assert_output --partial '{"base64":"Y2Fm6Q=="}'
	assert_equal "$(ntr ls)" "$f"
	ntr cat "$f"
}

@test "unknown sessions and commits" {
	for c in 'log' 'show abcdefg' 'status' 'discard' 'commit -m x' 'rollback --steps 1' 'ls' 'cat x' 'get x' 'export --tar x' 'rm'; do
		if [[ $c == rm ]]; then
			run -1 ntr rm nobody
		else
			# shellcheck disable=SC2086
			run -1 ntr $c -s nobody
		fi
		assert_output --partial 'ntr: '
		[[ $c == show* ]] || assert_output --partial nobody
	done
	run -2 ntr diff -s nobody
	run -1 ntr fork nobody x
	run -1 ntr rename nobody x
}
