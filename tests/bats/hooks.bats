# Lifecycle hooks: STORE/hooks/EVENT, STORE/hooks/SESSION.d/EVENT.

load common

setup()
{
	ntr_setup
	hooks=$NTR_STORE/hooks
	mkdir -p "$hooks"
	chmod 700 "$NTR_STORE"
}

teardown()
{
	ntr_teardown
}

# hook NAME: an executable of stdin.
hook()
{
	mkdir -p "$(dirname "$hooks/$1")"
	cat >"$hooks/$1"
	chmod +x "$hooks/$1"
}

# hook_note NAME: one that notes what it is told, a line each, and where it runs.
hook_note()
{
	hook "$1" <<-EOF
		#!/bin/bash
		cat >>"$TEST_DIR/said"
		echo "\$PWD \$NTR_HOOK \$NTR_SESSION \$NTR_STORE" >>"$TEST_DIR/where"
	EOF
}

said() # N EXPR: of the Nth note
{
	sed -n "$1p" "$TEST_DIR/said" | json "$2"
}

@test "pre-run and post-run are told of every call: run, py, tools" {
	hook_note pre-run
	hook_note post-run
	ntr run -s s -c 'echo 1 >a; exit 3' || true
	assert_equal "$(wc -l <"$TEST_DIR/said")" 2
	assert_equal "$(said 1 '["event"]')" pre-run
	assert_equal "$(said 1 '["session"]')" s
	assert_equal "$(said 1 '["script"]')" 'echo 1 >a; exit 3'
	assert_equal "$(said 1 '["tool"]')" run
	run said 1 '["exit_code"]'
	assert_failure
	assert_equal "$(said 2 '["event"]')" post-run
	assert_equal "$(said 2 '["exit_code"]')" 3
	assert_equal "$(said 2 '["commit"]')" "$(head_of s)"
	assert_equal "$(said 2 '["changes"]["created"]')" 1
	assert_equal "$(sed -n 1p "$TEST_DIR/where")" "$NTR_STORE pre-run s $NTR_STORE"
	ntr run -s s -- true
	assert_equal "$(said 3 '["argv"]')" '["true"]'
	assert_equal "$(said 4 '["commit"]')" null
	ntr py -s s -c '1 + 1'
	assert_equal "$(said 5 '["code"]')" '1 + 1'
	ntr tool -s s terminal '{"command": "echo hi"}'
	assert_equal "$(said 7 '["tool"]')" terminal
	ntr run -s s --rm -- true
	assert_equal "$(said 9 '["session"]')" s
	assert_equal "$(said 9 '["throwaway"]')" true
	# reads ask nobody
	ntr cat -s s a
	ntr log -s s >/dev/null
	assert_equal "$(wc -l <"$TEST_DIR/said")" 10
}

@test "pre-run refuses: nothing runs, and its words are in the error" {
	ntr run -s s -- true
	hook pre-run <<-'EOF'
		#!/bin/sh
		grep -q curl || exit 0
		echo "no network tools here," >&2
		echo "says the policy" >&2
		exit 7
	EOF
	run ntr run -s s -c 'touch ran; curl http://x'
	assert_failure 125
	assert_output --partial "ntr: run the command in session s: the hook $hooks/pre-run said no (exit status 7): no network tools here, says the policy"
	run ntr run -s s -c 'ls'
	assert_success
	assert_output ""
	run ntr py -s s -c 'x = "curl"'
	assert_failure
	assert_output --partial "said no"
	run ntr run -s s --rm -- curl
	assert_failure 125
	# an agent gets it as the answer to its call
	run ntr tool -s s --json terminal '{"command": "curl x"}'
	assert_failure
	assert_equal "$(json '["is_error"]' <<<"$output")" true
	assert_output --partial "says the policy"
}

