#!/usr/bin/env python3
"""calls.py DIR [--files N] [--rounds N] [--only a,b]: the call and versioning lines of the performance budget.

DIR lies on the filesystem to measure (an ordinary ext4); ntr must be in PATH. Each line prints what was measured, the
goal, and whether it holds. In-daemon figures are the daemon's own (`ntr daemon status`): a fresh daemon for each.
"""
import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "helpers"))
import client  # noqa: E402

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("dir")
ap.add_argument("--files", type=int, default=1_000_000)
ap.add_argument("--rounds", type=int, default=1000)
ap.add_argument("--commits", type=int, default=10_000)
ap.add_argument("--data", help="folder made by prepare.sh, for the import line and the hidden-git comparison")
ap.add_argument("--only")
ap.add_argument("--out", help="append JSON lines here")
a = ap.parse_args()
os.makedirs(a.dir, exist_ok=True)
ENV = dict(os.environ, NTR_STORE=os.path.join(a.dir, "store"), LC_ALL="C")
ENV.pop("NTR_SESSION", None)
NULL = os.open(os.devnull, os.O_RDWR)


def sh(*argv, **kw):
    return subprocess.run(argv, env=ENV, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **kw).stdout


def ntr(*argv):
    return sh("ntr", *argv)


def ops():
    return json.loads(ntr("daemon", "status", "--json"))["ops"]


def report(name, value, unit, goal, ok, note=""):
    print(f"{name:<58} {value:>10.3f} {unit:<4} goal {goal:<12} {'ok' if ok else 'MISSED'} {note}", flush=True)
    if a.out:
        with open(a.out, "a") as f:
            f.write(json.dumps(dict(name=name, value=value, unit=unit, goal=goal, ok=ok, note=note)) + "\n")


def fresh():
    if os.path.exists(ENV["NTR_STORE"]):
        ntr("daemon", "stop")
        shutil.rmtree(ENV["NTR_STORE"])


def restart():
    ntr("daemon", "stop")
    ntr("sessions")


def connect():
    return client.Client(ENV["NTR_STORE"])


def call(c, session, script=None, argv=None):
    msg = {"op": "run", "session": session, "env": [f"PATH={os.environ['PATH']}"]}
    msg.update({"script": script} if script else {"argv": argv})
    c.send(msg, [NULL, NULL, NULL])
    for m in c.frames():
        pass
    if m.get("error"):
        sys.exit(f"call failed: {m}")
    return m


def timed(fn, n):
    out = []
    for i in range(n):
        t = time.perf_counter()
        fn(i)
        out.append(time.perf_counter() - t)
    return out


def med(v):
    return statistics.median(v)


