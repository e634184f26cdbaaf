"""Section A: autocommit off, and calls side by side."""

from __future__ import annotations

import json
import os
import time

from a_help import (
    NO_STAGING,
    RUN_ONLY,
    told,
    tools_of,
)
from table import line

# ---- autocommit off


@line("A.50", "calls, file tools, the cache", why_not={**NO_STAGING, "cli": "no setting of a session: --no-commit is of a call"},
      options={"autocommit": False})  # fmt: skip
def _(way, t):
    way.terminal("echo 1 >f")
    way.run_python("open('g', 'w').write('x'); cache['p'] = 1")
    way.file_write("h", "x\n")
    way.file_edit("h", "x", "y")
    way.cache_set("k", 1)
    t.eq((tools_of(way), way.dirty()), (["init"], True))
    t.eq(way.read("h"), b"y\n")
    assert way.commit("all of it")
    t.eq((len(way.history()), way.dirty()), (2, False))
    t.eq(dict(way.history()[0]["changes"])["created"], 3)
    t.eq(sorted(way.cache_keys()), ["k", "p"])
    way.rollback(1)
    t.eq(way.cache_keys(), [])


@line("A.51", "this one only", why_not=NO_STAGING)
def _(way, t):
    o = way.terminal("echo 1 >f; export TABLE_N=1; mkdir d; cd d", autocommit=False)
    t.eq((o.commit, way.dirty(), tools_of(way)), (None, True, ["init"]))
    t.eq(way.terminal("cat ../f; echo $TABLE_N; pwd", autocommit=False).stdout.split(), ["1", "1", "/workspace/d"])
    o = way.terminal("echo 2 >g")
    t.eq((o.commit, way.dirty(), len(way.history())), (way.head(), False, 2))


@line("A.51", "of Python", why_not=NO_STAGING, shared=True)
def _(way, t):
    way.terminal("true")
    before = len(way.history())
    o = way.run_python("open('staged', 'w').write('x'); cache['staged'] = 1", autocommit=False)
    t.eq((o.commit, o.exit_code, way.dirty(), len(way.history())), (None, 0, True, before))
    assert way.commit("by hand")
    t.eq((way.cache_get("staged"), way.dirty(), len(way.history())), (1, False, before + 1))


@line("A.52", "what is not committed, with the message; then there is nothing to commit", why_not=NO_STAGING)
def _(way, t):
    way.terminal("echo 1 >f; cd /tmp", autocommit=False)
    head = way.commit("by hand: ä\nsecond line")
    t.eq(head, way.head())
    t.eq(told(way)["message"], "by hand: ä\nsecond line")
    t.eq(dict(told(way)["changes"]), {"created": 1, "modified": 0, "deleted": 0})
    t.eq((way.commit("again"), way.head()), (None, head))


