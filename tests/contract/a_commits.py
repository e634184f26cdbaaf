"""Section A: what becomes a commit, what it tells, and the result of a call."""

from __future__ import annotations

import json
import os

from a_help import (
    ALL_FOUR,
    RUN_ONLY,
    four,
    told,
    tools_of,
)
from table import line

# ---- commits


@line("A.36", "of many files")
def _(way, t):
    o = way.terminal("for i in {1..50}; do echo $i >f$i; done; mkdir -p a/b; sleep 0.05; rm f1; echo x >>f2")
    t.eq(way.head(), o.commit)
    t.eq(len(way.history()), 2)


@line("A.36", "of many files and values, in Python", shared=True)
def _(way, t):
    way.terminal("true")
    before = way.history()
    o = way.run_python("for i in range(50): open(f'p{i}', 'w').write('x')\ncache['k'] = 1\ncache['l'] = 2")
    t.eq([c["commit"] for c in way.history()], [o.commit, *[c["commit"] for c in before]])


@line("A.36", "also when it fails, is ended by a signal, or runs into its limit", options={"timeout": 0.5})
def _(way, t):
    for n, end in enumerate(("exit 1", "kill -9 $$", "sleep 9"), 2):
        assert way.terminal(f"echo x >f{n}; {end}").commit
        t.eq(len(way.history()), n)


@line("A.37", "one commit has all four")
def _(way, t):
    o = way.terminal(ALL_FOUR.format(1))
    t.eq(o.exit_code, 0, o.text)
    t.eq(tools_of(way)[1:], ["init"])
    t.eq(way.head(), o.commit)
    f = way.fork(t.session(), at=o.commit)
    t.eq(four(f), ["1", "1", "/workspace/d", "1"])


@line("A.37", "each of them alone is a commit")
def _(way, t):
    for n, change in enumerate(("echo x >f", "ntr cache set k v", "mkdir d", "cd d", "export TABLE_Y=1", "umask 077"), 2):
        assert way.terminal(change).commit, change
        t.eq(len(way.history()), n, change)


@line("A.38", "by one rollback")
def _(way, t):
    way.terminal(ALL_FOUR.format(1))
    way.terminal(ALL_FOUR.format(2) + "; cd ..")
    t.eq(four(way), ["2", "2", "/workspace", "2"])
    way.rollback(1)
    t.eq(four(way), ["1", "1", "/workspace/d", "1"])
    way.rollback(1)
    t.eq(four(way), ["-", "-", "/workspace", "-"])


@line("A.39", "who reads while the call runs sees its commit as a whole or not at all")
def _(way, t):
    way.terminal(ALL_FOUR.format(1))
    head, gate, begun = way.head(), t.path("gate"), t.path("begun")
    wait = t.background(
        lambda: way.again().terminal(ALL_FOUR.format(2) + f"; touch {begun}; until [ -e {gate} ]; do sleep 0.01; done")
    )
    t.until(lambda: os.path.exists(begun))
    t.eq(way.head(), head)
    t.eq(t.ok("cat", "-s", f"{way.session}~0", "f"), "1\n")
    t.eq(t.ok("cache", "get", "-s", f"{way.session}~0", "k"), "1")
    t.path("gate", "")
    t.eq(wait().exit_code, 0)
    t.eq(four(way)[:2], ["2", "2"])


# ---- what a commit tells


@line("A.40", "each tool by its name", shared=True)
def _(way, t):
    way.terminal("date +%s%N >tool-t")
    way.run_python("open('tool-p', 'w').write('x')")
    way.file_write("tool-f", "x")
    way.file_edit("tool-f", "x", "y")
    t.eq(tools_of(way)[:4], ["file_edit", "file_write", "run_python", "terminal"])


