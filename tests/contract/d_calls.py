"""Section D: calling tools, what a call's text is, and how the tools are described."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from d_help import holds, lacks, raises, refused, said, same, tools
from table import line
from ways import NTR, Way, environment


@line("D.1", "terminal: command is a script of real bash", shared=True)
def real_bash(way: Way, t: Any) -> None:
    o = way.tool(
        "terminal",
        command="a=(1 2 3); cat <<X | tr 2 b\n${a[1]} ${#a[@]} ${BASH_VERSION:+bash}\nX\nshopt -s extglob; [[ ab == @(ab|c) ]] && echo yes",
    )
    said(o, "b 3 bash\nyes")


@line("D.1", "terminal: files, directory and exports are there at the next call; functions and plain variables are not")
def sticky(way: Way, t: Any) -> None:
    way.tool("terminal", command="mkdir -p d; cd d; echo 1 > f; export A=1; B=2; f() { :; }; alias x=y")
    said(
        way.tool("terminal", command="pwd; cat f; echo ${A-none} ${B-none}; type f 2>&1 | head -1"),
        "/workspace/d\n1\n1 none\nbash: line 1: type: f: not found",
    )


@line("D.2", "run_python: code, with the files and the directory of the terminal")
def python_shares(way: Way, t: Any) -> None:
    way.tool("terminal", command="mkdir -p d; cd d; echo 1 > f")
    said(way.tool("run_python", code="open('g', 'w').write('2')\nimport os\nos.getcwd(), open('f').read()"), "('/workspace/d', '1\\n')")
    said(way.tool("terminal", command="cat g"), "2")


@line("D.3", "the arguments of each tool are those of the contract, and those without a default are required", shared=True)
def arguments(way: Way, t: Any) -> None:
    want = {
        "terminal": (["command"], ["command"]),
        "run_python": (["code"], ["code"]),
        "file_write": (["content", "path"], ["content", "path"]),
        "file_edit": (["new_string", "old_string", "path", "replace_all"], ["new_string", "old_string", "path"]),
        "view_image": (["path"], ["path"]),
    }
    have = tools(way.again(versions=False) if way.name == "mcp" else way)
    for name, (all_of_them, required) in want.items():
        schema = have[name]["inputSchema"]
        same((sorted(schema["properties"]), sorted(schema["required"])), (all_of_them, required), name)
        same((schema["type"], schema["additionalProperties"]), ("object", False), name)


@line("D.3", "arguments that are missing, unknown or of another type are an answer that says so", shared=True)
def bad_arguments(way: Way, t: Any) -> None:
    for name, args, text in (
        ("terminal", {}, "terminal failed: the argument 'command' is missing"),
        ("terminal", {"command": None}, "terminal failed: the argument 'command' is missing"),
        ("terminal", {"command": 5}, "terminal failed: the argument 'command' is no string"),
        ("terminal", {"command": "true", "cwd": "/"}, "terminal failed: there is no argument 'cwd'; it takes command"),
        ("terminal", {"command": "a\0b"}, "terminal failed: the command holds a NUL, which bash cannot read"),
        ("run_python", {}, "run_python failed: the argument 'code' is missing"),
        ("run_python", {"code": ["1"]}, "run_python failed: the argument 'code' is no string"),
        ("run_python", {"code": "1\0"}, "run_python failed: the code holds a NUL; write it as \\0 in a string"),
        ("file_write", {"path": "a"}, "write failed: the argument 'content' is missing"),
        ("file_write", {"path": "a", "content": {"a": 1}}, "write failed: the argument 'content' is no string"),
        ("file_edit", {"path": "a", "old_string": "b"}, "edit failed: the argument 'new_string' is missing"),
        (
            "file_edit",
            {"path": "a", "old_string": "b", "new_string": "c", "replace_all": "all"},
            "edit failed: the argument 'replace_all' is no boolean",
        ),
        ("view_image", {}, "view_image failed: the argument 'path' is missing"),
    ):
        said(way.tool(name, **args), text, ok=False)


@line("D.3", "an unknown tool is named, and nothing runs", shared=True)
def unknown_tool(way: Way, t: Any) -> None:
    if way.name == "package":  # a loop goes on with what a model made up
        said(way.tool("nosuch", command="touch f"), "there is no tool 'nosuch'", ok=False)
    else:
        refused(lambda: way.tool("nosuch", command="touch f"), "there is no tool 'nosuch'", code={"cli": 2, "mcp": -32602}[way.name])


@line("D.4", "test_app and --apps, which this version does not have, are named as what is not there", shared=True)
def no_apps(way: Way, t: Any) -> None:
    same("test_app" in tools(way), False)
    if way.name == "package":
        said(way.tool("test_app", actions=[]), "there is no tool 'test_app'", ok=False)
        import ntr

        raises(TypeError, lambda: ntr.workspace("x", store=way.store, apps_primer="x"))
        return
    refused(lambda: way.tool("test_app", actions=[]), "there is no tool 'test_app'")
    p = subprocess.run([NTR, "mcp", "--apps"], env=environment(way.store), capture_output=True, stdin=subprocess.DEVNULL, check=False)
    same((p.returncode, p.stdout), (2, b""))
    holds(p.stderr.decode(), "ntr: mcp: unrecognized option '--apps'")


# ---- texts of calls

# What it is, tool, argument, the text, whether it went well.
TEXTS = [
    ("stdout, without the newlines at its end", "terminal", "printf '  a\\n b \\n\\n'", "  a\n b ", True),
    ("[exit code N], when it is not 0", "terminal", "exit 3", "[exit code 3]", False),
    ("[exit code 128+N] of a signal", "terminal", "kill -TERM $$", "[exit code 143]", False),
    ("[stderr] and the stream, also of what went well", "terminal", "echo w >&2", "[stderr]\nw", True),
    ("stdout, exit code, stderr: in this order", "terminal", "echo e >&2; echo o; exit 2", "o\n[exit code 2]\n[stderr]\ne", False),
    ("(no output)", "terminal", "true", "(no output)", True),
    ("(no output) of blank lines, too", "terminal", "echo; echo", "(no output)", True),
    ("no (no output) beside an exit code", "terminal", "false", "[exit code 1]", False),
    ("bytes that are no UTF-8 as U+FFFD", "terminal", "printf 'a\\377b'", "a\ufffdb", True),
    ("[hint: …] of a program that is not there", "terminal", "frobnicate-x", "[exit code 127]\n[stderr]\nbash: line 1: frobnicate-x: command not found\n[hint: there is no such program here; `command -v NAME` tells what there is]", False),
    ("[hint: …] of what is not executable", "terminal", "echo true > x; ./x", "[exit code 126]\n[stderr]\nbash: line 1: ./x: Permission denied\n[hint: it is not executable: `chmod +x FILE`, or name its interpreter, as in `bash FILE`]", False),
    ("no hint where all went well", "terminal", "echo x: command not found >&2", "[stderr]\nx: command not found", True),
    ("what Python printed, then its last value", "run_python", "print('a')\n1 + 1", "a\n2", True),
    ("(no output) of Python", "run_python", "x = 1\nNone", "(no output)", True),
    ("[error] and the traceback", "run_python", "1/0", '[error]\nTraceback (most recent call last):\n  File "<run_python>", line 1, in <module>\n    1/0\n     ~^~\nZeroDivisionError: division by zero', False),
    ("stdout, [stderr], [error], [hint: …]: in this order", "run_python", "import sys\nprint('o')\nprint('e', file=sys.stderr)\nimport nosuch_x", "o\n[stderr]\ne\n[error]\nTraceback (most recent call last):\n  File \"<run_python>\", line 4, in <module>\n    import nosuch_x\nModuleNotFoundError: No module named 'nosuch_x'\n[hint: there is no module 'nosuch_x' here; in the terminal: `python3 -m venv /workspace/.venv && /workspace/.venv/bin/pip install nosuch_x`]", False),
    ("[exit code N] of sys.exit", "run_python", "import sys\nsys.exit(4)", "[exit code 4]", False),
    ("[ui artifacts: …]", "run_python", "ui = {'a': {'x': 1}}\n7", "7\n[ui artifacts: a -> /workspace/ui/a.json]", True),
]  # fmt: skip


def texts() -> None:
    for what, tool, argument, text, ok in TEXTS:
        if "~^~" in text and sys.version_info < (3, 11):
            continue  # the interpreter's own marks

        @line(
            "D.16" if "[hint" in what or "hint where" in what else "D.17" if "(no output)" in what else "D.15",
            f"an agent reads {what}",
            shared=True,
        )
        def row(way: Way, t: Any, tool=tool, argument=argument, text=text, ok=ok) -> None:
            key = "command" if tool == "terminal" else "code"
            said(way.tool(tool, **{key: argument}), text, ok)


texts()


@line("D.15", "each stream is cut at 32,000 characters, and [output truncated] says so", shared=True)
def truncated(way: Way, t: Any) -> None:
    o = way.tool("terminal", command="printf '%032000d' 0; printf '%032000d' 1 >&2")
    same((len(o.text or ""), o.ok), (64000 + len("\n[stderr]\n"), True))
    lacks(o.text, "truncated")
    o = way.tool("terminal", command="printf '%032001d' 0")
    same(o.text, "0" * 32000 + "\n[output truncated]")
    same(o.truncated, True)
    o = way.tool("terminal", command="for i in {1..32001}; do printf ä; done >&2; exit 1")
    same(o.text, "[exit code 1]\n[stderr]\n" + "ä" * 32000 + "\n[output truncated]")


@line("D.15", "what Python prints too much of is shown in another form, and [output truncated] says so", shared=True)
def python_truncated(way: Way, t: Any) -> None:
    o = way.tool("run_python", code="print(list(range(100000)))")
    assert o.text and len(o.text) < 33000 and o.text.endswith("\n[output truncated]"), o.text[-200:]
    holds(o.text, "[0, 1, 2, ", " more")


@line("D.16", "a time limit: exit code 124 and a hint that names it")
def timed_out(way: Way, t: Any) -> None:
    limited = way.again(timeout=0.2)
    o = limited.terminal("echo a; sleep 9")
    same((o.ok, o.timed_out), (False, True))
    holds(o.text, "a\n[exit code 124]\n[hint: the command ran longer than its limit of 0.2 s and was ended")


@line(
    "D.18",
    "the text is the same to the byte: ntr run/py --render, ntr tool, MCP, the package, call_tool",
    ways=("cli",),
    why_not={"mcp": "the row compares all of them", "package": "the row compares all of them"},
)
def alike(way: Way, t: Any) -> None:
    cli, tool, mcp, package, called = (t.open(way=kind) for kind in ("cli", "cli", "mcp", "package", "package"))
    calls = [(tool_, {"command" if tool_ == "terminal" else "code": argument}) for _, tool_, argument, _, _ in TEXTS]
    calls += [
        ("terminal", {"command": "seq 20000"}), ("terminal", {"command": "if"}), ("terminal", {"command": ""}),
        ("terminal", {"command": "printf '\\033[31mred\\033[0m\\r\\n\\0'"}), ("terminal", {"command": "yes | head -c 100000 >&2; exit 9"}),
        ("terminal", {"command": "echo '[output truncated]'"}), ("terminal", {"command": "kill -9 $$"}),
        ("run_python", {"code": "print(list(range(100000)))"}), ("run_python", {"code": "def f(:"}), ("run_python", {"code": "import os; os._exit(4)"}),
        ("run_python", {"code": "def f(n): return f(n + 1)\nf(0)"}), ("run_python", {"code": "raise SystemExit('bye')"}), ("run_python", {"code": "print('\\ud800')"}),
        ("file_write", {"path": "d/ä", "content": "a \nb\n"}), ("file_write", {"path": "/etc/x", "content": ""}), ("file_write", {"path": "d", "content": ""}),
        ("file_edit", {"path": "d/ä", "old_string": "a\nb", "new_string": "c\nd"}), ("file_edit", {"path": "d/ä", "old_string": "a\nb", "new_string": "c\nd"}),
        ("file_edit", {"path": "d/ä", "old_string": "zzz", "new_string": "c"}), ("file_edit", {"path": "d/none", "old_string": "zzz", "new_string": "c"}),
        ("view_image", {"path": "d/ä"}), ("view_image", {"path": "none"}),
    ]  # fmt: skip
    for name, args in calls:
        if name in ("terminal", "run_python"):
            p = cli.raw("run" if name == "terminal" else "py", "-s", cli.session, "--render", "-c", *args.values())
            own = getattr(package, name)(*args.values())
        else:
            p = cli.raw("tool", "-s", cli.session, name, "-", stdin=json.dumps(args))
            own = {"file_write": package.file_write, "file_edit": package.file_edit, "view_image": package.view_image}[name](*args.values())
        want = p.stdout.decode()
        assert want.endswith("\n"), (name, args, p)
        for other, o in (
            ("tool", tool.tool(name, **args)),
            ("mcp", mcp.tool(name, **args)),
            ("package", own),
            ("call_tool", called.tool(name, **args)),
        ):
            same(o.text, want[:-1], f"{other} {name} {args}")
            same(o.ok, p.returncode == 0, f"{other} {name} {args}")


# ---- descriptions


@line("D.19", "the descriptions coach one batched call a turn", shared=True)
def coached(way: Way, t: Any) -> None:
    have = tools(way)
    for name in ("terminal", "run_python"):
        holds(have[name]["description"], "Make ONE call a turn: put everything that belongs to a step into one script.")


@line("D.19", "the descriptions say what each tool is for, and where the workspace is", shared=True)
def described(way: Way, t: Any) -> None:
    have = {k: v["description"] for k, v in tools(way).items()}
    holds(have["terminal"], "/workspace", "grep -rn", "file_edit", "file_write")
    holds(have["run_python"], "/workspace", "last bare expression", "cache", "ui = {")
    holds(have["file_edit"], "EXACTLY", "replace_all")
    holds(have["view_image"], "png, jpeg, gif and webp", "10,000,000 bytes")
    for name in have:
        lacks(have[name], "%s")


@line(
    "D.19",
    "the descriptions are the same in all ways",
    ways=("cli",),
    why_not={"mcp": "the row compares all of them", "package": "the row compares all of them"},
    shared=True,
)
def described_alike(way: Way, t: Any) -> None:
    want = {k: v["description"] for k, v in tools(way).items()}
    for other in (t.open(way.session, way="mcp"), t.open(way.session, way="package")):
        same({k: v["description"] for k, v in tools(other).items()}, want, other.name)


@line(
    "D.20",
    "the descriptions carry the embedder's primers",
    ways=("package",),
    why_not={
        "cli": "the command line is no embedder: it has no words of its own",
        "mcp": "the contract gives ntr mcp no option for primers",
    },
)
def primers(way: Way, t: Any) -> None:
    w = way.again(package={"terminal_primer": "TERMINAL WORDS\nof two lines", "python_primer": "PYTHON WORDS"})
    have = tools(w)
    assert have["terminal"]["description"].endswith("\n\nTERMINAL WORDS\nof two lines")
    assert have["run_python"]["description"].endswith("\n\nPYTHON WORDS")
    only = {x["name"]: x["description"] for x in w.ws.tools("terminal")}
    same("run_python" in only, False)
    holds(only["terminal"], "\n\nTERMINAL WORDS\nof two lines\n\nPYTHON WORDS")
    with w.ws.fork("primed") as fork:
        holds({x["name"]: x["description"] for x in fork.tools()}["terminal"], "TERMINAL WORDS")


@line(
    "D.20",
    "the descriptions name host objects and modules, and leave the cache out where there is none",
    ways=("package",),
    why_not={
        "cli": "it has no settings of Python for a whole session",
        "mcp": "--module and --no-cache have rows of their own; it has no host objects",
    },
)
def python_described(way: Way, t: Any) -> None:
    class Crm:
        def find(self) -> int:
            return 1

    w = way.again(cache=False, config={"host_objects": {"crm": Crm()}, "modules": ["json"]})
    text = tools(w)["run_python"]["description"]
    holds(text, "crm", "json")
    lacks(text, "cache[")


@line(
    "D.19",
    "the path of the root is in the descriptions",
    ways=("cli", "package"),
    why_not={"mcp": "ntr mcp makes sessions at /workspace only; one that is there is described like this, by the same text"},
)
def root_described(way: Way, t: Any) -> None:
    w = way.again(t.session(), root="/srv/app").open()
    have = tools(w)
    holds(have["terminal"]["description"], "/srv/app")
    lacks(have["terminal"]["description"] + have["run_python"]["description"], "/workspace")
