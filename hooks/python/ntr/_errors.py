"""Exceptions. What an agent does wrong is a result, never one of these."""

from __future__ import annotations

import errno as _errno
from collections.abc import Mapping
from typing import Any


class WorkspaceError(Exception):
    """ntr could not do what the program asked; the text is ``WHAT: WHY; WHAT TO DO``.

    output: what the call had printed, as an agent reads it, where it ended and only its commit failed.
    """

    output: str | None = None

    def __init__(self, what: str, why: str = "", todo: str = "", *, kind: str = "failed", errno: int = 0) -> None:
        text = what + (f": {why}" if why else "") + (f"; {todo}" if todo else "")
        super().__init__(text)
        self.what = what
        self.why = why
        self.todo = todo
        self.kind = kind
        self.errno = errno

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.what, self.why, self.todo, self.kind, self.errno)


def _rebuild(cls: type[WorkspaceError], what: str, why: str, todo: str, kind: str, errno: int) -> WorkspaceError:
    return cls(what, why, todo, kind=kind, errno=errno)


class NotSupportedError(WorkspaceError):
    """This daemon, provider or executor does not have what was asked for."""


class SessionIdError(WorkspaceError, ValueError):
    """A session's name that cannot be one."""


class SessionNotFoundError(WorkspaceError, LookupError):
    """There is no such session."""


class SessionExistsError(WorkspaceError):
    """There is such a session already."""


class CheckpointNotFoundError(WorkspaceError, LookupError):
    """There is no such commit in the history."""


class CacheError(WorkspaceError, ValueError):
    """A key that cannot be one, or a value that cannot be kept."""


class IsolationUnavailable(WorkspaceError):
    """A boundary was asked for that this build or this host does not have."""


class RefusedError(WorkspaceError):
    """A hook of the store refused it; why is what the hook said. Tools give it to the agent as a false result."""


class NestedCallError(WorkspaceError):
    """A call would wait for the very call that it comes from."""


class CallCancelledError(WorkspaceError):
    """The call was taken out of its session's queue before it ran."""


class DaemonLostError(WorkspaceError):
    """The daemon ended in the middle of a request: whether it was carried out is not known."""


class ProtocolError(WorkspaceError):
    """Client and daemon do not understand each other; mostly they are of different versions."""


class BinaryNotFoundError(WorkspaceError):
    """The program ntr is not installed where it is looked for."""


_KINDS: dict[str, type[WorkspaceError]] = {
    "isolation": IsolationUnavailable,
    "protocol": ProtocolError,
    "refused": RefusedError,
}


def from_reply(error: Mapping[str, Any]) -> WorkspaceError:
    """The exception for an error reply of the daemon's."""
    what, why, todo = (str(error.get(k) or "") for k in ("what", "why", "todo"))
    kind = str(error.get("kind") or "failed")
    number = error.get("errno")
    code = abs(number) if isinstance(number, int) else 0
    cls = _KINDS.get(kind, WorkspaceError)
    if code == _errno.EDEADLK:
        cls = NestedCallError
    elif code == _errno.EINTR:
        cls = CallCancelledError
    elif kind == "usage" and "does not know it" in why:
        cls = NotSupportedError
    return cls(what, why, todo, kind=kind, errno=code)
