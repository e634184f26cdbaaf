# The cache from a shell: values in and out, commits, history, forks, inside calls, bad input, dead daemons.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

commits() { ntr log --json | wc -l; }
daemon_pid() { ntr daemon status --json | json '["pid"]'; }

# A program with `c`, a connected client, and the module's names.
python()
{
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 -c "
import os, sys
from client import *
store = os.environ['NTR_STORE']
$1"
}

@test "texts, bytes and values go in and come out" {
	run ntr cache set name 'a text'
	assert_output --regexp '^[0-9a-f]{12}$'
	assert_equal "$(ntr cache get name)" 'a text'
	printf 'two\nlines\n' | ntr cache set lines -
	ntr cache get lines | cmp - <(printf 'two\nlines\n')
	printf '\0\377' | ntr cache set raw -
	ntr cache get raw | cmp - <(printf '\0\377')
	assert_equal "$(ntr cache get --json raw)" '{"$":"bytes","b64":"AP8="}'
	ntr cache set --json v '{"b": [1, 2.5, null, true], "a": {"$": "tuple", "v": ["x"]}}'
	assert_equal "$(ntr cache get v)" '{"b":[1,2.5,null,true],"a":{"$":"tuple","v":["x"]}}'
	ntr cache set --json f 0.1
	assert_equal "$(ntr cache get f)" 0.1
	ntr cache set empty ''
	assert_equal "$(ntr cache get --json empty)" '""'
	assert_equal "$(ntr cache ls)" $'empty\nf\nlines\nname\nraw\nv'
	assert_equal "$(ntr cache ls --json)" '{"keys":["empty","f","lines","name","raw","v"]}'
}

@test "each change is a commit, and no change is none" {
	ntr cache set k 1
	n=$(commits)
	run ntr cache set k 1
	assert_output ''
	assert_equal "$(commits)" "$n"
	ntr cache set k 2
	assert_equal "$(commits)" $((n + 1))
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" cache
	assert_equal "$(ntr log -n 1 --json | json '["key"]')" k
	ntr cache rm k
	assert_equal "$(commits)" $((n + 2))
	assert_equal "$(ntr show HEAD --json | json '["state_changed"]')" true
}

@test "rolls back, forks and shows old values with the files" {
	ntr run -c 'echo 1 >f; ntr cache set k 1'
	ntr cache set k 2
	ntr fork default other
	ntr cache set -s other k 3
	assert_equal "$(ntr cache get k)" 2
	assert_equal "$(ntr cache get -s other k)" 3
	assert_equal "$(ntr cache get -s default~1 k)" 1
	assert_equal "$(ntr cache ls -s default~2)" ''
	ntr rollback --steps 1
	assert_equal "$(ntr cache get k)" 1
	assert_equal "$(ntr cat f)" 1
	ntr rollback --steps 1
	run -1 ntr cache get k
	run ntr fsck
	assert_success
}

@test "inside a call it joins the call's commit" {
	n=$(ntr cache set a 1 >/dev/null && commits)
	ntr run -c 'ntr cache set b 2; ntr cache rm a; ntr cache get b; ntr cache ls; echo x >f'
	assert_equal "$(commits)" $((n + 1))
	assert_equal "$(ntr cache ls)" b
	ntr run -c 'ntr cache set c 3' # nothing else changed
	assert_equal "$(commits)" $((n + 2))
	ntr run -c 'ntr cache set c 4; ntr cache set c 3' # all undone
	assert_equal "$(commits)" $((n + 2))
	run ntr run -c 'ntr cache set -s elsewhere z 1; ntr cache get -s elsewhere z' # another session's is its own
	assert_line 1
	assert_equal "$(ntr cache get -s elsewhere z)" 1
	assert_equal "$(ntr run -c 'echo "$NTR_SESSION $NTR_STORE"')" "default $NTR_STORE"
}

@test "a call made over the protocol finds its session and store, too" {
	ntr cache set k v
	run python "
with Client(store) as c:
    null = os.open('/dev/null', os.O_RDONLY)
    r = c.request({'op': 'run', 'session': 'default', 'script': '$NTR_BIN/ntr cache get k && $NTR_BIN/ntr cache set in 1', 'capture': True,
      'env': ['PATH=' + os.environ['PATH'], 'XDG_RUNTIME_DIR=' + os.environ['XDG_RUNTIME_DIR']]}, [null])
    assert (r['stdout'], r['exit_code']) == ('v', 0), r
    assert c.request({'op': 'cache-get', 'session': 'default', 'key': 'in'})['value'] == '1'"
	assert_success
}

@test "uncommitted changes: status, discard, commit" {
	ntr cache set k 1
	ntr run --no-commit -c 'ntr cache set k 2'
	assert_equal "$(ntr cache get k)" 2
	assert_equal "$(ntr cache get -s default~0 k)" 1
	run ntr status
	assert_line 'not committed: directory, umask, variables or cache of the session'
	ntr discard
	assert_equal "$(ntr cache get k)" 1
	ntr run --no-commit -c 'ntr cache set k 3'
	ntr commit -m kept
	assert_equal "$(ntr cache get -s default~0 k)" 3
	run ntr status
	refute_line --partial 'not committed'
}

