# run_python: what a call sees, what stays of it, and what its result says.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

py() { ntr py "$@"; }
commits() { ntr log --json | wc -l; }

@test "one call, one commit: files, cache and directory" {
	run py -c 'print(1)'
	assert_success
	assert_output 1
	assert_equal "$(commits)" 1 # nothing changed
	run py -c '
import os
os.makedirs("d"); open("d/f", "w").write("text"); cache["k"] = [1]; os.chdir("d")'
	assert_success
	assert_output ''
	assert_equal "$(commits)" 2
	run ntr log -n 1 --json
	assert_equal "$(json '["tool"]' <<<"$output")" py
	assert_equal "$(json '["exit_code"]' <<<"$output")" 0
	[[ $(json '["code"]' <<<"$output") == *'os.makedirs("d")'* ]]
	run ntr run -c 'pwd; cat f'
	assert_output $'/workspace/d\ntext'
	run py -c 'import os; print(os.getcwd()); open("f").read(), cache["k"]'
	assert_output $'/workspace/d\n(\'text\', [1])'
	assert_equal "$(commits)" 2
	ntr rollback --steps 1
	run py -c 'import os; print(os.listdir("/workspace"), os.getcwd(), dict(cache))'
	assert_output '[] /workspace {}'
}

@test "names do not survive, and the shell's changes show" {
	py -c 'x = 1'
	run py -c 'x'
	assert_failure 1
	assert_line --partial "NameError: name 'x' is not defined"
	assert_line --partial '[hint: names of earlier calls are gone'
	ntr run -c 'echo 5 > n; export COLOUR=red; umask 077'
	run py -c 'import os; m = os.umask(0); os.umask(m); print(open("n").read().strip(), os.environ["COLOUR"], oct(m))'
	assert_output '5 red 0o77'
}

@test "echo: the last bare expression, none, all" {
	run py -c $'1\n"two"'
	assert_output "'two'"
	run py --echo all -c $'1\nx = 2\nx\nNone'
	assert_output $'1\n2'
	run py --echo none -c $'1\n2'
	assert_output ''
	run py -c 'None'
	assert_output ''
	run py --json -c $'y = {"a": (1, 2)}\nimport os\ny'
	assert_equal "$(json '["echo"]' <<<"$output")" "{'a': (1, 2)}"
	assert_equal "$(json '["stdout"]' <<<"$output")" "{'a': (1, 2)}"
	assert_equal "$(json '["namespace"]' <<<"$output")" '{"y": {"a": {"$": "tuple", "v": [1, 2]}}}'
}

@test "cache: commits, forks, in-place changes, one item a key" {
	py -c 'cache["a"] = [1]; cache["b"] = {"x": {1, 2}}'
	py -c 'cache["a"].append(2); cache["b"]["y"] = b"z"'
	run py -c 'cache["a"], cache["b"], sorted(cache), len(cache), "a" in cache, cache.get("no", 7)'
	assert_output "([1, 2], {'x': {1, 2}, 'y': b'z'}, ['a', 'b'], 2, True, 7)"
	local n; n=$(commits)
	py -c 'cache["a"]; cache["a"] = [1, 2]; list(cache.items())' >/dev/null # the same again
	assert_equal "$(commits)" "$n"
	ntr fork default f
	py -s f -c 'del cache["a"]; cache.pop("b")'
	run py -s f -c 'dict(cache)'
	assert_output '{}'
	run py -c 'cache["a"]'
	assert_output '[1, 2]'
	ntr rollback --steps 1
	run py -c 'cache["a"]'
	assert_output '[1]'
	run ntr cache get --json b
	assert_output '{"x":{"$":"set","v":[1,2]}}'
	run py -c 'cache["no"]'
	assert_line "KeyError: 'no'"
}

@test "cache: bad keys and values are errors at the write, what was written before stays" {
	for key in '"a/b"' '"__x"' '""' '5' '"x"*201'; do
		run py -c "cache['good'] = 1; cache[$key] = 1"
		assert_failure 1
		assert_line --partial 'CacheError: a cache key'
	done
	run py -c 'cache["f"] = lambda: 1'
	assert_line --partial "CacheError: cache['f'] cannot keep this value: builtins.function cannot be pickled"
	run py -c 'cache["l"] = []; cache["l"].append(open("/dev/null"))'
	assert_failure 1
	assert_line --partial "CacheError: cache['l'] was changed to what cannot be kept"
	run py -c 'sorted(cache.items())'
	assert_output "[('good', 1), ('l', [])]"
}

