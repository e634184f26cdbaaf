"""Section D: the Python package: files, cache, history, results, seams."""

from __future__ import annotations

import asyncio
import inspect
import os
import pathlib
import pickle
import re
import threading
import time
from typing import Any

from d_files import png
from d_help import holds, put, raises, same
from d_package import elsewhere, ours, package
from ways import Package

# ---- files


@ours("D.40", "write_file, edit_file, view_image: the tools' texts, and the same as data")
def file_tools(way: Package, t: Any) -> None:
    ws = way.ws
    w = ws.write_file("d/f", "a \nb\n")
    same((w.text, w.path, w.bytes, w.created, w.checkpoint), ("wrote d/f (5 bytes)", "/workspace/d/f", 5, True, ws.head))
    same(ws.write_file("d/f", "a \nb \nab\n").created, False)
    e = ws.edit_file("d/f", "a\nb", "c")
    same(
        (e.text, e.path, e.count, e.mode, e.checkpoint),
        ("replaced 1 occurrence(s) in d/f (matched via trailing_ws)", "/workspace/d/f", 1, "trailing_ws", ws.head),
    )
    e = ws.edit_file("d/f", "b", "x", replace_all=True)
    same((e.count, e.mode, ws.get("d/f")), (1, "exact", b"c\nax\n"))
    e = ws.edit_file("d/f", "b", "x")
    same((e.count, e.mode, e.checkpoint, bool(e)), (0, "already_applied", None, True))
    same(bool(ws.edit_file("d/f", "zzz", "q")), False)
    ws.put("i", png())
    i = ws.view_image("i")
    same((i.text, i.path, i.format, i.mime, i.data), (f"i (png, {len(png())} bytes)", "/workspace/i", "png", "image/png", png()))


@ours("D.40", "tools() and call_tool(): every tool by its name, for a model")
def by_name(way: Package, t: Any) -> None:
    ws = way.ws
    same([x["name"] for x in ws.tools()], ["terminal", "run_python", "file_write", "file_edit", "view_image"])
    same(
        [x["name"] for x in ws.tools("terminal", versions=True)],
        ["terminal", "file_write", "file_edit", "view_image", "history", "diff", "fork", "rollback"],
    )
    put(t, way, "i", png())
    made = t.session()
    for name, args, text in (
        ("terminal", {"command": "echo 1"}, "1"), ("run_python", {"code": "2"}, "2"), ("file_write", {"path": "f", "content": "3"}, "wrote f (1 bytes)"),
        ("file_edit", {"path": "f", "old_string": "3", "new_string": "4"}, "replaced 1 occurrence(s) in f"), ("view_image", {"path": "i"}, f"i (png, {len(png())} bytes)"),
        ("history", {"limit": 1}, "file_edit"), ("diff", {}, "-3\n"), ("fork", {"name": made}, f"forked {made} from {way.session}"), ("rollback", {"steps": 1}, "rolled back to "),
    ):  # fmt: skip
        r = ws.call_tool(name, args)
        same(bool(r), True, f"{name} {r.text}")
        holds(r.text, text)
        if name == "view_image":
            same(r.image.data, png())
        if name == "file_edit":
            same((r.checkpoint, r.structured["mode"]), (ws.head, "exact"))


@ours("D.41", "put: bytes, text or a host's file, with a mode; get: as it is or was; they raise what os would")
def put_get(way: Package, t: Any) -> None:
    ws = way.ws
    first = ws.put("d/f", b"\0\xff", mode=0o750)
    same((first, ws.get("d/f"), ws.fs.stat("d/f").mode), (ws.head, b"\0\xff", 0o750))
    ws.put("d/f", "ä")
    same((ws.get("d/f"), ws.get("/workspace/d/f"), ws.get("d/f", at=first)), ("ä".encode(),) * 2 + (b"\0\xff",))
    t.path("x.sh", "#!/bin/sh\necho hi\n")
    os.chmod(t.path("x.sh"), 0o755)
    ws.put("x.sh", pathlib.Path(t.path("x.sh")))
    same(ws.terminal("./x.sh").stdout, "hi\n")
    raises(FileNotFoundError, lambda: ws.get("none"))
    raises(IsADirectoryError, lambda: ws.get("d"))
    raises(OSError, lambda: ws.put("d", b""))
    raises(OSError, lambda: ws.put("d/f/x", b""))
    raises((OSError, ValueError, package().WorkspaceError), lambda: ws.put("/etc/ntr-x", b""))
    raises(FileNotFoundError, lambda: ws.put("y", pathlib.Path("/nonexistent")))


