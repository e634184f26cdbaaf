"""exec/runner without a session: values, rendering, tracebacks, hints, the import gate, artifacts.

python3 -m unittest tests/unit/test_runner.py        (any Python >= 3.9; numpy and pandas are tested where they are)
"""

import builtins
import collections
import contextlib
import copy
import datetime
import decimal
import enum
import importlib.util
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "exec"))

from runner import artifacts, gate, show, state, trace, values  # noqa: E402
from runner.channel import FrameTooLarge  # noqa: E402

SEED = int(os.environ.get("NTR_SEED", "20261129"))
HAVE = {name: importlib.util.find_spec(name) is not None for name in ("numpy", "pandas", "matplotlib", "PIL")}


class Plain:
    """Something that pickles by its module's name."""

    def __eq__(self, other):
        return type(other) is Plain


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


def table():
    with open(os.path.join(TOP, "tests", "values.json"), encoding="utf-8") as f:
        return json.load(f)


def scope():
    names = {"nan": float("nan"), "inf": float("inf"), "Decimal": decimal.Decimal}
    names.update({n: getattr(datetime, n) for n in ("datetime", "date", "time", "timedelta", "timezone")})
    for name in ("numpy", "pandas"):
        if HAVE[name]:
            names[name] = __import__(name)
    return names


def same(a, b):
    """Equal, of the same type, also for nan and arrays."""
    if type(a) is not type(b):
        return False
    if hasattr(a, "equals"):
        return a.equals(b)
    if type(a).__module__ == "numpy" and hasattr(a, "shape"):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b) if a != a or isinstance(a, (set, frozenset, float)) and a != b else a == b


class Values(unittest.TestCase):
    def test_table(self):
        names = scope()
        for row in table()["values"]:
            if not HAVE.get(row.get("needs"), True):
                continue
            with self.subTest(row["py"]):
                value = eval(row["py"], names)
                text = values.dumps(values.encode(value))
                self.assertEqual(json.loads(text), row["json"])
                self.assertTrue(same(values.decode(json.loads(text)), value))
                self.assertTrue(same(values.decode(json.loads(text), trusted=False), value))

    def test_bad(self):
        for row in table()["bad"]:
            with self.subTest(row), self.assertRaises(values.DecodeError):
                values.decode(row)

    def test_subclasses_come_back_as_themselves(self):
        for value in (Point(1, [2]), collections.OrderedDict(a=1), Colour.RED, collections.Counter("aab"), Plain()):
            with self.subTest(type(value).__name__):
                data = json.loads(values.dumps(values.encode(value)))
                self.assertEqual(data["$"], "opaque")
                back = values.decode(data)
                self.assertIs(type(back), type(value))
                self.assertEqual(back, value)
                with self.assertRaises(values.DecodeError):  # nothing is unpickled where it is not trusted
                    values.decode(data, trusted=False)

    def test_opaque_inside(self):
        data = values.encode({"k": [Plain()]})
        self.assertEqual(data["k"][0]["$"], "opaque")
        self.assertEqual(values.decode(data), {"k": [Plain()]})

    def test_what_cannot_be_loaded_says_why(self):
        made = types.ModuleType("gone_module")
        sys.modules["gone_module"] = made
        try:
            exec("class Gone: pass", made.__dict__)
            data = values.encode([made.Gone()])
        finally:
            del sys.modules["gone_module"]
        with self.assertRaises(values.LoadError) as caught:
            values.decode(data)
        self.assertEqual(
            str(caught.exception),
            "a value of type gone_module.Gone cannot be loaded: ModuleNotFoundError: No module named 'gone_module'; its "
            "class has to be importable (define it in a module of the workspace)",
        )
        sys.modules["gone_module"] = made
        try:
            self.assertIs(type(values.decode(data)[0]), made.Gone)
        finally:
            del sys.modules["gone_module"]

    def test_another_form(self):
        for data, text in (
            ({"$": "opaque", "type": "a.B"}, "no value: 'opaque' in another form (it lacks 'pickle')"),
            ({"$": "int", "v": 5}, "no value: no text"),
            ({"$": "timedelta", "v": [1e9, 1, 1]}, "no value: no timedelta"),
            ({"$": "date", "v": "x"}, "no value: 'date' in another form (Invalid isoformat string: 'x')"),
        ):
            with self.subTest(data), self.assertRaises(values.DecodeError) as caught:
                values.decode(data)
            self.assertEqual(str(caught.exception), text)

    def test_cycle_and_depth(self):
        loop = [1]
        loop.append(loop)
        data = values.encode(loop)
        self.assertEqual(data["$"], "opaque")
        back = values.decode(data)
        self.assertIs(back[1], back)
        deep = []
        for _ in range(150):
            deep = [deep]
        self.assertEqual(values.encode(deep)["$"], "opaque")

    def test_what_does_not_pickle(self):
        for value in (lambda: 1, [lambda: 1], {"f": sys.stdin}, (x for x in ())):
            with self.subTest(type(value)), self.assertRaises(values.EncodeError):
                values.encode(value)

    def test_plain_refuses_opaque(self):
        with self.assertRaises(values.EncodeError):
            values.Encoder(plain=True).encode([Plain()])

    def test_parts(self):
        with self.assertRaises(values.TooLarge):
            values.Encoder(parts=10).encode(list(range(11)))

    def test_random(self):
        rnd = random.Random(SEED)
        for i in range(500):
            value = make(rnd, 4)
            data = json.loads(values.dumps(values.encode(value)))
            self.assertTrue(same(values.decode(data), value), "seed %d, value %d: %r" % (SEED, i, value))
            self.assertEqual(values.encode(values.decode(data)), data)

    def test_sets_do_not_depend_on_the_hash_seed(self):
        code = "from runner import values; print(values.dumps(values.encode({'a', 'b', 'c', 1, None, (1, 2)})))"
        texts = set()
        for seed in ("1", "2", "3"):
            env = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=os.path.join(TOP, "exec"))
            texts.add(subprocess.check_output([sys.executable, "-c", code], env=env))
        self.assertEqual(len(texts), 1)


