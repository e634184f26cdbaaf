# What agents read, through the CLI: tables of arguments and texts, on sessions that are live and that are not.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# A program with `c`, a connected client, the module's names, and tool().
python()
{
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 -c "
import base64, json, os, sys, threading, time
from client import *
store = os.environ['NTR_STORE']
def tool(c, name, args, **more):
    return c.request({'op': 'tool', 'session': 'default', 'name': name, 'args': args, 'env': ['PATH=' + os.environ['PATH']], **more})
$1"
}

commits() { ntr log --json | wc -l; }

# Lines of STATUS|TEXT|NAME|JSON on stdin; \n in TEXT is a newline.
table()
{
	local want text name args
	while IFS='|' read -r want text name args; do
		run ntr tool "$name" "$args"
		assert_output "$(printf '%b' "$text")"
		[[ $status == "$want" ]] || fail "status $status instead of $want: $name $args"
	done
}

file_table()
{
	table <<'END'
0|wrote a.txt (6 bytes)|file_write|{"path": "a.txt", "content": "hello\n"}
0|wrote a.txt (6 bytes)|file_write|{"path": "a.txt", "content": "hello\n"}
0|wrote d/e/f.txt (12 bytes)|file_write|{"path": "d/e/f.txt", "content": "one\ntwo\none\n"}
0|wrote /workspace/empty (0 bytes)|file_write|{"path": "/workspace/empty", "content": ""}
0|wrote ./d//g.txt (7 bytes)|file_write|{"path": "./d//g.txt", "content": "größe"}
1|write failed: the path is empty|file_write|{"path": "", "content": "x"}
1|write failed: /etc/passwd is not inside the workspace /workspace|file_write|{"path": "/etc/passwd", "content": "x"}
1|write failed: ../x is not inside the workspace /workspace|file_write|{"path": "../x", "content": "x"}
1|write failed: d is a directory|file_write|{"path": "d", "content": "x"}
1|write failed: d/ is a directory|file_write|{"path": "d/", "content": "x"}
1|write failed: a part of a.txt/b is a file, no directory|file_write|{"path": "a.txt/b", "content": "x"}
1|write failed: the argument 'content' is missing|file_write|{"path": "a.txt"}
1|write failed: the argument 'content' is no string|file_write|{"path": "a.txt", "content": 5}
1|write failed: there is no argument 'text'; it takes path, content|file_write|{"path": "a.txt", "text": "x"}
0|replaced 1 occurrence(s) in a.txt|file_edit|{"path": "a.txt", "old_string": "hello", "new_string": "bye"}
0|no-op: replacement already present in a.txt|file_edit|{"path": "a.txt", "old_string": "hello", "new_string": "bye"}
1|edit failed: old_string appears 2 times in d/e/f.txt; quote more of what stands around the one you mean, or pass replace_all to change all of them|file_edit|{"path": "d/e/f.txt", "old_string": "one", "new_string": "1"}
0|replaced 2 occurrence(s) in d/e/f.txt|file_edit|{"path": "d/e/f.txt", "old_string": "one", "new_string": "1", "replace_all": true}
0|replaced 1 occurrence(s) in d/e/f.txt (matched via trailing_ws)|file_edit|{"path": "d/e/f.txt", "old_string": "1  \ntwo", "new_string": "x"}
0|wrote p.py (29 bytes)|file_write|{"path": "p.py", "content": "def f():\n    a = 1\n    b = 2\n"}
0|replaced 1 occurrence(s) in p.py (matched via indent_flexible)|file_edit|{"path": "p.py", "old_string": "a = 1\nb = 2", "new_string": "a = 3\nb = 4"}
1|edit failed: old_string was not found in p.py. Did you mean these lines?\n     1 \x7c def f():\n>    2 \x7c     a = 3\n     3 \x7c     b = 4|file_edit|{"path": "p.py", "old_string": "    a == 3", "new_string": "y"}
1|edit failed: there is no file nowhere|file_edit|{"path": "nowhere", "old_string": "a", "new_string": "b"}
1|edit failed: d is a directory|file_edit|{"path": "d", "old_string": "a", "new_string": "b"}
1|edit failed: old_string and new_string are identical|file_edit|{"path": "a.txt", "old_string": "a", "new_string": "a"}
1|edit failed: old_string is empty; to write a whole file use file_write|file_edit|{"path": "a.txt", "old_string": "", "new_string": "a"}
1|edit failed: the argument 'replace_all' is no boolean|file_edit|{"path": "a.txt", "old_string": "b", "new_string": "a", "replace_all": "perhaps"}
1|view_image failed: there is no file none.png|view_image|{"path": "none.png"}
1|view_image failed: a.txt is no png, jpeg, gif or webp image but text|view_image|{"path": "a.txt"}
1|view_image failed: d is a directory|view_image|{"path": "d"}
END
	assert_equal "$(ntr cat a.txt)" bye
	assert_equal "$(ntr cat d/e/f.txt)" $'x\n1'
	assert_equal "$(ntr cat p.py)" $'def f():\n    a = 3\n    b = 4'
}

