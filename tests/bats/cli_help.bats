# The command line itself: help, bad usage, exit codes. No daemon is needed.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

verbs='new fork sessions rename rm run tool py ps stop log show diff status commit discard rollback ls cat put get cache export mount umount mcp
	daemon doctor fsck version help'

@test "help lists every command" {
	run ntr --help
	assert_success
	for v in $verbs; do
		assert_line --regexp "^  $v +[A-Z]"
	done
	assert_equal "$(grep -Ec '^  [a-z]+ +[A-Z]' <<<"$output")" "$(wc -w <<<"$verbs")"
	run ntr help
	assert_success
	assert_line --partial 'Usage: ntr [OPTION...] COMMAND'
}

@test "every command has a help with examples, a common part and a page" {
	for v in $verbs; do
		run ntr help "$v"
		assert_success
		assert_line --partial "Usage: ntr $v"
		assert_line 'Examples:'
		assert_line --partial "  ntr $v"
		assert_line --partial '--store=DIR'
		local long=$output
		run ntr "$v" --help
		assert_success
		assert_output "$long"
		assert_file_exists "$NTR_TESTS/../docs/cli/$v.md"
	done
	refute [ -e "$NTR_STORE" ]
}

@test "help fits into 80 columns" {
	for v in '' $verbs; do
		# shellcheck disable=SC2086
		run ntr help $v
		assert_success
		refute_line --regexp '.{81,}'
	done
}

@test "no command, an unknown one, an unknown option" {
	run -2 ntr
	assert_output "ntr: a command is missing; see 'ntr --help'"
	run -2 ntr frobnicate
	assert_output "ntr: frobnicate: no such command; 'ntr --help' lists them"
	run -2 ntr --frobnicate
	assert_line "ntr: unrecognized option '--frobnicate'"
	assert_line "ntr: see 'ntr --help'"
	run -2 ntr log --frobnicate
	assert_line "ntr: log: unrecognized option '--frobnicate'"
	assert_line "ntr: log: see 'ntr help log'"
	run -2 ntr help frobnicate
	assert_output "ntr: help: there is no command 'frobnicate'; see 'ntr help help'"
}

@test "usage errors: exit 2 and a sentence" {
	while IFS='|' read -r words text; do
		# shellcheck disable=SC2086
		run -2 ntr $words
		assert_output --partial "$text"
		assert_output --partial 'ntr: '
	done <<-'END'
		new|the session's name is missing
		new a b|unexpected argument 'b'
		new a --durability never|--durability 'never' is neither fsync nor relaxed
		fork|an argument is missing
		fork only|the new session's name is missing
		fork a b c|unexpected argument 'c'
		rename a|an argument is missing
		rm|an argument is missing
		log extra|unexpected argument 'extra'
		log -n 0|-n '0' is no count
		log -n 1x|-n '1x' is no count
		log -n|option requires an argument
		show|an argument is missing
		show a b|unexpected argument 'b'
		diff a b c|unexpected argument 'c'; paths stand behind --
		diff --stat --name-status|exclude each other
		diff --stat --json|exclude each other
		commit|a message is missing (-m TEXT)
		rollback|give either --steps N or a commit
		rollback --steps 1 abc|give either --steps N or a commit
		rollback --steps 0|--steps '0' is no count
		rollback --steps -1|--steps '-1' is no count
		cat|an argument is missing
		put|an argument is missing
		put -|what comes from stdin needs a PATH
		get a b c|unexpected argument 'c'
		export|give either --dir DIR or --tar FILE
		export --dir x --tar y|give either --dir DIR or --tar FILE
		mount a|an argument is missing
		umount|an argument is missing
		daemon|an argument is missing
		daemon restart|'restart' is neither status nor stop
	END
	refute [ -e "$NTR_STORE" ]
}

