"""Section C: with the libraries themselves: numpy, pandas, matplotlib, Pillow, plotly. They are fetched with pip (350 MB) unless
$NTR_SCIENCE is a Python that has them.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from typing import Any

from c_help import PYTHON, TEXT, out, py, value
from table import Skip, line
from ways import PACKAGE

WANTED = ("numpy", "pandas", "matplotlib", "pillow", "plotly")


LOCK = threading.Lock()


def science() -> str:
    """A Python with the libraries."""
    with LOCK:
        return _science()


@functools.lru_cache(maxsize=1)
def _science() -> str:
    given = os.environ.get("NTR_SCIENCE")
    if given:
        return given
    place = tempfile.mkdtemp(prefix="ntr-science.", dir=os.environ.get("TMPDIR") or "/tmp")
    os.chmod(place, 0o755)
    atexit.register(shutil.rmtree, place, True)
    python = os.path.join(place, "bin", "python")
    for args in (
        [PYTHON, "-m", "venv", place],
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *WANTED],
    ):
        p = subprocess.run(args, capture_output=True, text=True)
        if p.returncode:
            raise Skip(f"no numpy and pandas: {(p.stderr or p.stdout).strip().splitlines()[-1:]}")
    return python


KEEP = """import numpy as np, pandas as pd
cache['a'] = np.arange(6, dtype='<i4').reshape(2, 3)
cache['n'] = np.float64(1.5)
cache['df'] = pd.DataFrame({'n': [1, 2], 'f': [0.5, float('nan')], 't': ['x', None], 'd': pd.to_datetime(['2026-01-01', '2026-01-02'])})
cache['s'] = pd.Series([1, 2], name='s')
cache['idx'] = pd.DataFrame({'n': [1]}, index=pd.MultiIndex.from_tuples([('a', 1)]))
"""
HOST = """import sys; sys.path.insert(0, sys.argv[1])
import ntr, numpy as np, pandas as pd
ws = ntr.workspace(sys.argv[3], store=sys.argv[2], python=ntr.PythonConfig(python=sys.executable, timeout=100))
a, n, df, s, idx = (ws.cache[k] for k in ('a', 'n', 'df', 's', 'idx'))
assert type(a) is np.ndarray and a.dtype == '<i4' and a.tolist() == [[0, 1, 2], [3, 4, 5]], a
assert n == 1.5 and type(n) is np.float64
assert type(df) is pd.DataFrame and list(df.columns) == ['n', 'f', 't', 'd'] and df['n'].tolist() == [1, 2], df
assert str(df.dtypes['d']).startswith('datetime64') and pd.isna(df['f'][1]) and df['t'][0] == 'x', df.dtypes
assert type(s) is pd.Series and s.name == 's' and s.tolist() == [1, 2]
assert type(idx) is ntr.Opaque and 'DataFrame' in idx.type, idx
ws.cache['back'] = df
r = ws.run_python('import pandas as pd; pd.testing.assert_frame_equal(cache["back"], cache["df"]); x = cache["a"] + y; x', inputs={'y': a})
assert r and (r.namespace['x'] == a * 2).all(), r
"""


@line("C.11", "numpy arrays and DataFrames cross as buffers", why_not=TEXT, long=True)
def arrays(way: Any, t: Any) -> None:
    python = science()
    w = t.open(way.session, python=python, timeout=100)
    py(w, KEEP)
    if way.name == "cli":
        a = json.loads(w.ntr("cache", "get", "-s", w.session, "--json", "a"))
        t.eq((a["$"], a["dtype"], a["shape"]), ("ndarray", "<i4", [2, 3]))
        t.eq(struct.unpack("<6i", base64.b64decode(a["b64"])), tuple(range(6)))
        t.eq(json.loads(w.ntr("cache", "get", "-s", w.session, "--json", "df"))["$"], "dataframe")
        return
    p = subprocess.run([python, "-c", HOST, PACKAGE, way.store, way.session], capture_output=True, text=True)
    t.eq((p.returncode, p.stderr), (0, ""))


SHOW = """import numpy as np, pandas as pd, plotly.graph_objects as go, matplotlib.pyplot as plt
from PIL import Image
fig, ax = plt.subplots()
lines = ax.plot([1, 2])
df = pd.DataFrame({'n': range(500), 't': ['x'] * 500, 'd': pd.date_range('2026-01-01', periods=500), 'f': np.linspace(0, 1, 500)})
df.loc[0, 'f'] = np.nan
ui = {'fig': fig, 'ax': ax, 'go': go.Figure(go.Scatter(y=[1, 2])), 'img': Image.new('RGB', (3, 2)), 'df': df, 'np': np.arange(3)}
"""


@line("C.32", "figures, tables and images of the libraries themselves", long=True)
def shown(way: Any, t: Any) -> None:
    w = t.open(way.session, python=science(), timeout=100)
    o = py(w, SHOW)
    names = {
        "fig": "fig.png",
        "ax": "ax.png",
        "go": "go.plotly.json",
        "img": "img.png",
        "df": "df.table.json",
        "np": "np.json",
    }
    t.eq({a["name"]: a["path"] for a in o.data["ui"]}, {k: f"/workspace/ui/{v}" for k, v in names.items()})
    for name in ("fig", "ax", "img"):
        assert w.read(f"ui/{name}.png").startswith(b"\x89PNG\r\n\x1a\n"), name
    t.eq(w.view_image("ui/img.png").ok, True)
    t.has(json.loads(w.read("ui/go.plotly.json")), "data")
    t.eq(json.loads(w.read("ui/np.json")), [0, 1, 2])
    table = json.loads(w.read("ui/df.table.json"))
    t.eq((table["total"], len(table["rows"]), [c["name"] for c in table["columns"]]), (500, 200, ["n", "t", "d", "f"]))
    t.eq([c["type"] for c in table["columns"]][0::3], ["int64", "float64"])
    t.eq(table["rows"][0], [0, "x", "2026-01-01 00:00:00", None])


@line("C.52", "preloaded: imported at once, random numbers differ, no display", long=True)
def preloaded(way: Any, t: Any) -> None:
    names = ["numpy", "pandas", "matplotlib.pyplot"]
    w = t.open(way.session, python=science(), modules=names, timeout=100)
    t.eq(value(w, f"import sys; print([m in sys.modules for m in {names!r}])"), [True] * 3)
    t.eq(out(py(w, "import matplotlib.pyplot as plt; plt.get_backend().lower()")), "'agg'")
    draw = "import numpy; print(float(numpy.random.random()))"
    assert value(w, draw) != value(w, draw), "two calls draw the same"


@line(
    "C.52",
    "plotting() as it is",
    why_not={"cli": "presets are of the package", "mcp": "presets are of the package"},
    long=True,
)
def preset(way: Any, t: Any) -> None:
    import ntr

    config = ntr.plotting() | ntr.PythonConfig(python=science(), timeout=100)
    w = t.open(
        way.session,
        package={},
        config={k: getattr(config, k) for k in ("modules", "stdlib", "preload", "python", "timeout")},
    )
    o = py(w, "import numpy, pandas, json, matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nui = {'fig': fig}")
    t.has(o.text, "[ui artifacts: fig -> /workspace/ui/fig.png]")
    assert not w.run_python("import socket").ok