@test "files: the table, on a session that is not live" {
	file_table
	refute ntr status | grep -q ', live'
	run ntr fsck
	assert_success
}

@test "files: the table, on a live session" {
	ntr run true
	file_table
	ntr status | grep -q ', live'
	run ntr fsck
	assert_success
}

@test "files: each change is one commit, what changes nothing is none" {
	for live in false true; do
		$live && ntr run true
		ntr tool file_write '{"path": "f", "content": "1"}'
		n=$(commits)
		ntr tool file_write '{"path": "f", "content": "1"}'
		run ntr tool file_edit '{"path": "f", "old_string": "7", "new_string": "8"}'
		run ntr tool file_edit '{"path": "f", "old_string": "x", "new_string": "1"}'
		assert_equal "$(commits)" "$n"
		ntr tool file_edit '{"path": "f", "old_string": "1", "new_string": "2"}'
		assert_equal "$(commits)" $((n + 1))
		assert_equal "$(ntr log -n 1 --json | json '["tool"]')" file_edit
		assert_equal "$(ntr log -n 1 --json | json '["path"]')" f
		assert_equal "$(ntr log -n 1 --json | json '["changes"]')" '{"created": 0, "modified": 1, "deleted": 0}'
		ntr tool file_write '{"path": "x/y/z", "content": ""}'
		assert_equal "$(ntr log -n 1 --json | json '["changes"]["created"]')" 3
		ntr run -c 'rm -r x f'
		ntr stop
	done
}

@test "files: what was written is all that is there, whatever was there before" {
	local live old new n json
	local sizes=(0 1 7 4096 70000)
	for live in true false; do
		for old in "${sizes[@]}"; do
			for new in "${sizes[@]}"; do
				ntr run -c "rm -f f; head -c $old /dev/zero | tr '\\0' a >f"
				$live || ntr stop
				n=$(commits)
				json="{\"path\": \"f\", \"content\": \"$(head -c "$new" /dev/zero | tr '\0' b)\"}"
				run ntr tool file_write - <<<"$json"
				assert_output "wrote f ($new bytes)"
				assert_equal "$(ntr cat f | tr -d b | wc -c):$(ntr cat f | wc -c)" "0:$new"
				assert_equal "$(commits)" $((n + (old || new ? 1 : 0)))
			done
		done
	done
}