@ours("D.41", "get and fs never wait for a running call")
def reads_at_once(way: Package, t: Any) -> None:
    ws = way.ws
    ws.put("f", "1")
    wait = t.background(lambda: ws.terminal("echo 2 > f; sleep 62.9", timeout=30))
    t.until(lambda: ws.get("f") == b"2\n")
    began = time.monotonic()
    same((ws.fs.exists("f"), ws.fs.listdir()), (True, ["f"]))
    same(time.monotonic() - began < 2, True)
    t.ok("stop", "-s", way.session)
    wait()


@ours("D.41", "fs: listdir scandir stat exists is_file is_dir walk glob, read and write, of now and of a commit")
def files(way: Package, t: Any) -> None:
    fs = way.ws.fs
    old = fs.write_text("a/b/f.txt", "1")
    fs.write_bytes("a/g", b"\xff")
    way.ws.terminal("ln -s g a/l; chmod 700 a/b")
    same((fs.listdir(), fs.listdir("a"), fs.listdir("/workspace/a/b")), (["a"], ["b", "g", "l"], ["f.txt"]))
    same(sorted((e.name, e.type, e.target) for e in fs.scandir("a")), [("b", "dir", None), ("g", "file", None), ("l", "symlink", "g")])
    s = fs.stat("a/b")
    same((s.is_dir, s.is_file, s.mode, fs.stat("a/g").size), (True, False, 0o700, 1))
    same(
        (fs.exists("a/g"), fs.exists("a/none"), fs.exists("a/g/x"), fs.is_file("a/g"), fs.is_dir("a"), fs.is_dir("a/g")),
        (True, False, False, True, True, False),
    )
    same(list(fs.walk()), [("", ["a"], []), ("a", ["b"], ["g", "l"]), ("a/b", [], ["f.txt"])])
    same((fs.glob("**/*.txt"), fs.glob("a/?")), (["a/b/f.txt"], ["a/b", "a/g", "a/l"]))
    same((fs.read_text("a/b/f.txt"), fs.read_bytes("a/g")), ("1", b"\xff"))
    same((fs.at(old).listdir("a"), fs.at(old).read_text("a/b/f.txt")), (["b"], "1"))
    raises(TypeError, lambda: fs.at(old).write_text("x", "y"))
    raises(NotADirectoryError, lambda: fs.listdir("a/g"))
    raises(FileNotFoundError, lambda: fs.stat("/etc/passwd"))


@ours("D.42", "cache: a mapping over the session's cache; each change a commit; at(commit) as it was")
def cache(way: Package, t: Any) -> None:
    ntr, c = package(), way.ws.cache
    c["a"] = {"n": [1]}
    first = way.ws.head
    same(c.set("a", {"n": [1]}), None)
    same(c.set("b", (1, b"\xff", 2**80)), way.ws.head)
    same((len(c), list(c), "a" in c, "z" in c, c["b"], c.get("z", 5)), (2, ["a", "b"], True, False, (1, b"\xff", 2**80), 5))
    same(bool(way.ws.run_python("cache['a']['n'].append(2)")), True)
    same((c["a"], c.at(first)["a"], list(c.at(first))), ({"n": [1, 2]}, {"n": [1]}, ["a"]))
    del c["b"]
    raises(KeyError, lambda: c["b"])
    raises(TypeError, lambda: c.at(first).set("x", 1))
    for bad in ("", "__x", "a/b", "x" * 201, 5):
        raises((ntr.CacheError, ntr.WorkspaceError), lambda: c.set(bad, 1))
    raises(ntr.CacheError, lambda: c.set("k", lambda: 1), "pickle")
    way.ws.rollback(1)
    same(c["b"], (1, b"\xff", 2**80))


