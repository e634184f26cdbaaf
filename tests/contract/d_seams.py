"""A provider and an executor of somebody else's: state in a dictionary, code in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import ntr

Entry = tuple[str, dict[str, bytes], dict[str, Any]]


class MemoryProvider:
    """Sessions as dictionaries of files; a commit is a copy."""

    caps = ntr.Capabilities(versioned=True, cheap_fork=True)

    def __init__(self) -> None:
        self.all: dict[str, list[Entry]] = {}
        self.made = 0

    def _commit(self, session: str) -> Entry:
        self.made += 1
        files, cache = (dict(x) for x in self.all[session][-1][1:]) if self.all[session] else ({}, {})
        self.all[session].append((f"{self.made:040x}", files, cache))
        return self.all[session][-1]

    def _at(self, session: str, at: str | None) -> Entry:
        return next(c for c in self.all[session] if at in (None, c[0])) if at else self.all[session][-1]

    def open(self, session: str, *, root: str | None = None) -> None:
        if session not in self.all:
            self.all[session] = []
            self._commit(session)

    def sessions(self) -> list[Any]:
        return [ntr.SessionInfo(s) for s in self.all]

    def delete(self, session: str) -> None:
        del self.all[session]

    def root(self, session: str) -> str:
        return "/workspace"

    def history(self, session: str, limit: int | None = None) -> list[Any]:
        return [ntr.Commit(c[0]) for c in reversed(self.all[session])][: limit or None]

    def dirty(self, session: str) -> bool:
        return False

    def checkpoint(self, session: str, message: str | None = None) -> None:
        return None

    def discard(self, session: str) -> None:
        raise ntr.NotSupportedError("discard", "nothing is ever uncommitted")

    def restore(self, session: str, commit: str) -> Any:
        kept = [i for i, c in enumerate(self.all[session]) if c[0] == commit]
        if not kept:
            raise ntr.CheckpointNotFoundError(f"find {commit}")
        del self.all[session][kept[0] + 1 :]
        return ntr.RollbackOutcome(ntr.Commit(commit))

    def rollback(self, session: str, steps: int) -> Any:
        return self.restore(session, self.all[session][-1 - steps][0])

    def fork(self, session: str, name: str, at: str | None = None) -> None:
        self.all[name] = [(i, dict(f), dict(c)) for i, f, c in self.all[session]]

    def read(self, session: str, path: str, at: str | None = None) -> bytes:
        try:
            return self._at(session, at)[1][path]
        except KeyError:
            raise FileNotFoundError(2, "none", path) from None

    def write(self, session: str, path: str, data: bytes, *, mode: int | None = None, commit: bool = True) -> str:
        made = self._commit(session)
        made[1][path] = data
        return made[0]

    def listdir(self, session: str, path: str, at: str | None = None) -> list[Any]:
        return [ntr.FileStat(p, "file", 0o644, len(d), 0) for p, d in self._at(session, at)[1].items()]

    def write_text(self, session: str, path: str, content: str, *, commit: bool = True) -> Any:
        return ntr.WriteOutcome(f"wrote {path}", self.write(session, path, content.encode()), True, path, len(content))

    def edit_text(self, session: str, path: str, old: str, new: str, *, replace_all: bool = False, commit: bool = True) -> Any:
        text = self.read(session, path).decode()
        if old not in text:
            return ntr.EditOutcome("edit failed: not there", ok=False, path=path)
        return ntr.EditOutcome("replaced", self.write(session, path, text.replace(old, new).encode()), True, path, 1, "exact")

    def view_image(self, session: str, path: str) -> Any:
        return ntr.ImageResult("view_image failed: no eyes", ok=False)

    def cache_get(self, session: str, key: str, at: str | None = None) -> Any:
        return self._at(session, at)[2][key]

    def cache_set(self, session: str, key: str, value: Any, *, commit: bool = True) -> str:
        made = self._commit(session)
        made[2][key] = value
        return made[0]

    def cache_delete(self, session: str, key: str, *, commit: bool = True) -> str:
        made = self._commit(session)
        del made[2][key]
        return made[0]

    def cache_keys(self, session: str, at: str | None = None) -> list[str]:
        return sorted(self._at(session, at)[2])


class LocalExecutor:
    """Runs nothing, and Python in this very process."""

    def __init__(self, provider: Any, session: str) -> None:
        self.closed = False

    def terminal(self, script: Any) -> Any:
        return ntr.TerminalResult(f"ran {script.command}", stdout=script.command)

    def run_python(self, code: Any) -> Any:
        out = io.StringIO()
        with redirect_stdout(out):
            exec(code.code, dict(code.inputs or {}))
        return ntr.PythonResult(out.getvalue(), stdout=out.getvalue())

    def close(self) -> None:
        self.closed = True
