"""Python data as one JSON value, and back: how it crosses between the host and a session.

What JSON has no form for is an object with the member "$" that names its type (docs/protocol.md, "Values"). Only exact
types are taken apart: an instance of a subclass is an opaque pickle, so that it comes back as what it was.
Decoding builds data and runs nothing: what is opaque stays a pickle inside an `Opaque`.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import pickle
import re
import sys
from typing import Any, Callable, Optional

INT_MAX = (1 << 63) - 1
DEPTH_MAX = 100
REPR_MAX = 200

Json = Any


class EncodeError(TypeError):
    """A value that cannot be kept or handed over; the text says why."""


class DecodeError(ValueError):
    """A JSON value that is no value of ours."""


class Opaque:
    """A value of a type of the session's: a pickle that agent code wrote, which nothing here opens unasked.

    ``type`` names its class, ``repr`` is how the session shows it.
    """

    __slots__ = ("_pickle", "repr", "type")

    def __init__(self, type: str, repr: str, data: Optional[bytes]) -> None:
        self.type = type
        self.repr = repr
        self._pickle = data

    def __repr__(self) -> str:
        return "<Opaque %s %s>" % (self.type, self.repr)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return (self.type, self._pickle) == (other.type, other._pickle)

    def __hash__(self) -> int:
        return hash((self.type, self._pickle))

    @property
    def pickle(self) -> Optional[bytes]:
        """The pickle itself; None of plain data that needs a module which is not here."""
        return self._pickle

    def unpickle_trusted(self) -> Any:
        """Unpickle it, which RUNS CODE that the session chose: only for sessions that you trust as yourself."""
        if self._pickle is None:
            raise DecodeError(self.repr)
        return pickle.loads(self._pickle)

    def _json(self) -> Json:
        if self._pickle is None:
            raise EncodeError("a value of type %s that could not be read cannot be handed back" % self.type)
        return {"$": "opaque", "type": self.type, "pickle": _b64(self._pickle), "repr": self.repr}


class _Cycle(Exception):
    """A container holds itself, or nests too deeply: the whole value has to be opaque."""


def type_name(obj: object) -> str:
    kind = type(obj)
    return "%s.%s" % (kind.__module__, kind.__qualname__)


def short_repr(obj: object, limit: int = REPR_MAX) -> str:
    try:
        text = repr(obj)
    except Exception as e:  # noqa: BLE001 - a broken __repr__ must not break the call
        text = "<%s whose repr fails: %s>" % (type_name(obj), type(e).__name__)
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\\0")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def plain_text(text: str) -> bool:
    """Whether a str is a JSON string that every reader keeps: no NUL, no lone surrogates."""
    if text.isascii():
        return "\0" not in text
    if "\0" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _unlimited_digits:
    """Integers of any size: lifts the interpreter's limit on digits (3.11 on) meanwhile."""

    def __enter__(self) -> None:
        self.before: Optional[int] = getattr(sys, "get_int_max_str_digits", lambda: None)()
        if self.before is not None:
            sys.set_int_max_str_digits(0)

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            sys.set_int_max_str_digits(self.before)


# ---- encoding


