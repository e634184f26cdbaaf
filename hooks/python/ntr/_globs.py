"""Patterns of paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate


def _class_end(pattern: str, i: int) -> int:
    """Where the class that begins at i ends, -1 where it does not: a ``]`` that comes first is a member."""
    return pattern.find("]", i + (3 if pattern[i + 1 : i + 2] == "!" else 2))


def _name(pattern: str) -> str:
    """A regular expression for one name."""
    out, i = "", 0
    while i < len(pattern):
        c = pattern[i]
        end = _class_end(pattern, i) if c == "[" else -1
        if c in "*?":
            out += "[^/]*" if c == "*" else "[^/]"
        elif end > 0:
            # What is in it means what it means to fnmatch, empty ranges and all; the last two characters are its end.
            out += "(?!/)" + translate(pattern[i : end + 1])[:-2]
            i = end
        else:
            out += re.escape(c)
        i += 1
    return out


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Give a test for paths: ``*`` and ``?`` stay within a name, ``**`` crosses directories."""
    parts = pattern.strip("/").split("/")
    text = "".join("(?:[^/]+/)*" if p == "**" else _name(p) + "/" for p in parts[:-1])
    text += "(?:[^/]+/)*[^/]+/" if parts[-1] == "**" else _name(parts[-1]) + "/"
    expression = re.compile(text)
    return lambda path: expression.fullmatch(path + "/") is not None
