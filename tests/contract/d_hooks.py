"""Section D: lifecycle hooks, in the store's folder and in the session's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from d_help import OBJECT, counts, holds, said, same
from table import line
from ways import Package, Way, run_ntr

EVENTS = ("pre-run", "post-run", "pre-commit", "post-commit", "post-fork", "post-rollback")


class Hooks:
    """A session's hooks, or (whole) the store's; taken away at the end."""

    def __init__(self, way: Way, t: Any, whole: bool = False) -> None:
        self.way, self.notes = way, t.path("notes")
        self.folder = os.path.join(way.store, "hooks", *([] if whole else [f"{way.session}.d"]))

    def __enter__(self) -> Hooks:
        os.makedirs(self.folder, exist_ok=True)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.folder)

    def add(self, event: str, script: str, mode: int = 0o755) -> None:
        """By a program of its own: what other threads start meanwhile would hold the file open for writing, and it could not
        be run.
        """
        new = os.path.join(self.folder, f"{event}.new")
        write = ["sh", "-c", 'cat >"$0" && chmod "$1" "$0"', new, f"{mode:o}"]
        subprocess.run(write, input=f"#!/bin/bash\n{script}\n".encode(), check=True)
        os.rename(new, os.path.join(self.folder, event))

    def note(self, *events: str) -> None:
        """They write down what they are told."""
        for e in events:
            self.add(e, f"cat >> {self.notes}")

    def told(self) -> list[dict[str, Any]]:
        """What they were told about this session."""
        if not os.path.exists(self.notes):
            return []
        with open(self.notes) as f:
            return [m for m in map(json.loads, f) if m["session"] == self.way.session]


@contextmanager
def apart(way: Way, t: Any) -> Iterator[Way]:
    """The same way in a store of its own: a store's hooks are for all that run in it side by side."""
    w = type(way)(t.path("store"), way.session)
    try:
        yield w
    finally:
        w.close()
        run_ntr("daemon", "stop", store=w.store)


@line("D.56", "the hooks of the store's folder are for every session, those of the session's for it alone, after the store's")
def folders(way: Way, t: Any) -> None:
    with apart(way, t) as w:
        w.terminal("true")
        with Hooks(w, t, whole=True) as store, Hooks(w, t) as own:
            store.add("pre-run", f"echo store of $NTR_SESSION >> {own.notes}")
            own.add("pre-run", f"echo session >> {own.notes}")
            w.terminal("true")
            w.again("other").terminal("true")
            with open(own.notes) as f:
                same(f.read(), f"store of {w.session}\nsession\nstore of other\n")


@line("D.56", "a file that is not executable, and one that cannot be run, is a hook that fails")
def broken(way: Way, t: Any) -> None:
    way.terminal("true")
    with Hooks(way, t) as hooks:
        hooks.add("pre-run", "exit 0", mode=0o644)
        o = way.terminal("touch f")
        same(o.ok, False)
        holds(o.text, f"{hooks.folder}/pre-run")
        hooks.add("pre-run", "exit 0")
        same(way.terminal("touch f").ok, True)


@line("D.56", "hooks run as the store's owner, in the store, with NTR_HOOK, NTR_STORE, NTR_SESSION")
def environment_of(way: Way, t: Any) -> None:
    with Hooks(way, t) as hooks:
        hooks.add("pre-run", f'echo "$PWD $NTR_HOOK $NTR_STORE $NTR_SESSION $UID" > {hooks.notes}')
        said(way.terminal("true"), "(no output)")
        with open(hooks.notes) as f:
            same(f.read(), f"{way.store} pre-run {way.store} {way.session} {os.geteuid()}\n")


@line("D.57", "pre-run is told of terminal and run_python before they begin")
def pre_run(way: Way, t: Any) -> None:
    head = way.terminal("echo 1 > f").commit
    with Hooks(way, t) as hooks:
        hooks.note("pre-run")
        way.terminal("echo 2 > f; exit 3")
        way.run_python("1 + 1")
        way.file_write("g", "1")
        a, b = hooks.told()
        same((a["event"], a["tool"], a["script"], a["head"], "exit_code" in a), ("pre-run", "terminal", "echo 2 > f; exit 3", head, False))
        same((b["tool"], b["code"]), ("run_python", "1 + 1"))


@line("D.57", "pre-run may refuse: nothing runs, and its words are the answer to the agent's call")
def pre_run_refuses(way: Way, t: Any) -> None:
    head = way.terminal("echo 1 > f").commit
    with Hooks(way, t) as hooks:
        hooks.add("pre-run", "grep -q curl || exit 0; echo 'no network tools here,' >&2; echo 'says the policy' >&2; exit 7")
        no = f"the hook {hooks.folder}/pre-run said no (exit status 7): no network tools here, says the policy"
        said(
            way.tool("terminal", command="touch ran; curl x"), f"terminal failed: run the command in session {way.session}: {no}", ok=False
        )
        said(
            way.tool("run_python", code="open('curl', 'w')"), f"run_python failed: run the command in session {way.session}: {no}", ok=False
        )
        same((way.terminal("ls").text, way.head()), ("f", head))


