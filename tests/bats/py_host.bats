# run_python for a program: objects of the host, output as it comes, the import gate.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# Runs a program that has Host of helpers/pyhost.py and a daemon.
host() {
	ntr py -c None
	cat >"$TEST_DIR/host.py"
	PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 -B -c '
import os, sys
from pyhost import Host
from client import Client, ReplyError
STORE = os.environ["NTR_STORE"]
exec(open(sys.argv[1]).read())' "$TEST_DIR/host.py"
}

@test "objects: calls by name, data both ways, exceptions carried, allow lists" {
	run host <<-'X'
		class Thing:
		    def add(self, a, b=0): return a + b
		    def same(self, x): return x
		    def fail(self, kind): raise {"v": ValueError, "k": KeyError, "o": type("Odd", (Exception,), {})}[kind]("why")
		    def hidden(self): return "no"
		    def _private(self): return "no"
		with Host(STORE) as h:
		    def show(code, **more):
		        r = h.py("default", code, {"thing": Thing()}, **more)
		        print(r["echo"], "|", (r["error"] or "-").split("\n")[-1])
		    show("thing.add(1, b=2)")
		    show("thing.same({'t': (1, b'x'), 's': {1}, 'n': 2**70, 'f': float('inf')})")
		    show("thing.fail('v')")
		    show("try:\n  thing.fail('k')\nexcept KeyError as e: r = e.args\nr")
		    show("thing.fail('o')")
		    show("thing._private()")
		    show("thing.hidden()", allow={"thing": ["add"]})
		    show("thing.add(lambda: 1)")
		    show("thing.x = 1")
		    show("cache['t'] = thing")
		    show("[thing.add(i, i) for i in range(200)][-1]")
		    show("import threading\nr = []\nts = [threading.Thread(target=lambda i=i: r.append(thing.add(i))) for i in range(8)]\n"
		         "[t.start() for t in ts]; [t.join() for t in ts]; sorted(r)")
	X
	assert_success
	assert_line --index 0 '3 | -'
	assert_line --index 1 "{'t': (1, b'x'), 's': {1}, 'n': 1180591620717411303424, 'f': inf} | -"
	assert_line --index 2 'None | ValueError: why'
	assert_line --index 3 "(\"'why'\",) | -"
	assert_line --index 4 'None | HostError: Odd: why'
	assert_line --index 5 "None | AttributeError: thing has no method '_private' that may be called"
	assert_line --index 6 "None | AttributeError: thing has no method 'hidden' that may be called; it has add"
	assert_line --index 7 --partial 'None | TypeError: thing.add: an argument cannot be handed over'
	assert_line --index 8 'None | AttributeError: thing is an object of the host: its attributes cannot be set'
	assert_line --index 9 --partial 'cannot be pickled'
	assert_line --index 10 '398 | -'
	assert_line --index 11 '[0, 1, 2, 3, 4, 5, 6, 7] | -'
}

@test "objects: what the code forges is refused, a host that calls back does not deadlock" {
	run host <<-'X'
		class Back:
		    def cache(self):
		        with Client(STORE) as c:
		            return c.request({"op": "cache-get", "session": "default", "key": "k"})["value"]
		    def run(self):
		        with Client(STORE) as c:
		            try: c.run("default", ["true"], inside="default")
		            except ReplyError as e: return e.error["kind"]
		    def other(self):
		        with Client(STORE) as c:
		            return c.run("other", ["echo", "hi"])["stdout"]
		    def _secret(self): return "leaked"
		with Host(STORE) as h:
		    print(h.py("default", "cache['k'] = 5; back.cache(), back.run(), back.other()", {"back": Back()})["echo"])
		    forged = """
		import json, os, socket, struct
		for fd in range(3, 40):
		    try: s = socket.socket(fileno=os.dup(fd))
		    except OSError: continue
		    for method in ("_secret", "nosuch"):
		        data = json.dumps({"object": "back", "method": method, "args": [], "kwargs": {}, "n": 9}).encode()
		        s.sendall(struct.pack("<I", len(data)) + data)
		        print(json.loads(s.recv(65536)[4:])["error"]["type"])
		    break
		"""
		    print(h.py("default", forged, {"back": Back()}, allow={"back": ["cache"]})["stdout"])
	X
	assert_success
	assert_output $'(5, \'busy\', \'hi\\n\')\nAttributeError\nAttributeError'
}

