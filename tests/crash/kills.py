#!/usr/bin/env python3
"""kills.py [--rounds N | --kills N] [--target T] [--doing D] [--load L] [--seed S]

SIGKILL of the daemon, of a supervisor, of a call, of the pass-through of an ordinary user's `ntr mount`, or of all of
them, at a random moment of something that is being done on the store of $NTR_STORE: a call, a session's start, an absorb of
many files, a commit, a fold (at rest, or between calls in line), a rollback, a fork, an import, a put, a removal. --load: so many
other sessions work meanwhile.

Calls write numbered lines to files of the workspace and, after each line, the same number to a witness outside. After
every kill:

  * `ls` of the versions mount and of a dead `ntr mount` does not block; processes over the dead mount have ended;
  * the next command works;
  * every commit that was acknowledged (its id was printed) is in the history, every put has its content, every fork
    and import that was acknowledged is there and whole, one that was not is whole or not there at all;
  * every number that the witness has is in the workspace, once, without a gap: what processes had written comes back
    (a `recovered` commit), nothing is half absorbed or absorbed twice, a rollback has happened or has not;
  * nothing is left behind: no process of a former daemon, no mount but the new daemon's.

At the end `ntr fsck` finds nothing.
"""
import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "helpers"))
from victims import Failure, all_pids, children, daemon_pid, kill, mounts, name, ntr, own, rows, threads, victims  # noqa: E402

SESSION = "crash"
TARGETS = ["daemon", "supervisor", "call", "pass", "all"]
MANY = 200
LINES = r"""
n=$(wc -l < %(w)s)
while :; do
  echo $n >> journal || exit 1
  echo $n > file$((n %% 7)) || exit 1
  mkdir -p d$((n %% 5)) && echo $n >> d$((n %% 5))/log || exit 1
  echo $n >> %(w)s
  n=$((n + 1))
  [ $((n %% 8)) -eq 0 ] && exit 0
done
"""
FILES = r"""
n=$(wc -l < %(w)s)
echo $n >> journal || exit 1
echo $n >> %(w)s
mkdir -p many
for i in {1..%(many)d}; do echo $n > many/$i || exit 1; done
"""
# Lives until its filesystem dies with the daemon: reads what only the versions mount has.
READER = "(while cat base/* >/dev/null; do sleep 0.05; done; echo over) </dev/null >/dev/null 2>&1 & echo $!"


def quickly(*argv, limit=10):
    """Whatever it gives, it gives it soon."""
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(argv)} blocks") from None


def gone(pid, start, limit=15):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if start_of(pid) != start:
            return True
        time.sleep(0.02)
    return False


def start_of(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19]
    except OSError:
        return None


class Load(threading.Thread):
    """Another session at work; remembers what was acknowledged."""

    def __init__(self, i):
        super().__init__(daemon=True)
        self.session, self.acked, self.stop, self.calls = f"load{i}", [], False, 0

    def run(self):
        script = "n=$(cat n 2>/dev/null || echo 0); for i in {1..40}; do echo $n > f$i; done; mkdir -p d$((n % 9)); " \
                 "mv f7 d$((n % 9))/; rm -f f9; echo $((n + 1)) > n"
        while not self.stop:
            try:
                p = ntr("run", "-s", self.session, "--json", "-c", script, check=False)
                self.acked += [c for c in [json.loads(p.stdout)["commit"]] if c]
                self.calls += 1
            except (ValueError, KeyError):
                time.sleep(0.02)

    def check(self):
        have = {r["commit"] for r in rows("log", "-s", self.session)}
        lost = [c for c in self.acked if c not in have]
        if lost:
            raise Failure(f"acknowledged commits of {self.session} lost: {lost[:3]} of {len(self.acked)}")


