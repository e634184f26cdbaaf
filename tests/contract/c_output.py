"""Section C: results, tracebacks, what an agent sees of output, hints."""

from __future__ import annotations

import ast
from typing import Any

from c_help import PLUMBING, TEXT, fails, misses, out, py, value, venv, write
from table import line


@line(
    "C.18", "every member, of the right kind", why_not={"mcp": "its own row: some of them are in the text only"}, shared=True
)
def _(way, t):
    o = py(way, "import sys\nprint('o')\nn = sys.stderr.write('e\\n')\nopen('/workspace/c18', 'w').write('1')")
    d = o.data
    t.eq(
        (d["stdout"], d["stderr"], d["error"], d["truncated"], d["exit_code"], d["timed_out"]),
        ("o\n1\n", "e\n", None, False, 0, False),
    )
    t.eq(d["namespace"], {"n": 2})
    assert 0 < d["duration"] < 60, d["duration"]
    t.eq(o.commit, way.head())
    t.eq(dict(d["changes"]), {"created": 1, "modified": 0, "deleted": 0})
    t.eq(py(way, "1").commit, None)


@line(
    "C.18",
    "through MCP: the members that are for a model, and the streams in the text",
    ways=("mcp",),
    why_not={"cli": "a row above", "package": "a row above"},
    shared=True,
)
def _(way, t):
    o = py(way, "import sys\nprint('o')\nn = sys.stderr.write('e\\n')\nopen('/workspace/c18', 'w').write('1')")
    d = o.data
    t.eq(o.text, "o\n1\n[stderr]\ne")
    t.eq((d["text"], d["truncated"], d["exit_code"], d["timed_out"]), (o.text, False, 0, False))
    assert 0 < d["duration"] < 60
    t.eq(d["commit"], way.head())


@line("C.18", "the order of an agent's text", shared=True)
def _(way, t):
    o = way.run_python("import sys\nprint('out')\nn = sys.stderr.write('err\\n')\nui = {'c18.a': [1]}\nopen('nosuch')")
    t.eq(o.ok, False)
    t.like(o.text, r"(?s)^out\n\[stderr\]\nerr\n\[error\]\nTraceback .*nosuch'\n\[hint: .*\]\n\[ui artifacts: .*\]$")


@line("C.19", "the code's own frames, with their lines", shared=True)
def _(way, t):
    write(way, {"c19mod.py": "def deep():\n    raise ValueError('why')\n"})
    said = fails(way, "import c19mod\n\ndef f():\n    c19mod.deep()\nf()")
    for part in (
        '[error]\nTraceback (most recent call last):\n  File "<run_python>", line 5, in <module>\n    f()',
        "line 4, in f",
        'File "/workspace/c19mod.py", line 2, in deep',
        "ValueError: why",
    ):
        t.has(said, part)


@line("C.19", "no frame of the plumbing, whatever goes wrong", shared=True)
def _(way, t):
    for code in (
        "1/0", "def f(:", "import nosuchmodule", "import importlib; importlib.import_module('nosuchmodule')", "cache['a/b'] = 1", "cache['no']",
        "cache['x'] = lambda: 1", "try:\n    1/0\nexcept Exception as e:\n    raise ValueError('two') from e",
        "try:\n    cache['a/b']\nexcept Exception:\n    nosuch", "print(1, nosuch=2)", "input()", "eval('1 +')", "exec('raise KeyError(1)')",
        "def f(): f()\nf()", "class R:\n    def __repr__(self): return self.no\nR()", "raise KeyboardInterrupt", "class E(BaseException): pass\nraise E",
        "import json; json.loads('x')", "[][1]", "print('x', sep=1)", "import importlib; importlib.import_module(5)", "raise Exception('a', 'b')",
    ):  # fmt: skip
        said = fails(way, code)
        for part in PLUMBING:
            assert part not in said, f"{code!r}: {part!r} is in {said!r}"
        t.has(said, "[error]\n")


