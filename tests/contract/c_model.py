"""Section C: the script model and the cache."""

from __future__ import annotations

import os
import time

from c_help import MISSES, OWN, TEXT, fails, misses, out, py, value, write
from table import line


@line("C.1", "a process of its own", shared=True)
def _(way, t):
    code = "import os; print((os.getpid(), os.getppid()))"
    (one, from_one), (two, from_two) = value(way, code), value(way, code)
    assert one != two, "two calls in one process"
    t.eq(from_one, from_two, "the warm interpreter")


@line(
    "C.1",
    "the interpreter is warm: what is preloaded is there before it is imported",
    options={**OWN, "modules": ["colorsys"]},
)
def _(way, t):
    t.eq(value(way, "import sys; print('colorsys' in sys.modules)"), True)


@line("C.1", "what a call does to the interpreter ends with it", shared=True)
def _(way, t):
    py(
        way,
        "import builtins, sys, os, json\nbuiltins.mark = 1\njson.mark = 1\nsys.setrecursionlimit(500)\nos.environ['MARK'] = '1'",
    )
    code = "import builtins, sys, os, json\nprint((hasattr(builtins, 'mark'), hasattr(json, 'mark'), sys.getrecursionlimit() == 500, 'MARK' in os.environ))"
    t.eq(value(way, code), (False,) * 4)


@line("C.1", "threads that are left behind end with the call", shared=True)
def _(way, t):
    began = time.monotonic()
    t.eq(out(py(way, "import threading, time\nthreading.Thread(target=time.sleep, args=(50,)).start()\n'on'")), "'on'")
    assert time.monotonic() - began < 20
    t.eq(out(py(way, "import threading; threading.active_count()")), "1")


@line("C.2", "variables, functions, classes, imports", shared=True)
def _(way, t):
    py(way, "x = 1\ndef f(): pass\nclass C: pass\nimport colorsys as im")
    for name in ("x", "f", "C", "im"):
        t.has(fails(way, name), f"NameError: name '{name}' is not defined")


@line("C.3", "files", shared=True)
def _(way, t):
    py(way, "import os\nos.makedirs('/workspace/c3/d')\nwith open('/workspace/c3/d/f', 'w') as f: n = f.write('kept')")
    t.eq(value(way, "print(repr(open('/workspace/c3/d/f').read()))"), "kept")
    t.eq(way.read("c3/d/f"), b"kept")


@line("C.3", "a file that was never closed", shared=True)
def _(way, t):
    py(way, "import sys\nf = open('/workspace/c3.open', 'w')\nn = f.write('all of it')\nsys.keep = f")
    t.eq(way.read("c3.open"), b"all of it")


@line("C.3", "the cache", shared=True)
def _(way, t):
    py(way, "cache['c3'] = {'a': [1, (2, 3)]}")
    t.eq(value(way, "cache['c3']"), {"a": [1, (2, 3)]})
    t.eq(
        value(
            way, "('c3' in cache, 'no' in cache, cache.get('no', 7), 'c3' in list(cache), len(cache) == len(list(cache)))"
        ),
        (True, False, 7, True, True),
    )
    py(way, "del cache['c3']")
    t.has(fails(way, "cache['c3']"), "KeyError: 'c3'")


@line("C.3", "in a session that somebody opens again", options=OWN)
def _(way, t):
    py(way, "open('f', 'w').write('1')\ncache['k'] = 1\nNone")
    t.eq(value(way.again(**OWN), "(open('f').read(), cache['k'])"), ("1", 1))


@line("C.4", "files, both ways", shared=True)
def _(way, t):
    way.terminal("cd /workspace; mkdir c4; echo from bash >c4/a")
    t.eq(value(way, "open('/workspace/c4/a').read()"), "from bash\n")
    py(way, "open('/workspace/c4/b', 'w').write('from python')\nNone")
    t.eq(way.terminal("cat /workspace/c4/b").text, "from python")


@line("C.4", "the working directory, both ways", shared=True)
def _(way, t):
    way.terminal("mkdir -p /workspace/c4.cwd/x; cd /workspace/c4.cwd")
    t.eq(value(way, "import os; os.getcwd()"), "/workspace/c4.cwd")
    py(way, "import os; os.chdir('x')")
    t.eq(way.terminal("pwd").text, "/workspace/c4.cwd/x")
    t.eq(value(way, "import os; os.getcwd()"), "/workspace/c4.cwd/x")
    way.terminal("cd /workspace")


@line("C.4", "exported variables and the umask of the shell", shared=True)
def _(way, t):
    way.terminal("export COLOUR=red; umask 027")
    t.eq(value(way, "import os; m = os.umask(0); os.umask(m); (os.environ['COLOUR'], m)"), ("red", 0o27))
    way.terminal("unset COLOUR; umask 022")


@line("C.4", "a directory that is gone: the root, not an error", shared=True)
def _(way, t):
    way.terminal("mkdir /workspace/c4.gone; cd /workspace/c4.gone; rmdir /workspace/c4.gone")
    t.eq(value(way, "import os; os.getcwd()"), "/workspace")