@test "files: mode, hard links and symlinks stay what they are" {
	ntr run -c 'echo "#!/bin/sh" >s; chmod 750 s; ln -s s soft; mkdir in; ln -s ../s in/up; ln -s /workspace/s in/abs; ln -s new dangling
		ln -s /etc/hostname out; ln -s in dir'
	for live in true false; do
		$live || ntr stop
		ntr tool file_edit '{"path": "s", "old_string": "sh", "new_string": "bash"}'
		for link in soft in/up in/abs dir/up in/../s; do
			run ntr tool file_edit "{\"path\": \"$link\", \"old_string\": \"bash\", \"new_string\": \"sh\"}"
			assert_output "replaced 1 occurrence(s) in $link"
			ntr tool file_edit '{"path": "s", "old_string": "sh", "new_string": "bash"}'
		done
		assert_equal "$(ntr run -c 'stat -c %a s; readlink soft in/up; cat s')" $'750\ns\n../s\n#!/bin/bash'
		run ntr tool file_edit '{"path": "out", "old_string": "a", "new_string": "b"}'
		assert_output 'edit failed: out is not inside the workspace /workspace'
		ntr tool file_edit '{"path": "s", "old_string": "bash", "new_string": "sh"}'
	done
	run ntr tool file_write '{"path": "dangling", "content": "n"}'
	assert_output 'wrote dangling (1 bytes)'
	assert_equal "$(ntr cat new)" n
	ntr run -c 'ln s hard'
	ntr stop
	ntr tool file_edit '{"path": "s", "old_string": "sh", "new_string": "zsh"}'
	assert_equal "$(ntr run -c 'stat -c "%a %h" s; cat hard')" $'750 2\n#!/bin/zsh'
}

@test "files: paths are seen from the session's directory" {
	ntr run -c 'mkdir sub && cd sub && umask 077'
	for live in true false; do
		$live || ntr stop
		ntr tool file_write '{"path": "f", "content": "1"}'
		ntr tool file_write '{"path": "../g", "content": "2"}'
		assert_equal "$(ntr cat sub/f)$(ntr cat g)" 12
		assert_equal "$(ntr run -c 'stat -c %a f; rm f ../g')" 600
	done
	ntr run -c 'cd /tmp'
	run -1 ntr tool file_write '{"path": "f", "content": "1"}'
	assert_output 'write failed: f is not inside the workspace /workspace'
}

@test "files: what is no text, what may not be written, what is no file" {
	ntr run -c 'printf "a\377b" >bin; mkfifo fifo; head -c 34000000 /dev/zero >big; echo x >ro; chmod 400 ro'
	run -1 ntr tool file_edit '{"path": "bin", "old_string": "a", "new_string": "b"}'
	assert_output 'edit failed: bin is no UTF-8 text: change it with a program'
	run -1 ntr tool file_edit '{"path": "fifo", "old_string": "a", "new_string": "b"}'
	assert_output 'edit failed: fifo is no regular file'
	run -1 ntr tool file_edit '{"path": "big", "old_string": "a", "new_string": "b"}'
	assert_output 'edit failed: big is too large to edit (more than 32 MiB): change it with a program'
	run -1 ntr tool file_write '{"path": "fifo", "content": "x"}'
	assert_output 'write failed: fifo is no regular file'
	if ((EUID)); then
		for live in true false; do
			$live || ntr stop
			run -1 ntr tool file_write '{"path": "ro", "content": "y"}'
			assert_output 'write failed: ro: permission denied (see `ls -l`)'
			run -1 ntr tool file_edit '{"path": "ro", "old_string": "x", "new_string": "y"}'
			assert_output 'edit failed: ro: permission denied (see `ls -l`)'
		done
	fi
	ntr tool file_write '{"path": "bin", "content": "now text\u0000"}'
	assert_equal "$(ntr cat bin | od -An -c | tr -d ' \n')" 'nowtext\0'
}

