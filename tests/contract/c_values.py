"""Section C: values, inputs, namespace, echo, exec_python."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from c_help import CODE, HEAD, TEXT, VALUES, exec_python, fails, out, py, same, value, write
from table import line


@line("C.11", "what agent code keeps, the host reads as it is", why_not=TEXT, shared=True)
def _(way, t):
    py(way, f"{HEAD}for i, v in enumerate({VALUES!r}): cache[f'c11.{{i}}'] = v")
    for i, v in enumerate(VALUES):
        got = way.cache_get(f"c11.{i}")
        assert same(got, v), f"{v!r} came as {got!r}"


@line("C.11", "what the host sets, agent code reads as it is", why_not=TEXT, shared=True)
def _(way, t):
    for i, v in enumerate(VALUES):
        way.cache_set(f"c11h.{i}", v)
    py(
        way,
        f"{HEAD}for i, v in enumerate({VALUES!r}):\n    got = cache[f'c11h.{{i}}']\n    assert type(got) is type(v) and repr(got) == repr(v), (v, got)",
    )


@line("C.11", "an instance of a subclass keeps its type: it is no plain data", why_not=TEXT, shared=True)
def _(way, t):
    py(way, "import collections, enum\ncache['c11.sub'] = [collections.OrderedDict(a=1), collections.defaultdict(int, b=2)]")
    got = opaque(way, "c11.sub")
    t.has(str(got), "collections.OrderedDict")
    t.eq(out(py(way, "[type(x).__name__ for x in cache['c11.sub']]")), "['OrderedDict', 'defaultdict']")


def opaque(way: Any, key: str) -> Any:
    """A value that the host cannot read as data, in whatever form the way shows it."""
    if way.name == "cli":
        return json.loads(way.ntr("cache", "get", "-s", way.session, "--json", "--", key))
    return way.cache_get(key)


@line("C.12", "a value that runs code when it is unpickled: named and shown, not opened", why_not=TEXT, shared=True)
def _(way, t):
    mark = t.path("opened")
    write(
        way,
        {
            "c12bad.py": f"import os\nclass Bad:\n    def __reduce__(self): return (os.mkdir, ({mark!r},))\n    def __repr__(self): return '<bad one>'\n"
        },
    )
    py(way, "from c12bad import Bad\ncache['c12'] = Bad()\ncache['c12.in'] = [Bad()]")
    got = opaque(way, "c12")
    if way.name == "cli":
        t.eq((got["$"], got["type"], got["repr"]), ("opaque", "c12bad.Bad", "<bad one>"))
        p = way.raw("cache", "get", "-s", way.session, "--", "c12")
        t.eq(p.returncode, 1)
        t.has(p.stderr.decode(), "c12bad.Bad")
    else:
        t.eq((type(got).__name__, got.type, got.repr), ("Opaque", "c12bad.Bad", "<bad one>"))
        way.cache_set("c12.back", got)  # it can be put back as it is
        t.eq(way.cache_get("c12.in")[0].type, "c12bad.Bad")
    assert not os.path.exists(mark), "the host has opened it"
    if way.name == "package":
        got.unpickle_trusted()
        assert os.path.exists(mark), "unpickle_trusted does not open it"


@line("C.12", "in the namespace, in inputs' way back, from a subclass of what is plain", shared=True)
def _(way, t):
    mark = t.path("opened")
    code = f"import os\nclass L(list):\n    def __reduce__(self): return (os.mkdir, ({mark!r},))\nx = L([1])\ny = [x]\ncache_value = {{'a': x}}\nx"
    o = py(way, code)
    t.eq(out(o), "[1]")
    assert not os.path.exists(mark), "the host has opened it"
    if way.name != "mcp":
        t.eq(set(o.data["namespace"]), set())


@line("C.13", "every kind of value, by name", ways=("package",), why_not={**CODE, "cli": "its own row: JSON"}, shared=True)
def _(way, t):
    for i in range(0, len(VALUES), 10):
        part = {f"v{j}": v for j, v in enumerate(VALUES[i : i + 10])}
        o = py(
            way,
            f"{HEAD}for name, wanted in {part!r}.items():\n    got = globals()[name]\n    assert type(got) is type(wanted) and repr(got) == repr(wanted), (name, got)",
            inputs=part,
        )
        t.eq(o.data["namespace"].keys() & part.keys(), set(), "an input that was not changed is no result")


@line("C.13", "JSON by name, and a copy of its own for each call", why_not=CODE, shared=True)
def _(way, t):
    given = {"a": [1, None, {"k": "ü"}], "_b": True, "π": 3.5}
    t.eq(value(way, "a.append(2); (a, _b, π)", inputs=given), ([1, None, {"k": "ü"}, 2], True, 3.5))
    t.eq(value(way, "a", inputs=given), [1, None, {"k": "ü"}])
    t.has(fails(way, "a"), "NameError")


@line("C.13", "names and values that cannot be are refused", why_not=CODE, shared=True)
def _(way, t):
    for name in ("a b", "class", "__x", "5"):
        with t.refused("no Python name"):
            way.run_python("1", inputs={name: 1})
    if way.name == "cli":
        for text in ("a=x", "a", "=1", 'a={"$":"nosuch"}'):
            t.eq(way.raw("py", "-s", way.session, "--input", text, "-c", "1").returncode, 125, text)
    else:
        with t.refused("cannot be handed over"):
            way.run_python("1", inputs={"f": lambda: 1})


@line(
    "C.14",
    "plain values of top-level names",
    why_not={"mcp": "it is for a program, not for a model; see the next row"},
    shared=True,
)
def _(way, t):
    code = """import json, math as m
