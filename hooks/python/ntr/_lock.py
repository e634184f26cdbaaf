"""A workspace's lock: several calls in one piece, while calls that do not ask for it run side by side."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

from ._client import Control
from ._errors import CallCancelledError, NestedCallError

_turns: ContextVar[tuple[_Holder, ...]] = ContextVar("ntr_turns", default=())


class _Holder:
    """One who has the turn, or waits for it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.given_up = False


_all: weakref.WeakSet[Turn] = weakref.WeakSet()


class Turn:
    """``with ws.lock:`` (or ``async with``): until its end only this thread or task, and what it starts, makes calls.

    It is for one workspace object; other objects and other programs are kept apart by the session itself, call by call.
    """

    def __init__(self, nested: Callable[[], bool]) -> None:
        self._nested = nested
        self._changed = threading.Condition()
        self._holder: _Holder | None = None
        self._depth = 0
        self._running: dict[int, int] = {}  # calls under way, by thread
        _all.add(self)

    def _reset(self) -> None:
        """In the child of a fork() there is only the thread that forked: what others hold and run is the parent's."""
        me = threading.get_ident()
        self._changed = threading.Condition()
        if self._holder is not None and not (self._mine() and self._holder.thread == me):
            self._holder = None
            self._depth = 0
        self._running = {who: n for who, n in self._running.items() if who == me}

    def _mine(self) -> bool:
        return self._holder is not None and self._holder in _turns.get()

    def enter_call(self, control: Control | None = None) -> None:
        """Wait for the turn of a call. One from inside another call must not wait."""
        nested = self._nested()
        me = threading.get_ident()
        with self._changed:
            while self._holder is not None and not self._mine() and not nested:
                if control is not None and control.cancelled:
                    raise CallCancelledError("call", "it was cancelled before it began")
                self._changed.wait(0.1 if control is not None else None)
            self._running[me] = self._running.get(me, 0) + 1

    def leave_call(self) -> None:
        """Tell of a call's end, in the thread that has begun it."""
        me = threading.get_ident()
        with self._changed:
            self._running[me] -= 1
            if not self._running[me]:
                del self._running[me]
            self._changed.notify_all()

    def acquire(self) -> None:
        """Wait until no other thread or task is at it."""
        if self._again():
            return
        holder = _Holder()
        try:
            self._take(holder)
            _turns.set((*_turns.get(), holder))
        except BaseException:
            self._give_up(holder)
            raise

    def _again(self) -> bool:
        """Whoever has it may have it once more."""
        with self._changed:
            mine = self._mine()
            self._depth += mine
            return mine

    def _take(self, holder: _Holder, control: Control | None = None) -> None:
        with self._changed:
            if self._nested():
                raise NestedCallError("lock the workspace", "this comes from inside a call of the same workspace")
            while True:
                if holder.given_up or (control is not None and control.cancelled):
                    raise CallCancelledError("lock the workspace", "it was cancelled")
                if self._holder is None and not self._running:
                    break
                self._changed.wait(0.1 if control is not None else None)
            self._holder = holder
            self._depth = 1

    def _give_up(self, holder: _Holder) -> None:
        """Whether it has it already or still waits: it never will have it."""
        with self._changed:
            holder.given_up = True
            if self._holder is holder:
                self._holder = None
                self._depth = 0
            self._changed.notify_all()

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

        if self._again():
            return self
        holder = _Holder()
        try:
            await in_thread(lambda control: self._take(holder, control))
        except BaseException:  # cancelled, maybe after the thread has got it and before this task has heard of it
            self._give_up(holder)
            raise
        _turns.set((*_turns.get(), holder))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _after_fork() -> None:
    for turn in list(_all):
        turn._reset()


os.register_at_fork(after_in_child=_after_fork)
