"""ntr mcp on the wire: mcp_wire.py PART, in an empty store. The parts take a session `w` for granted that nobody has used.
Run by tests/bats/mcp.bats."""
import base64
import re
import signal
import socket
import sys

from mcp_client import *

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
LONG = "NTR_LONG" in os.environ
SLEEP = "sleep {}.%d" % os.getpid()  # a command line that nobody else has


def sleeping(n):
    return os.system(f"pgrep -fx '{SLEEP.format(n)}' >/dev/null") == 0


def gone(n):
    return until(lambda: not sleeping(n))


def until(what):
    for _ in range(100):
        if what():
            return True
        time.sleep(0.05)
    return False


def begun(s):
    return until(lambda: "begun" in s.read("workspace://-/tree")["text"])


def dead(pid):
    """With all threads: one that still ends keeps the sockets open."""
    try:
        return ") Z" in open(f"/proc/{pid}/stat").read() and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def daemon():
    return json.loads(os.popen("ntr daemon status --json").read())["pid"]


def peak(pid):
    """The most memory that a process has had, in KiB."""
    return int(open(f"/proc/{pid}/status").read().split("VmHWM:")[1].split()[0])


def handshakes():
    """Every revision by its handshake, with what it has and no more."""
    for v in HANDSHAKES:
        with Server(revision=v) as s:
            assert s.hello["protocolVersion"] == v and s.hello["serverInfo"]["name"] == "ntr", s.hello
            tools = {t["name"]: t for t in s.ask("tools/list")["tools"]}
            assert list(tools) == ["terminal", "run_python", "file_write", "file_edit", "view_image"], tools
            assert ("title" in tools["terminal"]) == (v >= "2025-06"), v
            assert ("annotations" in tools["view_image"]) == (v >= "2025-03"), v
            r = s.call("file_write", path="d/x y.md", content="# hi\n")
            assert r["content"][0] == {"type": "text", "text": "wrote d/x y.md (5 bytes)"}, r
            assert ("structuredContent" in r) == (len(r["content"]) == 2) == (v >= "2025-06"), r
            assert not {"resultType", "_meta"} & set(r)
            assert s.fails(-32002, "resources/read", uri="workspace://none").text.startswith("read none: ")
            assert s.ask("ping") == {} and s.ask("logging/setLevel", level="error") == {}
            s.fails(-32602, "logging/setLevel", level="loud")
            for m in ("server/discover", "subscriptions/listen", "prompts/list"):
                s.fails(-32601, m)
            s.raw('[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]\n')
            if v == "2025-03-26":
                assert s.wait("a") == s.wait("b") == {}
            else:
                s.failed(-32600)
    for asked in ("2026-07-28", "1999-01-01"):
        with Server() as s:
            assert s.ask("initialize", protocolVersion=asked)["protocolVersion"] == HANDSHAKES[-1]


def stateless():
    """Requests that carry their revision, beside a handshake too."""
    with Server(revision="2026-07-28") as s:
        d = s.ask("server/discover")
        assert d["supportedVersions"] == (HANDSHAKES + STATELESS)[::-1] and d["resultType"] == "complete", d
        assert d["capabilities"]["tools"] == {"listChanged": False} and d["cacheScope"] == "private" and d["ttlMs"] > 0, d
        assert d["_meta"][META + "serverInfo"]["name"] == "ntr" and d["instructions"], d
        for m, p in (("tools/list", {}), ("resources/list", {}), ("resources/templates/list", {}), ("resources/read", {"uri": "workspace://-/tree"})):
            r = s.ask(m, **p)
            assert r["resultType"] == "complete" and (r["ttlMs"] == 0) == (m == "resources/read"), r
        r = s.call("terminal", command="echo hi")
        assert r["resultType"] == "complete" and r["structuredContent"]["exit_code"] == 0 and "ttlMs" not in r, r
        s.fails(-32602, "resources/read", uri="workspace://none")
        for m in ("ping", "logging/setLevel", "resources/subscribe"):
            s.fails(-32601, m)
        # Log messages: for who asks, and about that request only.
        s.wait(s.start("terminal", {"logLevel": "debug"}, command="true"))
        s.call("terminal", command="false")
        assert [m["params"]["data"]["tool"] for m in s.news] == ["terminal"], s.news
        s.failed(-32602, s.start("terminal", {"logLevel": "loud"}, command="true"))
        # A subscription says that there is nothing to hear, and ends when it is cancelled or all ends.
        a, b = [s.send("subscriptions/listen", notifications={"toolsListChanged": True}) for _ in range(2)]
        assert s.heard("notifications/subscriptions/acknowledged", lambda p: p["_meta"][META + "subscriptionId"] == b)["notifications"] == {}
        s.notify("notifications/cancelled", requestId=a)
        assert s.wait(a)["_meta"][META + "subscriptionId"] == a
        # The envelope's own errors.
        s.revision = None
        e = s.fails(-32022, "tools/list", _meta=envelope("2042-01-01"))
        assert e.data == {"supported": d["supportedVersions"], "requested": "2042-01-01"}, e.data
        s.fails(-32022, "server/discover", _meta=envelope("x"))
        s.fails(-32022, "tools/list", _meta={META + "protocolVersion": "2042-01-01"})
        s.fails(-32602, "tools/list", _meta={META + "protocolVersion": 1, META + "clientCapabilities": {}})
        s.fails(-32602, "tools/list", _meta={META + "protocolVersion": "2026-07-28"})
        s.fails(-32602, "tools/list", _meta={META + "clientCapabilities": {}})
        s.fails(-32602, "tools/call", name="terminal", arguments={"command": "touch no"})
        # One server, both kinds, request by request.
        assert s.ask("initialize", protocolVersion="2025-06-18")["protocolVersion"] == "2025-06-18"
        assert "resultType" not in s.ask("tools/list")
        assert "resultType" in s.ask("tools/list", _meta=envelope("2026-07-28"))
        assert "structuredContent" not in s.ask("tools/call", name="terminal", arguments={"command": "true"}, _meta=envelope("2024-11-05"))
        assert s.sh("ls") == "(no output)"
        assert s.close() == 0 and s.wait(b)["resultType"] == "complete"


