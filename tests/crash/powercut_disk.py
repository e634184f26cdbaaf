#!/usr/bin/env python3
"""powercut_disk.py [--seed N] [--cuts N | --all]   (root, /dev/fuse, loop devices, mkfs.ext4)

Power failures of a whole filesystem. A store lies on an ext4 of its own, on a loop device over powercut_disk.c, which
records what the kernel writes to the disk and when it flushes, and lets some writes take their time (--late). Calls change
files, some of them synced by the calls themselves, with commits, a fold, a rollback and a fork in between. Then the disk is
made as it can look after a cut behind any of its writes: everything up to the last flush, and of what came later all,
nothing, or any part, torn in units of 4 KiB or 512 bytes.
The kernel mounts it (and replays its own journal), under another boot id, and

  * every acknowledged commit is in its session's history, whole (fsck), and nothing says damage;
  * every file is as the last acknowledged commit had it, or as a later write left it: a file is never older than what was
    acknowledged, whether by a commit or by a sync of the call's own; never empty or cut instead;
  * the next call works.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("NTR_BIN", "")
HELPERS = os.environ.get("NTR_POWERCUT", BIN)
SIZE = 96 << 20
HEAD = struct.Struct("<QII")


class Failure(Exception):
    pass


def sh(*argv, check=True, **kw):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **kw)
    if check and p.returncode:
        raise Failure(f"{' '.join(argv[:6])}: exit {p.returncode}: {p.stderr.strip()} {p.stdout.strip()}")
    return p


class World:
    """A mounted store with its environment."""

    def __init__(self, top, mnt):
        self.top, self.mnt = top, mnt
        self.store = os.path.join(mnt, "store")
        run = os.path.join(top, "run")
        os.makedirs(run, 0o700, exist_ok=True)
        self.env = dict(os.environ, NTR_STORE=self.store, XDG_RUNTIME_DIR=run, HOME=top, NTR_LIBEXEC=BIN,
                        PATH=BIN + ":" + os.environ["PATH"], PYTHONDONTWRITEBYTECODE="1")

    def ntr(self, *argv, check=True):
        return sh("ntr", *argv, env=self.env, check=check, cwd="/")


class History:
    """What every file held when: (begun, acknowledged, content or None), offsets in the log; None: never acknowledged."""

    def __init__(self):
        self.files, self.commits = {}, []

    def event(self, session, path, begun, acked, content):
        self.files.setdefault((session, path), []).append([begun, acked, content])


class Recorder:
    def __init__(self, top, seed, late):
        self.top, self.rng = top, random.Random(seed)
        self.image, self.log = os.path.join(top, "image"), os.path.join(top, "log")
        self.fuse, self.mnt = os.path.join(top, "fuse"), os.path.join(top, "mnt")
        self.h = History()
        self.state = {}
        for d in (self.fuse, self.mnt):
            os.mkdir(d)
        with open(self.image, "wb") as f:
            f.truncate(SIZE)
        sh("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        shutil.copy2(self.image, self.image + ".0")
        self.server = subprocess.Popen([os.path.join(HELPERS, "ntr-powercut-disk"), self.image, self.log, self.fuse, str(late)])
        for _ in range(100):
            if os.path.exists(os.path.join(self.fuse, "disk")):
                break
            time.sleep(0.05)
        # Direct: the loop device then has many requests under way at once, which may overtake each other.
        loop = sh("losetup", "--direct-io=on", "--show", "-f", os.path.join(self.fuse, "disk")).stdout.strip()
        try:
            sh("mount", "-o", "noatime", loop, self.mnt)
        finally:
            sh("losetup", "-d", loop)  # it goes when nothing has it mounted any more
        self.w = World(top, self.mnt)

    def at(self):
        return os.path.getsize(self.log)

    def close(self):
        self.w.ntr("daemon", "stop", check=False)
        sh("umount", "-l", self.mnt, check=False)
        for _ in range(50):
            if not sh("losetup", "-j", os.path.join(self.fuse, "disk"), check=False).stdout:
                break
            time.sleep(0.1)
        sh("umount", "-l", self.fuse, check=False)
        self.server.wait(20)

    def run(self, session, ops, tail=""):
        """A call that does ops: (path, content or None[, "sync"]); its commit is acknowledged when it returns."""
        files = self.state.setdefault(session, {})
        said = os.path.join(self.top, "said")
        open(said, "w").close()
        begun, lines, events = self.at(), [], []
        for path, content, *sync in ops:
            quoted = os.path.dirname(path)
            lines.append(f"mkdir -p ./{quoted}" if quoted else ":")
            if content is None:
                lines.append(f"rm -f {path}")
            elif sync == ["append"]:
                lines.append(f"printf %s '{content}' >>{path}")
                content = (files.get(path) or "") + content
            elif sync == ["rename"]:
                lines.append(f"printf %s '{content}' >{path}.tmp && mv {path}.tmp {path}")
            else:
                lines.append(f"printf %s '{content}' >{path}")
            e = [begun, None, content]
            if sync == ["sync"]:
                lines.append(f"sync {path} && echo {len(events)} $(stat -c %s {self.log}) >>{said}")
            files[path] = content
            events.append((path, e))
        reply = json.loads(self.w.ntr("run", "-s", session, "--json", "-c", "\n".join(lines) + "\n" + tail).stdout)
        if reply["exit_code"] or not reply["commit"]:
            raise Failure(f"call: {reply}")
        acked = self.at()
        for line in open(said).read().splitlines():
            i, off = line.split()
            events[int(i)][1][1] = int(off)
        for path, e in events:
            e[1] = e[1] or acked
            self.h.files.setdefault((session, path), []).append(e)
        self.h.commits.append((acked, session, reply["commit"]))
        return reply["commit"]

    def text(self, n=0):
        n = n or self.rng.choice((5, 40, 600, 5000, 30000))
        return "".join(self.rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(n))

    def moved(self, session, begun, files):
        """All files of a session become others, by a rollback or a fork."""
        old = self.state.get(session, {})
        acked = self.at()
        for path in set(old) | set(files):
            if old.get(path) != files.get(path):
                self.h.event(session, path, begun, acked, files.get(path))
        self.state[session] = dict(files)

    def work(self):
        t = self.text
        self.w.ntr("new", "s")
        self.run("s", [("a", t()), ("d/b", t()), ("d/c", t()), ("e/f/g", t()), ("x", t(50000))])
        self.run("s", [("a", t()), ("d/b", None), ("d/n", t()), ("late", t(), "sync"), ("x", t(100), "append")])
        self.run("s", [("late", t(), "append"), ("a", t(), "rename"), ("e/f/g", None), ("syn", t(), "sync"), ("q/r/s", t(), "sync"),
                       ("d/c", t(), "sync")], tail="sleep 0.1")
        first = dict(self.state["s"])
        to = self.run("s", [(f"m/{i}", t(30)) for i in range(160)])
        first = dict(self.state["s"])
        time.sleep(0.3)  # folded
        self.run("s", [("m/3", t()), ("m/4", None), ("m/5", t(), "rename"), ("a", t(), "append"), ("y", t(), "sync")])
        self.run("s", [("m/3", t(), "sync"), ("m/6", None), ("y", t(50), "append"), ("x", t(60000))])
        begun = self.at()
        self.w.ntr("rollback", "-s", "s", to)
        self.moved("s", begun, first)
        begun = self.at()
        self.run("s", [("after", t(), "sync"), ("a", t()), ("m/9", t(), "append")])
        self.w.ntr("fork", "s", "t")
        self.state["t"] = dict(self.state["s"])
        now = self.at()
        self.run("t", [("a", t()), ("forked", t(), "sync")])
        for path, content in self.state["s"].items():
            if (("t", path)) not in self.h.files:
                self.h.event("t", path, now, self.at(), content)
        self.run("s", [("z", t(90000)), ("a", t(5000), "sync")])
        self.run("s", [("z", t(10)), ("a", t(), "rename"), ("d/n", None)])
        # Appends to what was appended to: an older version with zeros behind it is no newer one.
        self.run("s", [(f"k/{i}", t(40)) for i in range(4)])
        self.run("s", [(f"k/{i}", t(30), "append") for i in range(4)])
        self.run("s", [op for i in range(4) for op in ((f"k/{i}", t(20), "append"), (f"l/{i}", t(5), "sync"))])
        # Sizes that the journal has before the data: files that grow, between syncs of others.
        self.run("s", [(f"g/{i}", t(i + 1)) for i in range(12)])
        self.run("s", [op for i in range(12) for op in ((f"g/{i}", t(1000 * i + 600)), (f"h/{i}", t(5), "sync"))])


def read_log(path):
    blob = memoryview(open(path, "rb").read())
    out, at = [], 0
    while at < len(blob):
        off, n, _ = HEAD.unpack_from(blob, at)
        at += HEAD.size
        out.append((at + n, off, blob[at:at + n]))
        at += n
    return out


# Not torn below 4 KiB: a half written block of ext4's own metadata is damage to ext4, whose checksums then refuse the mount.
VARIANTS = ["flushed", "all", "some-4096", "last-lost"]


def build(image, base, log, cut, variant, rng):
    """The disk behind the record number cut."""
    flush = max((i for i in range(cut + 1) if not log[i][2]), default=-1)
    shutil.copyfile(base, image)
    with open(image, "r+b") as f:
        for i in range(cut + 1):
            _, off, data = log[i]
            if i <= flush or variant == "all":
                pieces = [(off, data)]
            elif variant == "flushed":
                break
            elif variant == "last-lost":
                pieces = [(off, data)] if i < cut else []
            else:
                unit = int(variant[5:])
                keep = rng.choice((0.2, 0.8))
                pieces = [(off + k, data[k:k + unit]) for k in range(0, len(data), unit) if rng.random() < keep]
            for at, part in pieces:
                f.seek(at)
                f.write(part)


def allowed(events, at):
    """What a file may hold after a cut; None alone: it may not exist. A set, or "any" where nothing was acknowledged yet."""
    done = [i for i, e in enumerate(events) if e[1] <= at]
    later = [e for i, e in enumerate(events) if e[0] <= at and (not done or i > done[-1])]
    if not done:
        return "any"
    if later and events[done[-1]][2] is None:
        return "any"
    return {e[2] for e in [events[done[-1]], *later]}


def torn(events, at, have):
    """What was acknowledged is whole, and behind it is part of an append that was not; or part of what a call was writing
    anew: ext4 lets a file grow before the data are written, and shows zeros there. Zeros alone count as lost, not as newer."""
    done = [e for e in events if e[1] <= at]
    under_way = [e[2] for e in events if e[0] <= at < e[1]]
    if not done or not have or not under_way:
        return False
    if done[-1][2] and have.startswith(done[-1][2]):
        return True
    return have.strip("\0") != "" and any(new and partly(have, new) for new in under_way)


def partly(have, want):
    """Is every sector of have as in want, or zeros?"""
    sectors = ((have[k:k + 512], want[k:k + 512]) for k in range(0, len(have), 512))
    return len(have) <= len(want) and all(h == w[:len(h)] or not h.strip("\0") for h, w in sectors)


def sectors(have, events):
    """For a person: each sector's version, Z for zeros, ? for what no version has."""
    def letter(k):
        part = have[k:k + 512]
        which = [i for i, e in enumerate(events) if e[2] and e[2][k:k + 512] == part]
        return "Z" if not part.strip("\0") else str(which[-1]) if which else "?"
    return "".join(letter(k) for k in range(0, len(have), 512))


