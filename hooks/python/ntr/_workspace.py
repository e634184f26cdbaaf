"""A workspace: one session with a terminal, Python, files, a cache and a history."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ._aio import in_thread
from ._cache import Cache
from ._client import Control, inside
from ._commands import Command, CommandServer
from ._config import Echo, PythonConfig
from ._errors import IsolationUnavailable, NotSupportedError, SessionIdError, WorkspaceError
from ._executor import NtrExecutor, caller_environment
from ._files import Files, check_file
from ._frames import BytesLike, as_bytes
from ._lock import Turn
from ._protocols import (
    Capabilities,
    Executor,
    ExecutorFactory,
    OnOutput,
    PythonCode,
    Script,
    WorkspaceProvider,
)
from ._provider import NtrProvider, _null, require
from ._results import (
    Commit,
    EditOutcome,
    ImageResult,
    PythonResult,
    RollbackOutcome,
    TerminalResult,
    ToolResult,
    WriteOutcome,
    image_of,
)
from ._seam import Seam

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
OBSERVATION = 32_000
_FAILURES = {"file_write": "write", "file_edit": "edit"}  # as their texts begin, where that is not the tool's name
_SESSION = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SESSION_MAX = 200


def check_session(session: str) -> str:
    """Raise SessionIdError for what cannot be a session's name."""
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise SessionIdError(
            f"use session {session!r}",
            "a name has letters, digits, '_', '-' and '.', and does not begin with '.'",
            kind="usage",
        )
    if len(session) > _SESSION_MAX:
        raise SessionIdError(
            f"use session {session[:64]}…",
            f"its name has {len(session)} characters",
            f"a name has at most {_SESSION_MAX}",
            kind="usage",
        )
    return session


