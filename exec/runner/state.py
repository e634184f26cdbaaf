"""What a call sees of its host: the cache, and the host's objects."""

from __future__ import annotations

import builtins
import datetime
import decimal
import functools
import json
import os
import resource
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Callable, Optional

from .channel import FRAME_MAX, Channel, FrameTooLarge
from .values import DecodeError, EncodeError, Json, decode, dumps, encode

KEY_BYTES = 200
_TOO_LARGE = "the answer is too large for the call's channel"  # the daemon's words (exec/controller_py.c)


class CacheError(TypeError):
    """A key that cannot be one, or a value that cannot be kept."""

    def __reduce__(self) -> Any:  # no other process could find this class
        return TypeError, self.args


class CacheReadOnly(PermissionError):
    """The call was started read-only."""

    def __reduce__(self) -> Any:
        return PermissionError, self.args


for _kind in (CacheError, CacheReadOnly):
    _kind.__module__ = "builtins"  # as errors of the language are named: without a module of ours


def check_key(key: object) -> str:
    if type(key) is not str:
        raise CacheError("a cache key has to be a str, not %s" % type(key).__name__)
    if not key or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES:
        raise CacheError("a cache key has 1 to %d bytes: %r" % (KEY_BYTES, key[:80]))
    if key.startswith("__"):
        raise CacheError("a cache key must not begin with '__': %r" % key)
    if "/" in key or "\0" in key or not key.isprintable() and any("\ud800" <= c <= "\udfff" for c in key):
        raise CacheError("a cache key must not hold '/', NUL or half characters: %r" % key)
    return key


# ---- what the code may still change

_SCALARS = frozenset({str, int, float, bool, bytes, complex, type(None), decimal.Decimal}) | {
    getattr(datetime, name) for name in ("date", "time", "datetime", "timedelta")
}
_PARTS = frozenset({list, dict, tuple, set, frozenset})