@line("A.52", "without -m it is refused, and 'nothing to commit' is no failure", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    way.terminal("true")
    t.eq(way.ntr("commit", "-s", way.session, "-m", "x"), "nothing to commit\n")
    t.eq(way.raw("commit", "-s", way.session).returncode, 2)


@line("A.53", "files, directory and environment are those of the head", why_not=NO_STAGING)
def _(way, t):
    way.terminal("echo 1 >f; mkdir d; export TABLE_E=1; chmod 640 f")
    head = way.head()
    way.terminal("echo 2 >f; chmod 600 f; echo n >n; cd d; rm -f x; export TABLE_E=2; ntr cache set k v", autocommit=False)
    t.eq(way.dirty(), True)
    way.discard()
    t.eq((way.dirty(), way.head()), (False, head))
    t.eq(
        way.terminal("pwd; cat f; stat -c %a f; ls; echo $TABLE_E").stdout.split(), ["/workspace", "1", "640", "d", "f", "1"]
    )
    t.eq(way.cache_keys(), [])
    way.discard()
    t.eq(way.head(), head)


@line("A.54", "of several tools, and one rollback takes all of it", why_not=NO_STAGING)
def _(way, t):
    for i in range(3):
        way.terminal(f"echo {i} >f{i}", autocommit=False)
    way.commit("the turn")
    t.eq([c["tool"] for c in way.history()][1:], ["init"])
    t.eq(dict(told(way)["changes"])["created"], 3)
    way.rollback(1)
    t.eq(way.terminal("ls").text, "(no output)")


# ---- side by side


@line("A.55", "in the order they came, each a commit of its own")
def _(way, t):
    way.terminal("true")
    gate = t.path("gate")
    waits = [t.background(lambda: way.again().terminal(f"until [ -e {gate} ]; do sleep 0.01; done; echo 0 >>log"))]
    for i in range(1, 4):
        time.sleep(0.15)
        waits.append(t.background(lambda i=i: way.again().terminal(f"echo {i} >>log")))
    time.sleep(0.15)
    t.path("gate", "")
    commits = [w().commit for w in waits]
    t.eq(way.read("log").split(), [b"0", b"1", b"2", b"3"])
    t.eq([c["commit"] for c in way.history()][:4], commits[::-1])


@line(
    "A.55",
    "of one client that does not wait",
    ways="mcp",
    why_not={"cli": "one call a program", "package": "a thread waits, see the next"},
)
def _(way, t):
    way.open()
    ids = [way.send("tools/call", {"name": "terminal", "arguments": {"command": f"echo {i} >>log"}}) for i in range(8)]
    for i in ids:
        way.wait(i)
    t.eq(way.read("log").split(), [str(i).encode() for i in range(8)])
    t.eq(len(way.history()), 9)


@line("A.55", "many at once: none lost, none mixed")
def _(way, t):
    way.terminal("echo 0 >n")
    add = "n=$(<n); sleep 0.005; echo $((n + 1)) >n"
    others = [way.again() for _ in range(4)]
    waits = [t.background(lambda w=w: [w.terminal(add) for _ in range(3)]) for w in others]
    for w in waits:
        w()
    t.eq(way.read("n"), b"12\n")
    t.eq(len(way.history()), 14)


@line("A.56", "one that waits for the other")
def _(way, t):
    gate = t.path("gate")
    other = t.open()
    wait = t.background(lambda: way.terminal(f"for i in {{1..1000}}; do [ -e {gate} ] && exit 0; sleep 0.01; done; exit 1"))
    t.eq(other.terminal(f"touch {gate}").exit_code, 0)
    t.eq(wait().exit_code, 0)


class Running:
    """A call that goes on until the with-statement ends."""

    def __init__(self, way, t):
        self.way, self.t, self.gate = way, t, t.path("gate")

    def __enter__(self):
        begun = self.t.path("begun")
        script = f"echo 2 >f; touch {begun}; for i in {{1..3000}}; do [ -e {self.gate} ] && exit 0; sleep 0.01; done; exit 1"
        self.wait = self.t.background(lambda: self.way.again().terminal(script))
        self.t.until(lambda: os.path.exists(begun))

    def __exit__(self, kind, *_):
        self.t.path("gate", "")
        o = self.wait()
        if kind is None:
            self.t.eq(o.exit_code, 0, "it has waited for the call")


@line("A.57", "history")
def _(way, t):
    way.terminal("echo 1 >f")
    with Running(way, t):
        t.eq(tools_of(way), ["terminal", "init"])


@line("A.58", "of two commits; what the running call changes is no uncommitted work yet")
def _(way, t):
    way.terminal("echo 1 >f")
    with Running(way, t):
        t.has(way.diff("~1", "HEAD"), "+1")
        if t.way_name == "cli":
            t.eq(way.ntr("diff", "-s", way.session), "")
            t.has(way.ntr("status", "-s", way.session), "a call is running")


@line("A.59", "as it is now and as a commit has it")
def _(way, t):
    way.terminal("echo 1 >f")
    head = way.head()
    with Running(way, t):
        t.eq(way.read("f"), b"2\n")
        if t.way_name != "mcp":
            t.eq(way.read("f", at=head[:12]), b"1\n")


@line("A.60", "a commit", ways="cli", why_not={"mcp": "history and diff tell it", "package": "history and fs.at tell it"})
def _(way, t):
    way.terminal("echo 1 >f")
    with Running(way, t):
        t.has(way.ntr("show", "-s", way.session, "HEAD"), "f")
        t.eq(json.loads(way.ntr("show", "-s", way.session, "HEAD", "--json"))["entries"][0]["path"], "f")


@line("A.61", "read-only, and as it was", why_not={"mcp": "an agent has no mount"})
def _(way, t):
    way.terminal("echo 1 >f")
    head = way.head()
    at = t.path("mnt")
    os.mkdir(at)
    with Running(way, t):
        if t.way_name == "package":
            with way.ws.mount(at, at=head):
                looked(at, t)
        else:
            way.ntr("mount", f"{way.session}@{head[:12]}", at)
            try:
                looked(at, t)
            finally:
                t.until(lambda: t.ntr("umount", at).returncode == 0)


def looked(at, t):
    with open(os.path.join(at, "f"), "rb") as f:
        t.eq(f.read(), b"1\n")
    try:
        with open(os.path.join(at, "f"), "wb"):
            raise AssertionError("written to an old commit")
    except OSError as e:
        t.like(str(e), "Read-only|Permission")
