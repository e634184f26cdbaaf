"""Imports that failed: the file that was meant, and the spelling that works."""

from __future__ import annotations

import ast
import difflib
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple, Optional

_SEARCH_MAX = 20000
_FILES_MAX, _SOURCE_MAX = 200, 1 << 20
_SKIP = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})

# What is imported under another name than it is installed by.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "pptx": "python-pptx",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


# ---- looking for files


def walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """os.walk of what the session's own code may be in, not too deep and not for too long."""
    seen = 0
    for folder, dirs, files in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in _SKIP)
        if folder[len(root) :].count(os.sep) > 6:
            dirs[:] = []
        seen += len(files) + len(dirs)
        yield folder, dirs, files
        if seen > _SEARCH_MAX:
            return


def _parts(path: str) -> list[str]:
    """The names of a module's path: lib/a.py is lib, a."""
    parts = (path[:-3] if path.endswith(".py") else path).split(os.sep)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _common_end(a: list[str], b: list[str]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


def _find(root: str, spelled: list[str], skip_top: bool = True) -> Optional[str]:
    """The file or folder below root that fits a spelled module best, as a relative path. skip_top: a folder of the root
    itself could have been imported, and so is not what was missed."""
    name, found = spelled[-1], []
    for folder, dirs, files in walk(root):
        here = os.path.relpath(folder, root)
        for entry in (name + ".py", name.replace("_", "-") + ".py"):
            if entry in files:
                found.append(os.path.normpath(os.path.join(here, entry)))
        if name in dirs and not (skip_top and folder == root):
            found.append(os.path.normpath(os.path.join(here, name)))
    return min(found, key=lambda p: (-_common_end(_parts(p), spelled), p.count(os.sep), p), default=None)


# ---- what the code wrote


class Statement(NamedTuple):
    """An import of one module. names: of `from … import`; None: a plain import."""

    module: str
    level: int
    names: Optional[list[str]]
    file: str


def _place(exc: BaseException) -> Optional[tuple[str, int]]:
    """The line that failed: the last one that is neither ours nor the import system's."""
    tb, at = exc.__traceback__, None
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if not file.startswith(("<ntr>/", "<frozen ")):
            at = (file, tb.tb_lineno)
        tb = tb.tb_next
    return at


def _statements(exc: BaseException) -> Iterator[Statement]:
    place = _place(exc)
    if place is None:
        return
    file, line = place
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source if len(source) <= _SOURCE_MAX else "")
    except (SyntaxError, ValueError, RecursionError):  # a file that was changed meanwhile
        return
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.ImportFrom):
            names = [a.name + (" as " + a.asname if a.asname else "") for a in node.names]
            yield Statement(node.module or "", node.level, names, file)
        else:
            for alias in node.names:
                yield Statement(alias.name, 0, None, file)


def _spelling(parts: list[str], names: Optional[list[str]]) -> Optional[str]:
    if not parts or not all(p.isidentifier() for p in parts):
        return None
    if names:
        return "from %s import %s" % (".".join(parts), ", ".join(names))
    if len(parts) == 1:
        return "import %s" % parts[0]
    return "from %s import %s" % (".".join(parts[:-1]), parts[-1])


def _found(root: str, path: str, names: Optional[list[str]]) -> str:
    full, spelling = os.path.join(root, path), _spelling(_parts(path), names)
    if spelling is None:
        return "%s was found, but its path is no module name: rename it to letters, digits and _" % full
    return "%s was found: imports begin at %s, so write `%s`" % (full, root, spelling)


# ---- no such module


def _install(top: str, root: str) -> str:
    pip = "%s -m pip" % sys.executable
    if not sys.executable.startswith(root + os.sep):
        pip = "python3 -m venv %s/.venv && %s/.venv/bin/pip" % (root, root)
    return "there is no module %r here; in the terminal: `%s install %s`" % (top, pip, _DISTRIBUTIONS.get(top, top))


