"""Async calls, cancelling, streaming."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import ntr


def test_twins(place):
    async def main():
        async with ntr.workspace("s") as ws:
            assert (await ws.aterminal("echo 1 > f")).checkpoint
            assert (await ws.arun_python("open('f').read()")).echo.strip() == "'1\\n'"
            assert await ws.awrite_file("g", "2") and await ws.aedit_file("g", "2", "3")
            await ws.aput("h", b"4")
            assert await ws.aget("h") == b"4"
            assert len(await ws.ahistory()) == 5
            fork = await ws.afork()
            await fork.arollback(2)
            assert fork.fs.listdir() == ["f", "g"]
            await fork.arestore(await_head)
            assert (await ws.acheckpoint()) is None
            await ws.adiscard()
            assert (await ws.acall_tool("terminal", {"command": "cat g"})).text == "3"
            assert await ws.acall_tool("file_write", {"path": "z", "content": ""})
            assert not (await ws.aview_image("z"))

    await_head = "HEAD"
    asyncio.run(main())


def test_sessions_side_by_side(place):
    async def one(name):
        with ntr.workspace(name) as ws:
            return await ws.aterminal("sleep 0.5; echo $NTR_SESSION")

    async def main():
        names = [f"s{i}" for i in range(6)]
        began = time.monotonic()
        results = await asyncio.gather(*map(one, names))
        assert [r.stdout.strip() for r in results] == names
        assert time.monotonic() - began < 2.5

    asyncio.run(main())


def test_one_session_in_order(ws):
    async def main():
        await asyncio.gather(*(ws.aterminal(f"echo {i} >> log; sleep 0.02") for i in range(10)))

    asyncio.run(main())
    assert sorted(ws.get("log").split()) == sorted(str(i).encode() for i in range(10))
    assert len(ws.history()) == 11


@pytest.mark.parametrize("python", [False, True])
def test_cancelling_kills_the_call(ws, python):
    async def main():
        if python:
            code = "open('began','w').close()\nimport time\ntime.sleep(60)\nopen('end','w')"
            task = asyncio.create_task(ws.arun_python(code, timeout=100))
        else:
            task = asyncio.create_task(ws.aterminal("touch began; (sleep 60; touch end) ; touch end"))
        for _ in range(200):
            await asyncio.sleep(0.02)
            if ws.fs.exists("began"):
                break
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 4

    asyncio.run(main())
    began = time.monotonic()
    r = ws.terminal("ls; pgrep -f 'sleep 6[0]' || true")
    assert time.monotonic() - began < 4
    assert "began" in r.stdout and "end" not in r.stdout


def test_cancelling_in_the_queue(ws):
    async def main():
        first = asyncio.create_task(ws.aterminal("sleep 0.7; echo first >> log"))
        await asyncio.sleep(0.2)
        second = asyncio.create_task(ws.aterminal("echo second >> log"))
        await asyncio.sleep(0.2)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done()
        await first

    asyncio.run(main())
    assert ws.get("log") == b"first\n"


def test_wait_for(ws):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ws.aterminal("sleep 60"), 0.3)
        return (await ws.aterminal("echo on")).stdout

    assert asyncio.run(main()) == "on\n"


def test_streaming(ws):
    seen: list[tuple[str, str, float]] = []
    began = time.monotonic()

    def listen(stream, text):
        seen.append((stream, text, time.monotonic() - began))

    r = ws.terminal("echo one; sleep 0.4; echo two >&2; printf 'ü€'", on_output=listen)
    assert "".join(t for s, t, _ in seen if s == "stdout") == "one\nü€" == r.stdout
    assert "".join(t for s, t, _ in seen if s == "stderr") == "two\n"
    assert seen[0][2] < r.duration
    seen.clear()
    ws.run_python("print('p')", on_output=lambda s, t: seen.append((s, t, 0.0)))
    assert "".join(t for _, t, _ in seen) == "p\n"


def test_streaming_all_of_much(place):
    with ntr.workspace("s", max_observation=100) as ws:
        n = [0]
        r = ws.terminal("seq 200000", on_output=lambda s, t: n.__setitem__(0, n[0] + len(t)))
        assert n[0] == len("".join(f"{i}\n" for i in range(1, 200001))) and r.truncated


def test_an_exception_of_the_listener_ends_the_call(ws):
    def listen(stream, text):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        ws.terminal("echo x; sleep 60; touch end", on_output=listen)
    began = time.monotonic()
    assert ws.terminal("ls").stdout == ""
    assert time.monotonic() - began < 4


def test_async_methods_run_in_the_loop(place):
    class Thing:
        async def where(self):
            await asyncio.sleep(0)
            return threading.current_thread() is threading.main_thread()

    async def main():
        with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"t": Thing()})) as ws:
            return await ws.arun_python("t.where()")

    r = asyncio.run(main())
    assert r.echo.strip() == "True"


def test_lock(ws):
    order: list[str] = []

    async def turn(name):
        async with ws.lock:
            order.append(name + "1")
            await ws.aterminal(f"echo {name}1 >> log")
            await asyncio.sleep(0.05)
            await ws.aterminal(f"echo {name}2 >> log")
            order.append(name + "2")

    async def stranger():
        await asyncio.sleep(0.02)
        await ws.aterminal("echo stranger >> log")

    async def main():
        await asyncio.gather(turn("a"), turn("b"), turn("c"), stranger())

    asyncio.run(main())
    lines = ws.get("log").decode().split()
    assert len(lines) == 7
    lines.remove("stranger")
    for i in range(0, 6, 2):
        assert lines[i][0] == lines[i + 1][0]
    whole = ws.get("log").decode().split()
    at = whole.index("stranger")
    assert at % 2 == 0


def test_async_methods_that_call_back(place):
    class Back:
        async def read(self):
            return await ws.aget("f")

        async def run(self):
            return (await ws.aterminal("true")).text

        async def gathered(self):
            return await asyncio.gather(ws.aget("f"), asyncio.to_thread(ws.get, "f"))

        def blocking(self):
            return ws.terminal("true").text

    async def main():
        ws.put("f", b"data")
        assert (await ws.arun_python("back.read()")).echo.strip() == "b'data'"
        assert (await ws.arun_python("back.gathered()")).echo.strip() == "[b'data', b'data']"
        for method in ("run", "blocking"):
            r = await ws.arun_python(f"back.{method}()")
            assert "NestedCallError" in (r.error or "") and r.duration < 10
        assert ws.run_python("back.read()").echo.strip() == "b'data'"  # not async, inside a loop

    with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()}, timeout=20)) as ws:
        asyncio.run(main())


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("pause", [0.1, 0])
def test_cancelled_just_as_it_gets_the_lock(ws, turns, pause):
    async def take():
        async with ws.lock:
            pass

    async def main():
        task = asyncio.create_task(take())
        await asyncio.sleep(0)
        time.sleep(pause)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    done = threading.Thread(target=lambda: ws.terminal("true"), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive()


def test_the_loop_ends_while_a_task_waits_for_the_lock(ws):
    async def take():
        async with ws.lock:
            pass

    ws.lock.acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(take())
    loop.run_until_complete(asyncio.sleep(0.05))
    task.get_coro().close()  # nobody cancels it: it is just dropped
    loop.close()
    ws.lock.release()
    done = threading.Thread(target=lambda: ws.terminal("true"), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive()


@pytest.mark.parametrize("how", ["run_python", "arun_python"])
def test_a_method_that_exits_does_not_end_the_program(place, how):
    class Bad:
        def leave(self):
            raise SystemExit(3)

        async def leave_later(self):
            raise SystemExit("bye")

    ws = ntr.workspace("s", python=ntr.PythonConfig(host_objects={"bad": Bad()}))
    for method, text in (("leave", "SystemExit: 3"), ("leave_later", "SystemExit: bye")):
        code = f"try: bad.{method}()\nexcept Exception as e: print(e)"
        r = asyncio.run(ws.arun_python(code)) if how == "arun_python" else ws.run_python(code)
        assert r.stdout == text + "\n"


class Slow:
    """Methods that take longer than the calls they belong to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.go = threading.Event()

    async def later(self, seconds=20.0):
        self.seen.append("begun")
        try:
            await asyncio.sleep(seconds)
            self.seen.append("gone on")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    def now(self):
        self.seen.append("begun")
        self.go.wait(20)
        self.seen.append("gone on")
        return 1

    def thread(self):
        return threading.get_ident()


