"""Section C: ui artifacts."""

from __future__ import annotations

import json
from typing import Any

from c_help import OWN, py, write
from table import line

# Stand-ins for libraries that the machine may lack: what a call looks at is the class, by its module and name.
FAKES = {
    "plotly/basedatatypes.py": 'class BaseFigure:\n    def to_json(self): return \'{"data": [], "layout": {}}\'\n',
    "pandas.py": """class DataFrame:
    def __init__(self, rows): self.rows, self.columns, self.dtypes = rows, ['n', 'text'], ['int64', 'object']
    def __len__(self): return len(self.rows)
    def head(self, n): return DataFrame(self.rows[:n])
    def itertuples(self, index, name): return iter(self.rows)
    def _repr_html_(self): return '<table>'
class Series:
    def to_frame(self): return DataFrame([(1, 'a')])
""",
    "matplotlib/figure.py": "class Figure:\n    def savefig(self, out, format, bbox_inches): out.write(b'\\x89PNG\\r\\n\\x1a\\n' + format.encode())\n",
    "PIL/Image.py": "class Image:\n    def save(self, out, format): out.write(b'\\x89PNG\\r\\n\\x1a\\npil ' + format.encode())\n",
}
FAKED = "import sys; sys.path.insert(0, '/workspace/c_fakes')\n"
PNG = b"\x89PNG\r\n\x1a\n"


def fakes(way: Any) -> None:
    write(way, {f"c_fakes/{name}": text for name, text in FAKES.items()})


def shown(way: Any, code: str) -> dict[str, str]:
    """The artifacts of a call, {name: path}, from the note that an agent reads."""
    text = way.run_python(code).text
    notes = [x for x in text.split("\n") if x.startswith("[ui artifacts: ")]
    assert len(notes) == 1, text
    return dict(pair.split(" -> ") for pair in notes[0][len("[ui artifacts: ") : -1].split(", "))


@line("C.31", "files, committed with the call", shared=True)
def _(way, t):
    o = py(way, "ui = {'c31.a': {'x': 1}, 'c31 b': [1], 'c31_c': 'text'}")
    t.eq(way.read("ui/c31.a.json"), b'{"x": 1}')
    t.eq(way.read("ui/c31 b.json"), b"[1]")
    t.eq(way.read("ui/c31_c.json"), b'"text"')
    assert o.commit, "no commit"
    t.eq(
        [a["path"] for a in o.data["ui"]],
        ["/workspace/ui/c31.a.json", "/workspace/ui/c31 b.json", "/workspace/ui/c31_c.json"],
    )


@line("C.31", "from any working directory, also of a call that fails, and replaced by the next", shared=True)
def _(way, t):
    t.eq(shown(way, "import os; os.chdir('/tmp')\nui = {'c31.d': 1}\n1/0"), {"c31.d": "/workspace/ui/c31.d.json"})
    t.eq(shown(way, "ui = {'c31.d': 2}"), {"c31.d": "/workspace/ui/c31.d.json"})
    t.eq(way.read("ui/c31.d.json"), b"2")
    way.terminal("cd /workspace")


@line("C.31", "a call without ui has none, and neither has a module of that name", shared=True)
def _(way, t):
    write(way, {"c31mod/ui.py": ""})
    for code in (
        "1",
        "def f():\n    ui = {'a': 1}\nf()",
        "import sys; sys.path.insert(0, '/workspace/c31mod')\nimport ui",
        "ui = {}",
        "ui = None",
    ):
        assert "[ui" not in py(way, code).text, code


@line("C.32", "its own JSON", shared=True)
def _(way, t):
    fakes(way)
    t.eq(
        shown(
            way,
            FAKED + "from plotly.basedatatypes import BaseFigure\nclass Figure(BaseFigure): pass\nui = {'c32': Figure()}",
        ),
        {"c32": "/workspace/ui/c32.plotly.json"},
    )
    t.eq(json.loads(way.read("ui/c32.plotly.json")), {"data": [], "layout": {}})


@line("C.33", "200 rows, total, types; 200 are whole", shared=True)
def _(way, t):
    fakes(way)
    for n in (3, 200, 201, 5000):
        got = shown(way, FAKED + f"import pandas\nui = {{'c33': pandas.DataFrame([(i, 'x%d' % i) for i in range({n})])}}")
        t.eq(got, {"c33": "/workspace/ui/c33.table.json"})
        table = json.loads(way.read("ui/c33.table.json"))
        t.eq(table["columns"], [{"name": "n", "type": "int64"}, {"name": "text", "type": "object"}])
        t.eq((table["total"], table["truncated"], len(table["rows"])), (n, n > 200, min(n, 200)))
        t.eq(table["rows"][:2], [[0, "x0"], [1, "x1"]])


