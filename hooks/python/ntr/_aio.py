"""Async calls: each in a thread of its own, so that none waits for another's; cancelling one kills what it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
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


class Abandoned:
    """Tells a coroutine that runs elsewhere that nobody waits for it any more: it is cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._cancel: Callable[[], object] | None = None

    def set(self) -> None:
        """Cancel what runs, and what begins later."""
        with self._lock:
            self._set = True
            cancel = self._cancel
        if cancel is not None:
            cancel()

    def watch(self, cancel: Callable[[], object] | None) -> None:
        """Say how to cancel what has begun; None: it has ended."""
        with self._lock:
            self._cancel = cancel
            late = self._set
        if late and cancel is not None:
            cancel()


async def _kept(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except SystemExit as e:
        raise _Exited(e) from None


def finish(coroutine: Coroutine[Any, Any, T], abandoned: Abandoned | None = None) -> T:
    """Run what an async method of a host object gave back: in the loop of the async call that it belongs to.

    It is called in a thread that has no loop of its own.
    """
    try:
        return _finish(_kept(coroutine), abandoned or Abandoned())
    except _Exited as e:
        raise e.exit from None


def _finish(coroutine: Coroutine[Any, Any, T], abandoned: Abandoned) -> T:
    import asyncio

    loop = _loop.get()
    try:
        if loop is not None and loop.is_running():
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            abandoned.watch(future.cancel)
            return future.result()
        return asyncio.run(_watched(coroutine, abandoned))
    finally:
        abandoned.watch(None)


async def _watched(coroutine: Coroutine[Any, Any, T], abandoned: Abandoned) -> T:
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    cancel = task.cancel

    def from_outside() -> None:
        try:
            loop.call_soon_threadsafe(cancel)
        except RuntimeError:
            pass  # the loop has ended meanwhile

    abandoned.watch(from_outside)
    return await coroutine


def leave_blocked_loop(context: Context) -> None:
    """A call that is not async, made inside a loop, blocks that: what it starts must not wait for it."""
    loop = context.get(_loop)
    if loop is not None:
        import asyncio

        try:
            blocked = asyncio.get_running_loop() is loop
        except RuntimeError:
            return
        if blocked:
            context.run(_loop.set, None)


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