class Encoder:
    def __init__(self) -> None:
        self.path: list[int] = []

    def encode(self, obj: object) -> Json:
        try:
            return self._encode(obj)
        except (_Cycle, RecursionError):
            return self._opaque(obj)

    def _encode(self, obj: object) -> Json:
        if obj is None or obj is True or obj is False:
            return obj
        kind = type(obj)
        if kind is str:
            return self._str(obj)  # type: ignore[arg-type]
        if kind is int:
            return self._int(obj)  # type: ignore[arg-type]
        if kind is float:
            return self._float(obj)  # type: ignore[arg-type]
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple(obj)
        if kind in _CONTAINERS:
            return self._container(obj)
        return self._foreign(obj)

    @staticmethod
    def _str(text: str) -> Json:
        if plain_text(text):
            return text
        return {"$": "str", "b64": _b64(text.encode("utf-8", "surrogatepass"))}

    @staticmethod
    def _int(n: int) -> Json:
        if -INT_MAX <= n <= INT_MAX:
            return n
        with _unlimited_digits():
            return {"$": "int", "v": str(n)}

    @staticmethod
    def _float(x: float) -> Json:
        if math.isfinite(x):
            return x
        return {"$": "float", "v": "nan" if x != x else "inf" if x > 0 else "-inf"}

    def _container(self, obj: Any) -> Json:
        if id(obj) in self.path or len(self.path) >= DEPTH_MAX:
            raise _Cycle
        self.path.append(id(obj))
        try:
            if type(obj) is list:
                return [self._encode(x) for x in obj]
            if type(obj) is dict:
                return self._dict(obj)
            if type(obj) is tuple:
                return {"$": "tuple", "v": [self._encode(x) for x in obj]}
            return {"$": type(obj).__name__, "v": self._ordered(obj)}
        finally:
            self.path.pop()

    def _dict(self, obj: dict[Any, Any]) -> Json:
        if all(type(k) is str and k != "$" and plain_text(k) for k in obj):
            return {k: self._encode(v) for k, v in obj.items()}
        return {"$": "dict", "v": [[self._encode(k), self._encode(v)] for k, v in obj.items()]}

    def _ordered(self, members: Any) -> list[Json]:
        """A set has no order of its own: the text must not depend on the process's hash seed."""
        return sorted((self._encode(x) for x in members), key=_sort_key)

    def _foreign(self, obj: object) -> Json:
        root = type(obj).__module__.partition(".")[0]
        if root == "numpy":
            made = _encode_numpy(obj)
        elif root == "pandas":
            made = _encode_pandas(obj, self)
        else:
            made = None
        return self._opaque(obj) if made is None else made

    def _opaque(self, obj: object) -> Json:
        if type(obj) is Opaque:
            return obj._json()
        try:
            data = pickle.dumps(obj, protocol=4)
        except Exception as e:  # noqa: BLE001 - whatever a __reduce__ raises
            text = str(e) or type(e).__name__
            raise EncodeError("%s cannot be pickled: %s" % (type_name(obj), text)) from None
        return {"$": "opaque", "type": type_name(obj), "pickle": _b64(data), "repr": short_repr(obj)}


def _sort_key(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _encode_datetime(d: datetime.datetime) -> Json:
    if d.tzinfo is not None and type(d.tzinfo) is not datetime.timezone:
        return _pickled(d)  # the zone's name would be lost
    return {"$": "datetime", "v": d.isoformat(), "fold": d.fold}


def _encode_time(t: datetime.time) -> Json:
    if t.tzinfo is not None and type(t.tzinfo) is not datetime.timezone:
        return _pickled(t)
    return {"$": "time", "v": t.isoformat(), "fold": t.fold}


def _pickled(obj: object) -> Json:
    return {
        "$": "opaque",
        "type": type_name(obj),
        "pickle": _b64(pickle.dumps(obj, protocol=4)),
        "repr": short_repr(obj),
    }


_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})
_SIMPLE: dict[type, Callable[[Any], Json]] = {
    bytes: lambda b: {"$": "bytes", "b64": _b64(b)},
    bytearray: lambda b: {"$": "bytearray", "b64": _b64(bytes(b))},
    complex: lambda c: {"$": "complex", "v": [Encoder._float(c.real), Encoder._float(c.imag)]},
    datetime.datetime: _encode_datetime,
    datetime.date: lambda d: {"$": "date", "v": d.isoformat()},
    datetime.time: _encode_time,
    datetime.timedelta: lambda d: {"$": "timedelta", "v": [d.days, d.seconds, d.microseconds]},
    decimal.Decimal: lambda d: {"$": "decimal", "v": str(d)},
}


# ---- numpy and pandas, where the session has imported them

_DTYPE = re.compile(r"[<>|=](?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SU]\d{1,9}|[mM]8(?:\[\d{0,6}[A-Za-z]{1,7}\])?)\Z")


def _encode_numpy(obj: Any) -> Json:
    np = sys.modules.get("numpy")
    if np is None:
        return None
    if type(obj) is np.ndarray and _DTYPE.match(obj.dtype.str):
        shape = [int(n) for n in obj.shape]
        return {"$": "ndarray", "dtype": obj.dtype.str, "shape": shape, "b64": _b64(obj.tobytes())}
    if isinstance(obj, np.generic) and type(obj).__module__ == "numpy" and _DTYPE.match(obj.dtype.str):
        return {"$": "npscalar", "dtype": obj.dtype.str, "b64": _b64(obj.tobytes())}
    return None


def _encode_pandas(obj: Any, enc: Encoder) -> Json:
    pd = sys.modules.get("pandas")
    try:
        if type(obj) is pd.DataFrame:  # type: ignore[union-attr]
            return _encode_frame(obj, enc)
        if type(obj) is pd.Series:  # type: ignore[union-attr]
            index, data = _encode_axis(obj.index, enc), _encode_column(obj, enc)
            name = enc._encode(obj.name)
            return {"$": "series", "name": name, "index": index, "data": data[0], "dtype": data[1]}
    except (_NotPlain, AttributeError):
        pass
    return None