@line(
    "D.57",
    "pre-run refuses ntr run and ntr py with exit status 125 and its words",
    ways=("cli",),
    why_not={"mcp": "ntr run and ntr py are of the command line", "package": "ntr run and ntr py are of the command line"},
)
def pre_run_cli(way: Any, t: Any) -> None:
    with Hooks(way, t) as hooks:
        hooks.add("pre-run", "echo never >&2; exit 1")
        for args in (
            ["run", "-c", "touch ran"],
            ["py", "-c", "open('ran', 'w')"],
            ["run", "--render", "-c", "true"],
            ["run", "--rm", "--", "touch", "ran"],
        ):
            p = way.raw(args[0], "-s", way.session, *args[1:])
            same(
                (p.returncode, p.stdout, p.stderr.decode()),
                (
                    125,
                    b"",
                    f"ntr: run the command in session {way.session}: the hook {hooks.folder}/pre-run said no (exit status 1): never\n",
                ),
                str(args),
            )
    same(way.terminal("ls").text, "(no output)")


@line("D.58", "post-run is told of how a call ended and of its commit; its failure is a warning")
def post_run(way: Way, t: Any) -> None:
    with Hooks(way, t) as hooks:
        hooks.note("post-run")
        o = way.terminal("echo 1 > f; exit 3")
        way.run_python("1")
        a, b = hooks.told()
        same(
            (a["event"], a["tool"], a["script"], a["exit_code"], a["timed_out"], a["commit"], counts(a)),
            ("post-run", "terminal", "echo 1 > f; exit 3", 3, False, o.commit, (1, 0, 0)),
        )
        same((isinstance(a["duration"], float), b["tool"], b["commit"], counts(b)), (True, "run_python", None, (0, 0, 0)))
        hooks.add("post-run", "exit 1")
        o = way.terminal("echo 2 > f; echo out")
        same((o.ok, o.text, o.commit), (True, "out", way.head()))


@line("D.59", "pre-commit is told of what would be committed, and can look at it")
def pre_commit(way: Way, t: Any) -> None:
    head = way.terminal("echo 1 > f; echo 1 > gone").commit
    with Hooks(way, t) as hooks:
        hooks.add(
            "pre-commit",
            f"""m=$(cat); echo "$m" >> {hooks.notes}; tree=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["tree"])' "$m"); cat "$tree/f" > {hooks.notes}.f""",
        )
        way.terminal("echo 2 > f; rm gone; mkdir d; cd d")
        (m,) = hooks.told()
        same(
            (m["event"], m["tool"], m["script"], m["head"], m["state_changed"], m["entries_total"]),
            ("pre-commit", "terminal", "echo 2 > f; rm gone; mkdir d; cd d", head, True, 3),
        )
        same(sorted((e["path"], e["kind"]) for e in m["entries"]), [("d", "created"), ("f", "modified"), ("gone", "deleted")])
        with open(f"{hooks.notes}.f") as f:
            same(f.read(), "2\n")


@line("D.59", "pre-commit may refuse a call: its words are the answer, what the call printed is there, the changes stay uncommitted")
def pre_commit_refuses(way: Way, t: Any) -> None:
    head = way.terminal("echo 1 > f").commit
    with Hooks(way, t) as hooks:
        hooks.add("pre-commit", "grep -q SECRET || exit 0; echo 'a secret' >&2; exit 1")
        no = f"commit the changes in session {way.session}: the hook {hooks.folder}/pre-commit said no (exit status 1): a secret; what the command wrote stays uncommitted: put it right with another call, or drop it: ntr discard -s {way.session}"
        said(
            way.tool("terminal", command="echo SECRET > f; echo out; echo err >&2"), f"out\n[stderr]\nerr\nterminal failed: {no}", ok=False
        )
        same((way.head(), way.read("f")), (head, b"SECRET\n"))
        said(way.tool("terminal", command=": SECRET"), f"terminal failed: {no}", ok=False)
        said(way.tool("run_python", code="print('SECRET')"), f"SECRET\nrun_python failed: {no}", ok=False)
        same(way.terminal("echo fine > f").commit, way.head())
        same(len(way.history()), 3)


@line("D.59", "pre-commit may refuse file_write and file_edit: write failed: and edit failed: its words")
def pre_commit_refuses_files(way: Way, t: Any) -> None:
    head = way.file_write("f", "1\n").commit
    with Hooks(way, t) as hooks:
        hooks.add("pre-commit", "echo never >&2; exit 1")
        no = f"commit the changes in session {way.session}: the hook {hooks.folder}/pre-commit said no (exit status 1): never; the changes stay uncommitted: put right what the hook does not like, or drop them: ntr discard -s {way.session}"
        said(way.file_edit("f", "1", "2"), f"edit failed: {no}", ok=False)
        said(way.file_write("g", "2"), f"write failed: {no}", ok=False)
        same((way.head(), way.read("f")), (head, b"2\n"))
        t.ok("discard", "-s", way.session)
        same(way.read("f"), b"1\n")