def _frozen(value: Any) -> bool:
    """Whether nobody can change it in place."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    try:
        return kind in (tuple, frozenset) and all(map(_frozen, value))
    except RecursionError:
        return False


def _references(box: list[Any]) -> int:
    return sys.getrefcount(box[0])


_ALONE = _references([[]])


def _held(box: list[Any], also: int = 0) -> bool:
    """Whether the code has the value that lies in box, and could change it in place. Of what is no container: maybe."""
    kind = type(box[0])
    if kind in _SCALARS:
        return False
    return kind not in _PARTS or (_references(box) > _ALONE + also and not _frozen(box[0]))


def _parts_held(value: Any) -> bool:
    """Whether it has something that lies deeper in a value."""
    if type(value) in _SCALARS:
        return False
    boxes = [[part] for part in (value.values() if type(value) is dict else value)]
    return any(_held(box, also=1) or _parts_held(box[0]) for box in boxes)


class _Entry:
    """A value that the code has had. box: it, alone in a list; text: as the host has it; when it was looked at last."""

    __slots__ = ("box", "text", "epoch", "until")

    def __init__(self, value: Any, text: str, epoch: tuple[int, int], until: float) -> None:
        self.box = [value]
        self.text = text
        self.epoch = epoch
        self.until = until


class Cache(MutableMapping):
    """A dict that is committed, rolled back and forked with the files.

    Values are read when they are asked for, and written at once. What was read or written is looked at again when the
    call ends, so that changes inside of it (cache["x"].append(1)) count. Others may change a key meanwhile: the host, in a
    method that the code calls, and processes. So a value that was read before is looked at again when one of these may have
    run, unless the code still holds what it could change in place. It is no subclass of dict: programs in C look into
    such a one past these methods, and would find it empty.
    """

    def __init__(self, channel: Channel, readonly: bool) -> None:
        self._channel = channel
        self._readonly = readonly
        self._live: dict[str, _Entry] = {}

    def _ask(self, op: str, **members: Json) -> dict[str, Any]:
        reply = self._channel.ask(dict(members, cache=op))
        if op == "get" and reply.get("error") == _TOO_LARGE:
            raise CacheError(
                "cache[%r] cannot be read in a call: it is larger than the %d MiB that go over the channel (bytes count as "
                "base64); in the shell, `ntr cache get %s >FILE` writes it to a file"
                % (members["key"], FRAME_MAX >> 20, shlex.quote(str(members["key"])))
            )
        if "error" in reply:
            raise CacheError(str(reply["error"]))
        return reply

    def __getitem__(self, key: str) -> Any:
        check_key(key)
        entry = self._current(key)
        if entry is None:
            epoch, began = self._epoch(), time.monotonic()
            reply = self._ask("get", key=key)
            if reply.get("missing"):
                raise KeyError(key)
            entry = self._keep(key, reply.get("value"), epoch, began)
        return entry.box[0]

    def _keep(self, key: str, data: Json, epoch: tuple[int, int], began: float) -> _Entry:
        try:
            value = decode(data)
        except DecodeError as e:
            raise CacheError("cache[%r]: %s" % (key, e)) from None
        text = dumps(data)
        entry = self._live[key] = _Entry(value, text, epoch, _look_again_at(began, text))
        return entry

    def _epoch(self) -> tuple[int, int]:
        """Another one when a method of the host, or a process that was waited for, has run since."""
        return self._channel.returned, resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt

    def _current(self, key: str) -> Optional[_Entry]:
        """What the code has had of it, as it is by now; None: nothing, or that is gone."""
        entry = self._live.get(key)
        if entry is None or os.getpid() != self._channel.owner:  # a process that the code forked has what there was
            return entry
        epoch, now = self._epoch(), time.monotonic()
        if entry.epoch == epoch and now < entry.until:
            return entry
        if _held(entry.box):
            entry.until = _look_again_at(now, entry.text)
            return entry
        reply = self._ask("get", key=key)
        data, gone = reply.get("value"), bool(reply.get("missing"))
        if gone or (dumps(data) != entry.text and _sorted(data) != _sorted(json.loads(entry.text))):
            if not self._is_changed(entry):
                self._live.pop(key, None)
                return None if gone else self._keep(key, data, epoch, now)
        entry.epoch, entry.until = epoch, _look_again_at(now, entry.text)
        return entry

    @staticmethod
    def _is_changed(entry: _Entry) -> bool:
        """In place and not yet written, which goes before what others have set; or it may be: the code has a part."""
        if _frozen(entry.box[0]):
            return False
        try:
            return _parts_held(entry.box[0]) or dumps(encode(entry.box[0])) != entry.text
        except (EncodeError, RuntimeError):  # it cannot be kept, changes meanwhile, or is nested too deeply to be looked at
            return True

    def __setitem__(self, key: str, value: Any) -> None:
        check_key(key)
        if self._readonly:
            raise CacheReadOnly("this call is read-only: cache[%r] cannot be set" % key)
        self._store(key, value)

    def _store(self, key: str, value: Any) -> None:
        began = time.monotonic()
        try:
            data = encode(value)
            self._ask("set", key=key, value=data)
        except EncodeError as e:
            raise CacheError("cache[%r] cannot keep this value: %s" % (key, e)) from None
        except FrameTooLarge as e:
            raise CacheError("cache[%r] cannot keep this value: %s; write it to a file" % (key, e)) from None
        text = dumps(data)
        self._live[key] = _Entry(value, text, self._epoch(), _look_again_at(began, text))

    def __delitem__(self, key: str) -> None:
        check_key(key)
        if self._readonly:
            raise CacheReadOnly("this call is read-only: cache[%r] cannot be deleted" % key)
        self._live.pop(key, None)
        if self._ask("del", key=key).get("missing"):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if type(key) is not str:
            return False
        return self._current(key) is not None or key in self._keys()

    def _keys(self) -> list[str]:
        keys = self._ask("keys").get("value")
        return [k for k in keys if type(k) is str] if type(keys) is list else []

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys())

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return dict(other) | dict(self) if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def clear(self) -> None:  # the inherited one loads each value, and some may not load
        for key in self._keys():
            del self[key]

    def __repr__(self) -> str:
        return "cache(%s)" % ", ".join(map(repr, self._keys()))

    def __reduce__(self) -> Any:
        raise TypeError("the cache itself cannot be pickled; dict(cache) can")

    def settle(self) -> list[str]:
        """Writes what was changed in place; what went wrong with it, as texts."""
        problems = []
        for key, entry in list(self._live.items()):
            value = entry.box[0]
            if _frozen(value):
                continue
            try:
                changed = dumps(encode(value)) != entry.text
                if changed and not self._readonly:
                    self._store(key, value)
            except CacheError as e:
                problems.append(str(e))
            except EncodeError as e:
                problems.append("cache[%r] was changed to what cannot be kept: %s" % (key, e))
            except RuntimeError as e:  # a thread that was left behind changes it meanwhile
                problems.append("cache[%r] could not be written: %s" % (key, e))
        return problems


def _look_again_at(began: float, text: str) -> float:
    """When to ask again without a reason. A large value takes at most one part of twenty of the time."""
    now = time.monotonic()
    return now + (0.001 if len(text) < 1 << 16 else 20 * (now - began))


def _sorted(data: Json) -> str:
    return json.dumps(data, sort_keys=True)


def install_json() -> None:
    """json writes a cache, inside of other things too, as the dict that it stands for."""
    original = json.JSONEncoder.default

    @functools.wraps(original)
    def default(self: json.JSONEncoder, o: Any) -> Any:
        return dict(o) if type(o) is Cache else original(self, o)

    json.JSONEncoder.default = default  # type: ignore[method-assign]


# ---- host objects


class HostError(Exception):
    """An exception of the host's that has no built-in type here."""

    def __reduce__(self) -> Any:
        return RuntimeError, self.args


