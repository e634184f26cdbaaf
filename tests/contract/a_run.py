"""Section A: ntr run, streams, exit codes."""

from __future__ import annotations

import os
import subprocess
import time

from a_help import (
    NO_STATUS,
    RUN_ONLY,
)
from table import line
from ways import NTR, environment

# ---- ntr run


@line("A.23", "a command with its arguments as they are", why_not=RUN_ONLY)
def _(way, t):
    for dashes in ([], ["--"]):
        p = way.raw("run", "-s", way.session, *dashes, "printf", "<%s>", "a b", "", "*", "$HOME", "-c")
        t.eq((p.returncode, p.stdout), (0, b"<a b><><*><$HOME><-c>"))


@line("A.23", "it has this program's stdin", why_not=RUN_ONLY)
def _(way, t):
    t.eq(way.raw("run", "-s", way.session, "--", "tr", "a-z", "A-Z", stdin="shout\n").stdout, b"SHOUT\n")


@line("A.23", "without -s: NTR_SESSION, and without that the session default", why_not=RUN_ONLY)
def _(way, t):
    p = t.ntr("run", "--", "touch", "here", env={"NTR_SESSION": way.session})
    t.eq(p.returncode, 0)
    t.eq(way.read("here"), b"")
    t.sessions.append("default")
    t.ok("run", "--", "touch", "there")
    t.eq(t.open("default").read("there"), b"")


@line("A.24", "a script with what bash has")
def _(way, t):
    text = way.terminal('f() { echo "[$1]"; }; for i in {1..3}; do f $i; done\ncat <<X\nhere $((6 * 7))\nX').text
    t.eq(text.split(), ["[1]", "[2]", "[3]", "here", "42"])


