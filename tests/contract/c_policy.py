"""Section C: policy, limits, the interpreter."""

from __future__ import annotations

import ast
import os
import time
from typing import Any

from c_help import GATE, PYTHON, THING, config, fails, out, py, value, venv, write
from table import line

DENIED = "ModuleNotGranted: the module '{}' is not granted here"


def gated(t: Any, way: Any, **fields: Any) -> Any:
    """The shared session under another policy."""
    return t.open(way.session, **config(**fields))


@line("C.49", "None: no gate; a list: those; stdlib: the safe part beside them", why_not=GATE, shared=True)
def _(way, t):
    py(way, "import socket, subprocess, json")
    t.eq(way.run_python("1").data["mechanisms"], [])
    w = gated(t, way, modules=["json", "xml.etree"])
    o = py(w, "import json, xml.etree.ElementTree\nfrom xml.etree import ElementTree")
    t.eq(o.data["mechanisms"], ["import-gate"])
    for bad in ("socket", "subprocess", "re", "xml.dom"):
        t.has(fails(w, f"import {bad}"), DENIED.format(bad))
    t.has(fails(w, "import socket"), "granted: json, xml.etree")
    w = gated(t, way, modules=["socket"], stdlib=True)
    py(w, "import socket, json, re")
    t.has(fails(w, "import subprocess"), DENIED.format("subprocess"))
    w = gated(t, way, modules=[])
    t.has(fails(w, "import json"), DENIED.format("json"))
    py(w, "1 + 1")
    py(gated(t, way, modules=[], stdlib=True), "import json")


@line("C.49", "every form of import, and modules of the workspace", why_not=GATE, shared=True)
def _(way, t):
    write(
        way,
        {
            "c49good.py": "import json\nX = 1\n",
            "c49bad.py": "import socket\n",
            "c49ns/deep.py": "from c49good import X\nimport csv\n",
        },
    )
    w = gated(t, way, stdlib=True)
    t.eq(value(w, "import c49good\nfrom c49ns.deep import X\nX + c49good.X"), 2)
    for code in (
        "import c49bad",
        "from socket import socket",
        "__import__('socket')",
        "import importlib; importlib.import_module('socket')",
        "from urllib import request",
    ):
        assert "not granted" in fails(w, code), code
    py(w, "import csv, sqlite3, logging, zipfile")  # what a granted module imports for itself is its own business
    assert "pip" not in fails(w, "import socket"), "advice to install what is not granted"


@line("C.50", "include and exclude are patterns of members' names", why_not=GATE, shared=True)
def _(way, t):
    import ntr

    w = gated(t, way, modules=[ntr.ModuleGrant("math", include=["sq*", "pi"])])
    t.eq(value(w, "import math; (math.sqrt(4), math.pi > 3, sorted(dir(math)))"), (2.0, True, ["pi", "sqrt"]))
    t.has(fails(w, "import math; math.cos(0)"), "AttributeError: math.cos is not granted here")
    t.has(fails(w, "from math import cos"), "cos")
    w = gated(t, way, modules=[ntr.ModuleGrant("math", exclude=["c*"])])
    t.eq(value(w, "import math; math.sin(0)"), 0.0)
    t.has(fails(w, "import math; math.cos(0)"), "not granted")
    w = gated(t, way, modules=[ntr.ModuleGrant("math", include=["c*"], exclude=["cosh"])])
    py(w, "from math import cos, ceil")
    fails(w, "from math import cosh")


@line("C.50", "recursive", why_not=GATE, shared=True)
def _(way, t):
    import ntr

    py(gated(t, way, modules=[ntr.ModuleGrant("xml")]), "import xml.etree.ElementTree")
    w = gated(t, way, modules=[ntr.ModuleGrant("xml", recursive=False)])
    py(w, "import xml")
    t.has(fails(w, "import xml.etree.ElementTree"), "not granted")
    t.has(fails(w, "from xml import etree"), "not granted")