class _NotPlain(Exception):
    """An index or a column of a kind that has no form of its own: the whole object is opaque."""


def _encode_frame(frame: Any, enc: Encoder) -> Json:
    columns = _encode_axis(frame.columns, enc)
    index = _encode_axis(frame.index, enc)
    made = [_encode_column(frame.iloc[:, i], enc) for i in range(frame.shape[1])]
    data, dtypes = [m[0] for m in made], [m[1] for m in made]
    return {"$": "dataframe", "columns": columns, "index": index, "data": data, "dtypes": dtypes}


def _encode_axis(axis: Any, enc: Encoder) -> Json:
    pd = sys.modules["pandas"]
    if axis.names != [None] or isinstance(axis, pd.MultiIndex):
        raise _NotPlain
    if type(axis) is pd.RangeIndex:
        return {"$": "tuple", "v": [axis.start, axis.stop, axis.step]}
    return _encode_column(axis, enc)[0]


def _encode_column(column: Any, enc: Encoder) -> tuple[Json, str]:
    """Its data, and its dtype's name where the data does not tell it."""
    np = sys.modules["numpy"]
    dtype = column.dtype
    if type(dtype).__module__.partition(".")[0] == "numpy" and _DTYPE.match(dtype.str):
        return _encode_numpy(np.ascontiguousarray(column.to_numpy())), ""
    if str(dtype) not in ("object", "str", "string"):
        raise _NotPlain
    cells = [enc._encode(x) for x in column.tolist()]
    return cells, str(dtype)


# ---- decoding


def _expect(cond: bool, what: str) -> None:
    if not cond:
        raise DecodeError("no value: %s" % what)


class Decoder:
    def __init__(self) -> None:
        self.depth = 0

    def decode(self, j: Json) -> Any:
        kind = type(j)
        if j is None or kind is bool or kind is int or kind is float or kind is str:
            return j
        _expect(kind is list or kind is dict, "a %s" % kind.__name__)
        self.depth += 1
        _expect(self.depth <= 2 * DEPTH_MAX, "nested too deeply")
        try:
            if kind is list:
                return [self.decode(x) for x in j]
            if "$" not in j:
                return {k: self.decode(v) for k, v in j.items()}
            return self._tagged(j)
        finally:
            self.depth -= 1

    def _tagged(self, j: dict[str, Json]) -> Any:
        tag = j["$"]
        make = _DECODERS.get(tag) if type(tag) is str else None
        _expect(make is not None, "unknown type %r" % (tag,))
        try:
            return make(self, j)  # type: ignore[misc]
        except DecodeError:
            raise
        except ImportError as e:
            raise DecodeError("a value of type %s needs a module that is not here: %s" % (tag, e)) from None
        except (KeyError, TypeError, ValueError, ArithmeticError) as e:
            raise DecodeError("no value: a %s of another form (%s)" % (tag, e)) from None

    def items(self, j: Json) -> list[Any]:
        _expect(type(j) is list, "no list")
        return [self.decode(x) for x in j]


def _text(j: Json) -> str:
    _expect(type(j) is str, "no text")
    return j  # type: ignore[no-any-return]


def _bytes(j: Json) -> bytes:
    return base64.b64decode(_text(j), validate=True)


def _decode_int(_: Decoder, j: Json) -> int:
    text = _text(j["v"])
    _expect(re.fullmatch(r"-?[0-9]+", text) is not None, "no digits")
    with _unlimited_digits():
        return int(text)


def _decode_float(_: Decoder, j: Json) -> float:
    _expect(j["v"] in ("nan", "inf", "-inf"), "no such float")
    return float(j["v"])


def _decode_dict(d: Decoder, j: Json) -> dict[Any, Any]:
    pairs = d.items(j["v"])
    _expect(all(type(p) is list and len(p) == 2 for p in pairs), "no pairs")
    return dict(pairs)


def _decode_complex(d: Decoder, j: Json) -> complex:
    re_im = d.items(j["v"])
    _expect(len(re_im) == 2 and all(type(x) in (int, float) for x in re_im), "no complex number")
    return complex(*re_im)


def _decode_datetime(_: Decoder, j: Json) -> datetime.datetime:
    return datetime.datetime.fromisoformat(_text(j["v"])).replace(fold=int(j.get("fold", 0)))


def _decode_time(_: Decoder, j: Json) -> datetime.time:
    return datetime.time.fromisoformat(_text(j["v"])).replace(fold=int(j.get("fold", 0)))


