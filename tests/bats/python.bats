# The Python package from outside: the README's example as it is written, and what needs nothing but the interpreter.
# Its own tests (pytest, mypy, ruff) are tests/long/python.sh.
load common

setup() {
	ntr_setup
	PY=${NTR_PYTHON:-/usr/bin/python3}
	"$PY" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$PY is older than 3.10"
	export NTR_BIN PYTHONPATH=$NTR_TESTS/../hooks/python PYTHONDONTWRITEBYTECODE=1
}
teardown() { ntr_teardown; }

@test "the README's example, as it is written" {
	"$PY" - "$NTR_TESTS/../README.md" >example.py <<-'P'
		import re, sys
		print(re.search(r"```python\n(.*?)```", open(sys.argv[1]).read(), re.S).group(1))
	P
	run "$PY" example.py
	assert_success
	assert_output "3 ['x', '1', '2'] 3
X
[exit code 2]
[stderr]
ls: cannot access 'nowhere': No such file or directory
['data/in.csv'] [] terminal"
}

@test "the package and the command line see the same" {
	run "$PY" - <<-'P'
		import ntr
		with ntr.workspace("s") as ws:
		    ws.write_file("a/b", "text\n")
		    ws.cache["k"] = {"n": [1, 2]}
		    ws.terminal("cd a; export V=1")
		    print([c.tool for c in ws.history()])
	P
	assert_success
	assert_output "['terminal', 'cache', 'file_write', 'init']"
	run ntr run -s s -c 'cat b; echo $V'
	assert_output $'text\n1'
	run ntr cache get -s s k
	assert_output '{"n":[1,2]}'
	ntr run -s s -c 'echo more >>b'
	run "$PY" -c 'import ntr; ws = ntr.workspace("s"); print(ws.get("a/b"), ws.history(1)[0].tool, ws.dirty)'
	assert_output "b'text\\nmore\\n' run False"
	assert_equal "$(ntr log -s s --json | wc -l)" 5
}

@test "threads, callbacks, commands, streaming and cancelling without a deadlock" {
	run timeout 60 "$PY" - <<-'P'
		import asyncio, threading, ntr
		class Back:
		    def get(self, path): return ws.get(path)
		    def run(self): return ws.terminal("true").text
		ws = ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()}))
		ws.register_command("look", lambda c: ws.get(c.args[0]))
		ws.put("f", b"data")
		ts = [threading.Thread(target=ws.terminal, args=(f"echo {i} >> log",)) for i in range(16)]
		[t.start() for t in ts]; [t.join() for t in ts]
		print(sorted(map(int, ws.get("log").split())) == list(range(16)), len(ws.history()))
		print(ws.run_python("back.get('f')"), ws.terminal("look f | cat"))
		print("NestedCallError" in ws.run_python("back.run()").error)
		seen = []
		ws.terminal("echo one; echo two", on_output=lambda s, t: seen.append(t))
		print("".join(seen).split())
		async def main():
		    try: await asyncio.wait_for(ws.aterminal("touch began; sleep 50; touch end"), 0.3)
		    except asyncio.TimeoutError: print("cut off")
		    print((await ws.aterminal("ls; echo on")).text.split())
		asyncio.run(main())
		ws.close()
	P
	assert_success
	assert_output "True 18
b'data' data
True
['one', 'two']
cut off
['began', 'f', 'log', 'on']"
}

@test "the daemon dies in the middle: a named error, nothing lost, nothing done twice" {
	run timeout 60 "$PY" - <<-'P'
		import os, signal, threading, time, ntr
		from ntr._daemon import connect, store_path
		ws = ntr.workspace("s")
		def kill():
		    while not ws.fs.exists("began"): time.sleep(0.02)
		    os.kill(connect(store_path(None)).pid, signal.SIGKILL)
		threading.Thread(target=kill).start()
		try: ws.terminal("echo once >> log; touch began; sleep 5")
		except ntr.DaemonLostError as e: print("lost:", "not known" in str(e))
		print(ws.get("log"), ws.run_python("open('log').read()").text)
	P
	assert_success
	assert_output "lost: True
b'once\\n' 'once\\n'"
}

@test "without the program the error says how to get it" {
	run env NTR_BIN=/nonexistent "$PY" -c 'import ntr; ntr.workspace("s")'
	assert_failure
	assert_output --partial 'BinaryNotFoundError: find the program ntr: NTR_BIN is /nonexistent'
	if [[ ! -x /usr/local/bin/ntr ]]; then
		run env -u NTR_BIN PATH=/nonexistent "$PY" -c 'import ntr; ntr.workspace("s")'
		assert_output --partial 'tools/setup.sh'
	fi
}
