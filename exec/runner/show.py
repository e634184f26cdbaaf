"""What a person or an agent gets to see of values: echo, print within a budget, heads of what is too large.

Small output is exact. What would not fit is shown by its structure: the heads of containers and how many more there are.
"""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Iterable
from typing import Any, Callable, Optional

# Entries shown per container, characters per string; tried in turn until the whole fits.
_LEVELS = ((1000, 4000), (300, 1000), (100, 400), (30, 200), (10, 100), (4, 60), (2, 30), (1, 20))
_DEPTH_MAX = 12
_SHARE_MIN = 2000

_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}


class _Full(Exception):
    pass


class _Render:
    def __init__(self, items: int, chars: int, limit: int) -> None:
        self.items = items
        self.chars = chars
        self.left = limit
        self.cut = False
        self.out: list[str] = []

    def put(self, text: str) -> None:
        self.left -= len(text)
        if self.left < 0:
            raise _Full
        self.out.append(text)

    def value(self, obj: Any, depth: int) -> None:
        kind = type(obj)
        if kind is dict:
            self.sequence("{", obj.items(), len(obj), "}", depth, pairs=True)
        elif kind in _BRACKETS:
            begin, end = _BRACKETS[kind]
            if not obj and kind in (set, frozenset):
                self.put(repr(obj))
                return
            self.sequence(begin, obj, len(obj), ",)" if kind is tuple and len(obj) == 1 else end, depth)
        else:
            self.leaf(obj)

    def sequence(self, begin: str, members: Iterable[Any], n: int, end: str, depth: int, pairs: bool = False) -> None:
        if depth >= _DEPTH_MAX and n:
            self.cut = True
            self.put("%s... %s more%s" % (begin, format(n, ","), end))
            return
        self.put(begin)
        for i, member in enumerate(members):
            if i:
                self.put(", ")
            if i >= self.items:
                self.cut = True
                self.put("... %s more" % format(n - i, ","))
                break
            if pairs:
                self.value(member[0], depth + 1)
                self.put(": ")
                self.value(member[1], depth + 1)
            else:
                self.value(member, depth + 1)
        self.put(end)

    def leaf(self, obj: Any) -> None:
        if type(obj) in (str, bytes) and len(obj) > self.chars:
            self.cut = True
            more = format(len(obj) - self.chars, ",")
            unit = "characters" if type(obj) is str else "bytes"
            self.put("%r... %s more %s" % (obj[: self.chars], more, unit))
            return
        text = repr(obj)
        room = max(self.chars, 200)
        if len(text) > room:
            self.cut = True
            text = "%s... %s more characters" % (text[:room], format(len(text) - room, ","))
        self.put(text)


def head(text: str, limit: int) -> str:
    note = "... %s more characters" % format(len(text) - limit, ",")
    return text[: max(limit - len(note), 0)] + note


def render(obj: Any, limit: int) -> str:
    """repr(obj) where that fits into limit characters, else as much of its structure as does."""
    for items, chars in _LEVELS:
        r = _Render(items, chars, limit)
        try:
            r.value(obj, 0)
        except (_Full, RecursionError):
            continue
        return "".join(r.out)
    return head(repr(obj) if not _surely_longer(obj, 1 << 20) else "<%s>" % type(obj).__name__, limit)


def _surely_longer(obj: Any, room: int) -> bool:
    """Whether its text is longer than room, where that can be told without making it."""
    kind = type(obj)
    if kind is str or kind is bytes:
        return len(obj) > room
    if kind is dict or kind in _BRACKETS:
        return len(obj) * 2 > room
    return False


class Out(io.TextIOWrapper):
    """stdout or stderr, with a count of what went through it. budget 0: none."""

    def __init__(self, fd: int, errors: str, budget: int) -> None:
        super().__init__(open(fd, "wb", closefd=False), encoding="utf-8", errors=errors, line_buffering=True)
        self.budget = budget
        self.count = 0
        self.truncated = False

    def write(self, text: str) -> int:
        self.count += len(text)
        return super().write(text)

    def room(self) -> int:
        return max(self.budget - self.count, 0)

    def share(self) -> int:
        """What one large thing may take: it leaves room for others after it."""
        return max(min(self.room(), max(self.budget // 4, _SHARE_MIN)), 100)

    def echo(self, obj: Any) -> str:
        """The text of a bare expression's value, after printing it as the interactive interpreter does."""
        if not self.budget:
            text = repr(obj)
        else:
            whole = None if _surely_longer(obj, self.room()) else repr(obj)
            if whole is None or len(whole) + 1 > self.room():
                self.truncated = True
                whole = render(obj, self.share())
            text = whole
        self.write(text + "\n")
        return text


def _fitted(args: tuple[Any, ...], sep: str, end: int, out: Out) -> Optional[str]:
    """The text of a print that is too large for what is left; None: it is not. end: what comes after it."""
    room = out.room()
    if not any(_surely_longer(a, room) for a in args):
        text = sep.join([a if type(a) is str else str(a) for a in args])
        if len(text) + end <= room or not args:
            return None if room else ""
    share = max(out.share() // max(len(args), 1), 100)
    return sep.join([_shown(a, share) for a in args])


def _shown(arg: Any, share: int) -> str:
    if type(arg) is str:
        return arg if len(arg) <= share else head(arg, share)
    kind = type(arg)
    if kind is dict or kind in _BRACKETS:
        return render(arg, share)
    text = str(arg)
    return text if len(text) <= share else head(text, share)


class Replacement:
    """Takes the place of a function of a module: the __call__ of a subclass.

    It pickles by that function's name, so that it can go to other processes and into the cache, and like a built-in it
    does not become a method where a class holds it.
    """

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            self.__dict__[name] = getattr(original, name, None)
        vars(type(self))["__call__"].__qualname__ = original.__qualname__  # what a TypeError calls it, from 3.10 on

    def __reduce__(self) -> str:
        return str(self.__dict__["__qualname__"])

    def __repr__(self) -> str:
        return repr(self.original)


class Print(Replacement):
    def __init__(self, original: Callable[..., Any], outs: tuple[Out, ...]) -> None:
        super().__init__(original)
        self.outs = outs

    def __call__(
        self, /, *args: Any, sep: Optional[str] = " ", end: Optional[str] = "\n", file: Any = None, flush: bool = False
    ) -> None:
        original = self.original
        target = sys.stdout if file is None else file
        out = next((x for x in self.outs if x is target), None)
        if out is None or not out.budget or not args:
            original(*args, sep=sep, end=end, file=file, flush=flush)
            return
        tail = len(end) if type(end) is str else 1
        if len(args) == 1 and type(args[0]) is str:
            text: Optional[str] = args[0]
            fits = len(args[0]) + tail <= out.room()
        else:
            if out.room() == 0:  # all of it is used up: what comes now is cut by the daemon, and says so
                original(*(_shown(a, 100) for a in args), sep=sep, end=end, file=file, flush=flush)
                return
            text = _fitted(args, " " if sep is None else sep, tail, out)
            fits = text is None
        if fits:
            original(*args, sep=sep, end=end, file=file, flush=flush)
            return
        assert text is not None
        if out.room() and type(args[0]) is str and len(args) == 1:
            text = _shown(text, out.share())
        out.truncated = True
        original(text, end=end, file=file, flush=flush)


def install_print(*outs: Out) -> None:
    """print() into the call's own streams keeps to their budget; into anything else it is the built-in one."""
    builtins.print = Print(builtins.print, outs)
