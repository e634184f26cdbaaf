"""Three ways into one session, with one interface: the command line, the MCP server, the Python package.

Each way does what its users do, so that a row of a table can be written once and hold for all of them. What a way has no
means for raises Unavailable; what ntr itself refuses raises WayError; what a call says is an Outcome, also when it failed.
The programs are those in $NTR_BIN, the package is that of this tree.
"""

from __future__ import annotations

import ast
import base64
import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PACKAGE = os.path.join(TREE, "hooks", "python")
if PACKAGE not in sys.path:
    sys.path.insert(0, PACKAGE)
BIN = os.path.abspath(os.environ.get("NTR_BIN") or os.path.join(TREE, "build", "release", "cli"))
NTR = os.path.join(BIN, "ntr")
LIMIT_S = 60.0
# As where ntr is installed: the package finds it, and agents can use it in their shell.
os.environ["NTR_BIN"] = BIN
os.environ["PATH"] = BIN + os.pathsep + os.environ.get("PATH", os.defpath)


class Unavailable(Exception):
    """This way has no means for it."""


class WayError(Exception):
    """ntr refused. code: the exit status, the code of a JSON-RPC error, or the name of the exception's class."""

    def __init__(self, text: str, code: Any = None) -> None:
        super().__init__(f"[{code}] {text}")
        self.text = text
        self.code = code


@dataclass
class Outcome:
    """What a call gave. text is what an agent reads. data has the members as the way gives them, raw its whole answer."""

    ok: bool
    text: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    error: str | None = None
    truncated: bool | None = None
    timed_out: bool | None = None
    duration: float | None = None
    commit: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    raw: Any = None


def run_ntr(
    *args: str | bytes,
    store: str,
    stdin: bytes | str | None = None,
    env: dict[str, str] | None = None,
    timeout: float = LIMIT_S,
) -> subprocess.CompletedProcess[bytes]:
    """Runs the program ntr; gives subprocess's CompletedProcess, with bytes."""
    return subprocess.run(
        [NTR, *args],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env=environment(store, env),
        timeout=timeout,
        check=False,
    )


def environment(store: str, more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a program that works in this store."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NTR_")}
    kept = {k: v for k, v in os.environ.items() if k.startswith("NTR_") and k not in ("NTR_SESSION", "NTR_CALL", "NTR_BIN")}
    return {**env, **kept, "NTR_STORE": store, **(more or {})}


