"""ui artifacts: what the code leaves in `ui = {name: value}`, and files it wrote below the workspace's ui folder."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from typing import Any, Optional

from .values import short_repr, type_name

NAMES_MAX = 20
BYTES_MAX = 8_000_000
ROWS_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}\Z")

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Listing = dict[str, tuple[int, int, int]]


class Unfit(Exception):
    """A value that makes no artifact; the text says why."""


def listing(root: str) -> Listing:
    """The files of the ui folder, by relative path: size, time and inode tell whether one was written. A ui that is a
    symlink is not looked into: it is the only entry, with no name."""
    found: Listing = {}
    try:
        top = os.open(os.path.join(root, "ui"), _FOLDER)
    except OSError:
        if os.path.islink(os.path.join(root, "ui")):
            found[""] = _stamp(os.lstat(os.path.join(root, "ui")))
        return found
    try:
        for folder, dirs, files, fd in os.fwalk(".", dir_fd=top):
            dirs.sort()
            # A symlink to a folder is among the folders, and is not followed: nothing of it is an artifact.
            for name in sorted(files):
                try:
                    st = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except OSError:
                    continue
                found[os.path.normpath(os.path.join(folder, name))] = _stamp(st)
            if len(found) > 10000:
                break
    finally:
        os.close(top)
    return found


def _stamp(st: os.stat_result) -> tuple[int, int, int]:
    return st.st_size, st.st_mtime_ns, st.st_ino


# ---- one value


def _json(value: Any) -> bytes:
    def other(obj: Any) -> Any:
        for method in ("tolist", "isoformat", "to_dict"):
            make = getattr(obj, method, None)
            if callable(make):
                return make()
        if isinstance(obj, Mapping):
            return dict(obj)
        if isinstance(obj, (set, frozenset)):
            return sorted(obj, key=repr)
        return short_repr(obj, 1000)

    try:
        text = json.dumps(value, default=other, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise Unfit("%s has no JSON form: %s" % (type_name(value), e)) from None
    return text.encode("utf-8", "replace")


def _sniff(data: bytes) -> Optional[str]:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data.lstrip()[:5] in (b"<?xml", b"<svg ") and b"<svg" in data[:1000]:
        return "svg"
    return None


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if hasattr(value, "item") and callable(value.item):  # a scalar of numpy's
        try:
            return _cell(value.item())
        except (TypeError, ValueError):
            pass
    text = str(value)
    return None if text in ("NaT", "<NA>", "nan") else text


def _table(frame: Any) -> bytes:
    names = [str(c) for c in frame.columns]
    top = frame.head(ROWS_MAX)
    rows = [[_cell(x) for x in row] for row in top.itertuples(index=False, name=None)]
    columns = [{"name": n, "type": str(t)} for n, t in zip(names, frame.dtypes)]
    return _json({"columns": columns, "rows": rows, "total": int(len(frame)), "truncated": len(frame) > ROWS_MAX})


def _is_cards(value: Any) -> bool:
    if type(value) is dict and type(value.get("cards")) is list:
        value = value["cards"]
    return (
        type(value) is list
        and bool(value)
        and all(type(c) is dict and ("title" in c or "label" in c) and ("value" in c or "text" in c) for c in value)
    )


def _image(save: Any, **options: Any) -> bytes:
    import io

    out = io.BytesIO()
    save(out, format="png", **options)
    return out.getvalue()


def _is_a(obj: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(obj, kind)


def _make(value: Any) -> tuple[str, bytes]:
    """The suffix and the content of a value's file."""
    if _is_a(value, "plotly.basedatatypes", "BaseFigure"):
        return "plotly.json", value.to_json().encode("utf-8")
    if _is_a(value, "pandas", "DataFrame"):
        return "table.json", _table(value)
    if _is_a(value, "pandas", "Series"):
        return "table.json", _table(value.to_frame())
    if _is_a(value, "matplotlib.figure", "Figure"):
        return "png", _image(value.savefig, bbox_inches="tight")
    if _is_a(getattr(value, "figure", None), "matplotlib.figure", "Figure"):  # axes
        return "png", _image(value.figure.savefig, bbox_inches="tight")
    if _is_a(value, "PIL.Image", "Image"):
        return "png", _image(value.save)
    if isinstance(value, (bytes, bytearray)):
        kind = _sniff(bytes(value))
        if kind is None:
            raise Unfit("these bytes are no png, jpeg, gif, webp or svg image; write them to a file in ui/ instead")
        return kind, bytes(value)
    if _is_cards(value):
        return "cards.json", _json(value if type(value) is dict else {"cards": value})
    html = getattr(value, "_repr_html_", None)
    if callable(html) and not isinstance(value, type):
        text = html()
        if isinstance(text, str):
            return "html", text.encode("utf-8", "replace")
    return "json", _json(value)


# ---- all of them


def _enter(folder: str, fd: int) -> int:
    try:
        os.mkdir(folder, dir_fd=fd)
    except FileExistsError:
        pass
    return os.open(folder, _FOLDER, dir_fd=fd)