def many_files(path, n):
    """A tar of n files of a few bytes in folders of 1,000."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as t:
        for i in range(n):
            if i % 1000 == 0:
                d = tarfile.TarInfo(f"d{i // 1000:04d}")
                d.type, d.mode = tarfile.DIRTYPE, 0o755
                t.addfile(d)
            f = tarfile.TarInfo(f"d{i // 1000:04d}/f{i:07d}")
            data = b"%d" % i
            f.size = len(data)
            t.addfile(f, io.BytesIO(data))


def b_command():
    """ntr run -- true against bash -c true, interleaved."""
    fresh()
    ntr("run", "-s", "w", "-c", "true")
    x, y, z = [], [], []
    for i in range(300):
        x += timed(lambda i: subprocess.run(["ntr", "run", "-s", "w", "--", "true"], env=ENV), 1)
        y += timed(lambda i: subprocess.run(["bash", "-c", "true"], env=ENV), 1)
        z += timed(lambda i: subprocess.run(["ntr", "run", "-s", "w", "-c", "true"], env=ENV), 1)
    r = med(x) / med(y)
    report("ntr run -- true warm, against bash -c true", r, "x", "<= 2", r <= 2,
           f"{med(x) * 1e3:.2f} / {med(y) * 1e3:.2f} ms; as a script {med(z) * 1e3:.2f} ms")


def b_noop():
    fresh()
    ntr("run", "-s", "w", "-c", "for i in $(seq 90); do echo $i > f$i; done")
    restart()
    ntr("run", "-s", "w", "-c", "for i in $(seq 90); do echo x$i > f$i; done")
    with connect() as c:
        for i in range(a.rounds):
            call(c, "w", argv=["true"])
    o = ops()["run.unchanged"]
    report("no-op call: what ntr adds after the process ends, p50", o["p50_us"] / 1e3, "ms", "<= 0.3",
           o["p50_us"] <= 300, f"p99 {o['p99_us'] / 1e3:.3f} ms, {o['count']} calls, upper of 90 entries")


def b_stream():
    """Calls without a pause behind one that wrote 50,000 files, and a fork behind them."""
    fresh()
    ntr("run", "-s", "w", "-c", "true")
    with connect() as c:
        call(c, "w", script="for i in $(seq 500); do mkdir -p d/$i; for k in $(seq 100); do echo $i > d/$i/$k; done; done")
        x = timed(lambda i: call(c, "w", script=f"echo {i} > changing"), 30)
        y = timed(lambda i: c.request({"op": "fork", "source": "w", "name": f"fork{i}"}), 1)
    o = ops()
    note = f"all 30: {sum(x) * 1e3:.0f} ms, the slowest {max(x) * 1e3:.0f} ms; fork {y[0] * 1e3:.1f} ms; folds " \
           f"{o.get('fold', {}).get('count', 0)}, not waiting for rest {o.get('fold.owed', {}).get('count', 0)}"
    report("a one-file call in a row of 30 behind 50,000 new files, p50", med(x) * 1e3, "ms", "<= 5", med(x) <= 5e-3, note)


def b_million():
    fresh()
    tar = os.path.join(a.dir, "many.tar")
    if not os.path.exists(tar):
        many_files(tar, a.files)
    t = time.perf_counter()
    ntr("new", "f", "--from", tar)
    note = f"import of {a.files} files {time.perf_counter() - t:.1f} s"
    for durability, goal in (("fsync", 1.5), ("relaxed", 0.5)):
        name = f"m-{durability}"
        if durability == "relaxed":
            ntr("new", name, "--from", tar, "--durability", "relaxed")
        else:
            ntr("fork", "f", name)
        time.sleep(10)  # let the compaction that follows an import end
        restart()
        with connect() as c:
            call(c, name, script="cd d0500 && export HOT=1")
            restart_ops = ops().get("run.commit", {}).get("count", 0)
            for i in range(a.rounds):
                call(c, name, argv=["sh", "-c", f"echo {i} > f0500{i % 50:03d}"])
        o = ops()["run.commit"]
        report(f"commit of 1 file in {a.files} files, {durability}, p50", o["p50_us"] / 1e3, "ms", f"<= {goal}",
               o["p50_us"] <= goal * 1e3, f"p99 {o['p99_us'] / 1e3:.2f} ms, {o['count'] - restart_ops} commits; {note}")
    restart()
    with connect() as c:
        for i in range(200):
            c.request({"op": "fork", "source": "f", "name": f"k{i}"})
    o = ops()["fork"]
    report(f"fork at {a.files} files, in the daemon, p50", o["p50_us"], "us", "<= 100", o["p50_us"] <= 100,
           f"p99 {o['p99_us']:.0f} us")
    restart()
    with connect() as c:
        for i in range(100):
            call(c, "k1", script=f"echo {i} > top; rm -rf d000{i % 10}")
            c.request({"op": "rollback", "session": "k1", "steps": 1, "discard": False, "force": False})
    o = ops()["rollback"]
    report("rollback with nothing running, p50", o["p50_us"] / 1e3, "ms", "<= 2", o["p50_us"] <= 2000,
           f"p99 {o['p99_us'] / 1e3:.2f} ms; 1,000 files differ each time")


def b_history():
    """The 10,000th commit, fork, rollback against the 10th: two sessions, interleaved."""
    fresh()
    ntr("new", "old", "--durability", "relaxed")
    with connect() as c:
        for i in range(a.commits):
            call(c, "old", argv=["sh", "-c", f"echo {i} > f{i % 40}"])
        n = min(1000, a.commits)
        t = {}
        for i in range(n):
            if i % 10 == 0:
                young = f"young{i}"
                c.request({"op": "new", "name": young, "durability": "relaxed"})
                for k in range(10):
                    call(c, young, argv=["sh", "-c", f"echo {k} > f{k}"])
            for s in ("old", young):
                for what, fn in (("commit", lambda: call(c, s, argv=["sh", "-c", f"echo x{i} > f3"])),
                                 ("fork", lambda: c.request({"op": "fork", "source": s, "name": f"{s}-{i}"})),
                                 ("rollback", lambda: c.request({"op": "rollback", "session": s, "steps": 1,
                                                                 "discard": False, "force": False}))):
                    b = time.perf_counter()
                    fn()
                    t.setdefault((what, s == "old"), []).append(time.perf_counter() - b)
                call(c, s, argv=["sh", "-c", f"echo y{i} > f3"])
            if i % 10 == 9:
                c.request({"op": "stop", "session": young})
    for what in ("commit", "fork", "rollback"):
        r = med(t[what, True]) / med(t[what, False])
        report(f"{what}: the {a.commits}th against the 10th", r, "x", "<= 1.1", r <= 1.1,
               f"{med(t[what, True]) * 1e3:.2f} / {med(t[what, False]) * 1e3:.2f} ms with the call")


def b_cold():
    fresh()
    ntr("run", "-s", "w", "-c", "echo 1 > f")
    cold, warm = [], []
    with connect() as c:
        for i in range(30):
            c.request({"op": "stop", "session": "w"})
            cold += timed(lambda i: call(c, "w", argv=["true"]), 1)
            warm += timed(lambda i: call(c, "w", argv=["true"]), 1)
    d = (med(cold) - med(warm)) * 1e3
    report("first call on a cold session, over a warm one", d, "ms", "<= 10", d <= 10,
           f"{med(cold) * 1e3:.1f} / {med(warm) * 1e3:.1f} ms")


def b_import():
    if not a.data:
        return
    x, y = [], []
    src = os.path.join(a.dir, "src")
    if not os.path.isdir(src):
        os.mkdir(src)
        sh("tar", "-xf", os.path.join(a.data, "tree.tar"), "-C", src)
    for i in range(3):
        fresh()
        x += timed(lambda i: ntr("new", "t", "--from", src), 1)
        y += timed(lambda i: sh("cp", "-a", src, os.path.join(a.dir, "copy")), 1)
        sh("rm", "-rf", os.path.join(a.dir, "copy"))
    r = med(x) / med(y)
    size = int(sh("du", "-s", "-B1", ENV["NTR_STORE"] + "/db").split()[0]) / 2**20
    report("import of the 54k-entry tree, against cp -a", r, "x", "<= 1.5", r <= 1.5,
           f"{med(x):.2f} / {med(y):.2f} s; store {size:.0f} MiB")


def rss(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def b_memory():
    if not a.data:
        return
    fresh()
    ntr("run", "-s", "t", "--", "tar", "-xf", os.path.join(os.path.abspath(a.data), "tree.tar"))
    ntr("run", "-s", "t", "--", "sh", "-c", "find . -type f | wc -l; grep -rc x . | tail -1")
    pid = json.loads(ntr("daemon", "status", "--json"))["pid"]
    m = rss(pid)
    report("daemon's resident memory after the 54k tree", m, "MiB", "<= 200", m <= 200)
    with connect() as c:
        for i in range(5):
            call(c, f"i{i}", argv=["true"])
        before = rss(pid)
        for i in range(5, 55):
            call(c, f"i{i}", argv=["true"])
        per = (rss(pid) - before) / 50
    report("resident memory per idle live session", per, "MiB", "<= 1", per <= 1)


def b_forks():
    """100 forks of a 1 GB workspace, each reading all of it."""
    fresh()
    ntr("run", "-s", "g", "-c", "for i in $(seq 64); do head -c 16777216 /dev/urandom > f$i; done")
    ntr("stop", "-s", "g")

    def cached():
        v = {line.split(":")[0]: int(line.split()[1]) for line in open("/proc/meminfo")}
        return v["Cached"] / 2**20

    ntr("daemon", "stop")
    subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True)
    ntr("sessions")
    base = cached()
    reads = []
    for i in range(100):
        ntr("fork", "g", f"g{i}")
        ntr("run", "-s", f"g{i}", "--", "sh", "-c", "cat * > /dev/null")
        reads.append(ops()["READ"]["count"])
        if i % 10 == 9:
            for k in range(i - 9, i + 1):
                ntr("stop", "-s", f"g{k}")
    # What one has read the kernel has for all. How much the page cache has grown says the same, with the store's own files
    # on top (they are read through it), but only on a machine where nobody else reads or writes.
    share = reads[-1] / reads[0]
    report("100 forks of a 1 GB workspace, each read: requests, to 1 fork", share, "x", "<= 1.1", share <= 1.1,
           f"{reads[0]} READ; page cache of the machine + {cached() - base:.2f} GiB")


WORK = """cd "$1" && mkdir w$2 && cd w$2 && i=0
while [ $i -lt 3 ]; do cp -r ../src src && grep -rc include src >/dev/null; find src -type f | wc -l; rm -rf src; i=$((i+1)); done"""


def together(n, start):
    """n processes at once: seconds until the last one has ended."""
    t = time.perf_counter()
    ps = [start(i) for i in range(n)]
    if any(p.wait() for p in ps):
        sys.exit("a process of the benchmark failed")
    return time.perf_counter() - t


def b_scale():
    """8 processes in one session, and 8 sessions at once, against 1: throughput, and the same on the host."""
    fresh()
    host = os.path.join(a.dir, "scale")
    shutil.rmtree(host, ignore_errors=True)
    make = "mkdir src; for d in $(seq 10); do mkdir src/$d; for i in $(seq 60); do seq 300 >src/$d/$i; done; done"
    os.mkdir(host)
    sh("sh", "-c", make, cwd=host)
    ntr("run", "-s", "w0", "-c", make)
    for i in range(1, 8):
        ntr("fork", "w0", f"w{i}")
    cores = os.cpu_count()

    def on_host(tag):
        return lambda i: subprocess.Popen(["sh", "-c", WORK, "sh", host, f"{tag}{i}"], stdout=NULL)

    def in_session(session, tag):
        return lambda i: subprocess.Popen(["ntr", "run", "-s", session(i), "--", "sh", "-c", WORK, "sh", ".", f"{tag}{i}"],
                                          env=ENV, stdout=NULL)

    def in_one(n, tag):  # one call: calls of one session take turns
        script = "for i in $(seq $3); do sh -c \"$1\" sh . $2$i & done; wait"
        return together(1, lambda _: subprocess.Popen(["ntr", "run", "-s", "w0", "--", "sh", "-c", script, "sh", WORK, tag, str(n)],
                                                      env=ENV, stdout=NULL))

    rows = {"host": [], "one": [], "many": []}
    for r in range(3):
        rows["host"].append((together(1, on_host(f"a{r}")), together(8, on_host(f"b{r}"))))
        rows["one"].append((in_one(1, f"a{r}-"), in_one(8, f"b{r}-")))
        rows["many"].append((together(1, in_session(lambda i: "w0", f"c{r}")), together(8, in_session(lambda i: f"w{i}", f"d{r}"))))
    speed = {k: 8 * med([x for x, _ in v]) / med([y for _, y in v]) for k, v in rows.items()}
    for k, name in (("one", "8 processes in one session"), ("many", "8 sessions at once")):
        ok = speed[k] >= 0.8 * speed["host"]
        report(f"{name}: throughput against 1", speed[k], "x", f">= {0.8 * speed['host']:.2f}", ok,
               f"{cores} CPUs; the host's own: {speed['host']:.2f}x; 8 at once take {med([y for _, y in rows[k]]):.2f} s, "
               f"host {med([y for _, y in rows['host']]):.2f} s")
    shutil.rmtree(host)


def b_git():
    """ntr against a hidden git repository versioning the same calls."""
    if not a.data:
        return
    src = os.path.join(a.dir, "src")
    if not os.path.isdir(src):
        os.mkdir(src)
        sh("tar", "-xf", os.path.join(a.data, "tree.tar"), "-C", src)
    fresh()
    ntr("new", "g", "--from", src)
    gw, gd = os.path.join(a.dir, "gw"), os.path.join(a.dir, "gd")
    shutil.rmtree(gw, ignore_errors=True)
    shutil.rmtree(gd, ignore_errors=True)
    sh("cp", "-a", src, gw)
    git = ["git", "-C", gw, "--git-dir", gd, "--work-tree", gw, "-c", "user.name=b", "-c", "user.email=b", "-c", "gc.auto=0"]
    sh(*git, "init", "-q")
    first = timed(lambda i: (sh(*git, "add", "-A", "-f"), sh(*git, "commit", "-qm", "0")), 1)[0]
    x, y = [], []
    before = int(sh("du", "-s", "-B1", ENV["NTR_STORE"] + "/db").split()[0])
    gbefore = int(sh("du", "-s", "-B1", gd).split()[0])
    for i in range(30):
        def by_git(_):
            with open(os.path.join(gw, "linux", "Makefile"), "a") as f:
                f.write(f"# {i}\n")
            sh(*git, "add", "-A", "-f")
            sh(*git, "commit", "-qm", str(i))
        x += timed(lambda _: ntr("run", "-s", "g", "--", "sh", "-c", f"echo '# {i}' >> linux/Makefile"), 1)
        y += timed(by_git, 1)
    after = int(sh("du", "-s", "-B1", ENV["NTR_STORE"] + "/db").split()[0])
    gafter = int(sh("du", "-s", "-B1", gd).split()[0])
    report("a call that changes one file: hidden git / ntr", med(y) / med(x), "x", "> 1", med(y) > med(x),
           f"{med(y) * 1e3:.1f} / {med(x) * 1e3:.1f} ms in 54k entries; first commit by git {first:.1f} s; stored per commit "
           f"{(gafter - gbefore) / 30 / 1024:.1f} / {(after - before) / 30 / 1024:.1f} KiB")


ALL = ["command", "noop", "cold", "history", "million", "import", "memory", "scale", "forks", "git"]
for name in (a.only.split(",") if a.only else ALL):
    globals()["b_" + name]()
fresh()