@line("C.5", "a module at the root, from another working directory", shared=True)
def _(way, t):
    write(
        way,
        {"c5top.py": "X = 41\n", "c5pkg/__init__.py": "", "c5pkg/m.py": "def f(): return 42\n", "c5cwd/here.py": "Z = 9\n"},
    )
    t.eq(value(way, "from c5top import X; X"), 41)
    t.eq(
        value(way, "import os; os.chdir('/workspace/c5cwd')\nfrom c5top import X\nfrom c5pkg.m import f\n(X, f())"), (41, 42)
    )
    t.eq(value(way, "import here, c5top; (here.Z, c5top.X)"), (9, 41))  # and from the working directory
    way.terminal("cd /workspace")


@line("C.5", "packages without __init__", shared=True)
def _(way, t):
    write(
        way,
        {
            "c5ns/deep/helpers.py": "def shout(s): return s.upper()\n",
            "c5ns/other.py": "from .deep.helpers import shout\nfrom c5ns.deep import helpers\n",
        },
    )
    t.eq(value(way, "from c5ns.deep.helpers import shout; shout('a')"), "A")
    t.eq(value(way, "import c5ns.other as o; o.shout('b') + o.helpers.shout('c')"), "BC")


@line("C.5", "what was changed a moment ago, and nothing is left beside it", shared=True)
def _(way, t):
    for n in range(3):  # of one size, within a second
        write(way, {"c5mod.py": f"Y = {n}\n"})
        t.eq(value(way, "import c5mod; c5mod.Y"), n)
    t.eq(way.terminal("find /workspace -name __pycache__").text, "(no output)")


@line("C.6", "the file and the spelling", shared=True)
def _(way, t):
    misses(way, "c6")
    for code, file, spelling in MISSES:
        said = fails(way, code.format("c6"))
        t.has(said, f"[hint: {file.format('c6')} was found")
        t.has(said, f"`{spelling.format('c6')}`")
        py(way, spelling.format("c6"))  # it is the spelling that works


@line("C.6", "a file whose name no import can spell", shared=True)
def _(way, t):
    misses(way, "c6")
    t.has(fails(way, "import c6odd_name"), "/workspace/c6lib/c6odd-name.py was found, but its path is no module name")


@line("C.6", "a name that a module of the workspace does not have", shared=True)
def _(way, t):
    misses(way, "c6")
    t.has(fails(way, "from c6lib.c6z import on"), "[hint: /workspace/c6lib/c6z.py has one]")
    t.has(fails(way, "from c6lib import c6y"), "[hint: /workspace/c6lib has c6z]")
    t.has(fails(way, "import c6lib.c6y"), "[hint: /workspace/c6lib has c6z]")


@line("C.7", "one commit for files and cache", options=OWN)
def _(way, t):
    o = py(way, "cache['k'] = 1\nopen('f', 'w').write('1')\nNone")
    assert o.commit, "no commit"
    t.eq(len(way.history()), 2)
    t.eq(way.history()[0]["commit"], o.commit)
    o = py(way, "cache['k'] = 2")
    assert o.commit, "a change of the cache alone is a commit"
    for code in ("cache['k'] = 2", "cache['k']", "list(cache.items())", "'k' in cache"):
        t.eq(py(way, code).commit, None, code)
    t.eq(len(way.history()), 3)
    fork = way.fork(t.session())
    t.eq(fork.cache_get("k"), 2)
    way.rollback(1)
    t.eq((way.cache_get("k"), way.read("f")), (1, b"1"))
    way.cache_set("k", 3)
    way.cache_set("new", [])
    t.eq((fork.cache_get("k"), fork.cache_keys()), (2, ["k"]))
    way.rollback(2)
    t.eq((way.cache_get("k"), way.cache_keys()), (1, ["k"]))
    way.rollback(1)
    t.eq(way.cache_keys(), [])


@line("C.7", "a key that is deleted comes back with the commit", shared=True)
def _(way, t):
    py(way, "cache['c7'] = 'kept'")
    here = way.head()
    py(way, "cache.pop('c7')\nNone")
    way.rollback(commit=here)
    t.eq(way.cache_get("c7"), "kept")


@line("C.7", "the shell's ntr cache is the same one, and joins the call's commit", shared=True)
def _(way, t):
    ntr = os.path.join(os.path.abspath(os.environ.get("NTR_BIN") or "/nowhere"), "ntr")
    py(way, "cache['c7.sh'] = 'text'")
    n = len(way.history())
    o = way.terminal(f"{ntr} cache get c7.sh; {ntr} cache set c7.sh changed; touch /workspace/c7.file")
    t.has(o.text, "text")
    t.eq(value(way, "cache['c7.sh']"), "changed")
    t.eq(len(way.history()), n + 1)