@line("C.19", "syntax errors point at the place", shared=True)
def _(way, t):
    said = fails(way, "x = 1\ndef f(:\n    pass")
    t.has(said, '[error]\n  File "<run_python>", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax')
    t.like(fails(way, "if 1:\nx"), "IndentationError: expected an indented block")


@line("C.19", "chained exceptions, notes and groups are whole", shared=True)
def _(way, t):
    said = fails(way, "try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('outer') from e")
    for part in (
        "KeyError: 'k'",
        "The above exception was the direct cause of the following exception:",
        "RuntimeError: outer",
    ):
        t.has(said, part)


@line("C.20", "60 lines are shown whole, 61 are not", shared=True)
def _(way, t):
    # Beside the message there are three lines: the head, the frame and its source. The message's last n lines are text.
    for n, whole in ((57, True), (58, False), (400, False)):
        said = fails(way, f"text = '\\n'.join('line %d' % i for i in range({n}))\nraise ValueError(text)")
        lines = said.partition("[error]\n")[2].split("\n")
        if whole:
            t.eq(len(lines), 60)
            continue
        t.eq(len(lines), 49)
        t.eq(lines[8], f"... {n + 3 - 48} more lines")
        t.eq(
            (lines[0], lines[3:8]),
            ("Traceback (most recent call last):", ["ValueError: line 0", *[f"line {i}" for i in range(1, 5)]]),
        )
        t.eq(lines[9:], [f"line {i}" for i in range(n - 40, n)])


@line("C.20", "many frames: the outermost and what failed are both there", shared=True)
def _(way, t):
    source = "".join(f"def f{i}(): f{i + 1}()\n" for i in range(60)) + "def f60(): raise ValueError('deep')\n"
    write(way, {"c20mod.py": source})
    said = fails(way, "import c20mod\nc20mod.f0()").partition("[error]\n")[2]
    t.eq(len(said.split("\n")), 49)
    t.has(said, 'File "<run_python>", line 2, in <module>')
    t.has(said, "in f60\n")
    assert said.endswith("ValueError: deep"), said
    assert "in f20\n" not in said


@line("C.20", "a line without end is cut, and says so", shared=True)
def _(way, t):
    said = fails(way, "raise ValueError('x' * 1000000)")
    assert len(said) < 5000, len(said)
    t.like(said, r"x\.\.\. [\d,]+ more characters")


FAILURES = [
    ("1/0", 1, "ZeroDivisionError"),
    ("def f(:", 1, "SyntaxError"),
    ("import sys; sys.exit(3)", 3, "[exit code 3]"),
    ("import sys; sys.exit('bye')", 1, "bye"),
    ("raise SystemExit(300)", 44, "[exit code 44]"),
    ("exit(2)", 2, "[exit code 2]"),
    ("import os; os._exit(4)", 4, "[exit code 4]"),
    ("import os; os.kill(os.getpid(), 9)", 137, "signal 9 (SIGKILL)"),
    ("import os; os.abort()", 134, "signal 6 (SIGABRT)"),
    ("import ctypes; ctypes.string_at(0)", 139, "signal 11 (SIGSEGV)"),
    ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    ("def f(): f()\nf()", 1, "RecursionError"),
    ("import os\nfor fd in range(3): os.close(fd)\n1/0", 1, "ZeroDivisionError"),
    ("import os\nfor fd in range(3, 60):\n    try: os.close(fd)\n    except OSError: pass\n1/0", 1, "ZeroDivisionError"),
    ("class E(Exception):\n    def __str__(self): 1/0\nraise E", 1, "E"),
    ("import sys\nsys.stdout = sys.stderr = None\nraise ValueError('no streams')", 1, "ValueError: no streams"),
    ("import builtins\ndel builtins.print, builtins.repr\n1/0", 1, "ZeroDivisionError"),
    ("globals().clear()\n1/0", 1, "ZeroDivisionError"),
]


@line("C.21", "whatever the code does, and the next call works", shared=True)
def _(way, t):
    for code, status, text in FAILURES:
        o = way.run_python(code)
        t.eq((o.ok, o.exit_code), (False, status), code)
        t.has(o.text, text)
    t.eq(out(py(way, "'works'")), "'works'")


