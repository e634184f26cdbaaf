"""The server under the official Python SDK's client: mcp_sdk.py NTR. Takes the SDK that is installed, 1.x or 2.x; the latter
is tried with each of the ways to agree on a revision that it has."""
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, AsyncExitStack

import mcp
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

NEW = hasattr(mcp, "Client")
NTR = sys.argv[1]
PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def field(o, name):
    """A member by its name on the wire; 2.x spells them in Python's way."""
    if hasattr(o, name):
        return getattr(o, name)
    return getattr(o, re.sub("([A-Z])", lambda m: "_" + m[1].lower(), name))


class Peer:
    """What both SDKs have, under one name each."""

    def __init__(self, c):
        self.c = c

    def __getattr__(self, name):
        return getattr(self.c, name)

    async def sh(self, command, **args):
        r = await self.c.call_tool("terminal", {"command": command, **args})
        return r.content[0].text.strip()

    async def read(self, uri):
        from pydantic import AnyUrl
        return (await self.c.read_resource(uri if NEW else AnyUrl(uri))).contents[0]


@asynccontextmanager
async def connect(mode, *args, log=None, level=None):
    params = StdioServerParameters(command=NTR, args=["mcp", "-s", "w", *args], env=dict(os.environ))
    async with AsyncExitStack() as stack:
        if NEW:
            c = await stack.enter_async_context(mcp.Client(params, mode=mode, logging_callback=log, log_level=level))
            if level and c.protocol_version < "2026":
                await c.session.set_logging_level(level)
        else:
            r, w = await stack.enter_async_context(stdio_client(params))
            c = await stack.enter_async_context(ClientSession(r, w, logging_callback=log))
            print("   ", (await c.initialize()).protocolVersion)
            if level:
                await c.set_logging_level(level)
        if NEW:
            print("   ", c.protocol_version)
        yield Peer(c)


async def tools(mode):
    async with connect(mode, "--versions") as s:
        listed = {t.name: t for t in (await s.list_tools()).tools}
        assert set(listed) == {"terminal", "run_python", "file_write", "file_edit", "view_image", "history", "diff", "fork",
                               "rollback"}, listed
        assert field(listed["history"].annotations, "readOnlyHint") is True
        r = await s.call_tool("terminal", {"command": "echo out; echo err >&2; exit 3"})
        assert r.content[0].text == "out\n[exit code 3]\n[stderr]\nerr", r
        assert field(r, "isError") and field(r, "structuredContent")["exit_code"] == 3
        r = await s.call_tool("run_python", {"code": "cache['k'] = 41\ncache['k'] + 1"})
        assert r.content[0].text.strip() == "42", r
        r = await s.call_tool("file_write", {"path": "a dir/notes: ü.md", "content": "one\ntwo\n"})
        assert r.content[0].text == "wrote a dir/notes: ü.md (8 bytes)" and field(r, "structuredContent")["commit"], r
        assert (await s.read(str(r.content[1].uri))).text == "one\ntwo\n"
        r = await s.call_tool("file_edit", {"path": "a dir/notes: ü.md", "old_string": "two", "new_string": "2"})
        assert "replaced 1 occurrence" in r.content[0].text, r
        r = await s.call_tool("file_edit", {"path": "a dir/notes: ü.md", "old_string": "three", "new_string": "3"})
        assert field(r, "isError") and r.content[0].text.startswith("edit failed"), r
        await s.sh(f"echo {PNG} | base64 -d > i.png")
        r = await s.call_tool("view_image", {"path": "i.png"})
        assert r.content[1].type == "image" and r.content[1].data == PNG and field(r.content[1], "mimeType") == "image/png"
        r = await s.call_tool("history", {"limit": 2})
        assert len(r.content[0].text.strip().splitlines()) == 2, r
        r = await s.call_tool("diff", {})
        assert "i.png" in r.content[0].text, r
        r = await s.call_tool("fork", {"name": "try"})
        assert r.content[0].text.startswith("forked try from w at"), r
        assert await s.sh("rm i.png; ls", session="try") == "a dir" and "i.png" in await s.sh("ls")
        r = await s.call_tool("rollback", {"steps": 1, "session": "try"})
        assert r.content[0].text.startswith("rolled back to"), r
        for args in ({"steps": "x"}, {"command": 1}):
            assert field(await s.call_tool("rollback" if "steps" in args else "terminal", args), "isError")
        try:
            await s.call_tool("nosuch", {})
            raise SystemExit("nosuch is a tool?")
        except Exception as e:
            assert "there is no tool 'nosuch'" in str(e), e


