"""Section D: the tools history, diff, fork and rollback."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from typing import Any

from d_help import holds, lacks, said, same
from table import line
from ways import Way


@line(
    "D.21",
    "history, diff, fork and rollback are there when they are turned on only",
    ways=("mcp", "package"),
    why_not={"cli": "ntr tool is for who puts an agent together and has all tools"},
)
def versions_off(way: Way, t: Any) -> None:
    base = ["terminal", "run_python", "file_write", "file_edit", "view_image"]
    off = way.again(versions=False).tools() if way.name == "mcp" else way.ws.tools()  # type: ignore[attr-defined]
    same([x["name"] for x in off], base)
    same([x["name"] for x in way.tools()], [*base, "history", "diff", "fork", "rollback"])


ROW = r"[0-9a-f]{12}  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "


@line("D.22", "history: a line a step, newest first, with id, time, tool, exit code, counts and what ran")
def tool_history(way: Way, t: Any) -> None:
    way.tool("terminal", command="echo 1 > a; exit 3")
    way.file_write("b", "x")
    way.tool("terminal", command="rm a\necho 2 >> b")
    o = way.tool("history")
    want = [
        r"terminal  \+0 ~1 -1  rm a echo 2 >> b",
        r"file_write  \+1 ~0 -0  b",
        r"terminal  exit 3  \+1 ~0 -0  echo 1 > a; exit 3",
        r"init  \+0 ~0 -0",
    ]
    lines = (o.text or "").split("\n")
    same(len(lines), 4)
    for got, pattern in zip(lines, want):
        assert re.fullmatch(ROW + pattern, got), (got, pattern)
    ids = [c["commit"] for c in way.history()]
    same([x[:12] for x in lines], [x[:12] for x in ids])
    same(way.tool("history", limit=1).text, lines[0])
    said(way.tool("history", limit=0), "history failed: the argument 'limit' is out of range", ok=False)


@line("D.22", "history of a session that nobody has used", ways=("cli", "mcp"), why_not={"package": "ntr.workspace() makes the session"})
def tool_history_none(way: Way, t: Any) -> None:
    w = way.again(t.session())
    said(w.tool("history"), "(no history yet)")
    said(w.tool("diff"), "(no history yet)")
    lacks(t.ok("sessions", "--json"), f"{way.session}-none")


@line("D.23", "diff: what the last step changed, or between two states, of all or of one path")
def tool_diff(way: Way, t: Any) -> None:
    way.file_write("a", "1\n")
    way.tool("terminal", command="echo 2 >> a; echo n > b; printf '\\0' > bin")
    text = way.tool("diff", path="a").text
    holds(text, "diff --git a/a b/a\n", "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n 1\n+2")
    lacks(text, "b/b")
    holds(way.tool("diff").text, "b/a", "b/b", "(binary, not shown)")
    holds(way.tool("diff", **{"from": "~2", "path": "/workspace/a"}).text, "@@ -0,0 +1,2 @@\n+1\n+2")
    ids = [c["commit"] for c in way.history()]
    holds(way.tool("diff", **{"from": ids[0], "to": ids[1], "path": "a"}).text, "@@ -1,2 +1 @@\n 1\n-2")
    said(way.tool("diff", **{"from": "HEAD"}), "(no differences)")
    said(way.tool("diff", path="/etc"), "diff failed: the path is not inside the workspace", ok=False)


@line("D.23", "the patch of diff is one that git apply takes")
def tool_diff_applies(way: Way, t: Any) -> None:
    way.tool("terminal", command="seq 9 > a; echo x > 'b c'; chmod +x a")
    o = way.tool("diff")
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run(["git", "apply"], input=(o.text or "").encode() + b"\n", cwd=d, capture_output=True, check=False)
        same(p.returncode, 0, p.stderr.decode())
        same((sorted(os.listdir(d)), os.access(f"{d}/a", os.X_OK)), (["a", "b c"], True))


@line("D.24", "fork: forked NAME from SESSION at ID; neither changes the other")
def tool_fork(way: Way, t: Any) -> None:
    way.tool("terminal", command="echo 1 > a; mkdir d; cd d; export V=1")
    name, head = t.session(), way.head()
    said(way.tool("fork", name=name), f"forked {name} from {way.session} at {head[:12]}")
    w = way.again(name)
    said(w.tool("terminal", command="pwd; echo $V; rm ../a"), "/workspace/d\n1")
    same((way.read("a"), way.head()), (b"1\n", head))
    o = way.tool("fork", name=name)
    same(o.ok, False)
    holds(o.text, "fork failed: make session", "there is a session of that name; choose another name")
    o = way.tool("fork", name=".x")
    same(o.ok, False)
    holds(o.text, "fork failed: session name '.x': it is no valid name")
    said(way.tool("fork", name=f"{name}0", **{"from": "~1"}), f"forked {name}0 from {way.session} at {way.history()[1]['commit'][:12]}")


@line("D.25", "rollback: by steps or to an id; files, cache, directory and variables")
def tool_rollback(way: Way, t: Any) -> None:
    way.tool("terminal", command="echo 1 > a")
    way.tool("run_python", code="cache['k'] = 1")
    two = way.head()
    way.tool("terminal", command="rm a; mkdir d; cd d; export V=1")
    way.tool("run_python", code="cache['k'] = 2")
    o = way.tool("rollback", steps=2)
    same(o.ok, True)
    assert re.fullmatch("rolled back to " + ROW + r"run_python  \+0 ~0 -0  cache\['k'\] = 1", o.text or ""), o.text
    same((way.head(), way.read("a")), (two, b"1\n"))
    said(way.tool("terminal", command="pwd; echo ${V-none}"), "/workspace\nnone")
    said(way.tool("run_python", code="cache['k']"), "1")
    way.tool("terminal", command="rm a")
    holds(way.tool("rollback", commit=two[:10]).text, f"rolled back to {two[:12]}  ")
    same(way.read("a"), b"1\n")


@line("D.25", "rollback failed: WHY")
def tool_rollback_failed(way: Way, t: Any) -> None:
    way.tool("terminal", command="echo 1 > a")
    head = way.head()
    said(way.tool("rollback"), "rollback failed: one of the arguments 'steps' and 'commit' is needed", ok=False)
    said(way.tool("rollback", steps=1, commit=head), "rollback failed: one of the arguments 'steps' and 'commit' is needed", ok=False)
    said(way.tool("rollback", steps=0), "rollback failed: the argument 'steps' is out of range", ok=False)
    for args in ({"steps": 5}, {"commit": "0123456789"}):
        o = way.tool("rollback", **args)
        same(o.ok, False)
        holds(o.text, "rollback failed: ")
    same(way.head(), head)


@line("D.25", "rollback ends background processes and says so")
def tool_rollback_kills(way: Way, t: Any) -> None:
    way.tool("terminal", command="echo 1 > a")
    way.tool("terminal", command="echo 2 > a; sleep 60 > /dev/null 2>&1 &")
    holds(way.tool("rollback", steps=1).text, "\n1 background process ended")
    said(way.tool("terminal", command="jobs -p; cat a"), "1")
