"""What calls give back. A result is true when what was asked has been done; its str() is what an agent reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._frames import from_wire, path_from_wire


@dataclass(frozen=True)
class Changes:
    """How many paths a commit created, modified and deleted."""

    created: int = 0
    modified: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return bool(self.created or self.modified or self.deleted)


@dataclass(frozen=True)
class Result:
    """What all results have: the text for the agent, and the commit that the call became (None: nothing changed)."""

    text: str = ""
    checkpoint: str | None = None
    ok: bool = True

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TerminalResult(Result):
    """A script of the terminal's."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated: bool = False
    duration: float = 0.0
    changes: Changes = Changes()
    background: int = 0
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Artifact:
    """Something that code has made for the user to see."""

    name: str
    path: str


@dataclass(frozen=True)
class PythonResult(TerminalResult):
    """A call of Python's. error: the traceback, or how its process ended; None when all went well."""

    error: str | None = None
    echo: str | None = None
    namespace: Mapping[str, Any] = field(default_factory=dict)
    ui: tuple[Artifact, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True)
class WriteOutcome(Result):
    """A file that was to be written."""

    path: str = ""
    bytes: int = 0
    created: bool = False


@dataclass(frozen=True)
class EditOutcome(Result):
    """A file that was to be edited. mode: exact, trailing_ws, indent_flexible or already_applied."""

    path: str = ""
    count: int = 0
    mode: str = ""


@dataclass(frozen=True)
class ImageResult(Result):
    """An image of the workspace."""

    path: str = ""
    format: str = ""
    mime: str = ""
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class ToolResult(Result):
    """A tool that was called by its name: what the agent reads, and the same as data."""

    structured: Mapping[str, Any] = field(default_factory=dict)
    image: ImageResult | None = None


@dataclass(frozen=True)
class Commit:
    """A step of the history."""

    id: str
    parents: tuple[str, ...] = ()
    session: str | None = None
    seq: int = 0
    time: str = ""
    tool: str = ""
    message: str | None = None
    changes: Changes = Changes()
    description: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class Change:
    """A path that differs: kind is created, modified, deleted or type."""

    path: str
    kind: str
    what: tuple[str, ...] = ()


@dataclass(frozen=True)
class RollbackOutcome:
    """Where the head is now. staged: the commit that holds what was not committed before; killed: processes ended."""

    to: Commit
    staged: str | None = None
    killed: int = 0


@dataclass(frozen=True)
class SessionInfo:
    """A session of a store."""

    name: str
    head: str | None = None
    origin: str | None = None
    root: str = "/workspace"
    live: bool = False
    running: bool = False
    created: str = ""


@dataclass(frozen=True)
class FileStat:
    """A file, directory or whatever else: type is file, dir, symlink, fifo, socket, chr or blk."""

    name: str
    type: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None = None

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "dir"

    @property
    def is_file(self) -> bool:
        """Whether it is a plain file."""
        return self.type == "file"


# ---- out of replies

Reply = Mapping[str, Any]


def changes_of(value: Any) -> Changes:
    """Counts; none where the daemon gives none."""
    if not isinstance(value, dict):
        return Changes()
    return Changes(*(int(value.get(k) or 0) for k in ("created", "modified", "deleted")))


def commit_of(row: Reply) -> Commit:
    """A commit's row."""
    known = {"commit", "parents", "session", "seq", "time", "changes", "inodes", "bytes", "root", "event", "ok"}
    return Commit(
        id=str(row["commit"]),
        parents=tuple(p for p in row.get("parents") or () if isinstance(p, str)),
        session=row.get("session"),
        seq=int(row.get("seq") or 0),
        time=str(row.get("time") or ""),
        tool=str(row.get("tool") or ""),
        message=row.get("message"),
        changes=changes_of(row.get("changes")),
        description={k: v for k, v in row.items() if k not in known},
    )


def session_of(row: Reply) -> SessionInfo:
    """A session's row."""
    return SessionInfo(
        name=str(row["name"]),
        head=row.get("head"),
        origin=row.get("origin"),
        root=path_from_wire(row.get("wsroot")),
        live=bool(row.get("live")),
        running=bool(row.get("running")),
        created=str(row.get("created") or ""),
    )


def entry_of(row: Reply) -> FileStat:
    """An entry of a directory."""
    target = row.get("target")
    return FileStat(
        name=path_from_wire(row.get("name")),
        type=str(row.get("type")),
        mode=int(row.get("mode") or 0) & 0o7777,
        size=int(row.get("size") or 0),
        mtime_ns=int(row.get("mtime_ns") or 0),
        target=None if target is None else path_from_wire(target),
    )


def _streams(m: Reply) -> dict[str, Any]:
    out, err = from_wire(m.get("stdout")), from_wire(m.get("stderr"))
    return {
        "stdout": out.decode("utf-8", "replace"),
        "stderr": err.decode("utf-8", "replace"),
        "stdout_bytes": out,
        "stderr_bytes": err,
        "exit_code": int(m.get("exit_code") or 0),
        "timed_out": bool(m.get("timed_out")),
        "truncated": bool(m.get("truncated")),
        "duration": float(m.get("duration") or 0.0),
        "changes": changes_of(m.get("changes")),
        "background": int(m.get("background") or 0),
    }


def _refused(text: str) -> dict[str, Any]:
    """A call that was never made."""
    return {"text": text, "ok": False, "stderr": text, "stderr_bytes": text.encode(), "exit_code": 2}


def terminal_of(text: str, is_error: bool, m: Reply) -> TerminalResult:
    """The reply to a script."""
    if "exit_code" not in m:
        return TerminalResult(**_refused(text))
    return TerminalResult(text=text, ok=not is_error, checkpoint=m.get("commit"), **_streams(m))


def python_of(text: str, is_error: bool, m: Reply) -> PythonResult:
    """The reply to a call of Python's."""
    if "exit_code" not in m:
        return PythonResult(error=text, **_refused(text))
    from ._values import decode_each

    namespace = m.get("namespace")
    return PythonResult(
        text=text,
        ok=not is_error,
        checkpoint=m.get("commit"),
        error=m.get("error"),
        echo=m.get("echo"),
        namespace=decode_each(namespace) if isinstance(namespace, dict) else {},
        ui=tuple(Artifact(str(x.get("name")), str(x.get("path"))) for x in m.get("ui") or ()),
        notes=tuple(str(x) for x in m.get("notes") or ()),
        hints=tuple(str(x) for x in m.get("hints") or ()),
        mechanisms=tuple(str(x) for x in m.get("mechanisms") or ()),
        **_streams(m),
    )


def image_of(reply: Reply) -> ImageResult:
    """The reply to view_image."""
    m, image = reply.get("structured") or {}, reply.get("image")
    text, ok = str(reply.get("text") or ""), not reply.get("is_error")
    if not ok or not isinstance(image, dict):
        return ImageResult(text=text, ok=False)
    import base64

    return ImageResult(
        text=text,
        path=path_from_wire(m.get("path")),
        format=str(m.get("format")),
        mime=str(image.get("mime")),
        data=base64.b64decode(image.get("b64") or ""),
    )
