"""ntr's own executor: calls in a session, through its daemon."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from ._client import Control
from ._config import check_timeout
from ._frames import Connection, as_bytes, from_wire, to_wire
from ._protocols import OnOutput, PythonCode, Script
from ._provider import NtrProvider, _fill, _null
from ._results import PythonResult, TerminalResult, python_of, terminal_of

# What is this program's business and not the call's: ntr's own variables, and what a shell keeps about itself.
_PRIVATE = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})


def caller_environment() -> list[Any]:
    """Give this program's environment as a call gets it."""
    found = []
    for name, value in os.environb.items():
        text = os.fsdecode(name)
        if text and text not in _PRIVATE and not text.startswith("NTR_"):
            found.append(to_wire(name + b"=" + value))
    return found


class NtrExecutor:
    """Runs a session's code where its daemon runs.

    path_first gives a directory for PATH, or None; python is the interpreter that the shell's `python3` is, too.
    """

    def __init__(
        self,
        provider: NtrProvider,
        session: str,
        *,
        path_first: Callable[[], str | None] = lambda: None,
        python: str | None = None,
    ) -> None:
        self.provider = provider
        self.session = session
        self.path_first = path_first
        self.python = python

    def _call(self, spec: Script | PythonCode) -> dict[str, Any]:
        m: dict[str, Any] = {
            "session": self.session,
            "env": caller_environment(),
            "budget": spec.budget,
            "no_commit": not spec.commit,
        }
        if spec.env:
            m["set_env"] = [to_wire(_setting(k, v)) for k, v in spec.env.items()]
        if spec.cwd is not None:
            m["cwd"] = to_wire(spec.cwd)
        limit = check_timeout(spec.timeout)
        if limit is not None and limit != inf:
            m["timeout"] = limit
        elif limit is not None and isinstance(spec, PythonCode):
            m["timeout"] = 0  # no limit, which a script has anyway
        if spec.on_output is not None:
            m["stream"] = True
        folder = self.path_first()
        if folder is not None:
            m["path_first"] = to_wire(folder)
        if self.python is not None:
            m["python"] = self.python
        return m

    def terminal(self, script: Script) -> TerminalResult:
        """Run a bash script in the session."""
        wrong = _not_text("terminal", script.command)
        if wrong:
            return terminal_of(wrong, True, {})
        m = {"op": "tool", "name": "terminal", "args": {"command": script.command}, **self._call(script)}
        reply = self._request(m, (), script.on_output, None, script.control)
        return terminal_of(str(reply["text"]), bool(reply.get("is_error")), reply.get("structured") or {})

    def run_python(self, code: PythonCode) -> PythonResult:
        """Run Python in the session."""
        wrong = _not_text("run_python", code.code)
        if wrong:
            return python_of(wrong, True, {})
        m = {**code.config.to_wire(), **self._call(code), **self._python(code)}
        answerer = None
        if code.config.host_objects:
            from ._hostobjects import Answerer

            answerer = Answerer(code.config.host_objects, self.provider.store, self.session, code.readonly)
        if code.stdin is None and not code.argv:
            m = {"op": "tool", "name": "run_python", "args": {"code": code.code}, **m}
            reply = self._request(m, (), code.on_output, answerer, code.control)
            return python_of(str(reply["text"]), bool(reply.get("is_error")), reply.get("structured") or {})
        m = {"op": "py", "code": code.code, "capture": True, "render": True, **m}
        fd = _null() if code.stdin is None else os.memfd_create("ntr-stdin", os.MFD_CLOEXEC)
        try:
            if code.stdin is not None:
                _fill(fd, [as_bytes(code.stdin)])
            reply = self._request(m, (fd,), code.on_output, answerer, code.control)
        finally:
            if code.stdin is not None:
                os.close(fd)
        return python_of(str(reply["text"]), bool(reply.get("is_error")), reply)

    def _python(self, code: PythonCode) -> dict[str, Any]:
        m: dict[str, Any] = {}
        if code.inputs:
            from ._values import EncodeError, encode

            try:
                m["inputs"] = {str(k): encode(v) for k, v in code.inputs.items()}
            except EncodeError as e:
                raise TypeError(f"an input cannot be handed over: {e}") from None
        if code.config.host_objects:
            from ._hostobjects import to_wire as objects_to_wire

            m["objects"] = objects_to_wire(code.config.host_objects)
        if code.argv:
            m["argv"] = [to_wire(x) for x in code.argv]
        if code.echo is not None:
            m["echo"] = code.echo
        if code.readonly:
            m["readonly"] = True
        return m

    def _request(
        self,
        m: Mapping[str, Any],
        fds: tuple[int, ...],
        on_output: OnOutput | None,
        answerer: Any,
        control: Control | None,
    ) -> dict[str, Any]:
        def event(frame: dict[str, Any], conn: Connection) -> None:
            kind = frame["event"]
            if kind == "output" and on_output is not None:
                on_output(str(frame.get("stream")), from_wire(frame.get("data")).decode("utf-8", "replace"))
            elif kind == "object" and answerer is not None:
                answerer.answer(frame, conn)

        try:
            return self.provider.client.request(m, fds, on_event=event, control=control)
        finally:
            if answerer is not None:
                answerer.close()

    def close(self) -> None:
        """Nothing is held."""


def _setting(name: str, value: str) -> str:
    if not isinstance(name, str) or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot be the name of a variable")
    text = f"{name}={value}"
    if "\0" in text:
        raise ValueError(f"the value of the variable {name} holds a NUL")
    return text


def _not_text(tool: str, text: str) -> str | None:
    """Say what is wrong with code that no frame can carry; a NUL the daemon itself refuses."""
    if not isinstance(text, str):
        raise TypeError(f"{tool} takes a str, not a {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        return f"{tool} failed: character {e.start} is no valid Unicode (half of a surrogate pair)"
    return None
