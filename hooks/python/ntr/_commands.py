"""Commands of the embedding program: real executables in the session's PATH that call back."""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from ._client import CallBack
from ._frames import BytesLike, as_bytes
from ._launcher import script

# What bash has of its own, and finds before PATH.
_BASH = frozenset(
    (
        "alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown do "
        "done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in "
        "jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt "
        "source suspend test then time times trap true type typeset ulimit umask unalias unset until wait while"
    ).split()
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
REQUEST_MAX = 8 << 20
_PREFIX = "ntr-cmd-"


@dataclass(frozen=True)
class CommandResult:
    """What a command prints and its exit code, where it says both."""

    stdout: str | BytesLike = b""
    stderr: str | BytesLike = b""
    exit_code: int = 0


class CommandCall:
    """One use of a command. Its streams are those of the process in the session: pipes compose."""

    def __init__(self, name: str, args: list[str], cwd: str, session: str, fds: list[int]) -> None:
        self.name = name
        self.args = args
        self.cwd = cwd
        self.session = session
        self.stdin_file: BinaryIO = os.fdopen(fds[0], "rb")
        self._out, self._err = fds[1], fds[2]
        self._read: bytes | None = None
        _calls.add(self)

    @property
    def stdin(self) -> bytes:
        """All of stdin, read when it is first asked for."""
        if self._read is None:
            self._read = self.stdin_file.read()
        return self._read

    @property
    def text(self) -> str:
        """All of stdin as text."""
        return self.stdin.decode("utf-8", "replace")

    def write(self, data: str | BytesLike) -> None:
        """Print to stdout at once."""
        _write(self._out, data)

    def write_error(self, data: str | BytesLike) -> None:
        """Print to stderr at once."""
        _write(self._err, data)

    def close(self) -> None:
        """Close its streams."""
        if not self.stdin_file.closed:
            self.stdin_file.close()
            for fd in (self._out, self._err):
                os.close(fd)


_calls: weakref.WeakSet[CommandCall] = weakref.WeakSet()


def _after_fork() -> None:
    """A child's copies would keep the pipes of the session's processes open."""
    for call in list(_calls):
        call.close()
    _calls.clear()


os.register_at_fork(after_in_child=_after_fork)

Command = Callable[[CommandCall], Any]
"""Gets the call; gives None, text or bytes to print, an exit code, or a CommandResult."""


def _write(fd: int, data: str | BytesLike) -> None:
    view = memoryview(as_bytes(data, "surrogateescape"))
    while view:
        view = view[os.write(fd, view) :]


def check_name(name: str) -> None:
    """Raise ValueError for what cannot be a command's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a command: a name has letters, digits, '_', '.', '+' and '-'")
    if _PYTHON.fullmatch(name):
        raise ValueError(f"{name} cannot be registered: in a session it is always the session's own Python")
    if name in _BASH:
        raise ValueError(f"{name} cannot be registered: bash has a {name} of its own, which it finds first")


class CommandServer:
    """The executables of one workspace object, and the socket where they ask. Made when a command is first used."""

    def __init__(self, store: str, session: str) -> None:
        self.commands: dict[str, Command] = {}
        self._where = (store, session)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._folder: str | None = None
        self._finish: weakref.finalize[Any, Any] | None = None

    def register(self, name: str, function: Command) -> None:
        """Offer a command from the next call on."""
        check_name(name)
        if not callable(function):
            raise TypeError(f"the command {name} is no function but a {type(function).__name__}")
        self.commands[name] = function
        if self._folder is not None and self._pid == os.getpid():
            self._install(name)

    def unregister(self, name: str) -> None:
        """Take a command away."""
        del self.commands[name]
        if self._folder is not None and self._pid == os.getpid():
            os.unlink(os.path.join(self._folder, "bin", name))

    def path(self) -> str | None:
        """Give the directory for PATH; None where there are no commands."""
        if not self.commands:
            return None
        if self._pid != os.getpid():
            self._reset()  # the parent has its own
        with self._lock:
            if self._folder is None:
                self._start()
        assert self._folder is not None
        return os.path.join(self._folder, "bin")

    def _start(self) -> None:
        import tempfile

        run = os.environ.get("XDG_RUNTIME_DIR", "")
        parent = run if run.startswith("/") and os.access(run, os.W_OK) and len(run) < 60 else "/tmp"
        _sweep(parent)
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(folder, "socket"))
        listener.listen(64)
        os.mkdir(os.path.join(folder, "bin"), 0o755)
        os.chmod(folder, 0o700)
        self._folder = folder
        accept = _Acceptor(listener, weakref.ref(self))
        thread = threading.Thread(target=accept.run, name="ntr-commands", daemon=True)
        self._finish = weakref.finalize(self, _clean, listener, thread, folder, os.getpid())
        for name in self.commands:
            self._install(name)
        thread.start()

    def _install(self, name: str) -> None:
        assert self._folder is not None
        path = os.path.join(self._folder, "bin", name)
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
        with os.fdopen(fd, "w") as f:
            f.write(script(os.path.join(self._folder, "socket")))
        os.rename(path + ".new", path)

    def serve(self, conn: socket.socket) -> None:
        """Carry out one use of a command, in a thread of its own."""
        code = 126
        try:
            call = _receive(conn, self._where[1])
            try:
                code = self._run(call)
            finally:
                call.close()
        except (OSError, ValueError):
            pass
        finally:
            try:
                conn.send(bytes([code]))
            except OSError:
                pass  # it has been killed meanwhile
            conn.close()

    def _run(self, call: CommandCall) -> int:
        function = self.commands.get(call.name)
        if function is None:
            call.write_error(f"{call.name}: this command is not offered any more\n")
            return 127
        back = CallBack(*self._where)
        back.enter()  # the thread's own context ends with it
        try:
            return _deliver(call, function(call))
        except BrokenPipeError:
            return 141
        except SystemExit as e:
            if e.code is None or isinstance(e.code, int):
                return _status(e.code or 0)
            return _failed(call, _str(e.code))  # as python does with a text
        except BaseException as e:  # a KeyboardInterrupt too: in this thread it can only be the function's own
            return _failed(call, f"{call.name}: {_line(e)}")
        finally:
            back.ended = True

    def close(self) -> None:
        """Take the executables away."""
        if self._finish is not None and self._pid == os.getpid():
            self._finish()
            if self._folder is not None:
                _sweep(os.path.dirname(self._folder))
        self._folder = None


def _failed(call: CommandCall, text: str) -> int:
    try:
        try:
            call.write_error(text + "\n")
        except UnicodeEncodeError:  # it is no bytes of the system's either
            call.write_error(text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass
    return 1


def _status(code: int) -> int:
    """The byte of it that a process can end with; what is no success never becomes one."""
    return code & 255 or (255 if code else 0)


def _str(thing: object) -> str:
    try:
        return str(thing)
    except Exception:
        return ""


def _line(e: BaseException) -> str:
    text = _str(e)
    return f"{type(e).__name__}: {text}" if text else type(e).__name__


def _deliver(call: CommandCall, result: Any) -> int:
    import inspect

    if inspect.iscoroutine(result):
        from ._aio import finish

        result = finish(result)
    if result is None:
        return 0
    if isinstance(result, (str, bytes, bytearray, memoryview)):
        call.write(result)
        return 0
    if isinstance(result, int):
        return _status(result)
    if isinstance(result, CommandResult):
        out, err = as_bytes(result.stdout, "surrogateescape"), as_bytes(result.stderr, "surrogateescape")
        code = _status(result.exit_code)  # all of it is looked at before anything is printed
        call.write(out)
        call.write_error(err)
        return code
    raise TypeError(f"it gave back a {type(result).__name__}, not text, bytes, an exit code or a CommandResult")


class _Acceptor:
    """Does not keep the server alive."""

    def __init__(self, listener: socket.socket, server: weakref.ref[CommandServer]) -> None:
        self.listener = listener
        self.server = server

    def run(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            server = self.server()
            if server is None or not _is_own(conn):
                conn.close()
                continue
            threading.Thread(target=server.serve, args=(conn,), name="ntr-command", daemon=True).start()
            del server


def _is_own(conn: socket.socket) -> bool:
    peer = struct.unpack("3i", conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(peer[1] == os.geteuid())


def _receive(conn: socket.socket, session: str) -> CommandCall:
    data, fds, _, _ = socket.recv_fds(conn, 65536, 3, socket.MSG_CMSG_CLOEXEC)
    try:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            part = conn.recv(1 << 20)
            if not part or len(data) > REQUEST_MAX:
                raise ValueError("an incomplete request")
            data += part
        if len(fds) != 3:
            raise ValueError("no streams")
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    name, cwd, *args = (os.fsdecode(x) for x in data[4:].split(b"\0"))
    return CommandCall(name, args, cwd, session, fds)


def _sweep(parent: str) -> None:
    """Take away what programs that were killed have left: nobody listens there any more."""
    import shutil

    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.path.join(entry.path, "socket"))
            except ConnectionRefusedError:
                shutil.rmtree(entry.path, ignore_errors=True)
            except OSError:
                pass  # just being made


def _clean(listener: socket.socket, thread: threading.Thread, folder: str, pid: int) -> None:
    import shutil

    if os.getpid() != pid:
        listener.close()
        return
    try:
        listener.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts
    except OSError:
        pass
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(1.0)  # before the number of its descriptor is somebody else's
    listener.close()
    shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Command", "CommandCall", "CommandResult", "CommandServer", "check_name"]