class Kills:
    def __init__(self, args):
        self.args, self.rng = args, random.Random(args.seed)
        self.store = os.environ["NTR_STORE"]
        self.dir = tempfile.mkdtemp(prefix="ntr-kills.")
        os.chmod(self.dir, 0o755)
        self.witness = os.path.join(self.dir, "witness")
        self.mountpoint = os.path.join(self.dir, "mnt")
        os.mkdir(self.mountpoint)
        self.acked, self.took, self.count = [], collections.defaultdict(lambda: 0.05), collections.Counter()
        self.n, self.slowest = 0, 0.0
        self.import_dir, self.import_sum = self.make_import()

    def script(self, text):
        return text % {"w": self.witness, "many": MANY}

    def make_import(self):
        top, total = os.path.join(self.dir, "import"), hashlib.sha256()
        for i in range(250):
            path = os.path.join(top, f"d{i % 13}", f"f{i}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(b"%d\n" % i * (i * 7))
        return top, total.hexdigest()

    # ---- what is there ----

    def lines(self, session=SESSION, path="journal"):
        return [int(x) for x in ntr("run", "-s", session, "--", "cat", path).stdout.split()]

    def witnessed(self):
        with open(self.witness, encoding="ascii") as f:
            return [int(x) for x in f.read().split()]

    def witness_is(self, numbers):
        with open(self.witness, "w", encoding="ascii") as f:
            f.writelines(f"{x}\n" for x in numbers)

    def tree(self, session):
        return ntr("run", "-s", session, "-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum").stdout

    def sessions(self):
        return {r["name"] for r in rows("sessions")}

    # ---- something to do, with a kill in it ----

    def cut(self, argv, what, after=0.0, begun=None):
        """Runs it and kills at a random moment, soon after `begun` says so where it is given. Returns whether it was acknowledged, and its output."""
        proc = subprocess.Popen(["ntr", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        began = time.monotonic()
        end = began + self.rng.uniform(0, 1.2) * self.took[self.doing] + after
        if begun:
            while not begun() and proc.poll() is None:
                time.sleep(0.0005)
            end = time.monotonic() + self.rng.uniform(0, 0.01)
        while time.monotonic() < end:
            if proc.poll() is not None and not after:
                break
            time.sleep(0.0005)
        ended = proc.poll() is not None
        self.count["killed processes"] += kill(victims(what))
        try:
            out, err = proc.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            raise Failure(f"ntr {argv[0]} hangs after a kill of {what}") from None
        if ended:
            self.took[self.doing] += ((time.monotonic() - began) - self.took[self.doing]) * 0.2
        else:
            self.took[self.doing] *= 1.02
            self.count["in the middle"] += 1
        if proc.returncode and not err and proc.returncode not in (130, 137):
            raise Failure(f"ntr {argv[0]} failed without a word: exit {proc.returncode}")
        return proc.returncode == 0, out

    def acknowledge(self, out):
        try:
            commit = json.loads(out)["commit"]
        except (ValueError, KeyError):
            return
        if commit:
            self.acked.append(commit)

    def do_call(self, what):
        _, out = self.cut(["run", "-s", SESSION, "--json", "-c", self.script(LINES)], what)
        self.acknowledge(out)

    def do_begin(self, what):
        """A session that goes live, which is when the versions mount is asked for its tree."""
        ntr("stop", "-s", SESSION)
        _, out = self.cut(["run", "-s", SESSION, "--json", "-c", self.script(LINES)], what, begun=lambda: True)
        self.acknowledge(out)

    def do_absorb(self, what):
        _, out = self.cut(["run", "-s", SESSION, "--json", "-c", self.script(FILES)], what)
        self.acknowledge(out)

    def do_fold(self, what):
        """A fold is due a moment after a call that changed so much."""
        self.acknowledge(ntr("run", "-s", SESSION, "--json", "-c", self.script(FILES)).stdout)
        self.cut(["status", "-s", SESSION], what, after=self.rng.uniform(0, 0.4))

    def do_owed(self, what):
        """A fold that does not wait for rest: many files, and more calls in line than walking them may cost."""
        more = "mkdir -p more; for i in {1..1500}; do echo > more/$i; done; " + self.script(FILES)
        argv = ["ntr", "run", "-s", SESSION, "--json", "-c"]
        line = [subprocess.Popen([*argv, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                for script in [more] + ["true"] * 16]
        while line[0].poll() is None and not self.uppers():
            time.sleep(0.001)
        had = self.uppers()
        _, out = self.cut(["run", "-s", SESSION, "--json", "-c", self.script(LINES)], what, begun=lambda: self.uppers() - had)
        self.acknowledge(out)
        for p in line:
            try:
                self.acknowledge(p.communicate(timeout=120)[0])
            except subprocess.TimeoutExpired:
                raise Failure(f"a call in line hangs after a kill of {what}") from None
        self.count["folds between calls"] += b"fold.owed" in ntr("daemon", "status", "--json", check=False).stdout

    def uppers(self):
        return {n for n in os.listdir(os.path.join(self.store, "upper")) if n[0].isdigit()}

    def do_stop(self, what):
        self.cut(["stop", "-s", SESSION], what)

    def do_commit(self, what):
        ntr("run", "-s", SESSION, "--no-commit", "-c", self.script(LINES))
        _, out = self.cut(["commit", "-s", SESSION, "--json", "-m", "work"], what)
        self.acknowledge(out)

    def do_rollback(self, what):
        before = self.lines()
        ntr("run", "-s", SESSION, "-c", self.script(LINES))
        after = self.lines()
        argv = ["rollback", "-s", SESSION, "--steps", "1"]
        done, _ = self.cut(argv + (["--discard"] if self.rng.random() < 0.5 else []), what)
        now = self.lines()
        if now != before and (done or now != after):
            raise Failure(f"rollback ({'done' if done else 'cut'}): {len(now)} lines, {len(before)} or {len(after)} expected")
        self.witness_is(sorted(set(now)))

    def whole_or_not(self, session, done, wanted):
        there = session in self.sessions()
        if done and not there:
            raise Failure(f"acknowledged session {session} is lost")
        if there and wanted(session):
            raise Failure(f"session {session} is not whole")
        if there:
            ntr("rm", session)

    def do_fork(self, what):
        self.n += 1
        done, _ = self.cut(["fork", SESSION, f"fork{self.n}"], what)
        lines = self.lines()
        self.whole_or_not(f"fork{self.n}", done, lambda s: self.lines(s) != lines)

    def do_import(self, what):
        self.n += 1
        done, _ = self.cut(["new", f"import{self.n}", "--from", self.import_dir], what)

        def differs(session):
            copy = os.path.join(self.dir, "export")
            ntr("export", "-s", session, "--dir", copy)
            status = subprocess.run(["diff", "-r", self.import_dir, copy], stdout=subprocess.DEVNULL, check=False).returncode
            shutil.rmtree(copy)
            return status
        self.whole_or_not(f"import{self.n}", done, differs)

    def do_put(self, what):
        self.n += 1
        source = os.path.join(self.dir, "put")
        content = self.rng.randbytes(self.rng.choice([10, 100000, 3000000]))
        with open(source, "wb") as f:
            f.write(content)
        before = ntr("run", "-s", SESSION, "-c", "cat put 2>/dev/null; true").stdout
        done, out = self.cut(["put", "-s", SESSION, "--json", source, "put"], what)
        self.acknowledge(out)
        now = ntr("run", "-s", SESSION, "-c", "cat put 2>/dev/null; true").stdout
        # A live session's file is written where it stands, as by cp: what was killed has written a part.
        part = os.path.commonprefix([now, content])
        if now != content and (done or now != part + before[len(part):]):
            raise Failure(f"put ({'done' if done else 'cut'}): {len(now)} bytes, {len(before)} or {len(content)} expected")

    def do_remove(self, what):
        self.n += 1
        session = f"gone{self.n}"
        ntr("fork", SESSION, session)
        lines = self.lines(session)
        done, _ = self.cut(["rm", session], what)
        there = session in self.sessions()
        if there and (done or self.lines(session) != lines):
            raise Failure(f"session {session}: removed, and there, or not whole")
        if there:
            ntr("rm", session)

    # ---- one round ----

    def mount(self):
        if ntr("mount", SESSION, self.mountpoint, check=False).returncode == 0:
            self.count["mounts"] += 1
            return True
        return False

    def round(self, what, doing):
        self.doing = doing
        mounted = (what == "pass" or self.rng.random() < 0.2) and self.mount()
        reader = None
        if doing not in ("rollback", "stop", "fold") and self.rng.random() < 0.3:
            pid = int(ntr("run", "-s", SESSION, "-c", READER).stdout)
            reader = pid, start_of(pid)
        had = daemon_pid()
        getattr(self, "do_" + doing)(what)
        for path in [self.mountpoint, os.path.join(self.store, "versions"), os.path.join(self.store, "plain")]:
            quickly("ls", "-l", path)
        if reader and what in ("daemon", "all") and start_of(had) is None and not gone(*reader):
            raise Failure(f"process {reader[0]} over a dead versions mount does not end: {name(reader[0])}")
        if mounted:
            quickly("ntr", "umount", self.mountpoint, limit=60)
            self.unmount()
        began = time.monotonic()
        ntr("run", "-s", SESSION, "--", "true")
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.check()
        if reader:
            kill([p for p in [reader[0]] if start_of(p) == reader[1]])
        self.count["kills"] += 1

    def unmount(self):
        if os.path.ismount(self.mountpoint) if reachable(self.mountpoint) else True:
            # umount(8) of either user: it needs no /etc/mtab
            subprocess.run(["umount", "-l", self.mountpoint], stderr=subprocess.DEVNULL, check=False)
            if mounts(self.mountpoint):
                raise Failure(f"{self.mountpoint} cannot be unmounted")

    def check(self):
        have, got = self.witnessed(), self.lines()
        # The kill may fall between the write to the workspace and the one to the witness: one number more, twice in
        # the next call's count. Lost or doubled work would show as anything else.
        seen = sorted(set(got))
        if seen != list(range(len(seen))):
            raise Failure(f"journal has holes: {seen[:5]}…{seen[-5:]}")
        twice = len(got) - len(seen)
        if twice > self.count["kills"] + 1:
            raise Failure(f"{twice} lines of the journal are there twice")
        missing = [x for x in have if x not in set(got)]
        if missing:
            raise Failure(f"written but lost: {missing[:10]} of {len(have)}")
        self.check_many()
        log = {r["commit"] for r in rows("log", "-s", SESSION)}
        if self.doing == "rollback":  # what was acknowledged before it may be abandoned: kept, but of no branch
            self.acked = [c for c in self.acked if c in log]
        lost = [c for c in self.acked if c not in log]
        if lost:
            raise Failure(f"acknowledged commits lost: {lost[:3]} of {len(self.acked)}")
        self.check_left()

    def check_many(self):
        """They were written in order, all with the same number: a cut leaves a number, then the one before."""
        out = ntr("run", "-s", SESSION, "-c", "for i in {1..%d}; do cat many/$i 2>/dev/null || echo -1; done" % MANY).stdout
        values = [int(x or -1) for x in out.decode().split("\n")[:MANY]]
        steps = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
        if any(values[i] > values[i - 1] and values[i - 1] >= 0 for i in steps) or len(steps) > 8:
            raise Failure(f"files of one call are mixed: {values}")

    def check_left(self):
        end = time.monotonic() + 10
        while True:
            daemon = daemon_pid()
            family, todo = set(), [daemon]
            while todo:
                p = todo.pop()
                family.add(p)
                todo += children(p)
            left = [(p, name(p)) for p in all_pids() if p not in family and own(p, self.store) and
                    name(p).startswith(("ntrd", "ntr-init", "ntr-pass"))]
            where = [m for m in mounts(self.store)]
            extra = [m for m in where if where.count(m) > 1 or os.path.basename(m) not in ("versions", "plain")]
            if not left and not extra:
                return
            if time.monotonic() > end:
                raise Failure(f"left behind: {left} {extra}")
            time.sleep(0.1)

    def run(self):
        self.witness_is([])
        ntr("run", "-s", SESSION, "-c", "touch journal; mkdir base; for i in 1 2 3; do head -c 300000 /dev/urandom > base/$i; done")
        ntr("stop", "-s", SESSION)
        load = [Load(i) for i in range(self.args.load)]
        for t in load:
            t.start()
        doings = self.args.doing.split(",") if self.args.doing else [d[3:] for d in dir(self) if d.startswith("do_")]
        targets = TARGETS if self.args.target == "any" else self.args.target.split(",")
        if self.args.target == "any" and os.geteuid() == 0:
            targets = [t for t in targets if t != "pass"]  # root's mounts are the view itself
        plan = [(t, self.rng.choice(doings)) for t in targets for _ in range(self.args.rounds)]
        self.rng.shuffle(plan)
        self.last = None
        for self.last in plan:
            self.round(*self.last)
            self.count[self.last[0]] += 1
        for t in load:
            t.stop = True
        for t in load:
            t.join(60)
            t.check()
        p = ntr("fsck", check=False)
        if p.returncode:
            raise Failure(f"fsck: {p.stdout.decode()}{p.stderr.decode()}")
        kinds = collections.Counter(r["tool"] for r in rows("log", "-s", SESSION))
        acked = len(self.acked) + sum(len(t.acked) for t in load)
        by = ", ".join(f"{t} {self.count[t]}" for t in targets)
        print(f"{self.count['kills']} kills ({by}), {self.count['in the middle']} of them before the end of what was done: "
              f"{acked} acknowledged commits, {kinds['recovered']} recovered, folds between calls seen in "
              f"{self.count['folds between calls']} rounds, slowest next command {self.slowest:.2f} s, "
              f"nothing lost; fsck clean")


def reachable(path):
    try:
        os.stat(path)
        return True
    except OSError:
        return False


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=5, help="of each target")
    ap.add_argument("--target", default="any", help="of " + ",".join(TARGETS))
    ap.add_argument("--doing", default="", help="what is done meanwhile, instead of everything in turn")
    ap.add_argument("--load", type=int, default=0)
    ap.add_argument("--seed", type=int, default=int(os.environ.get("NTR_SEED", "20261129")))
    k = Kills(ap.parse_args())
    try:
        k.run()
    except Failure as e:
        print(f"FAIL after {k.count['kills']} kills, in {k.last}: {e} (seed {k.args.seed})", file=sys.stderr)
        stuck = [p for p in all_pids() if own(p, k.store) and name(p).startswith("ntr")]
        print("\n".join(line for p in stuck for line in threads(p)), file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(k.dir, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