@test "cache: like a dict, and values that no call can fetch" {
	cat >c.py <<-'X'
		import json
		cache["a"] = [1]; cache["b"] = 2
		print(json.dumps(cache), json.dumps([cache]), cache | {"b": 3}, {"c": 4} | cache)
		print(cache == {"a": [1], "b": 2}, {"a": [1]} == cache, cache.copy(), list(reversed(cache)), {**cache})
		cache |= {"c": {1}}
		ui = {"all": cache}
	X
	run py - <c.py
	assert_success
	assert_line --index 0 '{"a": [1], "b": 2} [{"a": [1], "b": 2}] {'"'a': [1], 'b': 3} {'c': 4, 'a': [1], 'b': 2}"
	assert_line --index 1 "True False {'a': [1], 'b': 2} ['b', 'a'] {'a': [1], 'b': 2}"
	run ntr cat ui/all.json
	assert_output '{"a": [1], "b": 2, "c": [1]}'
	head -c 70000000 /dev/zero | tr '\0' x | ntr cache set big -
	run py -c 'cache["a"], len(cache["big"])'
	assert_failure 1
	assert_line "CacheError: cache['big'] cannot be read in a call: it is larger than the 64 MiB that go over the channel (bytes count as base64); in the shell, \`ntr cache get big >FILE\` writes it to a file"
	ntr run -c 'ntr cache get big >FILE'
	run py -c 'import os; cache.clear(); os.path.getsize("FILE"), dict(cache)'
	assert_output '(70000000, {})'
}

@test "print goes to other processes and into the cache, and is no method of a class that holds it" {
	cat >p.py <<-'X'
		from multiprocessing import Pool, get_context
		with Pool(1) as pool: pool.map(print, [1, 2])
		p = get_context("spawn").Process(target=print, args=("spawned",)); p.start(); p.join()
		cache["p"] = print
		class Log: write = print
		Log().write("logged")
		def wrong(key): cache[key]
		with Pool(1) as pool:
		    try: pool.map(wrong, ["__x"])
		    except TypeError as e: print(e)
	X
	run py - <p.py
	assert_success
	assert_output $'1\n2\nspawned\nlogged\na cache key must not begin with \'__\': \'__x\''
	run py -c 'cache["p"]("kept"); cache["p"] is print'
	assert_output $'kept\nTrue'
}

@test "cache: objects of other types, and of a class that is gone" {
	py -c 'from collections import Counter; cache["c"] = Counter("aab")'
	run py -c 'cache["c"].most_common(1)'
	assert_output "[('a', 2)]"
	py -c 'class C: pass
cache["o"] = C()'
	run py -c 'cache["o"]'
	assert_failure 1
	assert_line --partial 'its class has to be importable (define it in a module of the workspace)'
}

@test "imports begin at the root of the workspace; a miss says what was found; no __pycache__" {
	ntr run -c 'mkdir -p lib/deep && echo "def f(): return 42" > lib/deep/helpers.py && echo "Y = 7" > top.py && mkdir sub && cd sub'
	local n; n=$(commits)
	run py -c 'from lib.deep.helpers import f; import top; (f(), top.Y)'
	assert_output '(42, 7)'
	run py -c 'import helpers'
	assert_failure 1
	assert_line '[hint: /workspace/lib/deep/helpers.py was found: imports begin at /workspace, so write `from lib.deep import helpers`]'
	run py -c 'import nosuchthing'
	assert_line --partial "[hint: there is no module 'nosuchthing' here"
	assert_line --partial 'pip install nosuchthing'
	run py -c 'import subprocess, sys; subprocess.run([sys.executable, "-c", "import top"], cwd="/workspace")'
	assert_equal "$(commits)" "$n"
	ntr run -c 'echo "Y = 8" > /workspace/top.py' # of the same size, maybe in the same second
	run py -c 'import top; top.Y'
	assert_output 8
}

@test "errors: the code's own frames, syntax errors, exit codes" {
	run py -c $'def f():\n    return 1/0\nf()'
	assert_failure 1
	assert_line 'Traceback (most recent call last):'
	assert_line '  File "<run_python>", line 2, in f'
	assert_line 'ZeroDivisionError: division by zero'
	refute_output --partial '<ntr>'
	run py -c 'def f(:'
	assert_failure 1
	assert_line --index 0 '  File "<run_python>", line 1'
	assert_line 'SyntaxError: invalid syntax'
	run py -c 'import sys; sys.exit(3)'
	assert_failure 3
	assert_output ''
	run py -c 'raise SystemExit("bye")'
	assert_failure 1
	assert_output bye
	run py -c 'import os; os._exit(4)'
	assert_failure 4
	assert_output --partial 'there is no result'
	run py --json -c 'exit()'
	assert_success
	assert_equal "$(json '["error"]' <<<"$output")" null
}

