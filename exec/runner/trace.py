"""Errors as text: tracebacks of the call's own frames, cut in the middle when they are long, and hints for usual traps."""

from __future__ import annotations

import builtins
import os
import re
import traceback
from collections.abc import Iterator
from typing import Any, Optional

from . import missed

OWN = "<ntr>/"  # the file names of this package's modules
LINES_MAX, LINES_HEAD, LINES_TAIL = 60, 8, 40
LINE_CHARS = 4000


def _strip(te: traceback.TracebackException, seen: set) -> None:
    """Takes this package's own frames out of it and of all it is linked with."""
    if id(te) in seen:
        return
    seen.add(id(te))
    if te.stack is not None:
        kept = [f for f in te.stack if not f.filename.startswith(OWN) and not f.filename.startswith("<string>.ntr")]
        te.stack[:] = kept
        if not kept:
            te.stack = None  # type: ignore[assignment]
    linked = [te.__cause__, te.__context__] + list(getattr(te, "exceptions", None) or [])
    for other in linked:
        if other is not None:
            _strip(other, seen)


def format_error(exc: BaseException) -> str:
    try:
        te = traceback.TracebackException(type(exc), exc, exc.__traceback__, compact=True)
    except TypeError:  # compact is of 3.10
        te = traceback.TracebackException(type(exc), exc, exc.__traceback__)
    except Exception as e:  # noqa: BLE001 - an exception with a broken __str__ or __notes__
        return "%s: <its text cannot be made: %s>" % (type(exc).__name__, type(e).__name__)
    _strip(te, set())
    return cut("".join(te.format()).rstrip("\n"))


def cut(text: str) -> str:
    lines = [line if len(line) <= LINE_CHARS else _cut_line(line) for line in text.split("\n")]
    if len(lines) > LINES_MAX:
        left = len(lines) - LINES_HEAD - LINES_TAIL
        lines = lines[:LINES_HEAD] + ["... %d more lines" % left] + lines[-LINES_TAIL:]
    return "\n".join(lines)


def _cut_line(line: str) -> str:
    return "%s... %s more characters" % (line[:LINE_CHARS], format(len(line) - LINE_CHARS, ","))


# ---- hints


def undefined(exc: BaseException) -> Optional[str]:
    """The name that a NameError is about."""
    if not isinstance(exc, NameError):
        return None
    name = getattr(exc, "name", None)
    if name is None:  # that attribute is of 3.10
        match = re.search(r"name '([^']+)'", str(exc))
        name = match.group(1) if match else None
    return name


def _hint_name(exc: NameError, root: str) -> Optional[str]:
    name = undefined(exc)
    if name is None or hasattr(builtins, name):
        return None
    return "names of earlier calls are gone, each call is a process of its own: keep values in cache[...] or in files"


def _hint_file(exc: FileNotFoundError, root: str) -> Optional[str]:
    path = exc.filename
    if not isinstance(path, str) or not path:
        return None
    base, cwd = os.path.basename(path.rstrip("/")), _cwd()
    for folder, dirs, files in missed.walk(root):
        if base in files or base in dirs:
            return "the working directory is %s; there is %s" % (cwd, os.path.join(folder, base))
    return None if os.path.isabs(path) else "the working directory is %s" % cwd


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "gone"


def _hint_network(exc: BaseException) -> Optional[str]:
    for e in _chain(exc):
        if type(e).__name__ in ("gaierror", "ConnectionRefusedError", "ConnectTimeout", "NewConnectionError") or (
            isinstance(e, OSError) and e.errno in (101, 113)
        ):
            return "the network cannot be reached from here, or that host does not answer: work from files instead"
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    seen: list[int] = []
    at: Optional[BaseException] = exc
    while at is not None and id(at) not in seen and len(seen) < 20:
        seen.append(id(at))
        yield at
        reason = getattr(at, "reason", None)
        at = reason if isinstance(reason, BaseException) else at.__cause__ or at.__context__


def hints(exc: BaseException, root: str, memory_mb: Optional[int]) -> list[str]:
    try:
        if isinstance(exc, ModuleNotFoundError):
            return missed.missing_module(exc, root)
        hint = _hint(exc, root, memory_mb)
    except Exception:  # noqa: BLE001 - a hint is an extra; the error itself is what counts
        hint = None
    return [hint] if hint else []


def _hint(exc: BaseException, root: str, memory_mb: Optional[int]) -> Optional[str]:
    if isinstance(exc, ImportError):
        return missed.missing_name(exc, root)
    if isinstance(exc, NameError) and not isinstance(exc, UnboundLocalError):
        return _hint_name(exc, root)
    if isinstance(exc, FileNotFoundError):
        return _hint_file(exc, root)
    if isinstance(exc, MemoryError) and memory_mb:
        return "the call may take %d MB of memory: work on the data in pieces, or ask for more" % memory_mb
    if isinstance(exc, EOFError) and "EOF when reading a line" in str(exc):
        return "there is no input to read: give it as inputs or stdin with the call"
    if isinstance(exc, RecursionError):
        return "iterate instead of recursing, or raise sys.setrecursionlimit with care"
    return _hint_network(exc)


def exit_text(code: Any) -> tuple[int, Optional[str]]:
    """sys.exit(code): the exit status, and what is printed."""
    if code is None:
        return 0, None
    if isinstance(code, int):
        return code & 0xFF, None
    return 1, str(code)
