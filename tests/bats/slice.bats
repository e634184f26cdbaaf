# The main job, smallest first: what a call changes is one commit; forks; rollbacks; what sticks.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

commits() { ntr log -s "${1:-default}" --json | wc -l; }

@test "one file written by bash, committed, forked, rolled back" {
	run ntr run -c 'echo hello > f; pwd'
	assert_success
	assert_output /workspace
	assert_equal "$(commits)" 2
	run ntr run -- cat f
	assert_output hello
	ntr fork default x
	ntr run -s x -c 'rm f; echo 1 > g'
	run ntr run -- ls
	assert_output f
	run ntr run -s x -- ls
	assert_output g
	run ntr rollback -s x --steps 1
	assert_success
	run ntr run -s x -- cat f
	assert_output hello
}

@test "a call that changes nothing makes no commit" {
	ntr run -c 'git init -q . && echo a > a && git add a && git -c user.name=n -c user.email=e commit -qm m'
	sleep 1.1 # within the second of a write git itself cannot trust its index and rewrites it at each status
	ntr run -- git status --porcelain
	local n; n=$(commits)
	ntr run -- true
	ntr run -- cat a
	ntr run -- git status --porcelain
	ntr run -- git status --porcelain
	ntr run -c 'touch tmp && rm tmp'
	ntr run -c 'cd / && cd /workspace'
	ntr run -c 'exit 3' || true
	assert_equal "$(commits)" "$n"
}

@test "one call, one commit, described" {
	run ntr run --json -c 'echo out; echo err >&2; mkdir d; touch d/a d/b; exit 4'
	assert_failure 4
	assert_equal "$(json '["exit_code"]' <<<"$output")" 4
	assert_equal "$(json '["stdout"]' <<<"$output")" out
	assert_equal "$(json '["stderr"]' <<<"$output")" err
	assert_equal "$(json '["changes"]["created"]' <<<"$output")" 3
	assert_equal "$(json '["commit"]' <<<"$output")" "$(head_of default)"
	run ntr log -n 1 --json
	assert_equal "$(json '["tool"]' <<<"$output")" run
	assert_equal "$(json '["exit_code"]' <<<"$output")" 4
	assert_equal "$(json '["changes"]["created"]' <<<"$output")" 3
	assert_equal "$(json '["script"]' <<<"$output")" 'echo out; echo err >&2; mkdir d; touch d/a d/b; exit 4'
	ntr run -c 'echo more >> d/a; rm d/b; mv d/a d/c'
	run ntr show default --json
	assert_equal "$(json '["changes"]["deleted"]' <<<"$output")" 2
	assert_equal "$(json '["changes"]["created"]' <<<"$output")" 1
}

# Each of them would make execve(2) of every later call fail, also of the one that unsets it.
@test "a variable that is too large to be passed on does not stick, and is told" {
	ntr run -c 'export SMALL=1 BIG=2'
	run ntr run -c 'export BIG=$(head -c 140000 /dev/zero | tr "\0" y); echo ${#BIG}'
	assert_success
	assert_line 140000
	assert_line 'ntr: run: BIG is too large (140004 bytes) to be passed on: later calls do not have it; keep it in a file'
	run ntr run -c 'echo "${BIG-none} $SMALL"'
	assert_output 'none 1'
	run ntr run --render -c 'for i in {1..25}; do printf -v W$i %100000d 1; done; export ${!W*}'
	assert_success
	assert_output --partial '[note: W1 is too large (10000'
	run ntr run -c 'ls / >/dev/null && echo $SMALL; unset ${!W*}; echo "${!W*}"'
	assert_output 1
}

@test "cd, export and umask stick, fork and roll back" {
	ntr run -c 'mkdir -p a/b && cd a/b && export COLOUR="dark red" && umask 077'
	run ntr run -c 'echo "$PWD $COLOUR $(umask)"'
	assert_output "/workspace/a/b dark red 0077"
	run ntr run -- sh -c 'echo "$PWD $COLOUR $(umask)"'
	assert_output "/workspace/a/b dark red 0077"
	ntr fork default f
	ntr run -c 'cd ..; unset COLOUR; export N=1; umask 022'
	run ntr run -c 'echo "$PWD ${COLOUR-unset} $N $(umask)"'
	assert_output "/workspace/a unset 1 0022"
	run ntr run -s f -c 'echo "$PWD $COLOUR ${N-unset} $(umask)"'
	assert_output "/workspace/a/b dark red unset 0077"
	ntr rollback --steps 1
	run ntr run -c 'echo "$PWD $COLOUR ${N-unset} $(umask)"'
	assert_output "/workspace/a/b dark red unset 0077"
	ntr rollback --steps 1
	run ntr run -c 'echo "$PWD ${COLOUR-unset} $(umask)"'
	assert_output "/workspace unset 0022"
}

