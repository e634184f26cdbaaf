"""Section C: objects of the host."""

from __future__ import annotations

import os
import time
from typing import Any

from c_help import HEAD, PLUMBING, PROGRAM, THING, VALUES, config, exec_python, fails, out, py, value, write
from table import line

OBJECTS = {**config(host_objects={"thing": THING}, timeout=30)}


@line("C.44", "by name, with positions and keywords, live", why_not=PROGRAM, shared=True, options=OBJECTS)
def _(way, t):
    THING.done.clear()
    t.eq(value(way, "thing.add(1, b=2)"), 3)
    t.eq(THING.done, [(1, 2)])
    t.eq(value(way, "thing.later(4)"), 8)
    t.eq(value(way, "[thing.add(i) for i in range(200)][-1]"), 199)
    t.eq(
        value(
            way,
            "import threading\nr = []\nts = [threading.Thread(target=lambda i=i: r.append(thing.add(i))) for i in range(8)]\n[x.start() for x in ts]; [x.join() for x in ts]\nsorted(r)",
        ),
        list(range(8)),
    )
    t.eq(out(py(way, "thing")), "<host object thing>")


@line("C.44", "what it raises is raised in the code", why_not=PROGRAM, shared=True, options=OBJECTS)
def _(way, t):
    t.like(fails(way, "thing.fail('value')"), r"\nValueError: why")
    t.eq(value(way, "try:\n    thing.fail('key')\nexcept KeyError as e: r = 'caught'\nr"), "caught")
    t.has(fails(way, "thing.fail('odd')"), "HostError: Odd: why")
    said = fails(way, "thing.fail('value')")
    for part in PLUMBING:
        assert part not in said, said


@line(
    "C.44",
    "from exec_python and from a module of the workspace, not in other sessions",
    why_not=PROGRAM,
    shared=True,
    options=OBJECTS,
)
def _(way, t):
    t.eq(exec_python(way, "print(thing.add(2, 3))").stdout, "5\n")
    write(way, {"c44mod.py": "def use(t): return t.add(4, 5)\n"})
    t.eq(value(way, "import c44mod; c44mod.use(thing)"), 9)
    t.has(fails(way.again(), "thing"), "NameError")


@line("C.45", "no leading _, no attributes, nothing unknown", why_not=PROGRAM, shared=True, options=OBJECTS)
def _(way, t):
    for code in (
        "thing._hidden()",
        "thing.__class__.add(1)",
        "thing.attribute()",
        "thing.nosuch()",
        "thing.prop()",
        "thing.done()",
    ):
        t.has(fails(way, code), "AttributeError")
    t.has(fails(way, "thing.x = 1"), "its attributes cannot be set")
    t.has(fails(way, "cache['t'] = thing"), "cannot be pickled")


@line("C.45", "allow narrows", why_not=PROGRAM, shared=True)
def _(way, t):
    import ntr

    w = t.open(way.session, **config(host_objects={"thing": ntr.HostObject(THING, allow=["add", "_hidden"])}))
    t.eq(value(w, "thing.add(1)"), 1)
    t.has(fails(w, "thing.same(1)"), "AttributeError: thing has no method 'same' that may be called; it has add")
    t.has(fails(w, "thing._hidden()"), "AttributeError")
    t.eq(value(w, "dir(thing)"), ["add"])


FORGE = """import json, os, socket, struct
for fd in range(3, 60):
    try: s = socket.socket(fileno=os.dup(fd))
    except OSError: continue
    for name, method in (("thing", "_hidden"), ("thing", "same"), ("other", "add"), ("thing", "")):
        data = json.dumps({"object": name, "method": method, "args": [1], "kwargs": {}, "n": 9}).encode()
        s.sendall(struct.pack("<I", len(data)) + data)
        print(json.loads(s.recv(65536)[4:])["error"]["type"])
    break"""


@line("C.45", "what the code forges by hand is refused by the host", why_not=PROGRAM, shared=True)
def _(way, t):
    import ntr

    w = t.open(way.session, **config(host_objects={"thing": ntr.HostObject(THING, allow=["add"])}))
    THING.done.clear()
    t.eq(py(w, FORGE).stdout, "AttributeError\n" * 4)
    t.eq(THING.done, [])


@line("C.46", "every kind of value, both ways", why_not=PROGRAM, shared=True, options=OBJECTS)
def _(way, t):
    THING.done.clear()
    py(
        way,
        f"{HEAD}for v in {VALUES!r}:\n    got = thing.same(v)\n    assert type(got) is type(v) and repr(got) == repr(v), (v, got)",
    )
    t.eq([repr(x) for x in THING.done], [repr(x) for x in VALUES])