@test "a file of the session, stdin, arguments, inputs" {
	ntr run -c 'mkdir t; printf "import sys, beside\nprint(__file__, sys.argv, beside.Z)\n" > t/s.py; echo "Z = 9" > t/beside.py'
	run py t/s.py a -b
	assert_output "/workspace/t/s.py ['t/s.py', 'a', '-b'] 9"
	run py nosuch.py
	assert_failure 125
	assert_output --partial 'cannot read nosuch.py in the session: [Errno 2] No such file'
	run py -c 'import sys; sys.argv' x -y
	assert_output "['-c', 'x', '-y']"
	run py - q <<<'import sys; sys.argv'
	assert_output "['-c', 'q']"
	run bash -c "echo hello | ntr py -c 'input()'"
	assert_output "'hello'"
	run py --input 'a=[1, null]' --input 'b={"$":"bytes","b64":"AP8="}' -c 'a, b'
	assert_output "([1, None], b'\\x00\\xff')"
	run py --input 'a=x' -c 1
	assert_failure 125
	assert_output --partial 'is no JSON'
	run py --input 'a b=1' -c 1
	assert_failure 125
	assert_output --partial "the input 'a b' is no Python name"
	run py --input 'class=1' -c 1
	assert_failure 125
	assert_output --partial "the input 'class' is no Python name"
	run py --input 'v={"$":"nosuch"}' -c 1
	assert_failure 125
}

@test "code in bytes: a byte order mark, a coding line, neither of them" {
	run py - <<<$'\xef\xbb\xbfprint(1)\n1/0'
	assert_failure 1
	assert_line --index 0 1
	assert_line '  File "<run_python>", line 2, in <module>'
	assert_line '    1/0'
	run py - <<<$'# -*- coding: latin-1 -*-\nprint("\xe9")\n1/0 # \xe9'
	assert_failure 1
	assert_line --index 0 é
	assert_line '    1/0 # é'
	run py - <<<$'# coding: latin-1\nprint(len("\xc3\xa9"))' # valid UTF-8, and yet what it says
	assert_output 2
	run py - <<<$'x = 1\nprint("\xe9")'
	assert_failure 1
	assert_output "SyntaxError: Non-UTF-8 code starting with '\xe9' in file <run_python> on line 2, but no encoding declared; see https://peps.python.org/pep-0263/ for details"
	run py - <<<$'# coding: utf-8\nprint("\xe9")'
	assert_failure 1
	assert_line --partial "SyntaxError: (unicode error) 'utf-8' codec can't decode"
	ntr put - l.py <<<$'# coding: latin-1\nprint("\xe9")'
	ntr put - m.py <<<$'\xef\xbb\xbfprint("é")'
	ntr put - u.py <<<$'print("\xe9")'
	for f in l m; do
		run py $f.py
		assert_success
		assert_output é
	done
	run py u.py
	assert_failure 1
	assert_output --partial "SyntaxError: Non-UTF-8 code starting with '\xe9' in file /workspace/u.py on line 1"
}

@test "output: small is exact, large is shown by its structure, nothing is cut silently" {
	run --keep-empty-lines py --json -c 'print("a\tb\n"); import sys; sys.stderr.write("e\n"); None'
	assert_equal "$(json '["stdout"]' <<<"$output" | od -c | head -1)" "$(printf 'a\tb\n\n\n' | od -c | head -1)"
	assert_equal "$(json '["truncated"]' <<<"$output")" false
	run py --json -c 'print(list(range(100000))); print("after")'
	assert_equal "$(json '["truncated"]' <<<"$output")" true
	[[ $(json '["stdout"]' <<<"$output") =~ ^\[0,\ 1,\ 2,.*\.\.\.\ 99,000\ more\]$'\n'after$ ]]
	run py --json -c 'for i in range(100000): print(i)'
	assert_equal "$(json '["truncated"]' <<<"$output")" true
	[[ $(json '["stdout"]' <<<"$output") == 0$'\n'1$'\n'*'[output truncated]' ]]
	run bash -c "ntr py -c 'print(list(range(100000)))' | wc -c" # not captured: untouched
	assert_output 688891
}

@test "open files are written, threads end with the call, forks do not answer for it" {
	py -c 'import sys; f = open("u.txt", "w"); f.write("data"); sys.keep = f'
	run ntr cat u.txt
	assert_output data
	run py -c '
import threading, time
threading.Thread(target=lambda: time.sleep(60)).start()
print("done")'
	assert_output done
	run py --json -c $'import os\np = os.fork()\nprint("both")\nif p: os.wait()'
	assert_success
	assert_equal "$(json '["stdout"]' <<<"$output")" $'both\nboth'
	run py -c 'import os; os.execvp("echo", ["echo", "other"])'
	assert_line other
	run py -c $'import multiprocessing as m\ndef f(x): return x * x\nwith m.Pool(2) as p: print(p.map(f, [1, 2, 3]))'
	assert_output '[1, 4, 9]'
}