@line(
    "D.59",
    "pre-commit may refuse put, the cache and checkpoint: RefusedError, whose why is what it said",
    ways=("package",),
    why_not={"cli": "an exit status and the words: tests/bats/hooks.bats", "mcp": OBJECT["mcp"]},
)
def pre_commit_raises(way: Package, t: Any) -> None:
    way.ws.put("f", "1")
    with Hooks(way, t) as hooks:
        hooks.add("pre-commit", "echo never >&2; exit 1")
        for f in (lambda: way.ws.put("g", "2"), lambda: way.ws.cache.set("k", 1), lambda: way.ws.checkpoint("x")):
            try:
                raise AssertionError(f"not refused: {f()!r}")
            except Exception as e:
                same(type(e).__name__, "RefusedError", str(e))
                holds(e.why, "never")  # type: ignore[attr-defined]
        way.ws.discard()


@line("D.60", "post-commit is told of every commit, whatever made it; its failure is a warning")
def post_commit(way: Way, t: Any) -> None:
    way.terminal("true")
    with Hooks(way, t) as hooks:
        hooks.note("post-commit")
        made = [
            way.terminal("echo 1 > f").commit,
            way.run_python("open('g', 'w').close()").commit,
            way.file_write("h", "1").commit,
            way.file_edit("h", "1", "2").commit,
            way.cache_set("k", 1),
        ]
        way.terminal("true")
        told = hooks.told()
        same([m["commit"] for m in told], made)
        same([m["tool"] for m in told[:4]], ["terminal", "run_python", "file_write", "file_edit"])
        same((told[3]["parent"], told[3]["entries"], counts(told[3])), (made[2], [{"path": "h", "kind": "modified"}], (0, 1, 0)))
        hooks.add("post-commit", "echo oops >&2; exit 1")
        o = way.terminal("echo 2 > f; echo out")
        same((o.ok, o.text, o.commit), (True, "out", way.head()))


@line("D.61", "post-fork is told of the new session and where it begins; the source's hooks are asked")
def post_fork(way: Way, t: Any) -> None:
    head, name = way.terminal("echo 1 > f").commit, t.session()
    with Hooks(way, t) as hooks:
        hooks.note("post-fork")
        way.fork(name)
        (m,) = hooks.told()
        same((m["event"], m["session"], m["fork"], m["commit"]), ("post-fork", way.session, name, head))
        hooks.add("post-fork", "exit 1")
        other = way.fork(t.session())
        same(other.read("f"), b"1\n")


@line("D.62", "post-rollback is told from where to where")
def post_rollback(way: Way, t: Any) -> None:
    one, two = way.terminal("echo 1 > f").commit, way.terminal("echo 2 > f; sleep 60 > /dev/null 2>&1 &\necho 3 >> f").commit
    with Hooks(way, t) as hooks:
        hooks.note("post-rollback")
        way.rollback(1)
        (m,) = hooks.told()
        same((m["event"], m["from"], m["to"], m["killed"]), ("post-rollback", two, one, 1))
        hooks.add("post-rollback", "exit 1")
        same((way.rollback(commit=two).ok, way.head()), (True, two))


@line("D.63", "each hook gets one JSON object, a line, on stdin, with event, store, session")
def on_stdin(way: Way, t: Any) -> None:
    way.terminal("true")
    with Hooks(way, t) as hooks:
        hooks.note(*EVENTS)
        way.terminal("echo 'a\nü' > f; export X=$'\\377'")
        way.fork(t.session())
        way.rollback(1)
        told = hooks.told()
        same([m["event"] for m in told], ["pre-run", "pre-commit", "post-commit", "post-run", "post-fork", "post-rollback"])
        same({(m["store"], m["session"]) for m in told}, {(way.store, way.session)})
        with open(hooks.notes) as f:
            same(len(f.read().splitlines()), 6)


@line("D.63", "a hook that does not read its stdin, and one that prints, changes nothing")
def deaf(way: Way, t: Any) -> None:
    with Hooks(way, t) as hooks:
        for e in EVENTS:
            hooks.add(e, "exec <&-; echo noise")
        o = way.terminal(f"echo out; : {'x' * 100000}; echo 1 > f")
        same((o.ok, o.text, o.commit), (True, "out", way.head()))


@line("D.63", "a hook that hangs is killed at the limit of hooks/timeout, with what it started, and counts as failed", long=True)
def hangs(way: Way, t: Any) -> None:
    with apart(way, t) as w:
        w.terminal("true")
        with Hooks(w, t, whole=True) as store, Hooks(w, t) as hooks:
            with open(os.path.join(store.folder, "timeout"), "w") as f:
                f.write("1\n")
            hooks.add("pre-run", "sleep 64.3 & sleep 64.3")
            o = w.terminal("touch f")
            same(o.ok, False)
            holds(o.text, f"{hooks.folder}/pre-run ran longer than its limit of 1 s and was killed")
            same(subprocess.run(["pgrep", "-fx", "sleep 64.3"], capture_output=True, check=False).stdout, b"")
            hooks.add("pre-run", "exit 0")
            same(w.terminal("ls").text, "(no output)")
