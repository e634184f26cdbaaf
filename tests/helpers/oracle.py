#!/usr/bin/env python3
"""oracle.py [--seed S] [--ops N] [--sequences K] [--kills] [--each B]

The oracle: the same random file operations (fsoracle) in a session of the store $NTR_STORE and in a plain directory. Every
result and every tree must be equal. Between batches of about B operations: commits, folds, forks, rollbacks near and
far, discards, exports and imports, renames, restarts of the daemon. In the end every commit that was kept in mind must
still have the tree that it had.

--kills: SIGKILL of the daemon, of the supervisor, of the call, of ntr-pass, or of all of them, in the middle of batches
and of what is done between them. Then the tree must be that of a run which was cut at one system call: at the last that
had returned, or the one after it.

A failing seed is printed; `oracle.py --seed S …` repeats its sequence (what is killed when depends on time, too).
"""
import argparse
import glob
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from victims import Failure, kill, ntr, rows, victims  # noqa: E402

HEAD = struct.Struct("<5Q")
WRITE_STEP = 4096

# Finishes, or takes back, an ordinary user's rename of a committed directory that a kill cut short: then everything is under
# one of the two names, in part under both. An exchange has a third name, aside.
MEND = """
import glob, os, sys
how, old, new = sys.argv[1], *(os.fsencode(a) for a in sys.argv[2:])
aside = glob.glob(os.path.join(os.path.dirname(new) or b".", b".ntr-rename-*"))
def lend(path):
    mode = os.lstat(path).st_mode & 0o7777
    os.chmod(path, mode | 0o700)
    return mode
def merge(a, b):
    if not os.path.lexists(a):
        return
    folder = os.path.isdir(a) and not os.path.islink(a)
    mode = lend(a) if folder else 0
    if not os.path.lexists(b):
        os.rename(a, b)
        if folder:
            os.chmod(b, mode)
    elif folder:
        other = lend(b)
        for name in os.listdir(a):
            merge(os.path.join(a, name), os.path.join(b, name))
        os.rmdir(a)
        os.chmod(b, other)
    else:
        os.unlink(a)
if how == "finish":
    merge(old, new)
elif how == "drop":
    for a in aside:
        os.system(b"chmod -R u+rwx '" + a + b"'; rm -rf '" + a + b"'")
elif how == "back":
    for a in aside:
        merge(a, old)
elif how == "exchange":
    merge(new, old)
    for a in aside:
        os.rename(a, new)
"""
FAILED_LAST = re.compile(rb"^\d+ rename\w* .* E[A-Z]+\n\Z", re.M)
RENAME = re.compile(rb"^\d+ rename\w* '([^']*)' '([^']*)' (\d)", re.M)