@test "ui artifacts" {
	run py --json -c 'open("made.txt", "w").write("1"); ui = {"cards": [{"title": "a", "value": 1}], "f": "made.txt", "bad/name": 1}'
	assert_success
	assert_equal "$(json '["ui"][0]' <<<"$output")" '{"name": "cards", "path": "/workspace/ui/cards.cards.json"}'
	assert_equal "$(json '["ui"][1]' <<<"$output")" '{"name": "f", "path": "/workspace/made.txt"}'
	assert_equal "$(json '["notes"][0]' <<<"$output")" '[ui artifacts: cards -> /workspace/ui/cards.cards.json, f -> /workspace/made.txt]'
	[[ $(json '["notes"][1]' <<<"$output") == "[ui note: 'bad/name' is no name"* ]]
	run ntr cat ui/cards.cards.json
	assert_output '{"cards": [{"title": "a", "value": 1}]}'
	run py -c 'n = open("/workspace/ui/own.csv", "w").write("a")'
	assert_output '[ui artifacts: own.csv -> /workspace/ui/own.csv]'
	run py -c '1' # nothing new
	assert_output 1
}

@test "the interpreter: the shell's own, a virtual environment of the workspace, one by its path" {
	run py -c 'import sys; print(sys.executable)'
	assert_output "$(ntr run -- python3 -c 'import sys; print(sys.executable)')"
	ntr run -c '/usr/bin/python3 -m venv --without-pip .venv'
	run py -c 'import sys; print(sys.executable)'
	assert_output /workspace/.venv/bin/python
	run ntr run -- python3 -c 'import sys; print(sys.prefix)'
	assert_output /workspace/.venv
	run py --python /usr/bin/python3 -c 'import sys; print(sys.executable)'
	assert_output /usr/bin/python3
	ntr run -c 'rm -r .venv'
	run py --python /no/such -c 1
	assert_failure 125
	assert_output --partial 'start /no/such: No such file or directory'
	run py --python /bin/true -c 1
	assert_failure 125
	assert_output --partial 'start Python (/bin/true): it exited with status 0'
	run py --preload nosuchmodule -c 1
	assert_success
	assert_line --partial 'the module nosuchmodule could not be preloaded: ModuleNotFoundError'
}

@test "preloaded modules are there, random numbers differ, packages installed later are seen" {
	run py --preload json --preload decimal -c 'import sys; "decimal" in sys.modules'
	assert_output True
	run bash -c "for i in 1 2; do ntr py -c 'import random; random.random()'; done | sort -u | wc -l"
	assert_output 2
	ntr run -c '/usr/bin/python3 -m venv --without-pip .venv'
	run py -c 'import fresh'
	assert_failure 1
	ntr run -c 'cd .venv/lib/python3*/site-packages && echo "X = 3" > fresh.py && echo "/workspace/more" > more.pth && mkdir /workspace/more &&
		echo "Y = 4" > /workspace/more/editable.py'
	run py -c 'import fresh, editable; fresh.X + editable.Y'
	assert_output 7
}

@test "read-only calls change neither files nor cache" {
	py -c 'open("f", "w").write("1"); cache["k"] = 1'
	local n; n=$(commits)
	run py --readonly -c 'open("f").read(), cache["k"]'
	assert_output "('1', 1)"
	run py --readonly -c 'open("/workspace/g", "w")'
	assert_failure 1
	assert_line --partial 'Read-only file system'
	run py --readonly -c 'cache["k"] = 2'
	assert_failure 1
	assert_line --partial 'CacheReadOnly'
	run py --readonly -c 'ui = {"c": 1, "f": "f", "d": 2}'
	assert_success
	assert_line --index 0 '[ui artifacts: f -> /workspace/f]'
	assert_line --index 1 '[ui note: c, d: this call is read-only, so no file can be made; call again without readonly]'
	py -c 'open("f", "w").write("2")'
	run py --readonly -c 'open("f").read()'
	assert_output "'2'"
	ntr rollback --steps 1
	run py --readonly -c 'open("f").read()'
	assert_output "'1'"
}

@test "no-commit, cwd and env are for one call" {
	py -c 1
	local n; n=$(commits)
	py --no-commit -c 'cache["k"] = 1; open("f", "w").close()'
	assert_equal "$(commits)" "$n"
	ntr commit -m both
	run py --cwd /tmp --env A=b -c 'import os; os.getcwd(), os.environ["A"], sorted(cache)'
	assert_output "('/tmp', 'b', ['k'])"
	run py -c 'import os; os.getcwd(), os.environ.get("A")'
	assert_output "('/workspace', None)"
}