@line("C.33", "cells of all kinds, and a Series", shared=True)
def _(way, t):
    fakes(way)
    code = "import pandas, datetime, decimal\nui = {'c33.cells': pandas.DataFrame([(float('nan'), None), (float('inf'), datetime.date(2026, 1, 2)), (True, decimal.Decimal('1.5'))]), 'c33.s': pandas.Series()}"
    t.eq(set(shown(way, FAKED + code).values()), {"/workspace/ui/c33.cells.table.json", "/workspace/ui/c33.s.table.json"})
    t.eq(json.loads(way.read("ui/c33.cells.table.json"))["rows"], [[None, None], [None, "2026-01-02"], [True, "1.5"]])


@line("C.34", "lists of cards, and a dict with them", shared=True)
def _(way, t):
    cards = [{"title": "Sum", "value": 3}, {"label": "Mean", "value": 1.5, "sublabel": "of all"}]
    t.eq(shown(way, f"ui = {{'c34': {cards!r}}}"), {"c34": "/workspace/ui/c34.cards.json"})
    t.eq(json.loads(way.read("ui/c34.cards.json")), {"cards": cards})
    t.eq(shown(way, f"ui = {{'c34.d': {{'cards': {cards!r}, 'title': 'T'}}}}"), {"c34.d": "/workspace/ui/c34.d.cards.json"})
    t.eq(json.loads(way.read("ui/c34.d.cards.json")), {"cards": cards, "title": "T"})
    for other in ("[]", "[{'a': 1}]", "[{'title': 'no value'}]", "[1]"):
        t.eq(shown(way, f"ui = {{'c34.o': {other}}}"), {"c34.o": "/workspace/ui/c34.o.json"})


@line("C.35", "figures, axes, images of PIL", shared=True)
def _(way, t):
    fakes(way)
    got = shown(
        way,
        FAKED
        + "from matplotlib.figure import Figure\nfrom PIL.Image import Image\nclass Axes: figure = Figure()\nui = {'c35.f': Figure(), 'c35.ax': Axes(), 'c35.p': Image()}",
    )
    t.eq(got, {f"c35.{n}": f"/workspace/ui/c35.{n}.png" for n in ("f", "ax", "p")})
    t.eq(
        (way.read("ui/c35.f.png"), way.read("ui/c35.ax.png"), way.read("ui/c35.p.png")),
        (PNG + b"png", PNG + b"png", PNG + b"pil png"),
    )


