"""Section D: the MCP server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from typing import Any

from d_files import png
from d_help import SERVER, counts, holds, lacks, put, refused, said, same, tools
from table import line
from ways import NTR, Mcp, Way, environment


def serve(way: Way, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([NTR, "mcp", *args], env=environment(way.store), input=stdin, capture_output=True, timeout=20, check=False)


@line("D.26", "ntr mcp --session S --store D serves that session of that store", ways=("mcp",), why_not=SERVER)
def mcp_place(way: Mcp, t: Any) -> None:
    other = way.store + "-other"
    ask = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
        },
        {"id": 2, "method": "tools/call", "params": {"name": "terminal", "arguments": {"command": "echo 1 > f; echo $NTR_SESSION"}}},
    ]
    lines = b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in ask)
    try:
        p = serve(way, "--session", "elsewhere", "--store", other, stdin=lines)
        same(p.returncode, 0, p.stderr.decode())
        same(json.loads(p.stdout.splitlines()[1])["result"]["content"][0]["text"], "elsewhere")
        p = subprocess.run([NTR, "cat", "-s", "elsewhere", "f"], env=environment(other), capture_output=True, check=False)
        same(p.stdout, b"1\n")
        lacks(t.ok("sessions", "--json"), "elsewhere")
    finally:
        subprocess.run([NTR, "daemon", "stop"], env=environment(other), capture_output=True, check=False)


@line(
    "D.26",
    "ntr mcp: what cannot be served is said at once: a session's name, a store, a mode, a mount",
    ways=("mcp",),
    why_not=SERVER,
    shared=True,
)
def mcp_refused(way: Mcp, t: Any) -> None:
    for args, code, text in (
        (["-s", ".bad"], 2, "session name '.bad': it is no valid name"),
        (["-s", "a/b"], 2, "session name 'a/b': it is no valid name"),
        (["--store", "/dev/null/x"], 1, "/dev/null/x"),
        (["--tools", "some"], 2, "none of auto, terminal, split"),
        (["--mount", "rel=/tmp"], 2, "the point is no absolute path"),
        (["--mount", "/workspace/m=/nonexistent"], 1, "/nonexistent: No such file or directory"),
        (["--timeout", "soon"], 2, "--timeout 'soon' is no time"),
        (["surplus"], 2, ""),
    ):
        p = serve(way, *args)
        same((p.returncode, p.stdout), (code, b""), f"{args} {p.stderr.decode()}")
        assert p.stderr.startswith(b"ntr: "), p.stderr
        holds(p.stderr.decode(), text)


@line(
    "D.27",
    "--tools auto|terminal|split, --no-cache: run_python is a tool of its own where it has more than a shell's python",
    ways=("mcp",),
    why_not=SERVER,
    shared=True,
)
def mcp_modes(way: Mcp, t: Any) -> None:
    for options, python, cache in (
        ({}, True, True),
        ({"tools": "auto"}, True, True),
        ({"tools": "split"}, True, True),
        ({"tools": "terminal"}, False, False),
        ({"cache": False}, False, False),
        ({"tools": "auto", "cache": False}, False, False),
        ({"tools": "split", "cache": False}, True, False),
    ):
        with contextlib.closing(way.again(versions=False, **options)) as w:
            have = tools(w)
            same(list(have), ["terminal", *(["run_python"] if python else []), "file_write", "file_edit", "view_image"], str(options))
            same("cache[" in str(have), cache, str(options))
            same("For Python use `python3` in the script" in have["terminal"]["description"], not python, str(options))


@line("D.28", "--tools terminal: run_python is no tool; --no-cache: Python has no cache", ways=("mcp",), why_not=SERVER)
def mcp_modes_hold(way: Mcp, t: Any) -> None:
    refused(lambda: way.again(tools="terminal").tool("run_python", code="1"), "there is no tool 'run_python'", code=-32602)
    holds(way.again(tools="split", cache=False).tool("run_python", code="cache").text, "NameError: name 'cache' is not defined")
    said(way.tool("run_python", code="type(cache).__name__ != 'x'"), "True")


@line("D.29", "--module M: Python may count on it, and the description names it", ways=("mcp",), why_not=SERVER)
def mcp_module(way: Mcp, t: Any) -> None:
    w = way.again(modules=["json", "decimal"])
    holds(tools(w)["run_python"]["description"], "json, decimal")
    said(w.tool("run_python", code="import sys\n'decimal' in sys.modules"), "True")


@line("D.30", "--mount P=D[:rw] shows a directory of the host, read-only unless :rw")
def mounted(way: Way, t: Any) -> None:
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/f", "w") as f:
            f.write("host\n")
        w = way.again(mounts={"/workspace/ro": d, "/workspace/rw": f"{d}:rw"})
        said(w.terminal("cat ro/f; echo x > rw/g; touch ro/h 2>/dev/null || echo read-only"), "host\nread-only")
        said(w.run_python("open('ro/f').read()"), "'host\\n'")
        same(sorted(os.listdir(d)), ["f", "g"])
        w.close()
        t.ok("stop", "-s", way.session)


@line("D.31", "--versions: each tool takes session, the name of a fork to work in", ways=("mcp",), why_not=SERVER)
def mcp_sessions(way: Mcp, t: Any) -> None:
    way.file_write("f", "1")
    name = t.session()
    way.tool("fork", name=name)
    for x in way.tools():
        same(x["inputSchema"]["properties"]["session"]["type"], "string", x["name"])
    said(way.tool("file_write", path="f", content="22", session=name), "wrote f (2 bytes)")
    said(way.tool("terminal", command="cat f; echo; echo $NTR_SESSION", session=name), f"22\n{name}")
    same(way.read("f"), b"1")
    o = way.tool("terminal", command="true", session=f"{way.session}-slip")
    same(o.ok, False)
    holds(o.text, "there is no session of that name")
    with contextlib.closing(way.again(versions=False)) as off:
        o = off.tool("terminal", command="true", session=name)
        said(o, "terminal failed: there is no argument 'session'; it takes command", ok=False)


@line("D.33", "resource workspace://-/tree: all files with their sizes", ways=("mcp",), why_not=SERVER)
def mcp_tree(way: Mcp, t: Any) -> None:
    same([(r["uri"], r["mimeType"]) for r in way.ask("resources/list")["resources"]], [("workspace://-/tree", "text/plain")])
    same(way.ask("resources/read", {"uri": "workspace://-/tree"})["contents"][0]["text"], "")
    way.terminal("mkdir -p a/b .git; echo 12 > a/b/f; : > z; ln -s z l; : > .git/x")
    c = way.ask("resources/read", {"uri": "workspace://-/tree"})["contents"][0]
    same((c["uri"], c["mimeType"]), ("workspace://-/tree", "text/plain"))
    same(c["text"], ".git/  (not listed)\na/\na/b/\na/b/f  (3 bytes)\nl ->  (1 bytes)\nz  (0 bytes)\n")


@line("D.34", "template workspace://{path}: a file as text, else as base64; a directory as a listing", ways=("mcp",), why_not=SERVER)
def mcp_template(way: Mcp, t: Any) -> None:
    same([x["uriTemplate"] for x in way.ask("resources/templates/list")["resourceTemplates"]], ["workspace://{path}"])
    way.terminal("mkdir 'd e'; echo '# x' > 'd e/a.md'; printf 'a\\377' > bin; echo '{}' > j.json")
    for uri, want in (
        ("workspace://d%20e/a.md", {"uri": "workspace://d%20e/a.md", "mimeType": "text/markdown", "text": "# x\n"}),
        ("workspace://bin", {"uri": "workspace://bin", "mimeType": "application/octet-stream", "blob": "Yf8="}),
        ("workspace://j.json", {"uri": "workspace://j.json", "mimeType": "application/json", "text": "{}\n"}),
        ("workspace://d%20e", {"uri": "workspace://d%20e", "mimeType": "text/plain", "text": "d e/a.md  (4 bytes)\n"}),
    ):
        same(way.ask("resources/read", {"uri": uri})["contents"], [want])


@line("D.34", "a resource that is not there, or is outside, is an error", ways=("mcp",), why_not=SERVER)
def mcp_no_resource(way: Mcp, t: Any) -> None:
    way.terminal("echo 1 > f; ln -s /etc/hostname out")
    for uri in (
        "workspace://none",
        "workspace://f/x",
        "file:///etc/hostname",
        "workspace://",
        "workspace://../../etc/hostname",
        "workspace://%00",
    ):
        assert refused(lambda: way.ask("resources/read", {"uri": uri})).code in (-32002, -32603), uri
    refused(lambda: way.ask("resources/read", {"uri": "workspace://none"}), "none", code=-32002)


@line("D.34", "resources are read while a call runs", ways=("mcp",), why_not=SERVER)
def mcp_reads_meanwhile(way: Mcp, t: Any) -> None:
    way.file_write("f", "1")
    number = way.send(
        "tools/call", {"name": "terminal", "arguments": {"command": "echo now > f; while [[ ! -e go ]]; do sleep 0.02; done; echo done"}}
    )
    until = time.monotonic() + 20
    while way.read("f") != b"now\n":
        assert time.monotonic() < until
    way.notify("notifications/cancelled", {"requestId": number})
    refused(lambda: way.wait(number), code=-32800)


@line("D.35", "a write's result links to the resource, which reads as what was written", ways=("mcp",), why_not=SERVER)
def mcp_links(way: Mcp, t: Any) -> None:
    way.terminal("mkdir 'd e'; cd 'd e'")
    o = way.file_write("ü #1.md", "x")
    same(
        o.raw["content"],
        [
            {"type": "text", "text": "wrote ü #1.md (1 bytes)"},
            {"type": "resource_link", "uri": "workspace://d%20e/%C3%BC%20%231.md", "name": "ü #1.md"},
        ],
    )
    o = way.file_edit("ü #1.md", "x", "y")
    same(o.raw["content"][1]["uri"], "workspace://d%20e/%C3%BC%20%231.md")
    same(way.ask("resources/read", {"uri": o.raw["content"][1]["uri"]})["contents"][0]["text"], "y")
    same(len(way.file_edit("ü #1.md", "none", "zzz").raw["content"]), 1)
    same(len(way.file_write("/etc/x", "y").raw["content"]), 1)


@line("D.36", "an image is image content beside its text", ways=("mcp",), why_not=SERVER)
def mcp_image(way: Mcp, t: Any) -> None:
    way.terminal("true")
    put(t, way, "a", png())
    r = way.tool("view_image", path="a").raw
    same([(c["type"], c.get("mimeType")) for c in r["content"]], [("text", None), ("image", "image/png")])
    same(("structuredContent" in r, r["isError"]), (False, False))
    r = way.tool("view_image", path="none").raw
    same(([c["type"] for c in r["content"]], r["isError"]), (["text"], True))


@line("D.32", "structured results: the text once more, and the call's members", ways=("mcp",), why_not=SERVER)
def mcp_structured(way: Mcp, t: Any) -> None:
    r = way.tool("terminal", command="echo 1 > f; echo o; exit 3").raw
    s = r["structuredContent"]
    same((s["text"], s["exit_code"], s["timed_out"], s["truncated"], s["commit"]), (r["content"][0]["text"], 3, False, False, way.head()))
    same(counts(s), (1, 0, 0))
    assert isinstance(s["duration"], float), s
    same(r["isError"], True)
    s = way.file_write("g", "abc").raw["structuredContent"]
    same(
        {k: s[k] for k in ("text", "bytes", "created", "path", "commit")},
        {"text": "wrote g (3 bytes)", "bytes": 3, "created": True, "path": "/workspace/g", "commit": way.head()},
    )


@line(
    "D.32",
    "arguments that are no object, and no arguments: an error of the protocol, a result that says so",
    ways=("mcp",),
    why_not=SERVER,
    shared=True,
)
def mcp_arguments(way: Mcp, t: Any) -> None:
    refused(lambda: way.ask("tools/call", {"name": "terminal", "arguments": [1]}), "arguments is no object", code=-32602)
    refused(lambda: way.ask("tools/call", {"arguments": {}}), "name is missing", code=-32602)
    same(way.ask("tools/call", {"name": "terminal"})["isError"], True)
    refused(lambda: way.ask("tools/call", {"name": "history", "arguments": {"limit": 10**30}}), "more than 64 bits", code=-32602)
    refused(lambda: way.ask("tools/call", {"name": "terminal", "arguments": {"command": "\ud800"}}), "half of a surrogate pair", code=-32602)
    said(way.tool("history", limit=1e30), "history failed: the argument 'limit' is no integer", ok=False)


@line("D.32", "several servers and the command line work in one session at once", ways=("mcp",), why_not=SERVER)
def mcp_shared(way: Mcp, t: Any) -> None:
    with contextlib.closing(way.again()) as other:
        way.terminal("mkdir d; cd d; echo 1 > f")
        said(other.terminal("pwd; echo 2 >> f"), "/workspace/d")
        t.ok("run", "-s", way.session, "-c", "echo 3 >> f")
        said(way.terminal("cat f"), "1\n2\n3")
        same(len(way.history()), 4)


@line("D.32", "a cancelled call is killed and answered so, and the session goes on", ways=("mcp",), why_not=SERVER)
def mcp_cancel(way: Mcp, t: Any) -> None:
    number = way.send("tools/call", {"name": "terminal", "arguments": {"command": "echo 1 > began; exec sleep 61.7"}})
    until = time.monotonic() + 20
    while "began  (2 bytes)" not in way.ask("resources/read", {"uri": "workspace://-/tree"})["contents"][0]["text"]:
        assert time.monotonic() < until
    way.notify("notifications/cancelled", {"requestId": number})
    refused(lambda: way.wait(number), code=-32800)
    said(way.terminal("cat began; pgrep -fx 'sleep 61.7'"), "1\n[exit code 1]", ok=False)


@line("D.32", "the end of stdin: what was asked is answered, the status is 0", ways=("mcp",), why_not=SERVER)
def mcp_end(way: Mcp, t: Any) -> None:
    ask = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
        },
        {"method": "notifications/initialized"},
        *({"id": i, "method": "tools/call", "params": {"name": "terminal", "arguments": {"command": f"echo {i} >> f"}}} for i in (2, 3, 4)),
    ]
    p = serve(way, "-s", way.session, stdin=b"".join(json.dumps({"jsonrpc": "2.0", **m}).encode() + b"\n" for m in ask))
    same((p.returncode, p.stderr), (0, b""))
    same([json.loads(x)["id"] for x in p.stdout.splitlines()], [1, 2, 3, 4])
    same(way.read("f"), b"2\n3\n4\n")