def check_files(w, h, at, bad):
    sessions = {s for a, s, _ in h.commits if a <= at}
    for session in sessions:
        out = os.path.join(w.top, "out")
        shutil.rmtree(out, ignore_errors=True)
        w.ntr("export", "-s", session, "--dir", out)
        for (s, path), events in h.files.items():
            if s != session:
                continue
            events = sorted(events, key=lambda e: e[0])
            may = allowed(events, at)
            p = os.path.join(out, path)
            have = open(p).read() if os.path.exists(p) else None
            if may != "any" and have not in may and not torn(events, at, have):
                is_ = "missing" if have is None else f"{len(have)} bytes, {sectors(have, events)}"
                bad.append(f"{session}:{path} is {is_}, and may be {[None if m is None else len(m) for m in may]}")


def check(w, h, at):
    bad = []
    want = [(s, c) for a, s, c in h.commits if a <= at]
    if want:
        p = w.ntr("sessions", "--json", check=False)
        if p.returncode or p.stderr:
            return [f"sessions: {p.stderr}"]
    for session in {s for s, _ in want}:
        # What a rollback left is in the store, and found by its name.
        for s, c in want:
            if s == session and w.ntr("show", "-s", s, c, check=False).returncode:
                bad.append(f"commit {c[:12]} of {s} is lost")
    check_files(w, h, at, bad)
    p = w.ntr("run", "-s", "s", "-c", "echo next >next && cat next", check=False)
    if p.stdout != "next\n" or p.stderr:
        bad.append(f"the next call: {p.stdout}{p.stderr}")
    p = w.ntr("fsck", check=False)
    if p.returncode:
        bad.append(f"fsck: {p.stdout[:300]}{p.stderr[:300]}")
    return bad