@line("C.50", "name: what agent code calls it", why_not=GATE, shared=True)
def _(way, t):
    import ntr

    w = gated(t, way, modules=[ntr.ModuleGrant("os.path", name="paths")])
    t.eq(value(w, "import paths; paths.join('a', 'b')"), "a/b")
    t.eq(value(w, "from paths import join; join('a', 'b')"), "a/b")
    t.has(fails(w, "import socket"), "granted: paths")


@line("C.51", "what is in it, what is not", why_not=GATE, shared=True)
def _(way, t):
    import ntr

    w = gated(t, way, stdlib=ntr.STDLIB.stdlib, modules=ntr.STDLIB.modules)
    py(
        w,
        "import warnings, urllib.parse, json, math, re, datetime, decimal, collections, itertools, functools, random, statistics, csv, io, pathlib, sqlite3, hashlib, dataclasses, typing, textwrap, string, time, uuid, base64, zipfile, gzip, logging, unittest, contextlib, copy, enum, fractions, heapq, bisect, struct, tempfile, shutil, glob\nfrom urllib.parse import quote\nwarnings.simplefilter('ignore')",
    )
    for bad in (
        "socket",
        "subprocess",
        "ctypes",
        "multiprocessing",
        "urllib.request",
        "http.client",
        "ssl",
        "signal",
        "asyncio",
        "importlib",
        "sys",
        "gc",
        "inspect",
    ):
        t.has(fails(w, f"import {bad}"), "not granted")


@line("C.51", "presets and settings join", why_not=GATE)
def _(way, t):
    import ntr

    both = (
        ntr.STDLIB
        | ntr.PythonConfig(modules=["x"], timeout=5, host_objects={"a": THING})
        | ntr.PythonConfig(echo="all", preload=["json"])
    )
    t.eq(
        (both.stdlib, list(both.modules), both.timeout, list(both.host_objects), both.echo, list(both.preload)),
        (True, ["x"], 5, ["a"], "all", ["json"]),
    )
    t.eq((ntr.STDLIB.modules, ntr.STDLIB.stdlib, ntr.STDLIB.network), (None, True, True))


@line("C.52", "what they grant and preload", why_not=GATE, shared=True)
def _(way, t):
    import ntr

    t.eq(
        (ntr.dataframes().stdlib, ntr.dataframes().module_names(), list(ntr.dataframes().preload)),
        (True, ["numpy", "pandas"], ["numpy", "pandas"]),
    )
    t.eq((list(ntr.dataframes(preload=False).preload), list(ntr.plotting(preload=False).preload)), ([], []))
    plot = ntr.plotting()
    assert plot.stdlib and {"numpy", "pandas", "matplotlib"} <= set(plot.module_names()), plot
    assert {"matplotlib.pyplot", "matplotlib.font_manager"} <= set(plot.preload), plot
    write(way, {"c52/numpy.py": "", "c52/seaborn.py": ""})
    w = gated(t, way, stdlib=True, modules=ntr.dataframes().modules)
    t.has(fails(w, "import socket"), "granted: numpy, pandas, the safe standard library")


@line("C.52", "figures have no display", shared=True)
def _(way, t):
    t.eq(value(way, "import os; os.environ['MPLBACKEND']"), "Agg")


@line("C.53", "the whole tree ends, what was done stays, the next call works", shared=True, options={"timeout": 0.5})
def _(way, t):
    o = way.run_python(
        "import subprocess, os\nprint('begun', flush=True)\np = subprocess.Popen(['sleep', '77.53'])\ncache['c53'] = p.pid\nwhile True: pass"
    )
    t.eq((o.ok, o.timed_out, o.exit_code), (False, True, 124))
    t.has(o.text, "begun")
    pid = value(way, "cache['c53']")
    t.until(lambda: not os.path.exists(f"/proc/{pid}") or b"77.53" not in open(f"/proc/{pid}/cmdline", "rb").read())


@line(
    "C.53",
    "30 s by default",
    why_not={"cli": "as with any command of a person's there is none by default", "mcp": "its own row"},
    shared=True,
)
def _(way, t):
    import ntr

    t.eq((ntr.PythonConfig().timeout, ntr.PythonConfig(timeout=None).to_wire()["timeout"]), (30, 0))
    t.eq(py(way, "1").raw.ok, True)


