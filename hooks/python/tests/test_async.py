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
