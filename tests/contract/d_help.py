"""What the rows of section D have in common."""

from __future__ import annotations

from typing import Any

from ways import Outcome, Way, WayError

OBJECT = {"cli": "it is a member of the package's object", "mcp": "it is a member of the package's object"}
SERVER = {"cli": "it is of the protocol that ntr mcp speaks", "package": "it is of the protocol that ntr mcp speaks"}


def same(got: Any, want: Any, what: str = "") -> None:
    """What differs is in the failure's text."""
    if got != want:
        raise AssertionError(f"{what + ': ' if what else ''}got {got!r}, wanted {want!r}"[:3000])


def holds(text: str | None, *parts: str) -> None:
    """Each part is in the text."""
    for part in parts:
        if part not in (text or ""):
            raise AssertionError(f"{part!r} is not in {text!r}"[:3000])


def lacks(text: str | None, *parts: str) -> None:
    """No part is in the text."""
    for part in parts:
        if part in (text or ""):
            raise AssertionError(f"{part!r} is in {text!r}"[:3000])


def refused(function: Any, *parts: str, code: Any = None) -> WayError:
    """It is refused, with these words in the error, which is given back."""
    try:
        got = function()
    except WayError as e:
        holds(e.text, *parts)
        if code is not None:
            same(e.code, code)
        return e
    raise AssertionError(f"it was not refused: {got!r}")


def raises(kind: Any, function: Any, *parts: str) -> Any:
    """The package raises that, with these words; gives the exception."""
    try:
        got = function()
    except kind as e:
        holds(str(e), *parts)
        return e
    raise AssertionError(f"no {kind} but {got!r}")


def said(o: Outcome, text: str, ok: bool = True) -> Outcome:
    """An agent reads that, and nothing else."""
    same((o.ok, o.text), (ok, text))
    return o


def counts(row: dict[str, Any]) -> tuple[int, int, int]:
    """Created, modified, deleted, of a commit."""
    c = row["changes"]
    return c["created"], c["modified"], c["deleted"]


def put(t: Any, way: Way, path: str, data: bytes) -> None:
    """Any bytes, by the command line: the session is the same whatever way leads to it."""
    t.ok("put", "-s", way.session, "-", path, stdin=data)


def tools(way: Way) -> dict[str, dict[str, Any]]:
    """The tools by their names."""
    return {x["name"]: x for x in way.tools()}
