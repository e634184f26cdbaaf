"""Threads, forked processes, crashes: right results, nothing lost."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time

import pytest

import ntr

CALLS = int(os.environ.get("NTR_TEST_CALLS", "50"))


def mixed(ws: ntr.Workspace, who: int, calls: int, errors: list[BaseException]) -> None:
    """Calls of every kind; each leaves a line in a log of its own and bumps what all share."""
    rng = random.Random(who)
    try:
        for i in range(calls):
            kind = rng.randrange(5)
            line = f"{who}.{i}"
            if kind == 0:
                assert ws.terminal(f"cd /workspace && echo {line} >> log; echo {line} > f{who}")
            elif kind == 1:
                assert ws.run_python(
                    f"open('/workspace/log','a').write('{line}\\n'); cache['n{who}'] = cache.get('n{who}', 0) + 1"
                )
            elif kind == 2:
                assert ws.write_file(f"/workspace/w{who}/{i}", line)
            elif kind == 3:
                ws.cache[f"c{who}.{i}"] = line
            else:
                ws.put(f"p{who}.{i}", line)
    except BaseException as e:
        errors.append(e)


def expected(who: int, calls: int) -> tuple[set[str], int, set[str], set[str], set[str]]:
    rng = random.Random(who)
    kinds = [rng.randrange(5) for _ in range(calls)]
    logged = {f"{who}.{i}" for i, k in enumerate(kinds) if k in (0, 1)}
    return (
        logged,
        kinds.count(1),
        {f"{i}" for i, k in enumerate(kinds) if k == 2},
        {f"c{who}.{i}" for i, k in enumerate(kinds) if k == 3},
        {f"p{who}.{i}" for i, k in enumerate(kinds) if k == 4},
    )


def check(ws: ntr.Workspace, people: list[int], calls: int) -> None:
    log = ws.get("log").decode().split()
    assert len(log) == len(set(log))
    want = [expected(w, calls) for w in people]
    assert set(log) == set().union(*(w[0] for w in want))
    names = set(ws.fs.listdir())
    keys = set(ws.cache)
    for who, (_, n, files, cached, put) in zip(people, want, strict=True):
        assert ws.cache.get(f"n{who}", 0) == n
        assert (set(ws.fs.listdir(f"w{who}")) if files else set()) == files
        assert cached <= keys and put <= names
    assert len(ws.history()) == 1 + len(people) * calls  # each call is a commit, and a whole one:
    for commit in random.Random(7).sample(ws.history(), 5):
        log = ws.fs.at(commit).read_text("log").split() if ws.fs.at(commit).exists("log") else []
        assert len(log) == len(set(log))


def run_all(spaces: list[ntr.Workspace], calls: int) -> None:
    errors: list[BaseException] = []
    threads = [threading.Thread(target=mixed, args=(ws, i, calls, errors)) for i, ws in enumerate(spaces)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
        assert not t.is_alive()
    assert not errors, errors[0]


def test_eight_threads_on_one_workspace(ws):
    run_all([ws] * 8, CALLS)
    check(ws, list(range(8)), CALLS)


def test_eight_threads_on_eight_workspaces(place):
    spaces = [ntr.workspace(f"s{i}") for i in range(8)]
    run_all(spaces, CALLS)
    for i, ws in enumerate(spaces):
        check(ws, [i], CALLS)


def test_eight_objects_of_one_session(place):
    run_all([ntr.workspace("s") for _ in range(8)], 10)
    check(ntr.workspace("s"), list(range(8)), 10)


# ---- fork()


def in_child(function) -> object:
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(r)
        try:
            said = json.dumps({"ok": function()})
        except BaseException as e:
            said = json.dumps({"error": f"{type(e).__name__}: {e}"})
        os.write(w, said.encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def test_use_after_fork(ws):
    ws.register_command("who", lambda c: str(os.getpid()))
    assert ws.terminal("who").stdout == str(os.getpid())
    said = in_child(lambda: [ws.terminal("echo child >> log; who").stdout, os.getpid(), len(ws.history())])
    assert said["ok"][0] == str(said["ok"][1])
    assert ws.terminal("echo parent >> log; who").stdout == str(os.getpid())
    assert ws.get("log") == b"child\nparent\n"


def test_fork_while_a_call_runs(ws):
    result: list[ntr.TerminalResult] = []
    t = threading.Thread(target=lambda: result.append(ws.terminal("touch began; sleep 0.8; echo done")))
    t.start()
    while not ws.fs.exists("began"):
        time.sleep(0.02)
    said = in_child(lambda: ws.terminal("echo child").stdout)
    t.join()
    assert said == {"ok": "child\n"} and result[0].stdout == "done\n"


def test_a_childs_death_does_not_end_the_parents_call(ws):
    result: list[ntr.TerminalResult] = []
    t = threading.Thread(target=lambda: result.append(ws.terminal("touch began; sleep 0.8; echo done")))
    t.start()
    while not ws.fs.exists("began"):
        time.sleep(0.02)
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    t.join()
    assert result[0].stdout == "done\n"


@pytest.mark.parametrize("what", ["lock", "call"])
def test_fork_while_another_thread_has_the_lock(ws, what):
    began, end = threading.Event(), threading.Event()

    def hold() -> None:
        if what == "lock":
            with ws.lock:
                began.set()
                end.wait(30)
        else:
            ws.terminal("touch began; sleep 1.5")

    def child() -> str:
        signal.alarm(20)
        with ws.lock, ws.lock:
            return ws.terminal("echo child").stdout

    t = threading.Thread(target=hold)
    t.start()
    if what == "lock":
        began.wait()
    else:
        while not ws.fs.exists("began"):
            time.sleep(0.02)
    try:
        said = in_child(child)
    finally:
        end.set()
        t.join()
    assert said == {"ok": "child\n"}
    with ws.lock:
        assert ws.terminal("true")


def test_fork_with_the_lock_keeps_it(ws):
    def child() -> list[str]:
        signal.alarm(20)
        blocked: list[str] = []
        t = threading.Thread(target=lambda: blocked.append(ws.terminal("echo thread").stdout), daemon=True)
        t.start()
        t.join(0.3)
        assert not blocked
        said = ws.terminal("echo child").stdout
        ws.lock.release()
        t.join(10)
        return [said, *blocked]

    with ws.lock:
        assert in_child(child) == {"ok": ["child\n", "thread\n"]}
        assert ws.terminal("echo parent").stdout == "parent\n"


# ---- kill -9


def test_the_daemon_is_killed_between_calls(ws, place):
    assert ws.terminal("echo 1 > f; export X=5")
    for _ in range(3):
        place.kill_daemon()
        r = ws.terminal("cat f; echo $X")
        assert r.stdout == "1\n5\n"
        ws.cache["k"] = 1
    place.kill_daemon()
    assert ws.cache["k"] == 1
    place.kill_daemon()
    assert ws.run_python("cache['k']").echo.strip() == "1"


def killed_in_the_middle(ws, victim, call):
    """Kills while a call is under way; gives what the call raised or returned."""
    out: list[object] = []

    def run() -> None:
        try:
            out.append(call())
        except Exception as e:
            out.append(e)

    t = threading.Thread(target=run)
    t.start()
    until = time.monotonic() + 20
    while not ws.fs.exists("began"):
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.1)
    victim()
    t.join(30)
    assert not t.is_alive()
    return out[0]


@pytest.mark.parametrize("python", [False, True])
def test_the_daemon_is_killed_in_the_middle(ws, place, python):
    ws.put("old", "kept")
    if python:
        code = "open('log','a').write('once\\n'); open('began','w').close(); import time; time.sleep(3)"
        got = killed_in_the_middle(ws, place.kill_daemon, lambda: ws.run_python(code))
    else:
        got = killed_in_the_middle(ws, place.kill_daemon, lambda: ws.terminal("echo once >> log; touch began; sleep 3"))
    assert isinstance(got, ntr.DaemonLostError), got
    assert "not known" in str(got)
    assert ws.terminal("cat log").stdout == "once\n"  # never repeated, and not lost
    assert ws.get("old") == b"kept"
    assert "recovered" in [c.tool for c in ws.history()]


def test_the_zygote_is_killed(ws, place):
    assert ws.run_python("import os\nparent = os.getppid()").namespace
    pid = ws.run_python("import os\nos.getppid()").echo
    code = "open('began','w').close(); import time; time.sleep(1)\nopen('end','w').close()\n'fine'"
    got = killed_in_the_middle(ws, lambda: os.kill(int(pid), signal.SIGKILL), lambda: ws.run_python(code))
    assert isinstance(got, ntr.PythonResult)
    assert ws.fs.exists("began")
    assert bool(got) == ws.fs.exists("end")
    assert ws.run_python("1 + 1").echo.strip() == "2"


def test_the_interpreter_is_killed(ws):
    ws.cache["n"] = 1
    r = ws.run_python("import os\nopen('f','w').write('x')\ncache['n'] = 2\nos.kill(os.getpid(), 9)")
    assert not r and r.exit_code == 137 and "signal 9" in r.text
    assert ws.get("f") == b"x"
    assert ws.run_python("2").echo.strip() == "2"


def test_the_supervisor_is_killed(ws, place):
    ws.terminal("true")
    victims = place.processes("ntr-init")
    assert victims

    def kill() -> None:
        for pid in place.processes("ntr-init"):
            os.kill(pid, signal.SIGKILL)

    code = "open('log','a').write('once\\n'); open('began','w').close(); import time; time.sleep(3)"
    got = killed_in_the_middle(ws, kill, lambda: ws.run_python(code))
    assert isinstance(got, ntr.WorkspaceError) or (isinstance(got, ntr.PythonResult) and not got), got
    assert ws.terminal("cat log").stdout == "once\n"
    assert ws.run_python("3").echo.strip() == "3"


def test_kills_under_load(place):
    """The daemon dies again and again under four threads: whatever a call said it had done is there."""
    said: list[set[str]] = [set() for _ in range(4)]
    stop = time.monotonic() + float(os.environ.get("NTR_TEST_KILLS_S", "4"))

    def work(n: int) -> None:
        ws = ntr.workspace(f"s{n}")
        i = 0
        while time.monotonic() < stop:
            i += 1
            line = f"{n}.{i}"
            try:
                if i % 3:
                    ok = ws.terminal(f"echo {line} >> log")
                else:
                    ok = ws.run_python(f"cache['{line}'] = 1\nopen('log','a').write('{line}\\n')")
                if ok and ok.checkpoint:
                    said[n].add(line)
            except ntr.WorkspaceError:
                pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    while time.monotonic() < stop:
        time.sleep(0.7)
        place.kill_daemon()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    for n in range(4):
        ws = ntr.workspace(f"s{n}")
        log = ws.get("log").decode().split()
        assert len(log) == len(set(log)), "a call was made twice"
        assert said[n] <= set(log), "a call that was told to have been committed is lost"
    place.ntr("fsck")