# ---- history


@ours("D.43", "autocheckpoint=False: checkpoint commits a turn, discard drops it, dirty tells")
def staging(way: Package, t: Any) -> None:
    with package().workspace(way.session, store=way.store, autocheckpoint=False) as ws:
        outcomes = [
            ws.terminal("echo 1 > a"),
            ws.run_python("cache['k'] = 1\nopen('b', 'w').close()"),
            ws.write_file("c", "1"),
            ws.edit_file("c", "1", "2"),
        ]
        same([r.checkpoint for r in outcomes], [None] * 4)
        same((ws.put("d", b""), ws.cache.set("l", 2), len(ws.history()), ws.dirty), (None, None, 1, True))
        c = ws.checkpoint("turn 1")
        same((c.message, c.id, ws.dirty, len(ws.history()), ws.checkpoint()), ("turn 1", ws.head, False, 2, None))
        same(c.changes.created, 4)
        ws.terminal("rm a; cd /tmp")
        ws.cache["k"] = 5
        ws.discard()
        same((ws.dirty, ws.get("a"), ws.cache["k"], ws.terminal("pwd").stdout), (False, b"1\n", 1, "/workspace\n"))
        same(ws.terminal("touch e", checkpoint=True).checkpoint, ws.head)


@ours("D.44", "restore(id) and rollback(steps) move the head, as ntr rollback does; what is left stays in the history")
def ways_back(way: Package, t: Any) -> None:
    ntr, ws = package(), way.ws
    one = ws.terminal("echo 1 > f; mkdir d; cd d").checkpoint
    two = ws.terminal("echo 2 > ../f; rm -rf .; cd ..; touch ignored").checkpoint
    r = ws.rollback(1)
    same((r.to.id, r.staged, ws.head, [c.id for c in ws.history(1)]), (one, None, one, [one]))
    same((ws.get("f"), ws.terminal("pwd").stdout), (b"1\n", "/workspace/d\n"))
    same((ws.restore(two).to.id, ws.head, ws.get("f")), (two, two, b"2\n"))
    t.ok("rollback", "-s", way.session, "--steps", "1")
    same(ws.head, one)
    same(ws.restore(ws.history()[0]).to.id, one)
    ws.terminal("echo 3 > ../f", checkpoint=False)
    r = ws.rollback(1)
    same((bool(r.staged), ws.get("f", at=r.staged)), (True, b"3\n"))
    for bad in ("0123456789abcdef0123456789abcdef01234567", "nonsense"):
        raises(ntr.CheckpointNotFoundError, lambda: ws.restore(bad))
    raises(ntr.CheckpointNotFoundError, lambda: ws.rollback(50))
    for steps in (0, -1, True, "1"):
        raises(ValueError, lambda: ws.rollback(steps))


@ours("D.45", "history(limit), newest first, and head: as ntr log has them")
def history(way: Package, t: Any) -> None:
    ws = way.ws
    r = ws.terminal("echo 1 > f; exit 3")
    ws.write_file("g", "1")
    log = ws.history()
    same([c.tool for c in log], ["file_write", "terminal", "init"])
    same([c.id for c in log], re.findall(r'"commit":\s*"([0-9a-f]{40})"', t.ok("log", "-s", way.session, "--json")))
    c = log[1]
    same(
        (c.id, str(c), c.parents, c.session, c.description["script"], c.description["exit_code"], c.changes),
        (r.checkpoint, r.checkpoint, (log[2].id,), way.session, "echo 1 > f; exit 3", 3, r.changes),
    )
    same(([x.id for x in ws.history(1)], ws.head), ([log[0].id], log[0].id))
    assert re.match(r"\d{4}-\d\d-\d\dT", c.time), c.time


