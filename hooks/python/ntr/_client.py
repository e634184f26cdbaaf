"""Requests to a store's daemon: a pool of connections, one a request at a time."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from math import isfinite
from typing import Any

from ._daemon import connect, store_path
from ._errors import DaemonLostError, WorkspaceError, from_reply
from ._frames import Connection, ConnectionEnded, FrameTooLarge

IDLE_MAX = 8

# What may be asked again when its answer got lost: it changes nothing.
READS = frozenset(
    {"sessions", "log", "show", "diff", "status", "ls", "cat", "cache-get", "cache-ls", "tools", "ps", "daemon-status"}
)

Event = Callable[[dict[str, Any], Connection], None]


class CallBack:
    """A call of a session that has called back into this program. What it began may outlive it: then ended is set."""

    def __init__(self, store: str, session: str, readonly: bool = False) -> None:
        self.store = store
        self.session = session
        self.readonly = readonly
        self.ended = False

    def enter(self) -> None:
        """Let this thread or task, and what it starts, come from inside the call."""
        _inside.set((*_inside.get(), self))


_inside: ContextVar[tuple[CallBack, ...]] = ContextVar("ntr_inside", default=())


def inside(store: str, session: str | None = None) -> list[CallBack]:
    """Give the calls of a store (of its session) that this thread or task comes from, outermost first."""
    return [c for c in _inside.get() if c.store == store and session in (None, c.session) and not c.ended]


class Control:
    """Ends a request from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conn: Connection | None = None
        self.cancelled = False

    def attach(self, conn: Connection | None) -> None:
        """Set the connection that the request is on."""
        with self._lock:
            self._conn = conn
            if conn is not None and self.cancelled:
                _kill(conn)

    def cancel(self) -> None:
        """Kill the call: out of the queue, or with all that it has started."""
        with self._lock:
            self.cancelled = True
            if self._conn is not None:
                _kill(self._conn)

    def hang_up(self) -> None:
        """Close the connection under the request, which the daemon takes for a hang-up."""
        with self._lock:
            if self._conn is not None:
                self._conn.shut()


def warn(reply: Mapping[str, Any]) -> None:
    """Tell what went wrong beside a request, such as a hook that failed after the fact."""
    if reply.get("warnings"):
        import warnings

        for text in reply["warnings"]:
            warnings.warn(f"ntr: {text}", RuntimeWarning, stacklevel=2)


def _kill(conn: Connection) -> None:
    try:
        conn.send({"op": "signal", "sig": int(signal.SIGKILL)})
    except (ConnectionEnded, OSError):
        pass