@line("C.53", "an agent's call has 30 s", ways=("cli", "mcp"), why_not={"package": "a row above"}, shared=True)
def _(way, t):
    t.eq(py(way, "1").data["timeout"], 30)


@line("C.53", "30 s, really", shared=True, long=True)
def _(way, t):
    began = time.monotonic()
    o = way.run_python("import time; time.sleep(50)")
    t.eq((o.ok, o.timed_out), (False, True))
    t.has(o.text, "its limit of 30 s")
    assert 29 < time.monotonic() - began < 45


@line("C.53", "of one call", why_not={"mcp": "the limit is the server's"}, shared=True)
def _(way, t):
    o = way.run_python("import time; time.sleep(30)", timeout=0.3)
    t.eq((o.ok, o.timed_out), (False, True))
    t.has(o.text, "its limit of 0.3 s")
    t.eq(way.run_python("import time; time.sleep(0.1)", timeout=30).ok, True)


@line(
    "C.54",
    "MemoryError, a hint with the limit, and the next call works",
    why_not={"mcp": "the server has no such option"},
    shared=True,
    options={"memory_mb": 100},
)
def _(way, t):
    for code in ("x = bytearray(10**9)", "x = []\nwhile True: x.append('a' * 10000 + str(len(x)))"):
        text = fails(way, code)
        t.has(text, "MemoryError")
        t.has(text, "[hint: the call may take 100 MB of memory")
    o = py(way, "x = bytearray(50 << 20); len(x)")
    t.eq((out(o), o.data["mechanisms"]), ("52428800", ["memory-limit"]))


@line(
    "C.55",
    "echo, preload, cache, python, host_objects of the settings",
    ways=("package",),
    why_not={"cli": "options of each call: rows above", "mcp": "its own row"},
)
def _(way, t):
    w = t.open(
        way.session, **config(echo="all", cache=False, python=PYTHON, preload=["colorsys"], host_objects={"thing": THING})
    )
    t.eq(py(w, "1\n2").stdout, "1\n2\n")
    t.has(fails(w, "cache['x'] = 1"), "NameError: name 'cache' is not defined")
    t.eq(value(w, "import sys; print(('colorsys' in sys.modules, sys.executable, thing.add(1)))"), (True, PYTHON, 1))
    t.eq(out(py(w, "1\n2", echo="none")), "")


@line(
    "C.55",
    "the server's options: interpreter, modules, no cache",
    ways=("mcp",),
    why_not={"cli": "rows above", "package": "a row above"},
    options={"python": PYTHON, "modules": ["colorsys"], "cache": False, "tools": "split"},
)
def _(way, t):
    t.eq(value(way, "import sys; print(('colorsys' in sys.modules, sys.executable))"), (True, PYTHON))
    t.has(fails(way, "cache['x'] = 1"), "NameError: name 'cache' is not defined")


@line(
    "C.56",
    "isolation and network, when the workspace is opened",
    why_not={"cli": "it has no option that asks for isolation", "mcp": "it has no option that asks for isolation"},
)
def _(way, t):
    for fields in (
        {"isolation": "process"},
        {"isolation": "kernel"},
        {"isolation": "vm"},
        {"isolation": "nonsense"},
        {"network": False},
    ):
        with t.refused(code="IsolationUnavailable") as e:
            t.open(**config(**fields)).open()
        assert len(e[0].text) > 40, f"it does not say what is missing: {e[0].text}"
    for rung in ("process", "kernel", "vm", "nonsense"):
        with t.refused(code="IsolationUnavailable"):
            t.open(package={"rung": rung}).open()
    t.open(package={"rung": "none"}, **config(isolation="none", network=True)).open()


