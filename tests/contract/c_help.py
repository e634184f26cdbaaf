"""What the rows of section C have in common."""

from __future__ import annotations

import ast
import datetime
import decimal
import math
import threading
from typing import Any

# Why a way cannot.
TEXT = {"mcp": "a model gets text: there is no way for values but their print"}
CODE = {"mcp": "the tool run_python takes code and nothing else"}
PROGRAM = {
    "cli": "objects are of a program that embeds ntr, and the command line is none",
    "mcp": "objects are of a program that embeds ntr, and the server has none",
}
GATE = {"cli": "the command line has no import gate", "mcp": "the server has no import gate"}
PYTHON = "/usr/bin/python3"
OWN = {"python": PYTHON}  # a session of a row's own: not through a version manager's wrapper, which takes long to start
PLUMBING = ("<ntr>", "_ntr", "runner", "channel")


def py(way: Any, code: str, **kw: Any) -> Any:
    """A call that has to do well."""
    o = way.run_python(code, **kw)
    assert o.ok, f"{code!r} failed: {o.text or o.error or o.stderr}"
    return o


def out(o: Any) -> str:
    """What it printed, as the way gives it; an agent's text ends without newlines."""
    return str(o.stdout if o.stdout is not None else o.text).rstrip("\n")


def said(o: Any) -> str:
    """All that it says of a failure: the traceback and the hints."""
    if o.text is not None:
        return str(o.text)
    return "\n".join([str(o.error), *[f"[hint: {h}]" for h in o.data.get("hints") or ()]])


def fails(way: Any, code: str, **kw: Any) -> str:
    """What a call says that has to fail."""
    o = way.run_python(code, **kw)
    assert not o.ok, f"{code!r} did well: {out(o)!r}"
    return said(o)


def value(way: Any, code: str, **kw: Any) -> Any:
    """The value that it prints the repr of."""
    return ast.literal_eval(out(py(way, code, **kw)))


def write(way: Any, files: dict[str, str]) -> None:
    """Files of the workspace, in one call."""
    py(
        way,
        f"import os\nfor p, text in {files!r}.items():\n"
        "    os.makedirs(os.path.dirname('/workspace/' + p), exist_ok=True)\n"
        "    with open('/workspace/' + p, 'w') as f: n = f.write(text)",
    )


def venv(*more: str) -> str:
    """A script that makes a virtual environment in the workspace as `python -m venv --without-pip` does, only quicker."""
    site = "$(echo .venv/lib/python3*/site-packages)"
    return f"""set -e
version=$({PYTHON} -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p .venv/bin .venv/lib/$version/site-packages
for name in python python3; do ln -s {PYTHON} .venv/bin/$name; done
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' >.venv/pyvenv.cfg
""" + "\n".join(x.format(site=site) for x in more)


def config(**fields: Any) -> dict[str, Any]:
    return {"config": fields}


MISSES = [
    ("import {0}z", "/workspace/{0}lib/{0}z.py", "from {0}lib import {0}z"),
    ("from {0}z import one", "/workspace/{0}lib/{0}z.py", "from {0}lib.{0}z import one"),
    ("from {0}z import one as o, two", "/workspace/{0}lib/{0}z.py", "from {0}lib.{0}z import one as o, two"),
    ("import os, {0}z", "/workspace/{0}lib/{0}z.py", "from {0}lib import {0}z"),
    (
        "def f():\n    from {0}z import (one,\n        two)\nf()",
        "/workspace/{0}lib/{0}z.py",
        "from {0}lib.{0}z import one, two",
    ),
    ("import importlib; importlib.import_module('{0}z')", "/workspace/{0}lib/{0}z.py", "from {0}lib import {0}z"),
    ("import src.{0}z", "/workspace/{0}lib/{0}z.py", "from {0}lib import {0}z"),
    ("import {0}z.nothing", "/workspace/{0}lib/{0}z.py", "from {0}lib import {0}z"),
    ("from workspace.{0}root import R", "/workspace/{0}root.py", "from {0}root import R"),
    ("from {0}lib import {0}deep", "/workspace/{0}lib/sub/{0}deep.py", "from {0}lib.sub import {0}deep"),
    ("from {0}pkg import {0}deeper", "/workspace/{0}pkg/sub/{0}deeper.py", "from {0}pkg.sub import {0}deeper"),
    ("from {0}lib import one", "/workspace/{0}lib/{0}z.py", "from {0}lib.{0}z import one"),
    ("import sub.{0}deep", "/workspace/{0}lib/sub/{0}deep.py", "from {0}lib.sub import {0}deep"),
]


def misses(way: Any, mark: str) -> None:
    write(
        way,
        {
            f"{mark}lib/{mark}z.py": "def one(): pass\ntwo = 2\n",
            f"{mark}lib/sub/{mark}deep.py": "",
            f"{mark}pkg/__init__.py": "A = 1\n",
            f"{mark}pkg/sub/{mark}deeper.py": "",
            f"{mark}root.py": "R = 1\n",
            f"{mark}lib/{mark}odd-name.py": "",
        },
    )


VALUES: list[Any] = [
    None, True, False, 0, 7, -1, 2**63, -(2**63), 2**64, 10**400, 0.0, 1.5, -0.0, 1e308, math.inf, -math.inf, "", "text", "ü日\U0001f600",
    "a\0b", "\ud800", "line\nline\r\n", b"", b"\0\xff", bytearray(b"x"), [], [1, [2, []]], (), (1, (2,)), {}, {"a": {"b": 1}},
    {1: "a", (2, 3): None, None: 0}, {"$": 1}, {"$": "opaque"}, set(), {1, 2}, frozenset({3}), 1 + 2j, decimal.Decimal("1.10"),
    decimal.Decimal("NaN"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1), datetime.date(2026, 1, 2), datetime.time(1, 2, 3), datetime.timedelta(1, 2, 3),
    [{"rows": [(1, b"x", {decimal.Decimal(2)})]}],
]  # fmt: skip
HEAD = "import datetime\nfrom decimal import Decimal\nfrom math import inf, nan\n"


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


def exec_python(
    way: Any,
    code: str,
    inputs: Any = None,
    stdin: Any = None,
    argv: Any = (),
    echo: str | None = None,
    readonly: bool = False,
) -> Any:
    """By the package's exec_python, or what the command line has of it."""
    if way.name == "package":
        more = {} if echo is None else {"echo": echo}
        return way._outcome(way._refusing(lambda: way.ws.exec_python(code, inputs, stdin, argv, readonly=readonly, **more)))
    return way.run_python(
        code, inputs=inputs or {}, stdin=stdin, argv=argv, echo=echo or "none", readonly=readonly, autocommit=False
    )


class Thing:
    """What an embedding program offers."""

    attribute = 7

    def __init__(self) -> None:
        self.done: list[Any] = []

    def add(self, a: Any, b: Any = 0) -> Any:
        self.done.append((a, b))
        return a + b

    def same(self, x: Any) -> Any:
        self.done.append(x)
        return x

    def fail(self, kind: str) -> None:
        raise {"value": ValueError, "key": KeyError, "odd": type("Odd", (Exception,), {})}[kind]("why")

    def keep(self, x: Any) -> None:
        self.done.append(x)

    def nothing(self) -> Any:
        return threading.Lock()

    async def later(self, x: Any) -> Any:
        return x * 2

    def _hidden(self) -> str:
        return "no"

    @property
    def prop(self) -> Any:
        raise AssertionError("a property must not be read")


THING = Thing()
