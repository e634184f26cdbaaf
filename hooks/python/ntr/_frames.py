"""One connection to a daemon: frames of a length and a JSON object, with descriptors (docs/protocol.md)."""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ._errors import ProtocolError

BytesLike: TypeAlias = "bytes | bytearray | memoryview"
PROTOCOL = 1
FRAME_MAX = 64 << 20


class ConnectionEnded(Exception):
    """The other side hung up. read: whether it may have read all that was sent."""

    def __init__(self, read: bool = True) -> None:
        super().__init__("the connection ended")
        self.read = read


class FrameTooLarge(Exception):
    """A request that no daemon takes."""


# Every connection of this process: after fork() the child closes its copies, or the daemon would not see when the parent
# hangs up.
_all: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """Sending is for any thread; receiving for the one whose request is under way."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.version = "?"
        self.pid = 0
        self._send_lock = threading.Lock()
        self._buffer = bytearray()
        self._put_back: deque[dict[str, Any]] = deque()
        _all.add(self)

    def close(self) -> None:
        """Close it; a request that is under way ends."""
        self.shut()
        self.sock.close()

    def shut(self) -> None:
        """Hang up, from any thread: whoever waits for a frame wakes up and closes."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def is_fresh(self) -> bool:
        """Nothing has come that nobody asked for, the end of the connection included."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        try:
            return not self._buffer and not self._put_back and not poll.poll(0)
        except (OSError, ValueError):
            return False

    def send(self, msg: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a frame. Text in it has to be UTF-8 (UnicodeEncodeError)."""
        if fds:
            msg = {**msg, "fds": len(fds)}
        text = json.dumps(msg, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
        if len(text) > FRAME_MAX:
            raise FrameTooLarge
        data = struct.pack("<I", len(text)) + text
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self._send_lock:
            try:
                n = self.sock.sendmsg([data], ancillary)
                if n < len(data):
                    self.sock.sendall(memoryview(data)[n:])
            except (BrokenPipeError, ConnectionResetError, OSError) as e:
                if not isinstance(e, ConnectionError) and self.sock.fileno() >= 0:
                    raise
                raise ConnectionEnded(read=False) from None

    def _fill(self, n: int) -> None:
        while len(self._buffer) < n:
            try:
                part = self.sock.recv(max(65536, min(n - len(self._buffer), 1 << 20)))
            except TimeoutError:
                raise
            except ConnectionResetError:  # it closed without having read all of it
                raise ConnectionEnded(read=False) from None
            except OSError:
                part = b""
            if not part:
                raise ConnectionEnded
            self._buffer += part

    def receive(self) -> dict[str, Any]:
        """Wait for the next frame."""
        if self._put_back:
            return self._put_back.popleft()
        return self._read()

    def wait_beside(self, fd: int) -> bool:
        """Wait for fd (True), or for the reply to what is under way (False). What comes meanwhile is kept for receive."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self.sock, select.POLLIN)
        while True:
            if not self._has_frame():
                ready = dict(poll.poll())
                if fd in ready:
                    return True
                self._fill(len(self._buffer) + 1)
                continue
            frame = self._read()
            if "event" not in frame:
                # What the ended call had still asked for is nobody's any more.
                kept = [f for f in self._put_back if f["event"] != "object"]
                self._put_back = deque([*kept, frame])
                return False
            self._put_back.append(frame)

    def _has_frame(self) -> bool:
        if len(self._buffer) < 4:
            return False
        (n,) = struct.unpack_from("<I", self._buffer)
        return bool(n > FRAME_MAX or len(self._buffer) >= 4 + n)

    def _read(self) -> dict[str, Any]:
        self._fill(4)
        (n,) = struct.unpack_from("<I", self._buffer)
        if n > FRAME_MAX:
            raise ConnectionEnded
        self._fill(4 + n)
        text = bytes(memoryview(self._buffer)[4 : 4 + n])
        del self._buffer[: 4 + n]
        try:
            frame = json.loads(text)
        except ValueError:
            frame = None
        if not isinstance(frame, dict):
            raise ProtocolError("read from the daemon", "what it sent is no frame", kind="protocol")
        return frame


def _after_fork() -> None:
    for conn in list(_all):
        conn.sock.close()  # no shutdown: the parent goes on with its own
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)


def to_wire(data: str | bytes) -> Any:
    """Bytes of the protocol: text where it is UTF-8, else base64."""
    if not isinstance(data, (str, bytes)):
        raise TypeError(f"a str is needed, not a {type(data).__name__}")
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(raw).decode("ascii")}


def as_bytes(data: Any, errors: str = "strict") -> bytes:
    """Content that somebody gave; no number and no list, of which bytes() would make something."""
    if isinstance(data, str):
        return data.encode("utf-8", errors)
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"bytes (or bytearray, memoryview …) or a str is needed, not a {type(data).__name__}") from None


def from_wire(value: Any) -> bytes:
    """Bytes out of a reply."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        import base64

        return base64.b64decode(value["base64"])
    return b""


def path_from_wire(value: Any) -> str:
    """A path out of a reply, as the os module has it."""
    return from_wire(value).decode("utf-8", "surrogateescape")