@ours("D.46", "fork(name, at=): a Workspace with files, cache, directory and variables; neither changes the other")
def fork(way: Package, t: Any) -> None:
    ntr, ws, name = package(), way.ws, t.session()
    ws.terminal("mkdir d; cd d; echo 1 > f; export V=5")
    ws.cache["k"] = [1]
    with ws.fork(name) as other:
        same(
            (other.session, other.head, other.terminal("pwd; echo $V; cat f").stdout, other.cache["k"]),
            (name, ws.head, "/workspace/d\n5\n1\n", [1]),
        )
        other.terminal("rm f")
        other.cache["k"] = 2
        same((ws.get("d/f"), ws.cache["k"], len(other.history())), (b"1\n", [1], 5))
    raises(ntr.SessionExistsError, lambda: ws.fork(name))
    raises(ntr.SessionIdError, lambda: ws.fork(".x"))
    raises(ntr.CheckpointNotFoundError, lambda: ws.fork(t.session(), at="ffffffff"))
    with ws.fork(t.session(), at=ws.history()[-1]) as empty:
        same(empty.fs.listdir(), [])
    with ws.fork() as unnamed:
        t.sessions.append(unnamed.session)
        same((unnamed.session.startswith(way.session), unnamed.get("d/f")), (True, b"1\n"))


@ours("D.47", "lock: several calls of one object in one piece")
def lock(way: Package, t: Any) -> None:
    ws = way.ws
    ws.put("n", "0")

    def add() -> None:
        with ws.lock:
            n = int(ws.get("n"))
            ws.put("n", str(n + 1))

    threads = [threading.Thread(target=add) for _ in range(12)]
    [x.start() for x in threads]
    [x.join() for x in threads]
    same(ws.get("n"), b"12")

    async def both() -> None:
        async def one() -> None:
            async with ws.lock:
                n = int(await ws.aget("n"))
                await ws.aput("n", str(n + 1))

        await asyncio.gather(*(one() for _ in range(6)))

    asyncio.run(both())
    same(ws.get("n"), b"18")
    with ws.lock, ws.lock:
        same(ws.terminal("true").ok, True)
    raises(RuntimeError, ws.lock.release)


@ours("D.48", "mount(directory, at=): a commit read-only, or what is now to read and write, for a while")
def mount(way: Package, t: Any) -> None:
    ws, where = way.ws, t.dir
    first = ws.put("f", "1")
    ws.put("f", "2")
    with ws.mount(where, at=first) as shown:
        same(pathlib.Path(shown, "f").read_bytes(), b"1")
        raises(OSError, lambda: pathlib.Path(shown, "g").write_bytes(b""))
    same(os.listdir(where), [])
    with ws.mount(pathlib.Path(where)):
        same(pathlib.Path(where, "f").read_bytes(), b"2")
        pathlib.Path(where, "g").write_bytes(b"new")
    same((os.listdir(where), ws.get("g")), ([], b"new"))
    raises(package().WorkspaceError, lambda: ws.mount(os.path.join(where, "none")).__enter__())


