"""Section A: directories of the host."""

from __future__ import annotations

import os

from table import line
from ways import WayError

# ---- host directories


def host(t):
    t.path("host/file", "from the host\n")
    t.path("host/sub/deep", "deep\n")
    return t.path("host")


def shown(t, mode="", point="/workspace/data", **options):
    return t.open(mounts={point: host(t) + mode}, **options)


@line("A.62", "in the shell and in Python, inside and outside of the workspace")
def _(way, t):
    w = t.open(mounts={"/workspace/data": host(t), "/table-host": host(t)})
    t.eq(
        w.terminal("cat data/file /workspace/data/sub/deep /table-host/file").text.split("\n"),
        ["from the host", "deep", "from the host"],
    )
    t.eq(
        w.run_python("print(open('data/file').read() + open('/table-host/sub/deep').read(), end='')").text.split("\n")[0],
        "from the host",
    )
    assert not os.path.exists("/table-host")
    t.path("host/file", "changed\n")
    t.eq(w.terminal("cat data/file").text.strip(), "changed")
    t.eq(w.read("data/file"), b"changed\n")


@line("A.62", "they stay for who opens it without the option, by any way")
def _(way, t):
    w = shown(t)
    w.terminal("true")
    t.eq(w.again().terminal("cat data/file").text.strip(), "from the host")
    t.eq(t.ok("run", "-s", w.session, "--", "cat", "data/file"), "from the host\n")


@line("A.62", "added to a session that is there")
def _(way, t):
    way.terminal("echo own >own")
    w = way.again(mounts={"/workspace/data": host(t)})
    t.eq(w.terminal("cat data/file own").text.split("\n"), ["from the host", "own"])


@line("A.63", "for the shell, for Python, for the file tools")
def _(way, t):
    w = shown(t)
    for o in (w.terminal("echo x >data/new"), w.terminal("rm data/file"), w.run_python("open('data/new', 'w')")):
        assert not o.ok
        t.has(o.text, "Read-only file system")
    t.eq(w.file_write("data/new", "x").text, "write failed: data/new: Read-only file system")
    t.eq(w.file_edit("data/file", "from", "to").text, "edit failed: data/file: Read-only file system")
    t.eq(sorted(os.listdir(t.path("host"))), ["file", "sub"])
    with open(t.path("host/file")) as f:
        t.eq(f.read(), "from the host\n")


@line("A.64", "what is written is the host's")
def _(way, t):
    w = shown(t, ":rw")
    t.eq(w.terminal("echo new >data/new; rm data/file").text, "(no output)")
    w.file_write("data/tool", "x\n")
    t.eq(sorted(os.listdir(t.path("host"))), ["new", "sub", "tool"])


@line("A.65", "in no commit, in no diff, and a rollback leaves it alone")
def _(way, t):
    w = shown(t, ":rw")
    w.terminal("true")
    head = w.head()
    t.eq((w.terminal("echo x >data/new; rm data/file").commit, w.head()), (None, head))
    w.terminal("echo own >own; echo y >data/new")
    t.eq(dict(w.history()[0]["changes"])["created"], 1)
    assert "data" not in w.diff("~1", "HEAD")
    w.rollback(1)
    t.eq(w.terminal("cat data/new; ls").text.split(), ["y", "data"])
    t.eq(t.ok("ls", "-s", f"{w.session}~0", "data"), "")


@line("A.66", "with their mode")
def _(way, t):
    w = t.open(mounts={"/workspace/data": host(t), "/workspace/out": t.path("out/x", "") and t.path("out") + ":rw"})
    w.terminal("true")
    f = w.fork(t.session())
    t.eq(f.terminal("cat data/file; echo f >out/f").text.strip(), "from the host")
    assert not f.terminal("echo x >data/new").ok
    t.eq(sorted(os.listdir(t.path("out"))), ["f", "x"])


@line("A.67", "and nothing is made of it")
def _(way, t):
    folder = host(t)
    for bad in ("data", "./data", "workspace/data"):
        w = t.open(mounts={bad: folder})
        with t.refused("not absolute|no absolute path", code={"cli": 2, "mcp": 2, "package": "WorkspaceError"}):
            w.terminal("true")
        assert w.session not in t.ok("sessions")


@line("A.67", "nor / nor the root or what is above it")
def _(way, t):
    folder = host(t)
    for bad, why in (("/", "cover everything"), ("/workspace", "workspace"), ("/proc", "/proc")):
        w = t.open(mounts={bad: folder})
        try:
            o = w.terminal("echo ran")
            ok, text = o.ok, o.text
        except WayError as e:
            ok, text = False, e.text
        assert not ok and "ran" not in text.split(), bad
        t.like(text, f"mount a host directory at '{bad}': .*{why}")


@line("A.68", "none, and a file")
def _(way, t):
    plain = t.path("plain", "x")
    for bad in (t.path("none"), plain):
        w = t.open(mounts={"/workspace/data": bad})
        with t.refused("no directory|No such file|no such directory"):
            w.terminal("true")
        assert w.session not in t.ok("sessions")