@test "terminal" {
	table <<'END'
0|hello|terminal|{"command": "echo hello"}
0|(no output)|terminal|{"command": "true"}
1|[exit code 3]|terminal|{"command": "exit 3"}
1|out\n[exit code 1]\n[stderr]\nerr|terminal|{"command": "echo out; echo err >&2; false"}
0|[stderr]\nwarn|terminal|{"command": "echo warn >&2"}
0|/workspace/sub\n1|terminal|{"command": "mkdir sub; cd sub; export A=1; pwd; echo $A"}
0|/workspace/sub 1|terminal|{"command": "echo $PWD $A"}
1|[exit code 127]\n[stderr]\nbash: line 1: frob: command not found\n[hint: there is no such program here; `command -v NAME` tells what there is]|terminal|{"command": "frob"}
1|terminal failed: the argument 'command' is missing|terminal|{}
1|terminal failed: the command holds a NUL, which bash cannot read|terminal|{"command": "a\u0000b"}
0|no input|terminal|{"command": "read -r x || echo no input"}
END
	run -1 ntr tool --timeout 300ms terminal '{"command": "echo begun; sleep 60"}'
	assert_line --index 0 begun
	assert_line --index 1 '[exit code 124]'
	assert_line --index 2 --partial '[hint: the command ran longer than its limit of 0.3 s and was ended'
	run ntr tool terminal '{"command": "yes | head -c 200000"}'
	assert_equal "${#lines[@]}" 16001
	assert_line --index 16000 '[output truncated]'
	run ntr tool --json terminal '{"command": "echo x >f; exit 2"}'
	assert_equal "$(json '["structured"]["exit_code"]' <<<"$output")" 2
	assert_equal "$(json '["structured"]["changes"]["created"]' <<<"$output")" 1
	assert_equal "$(json '["is_error"]' <<<"$output")" true
	assert_regex "$(json '["commit"]' <<<"$output")" '^[0-9a-f]{40}$'
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" terminal
	assert_equal "$(ntr log -n 1 --json | json '["script"]')" 'echo x >f; exit 2'
}

@test "run --render prints what an agent reads" {
	run -3 ntr run --render -c 'echo a; echo b >&2; exit 3'
	assert_output $'a\n[exit code 3]\n[stderr]\nb'
	run ntr run --render true
	assert_output '(no output)'
	run ntr run --render cat <<<'from stdin'
	assert_output 'from stdin'
}

@test "view_image returns the image" {
	ntr run -c 'printf "\211PNG\r\n\032\nrest" >a; printf "\377\330\377\340x" >b; printf "GIF89ax" >c; printf "RIFF1234WEBPVP8 " >d
		head -c 10000001 /dev/zero >big; : >empty; printf "%%PDF-1.7" >pdf'
	for live in true false; do
		$live || ntr stop
		table <<-'END'
		0|a (png, 12 bytes)|view_image|{"path": "a"}
		0|b (jpeg, 5 bytes)|view_image|{"path": "b"}
		0|c (gif, 7 bytes)|view_image|{"path": "c"}
		0|/workspace/d (webp, 16 bytes)|view_image|{"path": "/workspace/d"}
		1|view_image failed: big has 10000001 bytes, and at most 10000000 can be viewed: save it smaller|view_image|{"path": "big"}
		1|view_image failed: empty is no png, jpeg, gif or webp image but empty|view_image|{"path": "empty"}
		1|view_image failed: pdf is no png, jpeg, gif or webp image but a PDF|view_image|{"path": "pdf"}
		1|view_image failed: /etc/hostname is not inside the workspace /workspace|view_image|{"path": "/etc/hostname"}
		END
		run ntr tool --json view_image '{"path": "a"}'
		assert_equal "$(json '["image"]["mime"]' <<<"$output")" image/png
		json '["image"]["b64"]' <<<"$output" | base64 -d | cmp - <(ntr cat a)
	done
}

