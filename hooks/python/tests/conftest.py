"""Each test has a store, a daemon and a runtime directory of its own. NTR_BIN: the directory of the ntr to test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "hooks" / "python"))
os.environ.setdefault("NTR_BIN", str(TOP / "build" / "release" / "cli"))

import ntr  # noqa: E402


class Place:
    """A store, and its daemon from outside."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.store = base / "store"
        self.binary = Path(os.environ["NTR_BIN"])
        if self.binary.is_dir():
            self.binary = self.binary / "ntr"

    def ntr(self, *args: str) -> str:
        done = subprocess.run([self.binary, *args], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def daemon(self) -> int:
        from ntr._daemon import connect

        conn = connect(str(self.store))
        try:
            return conn.pid
        finally:
            conn.close()

    def kill_daemon(self) -> None:
        os.kill(self.daemon(), signal.SIGKILL)

    def processes(self, name: str) -> list[int]:
        """Those of this store whose command line has that in it."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                env = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if name in line and f"XDG_RUNTIME_DIR={self.base}/run".encode() in env.split(b"\0"):
                found.append(int(entry))
        return found


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="ntr-pt-", dir=os.environ.get("TMPDIR", "/tmp")))
    (base / "run").mkdir(mode=0o700)
    for name in ("NTR_SESSION", "NTR_CALL", "NTR_LIBEXEC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "run"))
    monkeypatch.setenv("NTR_STORE", str(base / "store"))
    here = Place(base)
    yield here
    subprocess.run([here.binary, "daemon", "stop"], check=True, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 5
    while any(str(base) in line for line in Path("/proc/self/mountinfo").read_text().splitlines()):
        assert time.monotonic() < until, "mounts are left behind"
        time.sleep(0.05)
    # overlayfs makes a directory that its owner may not read
    subprocess.run(["/bin/chmod", "-R", "u+rwX", str(base)], check=True)
    shutil.rmtree(base)


@pytest.fixture
def ws(place: Place) -> Iterator[ntr.Workspace]:
    with ntr.workspace("s") as made:
        yield made
    left = [n for n in os.listdir(place.base / "run") if n.startswith("ntr-cmd-")]
    assert not left
