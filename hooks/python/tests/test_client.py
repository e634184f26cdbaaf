"""The way to the daemon: starting it, other versions, hang-ups, errors a person can act on."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ntr
from ntr._client import Client
from ntr._daemon import _runtime_folder
from ntr._frames import to_wire


class FakeDaemon:
    """Answers by a script of functions frame -> frames; None hangs up."""

    def __init__(self, store: Path, answer: Callable[[dict], list | None]) -> None:
        store.mkdir(parents=True, exist_ok=True)
        folder = Path(_runtime_folder())
        folder.mkdir(mode=0o700, exist_ok=True)
        st = store.stat()
        self.path = folder / f"{st.st_dev:x}-{st.st_ino:x}.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(8)
        self.answer = answer
        self.seen: list[dict] = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        with conn:
            while True:
                try:
                    head = conn.recv(4, socket.MSG_WAITALL)
                except ConnectionResetError:
                    return
                if len(head) < 4:
                    return
                (n,) = struct.unpack("<I", head)
                frame = json.loads(conn.recv(n, socket.MSG_WAITALL))
                self.seen.append(frame)
                said = self.answer(frame)
                if said is None:
                    return
                for m in said:
                    data = m if isinstance(m, bytes) else json.dumps(m).encode()
                    try:
                        conn.sendall(struct.pack("<I", len(data)) + data)
                    except BrokenPipeError:
                        return  # the client only says that the call is to end

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        self.path.unlink()


HELLO = {"ok": True, "protocol": 1, "version": "0.1.0", "pid": 1, "store": "/x"}


@pytest.fixture
def fake(place):
    made: list[FakeDaemon] = []

    def make(answer):
        made.append(FakeDaemon(place.store, answer))
        return Client(str(place.store)), made[0]

    yield make
    for f in made:
        f.close()


def test_a_daemon_of_another_protocol_is_named(fake):
    client, _ = fake(lambda m: [{**HELLO, "protocol": 2, "version": "9.9"}])
    with pytest.raises(ntr.ProtocolError, match=r"version 9\.9.*protocol 2.*speaks 1.*ntr daemon stop"):
        client.request({"op": "sessions"})


def test_a_daemon_that_refuses_says_why(fake):
    error = {"what": "connection", "why": "it speaks 3", "todo": "update", "errno": 71, "kind": "protocol"}
    client, _ = fake(lambda m: [{"error": error}])
    with pytest.raises(ntr.ProtocolError, match="connection: it speaks 3; update"):
        client.request({"op": "sessions"})


def test_an_op_that_an_older_daemon_does_not_know(fake):
    error = {"what": "request 'x'", "why": "this daemon (version 0.0.1) does not know it", "todo": "stop it", "errno": 22,
             "kind": "usage"}  # fmt: skip
    client, _ = fake(lambda m: [HELLO] if m["op"] == "hello" else [{"error": error}])
    with pytest.raises(ntr.NotSupportedError, match=r"0\.0\.1"):
        client.request({"op": "x"})


def test_mounts_that_an_older_daemon_ignores(fake, place, tmp_path):
    def answer(m):
        if m["op"] == "hello":
            return [HELLO]
        if m["op"] == "log":
            return [{"error": {"what": "x", "why": "", "todo": "", "errno": 2, "kind": "not-found"}}]
        return [{"ok": True, "name": "s"}]

    _, daemon = fake(answer)
    with pytest.raises(ntr.NotSupportedError, match="does not know of them"):
        ntr.workspace("s", mounts={"/data": tmp_path})
    assert daemon.seen[-1]["op"] == "rm"


@pytest.mark.parametrize(
    ("op", "repeated"), [("sessions", True), ("cache-get", True), ("commit", False), ("put", False), ("cache-set", False)]
)
def test_what_may_have_run_is_never_repeated(fake, op, repeated):
    client, daemon = fake(lambda m: [HELLO] if m["op"] == "hello" else None)
    with pytest.raises(ntr.DaemonLostError):
        client.request({"op": op})
    asked = [m for m in daemon.seen if m["op"] == op]
    assert len(asked) == (4 if repeated else 1)


@pytest.mark.parametrize("started", [False, True])
def test_a_call_is_repeated_only_when_it_surely_has_not_begun(fake, started):
    def answer(m):
        if m["op"] == "hello":
            return [HELLO]
        if sum(x["op"] == "run" for x in daemon.seen) == 1:
            return None if not started else [{"event": "started"}, b"["]
        return [{"event": "started"}, {"ok": True, "exit_code": 0}]

    client, daemon = fake(answer)
    if started:
        with pytest.raises(ntr.ProtocolError):
            client.request({"op": "run"})
        assert sum(x["op"] == "run" for x in daemon.seen) == 1
    else:
        assert client.request({"op": "run"})["exit_code"] == 0
        assert sum(x["op"] == "run" for x in daemon.seen) == 2


def test_a_connection_that_died_while_idle(place):
    client = Client(str(place.store))
    assert client.rows({"op": "sessions"}) == []
    place.kill_daemon()
    time.sleep(0.2)
    assert client.request({"op": "new", "name": "a"})["name"] == "a"


def test_two_that_start_the_daemon_at_once(place):
    code = "import ntr; print(ntr.workspace('s').terminal('echo $NTR_SESSION').text)"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ntr.__file__))}
    procs = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [p.communicate()[0].strip() for p in procs] == ["s"] * 4


def test_the_binary_is_not_found(place, monkeypatch, tmp_path):
    monkeypatch.setenv("NTR_BIN", str(tmp_path))
    with pytest.raises(ntr.BinaryNotFoundError, match="NTR_BIN"):
        ntr.workspace("s")
    monkeypatch.delenv("NTR_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    if not os.path.exists("/usr/local/bin/ntr"):
        with pytest.raises(ntr.BinaryNotFoundError, match=r"PATH.*tools/setup\.sh"):
            ntr.workspace("s")


def test_a_store_that_is_none(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ntr.WorkspaceError, match="no directory"):
        ntr.workspace("s", store=tmp_path / "file")
    with pytest.raises(ntr.WorkspaceError, match="empty"):
        ntr.workspace("s", store="")


def test_a_folder_for_sockets_that_others_can_write_to(place, monkeypatch, tmp_path):
    ntr.workspace("s")
    (tmp_path / "ntr").mkdir()
    (tmp_path / "ntr").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ntr.WorkspaceError, match="this user alone"):
        Client(str(place.store)).rows({"op": "sessions"})
    (tmp_path / "ntr").chmod(0o700)
    assert Client(str(place.store)).rows({"op": "sessions"})  # through the store's own link


def test_oversized_requests(ws):
    with pytest.raises(ntr.WorkspaceError, match="64 MiB"):
        ws.run_python("1", inputs={"x": "y" * (65 << 20)})
    assert ws.terminal("echo on").stdout == "on\n"


def test_bad_inputs(ws):
    with pytest.raises(TypeError):
        ws.run_python("1", inputs={"x": lambda: 1})
    for name in ("1x", "", "a b"):
        with pytest.raises(ntr.WorkspaceError, match="no Python name"):
            ws.run_python("1", inputs={name: 1})
    assert ws.terminal("true", env={"A": "1"})
    with pytest.raises(ntr.WorkspaceError):
        ws.terminal("true", env={"": "1"})
    with pytest.raises(ntr.WorkspaceError):
        ws.terminal("true", timeout=-1)


def test_errors_survive_pickling():
    import pickle

    e = ntr.CheckpointNotFoundError("find x", "why", "todo", kind="not-found", errno=2)
    again = pickle.loads(pickle.dumps(e))
    assert (type(again), str(again), again.errno) == (type(e), "find x: why; todo", 2)
    assert isinstance(e, LookupError) and isinstance(ntr.SessionIdError("x"), ValueError)


def test_bytes_of_the_protocol():
    assert to_wire("a") == "a" and to_wire("a\udcff") == {"base64": "Yf8="} and to_wire(b"\xff") == {"base64": "/w=="}


def test_inside_a_call_of_the_session(ws):
    """The package in a session's own shell: what would wait for that very call is refused."""
    top = os.path.dirname(os.path.dirname(ntr.__file__))
    code = (
        f"import sys; sys.path.insert(0, {top!r}); import ntr\nws = ntr.workspace('s')\nws.cache['in'] = 1\n"
        "try:\n    ws.terminal('true')\nexcept ntr.NestedCallError as e:\n    print('refused')\n"
        "print(ntr.workspace('t').terminal('echo other').text)"
    )
    r = ws.terminal(f"{sys.executable} - <<'EOF'\n{code}\nEOF", env={"NTR_BIN": os.environ["NTR_BIN"]}, timeout=20)
    assert r.stdout == "refused\nother\n", r
    assert ws.cache["in"] == 1 and ws.history()[1].tool == "init"


