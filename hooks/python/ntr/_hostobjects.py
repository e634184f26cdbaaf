"""Objects of this program that agent code may call by name. Arguments and results cross as data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ._client import inside, readonly_inside
from ._config import HostObject
from ._frames import Connection, ConnectionEnded, FrameTooLarge


def _target(thing: Any) -> HostObject:
    return thing if isinstance(thing, HostObject) else HostObject(thing)


def _methods(spec: HostObject) -> list[str] | None:
    """Names of what may be called; None: the object decides as it is asked."""
    if spec.allow is not None:
        return [n for n in spec.allow if not n.startswith("_")]
    obj = spec.object
    if hasattr(type(obj), "__getattr__"):
        return None
    found = []
    for name in dir(obj):
        if name.startswith("_"):
            continue
        static = inspect.getattr_static(obj, name)  # a property's code must not run for a list of names
        if callable(static) or isinstance(static, (staticmethod, classmethod)):
            found.append(name)
    return found


def to_wire(objects: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the member objects of a request."""
    return [{"name": name, "methods": _methods(_target(thing))} for name, thing in objects.items()]


def _text(e: BaseException) -> str:
    try:
        text = str(e)
    except Exception:
        text = ""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\\0")


class Answerer:
    """Answers the calls that come while a call runs, in the thread (for async ones: the loop) that made it."""

    def __init__(self, objects: Mapping[str, Any], store: str, session: str, readonly: bool = False) -> None:
        self.objects = {name: _target(thing) for name, thing in objects.items()}
        self.readonly = readonly
        self.where = (store, session)

    def answer(self, event: Mapping[str, Any], conn: Connection) -> None:
        """Carry out one call and send what came of it."""
        head = {"op": "answer", "n": event.get("n")}  # the op has to come first
        body = self._outcome(event)
        try:
            conn.send({**head, **body})
        except (FrameTooLarge, UnicodeEncodeError, ValueError) as e:
            text = "the result is larger than 64 MiB" if isinstance(e, FrameTooLarge) else f"the result: {e}"
            conn.send({**head, "error": {"type": "ValueError", "text": text}})
        except ConnectionEnded:
            pass  # whoever waits for the reply sees it, too

    def _outcome(self, event: Mapping[str, Any]) -> dict[str, Any]:
        from ._values import encode

        token = inside.set((*inside.get(), self.where))
        unchanging = readonly_inside.set((*readonly_inside.get(), self.where) if self.readonly else readonly_inside.get())
        try:
            value = self._call(event)
            return {"value": encode(value)}
        except KeyboardInterrupt:
            raise  # of the program's user: it ends the call
        except BaseException as e:  # a sys.exit() of a method's, too, is that method's error
            return {"error": {"type": type(e).__name__, "text": _text(e)}}
        finally:
            readonly_inside.reset(unchanging)
            inside.reset(token)

    def _call(self, event: Mapping[str, Any]) -> Any:
        from ._values import decode

        name, method = str(event.get("name")), str(event.get("method"))
        spec = self.objects.get(name)
        if spec is None:
            raise AttributeError(f"there is no object {name!r}")
        if method.startswith("_") or (spec.allow is not None and method not in spec.allow):
            raise AttributeError(f"{name} has no method {method!r} that may be called")
        function = getattr(spec.object, method)
        if not callable(function):
            raise AttributeError(f"{name}.{method} is no method")
        args = [decode(x) for x in event.get("args") or ()]
        kwargs = {str(k): decode(x) for k, x in (event.get("kwargs") or {}).items()}
        result = function(*args, **kwargs)
        if inspect.iscoroutine(result):
            from ._aio import finish

            return finish(result)
        return result
