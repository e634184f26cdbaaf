"""Objects of this program that agent code may call by name. Arguments and results cross as data."""

from __future__ import annotations

import inspect
import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from ._aio import Abandoned, finish, leave_blocked_loop
from ._client import CallBack
from ._config import HostObject
from ._frames import Connection, ConnectionEnded, FrameTooLarge


def _target(thing: Any) -> HostObject:
    return thing if isinstance(thing, HostObject) else HostObject(thing)


def _methods(spec: HostObject) -> list[str] | None:
    """Names of what may be called; None: the object decides as it is asked."""
    if spec.allow is not None:
        return [n for n in spec.allow if not n.startswith("_")]
    obj = spec.object
    if hasattr(type(obj), "__getattr__"):
        return None
    found = []
    for name in dir(obj):
        if name.startswith("_"):
            continue
        static = inspect.getattr_static(obj, name)  # a property's code must not run for a list of names
        if callable(static) or isinstance(static, (staticmethod, classmethod)):
            found.append(name)
    return found


def to_wire(objects: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the member objects of a request."""
    return [{"name": name, "methods": _methods(_target(thing))} for name, thing in objects.items()]


def _text(e: BaseException) -> str:
    try:
        text = str(e)
    except Exception:
        text = ""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\\0")


class Answerer:
    """Answers the calls that come while one call of a session runs.

    Methods run one after another in a thread that is this call's own (async ones: in the loop that made the call), so that
    the call itself can end before its method does: at its timeout, or when it is cancelled.
    """

    def __init__(self, objects: Mapping[str, Any], store: str, session: str, readonly: bool = False) -> None:
        self.objects = {name: _target(thing) for name, thing in objects.items()}
        self._back = CallBack(store, session, readonly)
        self._worker: _Worker | None = None

    def answer(self, event: Mapping[str, Any], conn: Connection) -> None:
        """Carry out one call and send what came of it; nothing, where the call of the session ends before that."""
        if self._worker is None:
            self._worker = _Worker(self._back.enter)
        body = self._worker.run(lambda: self._outcome(event), conn)
        if body is None:
            return
        head = {"op": "answer", "n": event.get("n")}  # the op has to come first
        try:
            conn.send({**head, **body})
        except (FrameTooLarge, UnicodeEncodeError, ValueError) as e:
            text = "the result is larger than 64 MiB" if isinstance(e, FrameTooLarge) else f"the result: {e}"
            conn.send({**head, "error": {"type": "ValueError", "text": text}})
        except ConnectionEnded:
            pass  # whoever waits for the reply sees it, too

    def close(self) -> None:
        """The call has ended: nobody waits for a method that still runs, and it is not inside the call any more."""
        self._back.ended = True
        if self._worker is not None:
            self._worker.close()

    def _outcome(self, event: Mapping[str, Any]) -> dict[str, Any]:
        from ._values import encode

        try:
            value = self._call(event)
            return {"value": encode(value)}
        except KeyboardInterrupt:
            raise  # of the program's user: it ends the call
        except BaseException as e:  # a sys.exit() of a method's, too, is that method's error
            return {"error": {"type": type(e).__name__, "text": _text(e)}}

    def _call(self, event: Mapping[str, Any]) -> Any:
        from ._values import decode

        name, method = str(event.get("name")), str(event.get("method"))
        spec = self.objects.get(name)
        if spec is None:
            raise AttributeError(f"there is no object {name!r}")
        if method.startswith("_") or (spec.allow is not None and method not in spec.allow):
            raise AttributeError(f"{name} has no method {method!r} that may be called")
        function = getattr(spec.object, method)
        if not callable(function):
            raise AttributeError(f"{name}.{method} is no method")
        args = [decode(x) for x in event.get("args") or ()]
        kwargs = {str(k): decode(x) for k, x in (event.get("kwargs") or {}).items()}
        result = function(*args, **kwargs)
        if inspect.iscoroutine(result):
            assert self._worker is not None
            return finish(result, self._worker.abandoned)
        return result


class _Worker:
    """A thread for the methods of one call. It goes on with a method that was abandoned, and then ends."""

    def __init__(self, enter: Callable[[], None]) -> None:
        self.abandoned = Abandoned()
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], dict[str, Any]] | None] = queue.SimpleQueue()
        self._done: dict[str, Any] | BaseException | None = None
        self._woken: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        context = copy_context()
        context.run(enter)
        leave_blocked_loop(context)
        threading.Thread(target=context.run, args=(self._work,), name="ntr-method", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome: dict[str, Any] | BaseException
            try:
                outcome = job()
            except BaseException as e:
                outcome = e
            with self._lock:
                self._done = outcome
                if self._woken is None:
                    return
                os.eventfd_write(self._woken, 1)

    def run(self, job: Callable[[], dict[str, Any]], conn: Connection) -> dict[str, Any] | None:
        """Do job in the thread. None: the reply to the whole call came first."""
        assert self._woken is not None
        self._jobs.put(job)
        if not conn.wait_beside(self._woken):
            self.close()
            return None
        os.eventfd_read(self._woken)
        done, self._done = self._done, None
        if isinstance(done, BaseException):
            raise done
        return done

    def close(self) -> None:
        with self._lock:
            if self._woken is None:
                return
            os.close(self._woken)
            self._woken = None
        self._jobs.put(None)
        self.abandoned.set()