def tools():
    """Tools, images, resources, names of all kinds."""
    with Server("--versions", revision="2025-11-25") as s:
        assert [t["name"] for t in s.ask("tools/list")["tools"]][5:] == ["history", "diff", "fork", "rollback"]
        r = s.call("terminal", command="echo o; echo e >&2; exit 3")
        assert r["isError"] and r["content"][0]["text"] == "o\n[exit code 3]\n[stderr]\ne", r
        assert r["structuredContent"]["text"] == r["content"][0]["text"] and "stdout" not in r["structuredContent"], r
        r = s.call("run_python", code="cache['k'] = 1\nbig = 'x' * 100000\ncache['k'] + 1")
        assert r["content"][0]["text"] == r["structuredContent"]["text"] == "2" and len(str(r)) < 2000, r
        assert "edit failed: " in s.call("file_edit", path="f", old_string="q", new_string="z")["structuredContent"]["text"]
        assert "replaced 1 occ" in (s.call("file_write", path="f", content="abc\n"), s.text("file_edit", path="f", old_string="b", new_string="B"))[1]
        open("i.png", "wb").write(PNG)
        os.system("ntr put -s w i.png i.png")
        r = s.call("view_image", path="i.png")
        assert base64.b64decode(r["content"][1]["data"]) == PNG and r["content"][1]["mimeType"] == "image/png" and "structuredContent" not in r, r
        assert len(s.text("history").splitlines()) >= 4 and "i.png" in s.text("diff")
        assert s.text("fork", name="try").startswith("forked try from w at ")
        assert s.sh("rm f; ls", session="try") == "i.png" and "f" in s.sh("ls")
        assert s.text("rollback", steps=1, session="try").startswith("rolled back to") and "f" in s.sh("ls", session="try")
        assert "no session" in s.text("terminal", command="true", session="none")
        s.failed(-32602, s.start("terminal", command="true", session=""))
        assert s.failed(-32602, s.start("nosuch")).text == "there is no tool 'nosuch'"
        s.fails(-32602, "tools/call", name="terminal", arguments=[1])
        s.fails(-32602, "tools/call", arguments={})
        for args in ({}, {"command": 7}, {"command": "x\0y"}):
            assert s.call("terminal", **args)["isError"], args
        assert s.fails(-32602, "tools/list", cursor="x") and s.ask("tools/list", cursor=None)
        # Resources.
        names = ["a%41", "a:b@c", "ü dir/[x]?#.md", "-/tree", "d/...", "two\nlines"]
        for n in names:
            r = s.call("file_write", path=n, content=n)
            uri = r["content"][1]["uri"]
            assert all(c < 127 for c in uri.encode()) and s.read(uri)["text"] == n, r
        s.sh(r"printf raw > $'n\xff'; printf 'a\377b' > bin.md; printf text > t.png; printf '{}' > j.json; touch empty; mkfifo p; ln -s f l")
        assert s.read("workspace://n%FF")["text"] == "raw"
        assert s.read("workspace://bin.md") == {"uri": "workspace://bin.md", "mimeType": "application/octet-stream", "blob": "Yf9i"}
        assert s.read("workspace://t.png")["mimeType"] == "text/plain" and s.read("workspace://j.json")["mimeType"] == "application/json"
        assert s.read("workspace://i.png")["mimeType"] == "image/png" and s.read("workspace://empty")["text"] == ""
        assert s.read("workspace://l")["text"] == "aBc\n"
        tree = s.read("workspace://-/tree")["text"].splitlines()
        assert "f  (4 bytes)" in tree and "ü dir/" in tree and "-/tree  (6 bytes)" in tree and "l ->  (1 bytes)" in tree, tree
        assert any(line.startswith("two\\012lines  (") for line in tree), tree
        assert "ü dir/[x]?#.md" in s.read("workspace://%C3%BC%20dir")["text"]
        for uri in ("workspace://", "file:///etc/passwd", "workspace://%00", "workspace://../../etc/passwd", "workspace:///etc/passwd", "workspace://f/x"):
            try:
                raise AssertionError(s.read(uri))
            except Failure as e:
                assert e.code in (-32002, -32603), e
        s.sh("truncate -s 3G huge")
        assert "larger than 16 MiB" in s.fails(-32603, "resources/read", uri="workspace://huge").text
        assert peak(s.p.pid) < 120000


