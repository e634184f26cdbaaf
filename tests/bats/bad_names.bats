# Unknown, ambiguous and malformed names of sessions and commits: a sentence, the right exit status, nothing changed.
load bad_common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

@test "an unknown session" {
	ntr new other
	for c in log status discard 'commit -m x' 'rollback --steps 1' ls 'cat x' 'get x' 'export --tar x' ps stop; do
		# shellcheck disable=SC2086
		run -1 ntr $c -s nobody
		assert_message "session 'nobody'" 'there is no session of that name' '`ntr sessions` lists them'
	done
	run -1 ntr rm nobody
	assert_message "session 'nobody'" '`ntr sessions` lists them'
	run -1 ntr rename nobody x
	assert_message "session 'nobody'"
	run -1 ntr fork nobody x
	assert_message "session 'nobody'"
	mkdir m
	run -1 ntr mount nobody m
	assert_message "session 'nobody'"
	assert_equal "$(ntr sessions --json | wc -l)" 1
	refute [ -e x ]
}

@test "an unknown commit" {
	ntr run -c 'echo 1 > f'
	local before; before=$(ntr log --json)
	for rev in abcdef1 zzzzzzz abc default@abcdef1 default@ default@zz @ 0000000000000000000000000000000000000000; do
		run -1 ntr show "$rev"
		assert_message "find '$rev'" 'no session and no commit has that name' '`ntr sessions`' '`ntr log'
		run -1 ntr rollback "$rev"
		assert_message "find '$rev'"
	done
	for rev in default~99 '~99'; do
		run -1 ntr show "$rev"
		assert_output --partial 'go back 99 steps'
	done
	run -1 ntr rollback --steps 99
	assert_output --partial 'go back 99 steps'
	run -1 ntr fork default@abcdef1 x
	assert_message "find 'default@abcdef1'"
	run -2 ntr diff nobody default
	assert_message "find 'nobody'"
	run -1 ntr cat -s default@abcdef1 f
	assert_message "find '"
	run -1 ntr export -s default@abcdef1 --dir out
	assert_message "find '"
	assert_file_not_exists out
	assert_equal "$(ntr log --json)" "$before"
	run ntr run -- cat f
	assert_output 1
}

@test "what cannot be a commit's name" {
	ntr run -c 'echo 1 > f'
	for rev in '' default~x default~-1 default~99999999999999999999 a@b~1; do
		run -2 ntr show "$rev"
		assert_message "read '$rev'" 'not the name of a commit' 'SESSION, SESSION@COMMIT or SESSION~N'
		run -2 ntr rollback "$rev"
		assert_message "read '$rev'"
	done
}

@test "an ambiguous prefix: told, with the names that begin so" {
	ntr new first
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 - >prefix <<-'END'
		import os
		from client import Client
		seen = {}
		with Client(os.environ["NTR_STORE"]) as c:
		    for i in range(3000):
		        head = c.request({"op": "new", "name": "s%d" % i, "durability": "relaxed"})["head"]
		        if head[:4] in seen: break
		        seen[head[:4]] = head
		print(head[:4], head, seen[head[:4]])
	END
	local prefix one other
	read -r prefix one other <prefix
	for c in show 'rollback -s first'; do
		# shellcheck disable=SC2086
		run -1 ntr $c "$prefix"
		assert_message "commit '$prefix'" 'several commits begin so' "${one:0:12}" "${other:0:12}" 'give more digits'
	done
	run -1 ntr fork "first@$prefix" x
	assert_message 'several commits begin so'
	run -1 ntr show "first@${prefix:0:3}"
	ntr show "${one:0:12}"
}

@test "a bad session name is usage; of run, ntr's own failure" {
	local long; long=$(printf 'a%.0s' {1..201})
	for name in '' . .. .x a/b ../x 'a b' $'a\nb' $'a\033[31m' 'ä' "$long"; do
		for c in new 'fork default'; do
			# shellcheck disable=SC2086
			run -2 ntr $c "$name"
			assert_message "session name '" "use letters, digits, '_', '-' and '.'"
			refute_output --partial $'\033'
		done
		run -125 ntr run -s "$name" -- true
		assert_message "session name '"
		run -2 ntr log -s "$name"
		assert_message "session name '"
	done
	run -2 ntr rename default "$long"
	assert_message 'longer than 200 characters'
	assert_equal "$(ntr sessions --json)" ""
	ntr new "${long:1}"
	run -1 ntr new "${long:1}"
	assert_output --partial 'there is a session of that name'
}

@test "a name that is taken" {
	ntr run -c 'echo 1 > f'
	ntr new x
	mkdir t
	for c in 'new x' 'new x --from t' 'new x --from default' 'fork default x' 'rename default x'; do
		# shellcheck disable=SC2086
		run -1 ntr $c
		assert_message "'x'" 'there is a session of that name' 'choose another name'
	done
	run ntr run -- cat f
	assert_output 1
	assert_equal "$(ntr sessions --json | wc -l)" 2
}

@test "files that are not there, or are something else" {
	ntr run -c 'mkdir d; echo 1 > f; ln -s /etc out; mkfifo p'
	for live in yes no; do
		[[ $live == yes ]] || ntr stop
		run -1 ntr cat nothere
		assert_output --partial 'ntr: read nothere: No such file or directory'
		run -1 ntr ls nothere
		assert_output --partial 'ntr: list nothere: No such file or directory'
		run -1 ntr cat d
		assert_output --partial 'Is a directory'
		run -1 timeout 10 "$NTR_BIN/ntr" cat p
		assert_output --partial 'ntr: read p: it is no regular file'
		for f in f/ p/; do
			run -1 ntr ls $f
			assert_output --partial "ntr: list $f: Not a directory"
		done
		run -1 ntr get nothere
		refute [ -e nothere ]
		run -1 ntr put nothere
		assert_output --partial 'ntr: put: nothere: No such file or directory'
		run -1 ntr cat out/passwd
		assert_output --partial 'ntr: read out/passwd: it leads out of the workspace'
		run -1 ntr ls out
		assert_output --partial 'ntr: list out: it leads out of the workspace'
		run -1 ntr put /etc/passwd out/evil
		assert_output --partial 'ntr: write out/evil: it leads out of the workspace'
		run -1 ntr cat ../../etc/passwd
		assert_output --partial 'ntr: read ../../etc/passwd: it leads out of the workspace'
		run -1 ntr put /etc/passwd d/../../evil
		assert_output --partial 'ntr: write d/../../evil: it leads out of the workspace'
		run -1 ntr put /etc/passwd d
		assert_output --partial 'ntr: write d: '
	done
	refute [ -e /etc/evil ]
}

@test "cat writes where the output stands, live or not" {
	ntr run -c 'echo one > f; truncate -s 100000 h; echo end >> h'
	for live in yes no; do
		[[ $live == yes ]] || ntr stop
		{ echo head; ntr cat f; echo middle; ntr cat f; } >out
		assert_equal "$(<out)" $'head\none\nmiddle\none'
		ntr cat f >>out
		assert_equal "$(wc -l <out)" 5
		ntr cat h >out
		cmp out <(head -c 100000 /dev/zero; echo end)
		{ ntr cat h; echo more; } >out
		cmp out <(head -c 100000 /dev/zero; echo end; echo more)
	done
}