class Log:
    """What fsoracle left behind, however it ended."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.steps, self.done, size, self.tree, self.finished = HEAD.unpack(f.read(HEAD.size).ljust(HEAD.size, b"\0"))
            self.text = f.read(size)


def build():
    """The executor, compiled once; $NTR_FSORACLE names one that exists already."""
    path = os.environ.get("NTR_FSORACLE")
    if path:
        return path
    path = os.path.join(tempfile.mkdtemp(prefix="ntr-fsoracle."), "fsoracle")
    sources = sorted(glob.glob(os.path.join(HERE, "fsoracle", "*.c")))
    subprocess.run(["cc", "-std=gnu17", "-O2", "-o", path, *sources], check=True)
    os.chmod(os.path.dirname(path), 0o755)
    os.environ["NTR_FSORACLE"] = path
    return path


def kill_at_random(rng, what, within):
    time.sleep(rng.uniform(0, within))
    return kill(victims(what))


class Sequence:
    def __init__(self, args, seed, top):
        self.args, self.seed, self.rng = args, seed, random.Random(seed)
        self.top = os.path.join(top, f"seq{seed}")
        os.mkdir(self.top)
        os.chmod(self.top, 0o777)
        self.plain, self.before = os.path.join(self.top, "plain"), os.path.join(self.top, "before")
        os.mkdir(self.plain)
        self.now = ["--no-now"] if args.kills else []
        # Where a run was cut shows also in what an ordinary user has no permission for.
        self.looking = [*self.now, "--unlock"] if args.kills and os.geteuid() else self.now
        self.names, self.session, self.op = 0, f"oracle{seed}", 0
        self.kept = []  # (commit or session, hash of its tree)
        self.saved = []  # (commit, copy of the tree)
        self.acked = []
        self.count = {"batches": 0, "kills": 0, "cut": 0, "partial": 0, "EXDEV": 0, "times": 0, "moves": 0}
        ntr("new", self.session)

    # ---- both sides ----

    def log_path(self, side):
        return os.path.join(self.top, side + ".log")

    def executor(self, first, last, side, *more):
        return [self.args.fsoracle, "run", str(self.seed), str(first), str(last), self.log_path(side), *self.now, *more]

    def run_plain(self, first, last, *more):
        more = list(more)
        refused = Log(self.log_path("live")).text.count(b" EXDEV\n")
        if refused:
            self.count["EXDEV"] += refused
            more += ["--follow", self.log_path("live")]
        subprocess.run(self.executor(first, last, "plain", *more), cwd=self.plain, check=True, stdin=subprocess.DEVNULL)
        return Log(self.log_path("plain"))

    def hash_plain(self, *options, where=None):
        return subprocess.run([self.args.fsoracle, "hash", *self.looking, *options], cwd=where or self.plain, check=True,
                              stdout=subprocess.PIPE).stdout

    def hash_live(self, *options, session=None):
        return ntr("run", "-s", session or self.session, "--", self.args.fsoracle, "hash", *self.looking, *options).stdout

    def head(self):
        return json.loads(ntr("log", "-s", self.session, "-n", "1", "--json").stdout)["commit"]

    def differ(self, what, live, plain):
        for name, text in (("live", live), ("plain", plain)):
            with open(os.path.join(self.top, "differs." + name), "wb") as f:
                f.write(text)
        out = subprocess.run(["diff", "differs.plain", "differs.live"], cwd=self.top, stdout=subprocess.PIPE, check=False).stdout
        raise Failure(f"{what} (operations up to {self.op}):\n{out.decode(errors='replace')[:3000]}")

    def same_trees(self, what, *options):
        live, plain = self.hash_live(*options), self.hash_plain(*options)
        if live != plain:
            self.differ(what, self.hash_live("--list", *options), self.hash_plain("--list", *options))

    def copy(self, source, to):
        shutil.rmtree(to, ignore_errors=True)
        if os.path.lexists(to):
            subprocess.run(["chmod", "-R", "u+rwx", to], check=True)
            shutil.rmtree(to)
        subprocess.run(["cp", "-a", source, to], check=True)

    # ---- one batch ----

    def batch(self):
        first, last = self.op, min(self.op + self.rng.randint(1, 2 * self.args.each), self.args.ops)
        words = ["ntr", "run", "-s", self.session]
        if self.rng.random() < 0.15:
            words.append("--no-commit")
        self.count["batches"] += 1
        if self.args.kills and self.rng.random() < 0.5:
            self.killed_batch(words, first, last)
        else:
            ntr(*words[1:], "--", *self.executor(first, last, "live"))
            live = Log(self.log_path("live"))
            plain = self.run_plain(first, last)
            if live.tree != plain.tree and not self.args.kills:
                raise Failure(f"trees differ before operation {first}: repeat with --look-at {first}")
            if live.text != plain.text:
                self.differ("results differ", live.text, plain.text)
            if live.finished != 1:
                raise Failure(f"the run of operations from {first} did not end: {live.finished}")
        self.op = last

    def killed_batch(self, words, first, last):
        if os.geteuid() == 0:
            self.copy(self.plain, self.before)
        else:  # what has no permission for its owner cannot be copied by him: cut only trees that can
            if subprocess.run(["cp", "-a", self.plain, self.before + ".new"], stderr=subprocess.DEVNULL, check=False).returncode:
                subprocess.run(["chmod", "-R", "u+rwX", self.before + ".new"], check=False)
                shutil.rmtree(self.before + ".new", ignore_errors=True)
                self.readable()
                subprocess.run(["cp", "-a", self.plain, self.before + ".new"], check=True)
            if os.path.lexists(self.before):
                subprocess.run(["chmod", "-R", "u+rwX", self.before], check=True)
                shutil.rmtree(self.before)
            os.rename(self.before + ".new", self.before)
        try:
            os.unlink(self.log_path("live"))
        except FileNotFoundError:
            pass
        proc = subprocess.Popen(words + ["--json", "--"] + self.executor(first, last, "live", "--killable"),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        what = self.rng.choice(["daemon", "supervisor", "call", "all", "daemon", "all", "pass"])
        self.count["kills"] += kill_at_random(self.rng, what, (last - first) * 0.00012 + 0.03) > 0
        out, err = proc.communicate(timeout=180)
        if proc.returncode == 0 and out:
            self.acked.append(json.loads(out)["commit"])
        if not os.path.exists(self.log_path("live")):
            if b"ntr" not in err and proc.returncode not in (137, 0):
                raise Failure(f"killed {what}: the call neither ran nor said why: {proc.returncode} {err!r}")
            open(self.log_path("live"), "wb").write(bytes(HEAD.size))
        self.meet(first, last, what)

    def meet(self, first, last, what):
        """Takes the plain side to where the killed run got."""
        if os.geteuid() and Log(self.log_path("live")).finished != 1:
            # What a dying process made (bind) its view may not show, though it is there: the next view does.
            ntr("stop", "-s", self.session)
        live_tree = self.hash_live()
        live = Log(self.log_path("live"))
        steps = live.steps
        tries = [("--steps", str(steps))] if live.finished != 1 else [()]
        if live.finished != 1:
            self.count["cut"] += 1
            tries.append(("--steps", str(steps + 1)))
            tries += [("--steps", str(steps), "--partial", str(k)) for k in range(WRITE_STEP, 73728, WRITE_STEP)]
        for i, more in enumerate(tries):
            if i:
                self.copy(self.before, self.plain)
            plain = self.run_plain(first, last, "--killable", *more)
            if not plain.text.startswith(live.text) and not self.same_but_last(live, plain):
                self.differ("results differ", live.text, plain.text[:len(live.text)])
            if self.hash_plain() == live_tree or (not i and self.only_times()):
                self.count["partial"] += i > 1
                return
            if i == 0:
                wanted = self.hash_plain("--list")
            if i == 1 and os.geteuid() and self.mend_move(first, last, live, plain):
                return
        self.differ(f"after a kill of {what} at step {steps} (end {live.finished}): {live.text[-200:]!r}",
                    self.hash_live("--list"), wanted)

    @staticmethod
    def same_but_last(live, plain):
        """The helper that answers an ordinary user's renames dies in its turn: what the last one says is no result."""
        last_one = FAILED_LAST.search(live.text) if os.geteuid() and live.finished != 1 else None
        return last_one is not None and plain.text.startswith(live.text[:last_one.start()])

    def mend_move(self, first, last, live, after):
        """An ordinary user's rename of a committed directory is several steps."""
        cut = RENAME.search(after.text, live.text.rfind(b"\n") + 1)
        if not cut:
            return False
        old, new = (m.decode("unicode_escape").encode("latin-1") for m in cut.groups()[:2])
        whole = self.hash_plain()
        for how in (["exchange", "back", "drop"] if cut[3] == b"2" else ["finish", "drop"]):
            name = self.fresh_name()
            ntr("fork", self.session, name)
            p = ntr("run", "-s", name, "--", "/usr/bin/python3", "-c", MEND, how, os.fsdecode(old), os.fsdecode(new), check=False)
            if p.returncode:
                continue
            if how in ("back", "drop"):
                self.copy(self.before, self.plain)
                self.run_plain(first, last, "--killable", "--steps", str(live.steps))
                whole = self.hash_plain()
            if self.hash_live(session=name) == whole:
                self.session = name
                self.count["moves"] += 1
                return True
        return False

    def only_times(self):
        """A system call that writes is several steps in the kernel: the set-id bits go before the data comes. And with
        overlayfs's metacopy the copy of the data, when a file is opened for writing, brings mtime to now. A kill in
        between shows; both sides then get the same."""
        if self.hash_live("--no-times") != self.hash_plain("--no-times"):
            return False
        name = self.fresh_name()
        ntr("fork", self.session, name)
        for doing in (["touch", "-d", "@1600000000"], ["chmod", "ug-s"]):
            words = ["find", ".", "-type", "f", "!", "-name", "h*", "!", "-name", "q*", "-exec", *doing, "{}", "+"]
            ntr("run", "-s", name, "--", *words, check=False)
            subprocess.run(words, cwd=self.plain, check=False)
        if self.hash_live(session=name) != self.hash_plain():
            return False # the session is as it was; the plain side is made anew
        self.session = name
        self.count["times"] += 1
        return True

    def readable(self):
        fix = ["find", ".", "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
        fix_files = ["find", ".", "-type", "f", "!", "-perm", "-400", "-exec", "chmod", "u+r", "{}", ";"]
        for words in (fix, fix_files):
            for _ in range(4):
                ntr("run", "-s", self.session, "--", *words, check=False)
                subprocess.run(words, cwd=self.plain, stderr=subprocess.DEVNULL, check=False)

    # ---- what must not show ----

    def fresh_name(self):
        self.names += 1
        return f"oracle{self.seed}.{self.names}"

    def do_stop(self):
        ntr("stop", "-s", self.session)
        if self.rng.random() < 0.3:
            self.same_trees("after a fold, links too", "--links")

    def do_wait(self):
        time.sleep(0.12)

    def do_fork(self):
        if len(self.kept) < 40:
            self.kept.append((self.session, self.hash_live()))
        name = self.fresh_name()
        ntr("fork", self.session, name)
        self.session = name

    def do_daemon_stop(self):
        ntr("daemon", "stop")

    def do_kill_idle(self):
        kill(victims("daemon"))

    JUNK = "chmod -R u+rwx . 2>/dev/null; rm -rf d0 d1 f*; mkdir -p d2/d3; touch junk d2/junk; mv d3 d4; echo x > .wh..opq"

    def do_rollback(self):
        ntr("commit", "-s", self.session, "-m", "kept")
        head = self.head()
        ntr("run", "-s", self.session, "-c", self.JUNK, check=False)
        self.acked.append(head)
        ntr("rollback", "-s", self.session, head)

    def do_discard(self):
        ntr("commit", "-s", self.session, "-m", "kept")
        ntr("run", "-s", self.session, "--no-commit", "-c", self.JUNK, check=False)
        ntr("discard", "-s", self.session)

    def do_look(self):
        ntr("run", "-s", self.session, "--no-commit", "--", "true")
        for words in (["status"], ["diff"], ["ls"]):
            p = ntr(*words, "-s", self.session, check=False)
            if p.returncode > (words == ["diff"]) or p.stderr:
                raise Failure(f"ntr {words[0]}: exit {p.returncode}: {p.stderr.decode(errors='replace')}")

    def do_remember(self):
        """A commit to come back to, or the coming back."""
        if self.saved and self.rng.random() < 0.5:
            commit, copy = self.saved.pop(self.rng.randrange(len(self.saved)))
            ntr("rollback", "-s", self.session, commit)
            if os.geteuid():
                subprocess.run(["chmod", "-R", "u+rwX", self.plain], check=True)
            shutil.rmtree(self.plain)
            os.rename(copy, self.plain)
            self.same_trees("after a rollback")
            return
        if os.geteuid():
            self.readable()
        ntr("commit", "-s", self.session, "-m", "kept")
        copy = os.path.join(self.top, f"saved.{self.op}")
        if len(self.saved) < 4 and not os.path.exists(copy):
            subprocess.run(["cp", "-a", self.plain, copy], check=True)
            self.saved.append((self.head(), copy))

    def do_import(self):
        """Out and in again. An exported socket stays behind, an ordinary user's devices too."""
        if os.geteuid():
            self.readable()
        copy, name = os.path.join(self.top, "export"), self.fresh_name()
        subprocess.run(["sh", "-c", "find . -type s -delete"], cwd=self.plain, check=True)
        ntr("run", "-s", self.session, "--", "find", ".", "-type", "s", "-delete")
        os.mkdir(copy)
        ntr("export", "-s", self.session, "--dir", copy)
        ntr("new", name, "--from", copy)
        shutil.rmtree(copy)
        self.session = name
        self.same_trees("after export and import")

    def do_rename(self):
        name = self.fresh_name()
        ntr("rename", self.session, name)
        self.session = name

    def disturb(self):
        doings = [self.do_stop, self.do_wait, self.do_fork, self.do_daemon_stop, self.do_rollback, self.do_discard,
                  self.do_look, self.do_remember, self.do_rename, self.do_kill_idle, None, None, None, None]
        what = self.rng.choice(doings)
        if what:
            what()

    # ---- the whole ----

    def end(self):
        self.same_trees("at the end")
        ntr("stop", "-s", self.session)
        self.same_trees("folded, at the end", "--links")
        for session, tree in self.kept:
            if ntr("sessions", check=False) and self.hash_live(session=session) != tree:
                raise Failure(f"session {session} was changed by its forks")
        for commit, copy in self.saved:
            name = self.fresh_name()
            ntr("fork", f"{self.session}@{commit}", name)
            if self.hash_live(session=name) != self.hash_plain(where=copy):
                raise Failure(f"commit {commit} has another tree than it had")
        if os.geteuid():
            self.readable()
            self.same_trees("made readable")

    def run(self):
        while self.op < self.args.ops:
            if self.op == self.args.look_at:
                self.same_trees("before the operation to look at")
            self.batch()
            self.disturb()
        self.end()
        subprocess.run(["chmod", "-R", "u+rwX", self.top], check=True)
        shutil.rmtree(self.top)
        for s in rows("sessions"):
            if s["name"].startswith(f"oracle{self.seed}"):
                ntr("rm", s["name"])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=int(os.environ.get("NTR_TEST_SEED", "20261129")))
    ap.add_argument("--ops", type=int, default=2000, help="operations a sequence")
    ap.add_argument("--sequences", type=int, default=1)
    ap.add_argument("--each", type=int, default=100)
    ap.add_argument("--look-at", type=int, help="compare the trees in full before this operation")
    ap.add_argument("--kills", action="store_true")
    args = ap.parse_args()
    args.fsoracle = build()
    top = tempfile.mkdtemp(prefix="ntr-oracle.", dir=os.environ.get("TMPDIR"))
    total, began, seed = {}, time.monotonic(), args.seed
    try:
        for seed in range(args.seed, args.seed + args.sequences):
            s = Sequence(args, seed, top)
            s.run()
            for k, v in s.count.items():
                total[k] = total.get(k, 0) + v
        p = ntr("fsck", check=False, timeout=3600)
        if p.returncode:
            raise Failure(f"fsck: {p.stdout.decode()}{p.stderr.decode()}")
    except Failure as e:
        print(f"FAIL: seed {seed}: {e}\nrepeat: oracle.py --seed {seed} --ops {args.ops} --each {args.each}"
              f"{' --kills' if args.kills else ''}; both trees: {top}", file=sys.stderr)
        return 1
    shutil.rmtree(top, ignore_errors=True)
    print(f"seeds {args.seed}..{seed}: {args.ops * args.sequences} operations in {total.pop('batches')} batches, "
          f"{time.monotonic() - began:.0f} s; {total}; no difference, fsck clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