@line("A.40", "those of the commands", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    way.ntr("run", "-s", way.session, "-c", "echo 1 >f")
    way.ntr("py", "-s", way.session, "-c", "open('f', 'w')")
    way.ntr("put", "-s", way.session, "-", "f", stdin="x")
    way.cache_set("k", 1)
    t.eq(tools_of(way), ["cache", "put", "py", "run", "init"])


@line("A.41", "the script, the code, the path", shared=True)
def _(way, t):
    way.terminal("echo 'ä' >told-t\n:")
    t.eq(told(way)["script"], "echo 'ä' >told-t\n:")
    way.run_python("open('told-p', 'w').write('x')\n1")
    t.eq(told(way)["code"], "open('told-p', 'w').write('x')\n1")
    way.file_write("told/f", "x")
    t.eq(told(way)["path"], "told/f")


@line("A.41", "the arguments", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    way.ntr("run", "-s", way.session, "--", "touch", "a b", "*")
    t.eq(told(way)["argv"], ["touch", "a b", "*"])


@line("A.42", "whatever it is")
def _(way, t):
    for n, code in enumerate((0, 1, 7, 137)):
        way.terminal(f"echo {n} >f; exit {code}" if code != 137 else f"echo {n} >f; kill -9 $$")
        t.eq(told(way)["exit_code"], code)


@line("A.42", "of Python", shared=True)
def _(way, t):
    way.run_python("open('code', 'w').write('x'); raise SystemExit(5)")
    t.eq(told(way)["exit_code"], 5)


@line("A.43", "in seconds, as the result does")
def _(way, t):
    o = way.terminal("echo 1 >f; sleep 0.2")
    assert 0.2 <= told(way)["duration"] < 5, told(way)
    t.eq(round(o.duration, 6), round(told(way)["duration"], 6))


@line("A.44", "of both streams together")
def _(way, t):
    way.terminal("echo 1 >f; printf 12345; printf 678 >&2; printf ü")
    t.eq(told(way)["bytes_out"], 10)


@line("A.44", "of Python", shared=True)
def _(way, t):
    way.run_python("open('out', 'w').write('x')\nprint('1234')")
    t.eq(told(way)["bytes_out"], 5)


@line(
    "A.44",
    "where the streams are the caller's own, nobody counts them, and the commit does not say",
    ways="cli",
    why_not=RUN_ONLY,
)
def _(way, t):
    way.ntr("run", "-s", way.session, "-c", "echo 1 >f; echo 12345")
    assert "bytes_out" not in told(way), told(way)
    way.ntr("run", "-s", way.session, "--json", "-c", "echo 2 >f; echo 12345")
    t.eq(told(way)["bytes_out"], 6)


@line("A.45", "created, modified, deleted")
def _(way, t):
    way.terminal("echo 1 >a; echo 2 >b; mkdir d; ln -s a l")
    t.eq(dict(told(way)["changes"]), {"created": 4, "modified": 0, "deleted": 0})
    way.terminal("echo 3 >>a; chmod 600 b; rm l; echo n >n")
    t.eq(dict(told(way)["changes"]), {"created": 1, "modified": 2, "deleted": 1})
    way.terminal("rm -r d")
    t.eq(dict(told(way)["changes"]), {"created": 0, "modified": 0, "deleted": 1})
    way.terminal("export TABLE_Z=1")
    t.eq(dict(told(way)["changes"]), {"created": 0, "modified": 0, "deleted": 0})


@line("A.46", "reading, failing, making and taking back")
def _(way, t):
    way.terminal("echo 1 >f; mkdir d")
    head = way.head()
    for script in ("cat f", "false", "ls -la; find .", "echo 2 >g; rm g", "cd d; cd ..", "export TABLE_Q=1; unset TABLE_Q",
                   "x=1; f() { :; }", "true >>f", "chmod 644 f; umask 022", "sleep 0 &"):  # fmt: skip
        if script.startswith("chmod"):
            way.terminal(script)
            head = way.head()
        o = way.terminal(script)
        t.eq((o.commit, way.head()), (None, head), script)


@line("A.46", "in Python and in the file tools", shared=True)
def _(way, t):
    way.file_write("same", "x\n")
    way.run_python("cache['same'] = [1]")
    head = way.head()
    for code in (
        "open('same').read()",
        "1 / 0",
        "cache['same']",
        "cache['same'] = [1]",
        "x = 5",
        "import os; os.environ['A'] = '1'",
    ):
        t.eq((way.run_python(code).commit, way.head()), (None, head), code)
    t.eq((way.file_write("same", "x\n").commit, way.head()), (None, head))
    t.eq((way.file_edit("same", "none", "y").ok, way.head()), (False, head))


# ---- --json


@line("A.47", "these members, of these types", ways="cli", why_not={"mcp": "see below", "package": "see below"})
def _(way, t):
    m = json.loads(way.ntr("run", "-s", way.session, "--json", "-c", "echo out; echo err >&2; echo x >f"))
    t.eq({k: type(v) for k, v in m.items()},
         {"stdout": str, "stderr": str, "exit_code": int, "timed_out": bool, "truncated": bool, "duration": float,
          "commit": str, "changes": dict})  # fmt: skip
    t.eq((m["stdout"], m["stderr"], m["exit_code"], m["timed_out"], m["truncated"]), ("out\n", "err\n", 0, False, False))
    t.like(m["commit"], "^[0-9a-f]{40}$")
    p = way.raw("run", "-s", way.session, "--json", "-c", "exit 3")
    t.eq((json.loads(p.stdout)["exit_code"], p.returncode), (3, 3))


@line(
    "A.47",
    "one line of JSON, of a command too, and with output that is no UTF-8",
    ways="cli",
    why_not={"mcp": "see below", "package": "see below"},
)
def _(way, t):
    out = way.ntr("run", "-s", way.session, "--json", "--", "printf", "a\\377b")
    t.eq(out.count("\n"), 1)
    t.eq(json.loads(out)["stdout"], {"base64": "Yf9i"})


@line(
    "A.47",
    "truncated: a stream beyond 16 MiB",
    ways="cli",
    why_not={"mcp": "cut at 32,000 characters, see C", "package": "cut at 32,000 characters, see C"},
    long=True,
)
def _(way, t):
    m = json.loads(way.ntr("run", "-s", way.session, "--json", "-c", "head -c 16777216 /dev/zero | tr '\\0' x; echo e >&2"))
    t.eq((len(m["stdout"]), m["truncated"]), (16777216, False))
    m = json.loads(way.ntr("run", "-s", way.session, "--json", "-c", "head -c 16777217 /dev/zero | tr '\\0' x; echo e >&2"))
    t.eq((len(m["stdout"]), m["stderr"], m["truncated"]), (16777216, "e\n", True))


@line("A.47", "the same of the tools")
def _(way, t):
    o = way.terminal("echo out; echo x >f; exit 3")
    t.eq((o.exit_code, o.timed_out, o.truncated), (3, False, False))
    assert isinstance(o.duration, float) and 0 <= o.duration < 30
    t.like(o.commit, "^[0-9a-f]{40}$")
    t.eq(o.commit, way.head())


@line("A.48", "in every result")
def _(way, t):
    o = way.terminal("true")
    t.eq((o.data["commit"], o.commit), (None, None))
    if t.way_name == "cli":
        t.has(way.ntr("run", "-s", way.session, "--json", "-c", "true"), '"commit":null')


@line("A.49", "in every result")
def _(way, t):
    def changes(o):
        return dict(o.data["changes"])

    t.eq(changes(way.terminal("echo 1 >a; echo 1 >b; mkdir c")), {"created": 3, "modified": 0, "deleted": 0})
    t.eq(changes(way.terminal("echo 2 >a; rm b; echo 1 >d")), {"created": 1, "modified": 1, "deleted": 1})
    t.eq(changes(way.terminal("true")), {"created": 0, "modified": 0, "deleted": 0})
    if t.way_name == "cli":
        t.eq(way.run("-c", "echo 3 >a; touch e").data["changes"], {"created": 1, "modified": 1, "deleted": 0})
