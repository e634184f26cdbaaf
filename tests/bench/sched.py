#!/usr/bin/env python3
"""sched.py DIR [--seconds S] [--loops 0,1,2,4] [--streams 1,2]: what a request costs beside busy processes, with the ring
threads under SCHED_IDLE and as ordinary threads (NTR_SCHED_IDLE), in turn. DIR lies on an ordinary ext4; root, ntr in PATH,
io_uring on (else both columns are the same). About 2 minutes as it is.

A request is one statfs(2) on the versions mount, which the kernel never answers by itself. "mixed" is a client that
computes for 50 us between two requests; "grep" reads 2,000 files of a fresh fork through the session's view.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("dir")
ap.add_argument("--seconds", type=float, default=2)
ap.add_argument("--loops", default="0,1,2,4")
ap.add_argument("--streams", default="1,2")
ap.add_argument("--stream", nargs=2, help=argparse.SUPPRESS)  # KIND PATH: one client, of our own
a = ap.parse_args()


def stream(kind, path, seconds):
    """Prints the times of requests, in ns."""
    fd = os.open(path, os.O_PATH)
    took, end = [], time.monotonic() + seconds
    now = time.perf_counter_ns
    while time.monotonic() < end:
        t = now()
        os.statvfs(fd)
        u = now()
        took.append(u - t)
        while kind == "mixed" and now() - u < 50000:
            pass
    json.dump(took, sys.stdout)


if a.stream:
    stream(*a.stream, a.seconds)
    sys.exit(0)


def sh(*argv, idle):
    env = dict(os.environ, NTR_STORE=store, NTR_SCHED_IDLE=str(idle))
    return subprocess.run(argv, env=env, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout


def clients(kind, n):
    argv = [sys.executable, os.path.abspath(__file__), a.dir, "--seconds", str(a.seconds), "--stream", kind, store + "/versions"]
    ps = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(n)]
    took = sorted(t for p in ps for t in json.loads(p.communicate()[0]))
    return dict(mean=statistics.mean(took), p50=took[len(took) // 2], p99=took[len(took) * 99 // 100], max=took[-1])


def grep(idle, tag):
    sh("ntr", "fork", "s", tag, idle=idle)
    sh("ntr", "run", "-s", tag, "--", "true", idle=idle)
    t = time.perf_counter()
    sh("ntr", "run", "-s", tag, "--", "sh", "-c", "find . -type f -exec cat {} + >/dev/null", idle=idle)
    took = time.perf_counter() - t
    sh("ntr", "stop", "-s", tag, idle=idle)
    return took


def row(what, loops, n, idle, r):
    us = {k: v / 1e3 for k, v in r.items()}
    print(f"{what:<8}{loops:>6}{n:>8}  {'idle' if idle else 'normal':<8}" + "".join(f"{us[k]:>10.1f}" for k in r), flush=True)


store = os.path.join(a.dir, "store")
shutil.rmtree(store, ignore_errors=True)
os.makedirs(a.dir, exist_ok=True)
sh("ntr", "run", "-s", "s", "-c", "for i in $(seq 2000); do head -c 3000 /dev/urandom >f$i; done", idle=1)
print(f"{'client':<8}{'loops':>6}{'clients':>8}  {'threads':<8}{'mean us':>10}{'p50':>10}{'p99':>10}{'max':>10}")
reads = {}
for loops in map(int, a.loops.split(",")):
    for idle in (1, 0):
        sh("ntr", "daemon", "stop", idle=idle)
        sh("ntr", "run", "-s", "s", "--", "true", idle=idle)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
        try:
            for n in map(int, a.streams.split(",")):
                for kind in ("plain", "mixed"):
                    row(kind, loops, n, idle, clients(kind, n))
            reads[loops, idle] = grep(idle, f"k{loops}{idle}")
        finally:
            for p in busy:
                p.kill()
                p.wait()
for (loops, idle), t in reads.items():
    print(f"grep    {loops:>6}{1:>8}  {'idle' if idle else 'normal':<8}{t:>9.3f} s")
print("transport: " + json.loads(sh("ntr", "daemon", "status", "--json", idle=1))["transport"])
sh("ntr", "daemon", "stop", idle=1)
shutil.rmtree(store)