@test "pre-commit sees what would be committed, and may refuse: it stays uncommitted" {
	hook pre-commit <<-EOF
		#!/bin/bash
		tee -a "$TEST_DIR/said" | /usr/bin/python3 -c '
		import json, sys
		m = json.load(sys.stdin)
		for e in m["entries"]:
		    if e["kind"] != "deleted" and "SECRET" in open(m["tree"] + "/" + e["path"]).read():
		        sys.exit("a secret in " + e["path"])
		'
	EOF
	ntr run -s s -c 'echo fine >a'
	assert_equal "$(said 1 '["entries"]')" '[{"path": "a", "kind": "created"}]'
	assert_equal "$(said 1 '["script"]')" 'echo fine >a'
	head=$(head_of s)
	run ntr run -s s -c 'echo SECRET >b'
	assert_failure 125
	assert_output --partial "commit the changes in session s"
	assert_output --partial "a secret in b"
	assert_output --partial "ntr discard -s s"
	assert_equal "$(head_of s)" "$head"
	# what it printed is told all the same
	run -125 --separate-stderr ntr run -s s --json -c 'echo said; echo SECRET >b; exit 3'
	assert_equal "$(json '["stdout"]' <<<"$output")" said
	assert_equal "$(json '["exit_code"]' <<<"$output")" 3
	assert_equal "$(json '["commit"]' <<<"$output")" null
	[[ $stderr == *"a secret in b"* ]]
	run -125 --separate-stderr ntr run -s s --render -c 'echo said; exit 3'
	assert_output $'said\n[exit code 3]'
	run -125 --separate-stderr ntr py -s s --json -c 'print("said"); 6 * 7'
	assert_equal "$(json '["stdout"]' <<<"$output")" $'said\n42'
	assert_equal "$(json '["echo"]' <<<"$output")" 42
	# it is still there, and uncommitted
	run ntr cat -s s b
	assert_output SECRET
	run ntr diff -s s --name-status
	assert_output --partial b
	for what in "commit -s s -m x" "stop -s s" "rollback -s s --steps 1" "fork s t"; do
		# shellcheck disable=SC2086
		run ntr $what
		assert_failure
		assert_output --partial "a secret in b"
	done
	assert_equal "$(head_of s)" "$head"
	# put right by another call, all of it is one commit
	ntr run -s s -c 'echo clean >b'
	run ntr show s --json
	assert_equal "$(json '["changes"]["created"]' <<<"$output")" 1
	# a refused one is dropped by discard
	run ntr run -s s -c 'echo SECRET >c'
	assert_failure
	ntr discard -s s
	run ntr ls -s s
	assert_output $'a\nb'
}

@test "pre-commit for put, the cache, file tools and ntr commit, live or not" {
	ntr run -s s -c 'echo 1 >a'
	ntr stop -s s
	hook pre-commit <<-'EOF'
		#!/bin/sh
		grep -q '"no"' || exit 0
		echo never >&2
		exit 1
	EOF
	hook_note post-commit
	head=$(head_of s)
	for live in false true; do
		ntr stop -s s
		$live && ntr run -s s -- true
		echo x >no
		run ntr put -s s no
		assert_failure
		assert_output --partial never
		ntr discard -s s
		$live || ntr stop -s s
		run ntr tool -s s file_write '{"path": "no", "content": "x"}'
		assert_failure
		assert_output --partial never
		ntr discard -s s
		$live || ntr stop -s s
		run ntr cache set -s s no 1
		assert_failure
		assert_output --partial never
		ntr discard -s s
	done
	ntr run -s s --no-commit -c 'touch no'
	run ntr commit -s s -m x
	assert_failure
	assert_output --partial never
	ntr discard -s s
	assert_equal "$(head_of s)" "$head"
	assert_file_not_exists "$TEST_DIR/said"
	ntr put -s s no yes
	ntr cache set -s s k 1
	ntr tool -s s file_write '{"path": "f", "content": "x"}'
	assert_equal "$(wc -l <"$TEST_DIR/said")" 3
	assert_equal "$(said 1 '["tool"], ["entries"][0]["path"]' 2>/dev/null || said 1 '["entries"][0]["path"]')" yes
	assert_equal "$(said 2 '["tool"]')" cache
	assert_equal "$(said 3 '["commit"]')" "$(head_of s)"
}

@test "post-commit, post-fork, post-rollback" {
	hook_note post-commit
	hook_note post-fork
	hook_note post-rollback
	ntr run -s s -c 'echo 1 >a'
	first=$(head_of s)
	assert_equal "$(said 1 '["event"]')" post-commit
	assert_equal "$(said 1 '["commit"]')" "$first"
	assert_equal "$(said 1 '["entries"]')" '[{"path": "a", "kind": "created"}]'
	ntr fork s t
	assert_equal "$(said 2 '["event"]')" post-fork
	assert_equal "$(said 2 '["session"]')" s
	assert_equal "$(said 2 '["fork"]')" t
	assert_equal "$(said 2 '["commit"]')" "$first"
	ntr new u --from s
	assert_equal "$(said 3 '["fork"]')" u
	ntr run -s s -c 'echo 2 >a'
	second=$(head_of s)
	ntr rollback -s s --steps 1
	assert_equal "$(said 5 '["event"]')" post-rollback
	assert_equal "$(said 5 '["from"]')" "$second"
	assert_equal "$(said 5 '["to"]')" "$first"
	assert_equal "$(wc -l <"$TEST_DIR/said")" 5
}