@line(
    "C.46",
    "what is no data is refused; an object of the code's arrives opaque",
    why_not=PROGRAM,
    shared=True,
    options=OBJECTS,
)
def _(way, t):
    import ntr

    t.has(fails(way, "thing.same(lambda: 1)"), "TypeError: thing.same: an argument cannot be handed over")
    t.has(fails(way, "thing.nothing()"), "Error")
    THING.done.clear()
    mark = t.path("opened")
    py(way, f"import os\nclass B:\n    def __reduce__(self): return (os.mkdir, ({mark!r},))\nthing.keep(B())")
    assert not os.path.exists(mark), "the host has opened it"
    t.eq([type(x) for x in THING.done], [ntr.Opaque])


@line("C.47", "a rollback does not take them back, nor a failure", why_not=PROGRAM, shared=True, options=OBJECTS)
def _(way, t):
    THING.done.clear()
    before = way.head()
    py(way, "open('/workspace/c47', 'w').write('1')\nthing.same('done')")
    fails(way, "thing.same('again')\n1/0")
    way.rollback(commit=before)
    t.eq(THING.done, ["done", "again"])


class Back:
    """Calls back into the workspace that calls it."""

    def __init__(self) -> None:
        self.way: Any = None

    def read(self, path: str) -> bytes:
        return self.way.ws.get(path)

    def listing(self) -> list[str]:
        return self.way.ws.fs.listdir()

    def remember(self, key: str, what: Any) -> list[str]:
        self.way.ws.cache[key] = what
        return sorted(self.way.ws.cache)

    def commits(self) -> int:
        return len(self.way.ws.history())

    def run(self) -> str:
        return self.way.ws.terminal("echo never").text

    def write(self) -> str:
        return self.way.ws.write_file("/workspace/c48.never", "x").text

    def roll(self) -> None:
        self.way.ws.rollback(1)

    def python(self) -> str:
        return self.way.ws.run_python("1").text

    def other(self, name: str) -> str:
        import ntr

        with ntr.workspace(name, store=self.way.store) as w:
            return w.terminal("echo other").stdout

    def locked(self) -> int:
        with self.way.ws.lock:
            return 1


BACK = Back()


@line(
    "C.48",
    "reading, the cache, the history, other sessions",
    why_not=PROGRAM,
    shared=True,
    options={**config(host_objects={"back": BACK}, timeout=20)},
)
def _(way, t):
    BACK.way = way
    other = t.session()
    py(way, "open('/workspace/c48', 'w').write('data')\nNone")
    n = len(way.history())
    o = py(
        way,
        f"open('/workspace/c48.new', 'w').write('new')\na = back.read('/workspace/c48')\nb = back.remember('c48', [1])\nc = back.commits()\nd = back.other({other!r})\ne = back.read('/workspace/c48.new')\nf = back.listing()\ncache['c48.own'] = cache['c48'] + [2]\nNone",
    )
    got = o.data["namespace"]
    t.eq((got["a"], got["c"], got["d"], got["e"]), (b"data", n, "other\n", b"new"))
    t.has(got["b"], "c48")
    t.has(got["f"], "c48.new")
    t.eq((way.cache_get("c48"), way.cache_get("c48.own")), ([1], [1, 2]))
    t.eq(len(way.history()), n + 1, "what it set in the cache joins the call's commit")


@line(
    "C.48",
    "what would wait for the call itself is an error that the code sees",
    why_not=PROGRAM,
    shared=True,
    options={**config(host_objects={"back": BACK}, timeout=20)},
)
def _(way, t):
    BACK.way = way
    py(way, "1")
    began = time.monotonic()
    for method in ("run", "roll", "python"):
        t.has(fails(way, f"back.{method}()"), "NestedCallError")
    way.run_python("back.write()")
    way.run_python("back.locked()")
    t.eq(value(way, "try:\n    back.run()\nexcept Exception as e:\n    r = 'goes on'\nr"), "goes on")
    assert time.monotonic() - began < 15, "it waited"
    assert not way.ws.fs.exists("c48.never")
    t.eq(out(py(way, "'next'")), "'next'")


@line(
    "C.48",
    "from who holds the lock of the workspace",
    why_not=PROGRAM,
    shared=True,
    options={**config(host_objects={"back": BACK}, timeout=20)},
)
def _(way, t):
    BACK.way = way
    py(way, "open('/workspace/c48.l', 'w').write('x')\nNone")
    with way.ws.lock:
        t.eq(value(way, "back.read('/workspace/c48.l')"), b"x")
