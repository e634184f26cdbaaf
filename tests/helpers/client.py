#!/usr/bin/env python3
"""A small client of docs/protocol.md, for tests: as a module, and as a program.

    client.py STORE request '{"op":"sessions"}'          prints every frame of the answer, one a line
    client.py STORE run SESSION -- ARGV…                 runs with this program's stdin, stdout, stderr
    client.py STORE raw HEX [--close]                    sends bytes as they are, prints what comes back
    client.py STORE path                                 prints the socket's path

The daemon must run already (start() starts one). Exit status: 0; 1 after an error reply; of run: the call's.
"""

import array
import json
import os
import socket
import struct
import subprocess
import sys

PROTOCOL = 1
FRAME_MAX = 64 << 20


class ProtocolError(Exception):
    """The connection ended, or a frame is none."""


class ReplyError(Exception):
    """An error reply; .error is its object."""

    def __init__(self, error):
        super().__init__("%(what)s: %(why)s" % error)
        self.error = error


def socket_path(store):
    st = os.stat(store)
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    ours = run.startswith("/") and os.path.isdir(run) and os.stat(run).st_uid == os.geteuid()
    folder = os.path.join(run, "ntr") if ours else "/tmp/ntr-%d" % os.geteuid()
    return "%s/%x-%x.sock" % (folder, st.st_dev, st.st_ino)


def start(ntrd, store, *options):
    """Starts a daemon and waits until it serves. Returns the object it said on its ready descriptor."""
    r, w = os.pipe()
    proc = subprocess.Popen(
        [ntrd, "--store", store, "--ready-fd", str(w), *options], pass_fds=[w], stdin=subprocess.DEVNULL
    )
    os.close(w)
    with os.fdopen(r) as f:
        line = f.readline()
    if "--foreground" not in options:
        proc.wait()
    return json.loads(line) if line else None


class Client:
    """One connection. Strings that are no UTF-8 are to be given as {"base64": …} by the caller."""

    def __init__(self, store, hello=True):
        self.fds = []
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = socket_path(store)
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        try:  # the path may be longer than a socket address
            self.sock.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
        finally:
            os.close(folder)
        self.hello = self.request({"op": "hello", "protocol": PROTOCOL, "version": "test"}) if hello else None

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def send_raw(self, data, fds=()):
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([data], anc)
        if sent < len(data):  # sending nothing fails too when the daemon has hung up already
            self.sock.sendall(data[sent:])

    def send(self, msg, fds=()):
        msg = dict(msg)
        if fds:
            msg["fds"] = len(fds)
        text = json.dumps(msg).encode()
        self.send_raw(struct.pack("<I", len(text)) + text, fds)

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            part, anc, _, _ = self.sock.recvmsg(min(n - len(data), 1 << 20), socket.CMSG_SPACE(16 * 4))
            for level, kind, raw in anc:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    got = array.array("i")
                    got.frombytes(raw[: len(raw) - len(raw) % got.itemsize])
                    self.fds.extend(got)
            if not part:
                raise ProtocolError("end of the connection" + (" inside a frame" if data else ""))
            data += part
        return data

    def recv(self):
        (n,) = struct.unpack("<I", self._exactly(4))
        if n > FRAME_MAX:
            raise ProtocolError("frame of %d bytes" % n)
        return json.loads(self._exactly(n))

    def frames(self):
        """Every frame up to and including the final reply."""
        while True:
            m = self.recv()
            yield m
            if "event" not in m:
                return

    def request(self, msg, fds=(), events=None):
        """The final reply; events (a list) gets those before it. Raises ReplyError."""
        self.send(msg, fds)
        for m in self.frames():
            if "event" not in m:
                break
            if events is not None:
                events.append(m)
        if "ok" not in m and "error" in m:
            raise ReplyError(m["error"])
        return m

    def rows(self, msg):
        events = []
        self.request(msg, events=events)
        return [e for e in events if e["event"] == "row"]

    def run(self, session, argv=None, script=None, stdio=None, **more):
        """A call. stdio: three descriptors; without them its output is captured."""
        msg = {"op": "run", "session": session, "env": ["%s=%s" % kv for kv in os.environ.items()]}
        msg.update({"script": script} if argv is None else {"argv": list(argv)})
        msg.update(more)
        if stdio is not None:
            return self.request(msg, stdio)
        with open(os.devnull, "rb") as null:
            return self.request(dict(msg, capture=True), [null.fileno()])


def main(args):
    if len(args) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    store, verb, rest = args[0], args[1], args[2:]
    if verb == "path":
        print(socket_path(store))
        return 0
    if verb == "raw":
        with Client(store, hello=False) as c:
            c.sock.settimeout(5)
            c.send_raw(bytes.fromhex(rest[0]))
            if "--close" in rest:
                c.sock.shutdown(socket.SHUT_WR)
            try:
                while True:
                    print(json.dumps(c.recv()))
            except ProtocolError:
                return 0
    with Client(store) as c:
        if verb == "request":
            c.send(json.loads(rest[0]))
            for m in c.frames():
                print(json.dumps(m))
            return 0 if "ok" in m else 1
        if verb == "run":
            argv = rest[2:] if rest[1:2] == ["--"] else rest[1:]
            return c.run(rest[0], argv, stdio=[0, 1, 2])["exit_code"]
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ReplyError as e:
        print("client.py: %s" % e, file=sys.stderr)
        sys.exit(1)