@line("C.56", "never taken and ignored", ways=("cli", "mcp"), why_not={"package": "a row above"}, shared=True)
def _(way, t):
    for args in (["--isolation", "process"], ["--network", "deny"], ["--rung", "kernel"]):
        p = t.ntr(
            "py" if way.name == "cli" else "mcp", "-s", way.session, *args, *(["-c", "1"] if way.name == "cli" else [])
        )
        assert p.returncode != 0, f"{args} was taken"


@line("C.57", "the words of the settings themselves", why_not=GATE)
def _(way, t):
    import ntr

    t.has(" ".join(ntr.PythonConfig.__doc__.split()), "The gate guides cooperative code; it is no boundary")


@line("C.57", "the result does not claim more than there is", shared=True)
def _(way, t):
    t.eq(py(way, "1").data["mechanisms"], [])


INTERPRETER = "import os, sys; print(os.path.realpath(sys.executable), sys.version_info[:3], sys.prefix)"


@line("C.58", "the same interpreter, by both names", shared=True)
def _(way, t):
    mine = out(py(way, INTERPRETER))
    for name in ("python3", "python"):
        o = way.terminal(f'{name} -c "{INTERPRETER}"')
        t.eq((o.ok, o.text), (True, mine), name)


@line("C.58", "also by another PATH than the program's", options={"env": {"PATH": "/usr/bin:/bin"}})
def _(way, t):
    mine = out(py(way, INTERPRETER))
    t.has(mine, "/usr/bin/python3")
    t.eq(way.terminal(f'python3 -c "{INTERPRETER}"').text, mine)


@line("C.58", "a virtual environment of the workspace", options={})
def _(way, t):
    t.eq(way.terminal(venv("echo 'X = 5' >{site}/c58only.py")).ok, True)
    code = "import sys, c58only; print(sys.prefix, c58only.X)"
    t.eq(out(py(way, code)), "/workspace/.venv 5")
    for name in ("python3", "python"):
        t.eq(way.terminal(f'{name} -c "{code}"').text, "/workspace/.venv 5", name)


@line("C.58", "python where the machine has python3 alone", options={"env": {"PATH": "/usr/bin:/bin"}})
def _(way, t):
    o = way.terminal(f'python -c "{INTERPRETER}"')
    t.eq((o.text, o.commit), (out(py(way, INTERPRETER)), None))


CHOSEN = "it's mine/bin/python3"  # of an environment that is not the workspace's .venv


@line(
    "C.58",
    "a chosen interpreter, by both names; nothing of it sticks",
    ways=("mcp", "package"),
    why_not={"cli": "it is named for a call, and that call is Python's"},
    options={"python": CHOSEN},
)
def _(way, t):
    t.eq(way.terminal(venv("mv .venv \"it's mine\"")).ok, True)
    code = "import sys; print(sys.prefix, sys.executable)"
    mine = out(py(way, code))
    t.eq(mine, f"/workspace/it's mine /workspace/{CHOSEN}")
    for name in ("python3", "python"):
        o = way.terminal(f'{name} -c "{code}"')
        t.eq((o.text, o.commit), (mine, None), name)
    code = "import sys; print(sys.prefix)"
    o = way.run_python(f"import subprocess; print(subprocess.run(['python3', '-c', {code!r}], stdout=-1).stdout)")
    t.has(out(o), "/workspace/it's mine")
    way.terminal("export PATH=/c58:$PATH")
    t.eq(way.terminal(f'python -c "{code}"').text, "/workspace/it's mine")
    kept = t.ntr("run", "-s", way.session, "-c", "echo $PATH").stdout.decode()
    *sticks, last = kept.strip().split(":")  # the last may be the folder of this call, where there is a python3 alone
    t.eq((sticks[0], [p for p in sticks if p.startswith(f"{way.store}/python")]), ("/c58", []), kept)


@line("C.58", "the same modules: what is installed for one is there for the other", shared=True)
def _(way, t):
    code = (
        "import sys, pkgutil; print(sorted(m.name for m in pkgutil.iter_modules([p for p in sys.path if 'packages' in p])))"
    )
    t.eq(value(way, code), ast.literal_eval(way.terminal(f'cd /workspace; python3 -c "{code}"').text))
