#!/usr/bin/env python3
"""powercut.py [--seed N] [--seconds S | --all] [SCENARIO…]

Power failures, by a model of the disk. Works in a new store with an ntrd whose calls on the store's files are recorded
(powercut_rec.c), notes what was acknowledged when, and then builds the store's directory as a disk could look after a power
failure behind any one of those calls (powercut_model.py), opens it (powercut_check.c) and demands that

  * it opens, without a word of damage or of lost commits; fsck finds nothing; the next work in it is durable, too;
  * every commit acknowledged with fsync durability is there, whole, and in its session's history, or is the head that a
    rollback moved to; of `relaxed` ones only the newest may be missing;
  * once a session's processes can have run, its record names the upper that they wrote to.

What processes write in a session is not recorded (the kernel does it): powercut_disk.py cuts the power of a whole file
system. --seconds: as many cuts as there is time for (10), spread over the scenarios; --all: every cut with every variant.
Finds the programs in $NTR_BIN (ntr, ntrd) and $NTR_POWERCUT (default: the same).
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from powercut_model import VARIANTS, Disk, read_log, rng_of  # noqa: E402

BIN = os.environ.get("NTR_BIN", "")
HELPERS = os.environ.get("NTR_POWERCUT", BIN)


class Failure(Exception):
    pass


class Recording:
    """One store, its recorded daemon, and what was acknowledged: (log offset, what, …)."""

    def __init__(self, top):
        self.top = top
        self.root = os.path.join(top, "disk")
        self.log = os.path.join(top, "log")
        self.store = os.path.join(self.root, "store")
        os.mkdir(self.root)
        os.makedirs(os.path.join(top, "run"), 0o700)
        self.env = dict(os.environ, NTR_STORE=self.store, XDG_RUNTIME_DIR=os.path.join(top, "run"), HOME=top,
                        PATH=BIN + ":" + os.environ["PATH"])
        self.acks, self.daemon = [], None
        self.relaxed = set()

    def start(self):
        r, w = os.pipe()
        env = dict(self.env, LD_PRELOAD=os.path.join(HELPERS, "ntr-powercut.so"), NTR_POWERCUT_ROOT=self.root,
                   NTR_POWERCUT_LOG=self.log, NTR_POWERCUT_COMM="ntrd")
        self.daemon = subprocess.Popen([os.path.join(BIN, "ntrd"), "--store", self.store, "--foreground", "--ready-fd", str(w)],
                                       env=env, pass_fds=[w], stdin=subprocess.DEVNULL)
        os.close(w)
        with os.fdopen(r) as f:
            line = f.readline()
            if not line or "error" in json.loads(line):
                raise Failure("the recorded daemon does not start")

    def stop(self):
        if self.daemon:
            self.ntr("daemon", "stop")
            if self.daemon.wait(60):
                raise Failure(f"the recorded daemon ended with status {self.daemon.returncode}")
            self.daemon = None

    def ntr(self, *argv, data=None):
        p = subprocess.run(["ntr", *argv], env=self.env, input=data, capture_output=True, timeout=120)
        if p.returncode:
            raise Failure(f"ntr {' '.join(argv)}: {p.stderr.decode()}")
        return p.stdout.decode()

    def mark(self, what, *more):
        self.acks.append((os.path.getsize(self.log), what, *more))

    def ack(self, session, *argv, **kw):
        """A command that makes one commit: acknowledged when it returns."""
        out = json.loads(self.ntr(*argv, "--json", **kw))
        commit = out.get("commit") or out.get("head")
        commit = commit["commit"] if isinstance(commit, dict) else commit
        if not commit:
            raise Failure(f"no commit: {argv}: {out}")
        self.mark("commit", session, commit)
        return commit

    def run(self, session, script):
        """A call; its script sees how long the log is when the session's first process begins."""
        began = os.path.join(self.top, "began")
        commit = self.ack(session, "run", "-s", session, "-c", f"stat -c %s {self.log} >{began}; {script}")
        self.acks.append((int(open(began).read()), "live", session))
        return commit


def scenario_commit(r):
    r.ack("s", "new", "s")
    r.run("s", "echo 1 >a; mkdir d; echo 2 >d/b")
    r.run("s", "echo 3 >>a; rm d/b; export X=1")
    r.ack("s", "put", "-s", "s", "-", "c", data=b"x" * 100000)
    r.run("s", "head -c 3000000 /dev/urandom >big")  # more than 1 MiB of new chunks: they are flushed first
    r.run("s", "head -c 1500000 /dev/urandom >>big; echo 4 >a")
    r.ntr("stop", "-s", "s")
    r.mark("stopped", "s")
    r.run("s", "echo 5 >a")