@line("C.7", "what was written before a failure, a kill or a timeout stays", shared=True)
def _(way, t):
    for i, end in enumerate(("1/0", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)")):
        assert not way.run_python(f"cache['c7.{i}'] = {i}\n{end}").ok
        t.eq(way.cache_get(f"c7.{i}"), i, end)


KEYS_BAD = ["", "__x", "__", "a/b", "/", "x" * 201, "é" * 101, "a\0b"]
KEYS_GOOD = ["a", "_x", "a__b", "x" * 200, "é" * 100, "a b", "a.b", "-", "..", "\n", "日本"]


@line("C.8", "what can be no key", shared=True)
def _(way, t):
    for key in [*map(repr, KEYS_BAD), "5", "None", "b'x'", "('a',)", "'\\ud800'"]:
        t.like(fails(way, f"cache['c8.good'] = 1\ncache[{key}] = 1"), "CacheError: a cache key ")
    py(way, "assert not [k for k in cache if k.startswith('__') or '/' in k or not k]")


@line("C.8", "what can be a key", shared=True)
def _(way, t):
    py(way, f"for k in {KEYS_GOOD!r}: cache[k] = k")
    py(way, f"for k in {KEYS_GOOD!r}:\n    assert cache[k] == k\n    del cache[k]")


@line("C.8", "the host's side of it", why_not=TEXT, shared=True)
def _(way, t):
    for key in KEYS_BAD:
        if "\0" in key and way.name == "cli":
            continue  # no argument of a program has one
        with t.refused():
            way.cache_set(key, 1)
    for key in KEYS_GOOD:
        way.cache_set(key, key)
        t.eq(way.cache_get(key), key)
    py(way, f"for k in {KEYS_GOOD!r}: del cache[k]")


@line("C.9", "at the write, and what is there stays", shared=True)
def _(way, t):
    py(way, "cache['c9'] = 'old'")
    for bad in (
        "lambda: 1",
        "open('/dev/null')",
        "[1, lambda: 1]",
        "(x for x in ())",
        "__import__('threading').Lock()",
        "cache",
    ):
        said = fails(way, f"cache['c9.a'] = 1\nx = {bad}\ncache['c9'] = x\nprint('not reached')")
        t.like(said, r"CacheError: cache\['c9'\] cannot keep this value: .* cannot be pickled")
        assert "not reached" not in said, said
    t.eq(value(way, "cache['c9'], cache['c9.a']"), ("old", 1))


@line("C.9", "the error can be caught", shared=True)
def _(way, t):
    t.eq(out(py(way, "try:\n    cache['c9.c'] = lambda: 1\nexcept TypeError as e: r = type(e).__name__\nr")), "'CacheError'")


@line("C.9", "objects of classes that can be imported, and of one that is gone", shared=True)
def _(way, t):
    write(way, {"c9mod.py": "class P:\n    def __init__(self, x): self.x = x\n"})
    py(
        way,
        "import c9mod, collections, fractions\ncache['c9.o'] = [c9mod.P(5), collections.Counter('aab'), fractions.Fraction(1, 3)]",
    )
    t.eq(value(way, "p, c, f = cache['c9.o']\n(p.x, c.most_common(1), f.denominator)"), (5, [("a", 2)], 3))
    py(way, "class Local: pass\ncache['c9.l'] = Local()")
    t.has(fails(way, "cache['c9.l']"), "its class has to be importable (define it in a module of the workspace)")
    py(way, "del cache['c9.l']")


@line("C.10", "of lists, dicts, sets, nested ones, objects", shared=True)
def _(way, t):
    write(way, {"c10mod.py": "class P: pass\n"})
    py(
        way,
        "import c10mod\ncache.update({'c10.l': [], 'c10.d': {'a': {'b': []}}, 'c10.s': set(), 'c10.o': c10mod.P(), 'c10.b': bytearray(b'x')})",
    )
    o = py(
        way,
        "cache['c10.l'].append(1)\ncache['c10.d']['a']['b'].append(2)\ncache['c10.s'].add(3)\ncache['c10.o'].x = 4\ncache['c10.b'].extend(b'y')",
    )
    assert o.commit, "a change inside is a commit"
    t.eq(
        value(way, "print((cache['c10.l'], cache['c10.d'], cache['c10.s'], cache['c10.o'].x, bytes(cache['c10.b'])))"),
        ([1], {"a": {"b": [2]}}, {3}, 4, b"xy"),
    )


@line("C.10", "of a value that was set in the same call, also when the call fails", shared=True)
def _(way, t):
    fails(way, "rows = []\ncache['c10.r'] = rows\nrows.append(1)\n1/0")
    t.eq(value(way, "cache['c10.r']"), [1])


@line("C.10", "to what cannot be kept: an error, and the last good value stays", shared=True)
def _(way, t):
    t.has(
        fails(way, "cache['c10.x'] = [1]\ncache['c10.x'].append(open('/dev/null'))"),
        "CacheError: cache['c10.x'] was changed to what cannot be kept",
    )
    t.eq(value(way, "cache['c10.x']"), [1])