@test "a session's own hooks, after the store's" {
	hook pre-run <<-EOF
		#!/bin/sh
		echo store >>"$TEST_DIR/order"
	EOF
	hook s.d/pre-run <<-EOF
		#!/bin/sh
		echo session >>"$TEST_DIR/order"
		exit 1
	EOF
	run ntr run -s s -- true
	assert_failure
	assert_equal "$(cat "$TEST_DIR/order")" $'store\nsession'
	ntr run -s other -- true
	assert_equal "$(cat "$TEST_DIR/order")" $'store\nsession\nstore'
}

@test "a hook that hangs is killed: pre-* refuses, post-* warns, with all that it started" {
	echo 0.3 >"$hooks/timeout"
	hook pre-run <<-EOF
		#!/bin/bash
		[[ \$(cat) == *slow* ]] || exit 0
		sleep 1000 &
		echo \$! \$\$ >"$TEST_DIR/pids"
		wait
	EOF
	run ntr run -s s -c ': slow; touch ran'
	assert_failure 125
	assert_output --partial "ran longer than its limit of 0.3 s and was killed"
	for pid in $(cat "$TEST_DIR/pids"); do
		[[ ! -e /proc/$pid ]] || grep -q '^State:.Z' "/proc/$pid/status"
	done
	hook post-run <<-'EOF'
		#!/bin/sh
		exec sleep 1000
	EOF
	run --separate-stderr ntr run -s s -c 'echo out; touch a'
	assert_success
	assert_output out
	# shellcheck disable=SC2154 # bats sets it
	[[ $stderr == *"ntr: warning: post-run hook of session s"*"limit of 0.3 s"* ]]
	run ntr ls -s s
	assert_output a
	rm "$hooks/post-run"
}

@test "a post hook that fails loses nothing, is warned about and logged" {
	for event in post-run post-commit post-fork post-rollback; do
		hook $event <<-'EOF'
			#!/bin/sh
			echo "disk of the audit is full" >&2
			exit 9
		EOF
	done
	run --separate-stderr ntr run -s s -c 'echo 1 >a; echo out'
	assert_success
	assert_output out
	[[ $stderr == *"post-commit hook"*"disk of the audit is full"*"post-run hook"* ]]
	run --separate-stderr ntr run -s s --json -c 'echo 2 >a'
	assert_equal "$(json '["exit_code"]' <<<"$output")" 0
	run --separate-stderr ntr fork s t
	assert_success
	[[ $stderr == *"post-fork hook of session s"* ]]
	run --separate-stderr ntr rollback -s s --steps 1
	assert_success
	[[ $stderr == *"post-rollback hook of session s"* ]]
	run ntr cat -s s a
	assert_output 1
	run grep -c "disk of the audit is full" "$NTR_STORE/ntrd.log"
	assert_success
}

@test "not executable, a bad interpreter, no program at all: clear, and closed for pre-*" {
	hook pre-run <<<'#!/bin/sh'
	chmod -x "$hooks/pre-run"
	run ntr run -s s -c 'touch ran'
	assert_failure 125
	assert_output --partial "$hooks/pre-run is not executable"
	assert_output --partial "chmod +x $hooks/pre-run"
	hook pre-run <<<'#!/no/such/interpreter'
	run ntr run -s s -c 'touch ran'
	assert_failure 125
	assert_output --partial "interpreter"
	hook pre-run <<<'exit 0'
	run ntr run -s s -c 'touch ran'
	assert_failure 125
	assert_output --partial "#!"
	rm "$hooks/pre-run"
	mkdir "$hooks/pre-run"
	run ntr run -s s -c 'touch ran'
	assert_failure 125
	rmdir "$hooks/pre-run"
	hook post-run <<<'#!/no/such/interpreter'
	run --separate-stderr ntr run -s s -c 'ls'
	assert_success
	assert_output ""
	[[ $stderr == *"ntr: warning: post-run hook"*interpreter* ]]
}