@line("C.21", "code that is no text for Python", shared=True)
def _(way, t):
    t.has(fails(way, "x = 1\0"), "NUL")
    assert not way.run_python("x = (" * 300).ok
    t.eq(out(py(way, "# coding: latin-1\n'ü'")), "'ü'")
    t.eq(out(py(way, "x = 1\r\nif x:\r\n    x = 2\r\nx\r\n")), "2")
    if way.name == "package":
        t.has(fails(way, "'\ud800'"), "no valid Unicode")


@line("C.21", "an exit of 0 is success", shared=True)
def _(way, t):
    for code in ("exit()", "import sys; sys.exit(0)", "raise SystemExit", "import sys; sys.exit(None)"):
        t.eq(way.run_python(code).ok, True, code)


@line("C.21", "a killed warm interpreter costs nothing", shared=True)
def _(way, t):
    o = way.run_python("import os; os.kill(os.getppid(), 9); print('still here')")
    t.eq((o.ok, out(o)), (True, "still here"))
    t.eq(out(py(way, "'next'")), "'next'")


LIMIT = 32000


@line("C.22", "32,000 characters, newline included, are whole, one more is not", shared=True)
def _(way, t):
    for stream in ("stdout", "stderr"):
        for n in (LIMIT - 1, LIMIT):
            o = py(way, f"import sys; n = sys.{stream}.write('é' * {n - 1} + '\\n')")
            t.has(o.text, "é" * (n - 1))
            t.eq((o.truncated, "[output truncated]" in o.text), (False, False), f"{stream} {n}")
        o = py(way, f"import sys; n = sys.{stream}.write('é' * {LIMIT} + 'z\\n')")
        t.eq((o.truncated, o.text.count("é"), "z" in o.text), (True, LIMIT, False), stream)
        t.has(o.text, "[output truncated]")


