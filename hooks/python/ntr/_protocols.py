"""The two seams: where a workspace's state lives, and where its code runs. ntr's own are the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ._client import Control
    from ._config import Echo, PythonConfig
    from ._results import (
        Commit,
        EditOutcome,
        FileStat,
        ImageResult,
        PythonResult,
        RollbackOutcome,
        SessionInfo,
        TerminalResult,
        WriteOutcome,
    )

OnOutput = Callable[[str, str], None]
"""Called with "stdout" or "stderr" and what has just been printed there."""


@dataclass(frozen=True)
class Capabilities:
    """What a provider can do; what it cannot raises NotSupportedError."""

    versioned: bool = False
    staging: bool = False
    cheap_fork: bool = False
    merge: bool = False
    sql_audit: bool = False
    fuse_mount: bool = False


@dataclass(frozen=True)
class Script:
    """A script for the terminal. commit False: what it changes stays uncommitted."""

    command: str
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    timeout: float | None = None
    commit: bool = True
    budget: int = 32_000
    on_output: OnOutput | None = None
    control: Control | None = None


@dataclass(frozen=True)
class PythonCode:
    """A call of Python's."""

    code: str
    config: PythonConfig
    inputs: Mapping[str, Any] | None = None
    argv: Sequence[str] = ()
    stdin: bytes | None = None
    echo: Echo | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    timeout: float | None = None
    readonly: bool = False
    commit: bool = True
    budget: int = 32_000
    on_output: OnOutput | None = None
    control: Control | None = None


@runtime_checkable
class Executor(Protocol):
    """Where code runs. A failure of the code is a result that is false, never an exception."""

    def terminal(self, script: Script) -> TerminalResult:
        """Run a bash script in the session, with its files, working directory and environment."""
        ...

    def run_python(self, code: PythonCode) -> PythonResult:
        """Run Python in the session."""
        ...

    def close(self) -> None:
        """Give back what it holds. The session stays."""
        ...


@runtime_checkable
class WorkspaceProvider(Protocol):
    """Where sessions live: their files, their cache, their history.

    Commits are named by ids of ``history``. Errors are of the kinds in ntr's exceptions.
    """

    @property
    def caps(self) -> Capabilities:
        """What it can do."""
        ...

    def open(self, session: str, *, root: str | None = None) -> None:
        """Make the session when it is not there; else check that its root is that one (None: any)."""
        ...

    def sessions(self) -> list[SessionInfo]:
        """All of them."""
        ...

    def delete(self, session: str) -> None:
        """Remove a session. SessionNotFoundError where there is none."""
        ...

    def root(self, session: str) -> str:
        """Give the absolute path of its root, as its code sees it."""
        ...

    def history(self, session: str, limit: int | None = None) -> list[Commit]:
        """Give its commits, the newest first."""
        ...

    def dirty(self, session: str) -> bool:
        """Whether there is work that no commit has."""
        ...

    def checkpoint(self, session: str, message: str | None = None) -> Commit | None:
        """Commit what is not committed; None: there was nothing."""
        ...

    def discard(self, session: str) -> None:
        """Drop what is not committed."""
        ...

    def restore(self, session: str, commit: str) -> RollbackOutcome:
        """Move the head to a commit."""
        ...

    def rollback(self, session: str, steps: int) -> RollbackOutcome:
        """Move the head back."""
        ...

    def fork(self, session: str, name: str, at: str | None = None) -> None:
        """Make a session of another name from this one, as it is or was."""
        ...

    def read(self, session: str, path: str, at: str | None = None) -> bytes:
        """Read a file. OSError of the usual kinds where it cannot be."""
        ...

    def write(self, session: str, path: str, data: bytes, *, mode: int | None = None, commit: bool = True) -> str | None:
        """Write a file, with the directories that lead to it; give the commit, or None."""
        ...

    def listdir(self, session: str, path: str, at: str | None = None) -> list[FileStat]:
        """List a directory; of a file: the file."""
        ...

    def write_text(self, session: str, path: str, content: str, *, commit: bool = True) -> WriteOutcome:
        """Do the tool file_write."""
        ...

    def edit_text(
        self, session: str, path: str, old: str, new: str, *, replace_all: bool = False, commit: bool = True
    ) -> EditOutcome:
        """Do the tool file_edit."""
        ...

    def view_image(self, session: str, path: str) -> ImageResult:
        """Do the tool view_image."""
        ...

    def cache_get(self, session: str, key: str, at: str | None = None) -> Any:
        """Give a value of the cache. KeyError where there is none."""
        ...

    def cache_set(self, session: str, key: str, value: Any, *, commit: bool = True) -> str | None:
        """Set a value of the cache; give the commit, or None."""
        ...

    def cache_delete(self, session: str, key: str, *, commit: bool = True) -> str | None:
        """Delete a value of the cache. KeyError where there is none."""
        ...

    def cache_keys(self, session: str, at: str | None = None) -> list[str]:
        """List the cache, sorted."""
        ...


ExecutorFactory = Callable[[WorkspaceProvider, str], Executor]


class Closable(Protocol):
    """Something to close."""

    def close(self) -> None:
        """Close it."""
        ...


Walk = Iterator[tuple[str, list[str], list[str]]]