def options():
    """Options: tools, cache, modules."""
    def names(*args):
        with Server(*args, revision="2025-11-25") as s:
            return [t["name"] for t in s.ask("tools/list")["tools"]]
    assert "run_python" not in names("--tools", "terminal") and "run_python" in names("--tools", "split", "--no-cache")
    with Server("--tools", "split", "--no-cache", "--module", "json", "--env", "A=b", "--cwd", "/", "--timeout", "0.3", revision="2025-11-25") as s:
        tools = {t["name"]: t["description"] for t in s.ask("tools/list")["tools"]}
        assert "cache" not in str(tools) and "json" in str(tools), tools
        assert "NameError" in s.text("run_python", code="cache")
        assert s.sh("echo $A $PWD") == "b /"
        assert s.call("terminal", command=SLEEP.format(60))["structuredContent"]["timed_out"]


def running():
    """Order, sessions side by side, progress, cancelling."""
    with Server("--versions", revision="2025-11-25") as s:
        s.sh("true")
        s.text("fork", name="try")
        for i in [s.start("terminal", command=f"echo {k} >> o") for k in range(20)]:
            s.wait(i)
        assert s.sh("cat o").split() == [str(k) for k in range(20)]
        # While one session works another does, files are read, and what is asked of progress is told.
        a = s.start("terminal", {"progressToken": 0}, command="echo $$ > pid; sleep 1.2; cat /proc/uptime")
        b = s.start("terminal", {"progressToken": None}, command="cat /proc/uptime", session="try")
        s.heard("notifications/progress", lambda p: p["progressToken"] == 0 and p["progress"] > 0.4)
        assert "pid" in s.read("workspace://-/tree")["text"]
        up = [float(s.wait(i)["content"][0]["text"].split()[0]) for i in (a, b)]
        assert up[1] < up[0], up
        assert {json.dumps(m["params"]["progressToken"]) for m in s.news} == {"0"}, s.news
        trap = "trap '' TERM; " if LONG else ""  # ends a moment later
        # Cancelled: one that runs (and what hides from SIGTERM), one that waits; 1 and "1" are two; none is unknown.
        a = s.send("tools/call", 1001, name="terminal", arguments={"command": f"{trap}{SLEEP.format(61)} & touch begun; exec {SLEEP.format(62)}"})
        b = s.send("tools/call", "1001", name="terminal", arguments={"command": "echo b"})
        c = s.start("terminal", command="touch never")
        assert begun(s)
        assert "under way" in s.failed(-32600, s.send("tools/call", "1001", name="terminal", arguments={"command": "touch never"})).text
        for i in (c, 77777, "1002", None, 1.5):
            s.notify("notifications/cancelled", requestId=i)
        assert "had not begun" in s.failed(-32800, c).text
        s.notify("notifications/cancelled", requestId=a, reason="enough")
        assert "was ended" in s.failed(-32800, a).text
        assert s.wait(b)["content"][0]["text"] == "b"
        assert not sleeping(61) and not sleeping(62) and "never" not in s.sh("ls")
        a = s.start("run_python", code="open('py', 'w').close()\nwhile True: pass")
        assert until(lambda: "py  (" in s.read("workspace://-/tree")["text"])
        s.notify("notifications/cancelled", requestId=a)
        s.failed(-32800, a)
        assert s.text("run_python", code="6*7") == "42"
        if LONG:  # a daemon that is stopped: who cancels is not left waiting for it
            a = s.start("terminal", command="exec " + SLEEP.format(67))
            assert until(lambda: sleeping(67))
            pid = daemon()
            os.kill(pid, signal.SIGSTOP)
            s.notify("notifications/cancelled", requestId=a)
            s.failed(-32800, a, timeout=20)
            os.kill(pid, signal.SIGCONT)
            assert gone(67) and s.sh("echo on") == "on"


