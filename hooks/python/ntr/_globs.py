"""Patterns of paths."""

from __future__ import annotations

import re
from collections.abc import Callable


def _name(pattern: str) -> str:
    """A regular expression for one name."""
    out, i = "", 0
    while i < len(pattern):
        c = pattern[i]
        end = pattern.find("]", i + 2) if c == "[" else -1
        if c in "*?":
            out += "[^/]*" if c == "*" else "[^/]"
        elif end > 0:
            body = pattern[i + 1 : end].replace("\\", "\\\\")
            out += "[" + ("^/" + body[1:] if body[0] in "!^" else body) + "]"
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