@test "history, diff, fork, rollback" {
	ntr tool file_write '{"path": "f", "content": "one\n"}'
	ntr tool file_write '{"path": "f", "content": "two\n"}'
	run ntr tool diff
	assert_line -- '-one'
	assert_line '+two'
	run ntr tool diff '{"from": "~2", "to": "~1"}'
	assert_line '+one'
	run ntr tool diff '{"path": "other"}'
	assert_output '(no differences)'
	ntr tool terminal '{"command": "cd /tmp"}'
	run ntr tool diff
	assert_output '(no file differs; the working directory, variables or cache do)'
	ntr run -c 'head -c 1000 /dev/zero >/workspace/bin'
	run ntr tool diff
	assert_line '(binary, not shown)'
	refute_line 'GIT binary patch'
	run ntr tool history '{"limit": 2}'
	assert_equal "${#lines[@]}" 2
	assert_line --index 0 --regexp '^[0-9a-f]{12}  [0-9-]{10} [0-9:]{8}  run  \+1 ~0 -0  head -c 1000 /dev/zero >/workspace/bin$'
	assert_line --index 1 --regexp '  terminal  \+0 ~0 -0  cd /tmp$'
	run ntr tool fork '{"name": "try", "from": "~3"}'
	assert_output --regexp '^forked try from default at [0-9a-f]{12}$'
	assert_equal "$(ntr cat -s try f)" one
	run -1 ntr tool fork '{"name": "try"}'
	assert_output --partial 'fork failed: make session '
	run -1 ntr tool fork '{"name": "a/b"}'
	assert_output --partial 'fork failed: '
	run ntr tool rollback '{"steps": 3}'
	assert_output --regexp '^rolled back to [0-9a-f]{12}  [0-9-]{10} [0-9:]{8}  file_write  \+1 ~0 -0  f$'
	assert_equal "$(ntr cat f)" one
	table <<-'END'
	1|rollback failed: one of the arguments 'steps' and 'commit' is needed|rollback|{}
	1|rollback failed: the argument 'steps' is out of range|rollback|{"steps": 0}
	1|history failed: the argument 'limit' is no integer|history|{"limit": "many"}
	1|diff failed: the path is not inside the workspace|diff|{"path": "/etc"}
	END
	run -1 ntr tool diff '{"from": "nosuch"}'
	assert_output --partial 'diff failed: find '
	run ntr tool -s unused history
	assert_output '(no history yet)'
}

@test "the list of tools, and bad requests" {
	run ntr tool --json
	assert_success
	assert_equal "$(json '["tools"][0]["name"]' <<<"$output")" terminal
	run python "
with Client(store) as c:
    names = lambda **m: [t['name'] for t in c.request({'op': 'tools', **m})['tools']]
    base = ['terminal', 'run_python', 'file_write', 'file_edit', 'view_image']
    assert names() == base
    assert names(mode='terminal') == [n for n in base if n != 'run_python']
    assert names(cache=False) == [n for n in base if n != 'run_python']
    assert names(cache=False, objects=[{'name': 'db'}]) == base
    assert names(versions=True) == base + ['history', 'diff', 'fork', 'rollback']
    assert names(images=False) == base[:-1]
    t = c.request({'op': 'tools', 'primers': {'terminal': 'BE NICE.', 'python': 'USE NUMPY.'}, 'modules': ['numpy', 'pandas'], 'network': False})['tools']
    assert t[0]['description'].endswith('BE NICE.') and t[1]['description'].endswith('USE NUMPY.'), t
    assert 'numpy, pandas' in t[1]['description'] and 'NO network' in t[1]['description']
    for m in ({'op': 'tools', 'mode': 'both'}, {'op': 'tool'}, {'op': 'tool', 'session': 'default', 'name': 'nope'},
              {'op': 'tool', 'session': 'a/b', 'name': 'terminal'}, {'op': 'tool', 'session': 'default', 'name': 'terminal', 'args': {'command': 'x'}, 'env': 5}):
        try: c.request(m)
        except ReplyError as e: assert e.error['kind'] == 'usage', (m, e.error)
        else: assert False, m
    r = tool(c, 'terminal', [1])
    assert r['is_error'] and r['text'] == 'terminal failed: the arguments are no object', r"
	assert_success
	run -2 ntr tool nope
	assert_output --partial "there is no tool 'nope'"
	run -2 ntr tool terminal '[1]'
	assert_output "ntr: tool: the arguments are no JSON object; see 'ntr help tool'"
	run -2 ntr tool terminal '{'
}

