"""A workspace's lock: several calls in one piece, while calls that do not ask for it run side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

from ._client import Control
from ._errors import CallCancelledError, NestedCallError

_turns: ContextVar[tuple[object, ...]] = ContextVar("ntr_turns", default=())


class Turn:
    """``with ws.lock:`` (or ``async with``): until its end only this thread or task, and what it starts, makes calls.

    It is for one workspace object; other objects and other programs are kept apart by the session itself, call by call.
    """

    def __init__(self, nested: Callable[[], bool]) -> None:
        self._nested = nested
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._holder: object | None = None
        self._depth = 0
        self._running = 0

    def _mine(self) -> bool:
        return self._holder is not None and self._holder in _turns.get()

    def enter_call(self, control: Control | None = None) -> None:
        """Wait for the turn of a call. One from inside another call must not wait."""
        nested = self._nested()
        with self._changed:
            while self._holder is not None and not self._mine() and not nested:
                if control is not None and control.cancelled:
                    raise CallCancelledError("call", "it was cancelled before it began")
                self._changed.wait(0.1 if control is not None else None)
            self._running += 1

    def leave_call(self) -> None:
        """Tell of a call's end."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def acquire(self, control: Control | None = None) -> None:
        """Wait until no other thread or task is at it."""
        with self._changed:
            if self._mine():
                self._depth += 1
                return
            if self._nested():
                raise NestedCallError("lock the workspace", "this comes from inside a call of the same workspace")
            while self._holder is not None or self._running:
                if control is not None and control.cancelled:
                    raise CallCancelledError("lock the workspace", "it was cancelled")
                self._changed.wait(0.1 if control is not None else None)
            self._holder = object()
            self._depth = 1
        _turns.set((*_turns.get(), self._holder))

    def release(self) -> None:
        """Give the turn back."""
        with self._changed:
            if not self._mine():
                raise RuntimeError("the lock of a workspace is released by whoever does not hold it")
            self._depth -= 1
            if self._depth:
                return
            holder, self._holder = self._holder, None
            self._changed.notify_all()
        _turns.set(tuple(t for t in _turns.get() if t is not holder))

    def __enter__(self) -> Turn:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> Turn:
        from ._aio import in_thread

        with self._changed:
            if self._mine():
                self._depth += 1
                return self
        holder = await in_thread(self._acquire_for_task)
        _turns.set((*_turns.get(), holder))
        return self

    def _acquire_for_task(self, control: Control) -> object:
        self.acquire(control=control)
        if control.cancelled:
            self.release()
            raise CallCancelledError("lock the workspace", "it was cancelled")
        return self._holder

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
