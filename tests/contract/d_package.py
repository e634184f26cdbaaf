"""Section D: the Python package: what it is, opening a workspace, calls."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from d_help import OBJECT, holds, raises, same
from table import line
from ways import PACKAGE, Package, environment


def ours(id: str, text: str, **kw: Any) -> Callable[[Any], Any]:
    """A row of the package's own."""
    return line(id, text, ways=("package",), why_not=OBJECT, **kw)


def package() -> Any:
    """Imported where it is used: another Python than it needs skips its rows only."""
    return importlib.import_module("ntr")


def elsewhere(way: Package, code: str, **env: str) -> str:
    """What another program with the package prints."""
    p = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(way.store, {"PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1", **env}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    same(p.returncode, 0, p.stderr)
    return p.stdout


# ---- what it is


@ours("D.37", "it is pure Python: no dependencies, nothing imported but the standard library")
def pure(way: Package, t: Any) -> None:
    with open(os.path.join(PACKAGE, "pyproject.toml"), encoding="utf-8") as f:
        holds(f.read(), "\ndependencies = []\n", 'requires-python = ">=3.10"')
    names = set(os.listdir(os.path.join(PACKAGE, "ntr"))) - {"__pycache__", "py.typed"}
    same({n for n in names if not n.endswith(".py")}, set())
    code = "import sys; seen = set(sys.modules)\nimport ntr\nfor n in ntr.__all__: getattr(ntr, n)\nprint([m for m in sorted({x.partition('.')[0] for x in set(sys.modules) - seen} - {'ntr'}) if m not in sys.stdlib_module_names])"
    same(elsewhere(way, code), "[]\n")


@ours("D.37", "it speaks to the daemon's socket: where the daemon runs it needs no program ntr")
def over_the_socket(way: Package, t: Any) -> None:
    way.ws.terminal("echo 1 > f")
    code = f"import ntr\nws = ntr.workspace({way.session!r})\nprint(ws.terminal('cat f'), ws.get('f'), ws.run_python('1 + 1'))"
    same(elsewhere(way, code, NTR_BIN="/nonexistent"), "1 b'1\\n' 2\n")


@ours("D.37", "it is typed: py.typed, and every public member of what it exports has its types and a docstring", shared=True)
def typed(way: Package, t: Any) -> None:
    ntr = package()
    same(os.path.isfile(os.path.join(PACKAGE, "ntr", "py.typed")), True)
    bare = []
    for name in ntr.__all__:
        value = getattr(ntr, name)
        members = [(name, value)] if inspect.isfunction(value) else []
        if inspect.isclass(value):
            bare += [] if (value.__doc__ or "").strip() else [f"{name}: no docstring"]
            members = [(f"{name}.{k}", v) for k, v in vars(value).items() if not k.startswith("_")]
        for what, f in members:
            f = f.fget if isinstance(f, property) else getattr(f, "__func__", f)
            if not inspect.isfunction(f):
                continue
            parameters = list(inspect.signature(f).parameters.values())
            untyped = [p.name for p in parameters if p.annotation is p.empty and p.name not in ("self", "cls")]
            if untyped or inspect.signature(f).return_annotation is inspect.Signature.empty or not f.__doc__:
                bare.append(f"{what} {untyped}")
    same(bare, [])


# ---- workspace(session, …)


@ours("D.38", "workspace() has the contract's options, and no others", shared=True)
def options(way: Package, t: Any) -> None:
    names = list(inspect.signature(package().workspace).parameters)
    same(
        names,
        [
            "session",
            "store",
            "mounts",
            "python",
            "commands",
            "cache",
            "autocheckpoint",
            "max_observation",
            "root",
            "rung",
            "provider",
            "executor_factory",
            "terminal_primer",
            "python_primer",
        ],
    )


@ours("D.38", "session: made on first use, with one commit; reopening makes none")
def opened(way: Package, t: Any) -> None:
    ntr = package()
    same([c.tool for c in way.ws.history()], ["init"])
    with ntr.workspace(way.session, store=way.store) as again:
        same((again.head, again.session, len(again.history())), (way.ws.head, way.session, 1))
    for bad in ("", ".x", "a/b", "a b", "x\n", "ü", None, 5):
        raises(ntr.SessionIdError, lambda: ntr.workspace(bad, store=way.store))


@ours("D.38", "store: the directory; else $NTR_STORE")
def stores(way: Package, t: Any) -> None:
    way.ws.put("f", "1")
    same(elsewhere(way, f"import ntr; print(ntr.workspace({way.session!r}).get('f'))"), "b'1'\n")
    same(
        elsewhere(
            way,
            f"import ntr, pathlib; print(ntr.workspace({way.session!r}, store=pathlib.Path({way.store!r})).get('f'))",
            NTR_STORE="/nonexistent",
        ),
        "b'1'\n",
    )


@ours("D.38", "mounts: read-only, or DIR:rw; not versioned; a bad point or directory is an error")
def mounts(way: Package, t: Any) -> None:
    ntr = package()
    t.path("f", "host\n")
    with ntr.workspace(way.session, store=way.store, mounts={"/workspace/ro": t.dir, "/workspace/rw": f"{t.dir}:rw"}) as ws:
        r = ws.terminal("cat ro/f; echo 1 > rw/g; touch ro/no 2>/dev/null || echo read-only")
        same(r.stdout, "host\nread-only\n")
        same(ws.terminal("echo 2 > rw/g").checkpoint, None)
        same(sorted(os.listdir(t.dir)), ["f", "g"])
        with ws.fork(t.session()) as fork:
            same(fork.terminal("cat rw/g").stdout, "2\n")
    for bad in ({"rel": t.dir}, {"/workspace/x": "/nonexistent"}, {"/workspace/x": t.path("f")}):
        raises((ntr.WorkspaceError, ValueError, OSError), lambda: ntr.workspace(way.session, store=way.store, mounts=bad))
    t.ok("stop", "-s", way.session)


@ours("D.38", "python: what agent code may do")
def configured(way: Package, t: Any) -> None:
    ntr = package()
    with ntr.workspace(
        way.session, store=way.store, python=ntr.PythonConfig(modules=["json"], stdlib=False, timeout=0.3, echo="none")
    ) as ws:
        same(ws.run_python("import json; json.dumps(1)").text, "(no output)")
        holds(ws.run_python("import decimal").error, "decimal")
        same(ws.run_python("while True: pass").timed_out, True)
    for bad in ({"isolation": "kernel"}, {"isolation": "process"}, {"network": False}):
        raises(ntr.IsolationUnavailable, lambda: ntr.workspace(way.session, store=way.store, python=ntr.PythonConfig(**bad)))


@ours("D.38", "commands: functions as executables in PATH that compose in pipes; python and what bash has are refused")
def commands(way: Package, t: Any) -> None:
    ntr = package()

    def fails(call: Any) -> Any:
        raise RuntimeError("no such luck")

    def look(call: Any) -> Any:
        return ntr.CommandResult(stdout=way.ws.get(call.args[0]), stderr="looked\n", exit_code=3)

    way.ws.put("f", "data\n")
    with ntr.workspace(
        way.session,
        store=way.store,
        commands={"shout": lambda c: c.text.upper(), "fails": fails, "look": look, "count": lambda c: len(c.args)},
    ) as ws:
        same(ws.terminal("echo a b | shout | tr B c").stdout, "A c\n")
        r = ws.terminal("look f")
        same((r.stdout, r.stderr, r.exit_code), ("data\n", "looked\n", 3))
        same(ws.terminal("count a 'b c' d").exit_code, 3)
        same(ws.terminal("fails").stderr, "fails: RuntimeError: no such luck\n")
        same(ws.run_python("import subprocess\nsubprocess.run(['shout'], input=b'x', stdout=-1).stdout").text, "b'X'")
        ws.register_command("later", lambda c: c.cwd)
        same(ws.terminal("mkdir -p d; cd d; later").stdout, "/workspace/d")
        ws.unregister_command("later")
        same(ws.terminal("later").exit_code, 127)
        for bad in ("python", "python3", "cd", "a/b", "", "-x"):
            raises(ValueError, lambda: ws.register_command(bad, lambda c: None))
    same(way.ws.terminal("shout").exit_code, 127)


@ours("D.38", "cache=False: agent code has none")
def without_cache(way: Package, t: Any) -> None:
    with package().workspace(way.session, store=way.store, cache=False) as ws:
        holds(ws.run_python("cache").error, "NameError: name 'cache' is not defined")


@ours("D.38", "max_observation: characters of a stream that an agent gets to see")
def observation(way: Package, t: Any) -> None:
    ntr = package()
    with ntr.workspace(way.session, store=way.store, max_observation=10) as ws:
        r = ws.terminal("echo 0123456789ab")
        same((r.text, r.truncated), ("0123456789\n[output truncated]", True))
        same(ws.terminal("echo 0123456789").text, "0123456789")
    same(way.ws.terminal("echo 0123456789ab").text, "0123456789ab")
    for bad in (0, -1, "9", 1 << 30):
        raises(ValueError, lambda: ntr.workspace(way.session, store=way.store, max_observation=bad))


@ours("D.38", "root: another absolute path than /workspace, fixed for the session's life")
def rooted(way: Package, t: Any) -> None:
    ntr, name = package(), t.session()
    with ntr.workspace(name, store=way.store, root="/srv/app") as ws:
        same((ws.root, ws.terminal("pwd").stdout), ("/srv/app", "/srv/app\n"))
        same(ws.put("/srv/app/f", "1"), ws.head)
    with ntr.workspace(name, store=way.store) as ws:
        same(ws.root, "/srv/app")
    same(way.ws.root, "/workspace")
    raises(ntr.WorkspaceError, lambda: ntr.workspace(name, store=way.store, root="/workspace"), "fixed for its life")
    for bad in ("/", "relative"):
        raises(ntr.WorkspaceError, lambda: ntr.workspace(t.session(), store=way.store, root=bad))


@ours("D.38", "rung: what is not built raises IsolationUnavailable")
def rungs(way: Package, t: Any) -> None:
    ntr = package()
    ntr.workspace(way.session, store=way.store, rung="none").close()
    for rung in ("process", "kernel", "vm"):
        e = raises(ntr.IsolationUnavailable, lambda: ntr.workspace(t.session(), store=way.store, rung=rung), rung)
        same(bool(e.todo), True)


# ---- calls


@ours("D.39", "terminal: cwd, env, timeout, checkpoint, on_output are for this call")
def terminal_options(way: Package, t: Any) -> None:
    ws, seen = way.ws, []
    ws.terminal("mkdir d")
    same(ws.terminal("pwd; echo $X", cwd="d", env={"X": "1"}).stdout, "/workspace/d\n1\n")
    same(ws.terminal("pwd; echo ${X-none}").stdout, "/workspace\nnone\n")
    r = ws.terminal("echo a; sleep 9", timeout=0.2)
    same((bool(r), r.timed_out, r.exit_code, r.stdout), (False, True, 124, "a\n"))
    same(ws.terminal("touch f", checkpoint=False).checkpoint, None)
    same(ws.dirty, True)
    same(ws.terminal("true").checkpoint, ws.head)
    ws.terminal("echo out; echo err >&2", on_output=lambda stream, text: seen.append((stream, text)))
    same(sorted(seen), [("stderr", "err\n"), ("stdout", "out\n")])


@ours("D.39", "run_python: inputs, echo, env, timeout, readonly, checkpoint, on_output; namespace comes back")
def python_options(way: Package, t: Any) -> None:
    ws, seen = way.ws, []
    r = ws.run_python("y = [x, {'k': x}]\n1\n2", inputs={"x": (1, 2**70)}, echo="all")
    same((r.namespace["y"], r.stdout), ([(1, 2**70), {"k": (1, 2**70)}], "1\n2\n"))
    same(ws.run_python("1\n2", echo="none").text, "(no output)")
    same(ws.run_python("import os; os.environ['X']", env={"X": "1"}).text, "'1'")
    same(ws.run_python("while True: pass", timeout=0.3).timed_out, True)
    holds(ws.run_python("open('f', 'w')", readonly=True).error, "Read-only file system")
    same(ws.run_python("open('f', 'w').close()", checkpoint=False).checkpoint, None)
    same(ws.checkpoint().changes.created, 1)
    ws.run_python("print('a')", on_output=lambda stream, text: seen.append((stream, text)))
    same("".join(x for _, x in seen), "a\n")


@ours("D.39", "an agent's failure is a false result, never an exception")
def failures(way: Package, t: Any) -> None:
    ws = way.ws
    for script in ("exit 3", "kill -9 $$", "if", "nosuch-x", "a\0b", "\ud800"):
        r = ws.terminal(script)
        same((bool(r), bool(r.text)), (False, True), repr(script))
    for code in ("1/0", "def", "import os; os._exit(3)", "raise SystemExit(2)", "import os; os.kill(os.getpid(), 9)", "x\0", "'\ud800'"):
        r = ws.run_python(code)
        same((bool(r), bool(r.text)), (False, True), repr(code))
    for r in (ws.write_file("", "x"), ws.write_file("x", "\ud800"), ws.edit_file("none", "a", "b"), ws.view_image("none")):
        same((bool(r), bool(r.text), r.checkpoint), (False, True, None))
    for use in (lambda: ws.terminal(5), lambda: ws.terminal("true", cwd=5), lambda: ws.get(5), lambda: ws.put(5, b"")):
        raises(TypeError, use, "not a")
    raises(TypeError, lambda: ws.write_file("x", b"y"))


@ours("D.39", "call_tool: what a model makes up, whatever it is, is a false result with a text for it")
def made_up(way: Package, t: Any) -> None:
    for name, args in (
        ("nosuch", {}), ("terminal", {}), ("terminal", {"command": "\ud800"}), ("file_write", {"path": "x", "content": "\ud800"}),
        ("file_write", {"path": "\udfff", "content": ""}), ("file_edit", {"path": "x", "old_string": "\ud800", "new_string": ""}),
        ("rollback", {"steps": 10**30}), ("rollback", {"steps": 1e30}), ("history", {"limit": float("inf")}), ("terminal", {"command": ["\ud800"]}),
        ("terminal", {"command": "true", "\ud800": 1}), ("terminal", {"command": {"\ud800": [10**30]}}), ("history", {"limit": -1}), ("fork", {"name": "a/b"}), ("view_image", {"path": ["x"]}),
    ):  # fmt: skip
        for r in (way.ws.call_tool(name, args), asyncio.run(way.ws.acall_tool(name, args))):
            same((bool(r), bool(r.text), r.checkpoint), (False, True, None), f"{name} {args!r}")
    same(len(way.ws.history()), 1)


@ours("D.39", "exec_python: inputs, stdin, argv, echo, readonly; no commit")
def raw_python(way: Package, t: Any) -> None:
    ws = way.ws
    r = ws.exec_python("import sys\nopen('f', 'w').close()\nprint(sys.stdin.read() + sys.argv[1] + str(n))\n5", {"n": 3}, "in ", ["arg "])
    same((r.stdout, r.checkpoint, ws.dirty, len(ws.history())), ("in arg 3\n", None, True, 1))
    same(ws.exec_python("1 + 1", echo="last").stdout, "2\n")
    same(bool(ws.exec_python("open('g', 'w')", readonly=True)), False)