async def resources(mode):
    async with connect(mode) as s:
        assert str((await s.list_resources()).resources[0].uri) == "workspace://-/tree"
        t = field(await s.list_resource_templates(), "resourceTemplates")[0]
        assert field(t, "uriTemplate") == "workspace://{path}"
        assert "i.png  (" in (await s.read("workspace://-/tree")).text
        c = await s.read("workspace://i.png")
        assert c.blob == PNG and field(c, "mimeType") == "image/png"
        try:
            await s.read("workspace://none")
            raise SystemExit("none is there?")
        except Exception as e:
            code = e.error.code
            assert code == (-32602 if NEW and s.protocol_version >= "2026" else -32002), e


async def running(mode):
    logs, steps = [], []

    async def log(p):
        logs.append(p)

    async def step(done, total, message):
        steps.append(done)
    async with connect(mode, "--versions", log=log, level="debug") as s:
        assert await s.sh("true") == "(no output)"
        r = await s.call_tool("terminal", {"command": "sleep 3; echo done"}, progress_callback=step)
        assert r.content[0].text == "done" and len(steps) >= 2 and steps == sorted(steps), (r, steps)
        assert logs and logs[0].level == "debug" and logs[0].data["tool"] == "terminal", logs
        await asyncio.gather(*[s.sh(f"echo {k} >> order") for k in range(30)])
        assert await s.sh("tr '\\n' ' ' < order; rm order") == " ".join(map(str, range(30)))
        a = asyncio.create_task(s.sh("sleep 0.7; cat /proc/uptime"))
        b = asyncio.create_task(s.sh("cat /proc/uptime", session="try"))
        assert float((await b).split()[0]) < float((await a).split()[0])
        # A call whose task is cancelled, or that takes too long: 2.x tells the server, 1.x leaves it to the caller.
        task = asyncio.create_task(s.sh("echo $$ > pid; exec sleep 71"))
        for _ in range(50):
            await asyncio.sleep(0.1)
            if "pid" in (await s.read("workspace://-/tree")).text:
                break
        if NEW:
            task.cancel()
        else:
            from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification
            open_ids = list(s._response_streams)
            await s.send_notification(ClientNotification(CancelledNotification(
                method="notifications/cancelled", params=CancelledNotificationParams(requestId=open_ids[0]))))
        try:
            await task
            raise SystemExit("not cancelled")
        except asyncio.CancelledError:
            pass
        except Exception as e:
            assert e.error.code == -32800, e
        assert await s.sh("kill -0 $(cat pid) 2>&1 || echo gone; rm pid") != "(no output)"
        assert await s.sh("pgrep -fx 'sleep 71' || echo none") == "none"
        # The daemon dies in the middle of a call.
        pid = int(re.search(r"\d+", subprocess.run([NTR, "daemon", "status"], capture_output=True, text=True).stdout)[0])
        task = asyncio.create_task(s.call_tool("terminal", {"command": "echo x >> once; sleep 5; echo y >> once"}))
        await asyncio.sleep(1)
        os.kill(pid, 9)
        r = await task
        assert field(r, "isError") and "the daemon ended unexpectedly" in r.content[0].text and "not repeated" in r.content[0].text, r
        assert await s.sh("sort -u once | wc -l; grep -c x once; rm once") in ("1\n1", "2\n1")


async def listening(mode):
    if not NEW or mode == "legacy":
        return
    async with connect(mode) as s:
        async with s.listen(tools_list_changed=True, resource_subscriptions=["workspace://a"]) as sub:
            assert not sub.honored.tools_list_changed and not sub.honored.resource_subscriptions
            assert await s.sh("echo here") == "here"


async def main():
    for mode in ("auto", "legacy", "2026-07-28") if NEW else ("1.x",):
        with tempfile.TemporaryDirectory() as d:
            os.environ["NTR_STORE"] = d + "/store"
            try:
                for part in (tools, resources, running, listening):
                    print(" ", mode, part.__name__, flush=True)
                    await part(mode)
            finally:
                subprocess.run([NTR, "daemon", "stop"])
    print("ok")

def first(e):
    while isinstance(e, BaseExceptionGroup):
        e = e.exceptions[0]
    return e


try:
    asyncio.run(main())
except BaseExceptionGroup as group:
    raise first(group) from None
