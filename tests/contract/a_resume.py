"""Section A: the same name, and which names there are."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

from a_help import (
    RUN_ONLY,
)
from table import line
from ways import NTR, environment

# ---- the same name


@line("A.8", "for one who opens it anew, also after its processes have been stopped")
def _(way, t):
    way.terminal("mkdir -p d/e; echo x >d/e/f; ln -s e d/l; chmod 600 d/e/f; printf 'a\\0b' >bin")
    for _ in range(2):
        w = way.again()
        t.eq(w.terminal("cat d/l/f; stat -c %a d/e/f").text.split(), ["x", "600"])
        t.eq(w.read("bin"), b"a\0b")
        w.close()
        t.ok("stop", "-s", way.session)


@line("A.8", "for the other ways")
def _(way, t):
    way.terminal("echo x >f")
    for other in ("cli", "mcp"):
        w = t.open(way.session, way=other)
        t.eq(w.terminal("cat f").text.strip(), "x")
        t.eq(w.head(), way.head())


@line("A.9", "for one who opens it anew, also after its processes have been stopped")
def _(way, t):
    way.cache_set("k", {"n": [1, 2.5, "x", None, True]})
    t.ok("stop", "-s", way.session)
    t.eq(way.again().cache_get("k"), {"n": [1, 2.5, "x", None, True]})
    t.eq(json.loads(t.ok("cache", "get", "-s", way.session, "k", "--json"))["n"], [1, 2.5, "x", None, True])


@line("A.10", "also after the processes have been stopped")
def _(way, t):
    way.terminal("mkdir -p a/b; cd a/b")
    t.eq(way.again().terminal("pwd").text.strip(), "/workspace/a/b")
    t.ok("stop", "-s", way.session)
    t.eq(way.again().terminal("pwd").text.strip(), "/workspace/a/b")


@line("A.10", "shell and Python have the same one", shared=True)
def _(way, t):
    way.terminal("mkdir -p cwd/b; cd cwd/b")
    t.eq(way.run_python("import os; print(os.getcwd()); os.chdir('..')").text.strip(), "/workspace/cwd/b")
    t.eq(way.again().terminal("pwd; cd /workspace").text.strip(), "/workspace/cwd")


@line("A.10", "whatever the exit status of the script")
def _(way, t):
    way.terminal("mkdir d; cd d; exit 3")
    t.eq(way.terminal("pwd").text.strip(), "/workspace/d")


@line(
    "A.10",
    "another one for one call: from the root on, and the session keeps its own",
    why_not={"mcp": "ntr mcp has it for every call"},
)
def _(way, t):
    way.terminal("mkdir -p a/b; cd a/b")
    for cwd, wanted in (("a", "/workspace/a"), ("/workspace", "/workspace"), ("/tmp", "/tmp"), (".", "/workspace")):
        o = way.terminal("pwd; echo $PWD; cd ..", via="run", cwd=cwd)
        t.eq(o.stdout.split()[0], wanted)
        t.eq(way.terminal("pwd").text.strip(), "/workspace/a/b")
    way.terminal("echo x >../f")
    for cwd in ("none", "/workspace/none", "a/f"):
        with t.refused(
            f"start a call in .*{cwd}: (there is no such|it is no) directory; ",
            code={"cli": 125, "package": "WorkspaceError"},
        ):
            way.terminal("echo ran >/workspace/ran", via="run", cwd=cwd)
    t.eq(way.terminal("ls /workspace").text.split(), ["a"])


@line("A.10", "the option of all calls: where it is not there yet they begin in the root", ways="mcp", options={"cwd": "a"},
      why_not={"cli": "it is of a call", "package": "it is of a call"})  # fmt: skip
def _(way, t):
    t.eq(way.terminal("pwd; mkdir a").text.strip(), "/workspace")
    t.eq(way.terminal("pwd").text.strip(), "/workspace/a")


@line("A.11", "exported variables, not others; values of any kind; also after the processes have been stopped")
def _(way, t):
    way.terminal("export TABLE_A='x  y' TABLE_B=$'1\\n2' TABLE_C=; TABLE_D=no")
    show = 'printf "%s|" "$TABLE_A" "$TABLE_B" "${TABLE_C-unset}" "${TABLE_D-unset}"'
    t.eq(way.again().terminal(show).text, "x  y|1\n2||unset|")
    t.ok("stop", "-s", way.session)
    t.eq(way.again().terminal(show).text, "x  y|1\n2||unset|")
    way.terminal("unset TABLE_A")
    t.eq(way.again().terminal("echo ${TABLE_A-unset}").text.strip(), "unset")


@line("A.11", "in Python", shared=True)
def _(way, t):
    way.terminal("export TABLE_P='x  y'")
    t.eq(way.run_python("import os; print(os.environ['TABLE_P'])").text.strip(), "x  y")


@line("A.11", "the umask")
def _(way, t):
    way.terminal("umask 027")
    t.eq(way.again().terminal("umask").text.strip(), "0027")


@line("A.12", "however often and whatever is looked at")
def _(way, t):
    way.terminal("echo x >f; cd /workspace; export A=1")
    head = way.head()
    for _ in range(3):
        w = way.again().open()
        w.terminal("cat f")
        w.read("f")
        t.eq(w.head(), head)
        w.close()
        t.ok("stop", "-s", way.session)
    t.eq(len(way.history()), 2)


GOOD = ("-", "_", "0", "-x", "--long", "A-b_c.d", "a..b", "z.")


@line("A.13", "each of them")
def _(way, t):
    for end in GOOD:
        s = "-" if end == "-" else end[0] + t.session() + end[1:]
        t.sessions.append(s)
        t.eq(t.open(s).file_write("f", "hi").text, "wrote f (2 bytes)", s)


BAD = (
    "a/b",
    "../x",
    ".",
    ".x",
    "..",
    "a b",
    "a\n",
    "\na",
    "a:b",
    "a@b",
    "a~1",
    "ü",
    "a\tb",
    "*",
    "$x",
    "\x7f",
    "",
    "x" * 300,
)
NAMED = r"(?i)session name|use session"


@line("A.14", "as the session of the way")
def _(way, t):
    before = t.ok("sessions", "--json")
    for bad in BAD:
        with t.refused(NAMED, code={"cli": 2, "mcp": 2, "package": "SessionIdError"}):
            t.open(bad).terminal("true")
    t.has(t.ok("sessions", "--json"), "")
    names = {json.loads(x)["name"] for x in before.splitlines()}
    assert not names & set(BAD)


@line("A.14", "as the name of a fork")
def _(way, t):
    way.terminal("true")
    for bad in BAD:
        with t.refused(NAMED + "|pattern", code={"cli": 2, "package": "SessionIdError"}):
            way.fork(bad)


@line(
    "A.14",
    "as the session of a tool's call",
    ways="mcp",
    why_not={"cli": "-s is the first row", "package": "a Workspace has one session"},
)
def _(way, t):
    way.terminal("true")
    for bad in BAD:
        if not bad:
            with t.refused("session is no name of a session", code=-32602):
                way.tool("terminal", command="true", session=bad)
            continue
        o = way.tool("terminal", command="true", session=bad)
        assert not o.ok, bad
        t.like(o.text, NAMED)


VERBS = (
    "run -- true", "run -c true", "py -c 1", "tool terminal {}", "tool", "mcp", "log", "show HEAD", "diff", "status", "commit -m x",
    "discard", "rollback --steps 1", "ls", "cat f", "get f -", "put /etc/passwd f", "export --tar -", "cache ls",
    "cache get k", "cache set k v", "cache rm k", "ps", "stop",
)  # fmt: skip


@line("A.14", "every command that takes -s, and every one that takes a name", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    commands = [(v.split()[0], [*v.split(), "-s", bad]) if "--" not in v.split() else
                (v.split()[0], ["run", "-s", bad, "--", "true"]) for v in VERBS for bad in (".x", "a/b")]  # fmt: skip
    for bad in (".x", "a/b"):
        commands += [
            ("new", ["new", bad]),
            ("fork", ["fork", bad, "y"]),
            ("fork", ["fork", way.session, bad]),
            ("rm", ["rm", bad]),
        ]
        commands += [
            ("rename", ["rename", bad, "y"]),
            ("rename", ["rename", way.session, bad]),
            ("mount", ["mount", bad, t.dir]),
        ]
    way.terminal("true")
    with ThreadPoolExecutor(4) as pool:
        for (verb, args), p in zip(commands, pool.map(lambda c: t.ntr(*c[1]), commands)):
            t.like(p.stderr.decode(), "session name '(.x|a/b)': it is no valid name")
            t.eq(p.returncode, 125 if verb in ("run", "py") else 2, " ".join(args))


@line("A.14", "in NTR_SESSION", ways=("cli", "mcp"), why_not={"package": "the package does not look at NTR_SESSION"})
def _(way, t):
    for verb in (["run", "--", "true"], ["log"], ["mcp"]):
        p = subprocess.run(
            [NTR, *verb],
            env=environment(t.store, {"NTR_SESSION": "a/b"}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        t.like(p.stderr.decode(), "session name 'a/b'")
        t.eq(p.returncode, 125 if verb[0] == "run" else 2, verb[0])


@line(
    "A.14",
    "what is to be deleted, and names that are no text",
    ways="package",
    why_not={"cli": "all is text", "mcp": "the schema has a string"},
)
def _(way, t):
    import ntr

    for bad in (*BAD, None, 5, b"x"):
        for use in (ntr.workspace, ntr.delete):
            try:
                use(bad, store=t.store)
            except ntr.SessionIdError:
                continue
            raise AssertionError(f"{bad!r} was taken")