@line("C.35", "bytes, by what they are", shared=True)
def _(way, t):
    kinds = {
        "png": PNG + b"x", "jpg": b"\xff\xd8\xff\xe0", "gif": b"GIF89a..", "webp": b"RIFF\0\0\0\0WEBP", "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    }  # fmt: skip
    got = shown(
        way,
        f"ui = {{'c35.' + k: v for k, v in {kinds!r}.items()}}\nui['c35.ba'] = bytearray(ui['c35.png'])\nui['c35.named.png'] = ui['c35.png']",
    )
    t.eq(
        got,
        {
            **{f"c35.{k}": f"/workspace/ui/c35.{k}" if k == "png" else f"/workspace/ui/c35.{k}" for k in kinds},
            "c35.ba": "/workspace/ui/c35.ba.png",
            "c35.named.png": "/workspace/ui/c35.named.png",
        },
    )
    for kind, data in kinds.items():
        t.eq(way.read(f"ui/c35.{kind}"), data)


@line("C.36", "its text", shared=True)
def _(way, t):
    t.eq(
        shown(way, "class H:\n    def _repr_html_(self): return '<b>ü</b>'\nui = {'c36': H()}"),
        {"c36": "/workspace/ui/c36.html"},
    )
    t.eq(way.read("ui/c36.html"), "<b>ü</b>".encode())
    t.eq(
        shown(
            way,
            "class N:\n    def _repr_html_(self): return None\n    def __repr__(self): return 'plain'\nui = {'c36.n': N()}",
        ),
        {"c36.n": "/workspace/ui/c36.n.json"},
    )


@line("C.37", "relative to the working directory or the root, absolute, a Path", shared=True)
def _(way, t):
    write(way, {"c37/data.csv": "a,b\n"})
    want = {"c37": "/workspace/c37/data.csv"}
    for given in (
        "'c37/data.csv'",
        "'/workspace/c37/data.csv'",
        "__import__('pathlib').Path('c37') / 'data.csv'",
        "'c37/../c37/data.csv'",
    ):
        t.eq(shown(way, f"ui = {{'c37': {given}}}"), want)
    t.eq(shown(way, "import os; os.chdir('/workspace/c37')\nui = {'c37': 'data.csv'}"), want)
    way.terminal("cd /workspace")
    t.eq(way.terminal("ls ui | grep '^c37\\.[^t]'").text.startswith("[exit code 1]"), True)


@line("C.37", "a file outside of the workspace, a folder and a text are none", shared=True)
def _(way, t):
    for given in ("/etc/hostname", "/workspace/c_nosuch", "/workspace", "../etc/passwd", "a b\nc", ""):
        t.eq(shown(way, f"ui = {{'c37.t': {given!r}}}"), {"c37.t": "/workspace/ui/c37.t.json"})
        t.eq(json.loads(way.read("ui/c37.t.json")), given)


@line("C.38", "values of all kinds", shared=True)
def _(way, t):
    code = """import datetime, decimal, fractions
ui = {'c38.' + k: v for k, v in dict(n=1, f=1.5, none=None, l=[1, {'a': 'ü'}], s={2, 1}, d=datetime.date(2026, 1, 2), o=fractions.Fraction(1, 2)).items()}"""
    shown(way, code)
    wanted = {"n": 1, "f": 1.5, "none": None, "l": [1, {"a": "ü"}], "s": [1, 2], "d": "2026-01-02", "o": "Fraction(1, 2)"}
    for k, v in wanted.items():
        t.eq(json.loads(way.read(f"ui/c38.{k}.json")), v)


@line("C.39", "new ones and changed ones, below it too; not those of earlier calls", shared=True)
def _(way, t):
    t.eq(shown(way, "import os; os.makedirs('/workspace/ui/c39', exist_ok=True)\nfor n in ('c39.csv', 'c39/deep.txt'): open('/workspace/ui/' + n, 'w').write('1')"),
         {"c39.csv": "/workspace/ui/c39.csv", "c39/deep.txt": "/workspace/ui/c39/deep.txt"})  # fmt: skip
    assert "[ui" not in py(way, "1").text
    t.eq(shown(way, "open('/workspace/ui/c39.csv', 'a').write('2')\nNone"), {"c39.csv": "/workspace/ui/c39.csv"})
    t.eq(
        shown(way, "open('/workspace/ui/c39.x', 'w').write('1')\nui = {'c39.v': 1, 'c39.own': '/workspace/ui/c39.x'}"),
        {"c39.v": "/workspace/ui/c39.v.json", "c39.own": "/workspace/ui/c39.x"},
    )
    t.eq(
        shown(way, "import subprocess; subprocess.run('echo 1 >/workspace/ui/c39.sh', shell=True)\nNone"),
        {"c39.sh": "/workspace/ui/c39.sh"},
    )


@line("C.40", "20 are shown, more are said", shared=True)
def _(way, t):
    t.eq(len(shown(way, "ui = {'c40.%02d' % i: i for i in range(20)}")), 20)
    got = shown(way, "ui = {'c40.%02d' % i: i for i in range(25)}")
    t.eq(sorted(got), ["c40.%02d" % i for i in range(20)])
    t.has(
        way.run_python("ui = {'c40.%02d' % i: i for i in range(25)}").text,
        "[ui note: ui has 25 names; the first 20 are shown]",
    )
    got = shown(way, "for i in range(25): open('/workspace/ui/c40f.%02d' % i, 'w').write('%d' % i)")
    t.eq(len(got), 20)
    assert not way.run_python("ui = {'c40.%02d' % i: i for i in range(20)}").text.count("[ui note")


@line("C.41", "8,000,000 bytes are one, one more is a diagnosis in NAME.txt", shared=True)
def _(way, t):
    code = "class H:\n    def _repr_html_(self): return 'x' * {}\nui = {{'c41': H()}}"
    t.eq(shown(way, code.format(8_000_000)), {"c41": "/workspace/ui/c41.html"})
    t.eq(len(way.read("ui/c41.html")), 8_000_000)
    way.terminal("rm ui/c41.html")
    o = py(way, code.format(8_000_001))
    t.has(o.text, "[ui artifacts: c41 -> /workspace/ui/c41.txt]")
    t.has(o.text, "[ui note: c41 is too large: 8,000,001 bytes, at most 8,000,000]")
    said = way.read("ui/c41.txt").decode()
    for part in ("c41", "8,000,001", "8,000,000", "H"):
        t.has(said, part)
    t.eq(way.terminal("ls ui | grep '^c41\\.[ht]'").text, "c41.txt")


@line("C.41", "a file of one's own in ui/ that is larger leaves one, too", shared=True)
def _(way, t):
    o = py(way, "with open('/workspace/ui/c41.bin', 'wb') as f: f.truncate(8_000_001)")
    t.has(o.text, "[ui artifacts: c41.bin -> /workspace/ui/c41.bin.txt]")
    t.has(o.text, "[ui note: c41.bin is too large: 8,000,001 bytes, at most 8,000,000]")
    t.has(way.read("ui/c41.bin.txt").decode(), "8,000,001")
    t.eq(
        shown(way, "with open('/workspace/ui/c41.bin', 'r+b') as f: n = f.truncate(8_000_000)"),
        {"c41.bin": "/workspace/ui/c41.bin"},
    )
    way.terminal("rm ui/c41.bin")
    # The diagnosis never takes the place of a file.
    t.eq(
        shown(way, "with open('/workspace/ui/c41log.txt', 'wb') as f: n = f.truncate(8_000_001)"),
        {"c41log.txt": "/workspace/ui/c41log.txt.txt"},
    )
    t.eq(
        shown(way, "ui = {'c41log.txt': 'ui/c41log.txt', 'c41.e': 'ui/c41log.txt'}"),
        {"c41log.txt": "/workspace/ui/c41log.txt.txt", "c41.e": "/workspace/ui/c41.e.txt"},
    )
    t.eq(way.terminal("stat -c %s ui/c41log.txt; rm ui/c41log.txt").text, "8000001")


@line("C.42", "one line, in order", shared=True)
def _(way, t):
    o = py(
        way,
        "print('text')\nopen('/workspace/ui/c42.own', 'w').write('1')\nui = {'c42.b': 1, 'c42.a': [{'title': 'x', 'value': 1}]}",
    )
    t.eq(
        o.text,
        "text\n1\n[ui artifacts: c42.b -> /workspace/ui/c42.b.json, c42.a -> /workspace/ui/c42.a.cards.json, c42.own -> /workspace/ui/c42.own]".replace(
            "1\n[", "[", 1
        ),
    )
    t.eq([a["name"] for a in o.data["ui"]], ["c42.b", "c42.a", "c42.own"])


@line("C.43", "bad names, bad values, no dict", shared=True)
def _(way, t):
    for name in ("a/b", "..", "", ".x", "a\nb", "x" * 101, "-x", "end.", "é" * 3):
        t.like(py(way, f"ui = {{{name!r}: 1}}").text, r"\[ui note: .* is no name for an artifact: letters, digits, _ \. -\]")
    t.like(py(way, "ui = {5: 1}").text, r"\[ui note: 5 is no name for an artifact")
    t.has(py(way, "ui = [1]").text, "[ui note: ui is a list; it has to be a dict of name: value]")
    t.has(py(way, "ui = {'c43': b'no image'}").text, "[ui note: c43: these bytes are no png, jpeg, gif, webp or svg image")
    t.has(
        py(way, "class H:\n    def _repr_html_(self): raise ValueError('why')\nui = {'c43': H()}").text,
        "[ui note: c43: __main__.H could not be shown: ValueError: why]",
    )
    t.has(py(way, "x = []\nx.append(x)\nui = {'c43': x}").text, "[ui note: c43: ")
    o = py(way, "ui = {'a/b': 1, 'c43.good': 1}")
    t.has(o.text, "[ui artifacts: c43.good -> /workspace/ui/c43.good.json]\n[ui note: 'a/b' is no name")
    t.eq(o.ok, True)


@line("C.43", "a ui folder that cannot be written", options=OWN)
def _(way, t):
    way.terminal("touch ui")
    o = py(way, "ui = {'a': 1}")
    t.has(o.text or "\n".join(o.data["notes"]), "[ui note: ")