def make(rnd, depth):
    leaf = [
        lambda: None,
        lambda: rnd.random() < 0.5,
        lambda: rnd.randint(-(2**70), 2**70),
        lambda: rnd.choice([0.0, 1.5, -2.25, 1e-300, float("inf")]),
        lambda: "".join(rnd.choice("ab\u00fc\u20ac\0$\ud800") for _ in range(rnd.randint(0, 4))),
        lambda: bytes(rnd.randrange(256) for _ in range(rnd.randint(0, 4))),
        lambda: decimal.Decimal(rnd.randint(-999, 999)) / 8,
    ]
    if depth == 0 or rnd.random() < 0.4:
        return rnd.choice(leaf)()
    n = rnd.randint(0, 4)
    kind = rnd.choice([list, tuple, dict, set])
    if kind is dict:
        return {rnd.choice(leaf)(): make(rnd, depth - 1) for _ in range(n)}
    if kind is set:
        return {rnd.choice(leaf)() for _ in range(n)}
    return kind(make(rnd, depth - 1) for _ in range(n))


class Show(unittest.TestCase):
    def test_small_is_exact(self):
        for value in (1, "a'b", [1, (2,), {"a": {3}}], {}, set(), (), frozenset({1}), {"k": None}, [[[[]]]]):
            self.assertEqual(show.render(value, 1000), repr(value))

    def test_large_fits(self):
        things = [
            list(range(100000)),
            {"k%d" % i: "v" * 100 for i in range(10000)},
            [["x" * 10000] * 1000] * 10,
            "y" * 100000,
            b"z" * 100000,
            {i: {j: list(range(50)) for j in range(50)} for i in range(50)},
        ]
        for value in things:
            for limit in (100, 500, 8000):
                text = show.render(value, limit)
                self.assertLessEqual(len(text), limit)
                self.assertIn("more", text)

    def test_says_how_many_more(self):
        self.assertRegex(show.render(list(range(100000)), 200), r"^\[0, 1, 2, .*\.\.\. 99,9\d\d more\]$")

    def print(self, budget, *args, **kw):
        file = tempfile.TemporaryFile("w+", encoding="utf-8")
        out = show.Out(file.fileno(), "strict", budget)
        before = builtins.print
        try:
            show.install_print(out)
            with contextlib.redirect_stdout(out):
                for a in args:
                    print(*a, **kw)
        finally:
            builtins.print = before
        out.flush()
        with file:
            file.seek(0)
            return file.read(), out

    def test_print(self):
        text, out = self.print(1000, ("a", 1, [2]), ("b",), sep="-", end="!")
        self.assertEqual(text, "a-1-[2]!b!")
        self.assertFalse(out.truncated)
        text, out = self.print(3000, (list(range(100000)),), ("after",))
        self.assertTrue(out.truncated)
        self.assertLess(len(text), 3000)
        self.assertTrue(text.endswith("more]\nafter\n"))
        text, out = self.print(0, (list(range(100000)),))
        self.assertEqual(text, repr(list(range(100000))) + "\n")

    def test_print_elsewhere_is_exact(self):
        into = io.StringIO()
        self.print(100, (["x" * 1000],), file=into)
        self.assertEqual(into.getvalue(), repr(["x" * 1000]) + "\n")

    def test_print_is_like_the_builtin(self):
        before = builtins.print
        try:
            show.install_print()
            self.assertIsNot(print, before)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                data = pickle.dumps(print, protocol)
                self.assertNotIn(b"runner", data)  # another process has no such module
                self.assertIs(pickle.loads(data), print)
            self.assertIs(copy.deepcopy([print])[0], print)
            self.assertEqual((repr(print), print.__name__, print.__module__), (repr(before), "print", "builtins"))

            for wrong in ("nosuch", "self"):
                with self.assertRaisesRegex(TypeError, r"^(print|__call__)\(\) got .* '?%s'?$" % wrong):
                    print("x", **{wrong: 1})

            class Holder:
                log = print

            into = io.StringIO()
            Holder().log("x", file=into)
            self.assertEqual(into.getvalue(), "x\n")
        finally:
            builtins.print = before