@test "run: bad usage is ntr's own failure, 125" {
	run -125 ntr run -c 'true' -- true
	assert_output "ntr: run: -c SCRIPT and a command exclude each other; see 'ntr help run'"
	run -125 ntr run --timeout soon -- true
	assert_output --partial "--timeout 'soon' is no time; give seconds, or 10s, 5m, 1h"
	for t in 0 -1 1d 0x10 nan inf 1e400; do
		run -125 ntr run --timeout="$t" -- true
		assert_output --partial 'is no time'
	done
	run -125 ntr run --env NOVALUE -- true
	assert_output --partial "--env 'NOVALUE' is not NAME=VALUE"
	run -125 ntr run --env =x -- true
	run -125 ntr run --nosuch -- true
	assert_line "ntr: run: unrecognized option '--nosuch'"
	refute [ -e "$NTR_STORE" ]
}

@test "run without a command at a terminal says so" {
	run -125 script -qec 'ntr run' /dev/null
	assert_output --partial 'ntr: run: a command is missing'
}

@test "options may stand before the command word" {
	run ntr --store "$TEST_DIR/other" --json version
	assert_success
	assert_output --partial '"protocol":1'
}

@test "version" {
	run ntr version
	assert_success
	assert_line --regexp '^ntr [0-9]+\.[0-9]+\.[0-9]+$'
	assert_line 'protocol 1'
	assert_line --regexp '^libfuse 3\.[0-9.]+ \(with(out)? io_uring\)$'
	assert_line 'licence MIT'
	run ntr --version
	assert_output --regexp '^ntr [0-9.]+$'
	assert_equal "$(ntr version --json | json '["licence"]')" MIT
}

@test "doctor: a line for each check, without a daemon" {
	run ntr doctor
	for check in kernel programs /dev/fuse fusermount3 overlayfs 'user namespaces' 'fuse io_uring' 'halt polling' libfuse store 'disk space' \
		XDG_RUNTIME_DIR; do
		assert_line --regexp "^(ok|missing|note) +$check +[^ ]"
	done
	assert_line --regexp '^ok +rung +none: no boundary'
	if grep -q ^missing <<<"$output"; then
		assert_equal "$status" 1
	else
		assert_equal "$status" 0
	fi
	ntr doctor --json >checks || true
	/usr/bin/python3 - checks <<-'END'
		import json, sys
		rows = [json.loads(l) for l in open(sys.argv[1])]
		assert len(rows) >= 12
		for r in rows:
		    assert set(r) == {"check", "ok", "needed", "detail", "fix"}, r
		    assert r["ok"] or not r["needed"] or r["fix"], r
	END
	refute [ -e "$NTR_STORE" ]
}

@test "doctor: a store where no upper can be" {
	run -1 ntr doctor --store /proc/ntr
	assert_line --regexp '^missing +store'
}

@test "output to a full disk is an error, to a closed pipe is quiet" {
	[[ -c /dev/full ]] || skip "no /dev/full"
	run -1 bash -c 'ntr version >/dev/full'
	assert_output --partial 'ntr: version: cannot write to stdout: No space left on device'
	run bash -c 'ntr --help | true'
	assert_output ''
}

@test "closed standard descriptors do no harm" {
	run bash -c 'ntr version >&- 2>&-; ntr version <&-'
	assert_line 'licence MIT'
}

@test "umount refuses what is not ntr's" {
	run -1 ntr umount "$TEST_DIR"
	assert_output "ntr: umount: $TEST_DIR is no mount point"
	run -1 ntr umount /proc
	assert_output --partial 'ntr: umount: /proc is a mount of type proc, not ntr'
	run -1 ntr umount "$TEST_DIR/nowhere"
	assert_output "ntr: umount: $TEST_DIR/nowhere: No such file or directory"
}

@test "completion: loads, completes commands and options" {
	run bash -c 'source "$1"/../cli/completion.bash
		try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ntr; printf "%s\n" "${COMPREPLY[@]}"; }
		try ntr roll; try ntr rollback --st; try ntr daemon s' - "$NTR_TESTS"
	assert_line rollback
	assert_line -- --steps
	assert_line status
	refute [ -e "$NTR_STORE" ]
}