def scenario_import(r):
    src = os.path.join(r.top, "src")
    for i in range(40):
        os.makedirs(f"{src}/d{i}")
        for k in range(10):
            with open(f"{src}/d{i}/f{k}", "wb") as f:
                f.write(os.urandom(100 + 3000 * k))
    with open(f"{src}/big", "wb") as f:
        f.write(os.urandom(2500000))
    r.ack("i", "new", "i", "--from", src)
    r.run("i", "rm d1/f1; echo x >d2/f2")


def scenario_fork(r):
    r.ack("s", "new", "s")
    first = r.run("s", "echo 1 >a")
    r.run("s", "echo 2 >a")
    r.ntr("fork", "s", "t")
    r.run("t", "echo fork >a")
    r.ntr("rollback", "-s", "s", first)
    r.mark("head", "s", first)
    r.run("s", "cat a; echo 3 >b")
    r.ntr("rollback", "-s", "s", "--steps", "1")
    r.mark("head", "s", first)
    r.ntr("rename", "t", "u")
    r.mark("renamed", "t", "u")
    r.ntr("rm", "u")
    r.mark("removed", "u")


def folded(r, session):
    """Waits for the fold of a session's upper."""
    for _ in range(200):
        names = [n for n in os.listdir(os.path.join(r.store, "upper")) if n[0].isdigit()]
        if names and all(not os.listdir(os.path.join(r.store, "upper", n, "u")) for n in names):
            return
        time.sleep(0.05)
    raise Failure(f"session {session} is not folded")


def scenario_fold(r):
    r.ack("s", "new", "s")
    r.run("s", "for i in {1..200}; do echo $i >f$i; done")
    folded(r, "s")
    r.run("s", "echo x >f7; rm f8; mv f9 g")
    r.run("s", "for i in {1..200}; do echo $i$i >f$i; done")
    folded(r, "s")
    r.run("s", "echo y >f7")


def scenario_relaxed(r):
    r.relaxed.add("r")
    r.ack("r", "new", "r", "--durability", "relaxed")
    first = None
    for i in range(12):
        commit = r.run("r", f"echo {i} >a; head -c 200000 /dev/urandom >b")
        first = first or commit
    r.ntr("rollback", "-s", "r", first)
    r.run("r", "echo after >a")


SCENARIOS = {n[9:]: f for n, f in list(globals().items()) if n.startswith("scenario_")}


class Checker:
    def __init__(self, top):
        self.proc = subprocess.Popen([os.path.join(HELPERS, "ntr-powercut-check")], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=open(os.path.join(top, "check.err"), "w"), text=True)

    def ask(self, store, commits):
        self.proc.stdin.write(" ".join([store, *commits]) + "\n")
        self.proc.stdin.flush()
        line = self.proc.stdout.readline()
        if not line:
            raise Failure(f"the checker died (status {self.proc.wait()})")
        return json.loads(line)


def wanted(r, at):
    """What must be found after a cut at this offset: per session its list of commits, its head, whether it is live."""
    state = {}
    for off, what, session, *more in sorted(r.acks, key=lambda a: a[0]):
        if off > at:
            break
        s = state.setdefault(session, {"commits": [], "head": None, "live": False})
        if what == "commit":
            s["commits"].append(more[0])
            s["head"] = None
        elif what == "head":
            s["commits"], s["head"] = [more[0]], more[0]
        elif what == "live":
            s["live"] = True
        elif what == "stopped":
            s["live"] = False
        elif what == "renamed":
            state[more[0]] = state.pop(session)
        elif what == "removed":
            state[session] = None
    return state


def ended(r, at):
    """Sessions whose end or change is under way at this offset: nothing is demanded of their heads."""
    later = [a for a in sorted(r.acks, key=lambda a: a[0]) if a[0] > at]
    return {a[2] for a in later[:1] if a[1] in ("head", "renamed", "removed", "stopped")}


