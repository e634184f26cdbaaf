"""The product's contract as a table: table.py SECTION WAY [-k PATTERN] [-j N], or table.py --list [SECTION...].

A section is a file beside this one (a.py, c.py, d.py). Its LINES are {id: claim}, every claim of that section; its rows are
functions, each for one line and for the ways that can express it:

    @line("A.3", "the working directory sticks")
    def row(way, t): ...

way is the way under test in a session of the row's own, t what a row needs besides (see Row). A line that no row covers
in some way, and for which no row says why not, is a failure. The output is TAP. $NTR_STORE is the store, if set; else one is
made and its daemon ended afterwards. Rows marked long run with NTR_LONG=1 only.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ways import WAYS, Way, WayError, run_ntr  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = ("cli", "mcp", "package")
NAMES = re.compile(r"[A-Z]\.\d+[a-z]?")
LONG = "NTR_LONG" in os.environ


class Skip(Exception):
    """Raised by a row that lacks something of the machine; the text says what."""


@dataclass
class Case:
    """A row of the table."""

    id: str
    text: str
    function: Callable[[Any, Any], None]
    ways: tuple[str, ...]
    why_not: dict[str, str]
    options: dict[str, Any]
    shared: bool
    long: bool


CASES: list[Case] = []


def line(
    id: str,
    text: str,
    ways: tuple[str, ...] | None = None,
    why_not: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
    shared: bool = False,
    long: bool = False,
) -> Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]]:
    """A row for the line id. ways: all those that why_not does not name. options: of the way. shared: in one session with
    all other shared rows of the run (a warm interpreter for all of them): a row then must not count on what it did not make.
    """

    def add(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        reasons = why_not or {}
        mine = tuple(w for w in ALL if w not in reasons) if ways is None else (ways,) if isinstance(ways, str) else ways
        if not NAMES.fullmatch(id) or set(mine) & set(reasons) or {*mine, *reasons} - set(ALL):
            raise ValueError(f"row {id} {text!r}: its id, ways or why_not cannot be")
        CASES.append(Case(id, text, function, mine, reasons, options or {}, shared, long))
        return function

    return add


class Row:
    """What a row needs besides its way: folders, further sessions, comparisons."""

    def __init__(self, way: type[Way], store: str, prefix: str) -> None:
        self.way_class = way
        self.way_name = way.name
        self.store = store
        self._prefix = prefix
        self._number = 0
        self._ways: list[Way] = []
        self._dir: str | None = None
        self.sessions: list[str] = []

    @property
    def dir(self) -> str:
        """A folder of the row's own, on the host."""
        if self._dir is None:
            self._dir = tempfile.mkdtemp(prefix="row.", dir=os.path.dirname(self.store))
        return self._dir

    def path(self, name: str, content: str | bytes | None = None) -> str:
        """The path of a file in dir, written if content is given."""
        p = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        if content is not None:
            with open(p, "wb") as f:
                f.write(content.encode() if isinstance(content, str) else content)
        return p

    def session(self) -> str:
        """A session's name that nobody has, removed after the row."""
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        self.sessions.append(name)
        return name

    def open(self, session: str | None = None, way: str | None = None, **options: Any) -> Way:
        """A way (this row's kind, or another), in a session of its own unless one is named."""
        kind = self.way_class if way is None else WAYS[way]
        w = kind(self.store, self.session() if session is None else session, **options)
        self._ways.append(w)
        return w

    def ntr(self, *args: str | bytes, **kw: Any) -> Any:
        """Runs the program ntr on this store, whatever it says: returncode, stdout, stderr as bytes."""
        return run_ntr(*args, store=self.store, **kw)

    def ok(self, *args: str | bytes, **kw: Any) -> str:
        """Runs the program ntr, which has to succeed; gives what it prints."""
        p = self.ntr(*args, **kw)
        assert p.returncode == 0, f"ntr {args} ended with {p.returncode}: {p.stderr!r}"
        return str(p.stdout.decode("utf-8", "replace"))

    @staticmethod
    def eq(got: Any, wanted: Any, what: str = "") -> None:
        assert got == wanted, f"{what + ': ' if what else ''}got {got!r}, wanted {wanted!r}"

    @staticmethod
    def has(text: Any, part: Any) -> None:
        assert part in text, f"{part!r} is not in {text!r}"

    @staticmethod
    def like(text: str, pattern: str) -> None:
        assert re.search(pattern, text), f"{text!r} does not match {pattern!r}"

    @contextmanager
    def refused(self, pattern: str = "", code: Any = None) -> Iterator[list[WayError]]:
        """What is inside is refused by ntr, with a text that matches; the error is in the list afterwards. code: a value, or
        {way: value}.
        """
        got: list[WayError] = []
        try:
            yield got
        except WayError as e:
            got.append(e)
        assert got, f"not refused (wanted: {pattern!r})"
        self.like(got[0].text, pattern)
        wanted = code.get(self.way_name) if isinstance(code, dict) else code
        if wanted is not None:
            self.eq(got[0].code, wanted, got[0].text)

    @staticmethod
    def until(what: Callable[[], Any], limit: float = 10.0) -> Any:
        """Waits until something is true; gives it."""
        end = time.monotonic() + limit
        while True:
            got = what()
            if got:
                return got
            assert time.monotonic() < end, f"waited {limit:g} s in vain"
            time.sleep(0.01)

    def background(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Begins something in a thread of its own; what is given waits for it, and gives its value or raises its error."""
        box: list[Any] = []

        def work() -> None:
            try:
                box.append((True, function()))
            except BaseException as e:
                box.append((False, e))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def wait(limit: float = 60.0) -> Any:
            thread.join(limit)
            assert box, f"not done within {limit:g} s"
            if not box[0][0]:
                raise box[0][1]
            return box[0][1]

        return wait

    def close(self) -> None:
        for w in reversed(self._ways):
            w.close()
        if self.sessions:
            there = {x.split()[0] for x in self.ok("sessions").splitlines() if x.strip()}
            gone = [s for s in self.sessions if s in there]
            if gone:
                self.ok("rm", "--discard", "--", *gone)
        if self._dir is not None:
            shutil.rmtree(self._dir)


@dataclass
class Shared:
    """The session that a run's shared rows have in common."""

    row: Row
    lock: threading.Lock = field(default_factory=threading.Lock)
    ways: dict[str, Way] = field(default_factory=dict)

    def way(self, options: dict[str, Any]) -> Way:
        """One way for each set of options, all in the one session."""
        key = repr(sorted(options.items(), key=str))
        if key not in self.ways:
            session = next(iter(self.ways.values())).session if self.ways else None
            self.ways[key] = self.row.open(session, **options)
        return self.ways[key]


def load(section: str) -> tuple[dict[str, str], list[Case]]:
    """The claims and the rows of a section."""
    CASES.clear()
    module = importlib.import_module(section.lower())
    return dict(module.LINES), list(CASES)


def gaps(lines: dict[str, str], cases: list[Case], way: str) -> list[str]:
    """What the table lacks for a way."""
    missing = []
    for id, text in lines.items():
        mine = [c for c in cases if c.id == id]
        if not any(way in c.ways or way in c.why_not for c in mine):
            missing.append(f"{id} {text}: no row through {way}, and none says why not")
    missing += [f"{c.id} {c.text}: a row of a line that is not in LINES" for c in cases if c.id not in lines]
    return missing


def execute(case: Case, way: type[Way], store: str, prefix: str, shared: Shared) -> str | Skip | None:
    """Runs a row; gives what is wrong, or why it was not run."""
    row = Row(way, store, prefix)
    wrong: str | None = None
    skip = None
    try:
        if case.shared:
            with shared.lock:
                case.function(shared.way(case.options), row)
        else:
            case.function(row.open(**case.options), row)
    except Skip as e:
        skip = e
    except Exception:
        wrong = traceback.format_exc()
    try:
        row.close()
    except Exception:
        wrong = (wrong or "") + "afterwards:\n" + traceback.format_exc()
    return wrong or skip


def run(section: str, way: str, store: str, pattern: str, jobs: int) -> int:
    """Runs a section through a way; gives the exit status."""
    lines, cases = load(section)
    chosen = [c for c in cases if re.search(pattern, f"{c.id} {c.text}") and (way in c.ways or way in c.why_not)]
    missing = gaps(lines, cases, way)
    print(f"TAP version 13\n1..{len(chosen) + 1}")
    failed = 1 if missing else 0
    print(f"{'not ok' if missing else 'ok'} 1 - {section} {way}: every line has a row or a reason")
    for m in missing:
        print(f"# {m}")
    mark = f"{section.lower()}-{way}-{os.getpid()}"
    shared = Shared(Row(WAYS[way], store, f"{mark}-shared"))

    def one(numbered: tuple[int, Case]) -> tuple[str | Skip | None, float]:
        n, c = numbered
        if way not in c.ways or (c.long and not LONG):
            return None, 0.0
        began = time.monotonic()
        wrong = execute(c, WAYS[way], store, f"{mark}-{n}", shared)
        return wrong, time.monotonic() - began

    with ThreadPoolExecutor(jobs) as pool:
        for n, (c, (wrong, took)) in enumerate(zip(chosen, pool.map(one, enumerate(chosen, 2))), 2):
            skip = (
                f" # SKIP {c.why_not[way]}"
                if way in c.why_not
                else " # SKIP NTR_LONG=1 runs it"
                if c.long and not LONG
                else ""
            )
            if isinstance(wrong, Skip):
                skip, wrong = f" # SKIP {wrong}", None
            print(
                f"{'not ok' if wrong else 'ok'} {n} - {c.id} {c.text}{skip}" + (f" # {took:.2f} s" if took > 1 else ""),
                flush=True,
            )
            if wrong:
                failed += 1
                print("".join(f"# {x}\n" for x in wrong.splitlines()), end="", flush=True)
    try:
        shared.row.close()
    except Exception:
        failed += 1
        print("Bail out! the shared session: " + traceback.format_exc().replace("\n", " "))
    if not chosen:
        print(f"# no row matches {pattern!r}")
    return 1 if failed or not chosen else 0


def listing(sections: list[str]) -> int:
    """Prints which line has how many rows in which way; 1 where one is missing."""
    bad = 0
    for section in sections:
        lines, cases = load(section)
        for id, text in lines.items():
            counts = []
            for w in ALL:
                rows = sum(c.id == id and w in c.ways for c in cases)
                reason = any(c.id == id and w in c.why_not for c in cases)
                counts.append(f"{w} {rows or ('-' if reason else 'MISSING')}")
            print(f"{id:6} {'  '.join(f'{c:16}' for c in counts)} {text}")
        for w in ALL:
            bad += len(gaps(lines, cases, w))
        print(
            f"# {section}: {len(lines)} lines, {len(cases)} rows, "
            + ", ".join(f"{w} {sum(w in c.ways for c in cases)}" for w in ALL)
        )
    return 1 if bad else 0


def sections_there() -> list[str]:
    return sorted(n[0].upper() for n in os.listdir(HERE) if re.fullmatch(r"[a-z]\.py", n))


def with_store(work: Callable[[str], int]) -> int:
    """In $NTR_STORE, or in a store for this once."""
    given = os.environ.get("NTR_STORE")
    if given:
        os.makedirs(os.path.dirname(given), exist_ok=True)
        return work(os.path.abspath(given))
    place = tempfile.mkdtemp(prefix="ntr-contract.", dir=os.environ.get("TMPDIR") or "/tmp")
    store = os.path.join(place, "store")
    try:
        return work(store)
    finally:
        run_ntr("daemon", "stop", store=store)
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    p = argparse.ArgumentParser(description="The contract, line by line, through each way in.")
    p.add_argument("what", nargs="*", metavar="SECTION WAY")
    p.add_argument("--list", action="store_true", help="which line has rows in which way")
    p.add_argument("-k", default="", metavar="PATTERN", help="only the rows whose id and text match")
    p.add_argument("-j", type=int, default=4, metavar="N", help="rows at once, 4 by default")
    a = p.parse_args()
    if a.list:
        return listing([s.upper() for s in a.what] or sections_there())
    if len(a.what) != 2 or a.what[0].upper() not in sections_there() or a.what[1] not in WAYS:
        p.error(f"a section of {', '.join(sections_there())} and a way of {', '.join(WAYS)}")
    return with_store(lambda store: run(a.what[0].upper(), a.what[1], store, a.k, max(a.j, 1)))


if __name__ == "__main__":
    sys.modules["table"] = sys.modules["__main__"]
    sys.exit(main())