def test_import_is_quick():
    """Nothing heavy comes along; how long it takes is measured elsewhere, in quiet."""
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ntr.__file__))}
    code = "import sys; before = set(sys.modules); import ntr; print(len(set(sys.modules) - before)); ntr.workspace"
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10
    code = "import ntr, sys; ntr.workspace; assert not {'asyncio', 'subprocess', 'pickle'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    assert set(ntr.__all__) <= set(dir(ntr))
    for name in ntr.__all__:
        assert getattr(ntr, name) is not None
    with pytest.raises(AttributeError):
        ntr.nonsense  # noqa: B018


def script(code: str, *options: str) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ntr.__file__))}
    argv = [sys.executable, *options, "-c", code]
    # A shell's background jobs have SIGINT ignored, and hand that down.
    return subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_an_interrupt_ends_the_call(ws):
    child = script(
        "import ntr\nws = ntr.workspace('s')\ntry:\n    ws.terminal('touch began; sleep 60; touch end')\n"
        "except KeyboardInterrupt:\n    print(ws.terminal('ls').text)"
    )
    until = time.monotonic() + 20
    while not ws.fs.exists("began"):
        assert time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=20)[0] == "began\n"


def test_nothing_is_left_open(place):
    child = script(
        "import asyncio, gc, ntr\n"
        "with ntr.workspace('s', commands={'x': lambda c: c.text}) as ws:\n    ws.terminal('echo | x')\n"
        "    ws.cache['k'] = 1\n    ws.put('f', b'')\n    ws.get('f')\n    asyncio.run(ws.aterminal('true'))\n"
        "    ws.fork().close()\n"
        "del ws\ngc.collect()\nprint('on')",
        "-X", "dev", "-W", "error",
    )  # fmt: skip
    assert child.communicate(timeout=60) == ("on\n", "")