def one_cut(r, log, cut, variant, seed, top):
    mnt, image = os.path.join(top, "cut"), os.path.join(top, "cut.img")
    os.makedirs(mnt, exist_ok=True)
    build(image, r.image + ".0", log, cut, variant, random.Random(f"{seed}/{cut}/{variant}"))
    p = sh("mount", "-o", "loop,noatime", image, mnt, check=False)
    if p.returncode:
        return [f"mount: {p.stderr}"]
    w = World(top, mnt)
    try:
        return check(w, r.h, log[cut][0])
    except Failure as e:
        return [str(e)]
    finally:
        log_text = os.path.join(w.store, "ntrd.log")
        w.ntr("daemon", "stop", check=False)
        if os.environ.get("NTR_POWERCUT_KEEP") and os.path.exists(log_text):
            print(open(log_text).read())
        sh("umount", mnt, check=False)
        os.unlink(image)


def another_boot(top):
    """In a mount namespace of its own (main made it) the machine has a boot id of another start."""
    path = os.path.join(top, "boot")
    with open(path, "w") as f:
        f.write("%08x-0000-4000-8000-00000000cafe\n" % random.getrandbits(32))
    sh("mount", "--bind", path, "/proc/sys/kernel/random/boot_id")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=int(os.environ.get("NTR_TEST_SEED", "20261129")))
    ap.add_argument("--cuts", type=int, default=12)
    ap.add_argument("--only", help="CUT:VARIANT")
    ap.add_argument("--late", type=int, default=30, help="milliseconds that a write of the disk may take")
    ap.add_argument("--all", action="store_true")
    args = ap.parse_args()
    if "NTR_POWERCUT_NS" not in os.environ:
        os.execvpe("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv],
                   dict(os.environ, NTR_POWERCUT_NS="1"))
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = tempfile.mkdtemp(prefix="ntr-powerdisk.", dir=shm)
    failed = 0
    try:
        r = Recorder(top, args.seed, args.late)
        try:
            r.work()
        finally:
            r.close()
        log = read_log(r.log)
        another_boot(top)
        first = next(i for i, x in enumerate(log) if x[0] > r.h.commits[0][0]) if r.h.commits else 0
        points = [(i, v) for i in range(max(0, first - 20), len(log)) for v in VARIANTS]
        if args.only:
            cut, variant = args.only.split(":")
            points = [(int(cut), variant)]
        elif not args.all:
            points = sorted(random.Random(args.seed).sample(points, min(len(points), args.cuts)))
        began = time.monotonic()
        for cut, variant in points:
            bad = one_cut(r, log, cut, variant, args.seed, top)
            if bad:
                failed += 1
                print(f"  behind request {cut}, {variant}: {'; '.join(bad[:5])}", flush=True)
        print(f"{len(log)} requests of the disk, {len(r.h.commits)} commits: {len(points)} cuts checked in "
              f"{time.monotonic() - began:.1f} s, {failed} bad (seed {args.seed})")
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
