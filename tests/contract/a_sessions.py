"""Section A: how sessions come to be, their first commit, their root."""

from __future__ import annotations

import json
import os
import tarfile

from a_help import (
    NO_NEW,
    NO_ORIGIN,
    NO_ROOT,
    RUN_ONLY,
    TOO_FAR,
    is_the_tree,
    tools_of,
    tree_of,
)
from table import line

# ---- sessions


@line("A.1", "by a call of the terminal's")
def _(way, t):
    assert way.session not in t.ok("sessions")
    t.eq(way.terminal("echo hi").text.strip(), "hi")
    assert way.session in t.ok("sessions")


@line("A.1", "by run_python")
def _(way, t):
    t.eq(way.run_python("print(6 * 7)").text.strip(), "42")
    t.eq(tools_of(way), ["init"])


@line("A.1", "by a file tool")
def _(way, t):
    t.eq(way.file_write("f", "x\n").text, "wrote f (2 bytes)")
    t.eq(tools_of(way), ["file_write", "init"])


@line("A.1", "by a change of the cache", why_not={"mcp": "an agent changes it in Python or the shell"})
def _(way, t):
    way.cache_set("k", 1)
    t.eq(tools_of(way), ["cache", "init"])


@line("A.1", "by ntr put", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    way.ntr("put", "-s", way.session, "-", "f", stdin="x")
    t.eq(tools_of(way), ["put", "init"])


@line("A.1", "looking makes none", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    for args in (
        ["log"],
        ["status"],
        ["cat", "f"],
        ["diff"],
        ["ls"],
        ["cache", "ls"],
        ["rollback", "--steps", "1"],
        ["commit", "-m", "x"],
    ):
        p = way.raw(*args, "-s", way.session)
        t.like(p.stderr.decode(), "there is no session of that name")
    assert way.session not in t.ok("sessions")


@line("A.2", "all kinds of files, modes, links", why_not=NO_ORIGIN)
def _(way, t):
    w = t.open(from_=tree_of(t))
    is_the_tree(w, t)


@line("A.2", "what is neither directory nor tar nor session is refused, and no session is there", why_not=NO_ORIGIN)
def _(way, t):
    plain = t.path("plain", "no tar\n")
    for origin in (t.path("none"), plain):
        w = t.open(from_=origin)
        with t.refused(f"{origin}.*: ", code=1):
            w.open()
        assert w.session not in t.ok("sessions")


@line("A.3", "plain, compressed, from stdin", why_not=NO_ORIGIN)
def _(way, t):
    folder = tree_of(t)
    for mode in ("w", "w:gz", "w:xz"):
        with tarfile.open(t.path("t.tar"), mode) as f:
            f.add(folder, arcname=".")
        is_the_tree(t.open(from_=t.path("t.tar")), t)
    s = t.session()
    with open(t.path("t.tar"), "rb") as f:
        t.ok("new", s, "--from", "-", stdin=f.read())
    is_the_tree(t.open(s), t)


@line("A.4", "of a session, of a commit of it", why_not=NO_ORIGIN)
def _(way, t):
    way.terminal("echo 1 >f")
    first = way.head()
    way.terminal("echo 2 >f")
    for origin, wanted in (
        (f"{way.session}~0", b"2\n"),
        (f"{way.session}@{first[:10]}", b"1\n"),
        (f"{way.session}~1", b"1\n"),
    ):
        t.eq(t.open(from_=origin).read("f"), wanted, origin)
    t.eq(way.read("f"), b"2\n")


@line("A.4", "a commit that is not there is refused", why_not=NO_ORIGIN)
def _(way, t):
    way.terminal("true")
    with t.refused("(?s)0123456789.*", code=1):
        t.open(from_=f"{way.session}@0123456789").open()


@line("A.5", "only the rung none is built", why_not={"mcp": "ntr mcp has no rung: ntr new makes the session before"})
def _(way, t):
    if t.way_name == "cli":
        for rung in ("process", "kernel", "vm", "other"):
            p = t.ntr("new", way.session, "--rung", rung)
            t.eq(p.returncode, 1)
            t.has(p.stderr.decode(), f"ntr: make a session on the rung '{rung}': this version has the rung none only")
        assert way.session not in t.ok("sessions")
        t.ok("new", way.session, "--rung", "none")
        return
    t.open(package={"rung": "none"}).open()
    for rung in ("process", "kernel", "vm", "other"):
        with t.refused(f"rung '{rung}'", code="IsolationUnavailable"):
            t.open(package={"rung": rung}).open()


@line("A.5", "a new session says which rung it is on, and that it is no boundary", why_not=NO_NEW)
def _(way, t):
    t.has(t.ok("new", way.session), "rung none: no boundary")


@line("A.6", "refused", why_not=NO_NEW)
def _(way, t):
    p = t.ntr("new", way.session, "--quota", "1G")
    t.eq(p.returncode, 2)
    t.has(p.stderr.decode(), "--quota")
    assert way.session not in t.ok("sessions")


@line("A.7", "fsync and relaxed, and nothing else", why_not=NO_NEW)
def _(way, t):
    for word, wanted in ((None, "fsync"), ("fsync", "fsync"), ("relaxed", "relaxed")):
        s = t.session()
        row = json.loads(t.ok("new", s, "--json", *([f"--durability={word}"] if word else [])))
        t.eq(row["durability"], wanted)
    with t.refused("'fast' is neither fsync nor relaxed", code=2):
        t.open(durability="fast").open()


# ---- the first commit


@line("A.15", "its description is that and nothing else")
def _(way, t):
    way.terminal("true")
    (first,) = way.history()
    t.eq(first["tool"], "init")
    t.eq(list(first["parents"]), [])
    t.eq(dict(first["changes"]), {"created": 0, "modified": 0, "deleted": 0})
    row = json.loads(t.ok("log", "-s", way.session, "--json"))
    described = {
        k: v
        for k, v in row.items()
        if k not in ("commit", "parents", "session", "seq", "time", "changes", "inodes", "bytes", "root")
    }
    t.eq(described, {"tool": "init"})


@line("A.15", "before the first call's own commit")
def _(way, t):
    way.file_write("f", "x")
    t.eq(tools_of(way), ["file_write", "init"])


@line("A.16", "one commit, with the files in it", why_not=NO_ORIGIN)
def _(way, t):
    folder = tree_of(t)
    with tarfile.open(t.path("t.tar"), "w") as f:
        f.add(folder, arcname=".")
    for origin in (folder, t.path("t.tar")):
        w = t.open(from_=origin)
        w.open()
        (first,) = w.history()
        t.eq((first["tool"], first["parents"]), ("init", []))
        t.eq(first["changes"]["created"], 5)
        t.eq(w.read("a.txt", at=first["commit"][:12]), b"one\n")


@line("A.17", "all of them, none of its own")
def _(way, t):
    way.terminal("echo 1 >f")
    way.terminal("echo 2 >f")
    f = way.fork(t.session())
    t.eq([c["commit"] for c in f.history()], [c["commit"] for c in way.history()])
    f.terminal("echo 3 >f")
    t.eq([c["commit"] for c in f.history()[1:]], [c["commit"] for c in way.history()])
    t.eq(way.read("f"), b"2\n")


@line("A.17", "from an older commit: those up to it")
def _(way, t):
    way.terminal("echo 1 >f")
    way.terminal("echo 2 >f")
    ids = [c["commit"] for c in way.history()]
    f = way.fork(t.session(), at=ids[1])
    t.eq([c["commit"] for c in f.history()], ids[1:])
    t.eq(f.read("f"), b"1\n")


@line("A.18", "one step and many")
def _(way, t):
    way.terminal("true")
    first = way.head()
    for steps in (1, 5, 1000000):
        with t.refused(TOO_FAR):
            way.rollback(steps)
    way.terminal("echo x >f")
    with t.refused(TOO_FAR):
        way.rollback(2)
    t.eq(way.read("f"), b"x\n")
    way.rollback(1)
    t.eq(way.head(), first)
    with t.refused(TOO_FAR):
        way.rollback(1)


@line("A.18", "the import stays", why_not=NO_ORIGIN)
def _(way, t):
    w = t.open(from_=tree_of(t))
    w.terminal("rm -r *")
    w.rollback(1)
    is_the_tree(w, t)
    with t.refused(TOO_FAR):
        w.rollback(1)


# ---- the root


@line("A.19", "where calls begin, and $PWD says so")
def _(way, t):
    t.eq(way.terminal("pwd; echo $PWD; cd /workspace; pwd -P").text.split(), ["/workspace"] * 3)


@line("A.19", "in Python", shared=True)
def _(way, t):
    t.eq(way.run_python("import os; print(os.getcwd())").text.strip(), "/workspace")


@line("A.20", "an absolute path", why_not=NO_ROOT, options={"root": "/srv/table/app"})
def _(way, t):
    t.eq(way.terminal("pwd; echo x >/srv/table/app/f; ls").text.split(), ["/srv/table/app", "f"])
    t.eq(way.read("f"), b"x\n")
    assert not os.path.exists("/srv/table"), "a folder of the host's came of it"
    f = way.fork(t.session())
    t.eq(f.terminal("pwd").text.strip(), "/srv/table/app")
    t.eq(way.rollback().ok, True)
    t.eq(way.terminal("pwd; ls").text.split(), ["/srv/table/app"])


@line(
    "A.20", "a session with another root through this way", ways="mcp", why_not={"cli": "see above", "package": "see above"}
)
def _(way, t):
    t.ok("new", way.session, "--root", "/srv/table2")
    t.eq(way.terminal("pwd; echo x >/srv/table2/f; ls").text.split(), ["/srv/table2", "f"])
    t.has(next(x for x in way.tools() if x["name"] == "terminal")["description"], "/srv/table2")


@line("A.21", "another one is refused, the same one is not", why_not=NO_ROOT, options={"root": "/srv/table3"})
def _(way, t):
    way.terminal("true")
    if t.way_name == "package":
        t.eq(t.open(way.session, root="/srv/table3/").terminal("pwd").text.strip(), "/srv/table3")
    with t.refused("fixed for its life|there is (already )?a session|exists", code={"package": "WorkspaceError", "cli": 1}):
        t.open(way.session, root="/srv/other").open()
    t.eq(t.open(way.session).terminal("pwd").text.strip(), "/srv/table3")


@line("A.22", "each of them, and no session is there", why_not=NO_ROOT)
def _(way, t):
    for bad in ("/", "//", "/.", "relative", "./x", "/a/../b", ""):
        w = t.open(root=bad)
        with t.refused("root", code={"cli": 2, "package": "WorkspaceError"}):
            w.open()
        assert w.session not in t.ok("sessions"), bad