@test "state sticks after exit, set -e, a failed command, a trap; not from argv" {
	ntr run -c 'mkdir d e f g'
	run ntr run -c 'cd d; exit 3'
	assert_failure 3
	run ntr run -c 'pwd'
	assert_output /workspace/d
	run ntr run -c 'set -e; cd ../e; export A=1; false; cd ../f'
	assert_failure 1
	run ntr run -c 'echo "$PWD $A"'
	assert_output "/workspace/e 1"
	run ntr run -c 'trap "echo bye" EXIT; cd ../f; export B=2'
	assert_output bye
	run ntr run -c 'echo "$PWD $B"'
	assert_output "/workspace/f 2"
	run ntr run -c 'cd ../g; nosuchcommand'
	assert_failure 127
	run ntr run -c 'pwd; f() { :; }; V=unexported'
	assert_output /workspace/g
	run ntr run -c 'type f; echo ${V-none}'
	assert_output --partial none
	ntr run --env T=1 -- sh -c 'cd /tmp; export X=1'
	run ntr run -c 'echo "$PWD ${X-none} ${T-none}"'
	assert_output "/workspace/g none none"
}

@test "values with newlines, quotes, bytes that are no UTF-8, and long ones stick" {
	ntr run -c $'export W=$\'a\\nb "c" \\\'d\\\' \\xff\\xfe $x `y`\'; export L=$(printf "%70000s" x)'
	run ntr run -c 'printf %s "$W" | od -An -c | tr -s " \n" " "; echo; echo ${#L}'
	assert_output --partial ' a \n b " c " '
	assert_output --partial '377 376 $ x ` y `'
	assert_line 70000
}

@test "exit codes and signals as in a shell; nothing of ntr's in the output" {
	run ntr run -- sh -c 'exit 9'
	assert_failure 9
	run ntr run -- sh -c 'kill -TERM $$'
	assert_failure 143
	run ntr run -- /nonexistent/x
	assert_failure 127
	run ntr run -c 'echo x > f; chmod 644 f'
	run ntr run -- ./f
	assert_failure 126
	run ntr run -c 'echo "line 1"; nosuch; echo "line 3"'
	assert_line --index 1 'bash: line 1: nosuch: command not found'
	run ntr run -c $'true\nnosuch'
	assert_output 'bash: line 2: nosuch: command not found'
	run ntr run -c 'if'
	assert_failure 2
	assert_output --partial 'syntax error'
	run bash -c 'printf "echo from stdin; read x; echo \$x" | ntr run -'
	assert_line "from stdin"
	run bash -c 'echo data | ntr run -- cat'
	assert_output data
	run bash -c 'ntr run -- head -c 1000000 /dev/zero | wc -c'
	assert_output 1000000
}

@test "a timeout ends the whole process tree and is 124" {
	run ntr run --timeout 1 -c 'sleep 300 & (sleep 301 & sleep 302); sleep 303'
	assert_failure 124
	assert_output --partial '1'
	run ntr ps --json
	assert_output ""
	run ntr run -- true
	assert_success
}

@test "background processes live on; what they write goes into the next commit; rollback ends them" {
	ntr run -c '(sleep 0.5; echo late > late; exec sleep 300) </dev/null >/dev/null 2>&1 & echo started'
	for _ in {1..50}; do run ntr ps --json; [[ $output == *sleep* ]] && break; sleep 0.1; done # it begins as a shell
	assert_output --partial sleep
	for _ in {1..50}; do [ "$(ntr run -- sh -c 'test -e late && echo y')" = y ] && break; sleep 0.1; done
	run ntr run -- cat late
	assert_output late
	run ntr log -n 1 --json
	assert_equal "$(json '["background"]' <<<"$output")" true
	ntr run -c 'echo x > x'
	run ntr rollback --steps 1
	assert_success
	assert_output --partial 'ended'
	run ntr ps --json
	assert_output ""
	run ntr run -- ls
	assert_output late
}

@test "server & returns at once" {
	local t=$SECONDS
	ntr run -c 'sleep 100 & echo up'
	[ $((SECONDS - t)) -lt 60 ]
	ntr stop
	run ntr ps --json
	assert_output ""
}