@pytest.fixture
def slow(place):
    thing = Slow()
    with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"slow": thing})) as ws:
        thing.ws = ws
        yield thing
        thing.go.set()


@pytest.mark.parametrize("how", ["run_python", "exec_python", "arun_python", "blocked loop"])
@pytest.mark.parametrize("method", ["later", "now"])
def test_a_timeout_ends_a_call_that_is_in_a_method(slow, how, method):
    ws, code = slow.ws, f"print('out', flush=True)\nslow.{method}()"
    began = time.monotonic()
    if how == "arun_python":
        r = asyncio.run(_with_rest(ws.arun_python(code, timeout=1)))
    elif how == "blocked loop":

        async def main():
            return ws.run_python(code, timeout=1)

        r = asyncio.run(main())
    else:
        r = getattr(ws, how)(code, timeout=1)
    assert time.monotonic() - began < 5
    assert r.timed_out and not r and r.stdout.startswith("out\n") and "TimeoutError" in (r.error or "")
    if method == "later":
        _until(lambda: "cancelled" in slow.seen)
    else:
        assert slow.seen == ["begun"]
        slow.go.set()
        _until(lambda: "gone on" in slow.seen)
    assert "gone on" not in slow.seen or method == "now"
    slow.go.set()
    for _ in range(3):  # the connection is none the worse
        assert ws.run_python("slow.now()").echo.strip() == "1"