def members(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of an Outcome that are there under the same name."""
    names = ("stdout", "stderr", "exit_code", "error", "truncated", "timed_out", "duration", "commit")
    return {k: data[k] for k in names if k in data}


class Way:
    """One session of one store. Options: mounts={POINT: "DIR[:rw]"}, python=PATH, autocommit=bool, env={NAME: VALUE} and
    cwd (of every call), timeout (of every call), and what only some ways have: root, from_, durability, cache, modules,
    tools; package (further arguments of ntr.workspace), config (of PythonConfig), environ (of the way's own process).
    Nothing is started before the first use; open() does it at once.
    """

    name = "?"
    known: tuple[str, ...] = ()

    def __init__(self, store: str, session: str, **options: Any) -> None:
        self.store = store
        self.session = session
        self.options = options
        self.made: list[Way] = []
        for k, v in options.items():
            if k not in self.known and not (k == "autocommit" and v):
                raise Unavailable(f"{self.name} has no {k}")

    # ---- what every way has, or raises Unavailable for

    def open(self) -> Way:
        """Makes the session, where that is not done by the first use."""
        return self

    def terminal(self, command: str, timeout: float | None = None, **kw: Any) -> Outcome:
        raise Unavailable("terminal")

    def run_python(self, code: str, **kw: Any) -> Outcome:
        raise Unavailable("run_python")

    def tool(self, name: str, /, **args: Any) -> Outcome:
        """A tool by its name, with arguments as they come."""
        raise Unavailable("tool")

    def tools(self) -> list[dict[str, Any]]:
        """Name, description and inputSchema of the tools."""
        raise Unavailable("tools")

    def file_write(self, path: str, content: str) -> Outcome:
        return self.tool("file_write", path=path, content=content)

    def file_edit(self, path: str, old: str, new: str, replace_all: bool = False) -> Outcome:
        more = {"replace_all": True} if replace_all else {}
        return self.tool("file_edit", path=path, old_string=old, new_string=new, **more)

    def view_image(self, path: str) -> Outcome:
        """data has mime and data (the bytes) of the image."""
        raise Unavailable("view_image")

    def read(self, path: str, at: str | None = None) -> bytes:
        """A file as it is now, never waiting; at: of a commit."""
        raise Unavailable("read")

    def cache_get(self, key: str) -> Any:
        raise Unavailable("cache_get")

    def cache_set(self, key: str, value: Any) -> str | None:
        """Gives the commit."""
        raise Unavailable("cache_set")

    def cache_keys(self) -> list[str]:
        raise Unavailable("cache_keys")

    def history(self) -> list[dict[str, Any]]:
        """The commits, newest first: commit, parents, session, seq, time, changes, tool and all else of the description."""
        raise Unavailable("history")

    def diff(self, a: str = "~1", b: str = "HEAD", path: str | None = None) -> str:
        """A patch."""
        args = {"from": a, "to": b, **({"path": path} if path else {})}
        return self.tool("diff", **args).text or ""

    def fork(self, name: str, at: str | None = None) -> Way:
        raise Unavailable("fork")

    def rollback(self, steps: int = 1, commit: str | None = None) -> Outcome:
        raise Unavailable("rollback")

    def commit(self, message: str | None = None) -> str | None:
        """Commits what is not committed; None: there was nothing."""
        raise Unavailable(f"{self.name} has no commit")

    def discard(self) -> None:
        raise Unavailable(f"{self.name} has no discard")

    def dirty(self) -> bool:
        raise Unavailable(f"{self.name} has no status")

    def close(self) -> None:
        for w in self.made:
            w.close()
        self.made = []

    # ---- made of those

    def head(self) -> str:
        return str(self.history()[0]["commit"])

    def again(self, session: str | None = None, **options: Any) -> Way:
        """Another one of this way: of the same session, as somebody else would open it."""
        w = type(self)(self.store, self.session if session is None else session, **options)
        self.made.append(w)
        return w


# ---- the command line


class Cli(Way):
    """The program ntr, once for each call. session None: without -s."""

    name = "cli"
    known = (
        "mounts", "python", "autocommit", "env", "cwd", "timeout", "root", "from_", "durability", "modules", "memory_mb", "environ",
    )  # fmt: skip

    def __init__(self, store: str, session: str, **options: Any) -> None:
        super().__init__(store, session, **options)
        self._opened = False

    def open(self) -> Way:
        """With ntr new where there are options for it and the session is not there; else nothing is to be done."""
        self._opened = True
        args = [f"--{k.rstrip('_')}={self.options[k]}" for k in ("from_", "root", "durability") if k in self.options]
        if args:
            self.ntr("new", *args, *self._mounts(), "--", self.session)
        return self

    def _mounts(self) -> list[str]:
        return [f"--mount={k}={v}" for k, v in (self.options.get("mounts") or {}).items()]

    def raw(self, *args: str | bytes, stdin: bytes | str | None = None, timeout: float = LIMIT_S):
        """Runs ntr; what it gives, whatever it is: returncode, stdout, stderr as bytes."""
        if not self._opened:
            self.open()
        return run_ntr(*args, store=self.store, stdin=stdin, env=self.options.get("environ"), timeout=timeout)

    def ntr(self, *args: str, stdin: bytes | str | None = None, good: tuple[int, ...] = (0,)) -> str:
        """Runs ntr; gives what it prints, or raises WayError."""
        p = self.raw(*args, stdin=stdin)
        if p.returncode not in good:
            raise WayError(p.stderr.decode("utf-8", "replace").strip(), p.returncode)
        return p.stdout.decode("utf-8", "replace")

    def _s(self, at: str | None = None) -> list[str]:
        return ["-s", self.session if at is None else f"{self.session}@{at}"]

    def _calls(self, timeout: float | None, kw: dict[str, Any]) -> list[str]:
        o = {**self.options, **kw, **({"timeout": timeout} if timeout is not None else {})}
        env = [f"--env={k}={v}" for k, v in (o.get("env") or {}).items()]
        return [*self._mounts(), *env, *[f"--{k}={o[k]}" for k in ("cwd", "timeout") if o.get(k) is not None]]

    def _answer(self, p: Any) -> dict[str, Any]:
        """The JSON of a call; without any, ntr itself has failed."""
        try:
            return json.loads(p.stdout)
        except ValueError:
            raise WayError(p.stderr.decode("utf-8", "replace").strip(), p.returncode) from None

    def terminal(self, command: str, timeout: float | None = None, via: str = "tool", **kw: Any) -> Outcome:
        """via: "tool" (ntr tool terminal, with the agent's text) or "run" (ntr run -c; no text). kw: env, cwd, autocommit."""
        off = not kw.pop("autocommit", self.options.get("autocommit", True))
        if via == "tool" and not off:
            return self._tool("terminal", {"command": command}, self._calls(timeout, kw))
        return self.run("-c", command, timeout=timeout, autocommit=not off, **kw)

    def run(
        self, *args: str, timeout: float | None = None, autocommit: bool = True, stdin: Any = None, **kw: Any
    ) -> Outcome:
        """ntr run --json."""
        off = [] if autocommit else ["--no-commit"]
        p = self.raw("run", *self._s(), "--json", *off, *self._calls(timeout, kw), *args, stdin=stdin)
        m = self._answer(p)
        return Outcome(m["exit_code"] == 0, **{**members(m), "exit_code": p.returncode}, data=m, raw=p)

    def run_python(self, code: str, timeout: float | None = None, **kw: Any) -> Outcome:
        """ntr py --json; text is that of --render, in a call of its own, only with render=True. render="tool": ntr tool
        run_python, with text and all else in one call. kw: inputs, echo, argv, stdin, memory_mb, readonly, modules, env,
        cwd, autocommit.
        """
        kw = {**{k: self.options[k] for k in ("python", "modules", "autocommit", "memory_mb") if k in self.options}, **kw}
        if kw.pop("render", "tool") == "tool" and not kw.keys() - {"env", "cwd"}:
            return self._tool("run_python", {"code": code}, self._calls(timeout, kw))
        args = [f"--input={k}={json.dumps(v)}" for k, v in kw.pop("inputs", {}).items()]
        args += [f"--preload={m}" for m in kw.pop("modules", ())]
        for k, flag in (("echo", "echo"), ("python", "python"), ("memory_mb", "memory")):
            v = kw.pop(k, None)
            args += [f"--{flag}={v}"] if v is not None else []
        args += ["--readonly"] if kw.pop("readonly", False) else []
        args += [] if kw.pop("autocommit", True) else ["--no-commit"]
        argv, stdin = list(kw.pop("argv", ())), kw.pop("stdin", None)
        args = ["py", *self._s(), *args, *self._calls(timeout, kw)]
        p = self.raw(*args, "--json", "-c", code, *argv, stdin=stdin)
        m = self._answer(p)
        return Outcome(p.returncode == 0, **{**members(m), "exit_code": p.returncode}, data=m, raw=p)

    def tool(self, name: str, /, **args: Any) -> Outcome:
        return self._tool(name, args, [])

    def _tool(self, name: str, args: dict[str, Any], flags: list[str]) -> Outcome:
        p = self.raw("tool", *self._s(), "--json", *flags, name, "-", stdin=json.dumps(args))
        m = self._answer(p)
        data = m.get("structured") or {}
        got = {**members(data), "commit": m.get("commit")}
        return Outcome(not m["is_error"], text=m["text"], **got, data=data, raw=m)

    def tools(self) -> list[dict[str, Any]]:
        listed = [json.loads(x) for x in self.ntr("tool", *self._s(), "--json").splitlines()]
        return listed[0]["tools"] if len(listed) == 1 and "tools" in listed[0] else listed

    def view_image(self, path: str) -> Outcome:
        o = self.tool("view_image", path=path)
        image = o.raw.get("image")
        if image:
            o.data = {**o.data, "mime": image["mime"], "data": base64.b64decode(image["b64"])}
        return o

    def read(self, path: str, at: str | None = None) -> bytes:
        p = self.raw("cat", *self._s(at), "--", path)
        if p.returncode:
            raise WayError(p.stderr.decode("utf-8", "replace").strip(), p.returncode)
        return p.stdout

    def cache_get(self, key: str) -> Any:
        from ntr._values import decode

        return decode(json.loads(self.ntr("cache", "get", *self._s(), "--json", "--", key)))

    def cache_set(self, key: str, value: Any) -> str | None:
        from ntr._values import encode

        return json.loads(self.ntr("cache", "set", *self._s(), "--json", "--", key, "-", stdin=json.dumps(encode(value))))[
            "commit"
        ]

    def cache_keys(self) -> list[str]:
        return json.loads(self.ntr("cache", "ls", *self._s(), "--json"))["keys"]

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(x) for x in self.ntr("log", *self._s(), "--json").splitlines()]

    def diff(self, a: str = "~1", b: str = "HEAD", path: str | None = None) -> str:
        return self.ntr("diff", *self._s(), a, b, *(["--", path] if path else []), good=(0, 1))

    def fork(self, name: str, at: str | None = None) -> Way:
        self.ntr("fork", self.session if at is None else f"{self.session}@{at}", name)
        kept = {k: v for k, v in self.options.items() if k not in ("root", "from_", "durability", "mounts")}
        return self.again(name, **kept)

    def rollback(self, steps: int = 1, commit: str | None = None) -> Outcome:
        where = [commit] if commit is not None else ["--steps", str(steps)]
        m = json.loads(self.ntr("rollback", *self._s(), "--json", *where))
        return Outcome(True, commit=m["to"]["commit"], data=m, raw=m)

    def commit(self, message: str | None = None) -> str | None:
        return json.loads(self.ntr("commit", *self._s(), "--json", *(["-m", message] if message is not None else [])))[
            "commit"
        ]

    def discard(self) -> None:
        self.ntr("discard", *self._s())

    def dirty(self) -> bool:
        m = json.loads(self.ntr("status", *self._s(), "--json"))
        return bool(m["changes"] or m["state_changed"])


# ---- the MCP server


class Mcp(Way):
    """ntr mcp over stdin and stdout, by a client as small as can be. With --versions unless versions=False."""

    name = "mcp"
    known = ("mounts", "python", "env", "cwd", "timeout", "cache", "modules", "tools", "versions", "environ", "revision")

    def __init__(self, store: str, session: str, **options: Any) -> None:
        super().__init__(store, session, **options)
        self._p: subprocess.Popen[bytes] | None = None
        self._ids = itertools.count(1)
        self._answers: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []
        self._cond = threading.Condition()
        self._starting = threading.Lock()

    def open(self) -> Way:
        with self._starting:
            if self._p is None:
                self._start()
        return self

    def _argv(self) -> list[str]:
        o = self.options
        argv = [NTR, "mcp", *(["-s", self.session] if self.session is not None else []), "--store", self.store]
        argv += [f"--mount={k}={v}" for k, v in (o.get("mounts") or {}).items()]
        argv += [f"--env={k}={v}" for k, v in (o.get("env") or {}).items()]
        argv += [f"--{k}={o[k]}" for k in ("cwd", "timeout", "python", "tools") if o.get(k) is not None]
        argv += [f"--module={m}" for m in o.get("modules", ())]
        argv += [] if o.get("cache", True) else ["--no-cache"]
        argv += ["--versions"] if o.get("versions", True) else []
        return argv

    def _start(self) -> None:
        self._p = subprocess.Popen(
            self._argv(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.store, self.options.get("environ")),
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.hello = self._ask(
            "initialize",
            {
                "protocolVersion": self.options.get("revision", "2025-11-25"),
                "capabilities": {},
                "clientInfo": {"name": "table", "version": "1"},
            },
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _listen(self) -> None:
        assert self._p is not None and self._p.stdout is not None
        for line in self._p.stdout:
            m = json.loads(line)
            with self._cond:
                if "method" in m:
                    self.notes.append(m)
                else:
                    self._answers[json.dumps(m.get("id"))] = m
                self._cond.notify_all()
        with self._cond:
            self._answers["end"] = True
            self._cond.notify_all()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._p is not None and self._p.stdin is not None
        try:
            self._p.stdin.write(json.dumps(message).encode() + b"\n")
            self._p.stdin.flush()
        except BrokenPipeError:
            pass  # why is on stderr, which wait() tells

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Asks and does not wait; gives the id for wait()."""
        self.open()
        return self._asked(method, params)

    def _asked(self, method: str, params: dict[str, Any] | None) -> int:
        number = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return number

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.open()
        self._send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def wait(self, number: int, timeout: float = LIMIT_S) -> Any:
        key = json.dumps(number)
        with self._cond:
            if not self._cond.wait_for(lambda: key in self._answers or "end" in self._answers, timeout):
                raise TimeoutError(f"no answer to request {number} within {timeout:g} s")
            m = self._answers.pop(key, None)
        if m is None:
            raise self._died()
        if "error" in m:
            raise WayError(m["error"]["message"], m["error"]["code"])
        return m["result"]

    def _died(self) -> WayError:
        assert self._p is not None and self._p.stderr is not None
        said = self._p.stderr.read().decode("utf-8", "replace").strip()
        return WayError(said, self._p.wait(LIMIT_S))

    def _ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self.wait(self._asked(method, params))

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        self.open()
        return self._ask(method, params)

    def tool(self, name: str, /, **args: Any) -> Outcome:
        r = self.ask("tools/call", {"name": name, "arguments": args})
        data = r.get("structuredContent") or {}
        texts = [c["text"] for c in r["content"] if c["type"] == "text"]
        return Outcome(not r.get("isError"), text=texts[0] if texts else None, **members(data), data=data, raw=r)

    def _call(self, tool: str, args: dict[str, Any], timeout: float | None, kw: dict[str, Any]) -> Outcome:
        if timeout is not None and timeout != self.options.get("timeout"):
            raise Unavailable("mcp has no timeout of one call: give the option timeout")
        if not kw.pop("autocommit", True):
            raise Unavailable("mcp has no autocommit")
        if kw:
            raise Unavailable(f"mcp has no {', '.join(kw)} of one call")
        return self.tool(tool, **args)

    def terminal(self, command: str, timeout: float | None = None, **kw: Any) -> Outcome:
        kw.pop("via", None)
        return self._call("terminal", {"command": command}, timeout, kw)

    def run_python(self, code: str, timeout: float | None = None, **kw: Any) -> Outcome:
        kw.pop("render", None)
        return self._call("run_python", {"code": code}, timeout, kw)

    def tools(self) -> list[dict[str, Any]]:
        return self.ask("tools/list")["tools"]

    def view_image(self, path: str) -> Outcome:
        o = self.tool("view_image", path=path)
        for c in o.raw["content"]:
            if c["type"] == "image":
                o.data = {**o.data, "mime": c["mimeType"], "data": base64.b64decode(c["data"])}
        return o

    def read(self, path: str, at: str | None = None) -> bytes:
        if at is not None:
            raise Unavailable("mcp reads no file of a commit")
        c = self.ask("resources/read", {"uri": "workspace://" + urllib.parse.quote(path, safe="/")})["contents"][0]
        return c["text"].encode() if "text" in c else base64.b64decode(c["blob"])

    def _python(self, code: str) -> Outcome:
        o = self.run_python(code)
        if not o.ok:
            raise WayError(o.text or "", o.exit_code)
        return o

    def cache_get(self, key: str) -> Any:
        """By what an agent has: Python."""
        return ast.literal_eval((self._python(f"print(repr(cache[{key!r}]))").text or "").strip())

    def cache_set(self, key: str, value: Any) -> str | None:
        return self._python(f"cache[{key!r}] = {value!r}").commit

    def cache_keys(self) -> list[str]:
        return ast.literal_eval((self._python("print(list(cache))").text or "").strip())

    def history(self) -> list[dict[str, Any]]:
        return self.tool("history", limit=1000).data["commits"]

    def fork(self, name: str, at: str | None = None) -> Way:
        o = self.tool("fork", name=name, **({"from": at} if at is not None else {}))
        if not o.ok:
            raise WayError(o.text or "", None)
        return self.again(name, **{k: v for k, v in self.options.items() if k != "mounts"})

    def rollback(self, steps: int = 1, commit: str | None = None) -> Outcome:
        o = self.tool("rollback", **({"commit": commit} if commit is not None else {"steps": steps}))
        if not o.ok:
            raise WayError(o.text or "", None)
        return o

    def close(self) -> None:
        super().close()
        p, self._p = self._p, None
        if p is None:
            return
        assert p.stdin is not None and p.stdout is not None and p.stderr is not None
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass
        try:
            p.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise
        finally:
            p.stderr.close()


# ---- the Python package


def _plain(value: Any) -> Any:
    """A result's members as the other ways give them."""
    if hasattr(value, "__dataclass_fields__"):
        return {k: _plain(getattr(value, k)) for k in value.__dataclass_fields__}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


class Package(Way):
    """ntr.workspace(...) in this process. ws is the Workspace."""

    name = "package"
    known = (
        "mounts", "python", "autocommit", "env", "cwd", "timeout", "root", "cache", "modules", "memory_mb", "package", "config",
    )  # fmt: skip

    def __init__(self, store: str, session: str, **options: Any) -> None:
        super().__init__(store, session, **options)
        if sys.version_info < (3, 10):
            raise Unavailable("the package needs Python 3.10")
        self._ws: Any = None
        self._starting = threading.Lock()

    def open(self) -> Way:
        _ = self.ws
        return self

    @property
    def ws(self) -> Any:
        with self._starting:
            if self._ws is None:
                self._ws = self._refusing(self._make)
        return self._ws

    def _make(self) -> Any:
        import ntr

        o = self.options
        config = dict(o.get("config") or {})
        config.update(
            {
                new: o[k]
                for k, new in (("python", "python"), ("modules", "preload"), ("memory_mb", "memory_limit_mb"))
                if k in o
            }
        )
        more = {k: o[k] for k in ("mounts", "root", "cache") if k in o}
        if "autocommit" in o:
            more["autocheckpoint"] = o["autocommit"]
        python = ntr.PythonConfig(**config)
        return ntr.workspace(self.session, store=self.store, python=python, **more, **(o.get("package") or {}))

    @staticmethod
    def _refusing(function: Any) -> Any:
        """An exception of the package's is a refusal; what it means is its class."""
        try:
            return function()
        except (OSError, ValueError, LookupError, TypeError, RuntimeError) as e:
            raise WayError(str(e), type(e).__name__) from e
        except Exception as e:
            import ntr

            if not isinstance(e, ntr.WorkspaceError):
                raise
            raise WayError(str(e), type(e).__name__) from e

    def _outcome(self, r: Any) -> Outcome:
        data = _plain(r)
        data["commit"] = data.get("checkpoint")
        return Outcome(r.ok, text=r.text, **members(data), data=data, raw=r)

    def _options(self, timeout: float | None, kw: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        more = {k: v for k, v in {**self.options, **kw}.items() if k in names}
        if timeout is not None:
            more["timeout"] = timeout
        if "autocommit" in kw:
            more["checkpoint"] = kw["autocommit"]
        left = kw.keys() - {*names, "autocommit", "via", "render"}
        if left:
            raise Unavailable(f"the package has no {', '.join(sorted(left))} of one call")
        return more

    def terminal(self, command: str, timeout: float | None = None, **kw: Any) -> Outcome:
        more = self._options(timeout, kw, ("env", "cwd", "timeout"))
        return self._outcome(self._refusing(lambda: self.ws.terminal(command, **more)))

    def run_python(self, code: str, timeout: float | None = None, **kw: Any) -> Outcome:
        more = self._options(timeout, kw, ("env", "timeout", "inputs", "echo", "readonly"))
        return self._outcome(self._refusing(lambda: self.ws.run_python(code, **more)))

    def tool(self, name: str, /, **args: Any) -> Outcome:
        r = self._refusing(lambda: self.ws.call_tool(name, args))
        data = dict(r.structured)
        got = {**members(data), "commit": r.checkpoint}
        return Outcome(r.ok, text=r.text, **got, data=data, raw=r)

    def tools(self) -> list[dict[str, Any]]:
        return self._refusing(lambda: self.ws.tools(versions=True))

    def file_write(self, path: str, content: str) -> Outcome:
        return self._outcome(self._refusing(lambda: self.ws.write_file(path, content)))

    def file_edit(self, path: str, old: str, new: str, replace_all: bool = False) -> Outcome:
        return self._outcome(self._refusing(lambda: self.ws.edit_file(path, old, new, replace_all)))

    def view_image(self, path: str) -> Outcome:
        return self._outcome(self._refusing(lambda: self.ws.view_image(path)))

    def read(self, path: str, at: str | None = None) -> bytes:
        return self._refusing(lambda: self.ws.get(path, at=at))

    def cache_get(self, key: str) -> Any:
        return self._refusing(lambda: self.ws.cache[key])

    def cache_set(self, key: str, value: Any) -> str | None:
        return self._refusing(lambda: self.ws.cache.set(key, value))

    def cache_keys(self) -> list[str]:
        return self._refusing(lambda: list(self.ws.cache))

    def history(self) -> list[dict[str, Any]]:
        rows = []
        for c in self._refusing(lambda: self.ws.history()):
            row = _plain(c)
            description = dict(row.pop("description"))
            rows.append({"commit": row.pop("id"), **row, **description})
        return rows

    def fork(self, name: str, at: str | None = None) -> Way:
        made = self._refusing(lambda: self.ws.fork(name, at=at))
        w = self.again(name, **{k: v for k, v in self.options.items() if k not in ("root", "mounts")})
        assert isinstance(w, Package)
        w._ws = made
        return w

    def rollback(self, steps: int = 1, commit: str | None = None) -> Outcome:
        r = self._refusing(lambda: self.ws.restore(commit) if commit is not None else self.ws.rollback(steps))
        return Outcome(True, commit=r.to.id, data=_plain(r), raw=r)

    def commit(self, message: str | None = None) -> str | None:
        c = self._refusing(lambda: self.ws.checkpoint(message))
        return None if c is None else c.id

    def discard(self) -> None:
        self._refusing(lambda: self.ws.discard())

    def dirty(self) -> bool:
        return self._refusing(lambda: self.ws.dirty)

    def close(self) -> None:
        super().close()
        if self._ws is not None:
            self._ws.close()
            self._ws = None


WAYS: dict[str, type[Way]] = {w.name: w for w in (Cli, Mcp, Package)}