def missing_module(exc: ModuleNotFoundError, root: str) -> list[str]:
    missed = exc.name or ""
    if not missed or getattr(exc, "ntr_gate", False):
        return []
    wrote = next((s for s in _statements(exc) if not s.level and (s.module + ".").startswith(missed + ".")), None)
    spelled = (wrote.module if wrote else missed).split(".")
    names = wrote.names if wrote else None
    if spelled[-1] == "py" and len(spelled) > 1:
        spelling = _spelling(spelled[:-1], names)
        return ["a module's name has no .py: write `%s`" % spelling] if spelling else []
    for n in range(len(spelled), missed.count("."), -1):
        path = _find(root, spelled[:n])
        if path is not None:
            hint = _found(root, path, names if n == len(spelled) else None)
            # Maybe it was meant to be a package that is not here.
            other = "." not in missed and missed not in _parts(path) and missed != os.path.basename(root)
            return [hint, _install(missed, root)] if other else [hint]
    if "." not in missed:
        return [_install(missed, root)]
    parent, _, last = missed.rpartition(".")
    hint = _members(sys.modules.get(parent), last, root)
    return [hint] if hint else []


# ---- no such name in a module


def _places(module: Optional[types.ModuleType], root: str) -> list[str]:
    """A module's own file or folders where they are the session's."""
    folders = list(getattr(module, "__path__", None) or [])
    file = getattr(module, "__file__", None)
    found = [p for p in (folders or [file]) if type(p) is str and p.startswith(root + os.sep)]
    return [p for p in found if "/site-packages/" not in p]


def _submodules(folder: str) -> list[str]:
    found = []
    for entry in sorted(os.listdir(folder)):
        name = entry[:-3] if entry.endswith(".py") else entry
        if name.isidentifier() and not name.startswith("__") and (name != entry or os.path.isdir(folder + os.sep + entry)):
            found.append(name)
    return found


def _members(module: Optional[types.ModuleType], name: str, root: str) -> Optional[str]:
    """What a module of the session's has instead."""
    places = _places(module, root)
    if not places:
        return None
    names = [n for n in vars(module) if not n.startswith("__")]
    for folder in getattr(module, "__path__", None) or []:
        names += _submodules(folder)
    names = sorted(set(names))
    shown = difflib.get_close_matches(name, names, 3) or [n for n in names if not n.startswith("_")][:8]
    file = getattr(module, "__file__", None) or places[0]
    return "%s has %s" % (file, ", ".join(shown)) if shown else "%s defines no names" % file


def _defining(folders: list[str], name: str) -> Optional[str]:
    """The file of a package that defines a name at its top level."""
    pattern = re.compile(r"^(?:(?:async +)?(?:def|class) +%s\b|%s *[:=][^=])" % ((re.escape(name),) * 2), re.M)
    seen = 0
    for top in folders:
        for folder, _, files in walk(top):
            for entry in sorted(f for f in files if f.endswith(".py")):
                seen += 1
                if seen > _FILES_MAX:
                    return None
                with open(os.path.join(folder, entry), encoding="utf-8", errors="replace") as f:
                    if pattern.search(f.read(_SOURCE_MAX)):
                        return os.path.join(folder, entry)
    return None


def missing_name(exc: ImportError, root: str) -> Optional[str]:
    module = sys.modules.get(exc.name or "")
    match = re.search(r"cannot import name '([^']+)'", str(exc))
    if match is None or not _places(module, root):
        return _relative(exc, root) if "relative import" in str(exc) else None
    name, folders = match.group(1), list(getattr(module, "__path__", None) or [])
    spelled = [*str(exc.name).split("."), name]
    path = _find(root, spelled) if folders else None
    if path is not None and _parts(path) != spelled:
        return _found(root, path, None)
    file = _defining(folders, name)
    if file is not None and os.path.basename(file) != "__init__.py":
        return _found(root, os.path.relpath(file, root), [name])
    return _members(module, name, root)


def _relative(exc: ImportError, root: str) -> Optional[str]:
    """`from .x import y` in code that is in no package."""
    wrote = next((s for s in _statements(exc) if s.level), None)
    if wrote is None:
        return None
    general = "this code is in no package: imports begin at %s, so write the whole path, without a dot in front" % root
    folder = os.path.dirname(wrote.file) if wrote.file.startswith(root + os.sep) else os.getcwd()
    for _ in range(wrote.level - 1):
        folder = os.path.dirname(folder)
    # The module, or what is imported from the folder itself
    below = wrote.module.split(".") if wrote.module else (wrote.names or ["*"])[0].split(" ")[:1]
    here = os.path.relpath(os.path.join(folder, *below), root)
    if here.startswith(os.pardir) or not any(os.path.exists(os.path.join(root, here + end)) for end in (".py", "")):
        path = _find(root, below, skip_top=False)
        if path is None:
            return general
        here = path
    spelling = _spelling(_parts(here), wrote.names if wrote.module else None)
    return "%s: `%s`" % (general, spelling) if spelling else general
