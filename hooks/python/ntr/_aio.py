"""Async calls: each in a thread of its own, so that none waits for another's; cancelling one kills what it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ._client import Control

if TYPE_CHECKING:
    import asyncio  # at run time where it is used: most programs never do

T = TypeVar("T")
CANCEL_WAIT_S = 3.0

_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("ntr_loop", default=None)


class _Exited(Exception):
    """A SystemExit on its way to whoever asked: as itself it would end the loop that it runs in."""

    def __init__(self, exit: SystemExit) -> None:
        super().__init__(exit)
        self.exit = exit


async def _kept(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except SystemExit as e:
        raise _Exited(e) from None


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what an async method of a host object gave back: in the loop of the async call that it belongs to."""
    try:
        return _finish(_kept(coroutine))
    except _Exited as e:
        raise e.exit from None


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    import asyncio

    loop = _loop.get()
    if loop is not None and loop.is_running():
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A call that is not async, made inside a loop, which it blocks: the method gets a loop of its own.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()


async def in_thread(function: Callable[[Control], T]) -> T:
    """Call function in a thread, with this task's context; on cancellation kill the call and wait for its end."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    control = Control()
    context = copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        context.run(_loop.set, loop)
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, control)
        except BaseException as e:
            error = e
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop has been closed meanwhile

    threading.Thread(target=work, name="ntr-call", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        control.cancel()
        done, _ = await asyncio.wait({future}, timeout=CANCEL_WAIT_S)
        if not done:
            control.hang_up()
            done, _ = await asyncio.wait({future}, timeout=CANCEL_WAIT_S)
        if done:
            future.exception()  # looked at: nobody else will
        raise