@test "output comes while the call runs" {
	ntr run true
	run python "
with Client(store) as c:
    null = os.open('/dev/null', os.O_RDONLY)
    c.send({'op': 'run', 'session': 'default', 'script': 'echo one; sleep 0.3; echo zwei >&2; printf \"gr\\\\303\"; sleep 0.2; printf \"\\\\266\\\\303\\\\237e\\\\377\"',
      'capture': True, 'stream': True, 'env': ['PATH=' + os.environ['PATH']]}, [null])
    got, begun = [], time.monotonic()
    for m in c.frames():
        if m.get('event') == 'output': got.append((m['stream'], m['data'], time.monotonic() - begun))
    out = [d for s, d, _ in got if s == 'stdout']
    assert out[0] == 'one\n' and 'zwei\n' in [d for s, d, _ in got if s == 'stderr'], got
    assert got[-1][2] - got[0][2] > 0.3, got
    flat = b''.join(d.encode() if isinstance(d, str) else base64.b64decode(d['base64']) for d in out)
    assert flat == 'one\ngröße'.encode() + b'\xff', flat
    assert any(d == 'gr' for d in out), out  # a character cut in two comes whole
    assert m['exit_code'] == 0 and 'stream_lost' not in m, m
    for bad in ({'stream': True}, {'render': True}):
        try: c.request({'op': 'run', 'session': 'default', 'script': 'true', **bad}, [null, null, null])
        except ReplyError as e: assert e.error['kind'] == 'usage'
        else: assert False"
	assert_success
}

@test "a client that does not read its output holds nothing up for ever" {
	[[ ${NTR_LONG:-} ]] || skip 'takes ten seconds (NTR_LONG=1)'
	ntr run true
	run python "
with Client(store) as c:
    null = os.open('/dev/null', os.O_RDONLY)
    # the kernel's buffers fill, the call goes on, and its result comes whole
    c.send({'op': 'run', 'session': 'default', 'script': 'head -c 8000000 /dev/zero | tr \"\\\\0\" x; echo done >&2', 'capture': True, 'stream': True,
      'budget': 1000000, 'env': ['PATH=' + os.environ['PATH']]}, [null])
    with Client(store) as d:
        begun = time.monotonic()
        tool(d, 'terminal', {'command': 'true'})  # waits for that call
        assert 5 < time.monotonic() - begun < 25, time.monotonic() - begun
    for m in c.frames(): pass
    assert m['stream_lost'] and m['truncated'] and len(m['stdout']) == 1000000 and m['stderr'] == 'done\n', (m['stream_lost'], len(m['stdout']))"
	assert_success
}

@test "many agents at once: no edit is lost" {
	ntr tool file_write '{"path": "f", "content": "X\n"}'
	run python "
def work(i):
    with Client(store) as c:
        for k in range(12):
            r = tool(c, 'file_edit', {'path': 'f', 'old_string': 'X\n', 'new_string': 'X\n%d.%d\n' % (i, k)})
            assert r['text'] == 'replaced 1 occurrence(s) in f' and r['commit'], r
            tool(c, 'terminal', {'command': 'echo %d >> log%d' % (k, i)})
errors = []
def guarded(i):
    try: work(i)
    except BaseException as e: errors.append(e)
threads = [threading.Thread(target=guarded, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not errors, errors
with Client(store) as c:
    lines = tool(c, 'terminal', {'command': 'sort f; wc -l < log2'})['text'].split('\n')
    assert len(lines) == 1 + 48 + 1 and lines[-1] == '12', lines
    assert len(set(lines)) == len(lines)"
	assert_success
}