class C: pass
def f(): local = 1
plain = {'a': (1, 2)}; text = 'x'; nothing = None
_private = 1; obj = C(); mixed = [1, C()]; fun = lambda: 1
for loop in range(3): pass
f()"""
    got = py(way, code).data["namespace"]
    if way.name == "cli":
        from ntr._values import decode

        got = {k: decode(v) for k, v in got.items()}
    t.eq(dict(got), {"plain": {"a": (1, 2)}, "text": "x", "nothing": None, "loop": 2})


@line(
    "C.14",
    "also of a call that fails",
    why_not={"mcp": "it is for a program, not for a model; see the next row"},
    shared=True,
)
def _(way, t):
    o = way.run_python("before = 1\n1/0\nafter = 2")
    t.eq((o.ok, dict(o.data["namespace"])), (False, {"before": 1}))


@line("C.14", "to the host only: the agent does not read it", shared=True)
def _(way, t):
    o = py(way, "secret = 'do not' + ' show'")
    t.eq(o.text, "(no output)")
    if way.name == "mcp":
        assert "do not show" not in json.dumps(o.raw), o.raw


@line("C.14", "what is too large to hand over is said", shared=True)
def _(way, t):
    o = py(way, "small = 1\nbig = 'x' * (17 << 20)")
    t.has(o.text, "[note: big is too large to hand over; keep it in cache[...] or in a file]")
    if way.name != "mcp":
        t.eq(dict(o.data["namespace"]), {"small": 1})


ECHOED = [
    ("1\n'two'", "'two'"),
    ("None", ""),
    ("x = 1", ""),
    ("x = 5\nx", "5"),
    ("print('p')\n'e'", "p\n'e'"),
    ("print('p')", "p"),
    ("1;", "1"),
    ("if True: 1", ""),
    ("def f(): 1\nf()", ""),
    ("'''doc'''", "'doc'"),
    ("# only a comment", ""),
    ("", ""),
    ("[n for n in range(3)]  # comment", "[0, 1, 2]"),
    ("x = 1\nx  # fmt\n\n", "1"),
    ("class R:\n    def __repr__(self): return 'own repr'\nR()", "own repr"),
    ("from __future__ import annotations\ndef f(a: nosuch): pass\nf.__annotations__", "{'a': 'nosuch'}"),
]


@line("C.15", "the last bare expression", shared=True)
def _(way, t):
    for code, wanted in ECHOED:
        o = py(way, code)
        t.eq("" if o.text == "(no output)" else out(o), wanted, repr(code))


@line("C.15", "a broken repr is the code's error", shared=True)
def _(way, t):
    t.has(fails(way, "class R:\n    def __repr__(self): raise ValueError('no repr')\nR()"), "ValueError: no repr")


@line("C.15", "none, last, all", why_not=CODE, shared=True)
def _(way, t):
    code = "1\nprint('p')\nx = 2\nx\nNone\nif x: 7\n'end'"
    for echo, wanted in (("none", "p\n"), ("last", "p\n'end'\n"), ("all", "1\np\n2\n'end'\n"), (None, "p\n'end'\n")):
        o = py(way, code, echo=echo)
        t.eq(o.stdout, wanted, str(echo))
    t.eq(py(way, "1\n2", echo="all").data["echo"], "1\n2")
    with t.refused("echo"):
        way.run_python("1", echo="some")


@line("C.15", "what is echoed comes where it belongs among what is printed", why_not=CODE, shared=True)
def _(way, t):
    code = "import sys, os\n1\nn = os.write(1, b'raw\\n')\n2\nn = sys.stdout.write('w\\n')\n3"
    t.eq(py(way, code, echo="all").stdout, "1\nraw\n2\nw\n3\n")


@line("C.16", "code, inputs, stdin, argv, echo, readonly", why_not=CODE, shared=True)
def _(way, t):
    code = "import sys\nprint(sys.stdin.read() + sys.argv[1] + sys.argv[2] + str(n))\n5"
    for echo, tail in (("none", ""), ("last", "5\n"), ("all", "5\n")):
        o = exec_python(way, code, {"n": [3]}, "in ü ", ["a ", "-b "], echo)
        t.eq((o.ok, o.stdout, o.commit), (True, f"in ü a -b [3]\n{tail}", None))
    t.eq(exec_python(way, "import sys; print(sys.argv, repr(sys.stdin.read()))").stdout, "['-c'] ''\n")
    t.eq(exec_python(way, "1").stdout, "", "nothing is echoed unless asked for")


@line("C.16", "stdin of any bytes and size", why_not=CODE, shared=True)
def _(way, t):
    data = bytes(range(256)) * 4000
    o = exec_python(way, "import sys, hashlib\nprint(hashlib.sha1(sys.stdin.buffer.read()).hexdigest())", stdin=data)
    import hashlib

    t.eq(o.stdout.strip(), hashlib.sha1(data).hexdigest())


@line("C.16", "readonly: neither files nor cache", why_not=CODE, shared=True)
def _(way, t):
    py(way, "open('/workspace/c16', 'w').write('1')\ncache['c16'] = 1")
    t.eq(exec_python(way, "print(open('/workspace/c16').read(), cache['c16'])", readonly=True).stdout, "1 1\n")
    for code, wanted in (
        ("open('/workspace/c16', 'a')", "Read-only file system"),
        ("import os; os.unlink('/workspace/c16')", "Read-only file system"),
        ("import subprocess; subprocess.run(['touch', '/workspace/new'], check=True)", "CalledProcessError"),
        ("cache['c16'] = 2", "CacheReadOnly"),
        ("del cache['c16']", "CacheReadOnly"),
    ):
        o = exec_python(way, code, readonly=True)
        assert not o.ok, code
        t.has(o.error, wanted)
    exec_python(way, "cache['x'] = cache.get('c16')", readonly=True)
    exec_python(way, "open('/workspace/tmp', 'w')", readonly=True)
    t.eq((way.read("c16"), way.cache_get("c16"), way.dirty()), (b"1", 1, False))


@line("C.17", "no commit: what it changes is there, uncommitted", why_not=CODE, shared=True)
def _(way, t):
    n = len(way.history())
    o = exec_python(way, "open('/workspace/c17', 'w').write('1')\ncache['c17'] = 1")
    t.eq((o.ok, o.commit, way.dirty(), len(way.history())), (True, None, True, n))
    t.eq((way.read("c17"), way.cache_get("c17")), (b"1", 1))
    assert way.commit("later"), "no commit of it afterwards"
    t.eq((way.dirty(), len(way.history())), (False, n + 1))


@line(
    "C.17",
    "no lock: it does not wait for who holds the workspace",
    ways=("package",),
    why_not={"cli": "a lock is of one program's", "mcp": "a lock is of one program's"},
    shared=True,
)
def _(way, t):
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with way.ws.lock:
            held.set()
            done.wait(20)

    way.run_python("1")
    wait = t.background(hold)
    held.wait(10)
    try:
        began = time.monotonic()
        t.eq(exec_python(way, "print('in between')").stdout, "in between\n")
        assert time.monotonic() - began < 15
        other = t.background(lambda: way.run_python("1"))
        time.sleep(0.1)
    finally:
        done.set()
    wait()
    t.eq(other().ok, True)
