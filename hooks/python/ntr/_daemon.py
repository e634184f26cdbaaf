"""Finding the daemon of a store, and starting it where none runs."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from typing import Any

from ._errors import BinaryNotFoundError, ProtocolError, WorkspaceError, from_reply
from ._frames import PROTOCOL, Connection, ConnectionEnded

HELLO_LIMIT_S = 30.0
HELLO_SOON_S = 5.0
START_LIMIT_S = 40.0


def store_path(store: str | os.PathLike[str] | None) -> str:
    """Give the store's absolute path: as given, else $NTR_STORE, else the user's own."""
    if store is not None:
        path = os.fspath(store)
        if not path:
            raise WorkspaceError("open the store", "its path is empty", kind="usage")
        return os.path.abspath(os.path.expanduser(path))
    env = os.environ
    if env.get("NTR_STORE"):
        return os.path.abspath(env["NTR_STORE"])
    if env.get("XDG_DATA_HOME", "").startswith("/"):
        return os.path.join(env["XDG_DATA_HOME"], "ntr")
    return os.path.join(os.path.expanduser("~"), ".local", "share", "ntr")


def find_binary() -> str:
    """Find the program ntr: $NTR_BIN (it, or the directory that holds it), PATH, the usual places."""
    given = os.environ.get("NTR_BIN")
    if given:
        path = os.path.join(given, "ntr") if os.path.isdir(given) else given
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
        raise BinaryNotFoundError(
            "find the program ntr",
            f"NTR_BIN is {given}, where it is not",
            "set NTR_BIN to ntr or to the directory that holds it, or unset it to have PATH searched",
            kind="not-found",
        )
    import shutil

    found = shutil.which("ntr")
    for place in (found, os.path.expanduser("~/.local/bin/ntr"), "/usr/local/bin/ntr"):
        if place and os.access(place, os.X_OK):
            return place
    raise BinaryNotFoundError(
        "find the program ntr",
        "it is neither in PATH nor in ~/.local/bin nor in /usr/local/bin",
        "build and install it with `tools/setup.sh` of ntr's sources, or set NTR_BIN to the directory that holds it",
        kind="not-found",
    )


def _runtime_folder() -> str:
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        if run.startswith("/") and os.path.isdir(run) and os.stat(run).st_uid == os.geteuid():
            return os.path.join(run, "ntr")
    except OSError:
        pass
    return f"/tmp/ntr-{os.geteuid()}"


def _connect_in(folder: str, name: str) -> socket.socket:
    """Connect to a socket in a folder that only this user can enter. The path may be longer than an address."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        st = os.fstat(fd)
        if st.st_uid != os.geteuid() or stat.S_IMODE(st.st_mode) & 0o022:
            raise WorkspaceError(
                "connect to the daemon",
                f"{folder}, the folder for sockets, is not a folder of this user alone",
                "remove it, or set XDG_RUNTIME_DIR to a folder of your own",
            )
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{fd}/{name}")
            peer = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if peer[1] != os.geteuid():
                raise WorkspaceError("connect to the daemon", "it belongs to another user", "use a store of your own")
        except BaseException:
            sock.close()
            raise
        return sock
    finally:
        os.close(fd)


def _dial(store: str) -> socket.socket | None:
    """Connect, or None: no daemon runs."""
    try:
        st = os.stat(store)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise WorkspaceError(f"open the store {store}", e.strerror or str(e), "use a store of your own") from None
    if not stat.S_ISDIR(st.st_mode):
        raise WorkspaceError(f"open the store {store}", "it is no directory", "name another one")
    places = [(_runtime_folder(), f"{st.st_dev:x}-{st.st_ino:x}.sock")]
    try:
        link = os.readlink(os.path.join(store, "socket"))
        if link.startswith("/"):
            places.append((os.path.dirname(link), os.path.basename(link)))
    except OSError:
        pass
    for folder, name in places:
        try:
            return _connect_in(folder, name)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            continue
        except OSError as e:
            raise WorkspaceError(f"connect to the daemon of {store}", e.strerror or str(e)) from None
    return None


def _start(store: str) -> None:
    """Start the daemon by the client program, which knows where its parts are and waits for a rival's start."""
    import subprocess

    binary = find_binary()
    try:
        done = subprocess.run(
            [binary, "sessions", "--store", store],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WorkspaceError(
            "start the daemon", f"it did not answer within {START_LIMIT_S:g} s", f"see {store}/ntrd.log"
        ) from None
    except OSError as e:
        raise WorkspaceError(f"start {binary}", e.strerror or str(e)) from None
    if done.returncode == 0:
        return
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    why = said[0].removeprefix("ntr: ") if said else f"exit status {done.returncode}"
    raise WorkspaceError("start the daemon", why)


class _NoAnswer(Exception):
    """The daemon takes no notice."""


def _hello(conn: Connection, limit: float) -> None:
    from . import __version__

    conn.sock.settimeout(limit)
    conn.send({"op": "hello", "protocol": PROTOCOL, "version": __version__})
    try:
        reply = conn.receive()
    except TimeoutError:
        raise _NoAnswer from None
    conn.sock.settimeout(None)
    if "ok" not in reply:
        error: Any = reply.get("error")
        raise from_reply(error if isinstance(error, dict) else {"what": "connect to the daemon", "kind": "protocol"})
    conn.version = str(reply.get("version") or "?")
    conn.pid = int(reply.get("pid") or 0)
    if reply.get("warning"):
        import warnings

        warnings.warn(f"ntr: {reply['warning']}", RuntimeWarning, stacklevel=2)
    if reply.get("protocol") != PROTOCOL:
        raise ProtocolError(
            "connect to the daemon",
            f"the daemon (version {conn.version}) speaks protocol {reply.get('protocol')}, this package "
            f"(version {__version__}) speaks {PROTOCOL}",
            "install package and program of one version, then end the daemon with `ntr daemon stop`",
            kind="protocol",
        )


def connect(store: str) -> Connection:
    """A connection that has been greeted. A daemon that is about to end hangs up on that: then its successor is asked."""
    until = time.monotonic() + 10.0
    hangups, limit = 0, HELLO_SOON_S
    while True:
        sock = _dial(store)
        if sock is None:
            if time.monotonic() > until:
                raise WorkspaceError("start the daemon", f"it does not listen; see {store}/ntrd.log")
            _start(store)
            continue
        conn = Connection(sock)
        try:
            _hello(conn, limit)
            return conn
        except _NoAnswer:
            conn.close()
            if limit == HELLO_LIMIT_S:
                raise WorkspaceError(
                    "connect to the daemon",
                    f"it does not answer within {HELLO_LIMIT_S:g} s",
                    "`ntr doctor` and the store's ntrd.log may tell why",
                ) from None
            limit = HELLO_LIMIT_S
            _start(store)  # the program can help a killed daemon to its end, and says what is wrong with another
            until = time.monotonic() + 10.0
        except ConnectionEnded:
            conn.close()
            hangups += 1
            if hangups > 3:
                raise WorkspaceError("connect to the daemon", f"it hangs up; see {store}/ntrd.log") from None
        except BaseException:
            conn.close()
            raise
