"""The channel to the daemon: frames of a little-endian u32 length and one JSON object; one reply to each request."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from typing import Any, Optional

from .values import dumps

FRAME_MAX = 64 << 20


class ChannelError(OSError):
    """The daemon's end is gone."""


class FrameTooLarge(ValueError):
    """More than a frame may hold."""


class Channel:
    """Threads of the call may ask at the same time: each waits for its own reply."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.owner = os.getpid()
        self.number = 0
        self.returned = 0  # calls of host objects that have
        self.lock = threading.Lock()
        self.cond = threading.Condition(self.lock)
        self.send_lock = threading.Lock()
        self.reading = False
        self.pending = bytearray()  # received, not yet a whole frame: an interrupted read goes on where it was
        self.replies: dict[int, Optional[dict[str, Any]]] = {}

    def send(self, message: dict[str, Any]) -> None:
        data = dumps(message).encode("utf-8")
        if len(data) > FRAME_MAX:
            raise FrameTooLarge("%d bytes, at most %d go over the channel" % (len(data), FRAME_MAX))
        with self.send_lock:
            try:
                self.sock.sendall(struct.pack("<I", len(data)) + data)
            except OSError as e:
                raise ChannelError("the call's connection to ntr is gone (%s)" % e) from None
            except BaseException:  # interrupted: half a frame may be out, and nothing makes sense behind it
                self.sock.close()
                raise

    def recv(self) -> dict[str, Any]:
        self._fill(4)
        (size,) = struct.unpack_from("<I", self.pending)
        if size > FRAME_MAX:
            raise ChannelError("a frame of %d bytes" % size)
        self._fill(4 + size)
        message = json.loads(self.pending[4 : 4 + size])
        del self.pending[: 4 + size]
        if type(message) is not dict:
            raise ChannelError("a frame that is no object")
        return message

    def _fill(self, size: int) -> None:
        while len(self.pending) < size:
            try:
                part = self.sock.recv(max(65536, min(size - len(self.pending), 1 << 20)))
            except OSError as e:
                raise ChannelError("the call's connection to ntr is gone (%s)" % e) from None
            if not part:
                raise ChannelError("the call's connection to ntr has ended")
            self.pending += part

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and returns its reply."""
        if os.getpid() != self.owner:
            raise ChannelError("only the call's own process can use the cache and host objects, not one that it forked")
        with self.lock:
            self.number += 1
            number = self.number
            self.replies[number] = None
        try:
            self.send(dict(message, n=number))
            return self._await(number)
        finally:
            with self.lock:
                self.replies.pop(number, None)

    def _await(self, number: int) -> dict[str, Any]:
        """Whoever finds nobody reading reads for all."""
        with self.cond:
            while self.replies[number] is None:
                if self.reading:
                    self.cond.wait()
                else:
                    self._read_one()
            reply = self.replies[number]
            assert reply is not None
            return reply

    def _read_one(self) -> None:
        self.reading = True
        self.lock.release()
        try:
            message = self.recv()
        finally:
            self.lock.acquire()
            self.reading = False
            self.cond.notify_all()
        number = message.get("n")
        if number in self.replies:
            self.replies[number] = message
