"""The warm interpreter of a session: forks one process per call. ntr-init starts it and is at the other end of ctl.

Datagrams of "<QiI": request number, kind, value. From ntr-init: FORK with four descriptors (stdin, stdout, stderr, the
channel). To ntr-init: READY; STARTED pid (by the child, once it has a process group of its own); ENDED wait status;
FAILED errno; RESTART: the interpreter's packages have changed, ask a new zygote.
"""

from __future__ import annotations

import array
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import warnings
from typing import Optional

from . import call, show, trace, values
from .channel import Channel

FORK, READY, STARTED, ENDED, FAILED, RESTART = 1, 2, 3, 4, 5, 6
_HEAD = struct.Struct("<QiI")


class Zygote:
    def __init__(self, ctl: socket.socket, notes: list[tuple[str, str]]) -> None:
        self.ctl = ctl
        self.notes = notes
        self.children: dict[int, int] = {}  # pid -> request
        self.sites = self._sites()
        self.wake_r, self.wake_w = socket.socketpair()
        self.wake_r.setblocking(False)
        self.wake_w.setblocking(False)

    @staticmethod
    def _sites() -> list[tuple[str, Optional[int]]]:
        """The folders that packages are installed into, with their times."""
        found: list[tuple[str, Optional[int]]] = []
        for path in sys.path:
            if path.rstrip("/").endswith(("site-packages", "dist-packages")):
                found.append((path, _mtime(path)))
        return found

    def tell(self, number: int, kind: int, value: int) -> None:
        self.ctl.send(_HEAD.pack(number, kind, value & 0xFFFFFFFF))

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.tell(0, READY, os.getpid())
        poll = select.poll()
        poll.register(self.ctl, select.POLLIN)
        poll.register(self.wake_r, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.wake_r.fileno():
                    self._reap()
                elif not self._request():
                    return

    def _reap(self) -> None:
        try:
            while self.wake_r.recv(4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = self.children.pop(pid, None)
            if number is not None:
                self.tell(number, ENDED, status)

    def _request(self) -> bool:
        data, ancillary, _, _ = self.ctl.recvmsg(_HEAD.size, socket.CMSG_SPACE(4 * 4))
        fds = _descriptors(ancillary)
        if len(data) != _HEAD.size:
            return False  # ntr-init has gone
        number, kind, _ = _HEAD.unpack(data)
        try:
            if kind == FORK and len(fds) == 4:
                if self.sites != [(p, _mtime(p)) for p, _ in self.sites]:
                    self.tell(number, RESTART, 0)
                    return True
                self._fork(number, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, number: int, fds: list[int]) -> None:
        try:
            with warnings.catch_warnings():  # 3.12 on warns where a preloaded module has threads
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as e:
            self.tell(number, FAILED, e.errno or 11)
            return
        if pid:
            self.children[pid] = number
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self.tell(number, STARTED, os.getpid())
            for i in range(3):
                os.dup2(fds[i], i)
            channel = Channel(socket.socket(fileno=fds[3]))
            for fd in fds[:3]:
                if fd > 2:
                    os.close(fd)
            self.ctl.close()
            self.wake_r.close()
            self.wake_w.close()
            call.main(channel, self.notes)
        finally:
            os._exit(125)


def _mtime(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _preload(names: list[str]) -> list[tuple[str, str]]:
    """Of what could not be: the module that was not found, else an empty name, and a note about it."""
    notes = []
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as e:  # noqa: BLE001 - whatever a module raises when it is imported
            missed = e.name or "" if isinstance(e, ModuleNotFoundError) else ""
            note = "[note: the module %s could not be preloaded: %s: %s]" % (name, type(e).__name__, e)
            notes.append((missed if missed == name.partition(".")[0] else "", note))
    return notes


def _warm() -> None:
    """Runs what every call runs once, so that no call pays for a first time."""
    show.render({"a": [1, "b"]}, 100)
    values.dumps(values.encode({"a": [1, (2.5, {3})], "b": b"x"}))
    try:
        exec(compile("1 / 0", "<ntr>/warm", "exec"), {})
    except ZeroDivisionError as e:
        trace.format_error(e)


def main(ctl_fd: int, preload: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    ctl = socket.socket(fileno=ctl_fd)
    _warm()
    notes = _preload(preload)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()
    Zygote(ctl, notes).serve()