class Client:
    """The way to one store. For any thread, and for both sides of a fork()."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def _take(self) -> Connection:
        while True:
            with self._lock:
                conn = self._idle.pop() if self._idle else None
            if conn is None:
                return connect(self.store)
            if conn.is_fresh():
                return conn
            conn.close()

    def _give(self, conn: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX and conn.sock.fileno() >= 0:
                self._idle.append(conn)
                return
        conn.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close what is not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()

    def request(
        self,
        msg: Mapping[str, Any],
        fds: Sequence[int] = (),
        *,
        on_event: Event | None = None,
        control: Control | None = None,
        fresh: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Ask, and give the reply. A request that may have been carried out is never sent twice.

        fresh: called before each attempt of what may be asked again.
        """
        msg = self._addressed(msg)
        _check_numbers(msg)
        retries = 3
        while True:
            conn = self._take()
            if fresh is not None:
                fresh()
            try:
                return self._exchange(conn, msg, fds, on_event, control)
            except _NotRun:
                retries -= 1
                if retries < 0:
                    raise self._lost(msg, ran=False) from None
            except ConnectionEnded:
                if msg["op"] not in READS or retries == 0:
                    raise self._lost(msg, ran=True) from None
                retries -= 1

    def _addressed(self, msg: Mapping[str, Any]) -> Mapping[str, Any]:
        """Say from inside which session's call it comes, so that it is not made to wait for that."""
        if "inside" in msg:
            return msg
        chain = inside(self.store)
        if chain:
            return {**msg, "inside": chain[-1].session}
        env = os.environ
        if "NTR_CALL" in env and env.get("NTR_SESSION"):
            return {**msg, "inside": env["NTR_SESSION"]}
        return msg

    def is_inside(self, session: str) -> bool:
        """Whether this comes from inside a call of that session."""
        return bool(inside(self.store, session)) or self._addressed({}).get("inside") == session

    def _exchange(
        self,
        conn: Connection,
        msg: Mapping[str, Any],
        fds: Sequence[int],
        on_event: Event | None,
        control: Control | None,
    ) -> dict[str, Any]:
        done = False
        try:
            self._send(conn, msg, fds)
            if control is not None:
                control.attach(conn)
            reply = self._await(conn, msg, on_event, control)
            done = True
        finally:
            if control is not None:
                control.attach(None)
            if done:
                self._give(conn)
            else:  # an interrupt or an exception of a callback's: the call ends, too
                _kill(conn)
                conn.close()
        warn(reply)
        if "ok" in reply:
            return reply
        error = reply.get("error")
        failed = from_reply(error if isinstance(error, dict) else {"what": f"request '{msg['op']}'"})
        result = reply.get("result")
        if isinstance(result, dict) and isinstance(result.get("text"), str):
            failed.output = result["text"]
        raise failed

    def _send(self, conn: Connection, msg: Mapping[str, Any], fds: Sequence[int]) -> None:
        try:
            conn.send(msg, fds)
        except FrameTooLarge:
            raise WorkspaceError(
                f"request '{msg['op']}'",
                "what it carries is larger than 64 MiB together",
                "put the data into a file of the session (Workspace.put)",
                kind="usage",
            ) from None
        except UnicodeEncodeError as e:
            raise WorkspaceError(f"request '{msg['op']}'", f"a text is no valid Unicode: {e.reason}", kind="usage") from None
        except ConnectionEnded:
            # A daemon that refuses says why before it hangs up; else it has not had the whole request.
            try:
                reply = conn.receive()
            except ConnectionEnded:
                raise _NotRun from None
            error = reply.get("error")
            raise from_reply(error if isinstance(error, dict) else {"what": "talk to the daemon"}) from None

    def _await(
        self, conn: Connection, msg: Mapping[str, Any], on_event: Event | None, control: Control | None
    ) -> dict[str, Any]:
        started = heard = False
        while True:
            try:
                frame = conn.receive()
            except ConnectionEnded as e:
                # A call is told to have started before it begins, and what was not read has not been done. (A signal
                # that was not read says nothing about the request before it.)
                unread = not e.read and not heard and not (control is not None and control.cancelled)
                if unread or (not started and self._says_started(msg)):
                    raise _NotRun from None
                raise
            heard = True
            if "event" not in frame:
                return frame
            started = started or frame["event"] == "started"
            if on_event is not None:
                on_event(frame, conn)

    @staticmethod
    def _says_started(msg: Mapping[str, Any]) -> bool:
        return msg["op"] in ("run", "py") or (msg["op"] == "tool" and msg.get("name") in ("terminal", "run_python"))

    def _lost(self, msg: Mapping[str, Any], ran: bool) -> DaemonLostError:
        op = msg.get("name") if msg["op"] == "tool" else msg["op"]
        why = "the daemon ended in the middle of it: whether it was carried out is not known"
        todo = f"look (history, diff) before you repeat it; the daemon's last words are in {self.store}/ntrd.log"
        if not ran:
            why = "the daemon ends again and again before it is carried out"
            todo = f"its last words are in {self.store}/ntrd.log; `ntr doctor` checks this machine"
        return DaemonLostError(f"{op}", why, todo, kind="protocol")

    def rows(self, msg: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows that come as events before the reply."""
        found: list[dict[str, Any]] = []

        def take(frame: dict[str, Any], _: Connection) -> None:
            if frame["event"] == "row":
                found.append(frame)

        self.request(msg, on_event=take, fresh=found.clear)
        return found


def _check_numbers(msg: Mapping[str, Any]) -> None:
    """Numbers that no frame can carry are the program's mistake, not the connection's."""
    for key, value in msg.items():
        if (type(value) is int and not -(2**63) <= value < 2**63) or (type(value) is float and not isfinite(value)):
            raise ValueError(f"{key} is {value!r}, which is out of range")


class _NotRun(Exception):
    """The daemon surely has not begun what was asked."""


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_by_store: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


def client_of(store: str | os.PathLike[str] | None) -> Client:
    """Give the client of a store, shared by all who use it."""
    path = store_path(store)
    with _registry_lock:
        client = _by_store.get(path)
        if client is None:
            client = _by_store[path] = Client(path)
        return client


def _after_fork() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for client in list(_clients):
        client._reset()  # the connections themselves are closed by _frames


os.register_at_fork(after_in_child=_after_fork)
