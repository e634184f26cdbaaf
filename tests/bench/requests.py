#!/usr/bin/env python3
"""requests.py DIR --data DATA [--only tree,git,npm]: how many requests of each type a workload sends to the versions mounts,
and what they cost at least: their number times one STATFS of this transport, measured beside it. Counts do not depend on
how busy the machine is. DIR lies on an ordinary ext4; root, ntr in PATH. NTR_URING=0: over /dev/fuse.

A step begins with a fresh view of what is committed ("cold": and a fresh daemon, and dropped caches).
"""
import argparse
import json
import os
import shutil
import subprocess
import time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("dir")
ap.add_argument("--data", required=True)
ap.add_argument("--only", default="tree,git,npm")
a = ap.parse_args()
DATA = os.path.abspath(a.data)
STORE = os.path.join(a.dir, "store")
ENV = dict(os.environ, NTR_STORE=STORE, LC_ALL="C", HOME=os.path.join(DATA, "home"), GIT_CONFIG_NOSYSTEM="1")
os.makedirs(ENV["HOME"], exist_ok=True)
GIT = "git -c user.name=b -c user.email=b@b -c gc.auto=0 -c maintenance.auto=false "
FIND, GREP = "find . -type f -printf '%s\\n' >/dev/null", "grep -r -c EXPORT_SYMBOL_GPL . >/dev/null || true"


def ntr(*argv):
    return subprocess.run(["ntr", *argv], env=ENV, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout


def counts():
    ops = json.loads(ntr("daemon", "status", "--json"))["ops"]
    return {k: v["count"] for k, v in ops.items() if k.isupper()}


def one_request():
    """Microseconds of a request that is never answered from a cache (median)."""
    fd, took = os.open(STORE + "/versions", os.O_PATH), []
    for _ in range(3000):
        t = time.perf_counter()
        os.statvfs(fd)
        took.append(time.perf_counter() - t)
    os.close(fd)
    return sorted(took)[len(took) // 2] * 1e6


def fresh(session, cold):
    if cold:
        ntr("daemon", "stop")
        subprocess.run("sync; echo 3 >/proc/sys/vm/drop_caches", shell=True)
    else:
        ntr("stop", "-s", session)
    ntr("run", "-s", session, "--", "true")


def step(name, session, script, view="keep"):
    if view != "keep":
        fresh(session, view == "cold")
    before = counts()
    ntr("run", "-s", session, "--", "sh", "-ec", script)
    d = {k: v - before.get(k, 0) for k, v in counts().items()}
    d.pop("FORGET", None)  # has no answer: nobody waits
    n = sum(d.values())
    print(f"| {name} | {n:,} | {', '.join(f'{v:,} {k}' for k, v in sorted(d.items(), key=lambda x: -x[1]) if v)} |"
          f" {n * cost / 1e3:.0f} ms |", flush=True)


def g_tree():
    ntr("new", "t", "--from", DATA + "/tree.tar")
    step("find, first cold pass", "t", FIND, "cold")
    step("grep -r, behind it", "t", GREP)
    step("grep -r, warm", "t", GREP)
    step("find, fresh view", "t", FIND, "view")
    step("grep -r, fresh view", "t", GREP)
    step("cp -a of linux/fs, committed", "t", "cp -a linux/fs fscopy")
    step("tar -d of it all", "t", f"tar -df {DATA}/tree.tar")
    step("rm -rf of it, committed", "t", "rm -rf linux", "view")
    step("untar", "t", f"tar -xf {DATA}/tree.tar")


def g_git():
    ntr("new", "g")
    step("git clone", "g", GIT + f"clone -q --no-hardlinks {DATA}/repo.git r")
    # What was indexed within a second of its being written git reads again, anywhere.
    step("git status behind it", "g", f"cd r; sleep 1.1; {GIT} status --porcelain")
    step("git status, all new since the fold", "g", f"cd r; {GIT} status --porcelain", "view")
    step("git status again", "g", f"cd r; {GIT} status --porcelain")
    step("git status, first cold pass", "g", f"cd r; {GIT} status --porcelain", "cold")
    step("git checkout of another branch", "g", f"cd r; {GIT} checkout -q origin/old", "view")


def g_npm():
    ntr("new", "n")
    step("npm ci", "n", f"mkdir app; cd app; cp {DATA}/npm/package*.json .; "
         f"npm ci --offline --cache {DATA}/npm-cache --no-audit --no-fund --ignore-scripts >/dev/null")
    step("node_modules: tsc --version, first cold pass", "n", "cd app; node node_modules/typescript/bin/tsc --version >/dev/null", "cold")
    step("rm -rf node_modules, committed", "n", "rm -rf app/node_modules", "view")


os.makedirs(a.dir, exist_ok=True)
shutil.rmtree(STORE, ignore_errors=True)
ntr("run", "-s", "w", "--", "true")
cost = one_request()
print(f"{json.loads(ntr('daemon', 'status', '--json'))['transport']}: {cost:.1f} us a request\n")
print("| workload | requests | of which | at least |\n|---|---|---|---|")
for g in filter(None, a.only.split(",")):
    globals()["g_" + g]()
ntr("daemon", "stop")
shutil.rmtree(STORE)