def messages():
    """What is no message, and messages too early, too long, too many."""
    with Server() as s:
        s.fails(-32602, "tools/list")
        s.fails(-32602, "nosuch")
        assert s.ask("ping") == {}
        s.fails(-32602, "initialize")
        for line, code in (("{", -32700), ("[]", -32600), ("7", -32600), ('{"jsonrpc":"1.0","id":null,"method":"ping"}', -32600),
                           ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600), ('[' * 5000, -32700), (b'{"\xff":1}', -32700)):
            s.raw(line)
            s.raw("\n")
            s.failed(code)
        s.raw('\n \r\n{"jsonrpc":"2.0","id":"r","result":{}}\n{"jsonrpc":"2.0","method":"notifications/none"}\n')
        s.raw('{"jsonrpc":"2.0","id":"p","method":"ping","params":[]}\n')
        s.failed(-32602, "p")
        s.raw(r'{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"\ud83d","x":"\\ud83d \ud83d\ude00"}}' + "\n")
        assert "surrogate" in s.failed(-32602, "h").text
        s.revision = "2026-07-28"
        for _ in range(66):
            s.raw(b"x" * (1 << 20))
        s.raw("\n")
        assert "longer than 64 MiB" in s.failed(-32600).text
        big = "0123456789abcde\n" * (1 << 17)
        assert s.call("file_write", path="big", content=big)["content"][0]["text"] == f"wrote big ({len(big)} bytes)"
        assert s.read("workspace://big")["text"] == big
        # More than it takes at once.
        first = s.start("terminal", command="sleep 0.5")
        ids = [s.start("terminal", command="true") for _ in range(1005)]
        assert "too many requests" in s.failed(-32600, ids[-1]).text
        for i in ids[:995]:
            s.notify("notifications/cancelled", requestId=i)
        s.wait(first)
        assert s.sh("echo on") == "on"


def ends():
    """A daemon that dies, clients that die, do not read, or end."""
    with Server(revision="2025-11-25") as s:
        s.sh("true")
        i = s.start("terminal", command="echo x >> once; touch begun; sleep 5; echo y >> once")
        assert begun(s)
        os.kill(daemon(), signal.SIGKILL)
        r = s.wait(i)
        assert r["isError"] and re.search("daemon ended unexpectedly.*not repeated", r["content"][0]["text"]), r
        assert s.sh("grep -c x once") == "1"
        pid = daemon()
        os.kill(pid, signal.SIGKILL)  # between two calls it is no news
        assert until(lambda: dead(pid))
        said = s.sh("echo on")
        assert said == "on", said
        # The end of the input: what was asked is still answered.
        ids = [s.start("terminal", command=f"sleep 0.1; echo {k}") for k in range(4)]
        assert s.close() == 0 and [s.wait(i)["content"][0]["text"] for i in ids] == list("0123")
    # A client that dies: its calls end with it.
    with Server(revision="2025-11-25") as s:
        s.start("terminal", command="exec " + SLEEP.format(63))
        s.start("terminal", command=SLEEP.format(64))
        assert until(lambda: sleeping(63))
        s.p.kill()
        assert gone(63) and not sleeping(64)
    ours, its = socket.socketpair()
    p = subprocess.Popen(["ntr", "mcp", "-s", "w"], stdin=its, stdout=its)
    its.close()
    call = {"name": "terminal", "arguments": {"command": "exec " + SLEEP.format(65)}, "_meta": envelope("2026-07-28")}
    ours.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n")
    assert until(lambda: sleeping(65))
    ours.close()
    assert p.wait(10) == 0 and gone(65)


def deaf():
    """A client that does not read: other work goes on, memory does not grow, and who cancels is heard."""
    p = subprocess.Popen(["ntr", "mcp", "-s", "w"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(method, id=None, **params):
        if id is not None:
            params["_meta"] = envelope("2026-07-28", progressToken=id)
        m = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": id} if id is not None else {})}
        p.stdin.write(json.dumps(m).encode() + b"\n")
        p.stdin.flush()
    subprocess.run(["ntr", "run", "-s", "w", "-c", "head -c 8000000 /dev/zero > big"], check=True)
    for id in range(60):
        send("resources/read", id, uri="workspace://big")
    send("tools/call", "s", name="terminal", arguments={"command": "exec " + SLEEP.format(66)})
    for id in range(1000, 4000):
        send("tools/list", id)
    assert until(lambda: sleeping(66))
    send("notifications/cancelled", requestId="s")
    assert gone(66) and peak(p.pid) < 250000
    if LONG:  # the end of the input, and it still does not read: it is not waited for for ever
        p.stdin.close()
        assert p.wait(90) == 0
    p.kill()
    p.wait()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