@test "a hook that kills itself, prints much, or reads nothing" {
	hook pre-run <<-'EOF'
		#!/bin/bash
		kill -9 $$
	EOF
	run ntr run -s s -- true
	assert_failure 125
	assert_output --partial "signal 9"
	hook pre-run <<-'EOF'
		#!/bin/bash
		head -c 3000000 /dev/zero | tr '\0' x >&2
		exit 0
	EOF
	run ntr run -s s -- echo fine
	assert_success
	assert_output fine
	hook pre-run <<<'#!/bin/true'
	run ntr run -s s -c "$(printf 'echo %300000s end' '' | tr -s ' ')"
	assert_success
}

@test "what a hook asks of its own session is refused, not waited for; reads and other sessions work" {
	ntr run -s s -c 'echo 1 >a'
	ntr run -s other -- true
	for event in pre-run post-run pre-commit post-commit post-rollback; do
		hook s.d/$event <<-EOF
			#!/bin/bash
			for what in "run -- true" "put $NTR_STORE/synced x" "commit -m x" "rollback --steps 1" "discard" "stop" \
				"tool file_write {\"path\":\"x\",\"content\":\"x\"}" "rm s"; do
				timeout 5 ntr \$what >"$TEST_DIR/out" 2>&1 </dev/null && echo "\$NTR_HOOK: \$what: done" >>"$TEST_DIR/wrong"
				grep -q 'wait for itself' "$TEST_DIR/out" || { echo "\$NTR_HOOK: \$what"; cat "$TEST_DIR/out"; } >>"$TEST_DIR/wrong"
			done
			for what in "cat a" "log" "status" "diff" "ls" "cache ls" "run -s other -- true" "sessions" "ps"; do
				timeout 5 ntr \$what >"$TEST_DIR/out" 2>&1 </dev/null ||
					{ echo "\$NTR_HOOK: \$what: \$?"; cat "$TEST_DIR/out"; } >>"$TEST_DIR/wrong"
			done
			# joins the call, or is refused
			timeout 5 ntr cache set k 1 2>/dev/null
			((\$? == 124)) && echo "\$NTR_HOOK: cache waits" >>"$TEST_DIR/wrong"
			exit 0
		EOF
	done
	ntr run -s s -c 'echo 2 >a'
	[[ ! -e $TEST_DIR/wrong ]] || cat "$TEST_DIR/wrong"
	assert_file_not_exists "$TEST_DIR/wrong"
	echo x >p
	ntr put -s s p
	ntr rollback -s s --steps 1
	[[ ! -e $TEST_DIR/wrong ]] || cat "$TEST_DIR/wrong"
	assert_file_not_exists "$TEST_DIR/wrong"
}

@test "a post-fork hook prepares the fork" {
	ntr run -s s -c 'echo 1 >a'
	hook post-fork <<-'EOF'
		#!/bin/sh
		name=$(/usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["fork"])')
		ntr run -s "$name" -c 'echo prepared >b'
	EOF
	ntr fork s t
	run ntr cat -s t b
	assert_output prepared
}

@test "hooks in a folder that is there before the store is" {
	export NTR_STORE=$TEST_DIR/store2
	mkdir -p "$NTR_STORE/hooks"
	chmod 700 "$NTR_STORE"
	printf '#!/bin/sh\nexit 1\n' >"$NTR_STORE/hooks/pre-run"
	chmod +x "$NTR_STORE/hooks/pre-run"
	run ntr run -s s -- true
	assert_failure 125
	assert_output --partial "said no"
	ntr daemon stop
	export NTR_STORE=$TEST_DIR/store
}

@test "a busy background process fails no commit, with a hook that judges each" {
	hook pre-commit <<<$'#!/bin/sh\nexit 0'
	ntr run -s s -- sh -c 'exec 1>&- 2>&- <&-; /usr/bin/python3 -c "
import os, time
end = time.time() + 60
while time.time() < end:
    for i in range(30): open(f\"t{i}\", \"w\").write(\"x\" * 5000)
    for i in range(30): os.unlink(f\"t{i}\")
" &'
	local i
	for i in {1..30}; do ntr run -s s -c "echo $i >x"; done
	run ntr cat -s s x
	assert_output 30
	ntr stop -s s
}