@test "no-commit, status, diff of unabsorbed work, commit, discard" {
	ntr run -c 'echo 1 > a'
	ntr run --no-commit -c 'echo 2 > a; echo new > b'
	local n; n=$(commits)
	run ntr status
	assert_output --partial a
	assert_output --partial b
	run ntr diff --name-status
	assert_failure 1
	assert_line --partial a
	ntr commit -m "two at once"
	assert_equal "$(commits)" $((n + 1))
	run ntr log -n 1 --json
	assert_equal "$(json '["message"]' <<<"$output")" "two at once"
	ntr run --no-commit -c 'rm a b'
	ntr discard
	run ntr run -- cat a b
	assert_output $'2\nnew'
	run ntr diff
	assert_success
	assert_output ""
}

@test "unabsorbed work survives rollback, fork and stop as a staged commit" {
	ntr run -c 'echo 1 > a'
	ntr run -c 'echo 2 > b'
	ntr run --no-commit -c 'echo work > w'
	ntr fork default f
	run ntr run -s f -- cat w
	assert_output work
	ntr run --no-commit -c 'echo more > m'
	run ntr rollback --steps 1
	assert_success
	assert_output --partial 'kept in'
	run ntr run -- ls
	refute_output --partial m
	ntr run --no-commit -c 'echo kept > k'
	ntr stop
	run ntr run -- cat k
	assert_output kept
	run ntr log --json -n 1
	assert_equal "$(json '["tool"]' <<<"$output")" staged
}

@test "calls on one session queue in order; other sessions do not wait" {
	ntr run -c 'true'
	for i in 1 2 3 4 5; do ntr run -c "sleep 0.2; echo $i >> order" & sleep 0.05; done
	local t=$SECONDS
	ntr run -s other -- true
	wait
	run ntr run -- cat order
	assert_output $'1\n2\n3\n4\n5'
}

@test "Ctrl-C and other signals reach the call" {
	ntr run -c 'echo $$ > pid; trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.1; done' >out &
	local pid=$!
	for _ in {1..100}; do grep -q ready out && break; sleep 0.05; done
	kill -INT $pid
	local status=0
	wait $pid || status=$?
	assert_equal "$status" 5
	grep -q caught out
}

@test "put, get, cat, ls on a live session and on one that is not" {
	echo content >file
	ntr new n
	ntr put -s n file
	run ntr cat -s n file
	assert_output content
	ntr run -s n -c 'mkdir d; mv file d/; ln -s d l'
	run ntr ls -s n
	assert_output --partial d
	run ntr cat -s n d/file
	assert_output content
	ntr put -s n file d/second
	ntr get -s n d/second got
	assert_equal "$(cat got)" content
	ntr stop -s n
	run ntr ls -s n d
	assert_line --partial file
	assert_line --partial second
	run ntr cat -s n nothere
	assert_failure 1
	assert_output --partial "ntr: "
}

@test "a throw-away fork leaves nothing" {
	ntr run -c 'echo keep > f'
	run ntr run --rm -c 'rm f; ls -a | wc -l'
	assert_output 2
	run ntr run -- cat f
	assert_output keep
	assert_equal "$(ntr sessions --json | wc -l)" 1
}

@test "names of throw-away sessions are nobody's to give" {
	local name=tmp-0123456789abcdef
	ntr run -c 'echo precious >f'
	local what
	for what in "new $name" "fork default $name" "rename default $name" "run -s $name -- true"; do
		run ntr $what
		assert_failure
		assert_output --partial "names of this kind are those of throw-away sessions"
		assert_output --partial "choose another name"
	done
	ntr new tmp-x
	ntr daemon stop
	run ntr sessions
	assert_output --partial tmp-x
	assert_output --partial default
}

@test "a call whose directory is not there does not run" {
	ntr run -c 'echo precious >f; echo x >file; mkdir d'
	local dir
	for dir in /no/such/place nothere /workspace/nothere file /etc/hostname; do
		run ntr run --cwd "$dir" -c 'rm -rf ./*'
		assert_failure 125
		assert_output --partial "start a call in $dir"
		assert_output --partial "name one that is there"
		run ntr py --cwd "$dir" -c 'print(1)'
		assert_failure
		refute_output 1
		run ntr tool --cwd "$dir" terminal '{"command": "rm -rf ./*"}'
		assert_failure
	done
	run ntr cat f
	assert_output precious
	run ntr run --cwd / -- pwd
	assert_output /
}