class Trace(unittest.TestCase):
    def error(self, code, name="<run_python>"):
        try:
            exec(compile(textwrap.dedent(code), name, "exec"), {"__name__": "__main__"})
        except BaseException as e:
            e.__traceback__ = e.__traceback__.tb_next
            return e

    def test_frames_of_the_runner_are_left_out(self):
        inner = compile("def f(g): g()", trace.OWN + "x.py", "exec")
        names = {}
        exec(inner, names)
        try:
            names["f"](lambda: 1 / 0)
        except ZeroDivisionError as e:
            text = trace.format_error(e)
        self.assertNotIn(trace.OWN, text)
        self.assertIn("ZeroDivisionError", text)

    def test_chain(self):
        text = trace.format_error(self.error("try:\n  1/0\nexcept Exception as e:\n  raise ValueError('x') from e"))
        self.assertIn("ZeroDivisionError: division by zero\n\nThe above exception was the direct cause", text)
        self.assertTrue(text.endswith("ValueError: x"))

    def test_long_is_cut_in_the_middle(self):
        lines = ["line %d" % i for i in range(61)]
        self.assertEqual(trace.cut("\n".join(lines[:60])), "\n".join(lines[:60]))
        cut = trace.cut("\n".join(lines)).split("\n")
        self.assertEqual(cut[:8], lines[:8])
        self.assertEqual(cut[-40:], lines[-40:])
        self.assertEqual(cut[8], "... 13 more lines")
        self.assertLess(len(trace.cut("x" * 10**6)), 5000)

    def test_syntax_error_has_no_frames(self):
        text = trace.format_error(self.error("def f(:"))
        self.assertFalse(text.startswith("Traceback"))
        self.assertIn("SyntaxError", text)

    def test_broken_str(self):
        text = trace.format_error(self.error("class E(Exception):\n  def __str__(self): raise RuntimeError\nraise E"))
        self.assertIn("E", text)

    def hint(self, code, root="/nowhere", memory=None):
        return " ".join(trace.hints(self.error(code), root, memory))

    def test_hints(self):
        self.assertIn("pip install opencv-python", self.hint("import cv2"))
        self.assertIn("each call is a process of its own", self.hint("print(earlier)"))
        self.assertIn("12 MB", self.hint("raise MemoryError", memory=12))
        self.assertIn("working directory", self.hint("open('no-such-file')"))
        self.assertIn("network", self.hint("import socket; raise socket.gaierror(-2, 'x')"))
        self.assertEqual("", self.hint("raise KeyError('x')"))
        self.assertEqual("", self.hint("def f():\n  x += 1\nf()"))

    def test_hint_names_the_file_that_was_found(self):
        with tempfile.TemporaryDirectory() as root:
            for path in ("lib/tools/helpers.py", "my-mod.py", "data/table.csv"):
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write("x = 1\n")
            self.assertIn("`from lib.tools import helpers`", self.hint("import helpers", root))
            self.assertIn("my-mod.py was found", self.hint("import my_mod", root))
            self.assertIn(root + "/data/table.csv", self.hint("open('table.csv')", root))

    def test_exit(self):
        self.assertEqual(trace.exit_text(None), (0, None))
        self.assertEqual(trace.exit_text(3), (3, None))
        self.assertEqual(trace.exit_text(-1), (255, None))
        self.assertEqual(trace.exit_text("bye"), (1, "bye"))