@ours("D.49", "the async twins do what their methods do")
def twins(way: Package, t: Any) -> None:
    ws = way.ws
    names = [n[1:] for n in dir(ws) if n.startswith("a") and inspect.iscoroutinefunction(getattr(ws, n))]
    same(
        sorted(names),
        sorted(
            "terminal run_python write_file edit_file view_image put get checkpoint discard restore rollback history fork "
            "call_tool close".split()
        ),
    )
    for n in names:
        if n != "close":
            mine, twin = (list(inspect.signature(getattr(ws, x)).parameters) for x in (n, f"a{n}"))
            same(twin, mine, n)

    async def work() -> None:
        async with package().workspace(way.session, store=way.store) as w:
            same((await w.aterminal("echo 1 > f; pwd")).stdout, "/workspace\n")
            same((await w.arun_python("open('f').read()", inputs={"x": 1})).text, "'1\\n'")
            same((await w.awrite_file("g", "a")).text, "wrote g (1 bytes)")
            same((await w.aedit_file("g", "a", "b")).text, "replaced 1 occurrence(s) in g")
            same((await w.aview_image("g")).ok, False)
            same((await w.aput("h", png()), await w.aget("g")), (w.head, b"b"))
            same([c.tool for c in await w.ahistory(2)], ["put", "file_edit"])
            back = w.head
            same((await w.arollback(1)).to.tool, "file_edit")
            same((await w.arestore(back)).to.id, back)
            await w.aterminal("touch z", checkpoint=False)
            await w.adiscard()
            same(await w.acheckpoint(), None)
            other = await w.afork(t.session())
            same(await other.aget("g"), b"b")
            await other.aclose()
            same((await w.acall_tool("terminal", {"command": "cat f"})).text, "1")

    asyncio.run(work())


@ours("D.49", "cancelling aterminal or arun_python kills the call; the session goes on")
def cancelled(way: Package, t: Any) -> None:
    ws = way.ws

    async def work() -> None:
        for name, call in (
            ("a", ws.aterminal("touch a; sleep 63.1")),
            ("b", ws.arun_python("open('b', 'w').close()\nimport time\ntime.sleep(63.1)")),
        ):
            task = asyncio.create_task(call)
            await asyncio.to_thread(t.until, lambda: ws.fs.exists(name))
            task.cancel()
            try:
                raise AssertionError(f"it was not cut off: {await task!r}")
            except asyncio.CancelledError:
                pass

    asyncio.run(work())
    same(ws.terminal("ls; pgrep -fx 'sleep 63.1'").stdout, "a\nb\n")


@ours("D.50", "close and with: the session stays, the object is of no more use; closing again does nothing")
def closed(way: Package, t: Any) -> None:
    with package().workspace(way.session, store=way.store) as ws:
        ws.put("f", "1")
        cache_, fs = ws.cache, ws.fs
    ws.close()
    for use in (
        lambda: ws.terminal("true"),
        lambda: ws.run_python("1"),
        lambda: ws.get("f"),
        lambda: ws.head,
        lambda: list(cache_),
        lambda: fs.listdir(),
        lambda: ws.exec_python("1"),
    ):
        raises(ValueError, use, "closed")
    same(way.ws.get("f"), b"1")


@ours("D.50", "sessions() lists them, delete() removes one and leaves its forks")
def sessions(way: Package, t: Any) -> None:
    ntr, name = package(), t.session()
    way.ws.put("f", "1")
    way.ws.fork(name).close()
    rows = {s.name: s for s in ntr.sessions(way.store)}
    same((rows[name].head, rows[name].root, rows[way.session].head), (way.ws.head, "/workspace", way.ws.head))
    ntr.delete(way.session, store=way.store)
    same([s.name for s in ntr.sessions(way.store) if s.name in (name, way.session)], [name])
    with ntr.workspace(name, store=way.store) as ws:
        same(ws.get("f"), b"1")
    raises(ntr.SessionNotFoundError, lambda: ntr.delete(way.session, store=way.store))
    raises(ntr.SessionIdError, lambda: ntr.delete("a/b", store=way.store))


# ---- results and errors