@test "a daemon or supervisor that is killed loses no change" {
	local first
	ntr cache set k 1
	first=$(ntr log -n 1 --json | json '["commit"]')
	ntr run --no-commit -c 'ntr cache set k 2; ntr cache set big - < <(head -c 100000 /dev/zero | tr "\0" x)'
	kill -9 "$(daemon_pid)"
	assert_equal "$(ntr cache get k)" 2
	assert_equal "$(ntr cache get big | wc -c)" 100000
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" recovered
	ntr run --no-commit -c 'ntr cache set k 3'
	kill -9 "$(pgrep -f -u "$(id -u)" "ntr-init" -P "$(daemon_pid)")"
	assert_equal "$(ntr cache get k)" 3
	ntr rollback "$first" # by name: what the kill left may be committed by now, or not
	kill -9 "$(daemon_pid)"
	assert_equal "$(ntr cache get k)" 1 # what was rolled back does not come back
	run ntr fsck
	assert_success
}

@test "bad input is told" {
	ntr cache set k 1
	run -2 ntr cache set a/b 1
	assert_output "ntr: use the cache key 'a/b': it holds a '/'; take 1 to 200 bytes of UTF-8 without '/' that do not begin with '__'"
	run -2 ntr cache set __x 1
	run -2 ntr cache set '' 1
	run -2 ntr cache get "$(printf 'k%.0s' {1..201})"
	run -1 ntr cache get none
	assert_output "ntr: find 'none' in the cache of session default: there is no such key; \`ntr cache ls -s default\` lists those there are"
	run -1 ntr cache rm none
	run -1 ntr cache get -s nosuch k
	run -1 ntr cache ls -s nosuch
	run -2 ntr cache
	run -2 ntr cache frob
	assert_output "ntr: cache: 'frob' is none of get, set, ls and rm; see 'ntr help cache'"
	run -2 ntr cache get
	run -2 ntr cache set k
	run -2 ntr cache set k 1 2
	run -2 ntr cache set --json k '{'
	run -2 ntr cache set --json k '{"$": "evil"}'
	assert_output "ntr: cache: the value: a value of type 'evil' is unknown; see 'ntr help cache'"
	run -2 ntr cache set --json k NaN
	assert_equal "$(ntr cache get k)" 1
}

@test "opaque values show what they are, and are never opened" {
	ntr cache set --json o '{"$": "opaque", "type": "shop.Cart", "pickle": "gAQu", "repr": "<Cart of 3>"}'
	run -1 --separate-stderr ntr cache get o
	assert_output ''
	assert_equal "$stderr" $'ntr: cache: the value is a shop.Cart, which only Python code of the session can use; --json prints how it is stored\n<Cart of 3>'
	run ntr cache get --json o
	assert_success
	assert_output --partial '"pickle":"gAQu"'
}

@test "bad requests over the protocol are errors of kind usage" {
	ntr cache set k 1
	run python "
bad = [{'op': 'cache-get'}, {'op': 'cache-get', 'session': 'default'}, {'op': 'cache-get', 'session': 'default', 'key': 5},
  {'op': 'cache-get', 'session': 'default', 'key': ''}, {'op': 'cache-get', 'session': 'default', 'key': 'a\x00b'},
  {'op': 'cache-set', 'session': 'default', 'key': 'k'}, {'op': 'cache-set', 'session': 'default', 'key': 'k', 'value': {'\$': 'x'}},
  {'op': 'cache-set', 'session': 'default', 'key': 'k', 'value': ['a\x00b']}, {'op': 'cache-set', 'session': '../x', 'key': 'k', 'value': 1},
  {'op': 'cache-rm', 'session': 'default', 'key': '__k'}, {'op': 'cache-ls'}]
with Client(store) as c:
    for msg in bad:
        try: c.request(msg)
        except ReplyError as e: assert e.error['kind'] == 'usage', (msg, e.error)
        else: assert False, msg
    for msg in ({'op': 'cache-get', 'session': 'default', 'key': 'none'}, {'op': 'cache-rm', 'session': 'none', 'key': 'k'}):
        try: c.request(msg)
        except ReplyError as e: assert e.error['kind'] == 'not-found', (msg, e.error)
        else: assert False, msg
    assert c.request({'op': 'cache-get', 'session': 'default', 'key': 'k'})['value'] == '1'
    deep = 1
    for _ in range(400): deep = [deep]
    try: c.request({'op': 'cache-set', 'session': 'default', 'key': 'k', 'value': deep})
    except ReplyError as e: assert e.error['kind'] == 'usage' and 'nested' in e.error['why'], e.error
    else: assert False"
	assert_success
}

@test "large values, and many" {
	head -c 3000000 /dev/urandom >data
	ntr cache set big - <data
	ntr cache get big | cmp - data
	ntr run -c 'for i in $(seq 50); do ntr cache set key$i $i; done'
	assert_equal "$(ntr cache ls | wc -l)" 51
	assert_equal "$(ntr cache get key37)" 37
	ntr run -c 'ntr cache rm key1 key2 key3'
	assert_equal "$(ntr cache ls | wc -l)" 48
	run ntr fsck
	assert_success
}