class Workspace:
    """One session. Made by ``ntr.workspace``; for any thread and any asyncio task.

    Calls of one session run one after another, in the order they came, each at most one commit; sessions do not wait for
    each other. What an agent does wrong is a result that is false; exceptions are for what no agent can put right.
    """

    def __init__(
        self,
        session: str,
        provider: WorkspaceProvider,
        *,
        python: PythonConfig,
        commands: Mapping[str, Command],
        autocheckpoint: bool,
        max_observation: int,
        executor_factory: ExecutorFactory | None,
        terminal_primer: str | None,
        python_primer: str | None,
    ) -> None:
        self._provider = provider
        self._python = python
        self._observation = max_observation
        self._factory = executor_factory
        self._primers = {"terminal": terminal_primer, "python": python_primer}
        self._seam = Seam(provider, session, Turn(self._is_nested), autocheckpoint)
        self._commands = CommandServer(self._store, session)
        for name, function in commands.items():
            self.register_command(name, function)
        self._executor: Executor = (
            executor_factory(provider, session) if executor_factory is not None else self._own_executor()
        )
        self.cache = Cache(self._seam)
        self.fs = Files(self._seam)

    def _own_executor(self) -> NtrExecutor:
        if not isinstance(self._provider, NtrProvider):
            raise NotSupportedError(
                "run code in a provider that is not ntr's", "ntr's executor cannot", "give executor_factory", kind="usage"
            )
        return NtrExecutor(self._provider, self.session, path_first=self._commands.path, python=self._python.python)

    # ---- about it

    @property
    def session(self) -> str:
        """The session's name."""
        return self._seam.session

    @property
    def caps(self) -> Capabilities:
        """What can be done with it."""
        return self._provider.caps

    @property
    def root(self) -> str:
        """The absolute path of its root, as its code sees it."""
        with self._seam.turn():
            return self._provider.root(self.session)

    @property
    def lock(self) -> Turn:
        """``with ws.lock:`` several calls in one piece, for this object's users."""
        return self._seam.lock

    @property
    def head(self) -> str:
        """The commit that the session is at."""
        return self.history(1)[0].id

    @property
    def dirty(self) -> bool:
        """Whether there is work that no commit has."""
        with self._seam.turn():
            return self._provider.dirty(self.session)

    @property
    def _store(self) -> str:
        return self._provider.store if isinstance(self._provider, NtrProvider) else f"provider {id(self._provider)}"

    def _is_nested(self) -> bool:
        return bool(inside(self._store, self.session))

    def __repr__(self) -> str:
        return f"<Workspace {self.session}{' (closed)' if self._seam.closed else ''}>"

    # ---- calls

    def terminal(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        checkpoint: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> TerminalResult:
        """Run a bash script. Files, working directory and exported variables stay for the next call.

        cwd and env are for this call only. checkpoint False: what it changes stays uncommitted. on_output gets what it
        prints while it runs.
        """
        return self._terminal(command, cwd, env, timeout, checkpoint, on_output, None)

    def _terminal(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
        checkpoint: bool | None,
        on_output: OnOutput | None,
        control: Control | None,
    ) -> TerminalResult:
        commit = self._seam.commits if checkpoint is None else checkpoint
        script = Script(command, cwd, env, timeout, commit, self._observation, on_output, control)
        with self._seam.turn(control):
            return self._executor.terminal(script)

    def run_python(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        echo: Echo | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        readonly: bool = False,
        checkpoint: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> PythonResult:
        """Run Python: a fresh process with the session's files, working directory and ``cache``.

        inputs binds data by name. namespace of the result has the plain top-level values. readonly: nothing of the
        session can be changed. timeout: instead of the configuration's.
        """
        return self._run_python(self._code(code, inputs, echo, env, timeout, readonly, checkpoint, on_output), None)

    def _code(
        self,
        code: str,
        inputs: Mapping[str, Any] | None,
        echo: Echo | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
        readonly: bool,
        checkpoint: bool | None,
        on_output: OnOutput | None,
    ) -> PythonCode:
        return PythonCode(
            code=code,
            config=self._python,
            inputs=inputs,
            echo=echo,
            env=env,
            timeout=timeout,
            readonly=readonly,
            commit=self._seam.commits if checkpoint is None else checkpoint,
            budget=self._observation,
            on_output=on_output,
        )

    def _run_python(self, code: PythonCode, control: Control | None) -> PythonResult:
        with self._seam.turn(control):
            return self._executor.run_python(replace(code, control=control))

    def exec_python(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        stdin: BytesLike | str | None = None,
        argv: Sequence[str] = (),
        echo: Echo = "none",
        readonly: bool = False,
        *,
        timeout: float | None = None,
    ) -> PythonResult:
        """Run Python without ``ws.lock`` and without a commit: the raw path, for programs that build on top.

        The session still runs one call at a time: it waits in line for one that is under way.
        """
        data = None if stdin is None else as_bytes(stdin)
        spec = PythonCode(
            code, self._python, inputs, argv, data, echo, None, None, timeout, readonly, False, self._observation
        )
        if self._seam.closed:
            raise ValueError(f"the workspace {self.session} is closed")
        return self._executor.run_python(spec)

    # ---- files

    def write_file(self, path: str, content: str) -> WriteOutcome:
        """Write a text file, with the directories that lead to it: the tool file_write."""
        wrong = _bad_text("write", path, content)
        if wrong:
            return WriteOutcome(wrong, None, False, path)
        with self._seam.turn():
            return self._provider.write_text(self.session, path, content, commit=self._seam.commits)

    def edit_file(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditOutcome:
        """Replace a text in a file: the tool file_edit."""
        wrong = _bad_text("edit", path, old_string, new_string)
        if wrong:
            return EditOutcome(wrong, None, False, path)
        with self._seam.turn():
            return self._provider.edit_text(
                self.session, path, old_string, new_string, replace_all=replace_all, commit=self._seam.commits
            )

    def view_image(self, path: str) -> ImageResult:
        """Read an image: the tool view_image."""
        wrong = _bad_text("view_image", path)
        if wrong:
            return ImageResult(wrong, None, False, path)
        with self._seam.turn():
            return self._provider.view_image(self.session, path)

    def put(self, path: str, data: BytesLike | str | os.PathLike[str], *, mode: int | None = None) -> str | None:
        """Write a file: bytes, text, or (a pathlib.Path) what that file of the host holds. Give the commit."""
        check_file(path)
        with self._seam.turn():
            commit = self._seam.commits
            if isinstance(data, os.PathLike):
                return self._put_file(path, data, mode)
            return self._provider.write(self.session, path, _content(data), mode=mode, commit=commit)

    def _put_file(self, path: str, source: os.PathLike[str], mode: int | None) -> str | None:
        with open(source, "rb") as f:
            if mode is None:
                mode = os.fstat(f.fileno()).st_mode & 0o777
            if isinstance(self._provider, NtrProvider):
                return self._provider.write_from(self.session, path, f.fileno(), mode=mode, commit=self._seam.commits)
            return self._provider.write(self.session, path, f.read(), mode=mode, commit=self._seam.commits)

    def get(self, path: str, *, at: str | Commit | None = None) -> bytes:
        """Read a file, as it is now or as a commit has it."""
        with self._seam.turn():
            return self._provider.read(self.session, path, None if at is None else str(at))

    # ---- commands

    def register_command(self, name: str, function: Command) -> None:
        """Offer a command to the session's shell: a real executable in PATH that calls function, from the next call on.

        function gets a CommandCall (args, stdin, cwd) and gives text or bytes to print, an exit code, a CommandResult or
        None. It runs in a thread of its own, while the call waits for it.
        """
        if not isinstance(self._provider, NtrProvider):
            raise NotSupportedError(f"register {name}", "this workspace's executor cannot", kind="usage")
        self._commands.register(name, function)

    def unregister_command(self, name: str) -> None:
        """Take a command away."""
        self._commands.unregister(name)

    # ---- history

    def checkpoint(self, message: str | None = None) -> Commit | None:
        """Commit what is not committed; None: there was nothing."""
        with self._seam.turn():
            return self._provider.checkpoint(self.session, message)

    def discard(self) -> None:
        """Drop what is not committed. Background processes end."""
        with self._seam.turn():
            self._provider.discard(self.session)

    def restore(self, commit: str | Commit) -> RollbackOutcome:
        """Move the head to a commit. The line that is left stays in the history."""
        with self._seam.turn():
            return self._provider.restore(self.session, str(commit))

    def rollback(self, steps: int = 1) -> RollbackOutcome:
        """Move the head back by steps."""
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ValueError(f"steps is {steps!r}: it has to be a whole number from 1 on")
        with self._seam.turn():
            return self._provider.rollback(self.session, steps)

    def history(self, limit: int | None = None) -> list[Commit]:
        """List the commits, the newest first."""
        with self._seam.turn():
            return self._provider.history(self.session, limit)

    def fork(self, name: str | None = None, *, at: str | Commit | None = None) -> Workspace:
        """Make a copy under a name of its own, at once whatever the size; neither changes the other."""
        name = check_session(name) if name is not None else f"{self.session[:80]}-{os.urandom(6).hex()}"
        with self._seam.turn():
            self._provider.fork(self.session, name, None if at is None else str(at))
        return Workspace(
            name,
            self._provider,
            python=self._python,
            commands=dict(self._commands.commands),
            autocheckpoint=self._seam.commits,
            max_observation=self._observation,
            executor_factory=self._factory,
            terminal_primer=self._primers["terminal"],
            python_primer=self._primers["python"],
        )

    def merge(self, *_: Any, **__: Any) -> None:
        """Not in this version: caps.merge is False."""
        require(self.caps, "merge")
        raise NotSupportedError("merge", "this version of the package cannot")

    def sql(self, *_: Any, **__: Any) -> None:
        """Not in this version: caps.sql_audit is False."""
        require(self.caps, "sql_audit")
        raise NotSupportedError("sql", "this version of the package cannot")

    @contextmanager
    def mount(self, where: str | os.PathLike[str], *, at: str | Commit | None = None) -> Iterator[str]:
        """Show the files at an existing directory of the host meanwhile: as they are now, or (at) read-only a commit's."""
        require(self.caps, "fuse_mount")
        if not isinstance(self._provider, NtrProvider):
            raise NotSupportedError("mount", "this workspace's provider cannot", kind="usage")
        from ._mounting import mount, umount

        target = os.path.abspath(where)
        what = self.session
        if at is not None:
            with self._seam.turn():
                what += f"@{self._provider.commit_id(what, str(at))}"
        mount(self._provider.store, what, target)
        try:
            yield target
        finally:
            umount(self._provider.store, target)

    # ---- for an agent loop

    def tools(self, mode: str = "auto", *, versions: bool = False) -> list[dict[str, Any]]:
        """Describe the tools for a model: name, description, inputSchema, with this workspace's primers in them.

        mode: auto, terminal (Python inside the shell only) or split (run_python of its own). versions adds history, diff,
        fork and rollback.
        """
        m = {
            "op": "tools",
            "session": self.session,
            "mode": mode,
            "versions": versions,
            "cache": self._python.cache,
            "network": self._python.network,
            "objects": list(self._python.host_objects),
            "modules": self._python.module_names(),
            "primers": {k: v for k, v in self._primers.items() if v},
        }
        return list(self._ntr("tools").client.request(m)["tools"])

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolResult:
        """Do what a model asked for, by the name of the tool. arguments may be the JSON text of them, as model APIs give it.

        A tool that is not there and arguments that do not fit are a result that is false.
        """
        args = _arguments(name, arguments)
        if isinstance(args, ToolResult):
            return args
        if name == "terminal" and set(args) == {"command"} and isinstance(args["command"], str):
            return _as_tool(self.terminal(args["command"]))
        if name == "run_python" and set(args) == {"code"} and isinstance(args["code"], str):
            return _as_tool(self.run_python(args["code"]))
        provider = self._ntr("call_tool")
        wrong = _bad_arguments(_FAILURES.get(name, name), args)
        if wrong:
            return ToolResult(wrong, None, False)
        try:
            with self._seam.turn():
                reply = provider.tool(self.session, name, args, no_commit=not self._seam.commits)
        except WorkspaceError as e:
            if e.kind == "usage" and e.why.startswith("there is no tool "):
                return ToolResult(e.why, None, False)
            raise
        return ToolResult(
            str(reply.get("text")), reply.get("commit"), not reply.get("is_error"), reply.get("structured") or {},
            image_of(reply) if reply.get("image") else None,
        )  # fmt: skip

    def _ntr(self, what: str) -> NtrProvider:
        if not isinstance(self._provider, NtrProvider):
            raise NotSupportedError(what, "this workspace's provider cannot", kind="usage")
        return self._provider

    # ---- async twins

    async def aterminal(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        checkpoint: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> TerminalResult:
        """Do terminal. Cancelling kills the call."""
        return await in_thread(lambda control: self._terminal(command, cwd, env, timeout, checkpoint, on_output, control))

    async def arun_python(
        self,
        code: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        echo: Echo | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        readonly: bool = False,
        checkpoint: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> PythonResult:
        """Do run_python. Cancelling kills the call; async methods of host objects run in this loop."""
        spec = self._code(code, inputs, echo, env, timeout, readonly, checkpoint, on_output)
        return await in_thread(lambda control: self._run_python(spec, control))

    async def awrite_file(self, path: str, content: str) -> WriteOutcome:
        """Do write_file."""
        return await self._later(lambda: self.write_file(path, content))

    async def aedit_file(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditOutcome:
        """Do edit_file."""
        return await self._later(lambda: self.edit_file(path, old_string, new_string, replace_all))

    async def aview_image(self, path: str) -> ImageResult:
        """Do view_image."""
        return await self._later(lambda: self.view_image(path))

    async def aput(self, path: str, data: BytesLike | str | os.PathLike[str], *, mode: int | None = None) -> str | None:
        """Do put."""
        return await self._later(lambda: self.put(path, data, mode=mode))

    async def aget(self, path: str, *, at: str | Commit | None = None) -> bytes:
        """Do get."""
        return await self._later(lambda: self.get(path, at=at))

    async def acheckpoint(self, message: str | None = None) -> Commit | None:
        """Do checkpoint."""
        return await self._later(lambda: self.checkpoint(message))

    async def adiscard(self) -> None:
        """Do discard."""
        await self._later(self.discard)

    async def arestore(self, commit: str | Commit) -> RollbackOutcome:
        """Do restore."""
        return await self._later(lambda: self.restore(commit))

    async def arollback(self, steps: int = 1) -> RollbackOutcome:
        """Do rollback."""
        return await self._later(lambda: self.rollback(steps))

    async def ahistory(self, limit: int | None = None) -> list[Commit]:
        """Do history."""
        return await self._later(lambda: self.history(limit))

    async def afork(self, name: str | None = None, *, at: str | Commit | None = None) -> Workspace:
        """Do fork."""
        return await self._later(lambda: self.fork(name, at=at))

    async def acall_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolResult:
        """Do call_tool. Cancelling kills a call."""
        args = _arguments(name, arguments)
        if isinstance(args, ToolResult):
            return args
        if name == "terminal" and set(args) == {"command"} and isinstance(args["command"], str):
            return _as_tool(await self.aterminal(args["command"]))
        if name == "run_python" and set(args) == {"code"} and isinstance(args["code"], str):
            return _as_tool(await self.arun_python(args["code"]))
        return await self._later(lambda: self.call_tool(name, args))

    @staticmethod
    async def _later(function: Callable[[], T]) -> T:
        """What is short is not cut off in the middle."""
        return await in_thread(lambda _: function())

    # ---- the end

    def close(self) -> None:
        """Give back what this object holds: commands and connections. The session stays, and what runs in it."""
        if self._seam.closed:
            return
        self._seam.closed = True
        self._commands.close()
        self._executor.close()

    async def aclose(self) -> None:
        """Do close."""
        self.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _content(data: BytesLike | str) -> bytes:
    try:
        return as_bytes(data)
    except TypeError:
        raise TypeError(
            f"put takes bytes (or bytearray, memoryview …), a str or a Path, not a {type(data).__name__}"
        ) from None


def _as_tool(result: TerminalResult) -> ToolResult:
    m = {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "truncated": result.truncated,
        "duration": result.duration,
        "commit": result.checkpoint,
    }
    if isinstance(result, PythonResult):
        m |= {"error": result.error, "ui": [{"name": a.name, "path": a.path} for a in result.ui]}
    return ToolResult(result.text, result.checkpoint, result.ok, m)


def _arguments(name: str, given: Any) -> dict[str, Any] | ToolResult:
    """What a model's call has for arguments; a result that is false where they are none."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    found, why = given, None
    if isinstance(given, str):
        import json

        try:
            found = json.loads(given)
        except ValueError as e:
            why = f"its arguments are no JSON: {e}"
        except RecursionError:
            why = "its arguments are nested too deeply"
    if why is None and not isinstance(found, Mapping):
        why = f"its arguments have to be a JSON object, not a {type(found).__name__}"
    elif why is None and not all(isinstance(key, str) for key in found):
        why = "the names of its arguments have to be texts"
    return dict(found) if why is None else ToolResult(f"{_FAILURES.get(name, name)} failed: {why}", None, False)


def _bad_arguments(what: str, args: Mapping[str, Any]) -> str | None:
    """Say what no frame can carry of what a model made up."""
    for key, value in args.items():
        for leaf in (key, *_leaves(value)):
            if (isinstance(leaf, int) and not -(2**63) <= leaf < 2**63) or (isinstance(leaf, float) and not isfinite(leaf)):
                return f"{what} failed: the argument '{key}' is out of range"
            wrong = _bad_text(what, leaf) if isinstance(leaf, str) else None
            if wrong:
                return wrong
    return None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _bad_text(what: str, *texts: str) -> str | None:
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"a str is needed, not a {type(text).__name__}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as e:
            return f"{what} failed: character {e.start} of a text is no valid Unicode (half of a surrogate pair)"
    return None


def workspace(
    session: str = "default",
    *,
    store: str | os.PathLike[str] | None = None,
    mounts: Mapping[str, str | os.PathLike[str]] | None = None,
    python: PythonConfig | None = None,
    commands: Mapping[str, Command] | None = None,
    cache: bool = True,
    autocheckpoint: bool = True,
    max_observation: int = OBSERVATION,
    root: str | None = None,
    rung: str | None = None,
    provider: WorkspaceProvider | None = None,
    executor_factory: ExecutorFactory | None = None,
    terminal_primer: str | None = None,
    python_primer: str | None = None,
) -> Workspace:
    """Open a session, making it on first use; the daemon is started where none runs.

    store: the store's directory; else $NTR_STORE, else the user's own. mounts: {point: host directory}, read-only, or
    "DIR:rw". python: what agent code may do. commands: functions offered to the shell. cache False: agent code gets none.
    autocheckpoint False: calls do not commit, ``checkpoint`` does. max_observation: characters of a stream that an agent
    gets to see. root: the root's absolute path, of a new session. rung: the boundary; what is not built raises
    IsolationUnavailable. provider, executor_factory: where state lives and code runs, instead of ntr's own.
    terminal_primer, python_primer: your words for the tools' descriptions.
    """
    check_session(session)
    if not isinstance(max_observation, int) or not 1 <= max_observation <= 4 << 20:
        raise ValueError(f"max_observation is {max_observation!r}: it has to be from 1 to {4 << 20}")
    if rung not in (None, "none"):
        raise IsolationUnavailable(
            f"open a workspace on the rung {rung!r}",
            "this version has the rung none only, which is no boundary",
            "leave rung out, or run the whole program inside a container or VM",
            kind="isolation",
        )
    config = python if python is not None else PythonConfig()
    if not cache:
        config = replace(config, cache=False)
    if provider is None:
        provider = NtrProvider(store, mounts=mounts)
    elif mounts:
        raise NotSupportedError("mount host directories", "this provider cannot", kind="usage")
    _open(provider, session, root)
    ws = Workspace(
        session,
        provider,
        python=config,
        commands=commands or {},
        autocheckpoint=autocheckpoint,
        max_observation=max_observation,
        executor_factory=executor_factory,
        terminal_primer=terminal_primer,
        python_primer=python_primer,
    )
    if executor_factory is None and (config.isolation != "none" or not config.network):
        _prove(ws, config)
    return ws


def _open(provider: WorkspaceProvider, session: str, root: str | None) -> None:
    try:
        provider.open(session, root=root)
    except WorkspaceError as e:
        if e.kind == "usage" and "session name" in f"{e.what} {e.why}":
            raise SessionIdError(e.what, e.why, e.todo, kind=e.kind, errno=e.errno) from None
        raise


def _prove(ws: Workspace, config: PythonConfig) -> None:
    """What the settings ask for is there, or opening fails: it is never found out in the middle of the work."""
    provider = ws._ntr("isolation")
    m = {"op": "py", "session": ws.session, "code": "", "capture": True, "no_commit": True, "env": caller_environment()}
    provider.client.request({**m, **config.to_wire()}, [_null()])


def sessions(store: str | os.PathLike[str] | None = None) -> list[Any]:
    """List a store's sessions."""
    return NtrProvider(store).sessions()


def delete(session: str, *, store: str | os.PathLike[str] | None = None) -> None:
    """Remove a session with its uncommitted work; its forks stay."""
    check_session(session)
    NtrProvider(store).delete(session)