@ours("D.51", "TerminalResult, PythonResult, WriteOutcome, EditOutcome: .checkpoint, truth, and str() that an agent reads")
def results(way: Package, t: Any) -> None:
    ntr, ws = package(), way.ws
    for kind, call in (
        (ntr.TerminalResult, lambda: ws.terminal("touch a")), (ntr.PythonResult, lambda: ws.run_python("open('b', 'w').close()")), (ntr.WriteOutcome, lambda: ws.write_file("c", "1")),
        (ntr.EditOutcome, lambda: ws.edit_file("c", "1", "2")), (ntr.ToolResult, lambda: ws.call_tool("terminal", {"command": "touch d"})), (ntr.ToolResult, lambda: ws.call_tool("file_write", {"path": "e", "content": ""})),
    ):  # fmt: skip
        r = call()
        same((type(r), r.checkpoint, bool(r), str(r)), (kind, ws.head, True, r.text))
    for kind, r in (
        (ntr.TerminalResult, ws.terminal("false")),
        (ntr.PythonResult, ws.run_python("1/0")),
        (ntr.WriteOutcome, ws.write_file("", "")),
        (ntr.EditOutcome, ws.edit_file("a", "x", "y")),
        (ntr.ImageResult, ws.view_image("a")),
    ):
        same((type(r), r.checkpoint, bool(r), str(r)), (kind, None, False, r.text))


@ours("D.51", "TerminalResult and PythonResult: the members of a call")
def members(way: Package, t: Any) -> None:
    ntr, ws = package(), way.ws
    r = ws.terminal("printf 'a\\377'; echo e >&2; touch f g; exit 3")
    same(
        (r.stdout, r.stdout_bytes, r.stderr, r.stderr_bytes, r.exit_code, r.timed_out, r.truncated, r.changes),
        ("a\ufffd", b"a\xff", "e\n", b"e\n", 3, False, False, ntr.Changes(2, 0, 0)),
    )
    same(0 < r.duration < 60, True)
    r = ws.run_python("x = 1\nimport nosuch_x")
    holds(r.error, "ModuleNotFoundError")
    same((r.echo or "", len(r.hints)), ("", 1))
    r = ws.run_python("x = {'k': (1, 2)}\nui = {'a': {'k': 1}}\nx")
    same(
        (r.error, r.namespace["x"], [(a.name, a.path) for a in r.ui], r.exit_code),
        (None, {"k": (1, 2)}, [("a", "/workspace/ui/a.json")], 0),
    )
    same(isinstance(r, ntr.TerminalResult), True)


@ours("D.52", "caps: versioned, staging, cheap_fork, fuse_mount; not merge and sql_audit, which raise NotSupportedError", shared=True)
def caps(way: Package, t: Any) -> None:
    ntr, ws = package(), way.ws
    c = ws.caps
    same((c.versioned, c.staging, c.cheap_fork, c.merge, c.sql_audit, c.fuse_mount), (True, True, True, False, False, True))
    for f in (ws.merge, ws.sql):
        e = raises(ntr.NotSupportedError, f)
        same(isinstance(e, ntr.WorkspaceError), True)


@ours("D.53", "ntr's own provider meets the protocol and is the default")
def own_provider(way: Package, t: Any) -> None:
    ntr = package()
    p = ntr.NtrProvider(way.store)
    same((isinstance(p, ntr.WorkspaceProvider), isinstance(ntr.NtrExecutor(p, way.session), ntr.Executor)), (True, True))
    with ntr.workspace(way.session, provider=p, executor_factory=ntr.NtrExecutor) as ws:
        ws.terminal("echo 1 > f")
        same((ws.get("f"), way.ws.get("f"), ws.caps), (b"1\n", b"1\n", way.ws.caps))


