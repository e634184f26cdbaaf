"""ntr's own provider: sessions of a store, through its daemon."""

from __future__ import annotations

import errno as _errno
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._client import Client, client_of, inside
from ._errors import (
    CacheError,
    CheckpointNotFoundError,
    NotSupportedError,
    SessionExistsError,
    SessionNotFoundError,
    WorkspaceError,
)
from ._frames import Connection, as_bytes, from_wire, path_from_wire, to_wire
from ._protocols import Capabilities
from ._results import (
    Commit,
    EditOutcome,
    FileStat,
    ImageResult,
    RollbackOutcome,
    SessionInfo,
    WriteOutcome,
    commit_of,
    entry_of,
    image_of,
    session_of,
)

_ID = re.compile("[0-9a-f]{40}")
INLINE_MAX = 16 << 20  # larger values travel through a memory file

# Run in the session by a bare interpreter: makes the directories that lead to a path and, with a mode, writes its stdin
# to that file ("-": the mode that new files get). It finds its way as the daemon's own writing does: symlinks are
# followed by text, and never out of the root; what then opens the result follows none. What is refused makes nothing.
_FILES = r"""
import errno, os, sys
root, path, mode = (os.fsencode(x) for x in sys.argv[1:4])
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

def below(path):
    if not (path + b"/").startswith(root + b"/"):
        raise OSError(errno.EXDEV, "")
    return path[len(root):]

def resolve(path):
    rest, done, links = (below(path) if path.startswith(b"/") else path).split(b"/"), [], 0
    while rest:
        name = rest.pop(0)
        if name == b"..":
            if not done:
                raise OSError(errno.EXDEV, "")
            done.pop()
        if name in (b"", b".", b".."):
            continue
        done.append(name)
        try:
            target = os.readlink(b"/".join(done), dir_fd=top)
        except OSError as e:
            if e.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                continue
            raise
        links += 1
        if links > 40:
            raise OSError(errno.ELOOP, "")
        done.pop()
        if target.startswith(b"/"):
            done, target = [], below(target)
        rest = target.split(b"/") + rest
    return done

def folder(names, make):
    at = os.dup(top)
    for name in names:
        try:
            at = os.open(name, FOLDER, dir_fd=at)
        except FileNotFoundError:
            if not make:
                raise
            try:
                os.mkdir(name, dir_fd=at)
            except FileExistsError:  # a process of the session was faster
                pass
            at = os.open(name, FOLDER, dir_fd=at)
    return at

try:
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    resolve(path)
    folder(resolve(os.path.dirname(path)), True)
    if mode:
        names = resolve(path)
        if not names:
            raise OSError(errno.EISDIR, "")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        f = os.open(names[-1], flags, 0o666, dir_fd=folder(names[:-1], False))
        os.set_blocking(f, True)
        with os.fdopen(f, "wb", 0) as out:
            while part := os.read(0, 1 << 20):
                while part:
                    part = part[out.write(part):]
            if os.path.isfile(out.fileno()):
                os.truncate(out.fileno(), os.lseek(out.fileno(), 0, os.SEEK_CUR))
            if mode != b"-":
                os.fchmod(out.fileno(), int(mode) & 0o7777)
except OSError as e:
    sys.stderr.write("errno %d" % e.errno)
    sys.exit(1)
"""


def rethrow_os(e: WorkspaceError, path: str) -> Exception:
    """Files: what the os module would raise."""
    if e.errno in (
        _errno.ENOENT, _errno.EISDIR, _errno.ENOTDIR, _errno.EACCES, _errno.EPERM, _errno.ELOOP, _errno.ENAMETOOLONG
    ):  # fmt: skip
        return OSError(e.errno, e.why or os.strerror(e.errno), path)
    return e


