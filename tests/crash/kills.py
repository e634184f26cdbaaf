#!/usr/bin/env python3
"""kills.py [--rounds N] [--target daemon|supervisor|call|all] [--seed S]

kill -9 at random moments under a loop of calls and file writes, on the store of $NTR_STORE. Each call writes numbered
lines to files of the workspace and, after each line, the same number to a witness file outside. After every kill:

  * the next command works;
  * every commit that was acknowledged (its id was printed) is in the history;
  * every number that the witness has is in the workspace (a killed supervisor or daemon: as a `recovered` commit);
  * no number is there twice, and none is missing in between;
  * at the end `ntr fsck` finds nothing.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--rounds", type=int, default=5)
ap.add_argument("--target", default="all")
ap.add_argument("--seed", type=int, default=int(os.environ.get("NTR_SEED", "20261129")))
args = ap.parse_args()
rng = random.Random(args.seed)
SESSION = "crash"
WITNESS = os.path.join(tempfile.mkdtemp(prefix="ntr-witness."), "witness")
SCRIPT = r"""
n=$(wc -l < %(w)s)
while :; do
  echo $n >> journal || exit 1
  echo $n > file$((n %% 7)) || exit 1
  mkdir -p d$((n %% 5)) && echo $n >> d$((n %% 5))/log || exit 1
  echo $n >> %(w)s
  n=$((n + 1))
  [ $((n %% 8)) -eq 0 ] && exit 0
done
""" % {"w": WITNESS}


def ntr(*argv, check=True):
    p = subprocess.run(["ntr", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    if check and p.returncode:
        fail(f"ntr {' '.join(argv[:4])}: exit {p.returncode}: {p.stderr.strip()}")
    return p


def fail(text):
    print("FAIL:", text, f"(seed {args.seed})", file=sys.stderr)
    sys.exit(1)


def daemon_pid():
    return json.loads(ntr("daemon", "status", "--json").stdout)["pid"]


def children(pid):
    try:
        return [int(p) for t in os.listdir(f"/proc/{pid}/task") for p in
                open(f"/proc/{pid}/task/{t}/children").read().split()]
    except OSError:
        return []


def supervisor(pid):
    for c in children(pid):
        try:
            if "ntr-init" in open(f"/proc/{c}/cmdline").read():
                return c
        except OSError:
            pass
    return None


def victim(target):
    pid = daemon_pid()
    if target == "daemon":
        return pid
    sup = supervisor(pid)
    if target == "supervisor" or not sup:
        return sup
    calls = children(sup)
    return rng.choice(calls) if calls else None


def kill(pid):
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def lines(path):
    out = ntr("run", "-s", SESSION, "--", "cat", path).stdout.split()
    return [int(x) for x in out]


def check(acked):
    have = [int(x) for x in open(WITNESS).read().split()]
    got = lines("journal")
    # The kill may fall between the write to the workspace and the one to the witness: one number more, twice in the
    # next call's count. Lost or doubled work would show as anything else.
    seen = sorted(set(got))
    if seen != list(range(len(seen))):
        fail(f"journal has holes: {seen[:5]}…{seen[-5:]}")
    missing = [x for x in have if x not in set(got)]
    if missing:
        fail(f"written but lost: {missing[:10]} of {len(have)}")
    log = {json.loads(x)["commit"] for x in ntr("log", "-s", SESSION, "--json").stdout.splitlines()}
    lost = [c for c in acked if c not in log]
    if lost:
        fail(f"acknowledged commits lost: {lost[:3]} of {len(acked)}")


def one_round(target, acked):
    proc = subprocess.Popen(["ntr", "run", "-s", SESSION, "--json", "-c", SCRIPT], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    stop = time.monotonic() + rng.uniform(0.0, 0.12)
    pid = victim(target)
    while time.monotonic() < stop:
        if proc.poll() is not None:
            take(proc, acked)
            proc = subprocess.Popen(["ntr", "run", "-s", SESSION, "--json", "-c", SCRIPT], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        time.sleep(0.001)
    if target == "call":
        pid = victim(target)
    kill(pid)
    take(proc, acked)


def take(proc, acked):
    out, _ = proc.communicate(timeout=120)
    try:
        commit = json.loads(out)["commit"]
    except (ValueError, KeyError):
        return
    if commit:
        acked.append(commit)


def main():
    open(WITNESS, "w").close()
    os.chmod(os.path.dirname(WITNESS), 0o755)
    acked = []
    targets = ["daemon", "supervisor", "call"] if args.target == "all" else [args.target]
    ntr("run", "-s", SESSION, "-c", "touch journal")
    for target in targets:
        for i in range(args.rounds):
            one_round(target, acked)
            check(acked)
    p = ntr("fsck", check=False)
    if p.returncode:
        fail(f"fsck: {p.stdout}{p.stderr}")
    kinds = [json.loads(x)["tool"] for x in ntr("log", "-s", SESSION, "--json").stdout.splitlines()]
    print(f"{args.rounds} kills each of {', '.join(targets)}: {len(acked)} acknowledged commits, "
          f"{kinds.count('recovered')} recovered, nothing lost; fsck clean")


main()