@line("A.24", "-c", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    t.eq(way.ntr("run", "-s", way.session, "-c", "echo $((1+1)); cd /; pwd"), "2\n/\n")


@line("A.25", "with - and without, empty too", why_not=RUN_ONLY)
def _(way, t):
    t.eq(way.ntr("run", "-s", way.session, "-", stdin="echo $((1 + 1))\n"), "2\n")
    t.eq(way.ntr("run", "-s", way.session, stdin="echo bare\nread x <<<y; echo $x"), "bare\ny\n")
    t.eq(way.ntr("run", "-s", way.session, stdin=""), "")


@line("A.26", "arrays, process substitution, pipefail, [[ =~ ]]")
def _(way, t):
    script = """a=(x 'y z'); echo ${#a[@]} "${a[1]}"; diff <(echo 1) <(echo 1) && echo same
        set -o pipefail; false | true; echo $?; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}; echo ${BASH_VERSINFO[0]}"""
    words = way.terminal(script).text.split()
    t.eq(words[:-1], ["2", "y", "z", "same", "1", "c"])
    assert int(words[-1]) >= 4


# ---- streams and exit codes

BYTES = "printf 'a\\0b\\377\\n\\r\\n\\tno newline'"


@line(
    "A.27",
    "byte by byte, to a pipe and to a file",
    ways="cli",
    why_not={"mcp": "text for an agent, see D", "package": "see below"},
)
def _(way, t):
    wanted = b"a\0b\xff\n\r\n\tno newline"
    p = way.raw("run", "-s", way.session, "-c", BYTES)
    t.eq((p.stdout, p.stderr), (wanted, b""))
    with open(t.path("out", ""), "wb") as f:
        subprocess.run(
            [NTR, "run", "-s", way.session, "-c", BYTES],
            env=environment(t.store),
            stdin=subprocess.DEVNULL,
            stdout=f,
            check=True,
        )
    with open(t.path("out"), "rb") as f:
        t.eq(f.read(), wanted)


@line(
    "A.27",
    "five megabytes of it",
    ways="cli",
    why_not={"mcp": "text for an agent, see D", "package": "an observation is cut, see C"},
)
def _(way, t):
    p = way.raw("run", "-s", way.session, "-c", "head -c 5000000 /dev/zero | tr '\\0' x")
    t.eq((len(p.stdout), set(p.stdout)), (5000000, {ord("x")}))


@line("A.27", "in the result")
def _(way, t):
    o = way.terminal("printf 'ü  x\\n\\n\\ty'")
    t.eq(o.text, "ü  x\n\n\ty")
    if t.way_name != "mcp":
        t.eq((o.stdout, o.stderr), ("ü  x\n\n\ty", ""))


@line("A.27", "bytes in the result", ways="package", why_not={"cli": "see above", "mcp": "text for an agent, see D"})
def _(way, t):
    t.eq(way.terminal(BYTES).raw.stdout_bytes, b"a\0b\xff\n\r\n\tno newline")


@line(
    "A.28",
    "byte by byte, apart from stdout",
    ways="cli",
    why_not={"mcp": "text for an agent, see D", "package": "see below"},
)
def _(way, t):
    p = way.raw("run", "-s", way.session, "-c", f"({BYTES}) >&2; echo out")
    t.eq((p.stdout, p.stderr), (b"out\n", b"a\0b\xff\n\r\n\tno newline"))


@line("A.28", "in the result")
def _(way, t):
    o = way.terminal("echo out; echo err >&2")
    t.eq(o.text, "out\n[stderr]\nerr")
    if t.way_name != "mcp":
        t.eq((o.stdout, o.stderr), ("out\n", "err\n"))


@line("A.29", "each kind")
def _(way, t):
    for code in (0, 1, 7, 77, 255):
        o = way.terminal(f"exit {code}")
        t.eq((o.exit_code, o.ok), (code, code == 0))


@line("A.29", "as ntr's own, of a command, a script, and with --json", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    for args in (["--", "sh", "-c", "exit 7"], ["-c", "exit 7"], ["--json", "-c", "exit 7"]):
        t.eq(way.raw("run", "-s", way.session, *args).returncode, 7, args)


@line("A.30", "a file without the right, and a directory")
def _(way, t):
    way.terminal("echo x >plain; mkdir folder")
    for what in ("plain", "folder"):
        t.eq(way.terminal(f"./{what}").exit_code, 126, what)
        if t.way_name == "cli":
            p = way.raw("run", "-s", way.session, "--", f"./{what}")
            t.eq((p.returncode, p.stdout), (126, b""), what)
            t.like(p.stderr.decode(), what)


@line("A.31", "a name that is nowhere, and a path")
def _(way, t):
    for what in ("no-such-command", "./none"):
        o = way.terminal(what)
        t.eq(o.exit_code, 127, what)
        t.has(o.text, "[exit code 127]")
        if t.way_name == "cli":
            p = way.raw("run", "-s", way.session, "--", what)
            t.eq((p.returncode, p.stdout), (127, b""), what)
            t.like(p.stderr.decode(), what)


@line("A.32", "the signals that end a shell or a command")
def _(way, t):
    for number in (2, 9, 11, 15):
        t.eq(way.terminal(f"kill -{number} $$").exit_code, 128 + number)
        t.eq(way.terminal(f"sh -c 'kill -{number} $$'; exit $?").exit_code, 128 + number)
    if t.way_name == "cli":
        t.eq(way.raw("run", "-s", way.session, "--", "sh", "-c", "kill -9 $$").returncode, 137)


@line("A.33", "bad usage, a store that cannot be", why_not=NO_STATUS)
def _(way, t):
    for args in (["--no-such-option"], ["--timeout", "soon", "-c", "true"], ["--env", "x", "-c", "true"],
                 ["--mount", "x", "-c", "true"],
                 ["--store", "/dev/null/x", "--", "true"], ["-c"]):  # fmt: skip
        p = way.raw("run", "-s", way.session, *args)
        t.eq((p.returncode, p.stdout), (125, b""), args)
        t.like(p.stderr.decode(), "^ntr: ")


@line("A.33", "a directory to begin in that is not there", why_not=NO_STATUS)
def _(way, t):
    p = way.raw("run", "-s", way.session, "--cwd", "/workspace/none", "--", "true")
    t.eq(p.returncode, 125)
    t.like(p.stderr.decode(), "^ntr: start a call in /workspace/none: there is no such directory; ")


@line("A.34", "the exit code, and that the result says so", options={"timeout": 0.3})
def _(way, t):
    o = way.terminal("echo before; echo x >f; sleep 9")
    t.eq((o.exit_code, o.timed_out, o.ok), (124, True, False))
    t.has(o.text, "before\n[exit code 124]")
    t.eq(way.read("f"), b"x\n")
    assert o.duration < 5


@line("A.34", "all that it has started has ended", options={"timeout": 0.3})
def _(way, t):
    alive = t.path("alive")
    way.terminal(f"(while :; do echo >>{alive}; sleep 0.02; done) & sleep 9")
    size = os.path.getsize(alive)
    time.sleep(0.1)
    t.eq(os.path.getsize(alive), size)


@line("A.34", "Python code", options={"timeout": 0.5}, shared=True)
def _(way, t):
    o = way.run_python("import time; print('before', flush=True); time.sleep(9)")
    t.eq((o.exit_code, o.timed_out, o.ok), (124, True, False))
    t.has(o.text, "before")


@line("A.35", "on stderr of ntr run", ways="cli", why_not=RUN_ONLY)
def _(way, t):
    for limit, name in (("0.2", "0.2s"), ("200ms", "200ms|0.2s")):
        p = way.raw("run", "-s", way.session, "--timeout", limit, "-c", "echo out; sleep 9")
        t.eq((p.returncode, p.stdout), (124, b"out\n"))
        t.like(p.stderr.decode(), f"^ntr: run: timed out: .*limit of ({name})")


@line("A.35", "in the text for the agent", options={"timeout": 0.2})
def _(way, t):
    t.like(way.terminal("sleep 9").text, r"\[hint: .*0\.2 s")
