"""The two seams, met by somebody else: state in a dictionary, code in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

import ntr
from ntr import (
    Capabilities,
    Changes,
    Commit,
    EditOutcome,
    FileStat,
    ImageResult,
    PythonCode,
    PythonResult,
    RollbackOutcome,
    Script,
    SessionInfo,
    TerminalResult,
    WriteOutcome,
)


class MemoryProvider:
    """Sessions as dictionaries of files, a commit a copy."""

    caps = Capabilities(versioned=True, cheap_fork=True)

    def __init__(self) -> None:
        self.all: dict[str, list[tuple[str, dict[str, bytes], dict[str, object]]]] = {}
        self.n = 0

    def _commit(self, s: str, tool: str) -> str:
        self.n += 1
        files, cache = (dict(self.all[s][-1][1]), dict(self.all[s][-1][2])) if self.all[s] else ({}, {})
        self.all[s].append((f"{self.n:040x}", files, cache))
        return self.all[s][-1][0]

    def open(self, session: str, *, root: str | None = None) -> None:
        if session not in self.all:
            self.all[session] = []
            self._commit(session, "init")

    def sessions(self) -> list[SessionInfo]:
        return [SessionInfo(s) for s in self.all]

    def delete(self, session: str) -> None:
        del self.all[session]

    def root(self, session: str) -> str:
        return "/workspace"

    def history(self, session: str, limit: int | None = None) -> list[Commit]:
        return [Commit(c[0], changes=Changes()) for c in reversed(self.all[session])][: limit or None]

    def dirty(self, session: str) -> bool:
        return False

    def checkpoint(self, session: str, message: str | None = None) -> Commit | None:
        return None

    def discard(self, session: str) -> None:
        raise ntr.NotSupportedError("discard", "nothing is ever uncommitted")

    def restore(self, session: str, commit: str) -> RollbackOutcome:
        kept = [i for i, c in enumerate(self.all[session]) if c[0] == commit]
        if not kept:
            raise ntr.CheckpointNotFoundError(f"find {commit}")
        del self.all[session][kept[0] + 1 :]
        return RollbackOutcome(Commit(commit))

    def rollback(self, session: str, steps: int) -> RollbackOutcome:
        return self.restore(session, self.all[session][-1 - steps][0])

    def fork(self, session: str, name: str, at: str | None = None) -> None:
        self.all[name] = [(i, dict(f), dict(c)) for i, f, c in self.all[session]]

    def _at(self, session: str, at: str | None) -> tuple[str, dict[str, bytes], dict[str, object]]:
        return next(c for c in self.all[session] if c[0] == at) if at else self.all[session][-1]

    def read(self, session: str, path: str, at: str | None = None) -> bytes:
        try:
            return self._at(session, at)[1][path]
        except KeyError:
            raise FileNotFoundError(2, "none", path) from None

    def write(self, session: str, path: str, data: bytes, *, mode: int | None = None, commit: bool = True) -> str | None:
        made = self._commit(session, "put")
        self.all[session][-1][1][path] = data
        return made

    def listdir(self, session: str, path: str, at: str | None = None) -> list[FileStat]:
        return [FileStat(p, "file", 0o644, len(d), 0) for p, d in self._at(session, at)[1].items()]

    def write_text(self, session: str, path: str, content: str, *, commit: bool = True) -> WriteOutcome:
        c = self.write(session, path, content.encode())
        return WriteOutcome(f"wrote {path}", c, True, path, len(content))

    def edit_text(
        self, session: str, path: str, old: str, new: str, *, replace_all: bool = False, commit: bool = True
    ) -> EditOutcome:
        text = self.read(session, path).decode()
        if old not in text:
            return EditOutcome("edit failed: not there", ok=False, path=path)
        return EditOutcome("replaced", self.write(session, path, text.replace(old, new).encode()), True, path, 1, "exact")

    def view_image(self, session: str, path: str) -> ImageResult:
        return ImageResult("view_image failed: no eyes", ok=False)

    def cache_get(self, session: str, key: str, at: str | None = None) -> object:
        return self._at(session, at)[2][key]

    def cache_set(self, session: str, key: str, value: object, *, commit: bool = True) -> str | None:
        made = self._commit(session, "cache")
        self.all[session][-1][2][key] = value
        return made

    def cache_delete(self, session: str, key: str, *, commit: bool = True) -> str | None:
        made = self._commit(session, "cache")
        del self.all[session][-1][2][key]
        return made

    def cache_keys(self, session: str, at: str | None = None) -> list[str]:
        return sorted(self._at(session, at)[2])


class LocalExecutor:
    def __init__(self, provider: MemoryProvider, session: str) -> None:
        self.closed = False

    def terminal(self, script: Script) -> TerminalResult:
        return TerminalResult(f"ran {script.command}", stdout=script.command)

    def run_python(self, code: PythonCode) -> PythonResult:
        out = io.StringIO()
        with redirect_stdout(out):
            exec(code.code, dict(code.inputs or {}))
        return PythonResult(out.getvalue(), stdout=out.getvalue())

    def close(self) -> None:
        self.closed = True


def test_somebody_elses_provider_and_executor():
    provider = MemoryProvider()
    assert isinstance(provider, ntr.WorkspaceProvider)
    with ntr.workspace("m", provider=provider, executor_factory=LocalExecutor) as ws:
        assert isinstance(ws._executor, ntr.Executor)
        assert ws.terminal("x").text == "ran x" and ws.run_python("print(n)", inputs={"n": 3}).stdout == "3\n"
        first = ws.head
        assert ws.write_file("f", "one") and ws.edit_file("f", "one", "two") and not ws.edit_file("f", "zz", "")
        assert ws.get("f") == b"two" and ws.fs.read_text("f") == "two" and ws.fs.listdir() == ["f"]
        ws.cache["k"] = 1
        assert dict(ws.cache) == {"k": 1}
        with ws.fork("n") as fork:
            fork.put("g", b"x")
        ws.restore(first)
        assert "k" not in ws.cache and not ws.fs.exists("f")
        with pytest.raises(ntr.CheckpointNotFoundError):
            ws.restore("nope")
        command, mount = (lambda: ws.register_command("x", lambda c: None)), (lambda: ws.mount("/x").__enter__())
        for refused in (command, mount, ws.tools, ws.sql):
            with pytest.raises(ntr.NotSupportedError):
                refused()
    with pytest.raises(ntr.NotSupportedError):
        ntr.workspace("m", provider=MemoryProvider())
    with pytest.raises(ntr.NotSupportedError):
        ntr.workspace("m", provider=MemoryProvider(), executor_factory=LocalExecutor, mounts={"/a": "/tmp"})


def test_ntrs_own_meet_the_protocols(ws):
    assert isinstance(ws._provider, ntr.WorkspaceProvider) and isinstance(ws._executor, ntr.Executor)


def test_own_executor_over_ntrs_provider(place):
    with ntr.workspace("s", executor_factory=LocalExecutor) as ws:
        assert ws.terminal("x").text == "ran x"
        ws.put("f", b"1")
        assert ws.get("f") == b"1"


@pytest.fixture
def project(place, tmp_path):
    with ntr.workspace("prepared") as ws:
        ws.terminal("echo base > f")
    (tmp_path / "test_it.py").write_text(
        "def test_a(ntr_fork):\n    assert ntr_fork.get('f') == b'base\\n'\n"
        "    ntr_fork.terminal('echo a > f; sleep 100 &')\n"
        "def test_b(ntr_fork):\n    assert ntr_fork.get('f') == b'base\\n'\n"
        "def test_removed(ntr_fork):\n    import ntr\n    ntr.delete(ntr_fork.session)\n"
    )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "conftest.py").write_text(
        "import ntr, pytest\n@pytest.fixture(scope='session')\ndef ntr_base():\n"
        "    ws = ntr.workspace('mine')\n    ws.put('g', 'mine')\n    yield ws\n    ntr.delete('mine')\n"
    )
    (tmp_path / "own" / "test_own.py").write_text("def test_c(ntr_fork):\n    assert ntr_fork.get('g') == b'mine'\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "test_bare.py").write_text("def test_d(ntr_fork):\n    assert ntr_fork.fs.listdir() == []\n")
    return tmp_path


def test_the_fixture_ntr_fork(project):
    import os
    import subprocess
    import sys

    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ntr.__file__)), "PYTEST_ADDOPTS": ""}
    base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(project)]
    try:
        from importlib.metadata import entry_points

        loaded = any(e.name == "ntr" for e in entry_points(group="pytest11"))
    except ImportError:
        loaded = False
    if not loaded:
        base += ["-p", "ntr._pytest"]
    for args, ok in (
        (["--ntr-session", "prepared", "test_it.py"], True), (["own"], True), (["bare"], True),
        (["--ntr-session", "nosuch", "test_it.py"], False),
    ):  # fmt: skip
        done = subprocess.run([*base, *args], cwd=project, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
    assert {s.name for s in ntr.sessions()} == {"prepared"}
    assert ntr.workspace("prepared").get("f") == b"base\n"
