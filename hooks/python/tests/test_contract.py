"""A test for each line of the contract that can be seen from here."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from pathlib import Path

import pytest

import ntr


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")


# ---- A: workspaces and calls


def test_first_use_makes_one_commit_and_reopening_none(ws):
    assert [c.tool for c in ws.history()] == ["init"]
    again = ntr.workspace("s")
    assert [c.tool for c in again.history()] == ["init"]
    assert again.head == ws.head


@pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "a\n", "ü", "-x/..", None, 5])
def test_session_ids_are_checked(place, name):
    with pytest.raises(ntr.SessionIdError):
        ntr.workspace(name)
    with pytest.raises(ntr.SessionIdError):
        ntr.delete(name)


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "0", "_", "-"])
def test_session_ids_that_are_good(place, name):
    assert ntr.workspace(name).terminal("true")


def test_state_sticks(ws):
    assert ws.terminal("mkdir -p a && cd a && export X=1 && umask 077")
    r = ws.terminal("pwd; echo $X; umask")
    assert r.stdout == "/workspace/a\n1\n0077\n"
    with ntr.workspace("s") as again:
        assert again.terminal("pwd").stdout == "/workspace/a\n"
        assert again.run_python("import os; os.getcwd()").text == "'/workspace/a'"


def test_root(place):
    with ntr.workspace("s", root="/srv/app") as ws:
        assert ws.root == "/srv/app"
        assert ws.terminal("pwd").stdout == "/srv/app\n"
    assert ntr.workspace("s", root="/srv/app/").root == "/srv/app"
    assert ntr.workspace("s").root == "/srv/app"
    with pytest.raises(ntr.WorkspaceError, match="fixed for its life"):
        ntr.workspace("s", root="/workspace")
    with pytest.raises(ntr.WorkspaceError):
        ntr.workspace("t", root="/")
    with pytest.raises(ntr.WorkspaceError):
        ntr.workspace("t", root="relative")


@pytest.mark.parametrize(
    ("script", "code", "out", "err"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\n", "err\n"),
        ("no-such-command-x", 127, "", None),
        ("kill -9 $$", 137, "", None),
        ("printf 'a\\377b'", 0, "a\ufffdb", ""),
        ("true", 0, "", ""),
    ],
)
def test_exit_codes_and_streams(ws, script, code, out, err):
    r = ws.terminal(script)
    assert r.exit_code == code
    assert r.stdout == out
    assert err is None or r.stderr == err
    assert bool(r) == (code == 0)
    assert r.checkpoint is None


def test_bytes_are_kept(ws):
    assert ws.terminal("printf 'a\\377\\000b'").stdout_bytes == b"a\xff\0b"


def test_timeout(ws):
    r = ws.terminal("echo before; touch f; sleep 20", timeout=0.5)
    assert not r and r.timed_out and r.exit_code == 124
    assert r.stdout == "before\n"
    assert "[hint:" in r.text
    assert ws.fs.exists("f")


def test_one_call_one_commit(ws):
    r = ws.terminal("touch a b; mkdir d")
    assert r.changes == ntr.Changes(3, 0, 0)
    assert r.checkpoint == ws.head
    assert ws.terminal("ls").checkpoint is None
    top = ws.history(1)[0]
    assert (top.id, top.tool, top.description["script"]) == (r.checkpoint, "terminal", "touch a b; mkdir d")
    r = ws.run_python("open('a','w').write('1'); cache['k'] = 1")
    assert ws.history(2)[1].id == top.id
    assert ws.head == r.checkpoint


def test_staging(place):
    with ntr.workspace("s", autocheckpoint=False) as ws:
        assert ws.terminal("echo 1 > a").checkpoint is None
        assert ws.run_python("open('b','w').write('2'); cache['k'] = 1").checkpoint is None
        assert ws.write_file("d/c", "3").checkpoint is None
        assert ws.edit_file("d/c", "3", "4").checkpoint is None
        assert ws.put("e/bin", b"\0\xff", mode=0o755) is None
        ws.cache["host"] = (1, 2)
        del ws.cache["k"]
        assert len(ws.history()) == 1
        assert ws.dirty
        c = ws.checkpoint("turn 1")
        assert c is not None and c.message == "turn 1" and len(ws.history()) == 2
        assert not ws.dirty
        assert ws.checkpoint() is None
        assert ws.get("d/c") == b"4" and ws.get("e/bin") == b"\0\xff"
        assert dict(ws.cache) == {"host": (1, 2)}
        ws.terminal("rm -rf *")
        ws.cache["host"] = 0
        assert ws.dirty
        ws.discard()
        assert not ws.dirty
        assert ws.get("a") == b"1\n" and ws.cache["host"] == (1, 2)
        assert ws.terminal("true", checkpoint=True).checkpoint is None
        assert ws.terminal("touch now", checkpoint=True).checkpoint == ws.head


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_put_stays_inside(place, tmp_path, commits, live):
    outside = tmp_path / "outside"
    outside.mkdir()
    up = "../" * 12
    with ntr.workspace("s") as plain:
        plain.terminal(
            f"mkdir d; ln -s {outside} ln; ln -s ../../../../../.. up; ln -s {outside}/file file; ln -s d/../ln ln2"
        )
    ntr.workspace("t")
    with ntr.workspace("s" if live else "t", autocheckpoint=commits) as ws:
        bad = [
            f"{outside}/evil",
            f"{outside}/a/b",
            f"{up}{outside}/evil",
            f"new/{up}{outside}/sub/evil",
            f"n/../..{outside}",
        ]
        bad += ["ln/evil", "ln/a/b", "ln2/a/b", f"up{outside}/a/b", "file", "d/../ln/evil", "new/../ln/a/b"] if live else []
        before = ws.fs.listdir()
        for path in bad:
            for data in (b"\0\xff", "text"):
                with pytest.raises((ntr.WorkspaceError, OSError)):
                    ws.put(path, data)
            with pytest.raises((ntr.WorkspaceError, OSError)):
                ws.fs.write_bytes(path, b"x")
        assert os.listdir(outside) == [] and ws.fs.listdir() == before
        assert not ws.dirty


def test_a_refused_put_says_the_same_staged_and_not(ws):
    ws.terminal("ln -s / ln; ln -s loop loop; echo >f; mkdir d; mkfifo p; ln -s no/where dangling")
    staged = ntr.workspace("s", autocheckpoint=False)
    for path in ("/etc/x", "../x", "ln/tmp/x", "loop/x", "f/x", "d", "", "p", "x" * 300, "dangling"):
        said = []
        for one in (ws, staged):
            with pytest.raises((ntr.WorkspaceError, OSError)) as e:
                one.put(path, b"x")
            said.append((type(e.value), getattr(e.value, "errno", None), str(e.value)))
        assert said[0] == said[1]


def test_staged_put_follows_links_that_stay_inside(place):
    with ntr.workspace("s", autocheckpoint=False) as ws:
        ws.terminal("mkdir d; ln -s /workspace/d abs; ln -s d rel; ln -s ../d/f d/back; echo longer >d/f; umask 027")
        ws.put("abs/a", b"1")
        ws.put("/workspace/rel/b/c/../e", b"2", mode=0o4755)
        ws.put("d/back", b"3")
        ws.put("d/\udcff", b"4")
        assert [ws.get(f"d/{n}") for n in ("a", "b/e", "f", "\udcff")] == [b"1", b"2", b"3", b"4"]
        assert ws.fs.stat("d/b/e").mode == 0o4755 and ws.fs.stat("d/a").mode == 0o640
        ws.terminal(
            "echo 'raise SystemExit(9)' | tee os.py shutil.py errno.py >sitecustomize.py; rmdir gone; mkdir gone; cd gone"
        )
        ws.terminal("rmdir /workspace/gone")
        ws.put("x/y", b"5")
        assert ws.get("x/y") == b"5" and len(ws.history()) == 1


@pytest.mark.parametrize("commits", [False, True])
def test_what_put_takes(place, tmp_path, commits):
    import array

    with ntr.workspace("s", autocheckpoint=commits) as ws:
        for bad in (5, [1, 2], None, 1.5, {1: 2}, True):
            with pytest.raises(TypeError, match=r"bytes .* str or a Path"):
                ws.put("f", bad)
            with pytest.raises(TypeError):
                ws.fs.write_bytes("f", bad)
            with pytest.raises(TypeError):
                ws.exec_python("", stdin=bad if bad is not None else 0)
        with pytest.raises(TypeError):
            ws.fs.write_bytes("f", "text")
        assert not ws.fs.exists("f")
        for good in (b"ab", "ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a-b-")[::2], array.array("H", [0x6261])):
            ws.put("f", good)
            assert ws.get("f") == b"ab"
            ws.put("f", "")
        ws.fs.write_bytes("f", array.array("H", [0x6261]))
        assert ws.get("f") == b"ab"
        for folder in ("nd/", "nd/.", "nd/..", "", "/workspace/", "/workspace/nd//"):
            with pytest.raises(IsADirectoryError):
                ws.put(folder, "x")
            with pytest.raises(IsADirectoryError):
                ws.fs.write_text(folder, "x")
        assert not ws.fs.exists("nd")
        for mode in (-1, 2**16, 2**70):
            with pytest.raises(ValueError):
                ws.put("f", "x", mode=mode)


# ---- B: versions


def test_history_and_ways_back(ws):
    first = ws.head
    ws.terminal("echo 1 > f")
    one = ws.head
    ws.terminal("echo 2 > f; rm -rf .git; touch untracked; chmod 600 f")
    ws.cache["x"] = 1
    assert ws.rollback().to.id == ws.history()[0].id
    assert "x" not in ws.cache
    ws.rollback(1)
    assert ws.head == one
    assert ws.terminal("cat f; stat -c %a f; ls").stdout == "1\n644\nf\n"
    two = ws.terminal("echo two > f").checkpoint
    ws.restore(first)
    assert ws.fs.listdir() == []
    ws.restore(two)
    assert ws.get("f") == b"two\n"
    assert ws.get("f", at=one) == b"1\n"
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.restore("0123456789abcdef0123456789abcdef01234567")
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.restore("nonsense")
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.rollback(50)
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.get("f", at="ffffffffff")
    for bad in (0, -1, True, "1"):
        with pytest.raises(ValueError):
            ws.rollback(bad)


def test_fork(ws):
    ws.terminal("echo 1 > f; mkdir d; cd d; export V=5")
    ws.cache["k"] = [1]
    with ws.fork("other") as fork:
        assert fork.session == "other"
        assert fork.terminal("pwd; echo $V; cat ../f").stdout == "/workspace/d\n5\n1\n"
        fork.terminal("echo 2 > ../f")
        fork.cache["k"] = [2]
    assert ws.get("f") == b"1\n" and ws.cache["k"] == [1]
    with pytest.raises(ntr.SessionExistsError):
        ws.fork("other")
    with ws.fork(at=ws.history()[-1]) as empty:
        assert empty.fs.listdir() == []
    names = {s.name for s in ntr.sessions()}
    assert {"s", "other", empty.session} == names
    ntr.delete("other")
    with pytest.raises(ntr.SessionNotFoundError):
        ntr.delete("other")
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.fork("z", at="ffffffff")


def test_a_commit_has_the_same_names_everywhere(ws, tmp_path):
    ws.put("f", "1")
    one = ws.head
    ws.put("f", "2")
    ntr.workspace("other").put("f", "3")
    names = {"~1": b"1", "~": b"1", "HEAD~1": b"1", "@" + one[:8]: b"1", one[:8]: b"1", one: b"1", "s~1": b"1",
             f"s@{one[:8]}": b"1", "HEAD": b"2", "~0": b"2", "s": b"2", "other": b"3", "other~0": b"3"}  # fmt: skip
    mounts = not os.geteuid() or os.path.exists("/usr/bin/fusermount3")
    for i, (at, content) in enumerate(names.items()):
        assert ws.get("f", at=at) == ws.fs.at(at).read_bytes("f") == content
        assert dict(ws.cache.at(at)) == {}
        with ws.fork(f"fork{i}", at=at) as fork:
            assert fork.get("f") == content
        if mounts:
            with ws.mount(tmp_path, at=at):
                assert (tmp_path / "f").read_bytes() == content
    for bad in ("~9", "@ffffffff", "none", "a b", "", "HEAD@", "ffffffff"):
        with pytest.raises(ntr.CheckpointNotFoundError):
            ws.fork("z", at=bad)
        with pytest.raises(ntr.CheckpointNotFoundError):
            ws.get("f", at=bad)
        with pytest.raises(ntr.CheckpointNotFoundError):
            list(ws.cache.at(bad))
        with pytest.raises(ntr.CheckpointNotFoundError), ws.mount(tmp_path, at=bad):
            pass


def test_numbers_beyond_everything(ws):
    for steps in (2**31, 2**63, 2**70):
        with pytest.raises(ntr.CheckpointNotFoundError):
            ws.rollback(steps)
    assert len(ws.history(2**70)) == len(ws.history(2**63)) == 1
    nan = float("nan")
    for seconds in (nan, -float("inf")):
        for call in (
            lambda s: ws.terminal("true", timeout=s),
            lambda s: ws.run_python("", timeout=s),
            lambda s: ws.exec_python("", timeout=s),
            lambda s: ntr.PythonConfig(timeout=s),
        ):
            with pytest.raises(ValueError, match="timeout"):
                call(seconds)
    with pytest.raises(TypeError):
        ws.terminal("true", timeout="5")
    for endless in (float("inf"), 1e300, 2**80):
        assert ws.terminal("true", timeout=endless)
        assert ws.run_python("", timeout=endless)
        assert ntr.workspace("s", python=ntr.PythonConfig(timeout=endless)).run_python("")
    with pytest.raises(ValueError, match="memory_mb"):
        ntr.workspace("s", python=ntr.PythonConfig(memory_limit_mb=2**70)).run_python("")


def test_variables_that_cannot_be(ws):
    for env in ({"A=B": "c"}, {"A\0": "c"}, {"A": "c\0"}, {5: "c"}):
        with pytest.raises(ValueError):
            ws.terminal("true", env=env)
        with pytest.raises(ValueError):
            ws.run_python("", env=env)


def test_caps(ws):
    assert ws.caps == ntr.Capabilities(True, True, True, False, False, True)
    for missing in (ws.merge, ws.sql):
        with pytest.raises(ntr.NotSupportedError):
            missing()


def test_mount(ws, tmp_path):
    ws.put("f", "x")
    first = ws.head
    ws.put("f", "y")
    if os.geteuid() and not os.path.exists("/usr/bin/fusermount3"):
        pytest.skip("no fusermount3")
    with ws.mount(tmp_path, at=first) as where:
        assert (Path(where) / "f").read_text() == "x"
        with pytest.raises(OSError):
            (Path(where) / "g").write_text("no")
    assert os.listdir(tmp_path) == []
    with ws.mount(tmp_path):
        (tmp_path / "g").write_text("new")
    assert ws.get("g") == b"new"
    with pytest.raises(ntr.WorkspaceError), ws.mount(tmp_path / "none"):
        pass


# ---- C: Python


def test_python_script_model(ws):
    ws.write_file("helpers/text.py", "def shout(s): return s.upper()\n")
    r = ws.run_python("from helpers.text import shout\nx = shout('a')\nx")
    assert r and r.echo and "'A'" in r.echo and r.namespace["x"] == "A"
    assert str(r) == "'A'"
    assert "NameError" in (ws.run_python("x").error or "")
    assert not ws.run_python("x")


@pytest.mark.parametrize(
    "value",
    [None, True, 7, 2**200, -(2**63), 1.5, float("inf"), "ü", "\ud800", "a\0b", b"\0\xff", [1, [2]], (1, (2,)), {1, 2},
     frozenset({3}), {"a": 1}, {1: "a", (2, 3): None}, {"$": 1}, 1 + 2j],
)  # fmt: skip
def test_values_cross_both_ways(ws, value):
    r = ws.run_python("y = x\ncache['k'] = x", inputs={"x": value})
    assert r, r
    assert r.namespace["y"] == value and type(r.namespace["y"]) is type(value)
    assert ws.cache["k"] == value
    ws.cache["h"] = value
    assert ws.run_python("assert cache['h'] == cache['k']")


def test_what_agent_code_pickled_is_never_opened_unasked(ws, tmp_path):
    owned = str(tmp_path / "owned")
    ws.write_file("bad.py", f"import os\nclass Bad:\n    def __reduce__(self): return (os.mkdir, ({owned!r},))\n")
    r = ws.run_python("from bad import Bad\nfrom fractions import Fraction\ncache.update(b=[Bad()], f=Fraction(1, 3))")
    assert r, r
    value = ws.cache["b"][0]
    assert isinstance(value, ntr.Opaque) and value.type == "bad.Bad"
    assert not (tmp_path / "owned").exists()
    value.unpickle_trusted()
    assert (tmp_path / "owned").exists()
    kept = ws.cache["f"]
    assert kept.type == "fractions.Fraction" and kept.repr == "Fraction(1, 3)"
    ws.cache["again"] = kept
    assert ws.run_python("cache['again'] * 3").echo.strip() == "Fraction(1, 1)"


def test_an_opaque_goes_back_as_it_came(ws):
    assert ws.run_python("class P: pass\ncache['p'] = P()")
    value = ws.cache["p"]
    staged = ntr.workspace("s", autocheckpoint=False)
    n = len(ws.history())
    assert staged.cache.set("r", value) is None and staged.cache["r"] == value
    big = b"x" * (20 << 20)
    staged.cache["big"] = big
    assert staged.cache["big"] == big
    del staged.cache["p"]
    with pytest.raises(KeyError):
        del staged.cache["p"]
    assert list(staged.cache) == ["big", "r"] and len(ws.history()) == n and staged.dirty
    staged.discard()
    assert list(ws.cache) == ["p"] and not staged.dirty
    staged.cache["r"] = value
    assert staged.checkpoint() and ws.cache["r"] == value
    for key in ("", "__x", "a/b"):
        with pytest.raises(ntr.CacheError):
            staged.cache[key] = 1


def test_a_staged_cache_joins_the_call_that_it_comes_from(place):
    class Back:
        def keep(self, other: bool) -> None:
            (there if other else ws).cache["k"] = 1

    there = ntr.workspace("other", autocheckpoint=False)
    ws = ntr.workspace("s", autocheckpoint=False, python=ntr.PythonConfig(host_objects={"back": Back()}))
    assert ws.run_python("back.keep(False); back.keep(True)")
    for one in (ws, there):
        assert one.cache["k"] == 1 and len(one.history()) == 1 and one.dirty


def test_cache(ws):
    assert len(ws.cache) == 0 and list(ws.cache) == []
    before = ws.head
    ws.cache["b"] = 1
    assert ws.head != before
    head = ws.head
    ws.cache["b"] = 1
    assert ws.head == head
    ws.cache.update(a={"n": [1]}, c=None)
    assert list(ws.cache) == ["a", "b", "c"] and "a" in ws.cache and "z" not in ws.cache
    assert ws.run_python("cache['a']['n'].append(2)")
    assert ws.cache["a"] == {"n": [1, 2]}
    assert ws.cache.at(head)["b"] == 1 and "a" not in ws.cache.at(head)
    with pytest.raises(KeyError):
        ws.cache["z"]
    with pytest.raises(KeyError):
        del ws.cache["z"]
    with pytest.raises(TypeError):
        ws.cache.at(head)["x"] = 1
    assert ws.cache.pop("b") == 1
    assert ws.cache.get("b", 5) == 5
    ntr_bin = os.environ["NTR_BIN"]
    assert ws.terminal(f"PATH={ntr_bin}:$PATH ntr cache ls").stdout == "a\nc\n"


@pytest.mark.parametrize("key", ["", "__x", "a/b", "x" * 201, "a\0b", 5, None, "\ud800"])
def test_bad_cache_keys(ws, key):
    with pytest.raises((ntr.CacheError, ntr.WorkspaceError)):
        ws.cache[key] = 1


def test_cache_values_must_pickle(ws):
    with pytest.raises(ntr.CacheError, match="pickle"):
        ws.cache["k"] = lambda: 1
    assert "pickle" in (ws.run_python("cache['k'] = lambda: 1").error or "")


def test_large_values(ws):
    big = b"x" * (20 << 20)
    ws.cache["big"] = big
    assert ws.cache["big"] == big
    ws.put("big", big)
    assert ws.get("big") == big


@pytest.mark.parametrize(("echo", "out"), [("none", ""), ("last", "2\n"), ("all", "1\n2\n")])
def test_echo(ws, echo, out):
    assert ws.run_python("1\n2", echo=echo).stdout == out


def test_exec_python(ws):
    r = ws.exec_python(
        "import sys\nopen('made','w').write('x')\nprint(sys.stdin.read() + sys.argv[1] + str(n))\n5",
        {"n": 3}, stdin="in ", argv=["arg "],
    )  # fmt: skip
    assert r.stdout == "in arg 3\n" and r.checkpoint is None
    assert ws.dirty and ws.checkpoint()
    assert ws.exec_python("1+1", echo="last").stdout == "2\n"
    r = ws.exec_python("open('y','w')", readonly=True)
    assert not r and "Read-only" in (r.error or "")
    assert ws.exec_python("import sys; sys.stdin.buffer.read()", stdin=b"\xff" * 100000)


def test_tracebacks_have_no_plumbing(ws):
    r = ws.run_python("def f(n):\n    if n: f(n - 1)\n    raise ValueError('deep')\nf(100)")
    assert not r and r.error is not None
    assert r.error.splitlines()[0].startswith("Traceback") and r.error.endswith("ValueError: deep")
    assert len(r.error.splitlines()) <= 60 and "runner" not in r.error
    assert r.text.startswith("[error]\nTraceback")


@pytest.mark.parametrize(
    "code",
    ["import os; os._exit(3)", "import sys; sys.exit(2)", "import os, signal; os.kill(os.getpid(), 9)",
     "def f(): f()\nf()", "import os; os.close(1); os.close(2); os.close(0); 1/0", "raise SystemExit('bye')"],
)  # fmt: skip
def test_a_failure_is_a_result(ws, code):
    r = ws.run_python(code)
    assert not r and r.text
    assert ws.run_python("1").text == "1"


def test_budget(place):
    with ntr.workspace("s", max_observation=1000) as ws:
        r = ws.run_python("print(list(range(100000)))")
        assert r.truncated and len(r.text) < 1300 and "more" in r.text
        r = ws.terminal("seq 100000")
        assert r.truncated and r.text.endswith("[output truncated]") and len(r.text) < 1100
        assert ws.terminal("seq 10").text == "\n".join(map(str, range(1, 11)))
    for bad in (0, -1, "x", 1 << 30):
        with pytest.raises(ValueError):
            ntr.workspace("s", max_observation=bad)


def test_ui(ws):
    r = ws.run_python("ui = {'page': b'\\x89PNG\\r\\n\\x1a\\n', 'data': {'a': 1}}")
    assert {a.name for a in r.ui} and "[ui artifacts: " in r.text
    assert any(a.path.startswith("/workspace/ui/") for a in r.ui)


def test_hints(ws):
    assert "[hint:" in ws.terminal("rg x").text
    assert ws.run_python("import nosuchmodule").hints


class Thing:
    value = 7

    def __init__(self) -> None:
        self.calls: list[object] = []

    def add(self, a, b=0):
        self.calls.append((a, b))
        return a + b

    def fail(self):
        raise KeyError("why")

    async def later(self, x):
        return x * 2

    def _hidden(self):
        return 1

    @property
    def prop(self):
        raise AssertionError("a property must not be read")


def test_host_objects(place):
    thing = Thing()
    config = ntr.PythonConfig(host_objects={"thing": thing, "narrow": ntr.HostObject(thing, allow=["add"])})
    with ntr.workspace("s", python=config) as ws:
        assert ws.run_python("thing.add(1, b=(2)[0] if 0 else 2)").echo.strip() == "3"
        assert thing.calls == [(1, 2)]
        assert ws.run_python("thing.add([1], [(2, {3})])").echo.strip() == "[1, (2, {3})]"
        assert ws.run_python("try:\n    thing.fail()\nexcept KeyError as e:\n    r = str(e)\nr").namespace["r"]
        assert ws.run_python("thing.later(4)").echo.strip() == "8"
        assert "AttributeError" in (ws.run_python("thing._hidden()").error or "")
        assert "AttributeError" in (ws.run_python("narrow.fail()").error or "")
        assert "AttributeError" in (ws.run_python("thing.nosuch()").error or "")
        assert ws.run_python("narrow.add(1)").echo.strip() == "1"
        r = ws.run_python("[thing.add(i) for i in range(300)][-1]")
        assert r.echo.strip() == "299"


def test_a_host_object_that_calls_back(place):
    seen: list[object] = []

    class Back:
        def read(self, path):
            return ws.get(path)

        def remember(self, k, v):
            ws.cache[k] = v
            return sorted(ws.cache)

        def run(self):
            try:
                return ws.terminal("echo never").text
            except ntr.NestedCallError as e:
                seen.append(e)
                raise

        def write(self):
            return ws.write_file("x", "y").text

        def other(self):
            with ntr.workspace("other") as o:
                return o.terminal("echo other").stdout

        def head(self):
            return len(ws.history())

        def locked(self):
            with ws.lock:
                return 1

    ws = ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()}, timeout=20))
    ws.put("f", b"data")
    r = ws.run_python("a = back.read('f')\nb = back.remember('k', 1)\nc = back.other()\nd = back.head()\ncache['own'] = 2")
    assert r, r
    assert (r.namespace["a"], r.namespace["b"], r.namespace["c"]) == (b"data", ["k"], "other\n")
    assert dict(ws.cache) == {"k": 1, "own": 2}
    assert ws.history()[0].id == r.checkpoint and ws.history()[1].tool == "put"
    assert "NestedCallError" in (ws.run_python("back.run()").error or "") and seen
    for method in ("write", "locked"):
        r = ws.run_python(f"back.{method}()")
        assert r.text and r.duration < 10
    with ws.lock:
        assert ws.run_python("back.read('f')")
    ws.close()


def test_policy(place):
    with ntr.workspace("s", python=ntr.STDLIB) as ws:
        assert ws.run_python("import json, warnings, urllib.parse")
        assert "not granted" in (ws.run_python("import subprocess").error or "")
    narrow, renamed = ntr.ModuleGrant("math", include=["sq*"]), ntr.ModuleGrant("os.path", name="paths")
    grants = ntr.PythonConfig(modules=["json", narrow, renamed])
    with ntr.workspace("s", python=grants) as ws:
        assert ws.run_python("import json, math, paths; math.sqrt(4)")
        assert not ws.run_python("import math; math.sin(0)")
        assert not ws.run_python("import re")


def test_presets():
    both = ntr.STDLIB | ntr.PythonConfig(modules=["x"], timeout=5)
    assert both.stdlib and list(both.modules or ()) == ["x"] and both.timeout == 5
    assert "pandas" in ntr.dataframes().module_names() and "matplotlib" in ntr.plotting().module_names()
    assert ntr.PythonConfig().to_wire() == {"echo": "last", "timeout": 30.0, "cache": True}


def test_limits(place):
    with ntr.workspace("s", python=ntr.PythonConfig(timeout=0.5, memory_limit_mb=100)) as ws:
        r = ws.run_python("while True: pass")
        assert r.timed_out and not r
        assert "MemoryError" in (ws.run_python("x = 'a' * (1 << 30)").error or "")
        assert ws.run_python("import time; time.sleep(1)", timeout=5)


@pytest.mark.parametrize(
    "config",
    [ntr.PythonConfig(isolation="process"), ntr.PythonConfig(isolation="kernel"), ntr.PythonConfig(network=False)],
)
def test_what_cannot_be_isolated_is_said_at_once(place, config):
    with pytest.raises(ntr.IsolationUnavailable):
        ntr.workspace("s", python=config)


@pytest.mark.parametrize("rung", ["process", "kernel", "vm", "nonsense"])
def test_rungs_that_are_not_built(place, rung):
    with pytest.raises(ntr.IsolationUnavailable):
        ntr.workspace("s", rung=rung)


def test_no_cache(place):
    with ntr.workspace("s", cache=False) as ws:
        assert not ws.run_python("cache['x'] = 1")


# ---- D: tools


def test_write_and_edit(ws):
    w = ws.write_file("a/b.txt", "one\ntwo\n")
    assert w and w.text == "wrote a/b.txt (8 bytes)" and w.created and w.checkpoint == ws.head
    assert ws.write_file("a/b.txt", "one\ntwo\n").checkpoint is None
    e = ws.edit_file("a/b.txt", "two", "2")
    assert e and e.text == "replaced 1 occurrence(s) in a/b.txt" and e.mode == "exact" and e.count == 1
    e = ws.edit_file("a/b.txt", "two", "2")
    assert e and e.text == "no-op: replacement already present in a/b.txt" and e.checkpoint is None
    e = ws.edit_file("a/b.txt", "nothing like it", "x")
    assert not e and e.text.startswith("edit failed: ")
    ws.write_file("twice", "x\nx\n")
    assert not ws.edit_file("twice", "x", "y")
    assert ws.edit_file("twice", "x", "y", replace_all=True).count == 2
    ws.write_file("ws", "a  \nb\n")
    assert ws.edit_file("ws", "a\nb\n", "c\n").text.endswith("(matched via trailing_ws)")
    for path in ("/etc/passwd", "../x", "", "a"):
        assert not ws.write_file(path, "x")
    assert not ws.write_file("x", "\ud800") and not ws.edit_file("x", "\ud800", "")


def test_view_image(ws):
    ws.put("p.png", png())
    r = ws.view_image("p.png")
    assert r and r.mime == "image/png" and r.data == png() and r.text == f"p.png (png, {len(png())} bytes)"
    ws.put("t", b"text")
    r = ws.view_image("t")
    assert not r and r.text.startswith("view_image failed: ") and not r.data


def test_texts_of_calls(ws):
    assert ws.terminal("true").text == "(no output)"
    assert ws.terminal("echo a; echo b >&2; exit 2").text == "a\n[exit code 2]\n[stderr]\nb"
    assert ws.run_python("print('x')").text == "x"
    assert ws.terminal("echo \0").text == "terminal failed: the command holds a NUL, which bash cannot read"
    assert not ws.terminal("echo \ud800") and not ws.run_python("'\ud800'")
    with pytest.raises(TypeError):
        ws.terminal(5)


def test_tools_for_a_model(place):
    config = ntr.PythonConfig(host_objects={"crm": Thing()}, modules=["json"])
    with ntr.workspace("s", python=config, terminal_primer="TERM WORDS", python_primer="PY WORDS") as ws:
        tools = {t["name"]: t for t in ws.tools("split", versions=True)}
        names = "terminal run_python file_write file_edit view_image history diff fork rollback"
        assert set(names.split()) <= set(tools)
        assert "TERM WORDS" in tools["terminal"]["description"] and "PY WORDS" in tools["run_python"]["description"]
        assert "crm" in tools["run_python"]["description"] and "json" in tools["run_python"]["description"]
        assert ws.call_tool("terminal", {"command": "echo x > f"})
        assert ws.call_tool("run_python", {"code": "crm.add(1)"}).text == "1"
        assert ws.call_tool("file_write", {"path": "a", "content": "b"}).text == "wrote a (1 bytes)"
        assert "terminal" in ws.call_tool("history", {}).text
        assert ws.call_tool("rollback", {"steps": 1})
        assert ws.fs.listdir() == ["f"]
        for name, args in (("terminal", {}), ("terminal", {"command": 5}), ("file_write", {"path": "x"})):
            r = ws.call_tool(name, args)
            assert not r and r.text
        r = ws.call_tool("nosuch", {})
        assert not r and r.text == "there is no tool 'nosuch'"
        r = ws.call_tool("file_write", {"path": "x", "content": "\ud800"})
        assert not r and r.text.startswith("write failed: ")


# ---- files


def test_files(ws, tmp_path):
    assert ws.put("deep/er/f.txt", "text") == ws.head
    (tmp_path / "x.sh").write_text("#!/bin/sh\necho hi\n")
    (tmp_path / "x.sh").chmod(0o755)
    ws.put("x.sh", tmp_path / "x.sh")
    assert ws.terminal("./x.sh").stdout == "hi\n"
    assert ws.fs.listdir() == ["deep", "x.sh"]
    assert ws.fs.is_dir("deep") and ws.fs.is_file("/workspace/x.sh") and not ws.fs.exists("nope/x")
    assert ws.fs.read_text("deep/er/f.txt") == "text"
    assert [w[0] for w in ws.fs.walk()] == ["", "deep", "deep/er"]
    assert ws.fs.glob("**/*.txt") == ["deep/er/f.txt"] and ws.fs.glob("*.sh") == ["x.sh"]
    assert ws.fs.stat("x.sh").mode == 0o755 and ws.fs.stat("").is_dir
    with pytest.raises(FileNotFoundError):
        ws.get("nope")
    with pytest.raises(IsADirectoryError):
        ws.get("deep")
    with pytest.raises(NotADirectoryError):
        ws.fs.listdir("x.sh")
    with pytest.raises(FileNotFoundError):
        ws.fs.stat("/etc/passwd")
    with pytest.raises(OSError):
        ws.put("x.sh/y", b"")
    old = ws.head
    ws.fs.write_text("x.sh", "new")
    assert ws.fs.at(old).read_text("x.sh").startswith("#!")
    with pytest.raises(TypeError):
        ws.fs.at(old).write_text("x.sh", "no")
    odd = b"a\xff b\n".decode("utf-8", "surrogateescape")
    ws.put(odd, b"odd")
    assert ws.get(odd) == b"odd" and odd in ws.fs.listdir()


def test_mounts(place, tmp_path):
    (tmp_path / "ro").mkdir()
    (tmp_path / "rw").mkdir()
    (tmp_path / "ro" / "f").write_text("host")
    mounts = {"/data": tmp_path / "ro", "/out": f"{tmp_path / 'rw'}:rw"}
    try:
        ws = ntr.workspace("s", mounts=mounts)
    except ntr.NotSupportedError as e:
        assert "daemon does not know" in str(e)
        assert "s" not in {x.name for x in ntr.sessions()}
        pytest.skip("a daemon without mounts")
    assert ws.terminal("cat /data/f; echo x > /out/g").stdout == "host"
    assert not ws.terminal("touch /data/g")
    assert (tmp_path / "rw" / "g").read_text() == "x\n"
    assert ws.run_python("open('/data/f').read()").echo.strip() == "'host'"
    assert ws.fork().terminal("cat /data/f").stdout == "host"
    assert ntr.workspace("s", mounts=mounts).terminal("cat /data/f").stdout == "host"
    for bad in ({"data": tmp_path / "ro"}, {"/data": tmp_path / "none"}):
        with pytest.raises(ntr.WorkspaceError):
            ntr.workspace("t", mounts=bad)
    with ntr.workspace("late") as late:
        late.terminal("true")
    assert ntr.workspace("late", mounts=mounts).terminal("cat /data/f").stdout == "host"


def test_closed(ws):
    ws.close()
    ws.close()
    with pytest.raises(ValueError, match="closed"):
        ws.terminal("true")


# ---- hooks of the store


def hook(place, event: str, text: str) -> None:
    (place.store / "hooks").mkdir(exist_ok=True)
    path = place.store / "hooks" / event
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def test_what_a_hook_refuses(ws, place):
    hook(place, "pre-run", "echo not now >&2; exit 1")
    for r in (ws.terminal("touch f"), ws.run_python("open('f', 'w')")):
        assert not r and "not now" in r.text and r.checkpoint is None
    (place.store / "hooks" / "pre-run").unlink()
    assert ws.fs.listdir() == []
    hook(place, "pre-commit", "echo never >&2; exit 1")
    with pytest.raises(ntr.RefusedError, match="never"):
        ws.put("f", b"x")
    (place.store / "hooks" / "pre-commit").unlink()
    ws.discard()
    hook(place, "post-run", "exit 3")
    with pytest.warns(RuntimeWarning, match="post-run"):
        assert ws.terminal("echo x > f").checkpoint


def test_the_root_itself(ws):
    stamp = "touch -d '2001-02-03 04:05:06.123456789 UTC' ."
    ws.terminal(f"chmod 711 .; {stamp}")
    first = ws.head
    for path in ("", ".", "/workspace", "/workspace/"):
        found = ws.fs.stat(path)
        assert (found.name, found.type, found.mode, found.mtime_ns) == ("", "dir", 0o711, 981173106123456789)
    ws.terminal("for i in $(seq 3000); do echo $i >f$i; done; chmod 1777 .")
    assert ws.fs.stat("").mode == 0o1777 and ws.fs.stat("").mtime_ns > 981173106123456789
    assert ws.fs.at(first).stat("").mode == 0o711 and ws.fs.at(first).stat("").mtime_ns == 981173106123456789
    assert ws.fs.exists("") and ws.fs.is_dir(".") and not ws.fs.is_file("/workspace")
    with pytest.raises(ntr.CheckpointNotFoundError):
        ws.fs.at("ffffffff").stat("")


def test_what_cannot_be_there_is_not(ws):
    ws.terminal("ln -s / out; ln -s loop loop; echo >f")
    for path in ("../b", "..", "out/tmp", "loop/x", "f/x", "x" * 300 + "/y", "a\0b", "a\0b/c", "/etc", "\udcff/x"):
        assert not ws.fs.exists(path) and not ws.fs.is_file(path) and not ws.fs.is_dir(path)
    with pytest.raises(FileNotFoundError):
        ws.fs.stat("../b")
    ws.close()
    with pytest.raises(ValueError):
        ws.fs.exists("f")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "pattern",
    [
        "[z-a]",
        "[[]",
        "[]]",
        "[!]a]",
        "[^a]",
        "[!a]",
        "[a",
        "[",
        "[]",
        "[!]",
        "a[",
        "[\\]",
        "[a-]",
        "[&&]",
        "[b-a-c]*",
        "?[*",
    ],
)
def test_classes_of_globs_are_fnmatchs(pattern):
    from fnmatch import fnmatchcase

    from ntr._globs import compile_glob

    match = compile_glob(pattern)
    for name in ["a", "b", "z", "[", "]", "^", "!", "-", "&", "\\", "[a", "[]", "[!]", "a[", "a[b", "cd"]:
        assert match(name) == fnmatchcase(name, pattern), name
    assert not compile_glob("a[!b]c")("a/c")


@pytest.mark.parametrize("raw", [False, True])
def test_a_read_only_call_changes_nothing_of_the_session(place, raw):
    class Back:
        def keep(self):
            ws.cache["k"] = 2

        def drop(self):
            del ws.cache["k"]

        def read(self):
            return ws.cache["k"]

    with ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()})) as ws:
        ws.cache["k"] = 1
        head = ws.head

        def call(code):
            return ws.exec_python(code, readonly=True) if raw else ws.run_python(code, readonly=True)

        assert call("import os; os.chdir('/tmp'); os.umask(0o77); os.environ['A'] = 'b'")
        assert not ws.dirty
        assert ws.terminal("pwd; umask; echo $A").stdout == f"{ws.root}\n0022\n\n"
        for method in ("keep", "drop"):
            assert "read-only" in (call(f"back.{method}()").error or "")
        assert call("assert back.read() == 1")
        assert ws.cache["k"] == 1 and ws.head == head and not ws.dirty
        assert ws.run_python("back.keep()") and ws.cache["k"] == 2


def test_call_tool_takes_the_text_that_models_give(ws):
    assert ws.call_tool("terminal", '{"command": "echo hi"}').text == "hi"
    assert ws.call_tool("run_python", ' {"code": "1 + 1"}\n').text == "2"
    assert ws.call_tool("file_write", '{"path": "f", "content": "ü"}') and ws.get("f") == "ü".encode()
    for wrong in (
        '{"command": "ec',
        '["command"]',
        '"echo hi"',
        "null",
        "",
        "[" * 100_000,
        ["a"],
        5,
        b"{}",
        True,
        {1: 2},
        [("a", 1)],
    ):
        r = ws.call_tool("terminal", wrong)
        assert not r and r.text.startswith("terminal failed: "), wrong
        assert asyncio.run(ws.acall_tool("terminal", wrong)).text == r.text
    assert not ws.call_tool("file_write", "x") and ws.call_tool("file_write", "x").text.startswith("write failed: ")
    assert asyncio.run(ws.acall_tool("terminal", '{"command": "echo hi"}')).text == "hi"
    assert not ws.call_tool("terminal", '{"command": "\\ud800"}')


def test_what_cannot_be_a_key_is_not_in_the_cache(ws):
    ws.cache["k"] = 1
    code = "(k in cache, k in cache.keys(), cache.get('k'))"
    for key in (None, b"k", 1, ("k",), ["k"], "", "__k", "a/b", "\ud800", "k\0", "k" * 201):
        for cache in (ws.cache, ws.cache.at(ws.head)):
            assert key not in cache
            with pytest.raises(ntr.CacheError):
                cache[key]
            with pytest.raises(ntr.CacheError):
                cache.get(key)
        with pytest.raises(ntr.CacheError):
            ws.cache[key] = 1
        with pytest.raises(ntr.CacheError):
            del ws.cache[key]
        assert ws.run_python(code, inputs={"k": key}).echo.strip() == "(False, False, 1)"
    assert list(ws.cache) == ["k"]


def test_what_a_host_object_sets_is_seen_by_the_call(place):
    class Back:
        def keep(self, value):
            ws.cache["h"] = value

        def drop(self):
            del ws.cache["h"]

    ws = ntr.workspace("s", python=ntr.PythonConfig(host_objects={"back": Back()}))
    code = """
cache["h"] = 0
found = [cache["h"]]
for value in (1, True, "x", [1], {"a": [2]}, None, b"b", (1, [2])):
    back.keep(value)
    found.append(repr(cache["h"]))  # the list itself would be held
held = cache["h"] = [5]
back.keep([6])
same = cache["h"] is held
back.drop()
del held
cache["h"] = 7
back.drop()
missing = cache.get("h", "none")
"""
    r = ws.run_python(code)
    assert r, r
    values = (1, True, "x", [1], {"a": [2]}, None, b"b", (1, [2]))
    assert r.namespace["found"] == [0, *map(repr, values)]
    assert r.namespace["same"] is True and r.namespace["missing"] == "none" and dict(ws.cache) == {}
    ws.close()