@line("C.22", "each stream has its own", shared=True)
def _(way, t):
    o = py(way, f"import sys\nn = sys.stdout.write('o' * {LIMIT})\nn = sys.stderr.write('e' * {LIMIT})")
    t.eq((o.truncated, o.text.count("o"), o.text.count("ee")), (False, LIMIT, LIMIT // 2))


@line("C.22", "what the code's programs print counts, too", shared=True)
def _(way, t):
    o = py(way, "import subprocess; p = subprocess.run(['seq', '10000'])")
    t.eq(o.truncated, True)
    t.has(o.text, "\n[output truncated]")
    assert len(o.text) < LIMIT + 100, len(o.text)


@line(
    "C.22",
    "another limit",
    ways=("package",),
    why_not={"cli": "it has the default", "mcp": "it has the default"},
    shared=True,
    options={"package": {"max_observation": 1000}},
)
def _(way, t):
    t.eq(py(way, "print('x' * 999)").truncated, False)
    o = py(way, "print(list(range(100000)))")
    t.eq(o.truncated, True)
    assert len(o.text) < 1100, len(o.text)
    o = py(way, "import sys; n = sys.stdout.write('y' * 2000)")
    t.eq((o.truncated, o.text), (True, "y" * 1000 + "\n[output truncated]"))


EXACT = [
    "a\tb\n",
    "no newline",
    "  blanks  \n\n\n",
    "\r\n\r",
    "\x00\x01\x1b[31m\x7f",
    "ü日\U0001f600\u200b\ufeff",
    "",
    "\n",
    "x" * 31999 + "\n",
    "[output truncated]\n",
]


@line("C.23", "stdout and stderr, character by character", why_not=TEXT, shared=True)
def _(way, t):
    for text in EXACT:
        o = py(way, f"import sys\nn = sys.stdout.write({text!r})\nn = sys.stderr.write({text!r})")
        t.eq((o.stdout, o.stderr, o.truncated), (text, text, False))
        o = py(way, f"print({text!r}, end='')")
        t.eq((o.stdout, o.truncated), (text, False))


@line("C.23", "bytes that are no UTF-8", why_not=TEXT, shared=True)
def _(way, t):
    code = "import os; n = os.write(1, b'a\\xff\\x00\\xc3')"
    if way.name == "cli":
        t.eq(way.raw("py", "-s", way.session, "-c", code).stdout, b"a\xff\0\xc3")
    else:
        t.eq(py(way, code).raw.stdout_bytes, b"a\xff\0\xc3")


@line("C.23", "an agent's text is the output, without its last newlines", shared=True)
def _(way, t):
    for text in ("a\tb", "  two\n\nlines ", "ü日\U0001f600", "x" * 31999, "\x1b[31mred"):
        t.eq(py(way, f"print({text!r})").text, text)


@line("C.23", "print's own ways: sep, end, file, flush, several things", shared=True)
def _(way, t):
    code = "import sys\nprint(1, 'a', [2], sep='-', end='|')\nprint(sep='x')\nprint('e', file=sys.stderr, flush=True)\nprint(None)\nprint(*range(3), sep='\\n')"
    o = py(way, code)
    t.eq(o.text, "1-a-[2]|\nNone\n0\n1\n2\n[stderr]\ne")


STRUCTURES = [
    ("list(range(20000))", r"^\[0, 1, 2, .*\.\.\. [\d,]+ more\]$"),
    ("tuple(range(20000))", r"^\(0, 1, 2, .*\.\.\. [\d,]+ more\)$"),
    ("set(range(20000))", r"^\{0, 1, 2, .*\.\.\. [\d,]+ more\}$"),
    ("frozenset(range(20000))", r"^frozenset\(\{0, 1, .*\.\.\. [\d,]+ more\}\)$"),
    ("{i: str(i) for i in range(20000)}", r"^\{0: '0', 1: '1', .*\.\.\. [\d,]+ more\}$"),
    ("'x' * 40000", r"^'?x+'?\.\.\. [\d,]+ more characters$"),
    ("['y' * 40000, 'end']", r"^\['y+'\.\.\. [\d,]+ more characters, 'end'\]$"),
    ("[b'z' * 40000]", r"^\[b'z+'\.\.\. [\d,]+ more bytes\]$"),
    (
        "{'a': list(range(20000)), 'b': {'c': 'x' * 20000}, 'd': 5}",
        r"^\{'a': \[0, .* more\], 'b': \{'c': 'x+'\.\.\. [\d,]+ more characters\}, 'd': 5\}$",
    ),
    ("[[list(range(100))] * 30] * 30", r"^\[\[\[0, 1, .* more\]"),
    ("type('R', (), {'__repr__': lambda s: 'r' * 40000})()", r"^r+\.\.\. [\d,]+ more characters$"),
]


@line("C.24", "what is printed, and what is echoed", shared=True)
def _(way, t):
    for i, (code, wanted) in enumerate(STRUCTURES):
        o = py(way, code if i % 3 == way_number(way) else f"print({code})")
        shown = o.text.replace("\n[output truncated]", "")
        t.like(shown, wanted)
        assert len(shown) < LIMIT, len(shown)
        t.eq(o.truncated, True)


def way_number(way: Any) -> int:
    """Each way echoes another third, and prints the rest."""
    return ("cli", "mcp", "package").index(way.name)


@line("C.24", "the count tells what is missing", shared=True)
def _(way, t):
    shown = py(way, "print(list(range(20000)))").text.partition("...")
    n = int(shown[2].split()[0].replace(",", ""))
    t.eq(len(ast.literal_eval(shown[0].rstrip(", ") + "]")) + n, 20000)


@line("C.24", "what comes after it is still shown, and the parts of one print", shared=True)
def _(way, t):
    o = py(way, "print(list(range(20000)))\nprint('after')\n'end'")
    t.like(o.text, r"more\]\nafter\n'end'\n\[output truncated\]$")
    o = py(way, "print('first', 'x' * 40000, [1] * 20000, 'last')")
    t.like(o.text, r"^first x+\.\.\. [\d,]+ more characters \[1, .* more\] last\n")


@line("C.24", "on stderr, too", shared=True)
def _(way, t):
    o = py(way, "import sys\nprint(list(range(20000)), file=sys.stderr)\nprint('after', file=sys.stderr)")
    t.like(o.text, r"^\[stderr\]\n\[0, 1, 2, .* more\]\nafter\n\[output truncated\]$")


@line("C.24", "many small prints: the first of them", shared=True)
def _(way, t):
    o = py(way, "for i in range(20000): print('row', i)")
    t.like(o.text, r"^row 0\nrow 1\n(?s:.*)\n\[output truncated\]$")
    t.eq(o.truncated, True)
    assert len(o.text) < LIMIT + 100, len(o.text)


@line("C.24", "a print into a file or a text of one's own is whole", shared=True)
def _(way, t):
    t.eq(value(way, "import io\nf = io.StringIO()\nprint(list(range(20000)), file=f)\nlen(f.getvalue())"), 128891)
    code = "import io, contextlib\nf = io.StringIO()\nwith contextlib.redirect_stdout(f): print(list(range(20000)))\nlen(f.getvalue())"
    t.eq(value(way, code), 128891)


@line(
    "C.24",
    "uncaptured output of the command line is untouched",
    ways=("cli",),
    why_not={"mcp": "an agent sees all output captured", "package": "output is always captured"},
    shared=True,
)
def _(way, t):
    p = way.raw("py", "-s", way.session, "-c", "print(list(range(20000)))")
    t.eq((p.returncode, len(p.stdout)), (0, 128891))


@line("C.25", "truncated and the words, wherever something is missing", shared=True)
def _(way, t):
    for code in (
        "print(list(range(20000)))", "list(range(20000))", "print('x' * 40000)", "import sys; n = sys.stdout.write('x' * 40000)",
        "import sys; n = sys.stderr.write('x' * 40000)", "import os; n = os.system('seq 10000')", "for i in range(10000): print(i)",
        "import os; n = os.system('seq 10000 >&2')", "import pprint; pprint.pprint(list(range(10000)))",
        "print(list(range(20000))); 1/0",
    ):  # fmt: skip
        o = way.run_python(code)
        t.eq((o.truncated, o.text.count("[output truncated]")), (True, 1), code)
    for code in ("print('x' * 31000)", "'x' * 31000", "1/0", "None"):
        o = way.run_python(code)
        t.eq((o.truncated, "[output truncated]" in o.text), (False, False), code)


@line("C.25", "in the middle of the output, at its end, with an error after it", shared=True)
def _(way, t):
    o = way.run_python("import sys\nn = sys.stdout.write('x' * 40000)\nprint('lost')\n1/0")
    t.has(o.text, "ZeroDivisionError")
    t.has(o.text, "[output truncated]")
    assert "lost" not in o.text


def hinted(t: Any, way: Any, code: str, *parts: str, **kw: Any) -> None:
    text = fails(way, code, **kw)
    t.has(text, "[hint: ")
    for part in parts:
        t.has(text.partition("[hint: ")[2], part)


@line("C.26", "what cannot be reached, by any library", shared=True)
def _(way, t):
    for code in (
        "import socket; raise socket.gaierror(-3, 'Temporary failure in name resolution')",
        "import socket; socket.create_connection(('127.0.0.1', 1), 5)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1/', timeout=5)",
        "raise OSError(101, 'Network is unreachable')",
        "try:\n    raise ConnectionRefusedError(111, 'Connection refused')\nexcept OSError as e:\n    raise RuntimeError('fetch failed') from e",
    ):
        hinted(t, way, code, "network", "work from files instead")
    assert "[hint:" not in fails(way, "raise OSError(5, 'I/O error')")


@line("C.27", "its name, where to install it, under the name it is installed by", shared=True)
def _(way, t):
    for module, package in (
        ("nosuchmodule_c27", "nosuchmodule_c27"),
        ("nosuch_c27.sub", "nosuch_c27"),
        ("cv2", "opencv-python"),
        ("skimage", "scikit-image"),
    ):
        hinted(
            t,
            way,
            f"import {module}",
            f"there is no module '{module.partition('.')[0]}' here; in the terminal: ",
            f"pip install {package}`",
        )
    hinted(t, way, "def f():\n    import nosuchmodule_c27\nf()", "pip install nosuchmodule_c27")


@line("C.27", "how to get it depends on what is there: a virtual environment of the workspace", options={})
def _(way, t):
    t.eq(way.terminal(venv()).ok, True)
    hinted(t, way, "import nosuchmodule", "in the terminal: `/workspace/.venv/bin/python -m pip install nosuchmodule`")
    # What is installed there a moment later is seen by the next call.
    t.eq(way.terminal("echo 'X = 3' >$(echo .venv/lib/python3*/site-packages)/nosuchmodule.py").ok, True)
    t.eq(value(way, "import nosuchmodule; nosuchmodule.X"), 3)


@line("C.27", "no such advice for what is there but lacks a part", shared=True)
def _(way, t):
    misses(way, "c27")
    for code in ("import json.nosuch", "from c27lib.nosuch import x", "from json import lods"):
        assert "pip" not in fails(way, code), code


@line("C.28", "a file name for a module's, a dot too many", shared=True)
def _(way, t):
    misses(way, "c28")
    hinted(t, way, "from c28root.py import R", "write `from c28root import R`")
    hinted(t, way, "import c28root.py", "write `import c28root`")
    hinted(t, way, "from .c28root import R", "imports begin at /workspace", "`from c28root import R`")
    hinted(t, way, "from . import c28root", "`import c28root`")
    hinted(t, way, "from .nowhere import R", "imports begin at /workspace")


@line("C.28", "the file is below another folder", shared=True)
def _(way, t):
    misses(way, "c28")
    hinted(
        t,
        way,
        "import c28z",
        "/workspace/c28lib/c28z.py was found: imports begin at /workspace, so write `from c28lib import c28z`",
    )


@line("C.29", "the limit, what stays, what to do", shared=True, options={"timeout": 0.4})
def _(way, t):
    o = way.run_python(
        "print('before')\nopen('/workspace/c29', 'w').write('kept')\ncache['c29'] = 1\nimport time; time.sleep(30)"
    )
    t.eq((o.ok, o.timed_out, o.exit_code), (False, True, 124))
    t.has(o.text, "before\n")
    t.has(o.text, "TimeoutError: the call ran longer than its limit of 0.4 s")
    t.has(o.text, "[hint: work in smaller steps and keep what is done in cache[...] or files, or ask for a longer timeout]")
    assert o.duration < 20, o.duration
    t.eq((way.read("c29"), o.commit is not None), (b"kept", True))


HINTS = [
    ("nosuchname", "names of earlier calls are gone", "cache"),
    ("open('nosuchfile')", "the working directory is /workspace"),
    ("open('c30data.csv')", "the working directory is /workspace; there is /workspace/c30/deep/c30data.csv"),
    ("import os; os.listdir('/workspace/deep')", "there is /workspace/c30/deep"),
    ("input('name? ')", "there is no input to read"),
    ("def f(): f()\nf()", "iterate instead of recursing"),
    ("import ctypes; ctypes.string_at(0)", "a crash in native code"),
    ("import os; os.kill(os.getpid(), 9)", "it was killed from outside"),
]


@line("C.30", "names, files, input, recursion, crashes", shared=True)
def _(way, t):
    write(way, {"c30/deep/c30data.csv": ""})
    for code, *parts in HINTS:
        hinted(t, way, code, *parts)


@line("C.30", "none where nothing helps", shared=True)
def _(way, t):
    for code in ("1/0", "raise ValueError", "def f(:", "{}['k']", "def f():\n    x += 1\nf()"):
        assert "[hint:" not in fails(way, code), code
    assert "[hint:" not in py(way, "try:\n    import nosuchmodule\nexcept ImportError:\n    print('none')").text
