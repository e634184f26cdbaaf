"""One call: a fresh __main__ runs the code; what came of it goes over the channel; then the process ends."""

from __future__ import annotations
import __future__

import ast
import atexit
import builtins
import gc
import io
import keyword
import linecache
import os
import re
import signal
import sys
import threading
import time
import types
from importlib.machinery import PathFinder
from typing import Any, Optional

from . import artifacts, gate, show, state, trace
from .channel import Channel, ChannelError, FrameTooLarge
from .values import DecodeError, EncodeError, Encoder, Json, LoadError, TooLarge, decode, dumps

FILENAME = "<run_python>"
NAMESPACE_PARTS = 1_000_000
NAMESPACE_BYTES = 16 << 20
ECHO_CHARS = 1_000_000
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


class UsageError(Exception):
    """The request itself is wrong: no error of the code's."""


def _bytes(j: Json) -> bytes:
    """A byte string of the protocol's."""
    if type(j) is dict:
        import base64

        return base64.b64decode(j["base64"])
    return str(j).encode("utf-8")


def _shown_source(code: bytes) -> str:
    """For tracebacks: as well as it can be read."""
    import tokenize

    try:
        encoding = tokenize.detect_encoding(io.BytesIO(code).readline)[0]
    except SyntaxError:
        encoding = "utf-8"
    return code.decode(encoding, "replace")


def _not_utf8(code: bytes, filename: str) -> Optional[str]:
    """As python says it of a file; compile() tells of its decoder instead. None: it is, or says it were."""
    if any(re.match(rb"[ \t\f]*#.*?coding[:=]", line) for line in code.split(b"\n", 2)[:2]):
        return None
    try:
        code.decode("utf-8")
    except UnicodeDecodeError as e:
        return (
            "Non-UTF-8 code starting with '\\x%02x' in file %s on line %d, but no encoding declared; see "
            "https://peps.python.org/pep-0263/ for details"
            % (code[e.start], filename, code.count(b"\n", 0, e.start) + 1)
        )
    return None


def _limit_memory(megabytes: Optional[int]) -> None:
    """What the call may add to what the interpreter has already. The hard limit leaves room to tell of it."""
    if not megabytes:
        return
    import resource

    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft = now + (megabytes << 20)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    spare = soft + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (soft, spare if hard == resource.RLIM_INFINITY else min(spare, hard)))


def _give_spare_memory(megabytes: Optional[int]) -> None:
    if megabytes:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


