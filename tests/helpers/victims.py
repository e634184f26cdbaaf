"""What tests that kill share: finding the processes of the store $NTR_STORE, and `ntr` as a person has it."""
import json
import os
import signal
import subprocess


class Failure(Exception):
    pass


def ntr(*argv, check=True, timeout=180):
    try:
        p = subprocess.run(["ntr", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                           timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"ntr {' '.join(argv[:5])}: no end within {timeout} s") from None
    if check and p.returncode:
        raise Failure(f"ntr {' '.join(argv[:5])}: exit {p.returncode}: {p.stderr.decode(errors='replace').strip()}")
    return p


def rows(*argv):
    return [json.loads(line) for line in ntr(*argv, "--json").stdout.splitlines()]


def all_pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def children(pid):
    try:
        return [int(c) for t in os.listdir(f"/proc/{pid}/task") for c in
                open(f"/proc/{pid}/task/{t}/children", encoding="ascii").read().split()]
    except OSError:
        return []


def words(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")
    except OSError:
        return [b""]


def name(pid):
    """Of its program; a supervisor writes its session into its command line."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as f:
            return f.read().strip().decode(errors="replace")
    except OSError:
        return ""


def daemon_pid():
    """Without starting one: from the list of processes."""
    store = os.path.realpath(os.environ["NTR_STORE"]).encode()
    for pid in all_pids():
        line = words(pid)
        if line[0].rsplit(b"/")[-1] == b"ntrd" and any(os.path.realpath(w) == store for w in line[1:] if w):
            return pid
    return None


def victims(what):
    """Processes of the store's daemon: daemon, supervisor, call, pass, or all of them."""
    daemon = daemon_pid()
    if not daemon:
        return []
    supervisors = [p for p in children(daemon) if name(p).startswith("ntr-init")]
    below = [p for s in supervisors for p in children(s)]
    helpers = [p for p in below if name(p).startswith("ntr-pass")]
    calls = [p for p in below if p not in helpers]
    return {"daemon": [daemon], "supervisor": supervisors, "call": calls, "pass": helpers,
            "all": [daemon] + supervisors + helpers + calls}[what]


def kill(pids):
    n = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            n += 1
        except (ProcessLookupError, PermissionError):
            pass
    return n


def threads(pid):
    """Where each thread of a process is, for the report of one that does not answer."""
    lines = []
    for task in sorted(os.listdir(f"/proc/{pid}/task")) if os.path.exists(f"/proc/{pid}/task") else []:
        at = [f"{pid}/{task}"]
        for part in ("comm", "stat", "wchan", "syscall", "stack"):
            try:
                with open(f"/proc/{pid}/task/{task}/{part}", encoding="utf-8", errors="replace") as f:
                    text = f.read().strip()
            except OSError:
                continue
            at.append(text.rpartition(") ")[2][:1] if part == "stat" else " < ".join(text.split("\n")))
        lines.append(" | ".join(at))
    return lines


def own(pid, store):
    """Whether it belongs to the store: the daemon's environment and that of all below it name it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return b"NTR_STORE=" + store.encode() + b"\0" in f.read()
    except OSError:
        return False


def mounts(store):
    """Where the store is mounted, in this mount namespace."""
    with open("/proc/self/mountinfo", "rb") as f:
        return [line.split()[4].decode(errors="replace") for line in f if b" " + store.encode() + b"/" in line]