@ours("D.53", "somebody else's provider and executor carry a workspace; what they lack raises NotSupportedError")
def other_provider(way: Package, t: Any) -> None:
    ntr = package()
    from d_seams import LocalExecutor, MemoryProvider

    p = MemoryProvider()
    same(isinstance(p, ntr.WorkspaceProvider), True)
    with ntr.workspace("m", provider=p, executor_factory=LocalExecutor) as ws:
        first = ws.head
        same((ws.terminal("x").text, ws.run_python("print(n)", inputs={"n": 3}).stdout), ("ran x", "3\n"))
        same(
            (
                ws.write_file("f", "one").ok,
                ws.edit_file("f", "one", "two").ok,
                ws.edit_file("f", "zz", "").ok,
                ws.get("f"),
                ws.fs.listdir(),
            ),
            (True, True, False, b"two", ["f"]),
        )
        ws.cache["k"] = 1
        with ws.fork("n") as other:
            other.put("g", b"")
            same((dict(other.cache), ws.fs.exists("g")), ({"k": 1}, False))
        ws.restore(first)
        same((dict(ws.cache), ws.fs.listdir()), ({}, []))
        raises(ntr.CheckpointNotFoundError, lambda: ws.restore("none"))
        for use in (
            lambda: ws.register_command("x", lambda c: None),
            lambda: ws.mount("/x").__enter__(),
            ws.tools,
            lambda: ws.call_tool("history"),
            ws.sql,
            ws.merge,
            ws.discard,
        ):
            raises(ntr.NotSupportedError, use)
    raises(ntr.NotSupportedError, lambda: ntr.workspace("m", provider=MemoryProvider()))
    raises(
        ntr.NotSupportedError, lambda: ntr.workspace("m", provider=MemoryProvider(), executor_factory=LocalExecutor, mounts={"/a": "/tmp"})
    )


@ours("D.54", "somebody else's executor over ntr's provider: code runs there, files and history are ntr's")
def other_executor(way: Package, t: Any) -> None:
    from d_seams import LocalExecutor

    with package().workspace(way.session, store=way.store, executor_factory=LocalExecutor) as ws:
        executor = ws._executor
        same(ws.terminal("x").text, "ran x")
        same((ws.put("f", b"1"), ws.get("f")), (ws.head, b"1"))
        with ws.fork(t.session()) as other:
            same((other.get("f"), other.terminal("y").text), (b"1", "ran y"))
    same((executor.closed, way.ws.get("f")), (True, b"1"))


@ours("D.55", "every exception is a WorkspaceError with what, why, todo, and survives pickling", shared=True)
def exceptions(way: Package, t: Any) -> None:
    ntr = package()
    names = (
        "NotSupportedError SessionIdError SessionNotFoundError SessionExistsError CheckpointNotFoundError CacheError "
        "IsolationUnavailable RefusedError NestedCallError CallCancelledError DaemonLostError ProtocolError BinaryNotFoundError"
    ).split()
    for name in names:
        kind = getattr(ntr, name)
        same(issubclass(kind, ntr.WorkspaceError), True, name)
        e = pickle.loads(pickle.dumps(kind("WHAT", "WHY", "TO DO", kind="k", errno=5)))
        same((type(e), str(e), e.what, e.why, e.todo, e.kind, e.errno), (kind, "WHAT: WHY; TO DO", "WHAT", "WHY", "TO DO", "k", 5))
    e = raises(ntr.SessionNotFoundError, lambda: ntr.delete(t.session(), store=way.store))
    same((bool(e.what), bool(e.why), isinstance(e, LookupError)), (True, True, True))


@ours("D.55", "a host object that calls back: what would wait for its own call is a NestedCallError, all else works")
def nested(way: Package, t: Any) -> None:
    ntr = package()

    class Back:
        def read(self) -> bytes:
            return ws.get("f")

        def keep(self) -> None:
            ws.cache["k"] = 1

        def run(self) -> Any:
            return ws.terminal("true")

    with ntr.workspace(way.session, store=way.store, python=ntr.PythonConfig(host_objects={"back": Back()})) as ws:
        ws.put("f", "1")
        same(ws.run_python("back.keep()\nback.read()").text, "b'1'")
        holds(ws.run_python("back.run()").error, "NestedCallError")
        same(ws.cache["k"], 1)


@ours("D.55", "where the program ntr is not found the error says how to get it")
def no_binary(way: Package, t: Any) -> None:
    code = "import ntr\ntry: ntr.workspace('s')\nexcept ntr.BinaryNotFoundError as e: print(e)"
    out = elsewhere(way, code, NTR_BIN="/nonexistent", NTR_STORE=os.path.join(t.dir, "none"), XDG_RUNTIME_DIR=t.dir)
    holds(out, "find the program ntr: NTR_BIN is /nonexistent")
