#!/usr/bin/python3
"""A stand-in for ntrd that has no store: for tests of what the client says and how it takes bad answers.

Put it as `ntrd` into a directory and point NTR_LIBEXEC there. `run` really runs the command with the descriptors that came
along; every other request is answered with {"ok":true,"request":…}, so that a test sees what was sent. NTR_FAKE chooses a
fault:
    silent    ends at the start with a line on stderr      busy      says at the start that the store is locked
    protocol  greets with another protocol                 die       ends when a run or a status is asked for
    refuse    answers run with an error                    timeout   says of every run that its time was up
"""
import array
import base64
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

FAULT = os.environ.get("NTR_FAKE", "")


def text(value):
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


class Peer:
    def __init__(self, sock):
        self.sock = sock

    def exact(self, n):
        data, fds = b"", []
        while len(data) < n:
            part, anc, _, _ = self.sock.recvmsg(n - len(data), socket.CMSG_SPACE(16 * 4))
            if not part:
                raise EOFError
            for level, kind, raw in anc:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    a = array.array("i")
                    a.frombytes(raw[: len(raw) - len(raw) % a.itemsize])
                    fds += list(a)
            data += part
        return data, fds

    def recv(self):
        head, fds = self.exact(4)
        body, more = self.exact(struct.unpack("<I", head)[0])
        return json.loads(body), fds + more

    def send(self, msg):
        raw = json.dumps(msg).encode()
        self.sock.sendall(struct.pack("<I", len(raw)) + raw)


def run(peer, req, fds):
    if FAULT == "refuse":
        peer.send({"error": {"what": "run", "why": "refused", "todo": "ask again", "errno": 1, "kind": "failed"}})
        return
    argv = [text(a) for a in req["argv"]] if "argv" in req else ["bash", "-c", text(req["script"])]
    env = dict(text(e).split(b"=", 1) for e in req["env"] + req.get("set_env", []))
    out = [subprocess.PIPE] * 2 if req.get("capture") else fds[1:3]
    peer.send({"event": "started"})
    child = subprocess.Popen(argv, stdin=fds[0], stdout=out[0], stderr=out[1], env=env, start_new_session=True)

    def forward():
        try:
            while True:
                msg, _ = peer.recv()
                if msg["op"] == "signal":
                    os.killpg(child.pid, msg["sig"])
        except (EOFError, OSError, ProcessLookupError):
            pass

    threading.Thread(target=forward, daemon=True).start()
    stdout, stderr = child.communicate()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    reply = {"ok": True, "exit_code": code, "signal": max(-child.returncode, 0), "timed_out": FAULT == "timeout",
             "truncated": False, "duration": 0.01, "commit": None, "changes": {"created": 0, "modified": 0, "deleted": 0},
             "background": 0, "session": req["session"]}
    if req.get("capture"):
        reply.update(stdout=stdout.decode(), stderr=stderr.decode())
    peer.send(reply)


def serve(peer):
    try:
        while True:
            msg, fds = peer.recv()
            if msg["op"] == "hello":
                peer.send({"ok": True, "protocol": 99 if FAULT == "protocol" else 1, "version": "9.9", "pid": os.getpid(),
                           "store": os.environ.get("FAKE_STORE", "")})
            elif FAULT == "die" and msg["op"] in ("run", "status"):
                os._exit(1)
            elif msg["op"] == "run":
                run(peer, msg, fds)
                for fd in fds:
                    os.close(fd)
                return  # its thread may still read the connection
            elif msg["op"] == "daemon-stop":
                peer.send({"ok": True})
                os._exit(0)
            else:
                for fd in fds:
                    os.close(fd)
                peer.send({"ok": True, "request": msg})
    except (EOFError, OSError):
        pass


def main():
    args = sys.argv[1:]
    store, ready = args[args.index("--store") + 1], int(args[args.index("--ready-fd") + 1])
    if FAULT == "silent":
        sys.exit("fake ntrd: no such library")
    os.makedirs(store, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(store, "fake-lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        busy = FAULT == "busy"
    except OSError:
        busy = True
    if busy:
        os.write(ready, json.dumps({"error": {"what": "open store", "why": "it is locked", "todo": "wait", "errno": 16,
                                              "kind": "busy"}}).encode() + b"\n")
        sys.exit(1)
    st = os.stat(store)
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "ntr")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, f"{st.st_dev:x}-{st.st_ino:x}.sock")
    if os.path.exists(path):
        os.unlink(path)
    os.environ["FAKE_STORE"] = store
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.write(ready, b'{"ok":true}\n')
    os.close(ready)
    while True:
        peer = Peer(listener.accept()[0])
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


main()