def _decode_timedelta(_: Decoder, j: Json) -> datetime.timedelta:
    parts = j["v"]
    _expect(type(parts) is list and len(parts) == 3 and all(type(x) is int for x in parts), "no timedelta")
    return datetime.timedelta(*parts)


def _decode_decimal(_: Decoder, j: Json) -> decimal.Decimal:
    return decimal.Decimal(_text(j["v"]))


def _numpy() -> Any:
    import numpy

    return numpy


def _dtype(j: Json) -> Any:
    text = _text(j["dtype"])
    _expect(_DTYPE.match(text) is not None, "no plain dtype")
    return _numpy().dtype(text)


def _decode_ndarray(_: Decoder, j: Json) -> Any:
    shape = j["shape"]
    _expect(type(shape) is list and all(type(n) is int and n >= 0 for n in shape), "no shape")
    return _numpy().frombuffer(_bytes(j["b64"]), dtype=_dtype(j)).reshape(shape).copy()


def _decode_npscalar(_: Decoder, j: Json) -> Any:
    array = _numpy().frombuffer(_bytes(j["b64"]), dtype=_dtype(j))
    _expect(array.shape == (1,), "no scalar")
    return array[0]


def _axis(value: Any) -> Any:
    import pandas

    if type(value) is tuple:
        return pandas.RangeIndex(*value)
    return pandas.Index(value, dtype=object if type(value) is list and not value else None)


def _column(data: Any, dtype: Json, index: Any) -> Any:
    import pandas

    _expect(dtype in ("", "object", "str", "string"), "no plain dtype")
    return pandas.Series(data, index=index, dtype=dtype or None)


def _decode_frame(d: Decoder, j: Json) -> Any:
    import pandas

    columns, index, data = _axis(d.decode(j["columns"])), _axis(d.decode(j["index"])), d.items(j["data"])
    dtypes = j.get("dtypes", ["object" if type(x) is list else "" for x in data])
    _expect(type(dtypes) is list and len(data) == len(columns) == len(dtypes), "columns and data differ in number")
    made = {i: _column(x, dtypes[i], index) for i, x in enumerate(data)}
    frame = pandas.DataFrame(made, index=index)
    frame.columns = columns
    return frame


def _decode_series(d: Decoder, j: Json) -> Any:
    data = d.decode(j["data"])
    dtype = j.get("dtype", "object" if type(data) is list else "")
    series = _column(data, dtype, _axis(d.decode(j["index"])))
    return series.rename(d.decode(j.get("name")))


def _decode_opaque(_: Decoder, j: Json) -> Opaque:
    shown = j.get("repr")
    return Opaque(_text(j["type"]), _text(shown) if shown is not None else "", _bytes(j["pickle"]))


_DECODERS: dict[str, Callable[[Decoder, Json], Any]] = {
    "int": _decode_int,
    "float": _decode_float,
    "str": lambda d, j: _bytes(j["b64"]).decode("utf-8", "surrogatepass"),
    "bytes": lambda d, j: _bytes(j["b64"]),
    "bytearray": lambda d, j: bytearray(_bytes(j["b64"])),
    "tuple": lambda d, j: tuple(d.items(j["v"])),
    "set": lambda d, j: set(d.items(j["v"])),
    "frozenset": lambda d, j: frozenset(d.items(j["v"])),
    "dict": _decode_dict,
    "complex": _decode_complex,
    "datetime": _decode_datetime,
    "date": lambda d, j: datetime.date.fromisoformat(_text(j["v"])),
    "time": _decode_time,
    "timedelta": _decode_timedelta,
    "decimal": _decode_decimal,
    "ndarray": _decode_ndarray,
    "npscalar": _decode_npscalar,
    "dataframe": _decode_frame,
    "series": _decode_series,
    "opaque": _decode_opaque,
}


def encode(obj: object) -> Json:
    """Raise EncodeError for what does not pickle."""
    return Encoder().encode(obj)


def decode(j: Json) -> Any:
    """Raise DecodeError for what is no value."""
    return Decoder().decode(j)


def decode_each(values: dict[str, Json]) -> dict[str, Any]:
    """Values by name; one that needs a module that is not here does not cost the others."""
    made: dict[str, Any] = {}
    for name, j in values.items():
        try:
            made[name] = decode(j)
        except DecodeError as e:
            made[name] = Opaque(str(j.get("$")) if type(j) is dict else "?", str(e), None)
    return made


def dumps(j: Json) -> str:
    return json.dumps(j, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