class Keys(unittest.TestCase):
    def test_keys(self):
        for key in ("a", "a.b c", "\u00fc", "_x", "x" * 200):
            self.assertEqual(state.check_key(key), key)
        for key in ("", "__a", "a/b", "a\0", "\ud800", "x" * 201, "\u20ac" * 67, 1, None, b"a", ("a",)):
            with self.subTest(key), self.assertRaises(state.CacheError):
                state.check_key(key)


class FakeHost:
    """The daemon's side of the cache; values of the keys in large do not fit into an answer."""

    returned = 0
    owner = os.getpid()

    def __init__(self, kept, large=()):
        self.kept = {k: values.encode(v) for k, v in kept.items()}
        self.large = large
        self.asked = []

    def ask(self, m):
        self.asked.append((m["cache"], m.get("key")))
        if m["cache"] == "keys":
            return {"value": sorted(self.kept)}
        if m["cache"] == "set":
            self.kept[m["key"]] = m["value"]
            return {}
        if m["key"] not in self.kept:
            return {"missing": True}
        if m["cache"] == "del":
            del self.kept[m["key"]]
            return {}
        if m["key"] in self.large:
            return {"error": "the answer is too large for the call's channel"}
        return {"value": self.kept[m["key"]]}


class Cache(unittest.TestCase):
    def test_as_a_dict(self):
        host = FakeHost({"a": [1], "b": 2})
        cache = state.Cache(host, False)
        whole = {"a": [1], "b": 2}
        self.assertEqual(cache | {"b": 3, "c": 4}, {"a": [1], "b": 3, "c": 4})
        self.assertEqual({"b": 3, "c": 4} | cache, {"b": 2, "c": 4, "a": [1]})
        self.assertIs(type(cache | {}), dict)
        self.assertEqual((cache.copy(), type(cache.copy())), (whole, dict))
        self.assertTrue(cache == whole and whole == cache and cache != {} and cache != {"a": 1})
        self.assertEqual(list(reversed(cache)), ["b", "a"])
        with self.assertRaises(TypeError):
            cache | 5
        same = cache
        cache |= {"b": 5, "c": {1}}
        self.assertIs(cache, same)
        self.assertEqual(host.kept["b"], 5)
        self.assertEqual(cache["c"], {1})
        cache.copy()["a"].append(2)  # the copy is a shallow one
        self.assertEqual((cache.settle(), host.kept["a"]), ([], [1, 2]))

    def test_one_key_loads_no_other(self):
        host = FakeHost({"a": 1, "b": 2})
        cache = state.Cache(host, False)
        self.assertTrue("b" in cache and len(cache) == 2 and cache["a"] == 1)
        self.assertEqual([k for op, k in host.asked if op == "get"], ["a"])

    def test_clear_loads_nothing(self):
        host = FakeHost({"a": 1, "b": 2}, large="b")
        state.Cache(host, False).clear()
        self.assertEqual(host.kept, {})
        self.assertNotIn("get", [op for op, _ in host.asked])
        with self.assertRaises(state.CacheReadOnly):
            state.Cache(FakeHost({"a": 1}), True).clear()

    def test_json(self):
        before = json.JSONEncoder.default
        try:
            state.install_json()
            cache = state.Cache(FakeHost({"a": [1], "b": 2}), False)
            self.assertEqual(json.dumps(cache), '{"a": [1], "b": 2}')
            self.assertEqual(json.dumps([{"x": cache}]), '[{"x": {"a": [1], "b": 2}}]')
            self.assertEqual(json.loads(json.dumps(cache, indent=1)), {"a": [1], "b": 2})
            self.assertEqual(json.dumps(state.Cache(FakeHost({}), False)), "{}")
            with self.assertRaisesRegex(TypeError, "^Object of type set is not JSON serializable"):
                json.dumps({1})
        finally:
            json.JSONEncoder.default = before

    def test_too_large_to_fetch(self):
        cache = state.Cache(FakeHost({"my big": b"x"}, large=["my big"]), False)
        with self.assertRaises(state.CacheError) as caught:
            cache["my big"]
        self.assertEqual(
            str(caught.exception),
            "cache['my big'] cannot be read in a call: it is larger than the 64 MiB that go over the channel (bytes count "
            "as base64); in the shell, `ntr cache get 'my big' >FILE` writes it to a file",
        )

    def test_errors_go_to_other_processes(self):
        cache = state.Cache(FakeHost({}), True)
        for do, kind in (
            (lambda: cache["__x"], TypeError),
            (lambda: cache.update(a=1), PermissionError),
            (lambda: (_ for _ in ()).throw(state.HostError("odd")), RuntimeError),
        ):
            with self.assertRaises(Exception) as caught:
                do()
            back = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((type(back), str(back)), (kind, str(caught.exception)))