@test "an opaque value that is given back: the object, where its class is; else why not" {
	ntr run -c 'echo "class M: pass" > m.py'
	run host <<-'X'
		with Host(STORE) as h:
		    h.py("default", "import m\nclass P: pass\ncache['p'], cache['m'] = P(), m.M()")
		    kept = {k: h.request({"op": "cache-get", "session": "default", "key": k})["value"] for k in "pm"}
		    class Keeper:
		        def get(self, key): return kept[key]
		    def show(code, **more):
		        r = h.py("default", code, {"keeper": Keeper()}, inputs={"x": kept["p"], "y": [kept["m"]]}, **more)
		        print(r["echo"], "|", (r["error"] or "-").split("\n")[-1], "|", *r["hints"], *r["notes"])
		    show("type(y[0]), type(keeper.get('m'))")
		    show("class P: pass\ntype(x), type(keeper.get('p')), type(cache['p'])")
		    show("x = 5\nclass P: pass\nx")
		    show("keeper.get('p')")
		    show("x")
		    show("1")
	X
	assert_success
	why="a value of type __main__.P cannot be loaded: AttributeError: Can't get attribute 'P' on <module '__main__'"
	todo='its class has to be importable (define it in a module of the workspace)'
	assert_line --index 0 "(<class 'm.M'>, <class 'm.M'>) | - | [note: the input 'x': $why>; $todo]"
	assert_line --index 1 "(<class '__main__.P'>, <class '__main__.P'>, <class '__main__.P'>) | - |"
	assert_line --index 2 '5 | - |'
	assert_line --index 3 "None | HostError: keeper.get: its answer cannot be used here: $why>; $todo | [note: the input 'x': $why>; $todo]"
	assert_line --index 4 "None | NameError: name 'x' is not defined | the input 'x': $why>; $todo"
	assert_line --index 5 "1 | - | [note: the input 'x': $why>; $todo]"
}

@test "output as it comes, and a host that goes away" {
	run host <<-'X'
		with Host(STORE) as h:
		    events = []
		    r = h.py("default", "import sys\nfor i in range(3): print(i)\nprint('e', file=sys.stderr)", events=events, stream=True)
		    out = "".join(e["data"] for e in events if e["event"] == "output" and e["stream"] in (1, "stdout"))
		    print(out.split(), r["stdout"].split(), r["stderr"].split(), events[0]["event"])
		class Gone:
		    def go(self): raise SystemExit
		h = Host(STORE)
		try: h.py("default", "open('w', 'w').close()\ngone.go()", {"gone": Gone()})
		except SystemExit: h.close()
		with Host(STORE) as h:
		    print(h.py("default", "import os; os.listdir()")["echo"])
	X
	assert_success
	assert_line --index 0 "['0', '1', '2'] ['0', '1', '2'] ['e'] started"
	assert_line --index 1 "['w']"
}

@test "the import gate guides what the code imports" {
	ntr run -c 'echo "import json; X = 1" > mine.py; echo "import socket" > bad.py'
	run host <<-'X'
		with Host(STORE) as h:
		    def show(code, policy, **more):
		        r = h.py("default", code, policy=policy, **more)
		        print(r["echo"], "|", (r["error"] or "-").split("\n")[-1][:60], "|", ",".join(r["mechanisms"]))
		    std = {"stdlib": True}
		    show("import json, mine; mine.X", std)
		    show("import socket", std)
		    show("import bad", std)
		    show("import math; math.sqrt(4)", {"modules": [{"module": "math", "include": ["sqrt"]}]})
		    show("import math; math.cos(4)", {"modules": [{"module": "math", "include": ["sqrt"]}]})
		    show("import socket; 1", None)
		    show("1", None, memory_mb=500)
	X
	assert_success
	assert_line --index 0 '1 | - | import-gate'
	assert_line --index 1 "None | ModuleNotGranted: the module 'socket' is not granted here; g | import-gate"
	assert_line --index 2 "None | ModuleNotGranted: the module 'socket' is not granted here; g | import-gate"
	assert_line --index 3 '2.0 | - | import-gate'
	assert_line --index 4 'None | AttributeError: math.cos is not granted here | import-gate'
	assert_line --index 5 '1 | - | '
	assert_line --index 6 '1 | - | memory-limit'
}
