"""The files of a workspace, from outside: as they are now, or as a commit has them."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator

from ._errors import WorkspaceError
from ._frames import BytesLike, as_bytes
from ._provider import NtrProvider
from ._results import Commit, FileStat
from ._seam import Seam


def check_file(path: str) -> None:
    """Raise IsADirectoryError for what can only be a directory's name."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"a path is a str, not a {type(path).__name__}")
    if posixpath.basename(os.fsdecode(path)) in ("", ".", ".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


class Files:
    """``ws.fs``: paths are relative to the root, or absolute below it. Reading never waits for a running call."""

    def __init__(self, seam: Seam, at: str | None = None) -> None:
        self._seam = seam
        self._at = at

    def at(self, commit: str | Commit) -> Files:
        """Give the files as a commit has them."""
        return Files(self._seam, str(commit))

    def listdir(self, path: str = "") -> list[str]:
        """List a directory's names, sorted."""
        return sorted(e.name for e in self.scandir(path))

    def scandir(self, path: str = "") -> list[FileStat]:
        """List a directory."""
        if path and self._stat(path).type != "dir":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._list(path)

    def _list(self, path: str) -> list[FileStat]:
        with self._seam.turn():
            return self._seam.provider.listdir(self._seam.session, path, self._at)

    def _inner(self, path: str) -> str:
        """Relative to the root."""
        text = os.fspath(path)
        if text.startswith("/"):
            with self._seam.turn():
                root = self._seam.provider.root(self._seam.session)
            if text != root and not text.startswith(root + "/"):
                raise FileNotFoundError(errno.ENOENT, f"outside of the workspace ({root})", path)
            text = text[len(root) :]
        inner = posixpath.normpath(text.strip("/") or ".")
        if inner == ".." or inner.startswith("../"):
            raise FileNotFoundError(errno.ENOENT, "outside of the workspace", path)
        return "" if inner == "." else inner

    def _stat(self, path: str) -> FileStat:
        inner = self._inner(path)
        if not inner:
            return FileStat("", "dir", 0o755, 0, 0)
        folder, name = posixpath.split(inner)
        for entry in self._list(folder):
            if entry.name == name:
                return entry
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def stat(self, path: str) -> FileStat:
        """Tell about a path; symlinks are not followed. Of the root itself: as the commit has it, or the last one."""
        found = self._stat(path)
        if not found.name and isinstance(self._seam.provider, NtrProvider):
            with self._seam.turn():
                return self._seam.provider.root_stat(self._seam.session, self._at)
        return found

    def _find(self, path: str) -> FileStat | None:
        """None: there is nothing, as far as the workspace goes."""
        if "\0" in os.fspath(path):
            return None
        try:
            return self._stat(path)
        except OSError:
            return None
        except WorkspaceError as e:
            if e.errno == errno.EXDEV:  # a symlink on the way leads out
                return None
            raise

    def exists(self, path: str) -> bool:
        """Whether there is something of that name."""
        return self._find(path) is not None

    def is_file(self, path: str) -> bool:
        """Whether it is a plain file."""
        found = self._find(path)
        return found is not None and found.is_file

    def is_dir(self, path: str) -> bool:
        """Whether it is a directory."""
        found = self._find(path)
        return found is not None and found.is_dir

    def walk(self, path: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Go through a tree, as os.walk does; symlinks are names among the files."""
        entries = self.scandir(path)
        dirs = sorted(e.name for e in entries if e.is_dir)
        yield path, dirs, sorted(e.name for e in entries if not e.is_dir)
        for name in dirs:
            yield from self.walk(posixpath.join(path, name))

    def glob(self, pattern: str) -> list[str]:
        """List paths that match, ``**`` for any number of directories."""
        from ._globs import compile_glob

        match = compile_glob(pattern)
        found = []
        for folder, dirs, files in self.walk():
            found += [p for n in (*dirs, *files) if match(p := posixpath.join(folder, n))]
        return sorted(found)

    def read_bytes(self, path: str) -> bytes:
        """Read a file."""
        with self._seam.turn():
            return self._seam.provider.read(self._seam.session, path, self._at)

    def read_text(self, path: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Read a file as text."""
        return self.read_bytes(path).decode(encoding, errors)

    def write_bytes(self, path: str, data: BytesLike) -> str | None:
        """Write a file, with the directories that lead to it; give the commit."""
        if self._at is not None:
            raise TypeError("the files of a commit cannot be changed")
        if isinstance(data, str):
            raise TypeError("bytes (or bytearray, memoryview …) are needed, not a str")
        check_file(path)
        with self._seam.turn():
            return self._seam.provider.write(self._seam.session, path, as_bytes(data), commit=self._seam.commits)

    def write_text(self, path: str, text: str, encoding: str = "utf-8") -> str | None:
        """Write a file of text; give the commit."""
        return self.write_bytes(path, text.encode(encoding))

    def __repr__(self) -> str:
        return f"<files of {self._seam.session}{'@' + self._at[:12] if self._at else ''}>"