class Objects(unittest.TestCase):
    def ask(self, reply):
        class Channel:
            returned = 0

            def ask(self, message):
                if isinstance(reply, Exception):
                    raise reply
                return reply

        with self.assertRaises(Exception) as caught:
            state.host_objects(Channel(), [{"name": "crm"}])["crm"].find(1)
        return "%s: %s" % (type(caught.exception).__name__, caught.exception)

    def test_what_cannot_cross(self):
        gone = {"$": "opaque", "type": "no_such.C", "pickle": "gASVEwAAAAAAAACMB25vX3N1Y2iUjAFDlJOULg==", "repr": "C"}
        self.assertRegex(
            self.ask({"value": gone}),
            "^HostError: crm.find: its answer cannot be used here: a value of type no_such.C cannot",
        )
        self.assertEqual(
            self.ask({"error": "the answer is too large for the call's channel"}),
            "HostError: the host's answer is larger than the 64 MiB that go over the channel; have it put into a file",
        )
        self.assertEqual(
            self.ask(FrameTooLarge("9 bytes, at most 8 go over the channel")),
            "TypeError: crm.find: the arguments cannot be handed over: 9 bytes, at most 8 go over the channel; write them "
            "to a file",
        )


class Gate(unittest.TestCase):
    def run_in(self, policy, code, files=()):
        """In a process of its own: the gate stays once it is installed. The last line of what it prints."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in files:
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(text)
            program = (
                "import sys; sys.path[:0] = [%r, %r]\nfrom runner import gate\ngate.Gate(%r, %r).install()\n%s"
                % (
                    os.path.join(TOP, "exec"),
                    root,
                    policy,
                    root,
                    textwrap.dedent(code),
                )
            )
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            return (done.stdout + done.stderr).strip().splitlines()[-1]

    def test_gate(self):
        std = {"stdlib": True}
        cases = [
            ({}, "import json", "ModuleNotGranted: the module 'json' is not granted here; granted: none"),
            (std, "import json, math; print('ok')", "ok"),
            (std, "import warnings, urllib.parse; print(urllib.parse.quote('a b'))", "a%20b"),
            (std, "from urllib import parse; print('ok')", "ok"),
            (std, "from os import path; print('ok')", "ok"),
            (std, "import xml.etree.ElementTree; print('ok')", "ok"),
            ({"modules": ["os"]}, "import os; print('ok')", "ok"),
            ({"modules": ["xml"]}, "import xml.dom; print('ok')", "ok"),
            ({"modules": ["xml.dom"]}, "import xml.dom; print('ok')", "ok"),
            ({"modules": [{"module": "json", "name": "j"}]}, "import j; print(j.dumps(1))", "1"),
            ({"modules": [{"module": "math", "include": ["s*"]}]}, "import math; print(math.sqrt(4))", "2.0"),
        ]
        for policy, code, said in cases:
            with self.subTest(code):
                self.assertEqual(self.run_in(policy, code), said)

    def test_refused(self):
        std = {"stdlib": True}
        for policy, code in [
            (std, "import subprocess"),
            (std, "import socket"),
            (std, "from urllib import request"),
            (std, "import importlib"),
            (std, "import numpy"),
            ({"modules": ["xml"]}, "import json"),
            ({"modules": [{"module": "xml", "recursive": False}]}, "import xml.dom"),
        ]:
            with self.subTest(code):
                self.assertIn("ModuleNotGranted", self.run_in(policy, code))
        for grant in ({"include": ["s*"]}, {"exclude": ["c*"]}):
            said = self.run_in({"modules": [dict(grant, module="math")]}, "import math; math.cos")
            self.assertIn("AttributeError: math.cos is not granted here", said)

    def test_modules_of_the_workspace(self):
        files = [("helpers.py", "import json\nX = 5\n"), ("bad.py", "import socket\n")]
        policy = {"stdlib": True}
        self.assertEqual(self.run_in(policy, "import helpers; print(helpers.X)", files), "5")
        self.assertIn("'socket' is not granted", self.run_in(policy, "import bad", files))

    def test_granted_modules_import_what_they_need(self):
        self.assertEqual(self.run_in({"modules": ["http.server"]}, "import http.server; print('ok')"), "ok")

    def test_its_functions_and_errors_go_to_other_processes(self):
        code = """
        import importlib, pickle
        for f in (__import__, importlib.import_module):
            assert pickle.loads(pickle.dumps(f)) is f and b"runner" not in pickle.dumps(f), f
        try: import socket
        except ImportError as e: e = pickle.loads(pickle.dumps(e)); print(type(e), e.name, e)
        """
        said = self.run_in({"modules": ["importlib", "pickle"]}, code)
        self.assertEqual(
            said,
            "<class 'ModuleNotFoundError'> socket the module 'socket' is not granted here; granted: importlib, pickle",
        )
        code = "import importlib; __import__('json'); importlib.import_module('socket')"
        self.assertIn("'socket' is not granted", self.run_in({"modules": ["importlib", "json"]}, code))


class Artifacts(unittest.TestCase):
    def collect(self, ui, write=(), readonly=False):
        self.root = tempfile.mkdtemp()
        self.addCleanup(__import__("shutil").rmtree, self.root)
        os.makedirs(os.path.join(self.root, "ui"))
        with open(os.path.join(self.root, "ui", "old.txt"), "w", encoding="utf-8") as f:
            f.write("old")
        made = artifacts.Artifacts(self.root, artifacts.listing(self.root), *[True] * readonly)
        for name, size in write:
            with open(os.path.join(self.root, "ui", name), "wb") as f:
                f.write(b"x" * size)
        made.collect(ui)
        return made

    def names(self, made):
        return {m["name"]: os.path.relpath(m["path"], self.root) for m in made.made}

    def read(self, rel):
        with open(os.path.join(self.root, rel), encoding="utf-8") as f:
            return json.load(f) if rel.endswith(".json") else f.read()

    def test_kinds(self):
        class Html:
            def _repr_html_(self):
                return "<b>x</b>"

        png = b"\x89PNG\r\n\x1a\n123"
        made = self.collect({"cards": [{"title": "a", "value": 1}], "page": Html(), "pic": png, "data": {"a": {1, 2}}})
        self.assertEqual(
            self.names(made),
            {"cards": "ui/cards.cards.json", "page": "ui/page.html", "pic": "ui/pic.png", "data": "ui/data.json"},
        )
        self.assertEqual(self.read("ui/data.json"), {"a": [1, 2]})
        self.assertEqual(self.read("ui/page.html"), "<b>x</b>")
        self.assertEqual(made.notes, [])
        self.assertTrue(made.lines()[0].startswith("[ui artifacts: cards -> %s/ui/cards.cards.json, " % self.root))

    def test_files_of_the_code_join(self):
        made = self.collect(None, [("new.csv", 10), ("huge.bin", artifacts.BYTES_MAX + 1)])
        self.assertEqual(self.names(made), {"new.csv": "ui/new.csv", "huge.bin": "ui/huge.bin.txt"})
        self.assertIn("huge.bin is too large", made.notes[0])

    def test_existing_path(self):
        made = self.collect({"it": "ui/old.txt", "not": "no/such.txt"})
        self.assertEqual(self.names(made), {"it": "ui/old.txt", "not": "ui/not.json"})

    def test_read_only(self):
        made = self.collect({"c": 1, "it": "ui/old.txt", "d": [2]}, readonly=True)
        self.assertEqual(self.names(made), {"it": "ui/old.txt"})
        self.assertEqual(os.listdir(os.path.join(self.root, "ui")), ["old.txt"])
        self.assertEqual(
            made.lines(),
            [
                "[ui artifacts: it -> %s/ui/old.txt]" % self.root,
                "[ui note: c, d: this call is read-only, so no file can be made; call again without readonly]",
            ],
        )
        self.assertEqual(self.collect(None, readonly=True).lines(), [])
        self.assertIn("ui is a list", self.collect([1], readonly=True).notes[0])

    def test_limits(self):
        made = self.collect({"n%d" % i: i for i in range(25)})
        self.assertEqual(len(made.made), 20)
        self.assertIn("25 names", made.notes[0])
        made = self.collect({"big": "x" * artifacts.BYTES_MAX})
        self.assertEqual(self.names(made), {"big": "ui/big.txt"})
        self.assertIn("8,000,002 bytes", self.read("ui/big.txt"))
        self.assertEqual(made.lines()[-1], "[ui note: big is too large: 8,000,002 bytes, at most 8,000,000]")

    def test_problems(self):
        self.assertIn("ui is a list", self.collect([1]).notes[0])
        for name in ("../x", "a/b", "", ".hidden", 5, "x" * 200):
            made = self.collect({name: 1})
            self.assertEqual(made.made, [])
            self.assertIn("no name for an artifact", made.notes[0])
        self.assertIn("no png", self.collect({"b": b"abc"}).notes[0])
        loop = []
        loop.append(loop)
        self.assertIn("no JSON form", self.collect({"l": loop}).notes[0])

    @unittest.skipUnless(HAVE["pandas"], "pandas is not here")
    def test_table(self):
        pandas = __import__("pandas")
        made = self.collect({"t": pandas.DataFrame({"a": range(500), "b": [None] * 500})})
        table = self.read("ui/t.table.json")
        self.assertEqual((len(table["rows"]), table["total"], table["rows"][3]), (200, 500, [3, None]))
        self.assertEqual(table["columns"][0], {"name": "a", "type": "int64"})
        self.assertEqual(made.notes, [])

    @unittest.skipUnless(HAVE["matplotlib"], "matplotlib is not here")
    def test_figure(self):
        figure = __import__("matplotlib.figure").figure.Figure()
        figure.subplots().plot([1, 2])
        made = self.collect({"f": figure, "axes": figure.axes[0]})
        self.assertEqual(self.names(made), {"f": "ui/f.png", "axes": "ui/axes.png"})


if __name__ == "__main__":
    unittest.main()