def test_a_client_that_dies_in_the_middle(ws):
    child = script("import ntr\nntr.workspace('s').terminal('touch began; sleep 60; touch end')")
    until = time.monotonic() + 20
    while not ws.fs.exists("began"):
        assert time.monotonic() < until
        time.sleep(0.02)
    child.kill()
    child.communicate()
    began = time.monotonic()
    assert ws.terminal("ls").stdout == "began\n"
    assert time.monotonic() - began < 10


def test_what_pip_is_told():
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in text and "dependencies = []" in text and f'version = "{ntr.__version__}"' in text


def test_a_daemon_that_ends_without_reading_the_request(place):
    """Its idle time is over just when a request comes: nothing has been done, so that it may be asked again."""

    class Leaving(FakeDaemon):
        def _serve(self, conn: socket.socket) -> None:
            if len(self.seen) < 1:
                (n,) = struct.unpack("<I", conn.recv(4, socket.MSG_WAITALL))
                self.seen.append(json.loads(conn.recv(n, socket.MSG_WAITALL)))
                data = json.dumps(HELLO).encode()
                conn.sendall(struct.pack("<I", len(data)) + data)
                conn.recv(1, socket.MSG_PEEK)
                conn.close()
            else:
                super()._serve(conn)

    daemon = Leaving(place.store, lambda m: [HELLO] if m["op"] == "hello" else [{"ok": True, "commit": "x"}])
    try:
        assert Client(str(place.store)).request({"op": "commit", "session": "s"})["commit"] == "x"
        assert [m["op"] for m in daemon.seen] == ["hello", "hello", "commit"]
    finally:
        daemon.close()