class NtrProvider:
    """The sessions of a store. mounts: {point in the session: host directory or "DIR:rw"}."""

    def __init__(
        self, store: str | os.PathLike[str] | None = None, *, mounts: Mapping[str, str | os.PathLike[str]] | None = None
    ) -> None:
        self.client: Client = client_of(store)
        self.mounts = [_mount_of(point, source) for point, source in (mounts or {}).items()]

    @property
    def store(self) -> str:
        """The store's path."""
        return self.client.store

    @property
    def caps(self) -> Capabilities:
        """What it can do."""
        return Capabilities(versioned=True, staging=True, cheap_fork=True, fuse_mount=True)

    # ---- sessions

    def _head(self, session: str) -> dict[str, Any] | None:
        try:
            return self.client.rows({"op": "log", "session": session, "n": 1})[0]
        except WorkspaceError as e:
            if e.errno != _errno.ENOENT:
                raise
            return None

    def open(self, session: str, *, root: str | None = None) -> None:
        """Make the session when it is not there; else check that its root is that one."""
        made = self._head(session) is None and self._make(session, root)
        if self.mounts and not made:
            self._show_mounts(session)
        if root is not None and os.path.normpath(root) != self.root(session):
            raise WorkspaceError(
                f"open session {session}",
                f"its root is {self.root(session)}, which is fixed for its life",
                f"leave root={root!r} out, or take another name",
                kind="usage",
            )

    def _make(self, session: str, root: str | None) -> bool:
        """Make it; False: somebody else has been faster."""
        msg: dict[str, Any] = {"op": "new", "name": session}
        if root is not None:
            msg["wsroot"] = to_wire(root)
        if self.mounts:
            msg["mounts"] = self.mounts
        try:
            row = self.client.request(msg)
        except WorkspaceError as e:
            if e.errno != _errno.EEXIST:
                raise
            return False
        if self.mounts and "mounts" not in row:
            self.delete(session)
            raise self._no_mounts(session)
        return True

    def _show_mounts(self, session: str) -> None:
        """A session that is there already shows them from now on."""
        row = self.client.request({"op": "status", "session": session, "stream": True})
        if "mounts" not in row:
            raise self._no_mounts(session)
        there = {path_from_wire(m.get("point")): m for m in row["mounts"]}
        for want in self.mounts:
            have = there.get(path_from_wire(want["point"]))
            real = os.path.realpath(path_from_wire(want["dir"]))
            if have is None or path_from_wire(have.get("dir")) != real or bool(have.get("rw")) != want["rw"]:
                self.client.request(
                    {"op": "run", "session": session, "argv": ["true"], "capture": True, "no_commit": True,
                     "env": [f"PATH={os.environ.get('PATH', os.defpath)}"], "mounts": self.mounts}, [_null()]
                )  # fmt: skip
                return

    @staticmethod
    def _no_mounts(session: str) -> NotSupportedError:
        return NotSupportedError(
            f"show host directories in session {session}",
            "the daemon does not know of them",
            "end an older daemon with `ntr daemon stop`, or install a newer ntr",
            kind="usage",
        )

    def sessions(self) -> list[SessionInfo]:
        """All sessions of the store."""
        return [session_of(row) for row in self.client.rows({"op": "sessions"})]

    def delete(self, session: str) -> None:
        """Remove a session, with its uncommitted work."""
        try:
            self.client.request({"op": "rm", "name": session, "discard": True})
        except WorkspaceError as e:
            raise self._known(e, session) from None

    def root(self, session: str) -> str:
        """Give the absolute path of its root."""
        return path_from_wire(self.client.request({"op": "tools", "session": session}).get("wsroot"))

    @staticmethod
    def _known(e: WorkspaceError, session: str, commit: str | None = None) -> WorkspaceError:
        """The exception that says which of the two is not there."""
        if e.errno == _errno.EEXIST and e.kind == "exists":
            return SessionExistsError(e.what, e.why, e.todo, kind=e.kind, errno=e.errno)
        missing = {_errno.ENOENT, _errno.ERANGE} | ({_errno.EINVAL, _errno.ENOTUNIQ} if commit is not None else set())
        if e.kind != "not-found" and e.errno not in missing:
            return e
        cls = SessionNotFoundError if commit is None else CheckpointNotFoundError
        return cls(e.what, e.why, e.todo, kind=e.kind, errno=e.errno)

    # ---- history

    def history(self, session: str, limit: int | None = None) -> list[Commit]:
        """Give its commits, the newest first."""
        try:
            rows = self.client.rows({"op": "log", "session": session, "n": min(limit or 0, 2**63 - 1)})
        except WorkspaceError as e:
            raise self._known(e, session) from None
        return [commit_of(row) for row in rows]

    def dirty(self, session: str) -> bool:
        """Whether there is work that no commit has."""
        changed: list[bool] = []
        reply = self.client.request(
            {"op": "status", "session": session, "stream": True},
            on_event=lambda m, _: changed.append(True),
            fresh=changed.clear,
        )
        return bool(changed or reply.get("changes") or reply.get("state_changed"))

    def checkpoint(self, session: str, message: str | None = None) -> Commit | None:
        """Commit what is not committed."""
        msg: dict[str, Any] = {"op": "commit", "session": session}
        if message is not None:
            msg["message"] = message
        try:
            reply = self.client.request(msg)
        except WorkspaceError as e:
            raise self._known(e, session) from None
        return commit_of(reply) if reply.get("commit") else None

    def discard(self, session: str) -> None:
        """Drop what is not committed; background processes end."""
        self.client.request({"op": "discard", "session": session})

    def restore(self, session: str, commit: str) -> RollbackOutcome:
        """Move the head to a commit."""
        return self._move(session, {"rev": commit}, commit)

    def rollback(self, session: str, steps: int) -> RollbackOutcome:
        """Move the head back."""
        return self._move(session, {"steps": min(steps, 2**31 - 1)}, f"~{steps}")  # no history is that long

    def _move(self, session: str, where: Mapping[str, Any], commit: str) -> RollbackOutcome:
        try:
            reply = self.client.request({"op": "rollback", "session": session, **where})
        except WorkspaceError as e:
            raise self._known(e, session, commit) from None
        return RollbackOutcome(commit_of(reply["to"]), reply.get("staged"), int(reply.get("killed") or 0))

    def fork(self, session: str, name: str, at: str | None = None) -> None:
        """Make a session of another name from this one."""
        source = session if at is None else f"{session}@{self.commit_id(session, at)}"
        try:
            self.client.request({"op": "fork", "source": source, "name": name})
        except WorkspaceError as e:
            raise self._known(e, session, at) from None

    def commit_id(self, session: str, at: str) -> str:
        """Give the whole id of a commit that is named in any way."""
        if _ID.fullmatch(at):
            return at
        try:
            return str(self.client.rows({"op": "log", "session": session, "rev": at, "n": 1})[0]["commit"])
        except WorkspaceError as e:
            raise self._known(e, session, at) from None

    # ---- files

    def read(self, session: str, path: str, at: str | None = None) -> bytes:
        """Read a file."""
        fd = os.memfd_create("ntr-read", os.MFD_CLOEXEC)
        try:
            msg: dict[str, Any] = {"op": "cat", "session": session, "path": to_wire(path)}
            if at is not None:
                msg["rev"] = at
            self.client.request(msg, [fd], fresh=lambda: _rewind(fd))
            return _whole(fd)
        except WorkspaceError as e:
            raise (self._lookup_error(e, session, path, at)) from None
        finally:
            os.close(fd)

    def _lookup_error(self, e: WorkspaceError, session: str, path: str, at: str | None) -> Exception:
        """A file that is not there, or a commit that is not?"""
        if at is not None and e.errno in (_errno.ENOENT, _errno.EINVAL, _errno.ENOTUNIQ, _errno.ERANGE):
            try:
                self.client.rows({"op": "log", "session": session, "rev": at, "n": 1})
            except WorkspaceError as unknown:
                return self._known(unknown, session, at)
        return rethrow_os(e, path)

    def write(self, session: str, path: str, data: bytes, *, mode: int | None = None, commit: bool = True) -> str | None:
        """Write a file, with the directories that lead to it."""
        fd = os.memfd_create("ntr-write", os.MFD_CLOEXEC)
        try:
            _fill(fd, [as_bytes(data)])
            return self.write_from(session, path, fd, mode=mode, commit=commit)
        finally:
            os.close(fd)

    def write_from(self, session: str, path: str, fd: int, *, mode: int | None = None, commit: bool = True) -> str | None:
        """Write a file out of a descriptor, from where that stands."""
        if mode is not None and not 0 <= mode <= 0xFFFF:
            raise ValueError(f"mode is {mode!r}: it has to be from 0 to 0o7777")
        if not commit:
            self._write_staged(session, path, fd, mode)
            return None
        msg: dict[str, Any] = {"op": "put", "session": session, "path": to_wire(path)}
        if mode is not None:
            msg["mode"] = mode
        try:
            try:
                reply = self.client.request(msg, [fd])
            except WorkspaceError as e:
                if e.errno != _errno.ENOENT or "/" not in path.strip("/"):
                    raise
                self._in_session(session, path, _null(), "")  # they go into the commit of the file
                os.lseek(fd, 0, os.SEEK_SET)
                reply = self.client.request(msg, [fd])
        except WorkspaceError as e:
            raise rethrow_os(e, path) from None
        return reply.get("commit")

    def _in_session(self, session: str, path: str, fd: int, mode: str) -> None:
        """Make the directories that lead to a path; with a mode, write fd to it. It stays uncommitted work."""
        argv = [_python(), "-ISc", _FILES, self.root(session), path, mode]
        reply = self.client.request(
            {"op": "run", "session": session, "argv": [to_wire(x) for x in argv], "capture": True,
             "no_commit": True, "env": [f"PATH={os.environ.get('PATH', os.defpath)}"]}, [fd]
        )  # fmt: skip
        if not reply.get("exit_code"):
            return
        said = from_wire(reply.get("stderr")).decode("utf-8", "replace").strip()
        if said.startswith("errno "):
            code = int(said.removeprefix("errno "))
            why = "it leads out of the workspace" if code == _errno.EXDEV else os.strerror(code)
            raise WorkspaceError(f"write {path}", why, errno=code)
        raise WorkspaceError(f"write {path}", said.rpartition("\n")[2] or f"exit status {reply['exit_code']}")

    def _write_staged(self, session: str, path: str, fd: int, mode: int | None) -> None:
        root = self.root(session)
        if path.startswith("/") and not f"{path}/".startswith(f"{root}/"):
            raise WorkspaceError(
                f"find {path}",
                "not inside the workspace",
                f"give a path relative to the workspace, or one that begins with {root}",
                errno=_errno.EINVAL,
            )
        try:
            self._in_session(session, path, fd, "-" if mode is None else str(mode))
        except WorkspaceError as e:
            raise rethrow_os(e, path) from None

    def listdir(self, session: str, path: str, at: str | None = None) -> list[FileStat]:
        """List a directory; of a file: the file."""
        msg: dict[str, Any] = {"op": "ls", "session": session, "stream": True}
        if path not in ("", "."):
            msg["path"] = to_wire(path)
        if at is not None:
            msg["rev"] = at
        rows: list[dict[str, Any]] = []
        try:
            reply = self.client.request(msg, on_event=lambda m, _: rows.append(m), fresh=rows.clear)
        except WorkspaceError as e:
            raise self._lookup_error(e, session, path, at) from None
        return [entry_of(row) for row in [*rows, *(reply.get("entries") or ())]]

    def root_stat(self, session: str, at: str | None = None) -> FileStat:
        """Tell about the root itself, which no listing has: a tar begins with it. As a commit has it, else the head."""
        import decimal
        import io
        import tarfile
        import threading

        r, w = os.pipe()
        begun = bytearray()

        def read() -> None:
            with os.fdopen(r, "rb", 0) as f:  # what comes behind the first entry is not waited for
                while len(begun) < 1 << 18 and (part := f.read(4096)):
                    begun.extend(part)

        thread = threading.Thread(target=read, name="ntr-stat", daemon=True)
        thread.start()
        try:
            msg = {"op": "export", "session": session, "rev": "HEAD" if at is None else at, "format": "tar"}
            self.client.request(msg, [w])
        except WorkspaceError as e:
            if e.errno != _errno.EPIPE:
                raise self._known(e, session, at) from None
        finally:
            os.close(w)
            thread.join()
        with tarfile.open(fileobj=io.BytesIO(begun + bytes(10240))) as tar:
            entry = tar.next()
        if entry is None:
            raise WorkspaceError("stat the root", "the daemon's tar has no entry")
        seconds = decimal.Decimal(entry.pax_headers.get("mtime", str(int(entry.mtime))))
        return FileStat("", "dir", entry.mode & 0o7777, 0, int(seconds * 10**9))

    # ---- tools

    def tool(self, session: str, name: str, args: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Call a tool by its name; give the whole reply."""
        return self.client.request({"op": "tool", "session": session, "name": name, "args": dict(args), **more})

    def write_text(self, session: str, path: str, content: str, *, commit: bool = True) -> WriteOutcome:
        """Do the tool file_write."""
        reply = self.tool(session, "file_write", {"path": path, "content": content}, no_commit=not commit)
        m = reply.get("structured") or {}
        return WriteOutcome(
            str(reply.get("text")), reply.get("commit"), not reply.get("is_error"),
            path_from_wire(m.get("path")) or path, int(m.get("bytes") or 0), bool(m.get("created")),
        )  # fmt: skip

    def edit_text(
        self, session: str, path: str, old: str, new: str, *, replace_all: bool = False, commit: bool = True
    ) -> EditOutcome:
        """Do the tool file_edit."""
        args = {"path": path, "old_string": old, "new_string": new, "replace_all": replace_all}
        reply = self.tool(session, "file_edit", args, no_commit=not commit)
        m = reply.get("structured") or {}
        return EditOutcome(
            str(reply.get("text")), reply.get("commit"), not reply.get("is_error"),
            path_from_wire(m.get("path")) or path, int(m.get("count") or 0), str(m.get("mode") or ""),
        )  # fmt: skip

    def view_image(self, session: str, path: str) -> ImageResult:
        """Do the tool view_image."""
        return image_of(self.tool(session, "view_image", {"path": path}))

    # ---- the cache

    def cache_get(self, session: str, key: str, at: str | None = None) -> Any:
        """Give a value of the cache."""
        from ._values import decode

        _check_key("read", key)
        msg = {"op": "cache-get", "session": session, "key": key, **({} if at is None else {"rev": at})}
        try:
            try:
                return decode(self.client.request(msg)["value"])
            except WorkspaceError as e:
                if e.errno != _errno.EMSGSIZE:
                    raise
            return decode(self._large_value(msg))
        except WorkspaceError as e:
            raise self._cache_error(e, session, key, at) from None

    def _large_value(self, msg: Mapping[str, Any]) -> Any:
        import json

        fd = os.memfd_create("ntr-value", os.MFD_CLOEXEC)
        try:
            self.client.request(msg, [fd], fresh=lambda: _rewind(fd))
            return json.loads(_whole(fd))
        finally:
            os.close(fd)

    def cache_set(self, session: str, key: str, value: Any, *, commit: bool = True) -> str | None:
        """Set a value of the cache."""
        from ._values import EncodeError, dumps, encode

        _check_key("set", key)
        try:
            j = encode(value)
        except EncodeError as e:
            raise CacheError(f"set {key!r} in the cache", str(e), kind="usage") from None
        text = dumps(j).encode("utf-8")
        msg: dict[str, Any] = {"op": "cache-set", "session": session, "key": key}
        try:
            if len(text) <= INLINE_MAX:
                return self._cache_change({**msg, "value": j}, (), commit)
            fd = os.memfd_create("ntr-value", os.MFD_CLOEXEC)
            try:
                _fill(fd, [text])
                return self._cache_change(msg, (fd,), commit)
            finally:
                os.close(fd)
        except WorkspaceError as e:
            raise self._cache_error(e, session, key, None) from None

    def _cache_change(self, msg: Mapping[str, Any], fds: Sequence[int], commit: bool) -> str | None:
        """Change it, as a commit or as uncommitted work: that is a change which joins a call that does not commit."""
        if any(call.readonly for call in inside(self.client.store, msg["session"])):
            raise CacheError(
                f"change {msg['key']!r} in the cache",
                "this comes from inside a call that is read-only",
                "make the call without readonly",
                kind="usage",
            )
        joining = {**msg, "inside": msg["session"]}
        if self.client.is_inside(msg["session"]):
            return self.client.request(joining, fds).get("commit")
        if commit:
            return self.client.request(msg, fds).get("commit")
        came: list[BaseException | None] = []

        def begun(event: dict[str, Any], conn: Connection) -> None:
            if event["event"] != "output" or came:  # "started" comes while the call may still wait for its turn
                return
            try:
                self.client.request(joining, fds)
                came.append(None)
            except BaseException as e:
                came.append(e)
            conn.send({"op": "signal", "sig": int(signal.SIGKILL)})  # it has only kept the place

        self.client.request(
            {"op": "run", "session": msg["session"], "argv": ["sh", "-c", "echo begun && exec sleep infinity"],
             "capture": True, "stream": True, "no_commit": True,
             "env": [f"PATH={os.environ.get('PATH', os.defpath)}"]}, [_null()], on_event=begun
        )  # fmt: skip
        if not came:
            raise WorkspaceError(f"{msg['op']} {msg['key']}", "the call that it was to join has not begun")
        if came[0] is not None:
            raise came[0]
        return None

    def cache_delete(self, session: str, key: str, *, commit: bool = True) -> str | None:
        """Delete a value of the cache."""
        _check_key("change", key)
        try:
            return self._cache_change({"op": "cache-rm", "session": session, "key": key}, (), commit)
        except WorkspaceError as e:
            raise self._cache_error(e, session, key, None) from None

    def cache_keys(self, session: str, at: str | None = None) -> list[str]:
        """List the cache."""
        msg = {"op": "cache-ls", "session": session, **({} if at is None else {"rev": at})}
        try:
            return [str(k) for k in self.client.request(msg)["keys"]]
        except WorkspaceError as e:
            raise self._known(e, session, at) from None

    def _cache_error(self, e: WorkspaceError, session: str, key: str, at: str | None) -> Exception:
        if e.errno == _errno.ENOENT:
            if at is not None:
                try:
                    self.client.rows({"op": "log", "session": session, "rev": at, "n": 1})
                except WorkspaceError as unknown:
                    return self._known(unknown, session, at)
            return KeyError(key)
        if e.kind == "usage" or e.errno in (_errno.E2BIG, _errno.EINVAL):
            return CacheError(e.what, e.why, e.todo, kind=e.kind, errno=e.errno)
        return e


def _check_key(what: str, key: object) -> None:
    """The daemon knows of keys; what no frame can carry is told here."""
    if not isinstance(key, str):
        raise CacheError(f"{what} the cache", f"a key is a str, and this a {type(key).__name__}", kind="usage")


def _mount_of(point: str, source: str | os.PathLike[str]) -> dict[str, Any]:
    text = os.fspath(source)
    rw = text.endswith(":rw")
    folder = os.path.expanduser(text.removesuffix(":rw") if rw else text.removesuffix(":ro"))
    if not point.startswith("/"):
        raise WorkspaceError(f"mount {folder} at {point}", "the point is not absolute", kind="usage")
    if not os.path.isdir(folder):
        raise WorkspaceError(f"mount {folder} at {point}", "there is no such directory", kind="usage")
    return {"point": to_wire(point), "dir": to_wire(os.path.abspath(folder)), "rw": rw}


def _python() -> str:
    """An interpreter for the package's own scripts; where Python is built into a program, that is none."""
    own = sys.executable or ""
    return own if os.path.basename(own).startswith("py") else "python3"


_null_fd: tuple[int, int] | None = None


def _null() -> int:
    """/dev/null, opened once a process."""
    global _null_fd
    if _null_fd is None or _null_fd[0] != os.getpid():
        _null_fd = (os.getpid(), os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    return _null_fd[1]


def _rewind(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)


def _fill(fd: int, parts: Iterable[bytes]) -> None:
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)


def _whole(fd: int) -> bytes:
    n, parts, at = os.fstat(fd).st_size, [], 0
    while at < n:
        part = os.pread(fd, n - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def require(caps: Capabilities, name: str) -> None:
    """Raise NotSupportedError where a capability is missing."""
    if not getattr(caps, name):
        raise NotSupportedError(f"use '{name}'", "this workspace's provider cannot", kind="usage")