class Artifacts:
    def __init__(self, root: str, before: Listing, readonly: bool = False) -> None:
        self.root = root
        self.readonly = readonly
        self.left: list[str] = []  # names that would need a file, in a read-only call
        self.real = os.path.realpath(root)
        self.folder = os.path.join(root, "ui")
        self.before = before
        self.made: list[dict[str, str]] = []
        self.own: list[str] = []  # paths below ui/ that were written here
        self.shown: set[str] = set()  # files that are artifacts as they are
        self.notes: list[str] = []

    def collect(self, ui: Any) -> None:
        if os.path.islink(self.folder):
            if ui is not None or self.before.get("") != listing(self.root).get(""):
                self.notes.append("ui is a symlink, and artifacts are kept in a folder of the workspace's own: remove it")
            return
        if ui is not None:
            self._values(ui)
        if self.left:
            names = ", ".join(self.left)
            self.notes.append("%s: this call is read-only, so no file can be made; call again without readonly" % names)
        self._files()
        if len(self.made) > NAMES_MAX:
            self.notes.append("%d artifacts; the first %d are shown" % (len(self.made), NAMES_MAX))
            del self.made[NAMES_MAX:]

    def _values(self, ui: Any) -> None:
        if type(ui) is not dict:
            self.notes.append("ui is a %s; it has to be a dict of name: value" % type(ui).__name__)
            return
        items = list(ui.items())
        if len(items) > NAMES_MAX:
            self.notes.append("ui has %d names; the first %d are shown" % (len(items), NAMES_MAX))
        self.shown = {path for path in map(self._shown, [value for _, value in items[:NAMES_MAX]]) if path}
        for name, value in items[:NAMES_MAX]:
            if type(name) is not str or not _NAME.match(name) or name.endswith((".", " ")):
                self.notes.append("%s is no name for an artifact: letters, digits, _ . -" % short_repr(name, 60))
                continue
            try:
                self._value(name, value)
            except Unfit as e:
                self.notes.append("%s: %s" % (name, e))
            except Exception as e:  # noqa: BLE001 - whatever rendering a foreign object raises
                self.notes.append("%s: %s could not be shown: %s: %s" % (name, type_name(value), type(e).__name__, e))

    def _value(self, name: str, value: Any) -> None:
        path = self._existing(value)
        if path is not None:
            size = os.path.getsize(path)
            if size > BYTES_MAX and self.readonly:
                self.left.append(name)
            elif size > BYTES_MAX:
                self._too_large(name, "the file %s has" % path, size)
            else:
                self.made.append({"name": name, "path": path})
            return
        if self.readonly:
            self.left.append(name)
            return
        suffix, data = _make(value)
        if len(data) > BYTES_MAX:
            self._too_large(name, "%s took, as .%s," % (type_name(value), suffix), len(data))
        else:
            self._write(name, name if name.endswith("." + suffix) else "%s.%s" % (name, suffix), data)

    def _too_large(self, name: str, what: str, size: int) -> None:
        """Its diagnosis in its place; NAME.txt even where the name ends so, for that may be the file itself."""
        took, most = format(size, ","), format(BYTES_MAX, ",")
        text = "%s: %s %s bytes; an artifact has at most %s. Show a summary, or fewer points or rows.\n"
        self._write(name, name + ".txt", (text % (name, what, took, most)).encode("utf-8", "replace"))
        self.notes.append("%s is too large: %s bytes, at most %s" % (name, took, most))

    def _existing(self, value: Any) -> Optional[str]:
        """A str or path of a file that is there: it is the artifact as it is."""
        if not isinstance(value, (str, os.PathLike)):
            return None
        path = os.fspath(value)
        if type(path) is not str or not path or len(path) > 4000 or "\n" in path or "\0" in path:
            return None
        for base in (os.getcwd(), self.root):
            full = os.path.normpath(os.path.join(base, path))
            if os.path.isfile(full) and full.startswith(self.root + os.sep):
                if not self._is_inside(full):
                    raise Unfit("%s leads out of the workspace" % full)
                return full
        return None

    def _shown(self, value: Any) -> Optional[str]:
        try:
            return self._existing(value)
        except Exception:  # noqa: BLE001 - told where it is its turn
            return None

    def _free(self, base: str) -> str:
        """That name, or one like it, which no other artifact of this call has: a and a.json would both be a.json."""
        folder, last = os.path.split(base)
        stem, dot, suffix = last.partition(".")
        n = 1
        while base in self.own or os.path.join(self.folder, base) in self.shown:
            n += 1
            base = os.path.join(folder, "%s-%d%s%s" % (stem, n, dot, suffix))
        return base

    def _is_inside(self, path: str) -> bool:
        """Whether that is where its symlinks lead, too."""
        return os.path.realpath(path).startswith(self.real + os.sep)

    def _write(self, name: str, base: str, data: bytes) -> None:
        """Symlinks are not followed on the way: no file of another place is ever written."""
        base = self._free(base)
        *folders, last = os.path.join("ui", base).split(os.sep)
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                inner = _enter(folder, fd)
                os.close(fd)
                fd = inner
            part = last + ".part"
            try:
                os.unlink(part, dir_fd=fd)
            except FileNotFoundError:
                pass
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(part, flags, 0o666, dir_fd=fd), "wb") as f:
                f.write(data)
            os.replace(part, last, src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            os.close(fd)
        self.own.append(base)
        self.made.append({"name": name, "path": os.path.join(self.folder, base)})

    def _files(self) -> None:
        named = {a["path"] for a in self.made}
        for rel, stamp in listing(self.root).items():
            path = os.path.join(self.folder, rel)
            if self.before.get(rel) == stamp or rel in self.own or path in named:
                continue
            try:
                st = os.stat(path)
            except OSError:
                continue  # a symlink to nothing
            if not stat.S_ISREG(st.st_mode):
                continue
            if not self._is_inside(path):
                self.notes.append("%s: %s leads out of the workspace" % (rel, path))
            elif st.st_size <= BYTES_MAX:
                self.made.append({"name": rel, "path": path})
            else:
                self._too_large(rel, "the file has", st.st_size)

    def lines(self) -> list[str]:
        lines = []
        if self.made:
            pairs = ", ".join("%s -> %s" % (a["name"], a["path"]) for a in self.made)
            lines.append("[ui artifacts: %s]" % pairs)
        return lines + ["[ui note: %s]" % n for n in self.notes]