async def _with_rest(coroutine):
    r = await coroutine
    await asyncio.sleep(0.1)
    return r


def _until(said, seconds=5.0):
    end = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("method", ["later", "now"])
def test_cancelling_a_call_that_is_in_a_method(slow, method):
    async def main():
        task = asyncio.create_task(slow.ws.arun_python(f"slow.{method}()\nopen('end', 'w')"))
        while not slow.seen:
            await asyncio.sleep(0.02)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 2
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert slow.seen == (["begun", "cancelled"] if method == "later" else ["begun"])
    assert not slow.ws.fs.exists("end")


def test_methods_of_one_call_run_in_one_thread_in_order(slow):
    code = """
import threading
found = []
many = [threading.Thread(target=lambda: found.append(slow.thread())) for _ in range(20)]
for t in many: t.start()
print("x", flush=True)
for t in many: t.join()
"""
    seen = []
    r = slow.ws.run_python(code, on_output=lambda s, t: seen.append(t))
    assert len(r.namespace["found"]) == 20 and len(set(r.namespace["found"])) == 1 and seen == ["x\n"]
    _until(lambda: not [t for t in threading.enumerate() if t.name == "ntr-method"])


def test_the_daemon_dies_while_a_method_runs(slow, place):
    killer = threading.Timer(0.5, place.kill_daemon)
    killer.start()
    began = time.monotonic()
    with pytest.raises(ntr.DaemonLostError):
        slow.ws.run_python("slow.now()")
    assert time.monotonic() - began < 5
    assert slow.ws.terminal("true")  # the next daemon clears up


def test_a_method_that_is_interrupted_ends_the_call(place):
    class Bad:
        def stop(self):
            raise KeyboardInterrupt

    with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"bad": Bad()})) as ws:
        with pytest.raises(KeyboardInterrupt):
            ws.run_python("bad.stop()\nimport time; time.sleep(60)")
        began = time.monotonic()
        assert ws.terminal("echo on").stdout == "on\n"
        assert time.monotonic() - began < 4


def test_what_outlives_its_call_is_not_inside_it(place):
    done: list[object] = []
    go = threading.Event()

    class Back:
        def late(self):
            go.wait(20)
            self.work()

        async def spawn(self):
            async def wait():
                await asyncio.to_thread(go.wait, 20)
                await asyncio.to_thread(self.work)

            done.append(asyncio.create_task(wait()))

        def work(self):
            done.append(ws.terminal("echo late").stdout)
            ws.cache["k"] = 1
            done.append(ws.history(1)[0].tool)

    async def main():
        assert await ws.arun_python("back.spawn()", readonly=True)
        go.set()
        await done.pop()

    with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()})) as ws:
        assert ws.run_python("back.late()", timeout=0.5, readonly=True).timed_out
        go.set()
        _until(lambda: len(done) == 2)
        assert done == ["late\n", "cache"]
        del ws.cache["k"]
        done.clear()
        go.clear()
        asyncio.run(main())
        assert done == ["late\n", "cache"]
