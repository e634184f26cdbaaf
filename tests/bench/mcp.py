#!/usr/bin/env python3
"""mcp.py DIR [--rounds N]: what `ntr mcp` adds to a tool, beside the daemon's own op, turn by turn in one session.

DIR lies on the filesystem to measure; ntr must be in PATH. The goal: 1 ms in the middle.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "helpers"))
import client  # noqa: E402

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("dir")
ap.add_argument("--rounds", type=int, default=500)
a = ap.parse_args()
os.makedirs(a.dir, exist_ok=True)
os.environ["NTR_STORE"] = os.path.join(a.dir, "store")


class Mcp:
    """One request at a time, without a thread: nothing of a client's own cost is counted."""

    def __init__(self):
        self.p = subprocess.Popen(["ntr", "mcp", "-s", "w"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("initialize", protocolVersion="2025-11-25")

    def ask(self, method, **params):
        self.p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())["result"]

    def tool(self, name, args):
        assert not self.ask("tools/call", name=name, arguments=args)["isError"]


def timed(fn, *args):
    t = time.perf_counter()
    fn(*args)
    return (time.perf_counter() - t) * 1000


mcp = Mcp()
subprocess.run(["ntr", "run", "-s", "w", "-c", "true"], check=True)
direct = client.Client(os.environ["NTR_STORE"])
# As the server has it, so that both ask for the same.
ENV = [f"{k}={v}" for k, v in os.environ.items() if not k.startswith("NTR_")]
TOOLS = (("terminal", {"command": "true"}), ("run_python", {"code": "x = 1"}), ("file_write", {"path": "f"}))
for name, args in TOOLS:

    def op(args):
        assert not direct.request({"op": "tool", "session": "w", "name": name, "args": args, "env": ENV})["is_error"]
    ours, own = [], []
    for i in range(a.rounds + 5):
        if name == "file_write":  # one KiB, never what is there
            args = {"path": "f", "content": "%1024d" % i}
        own.append(timed(op, args))
        if name == "file_write":
            args = {"path": "f", "content": "%1023d " % i}
        ours.append(timed(mcp.tool, name, args))
    ours, own = statistics.median(ours[5:]), statistics.median(own[5:])
    verdict = "ok" if ours - own <= 1 else "MISSED"
    print(f"{name:<12} op {own:7.3f} ms   mcp {ours:7.3f} ms   adds {ours - own:6.3f} ms (goal 1) {verdict}")
mcp.p.stdin.close()
mcp.p.wait()
subprocess.run(["ntr", "daemon", "stop"])