HostError.__module__ = "builtins"


def _host_exception(error: Json) -> BaseException:
    kind, text = "HostError", "the host's answer makes no sense"
    if error == _TOO_LARGE:
        text = "the host's answer is larger than the %d MiB that go over the channel; have it put into a file"
        return HostError(text % (FRAME_MAX >> 20))
    if type(error) is dict:
        kind, text = str(error.get("type", kind)), str(error.get("text", ""))
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(text)
        except TypeError:
            pass
    return HostError("%s: %s" % (kind, text))


class HostObject:
    """Stands for an object of the embedding program: its allowed methods run there, arguments and results are data."""

    __slots__ = ("_ntr_call", "_ntr_name", "_ntr_methods")

    def __init__(self, name: str, methods: Optional[list[str]], call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_ntr_name", name)
        object.__setattr__(self, "_ntr_methods", methods)
        object.__setattr__(self, "_ntr_call", call)

    def __getattr__(self, method: str) -> Any:
        name, methods = self._ntr_name, self._ntr_methods
        if method.startswith("_") or (methods is not None and method not in methods):
            known = "" if methods is None else "; it has %s" % (", ".join(sorted(methods)) or "none")
            raise AttributeError("%s has no method %r that may be called%s" % (name, method, known))
        call = self._ntr_call

        def remote(*args: Any, **kwargs: Any) -> Any:
            return call(name, method, args, kwargs)

        remote.__name__ = method
        remote.__qualname__ = "%s.%s" % (name, method)
        return remote

    def __setattr__(self, attr: str, value: Any) -> None:
        raise AttributeError("%s is an object of the host: its attributes cannot be set" % self._ntr_name)

    def __dir__(self) -> list[str]:
        return list(self._ntr_methods or [])

    def __repr__(self) -> str:
        return "<host object %s>" % self._ntr_name

    def __reduce__(self) -> Any:
        raise TypeError("%s is an object of the host and cannot be pickled" % self._ntr_name)


def host_objects(channel: Channel, specs: Json) -> dict[str, HostObject]:
    def call(name: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            message = {"object": name, "method": method, "args": encode(list(args)), "kwargs": encode(kwargs)}
        except EncodeError as e:
            raise TypeError("%s.%s: an argument cannot be handed over: %s" % (name, method, e)) from None
        try:
            reply = channel.ask(message)
            channel.returned += 1
        except FrameTooLarge as e:
            text = "%s.%s: the arguments cannot be handed over: %s; write them to a file" % (name, method, e)
            raise TypeError(text) from None
        if "error" in reply:
            raise _host_exception(reply["error"])
        try:
            return decode(reply.get("value"))
        except DecodeError as e:
            raise HostError("%s.%s: its answer cannot be used here: %s" % (name, method, e)) from None

    made = {}
    for spec in specs or []:
        methods = spec.get("methods")
        made[spec["name"]] = HostObject(spec["name"], None if methods is None else list(methods), call)
    return made