def verdict(r, at, got):
    bad = [f"{k}: {got[k]}" for k in ("error", "warning") if k in got] + list(got["problems"])
    if "error" in got and "commits" not in got:
        return bad
    there = {c for c, ok in zip(got["asked"], got["commits"]) if ok}
    moving = ended(r, at)
    for session, want in wanted(r, at).items():
        have = got["sessions"].get(session)
        if want is None:
            bad += [f"session {session} is back"] if have else []
            continue
        if session in moving:
            bad += [f"commit {c[:12]} is lost" for c in want["commits"] if c not in there and session not in r.relaxed]
            continue
        if session in r.relaxed:
            gone = [c not in there for c in want["commits"]]
            bad += ["a relaxed commit is missing, and a later one is there"] if gone != sorted(gone) else []
        else:
            reaches = have["reaches"] if have else []
            bad += [f"commit {c[:12]} of {session} is lost" for c in want["commits"] if c not in reaches]
        if want["head"] and have and session not in r.relaxed and have["head"] not in later_heads(r, session, at, want["head"]):
            bad.append(f"the head of {session} is {have['head'][:12]}, not {want['head'][:12]}")
        if want["live"] and not (have and have["upper"]) and not stopping(r, session, at):
            bad.append(f"session {session} is live, and its record names no upper")
    return bad


def later_heads(r, session, at, head):
    """The head that was acknowledged, or the next one, which may be written already."""
    later = [a[3] for a in sorted(r.acks, key=lambda a: a[0]) if a[0] > at and a[2] == session and len(a) > 3]
    return [head, *later[:1]]


def stopping(r, session, at):
    later = [a for a in sorted(r.acks, key=lambda a: a[0]) if a[0] > at]
    return not later or later[0][1] == "stopped"


def record(name, top):
    r = Recording(top)
    r.start()
    try:
        SCENARIOS[name](r)
    finally:
        r.stop()
    return r, read_log(r.log)


class Cuts:
    """The cuts of one recording, in their order, each at most once with each variant."""

    def __init__(self, name, recording, records, seed):
        self.name, self.r, self.records, self.seed = name, recording, records, seed
        # A cut behind a call that changes nothing that can be lost is the one before it.
        self.points = [i for i, x in enumerate(records) if x.op not in "bx"]
        self.cases = len(self.points) * len(VARIANTS)
        self.done = 0

    def check(self, checker, chosen, work):
        """chosen: the variants to try at each number of a point."""
        disk = Disk()
        commits = [a[3] for a in self.r.acks if a[1] == "commit"]
        bad = []
        for i, rec in enumerate(self.records):
            disk.step(rec)
            for variant in chosen.get(i, ()):
                where = tempfile.mkdtemp(dir=work)
                disk.build(where, variant, rng_of(self.seed, i, variant))
                got = checker.ask(os.path.join(where, "store"), commits)
                got["asked"] = commits
                wrong = verdict(self.r, rec.at, got)
                self.done += 1
                if wrong:
                    bad.append((i, variant, wrong))
                    if os.environ.get("NTR_POWERCUT_KEEP"):
                        continue
                shutil.rmtree(where)
        return bad


def choose(cuts, args, seconds):
    """All, or a sample that a measured speed has time for."""
    every = [(i, v) for i in cuts.points for v in VARIANTS]
    if not args.all:
        rng = random.Random(args.seed)
        every = rng.sample(every, min(len(every), max(len(VARIANTS), int(seconds / args.cost))))
    out = {}
    for i, v in every:
        out.setdefault(i, []).append(v)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=int(os.environ.get("NTR_TEST_SEED", "20261129")))
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--cost", type=float, default=0.2, help="seconds that one cut takes")
    ap.add_argument("--all", action="store_true")
    ap.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []])
    args = ap.parse_args()
    names = args.scenario or list(SCENARIOS)
    top = tempfile.mkdtemp(prefix="ntr-powercut.")
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else top
    work = tempfile.mkdtemp(prefix="ntr-powercut.", dir=shm)
    failed = 0
    try:
        checker = Checker(top)
        for name in names:
            os.mkdir(os.path.join(top, name))
            cuts = Cuts(name, *record(name, os.path.join(top, name)), args.seed)
            began = time.monotonic()
            bad = cuts.check(checker, choose(cuts, args, args.seconds / len(names)), work)
            print(f"{name}: {len(cuts.records)} calls, {cuts.done} of {cuts.cases} cuts checked in "
                  f"{time.monotonic() - began:.1f} s, {len(bad)} bad (seed {args.seed})", flush=True)
            for i, variant, wrong in bad[:20]:
                print(f"  behind call {i} ({cuts.records[i].op} {cuts.records[i].path}), {variant}: {'; '.join(wrong[:4])}")
            failed += len(bad)
    finally:
        if os.environ.get("NTR_POWERCUT_KEEP"):
            print(f"kept: {top} {work}")
        else:
            shutil.rmtree(work)
            shutil.rmtree(top)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