class Call:
    def __init__(self, channel: Channel, spec: dict[str, Any], notes: list[tuple[str, str]]) -> None:
        self.channel = channel
        self.spec = spec
        self.pid = os.getpid()
        self.root: str = os.fsdecode(_bytes(spec["root"]))
        self.budget: int = int(spec.get("budget") or 0)
        self.memory_mb: Optional[int] = spec.get("memory_mb")
        self.preload_notes = notes
        self.notes: list[str] = []
        self.hints: list[str] = []
        self.echoed: list[str] = []
        self.error: Optional[str] = None
        self.cwd_gone = False
        self.mechanisms: list[str] = []
        self.late: dict[str, tuple[Json, str]] = {}  # inputs that cannot be bound yet: the value, and why

    # ---- before

    def prepare(self) -> None:
        self._environment()
        self._streams()
        self._paths()
        self.notes = [note for missed, note in self.preload_notes if not missed or not self._has(missed)]
        self._before_ui = artifacts.listing(self.root)
        self.module = types.ModuleType("__main__")
        self.namespace = self.module.__dict__
        self.namespace["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        self.code, self.filename = self._source()
        self._bind()
        if self.spec.get("policy") is not None:
            gate.Gate(self.spec["policy"], self.root).install()
            self.mechanisms.append("import-gate")
        if self.memory_mb:
            _limit_memory(self.memory_mb)
            self.mechanisms.append("memory-limit")

    def _environment(self) -> None:
        os.environ.clear()
        for entry in self.spec.get("env") or []:
            name, _, value = _bytes(entry).partition(b"=")
            if name:
                os.environb[name] = value
        os.environ.setdefault("MPLBACKEND", "Agg")  # there is no display; figures go to ui
        os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")  # of programs that the code starts
        programs = os.path.dirname(sys.executable)
        if programs.startswith(self.root + os.sep):  # a virtual environment of the session's: as in the shell
            os.environ["PATH"] = programs + os.pathsep + os.environ.get("PATH", os.defpath)
        os.umask(int(self.spec.get("umask", 0o022)))
        if "TZ" in os.environ:
            time.tzset()
        try:
            os.chdir(_bytes(self.spec["cwd"]))
        except OSError:
            self.cwd_gone = True
            os.chdir(self.root)
            os.environ["PWD"] = self.root

    def _streams(self) -> None:
        sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8", errors="surrogateescape")
        self.out = show.Out(1, "surrogateescape", self.budget)
        self.err = show.Out(2, "backslashreplace", self.budget)
        sys.stdout, sys.stderr = self.out, self.err
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
        show.install_print(self.out, self.err)

    def _paths(self) -> None:
        sys.dont_write_bytecode = True
        first = [self.root]
        cwd = os.getcwd()
        if cwd != self.root:
            first.append(cwd)
        first += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        user = self._user_site()
        sys.path[:] = first + [p for p in sys.path if p not in first] + user
        for finder in list(sys.path_importer_cache.values()):
            forget = getattr(finder, "invalidate_caches", None)
            if forget is not None:
                forget()
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:  # else every call would draw the same numbers
            numpy_random.seed()

    @staticmethod
    def _has(module: str) -> bool:
        """Whether that is there for the call, in the workspace: such a module is read by each call as it is, never kept."""
        try:
            return PathFinder.find_spec(module, sys.path) is not None
        except Exception:  # noqa: BLE001 - whatever a folder of the session's is
            return False

    @staticmethod
    def _user_site() -> list[str]:
        """The packages of `pip install --user`, which the shell's python sees too."""
        home = os.environ.get("HOME")
        if sys.prefix != sys.base_prefix or not home or os.environ.get("PYTHONNOUSERSITE"):
            return []
        version = "python%d.%d" % sys.version_info[:2]
        path = os.path.join(os.environ.get("PYTHONUSERBASE", home + "/.local"), "lib", version, "site-packages")
        return [path] if os.path.isdir(path) and path not in sys.path else []

    def _source(self) -> tuple[Any, str]:
        """The code, a str or bytes as it came, and its name. Of bytes a byte order mark and a coding line are the compiler's business."""
        argv = [os.fsdecode(_bytes(a)) for a in self.spec.get("argv") or []]
        file = self.spec.get("file")
        if file is None:
            sys.argv = ["-c"] + argv
            code = self.spec["code"]
            if type(code) is dict:  # no UTF-8
                code = _bytes(code)
                text = _shown_source(code)
            else:
                code = text = code[1:] if code.startswith("\ufeff") else code
            linecache.cache[FILENAME] = (len(text), None, text.splitlines(True), FILENAME)
            return code, FILENAME
        path = os.fsdecode(_bytes(file))
        sys.argv = [path] + argv
        try:
            with open(path, "rb") as f:
                code = f.read()
        except OSError as e:
            raise UsageError("cannot read %s in the session: %s" % (path, e)) from None
        full = os.path.abspath(path)
        self.namespace["__file__"] = full
        folder = os.path.dirname(full)
        if folder not in sys.path[:2]:
            sys.path.insert(0, folder)
        return code, full

    def _bind(self) -> None:
        if self.spec.get("cache", True):
            self.cache: Optional[state.Cache] = state.Cache(self.channel, bool(self.spec.get("readonly")))
            self.namespace["cache"] = self.cache
            state.install_json()
        else:
            self.cache = None
        self.namespace.update(state.host_objects(self.channel, self.spec.get("objects")))
        for name, value in (self.spec.get("inputs") or {}).items():
            if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
                raise UsageError("the input %r is no Python name" % name)
            try:
                self.namespace[name] = decode(value)
            except LoadError as e:
                self.late[name] = (value, "the input %r: %s" % (name, e))
            except DecodeError as e:
                raise UsageError("the input %r: %s" % (name, e)) from None
        self.given = dict(self.namespace)

    def _bind_late(self) -> None:
        """Inputs whose classes the code defines itself, as soon as it has; what it has assigned meanwhile stays."""
        for name, (value, _) in list(self.late.items()):
            if self.namespace.get(name) is not self.given.get(name):
                del self.late[name]
                continue
            try:
                self.namespace[name] = self.given[name] = decode(value)
            except DecodeError:
                continue
            del self.late[name]

    # ---- the code

    def run(self) -> int:
        try:
            try:
                self._execute()
            finally:
                _give_spare_memory(self.memory_mb)
        except SystemExit as e:
            return self._exit(e.code)
        except BaseException as e:  # noqa: BLE001 - everything the code raises is its result
            self._failed(e)
            return 130 if isinstance(e, KeyboardInterrupt) else 1
        return 0

    def _parse(self) -> Any:
        try:
            return compile(self.code, self.filename, "exec", ast.PyCF_ONLY_AST, True)
        except SyntaxError as e:
            decoding = type(self.code) is bytes and "'utf-8' codec can't decode" in str(e.msg)
            text = _not_utf8(self.code, self.filename) if decoding else None
            if text is None:
                raise
        raise SyntaxError(text)

    def _execute(self) -> None:
        tree = self._parse()
        echo = self.spec.get("echo", "last")
        flags = 0
        pending: list[ast.stmt] = []
        last = len(tree.body) - 1
        for i, stmt in enumerate(tree.body):
            if self.late:
                flags |= self._statements(pending, flags)
                pending = []
                self._bind_late()
            shown = isinstance(stmt, ast.Expr) and (echo == "all" or (echo == "last" and i == last))
            if not shown:
                pending.append(stmt)
                continue
            flags |= self._statements(pending, flags)
            pending = []
            code = compile(ast.Expression(stmt.value), self.filename, "eval", flags, True)  # type: ignore[attr-defined]
            value = eval(code, self.namespace)
            if value is not None:
                self.namespace["_"] = value
                self.echoed.append(self.out.echo(value))
                del value
        self._statements(pending, flags)

    def _statements(self, body: list[ast.stmt], flags: int) -> int:
        if not body:
            return 0
        code = compile(ast.Module(body, []), self.filename, "exec", flags, True)
        exec(code, self.namespace)
        return code.co_flags & _FUTURE

    def _exit(self, code: Any) -> int:
        try:
            status, text = trace.exit_text(code)
        except Exception as e:  # noqa: BLE001 - a broken __str__
            status, text = 1, "<%s>" % type(e).__name__
        if text is not None:
            sys.stderr.write(text + "\n")
        return status

    def _failed(self, e: BaseException) -> None:
        try:
            self.error = trace.format_error(e)
        except BaseException as again:  # noqa: BLE001 - out of memory or stack while telling
            self.error = "%s (its traceback cannot be shown: %s)" % (type(e).__name__, type(again).__name__)
        late = self.late.pop(trace.undefined(e) or "", None)
        self.hints = [late[1]] if late else trace.hints(e, self.root, self.memory_mb)
        e.__traceback__ = None

    # ---- after

    def finish(self, status: int) -> None:
        """In a process that the code forked and that ran to the end of it: only its own end."""
        if os.getpid() != self.pid:
            return
        ui = self._ui()
        self.notes += ["[note: %s]" % why for _, why in self.late.values()]
        if self.cache is not None:
            try:
                problems = self.cache.settle()
            except ChannelError as e:
                problems = [str(e)]
            if problems and self.error is None:
                self.error = "CacheError: " + "\n".join(problems)
            elif problems:
                self.notes += ["[cache note: %s]" % p for p in problems]
        result = {
            "status": 1 if self.error is not None and status == 0 else status,
            "error": self.error,
            "echo": "\n".join(self.echoed)[:ECHO_CHARS] if self.echoed else None,
            "namespace": self._namespace() if self.spec.get("namespace", True) else {},
            "ui": ui,
            "notes": self.notes,
            "hints": self.hints,
            "truncated": {"stdout": self.out.truncated, "stderr": self.err.truncated},
            "mechanisms": self.mechanisms,
            "umask": self._umask(),
            "cwd": self._cwd(),
            "cwd_gone": self.cwd_gone,
        }
        self._send(result)
        self.status = result["status"]

    def _ui(self) -> list[dict[str, str]]:
        ui = self.namespace.get("ui")
        given = self.given.get("ui", self)
        if not self.spec.get("ui", True):
            return []
        made = artifacts.Artifacts(self.root, self._before_ui, bool(self.spec.get("readonly")))
        try:
            made.collect(None if ui is given or isinstance(ui, types.ModuleType) else ui)
        except OSError as e:
            made.notes.append("artifacts cannot be written: %s" % e)
        self.notes += made.lines()
        return made.made

    def _namespace(self) -> dict[str, Json]:
        """Top-level names with plain data."""
        kept: dict[str, Json] = {}
        room, parts = NAMESPACE_BYTES, NAMESPACE_PARTS
        for name, value in list(self.namespace.items()):
            if type(name) is not str or name.startswith("_") or self.given.get(name, self) is value:
                continue
            encoder = Encoder(parts=parts, plain=True)
            try:
                data = encoder.encode(value)
                size = len(dumps(data))
            except (EncodeError, ValueError, RuntimeError, MemoryError):
                continue
            except TooLarge:
                size = room + 1
            if size > room:
                self.notes.append("[note: %s is too large to hand over; keep it in cache[...] or in a file]" % name)
                continue
            kept[name] = data
            room -= size
            parts = max(encoder.parts or 0, 1)
        return kept

    @staticmethod
    def _umask() -> int:
        mask = os.umask(0)
        os.umask(mask)
        return mask

    @staticmethod
    def _cwd() -> Optional[Json]:
        try:
            path = os.getcwdb()
        except OSError:
            return None
        try:
            return path.decode("utf-8")
        except UnicodeDecodeError:
            import base64

            return {"base64": base64.b64encode(path).decode("ascii")}

    def _send(self, result: dict[str, Any]) -> None:
        try:
            try:
                self.channel.send({"result": result})
            except FrameTooLarge:
                result.update(namespace={}, echo=None)
                self.channel.send({"result": result})
        except (OSError, ValueError) as e:
            if self.error is not None:  # not lost, if it can be helped
                self.err.write(self.error + "\n")
            self.err.write("ntr: the call's result could not be handed over: %s\n" % e)

    def end(self, status: int) -> None:
        """As at the end of a script: exit functions run, files are closed. Threads are not waited for."""
        threading.excepthook = lambda *_: None
        try:
            atexit._run_exitfuncs()
        except BaseException as e:  # noqa: BLE001
            sys.stderr.write("%s\n" % trace.format_error(e))
        self.given.clear()
        self.namespace.clear()
        gc.collect()
        _flush_files()
        for stream in (self.out, self.err):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(status)


def _flush_files() -> None:
    """Files that something still holds: what was written to them must not be lost with the process."""
    import _io

    base = _io._IOBase  # type: ignore[attr-defined]
    for obj in gc.get_objects():
        if issubclass(type(obj), base):
            try:
                obj.flush()
            except BaseException:  # noqa: BLE001 - closed, broken, read-only: nothing to lose
                pass


def main(channel: Channel, notes: list[tuple[str, str]]) -> None:
    """In the forked child; does not return."""
    status = 125
    call: Optional[Call] = None
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        spec = channel.recv()["call"]
        call = Call(channel, spec, notes)
        try:
            call.prepare()
        except UsageError as e:
            channel.send({"usage": str(e)})
            os._exit(125)
        status = call.run()
        call.finish(status)
        status = getattr(call, "status", status)
        call.end(status)
    except (ChannelError, KeyboardInterrupt):
        pass  # nobody is waiting any more, or the call was interrupted before it began
    except BaseException as e:  # noqa: BLE001 - a fault of this package: told, not hidden
        try:
            import traceback

            text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
            os.write(2, ("ntr: the Python runner failed:\n" + text).encode("utf-8", "replace"))
        except BaseException:  # noqa: BLE001
            pass
    finally:
        os._exit(status)
