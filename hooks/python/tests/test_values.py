"""The values of the protocol: the table that the session's side has, too."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ntr import Opaque
from ntr._values import DecodeError, EncodeError, decode, decode_each, encode

TABLE = json.loads((Path(__file__).resolve().parents[3] / "tests" / "values.json").read_text())


def value_of(row):
    names = {"datetime": datetime, "date": date, "time": time, "timedelta": timedelta, "timezone": timezone,
             "Decimal": Decimal, "nan": math.nan, "inf": math.inf}  # fmt: skip
    if "needs" in row:
        pytest.importorskip("numpy")
        names[row["needs"]] = pytest.importorskip(row["needs"])
        names["numpy"] = pytest.importorskip("numpy")
    return eval(row["py"], names)


def same(a, b) -> bool:
    if type(a) is not type(b):
        return False
    if type(a).__module__.partition(".")[0] == "pandas":
        return bool(a.equals(b))
    if type(a).__module__ == "numpy" and hasattr(a, "shape"):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b or repr(a) == repr(b)


@pytest.mark.parametrize("row", TABLE["values"], ids=lambda r: r["py"][:40])
def test_table(row):
    value = value_of(row)
    assert encode(value) == row["json"]
    assert same(decode(row["json"]), value)
    assert encode(decode(row["json"])) == row["json"]


@pytest.mark.parametrize("bad", TABLE["bad"], ids=lambda b: json.dumps(b)[:40])
def test_what_is_no_value(bad):
    with pytest.raises(DecodeError):
        decode(bad)


def test_depth_and_cycles():
    x: list = []
    x.append(x)
    assert encode(x)["$"] == "opaque"
    deep: list = []
    for _ in range(300):
        deep = [deep]
    assert encode(deep)["$"] == "opaque"
    j: list = []
    for _ in range(300):
        j = [j]
    with pytest.raises(DecodeError):
        decode(j)


def test_opaque():
    from collections import OrderedDict

    j = encode({"o": OrderedDict(a=1)})
    value = decode(j)["o"]
    assert isinstance(value, Opaque) and value.type == "collections.OrderedDict" and "OrderedDict" in repr(value)
    assert value.unpickle_trusted() == OrderedDict(a=1)
    assert encode({"o": value}) == j
    assert value == decode(j)["o"] and hash(value) == hash(decode(j)["o"])
    with pytest.raises(EncodeError):
        encode(lambda: 1)
    each = decode_each({"good": 1, "bad": {"$": "ndarray", "dtype": "|O", "shape": [1], "b64": ""}})
    assert each["good"] == 1 and isinstance(each["bad"], Opaque)
    with pytest.raises(DecodeError):
        each["bad"].unpickle_trusted()


@pytest.mark.parametrize(("form", "kind"), [("[x]", list), ("(x,)", tuple), ("{1: x}", dict)])
def test_what_nests_deeper_than_a_hundred_is_opaque_and_not_lost(ws, form, kind):
    nest = f"""
def nest(n):
    x = []
    for _ in range(n - 1):
        x = {form}
    return x
"""
    here: dict[str, Any] = {}
    exec(nest, here)
    for depth in (100, 101, 300):
        given = {"x": here["nest"](depth)}
        assert ws.run_python(f"{nest}\ncache['v'] = made = nest({depth})\nassert made == x", inputs=given)
        value = ws.cache["v"]
        if depth > 100:
            assert isinstance(value, Opaque) and value.type == f"builtins.{kind.__name__}"
            ws.cache["v"] = value
            value = value.unpickle_trusted()
        assert value == here["nest"](depth) and type(value) is kind
        again = f"{nest}\nimport time\nfor _ in range(2):\n    assert cache['v'] == nest({depth})\n    time.sleep(.01)"
        assert ws.run_python(again)
