"""Commands of the embedding program, in the session's shell."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

import ntr


def test_they_compose_in_pipes(ws):
    ws.register_command("up", lambda c: c.text.upper())
    ws.register_command("args", lambda c: "\n".join(c.args) + "\n" + c.cwd + "\n")
    ws.register_command("code", lambda c: int(c.args[0]))
    ws.register_command("both", lambda c: ntr.CommandResult("out\n", b"err\n", 7))
    assert ws.terminal("printf 'a\\nb\\n' | up | sort -r | up").stdout == "B\nA\n"
    assert ws.terminal("mkdir d; cd d; args 'x y' '' \"$(printf 'l1\\nl2')\"").stdout == "x y\n\nl1\nl2\n/workspace/d\n"
    assert [ws.terminal(f"code {n}").exit_code for n in (0, 1, 200, 255)] == [0, 1, 200, 255]
    r = ws.terminal("both; echo $?")
    assert (r.stdout, r.stderr) == ("out\n7\n", "err\n")
    assert ws.terminal("set -o pipefail; code 3 | cat").exit_code == 3
    assert ws.terminal("which up").stdout.endswith("/up\n")
    assert "up" not in ws.terminal("ls -a /workspace").stdout.split()


def test_bytes_go_through(ws):
    ws.register_command("rev4", lambda c: c.stdin[::-1])
    data = bytes(range(256)) * 4000
    ws.put("in", data)
    assert ws.terminal("rev4 < in > out")
    assert ws.get("out") == data[::-1]


def test_streams_are_the_callers_own(ws):
    def first(c):
        return c.stdin_file.readline()

    ws.register_command("first", first)
    ws.register_command("forever", lambda c: [c.write("y\n") for _ in iter(int, 1)])
    assert ws.terminal("printf '1\\n' | while read x; do echo got $x; first < /dev/null; done").stdout == "got 1\n"
    assert ws.terminal("forever | head -2").stdout == "y\ny\n"
    assert ws.terminal("forever | head -1; echo ${PIPESTATUS[0]}").stdout == "y\n141\n"


def test_failures(ws):
    def bad(c):
        raise ValueError("why")

    ws.register_command("bad", bad)
    ws.register_command("odd", lambda c: object())
    ws.register_command("quit", lambda c: sys.exit(4))
    r = ws.terminal("bad")
    assert r.exit_code == 1 and r.stderr == "bad: ValueError: why\n"
    assert "not text, bytes" in ws.terminal("odd").stderr
    assert ws.terminal("quit").exit_code == 4


@pytest.mark.parametrize("name", ["python", "python3", "python3.11", "cd", "echo", "if", "a/b", "", "-x", "a b", "ü", 5])
def test_names_that_cannot_be(ws, name):
    with pytest.raises(ValueError):
        ws.register_command(name, lambda c: None)
    with pytest.raises(ValueError):
        ntr.workspace("t", commands={name: lambda c: None})


def test_not_a_function(ws):
    with pytest.raises(TypeError):
        ws.register_command("x", 5)


def test_they_call_back_while_the_call_runs(ws):
    def look(c):
        ws.cache["seen"] = c.args
        return ws.get(c.args[0])

    def nested(c):
        return ws.terminal("echo no").stdout

    ws.register_command("look", look)
    ws.register_command("nested", nested)
    ws.put("f", b"content")
    r = ws.terminal("look f; echo; touch after")
    assert r.stdout == "content\n"
    assert ws.cache["seen"] == ["f"]
    assert ws.history()[0].id == r.checkpoint and ws.history()[1].tool == "put"
    r = ws.terminal("nested")
    assert r.exit_code == 1 and "NestedCallError" in r.stderr and r.duration < 10
    with ws.lock:
        assert ws.terminal("look f").stdout == "content"


def test_from_python_and_in_forks(ws):
    ws.register_command("hello", lambda c: f"hello from {c.session}\n")
    assert ws.run_python("import subprocess\nsubprocess.run(['hello'], capture_output=True, text=True).stdout").echo
    with ws.fork("f") as fork:
        assert fork.terminal("hello").stdout == "hello from f\n"
    assert ws.terminal("hello").stdout == "hello from s\n"


def path_of(ws):
    """Without the session's interpreter, which comes last where the machine has no program `python`."""
    return [p for p in ws.terminal("echo $PATH").stdout.strip().split(":") if "/store/python/" not in p]


def test_what_sticks_of_PATH(ws):
    ws.register_command("mine", lambda c: "mine\n")
    ws.terminal("export PATH=/opt/first:$PATH:/opt/last")
    path = path_of(ws)
    assert path[1] == "/opt/first" and path[-1] == "/opt/last"
    assert ws.terminal("mine").stdout == "mine\n"
    with ntr.workspace("s") as plain:
        path = path_of(plain)
        assert path[0] == "/opt/first" and path[-1] == "/opt/last" and not any("ntr-cmd-" in p for p in path)
        assert plain.terminal("mine").exit_code == 127
    assert ws.terminal("unset PATH; /bin/true")
    assert ws.terminal("echo ${PATH-none}").exit_code == 0


def test_unregister_and_close(ws, place):
    ws.register_command("gone", lambda c: "x")
    assert ws.terminal("gone")
    ws.unregister_command("gone")
    assert ws.terminal("gone").exit_code == 127
    ws.register_command("kept", lambda c: "x")
    ws.terminal("kept")
    assert [n for n in os.listdir(place.base / "run") if n.startswith("ntr-cmd-")]
    ws.close()
    assert not [n for n in os.listdir(place.base / "run") if n.startswith("ntr-cmd-")]


def test_gone_when_the_program_ends_without_a_close(place):
    code = "import ntr\nws = ntr.workspace('s', commands={'x': lambda c: 'out'})\nprint(ws.terminal('x').stdout)"
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ntr.__file__))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "out\n"
    assert not [n for n in os.listdir(place.base / "run") if n.startswith("ntr-cmd-")]


def test_many_at_once(ws):
    lock, n = threading.Lock(), [0]

    def count(c):
        with lock:
            n[0] += 1
        time.sleep(0.01)
        return c.args[0] + "\n"

    ws.register_command("count", count)
    r = ws.terminal("for i in $(seq 40); do count $i & done; wait")
    assert sorted(map(int, r.stdout.split())) == list(range(1, 41)) and n[0] == 40


@pytest.mark.parametrize(
    ("closed", "out"), [("<&-", "!"), (">&-", ""), ("2>&-", "!"), ("<&- >&-", ""), ("<&- 2>&-", "!"), ("<&- >&- 2>&-", "")]
)
def test_closed_streams(ws, closed, out):
    ws.register_command("shout", lambda c: c.text.upper() + "!")
    r = ws.terminal(f"shout </dev/null {closed}", timeout=10)
    assert (r.exit_code, r.stdout, r.stderr) == (0, out, "")


def test_whatever_is_raised_is_its_exit_code(ws, recwarn):
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def command(error):
        def function(c):
            raise error

        return function

    async def later(c):
        raise KeyboardInterrupt

    ws.register_command("interrupt", command(KeyboardInterrupt()))
    ws.register_command("broken", command(Broken()))
    ws.register_command("base", command(BaseException("why")))
    ws.register_command("quit", command(SystemExit(3)))
    ws.register_command("later", later)
    for name, text in (("interrupt", "KeyboardInterrupt"), ("broken", "Broken"), ("base", "BaseException: why")):
        r = ws.terminal(name)
        assert (r.exit_code, r.stderr) == (1, f"{name}: {text}\n")
    assert ws.terminal("quit").exit_code == 3 and ws.terminal("later").exit_code == 1
    assert not recwarn.list


def test_what_is_no_text(ws):
    ws.register_command("five", lambda c: ntr.CommandResult(stdout=5))
    ws.register_command("list", lambda c: ntr.CommandResult("out", stderr=[1, 2]))
    ws.register_command("write", lambda c: c.write(3))
    ws.register_command("view", lambda c: memoryview(b"view"))
    for name in ("five", "list", "write"):
        r = ws.terminal(name)
        assert r.exit_code == 1 and r.stdout_bytes == b"" and f"{name}: TypeError: bytes " in r.stderr
    assert ws.terminal("view").stdout == "view"


def test_exit_codes_are_as_pythons_and_no_failure_is_a_success(ws):
    def leave(c):
        sys.exit(
            {"text": "what\ud800 went wrong ü", "none": None, "tuple": (1, "a"), "empty": ""}.get(c.args[0], int(c.args[1]))
        )

    async def leave_later(c):
        raise SystemExit("later")

    ws.register_command("leave", leave)
    ws.register_command("later", leave_later)
    ws.register_command("give", lambda c: int(c.args[0]))
    ws.register_command("both", lambda c: ntr.CommandResult("out", "", int(c.args[0])))
    for how, stderr in (("text", "what\\ud800 went wrong ü\n"), ("tuple", "(1, 'a')\n"), ("empty", "\n")):
        r = ws.terminal(f"leave {how} 0")
        assert (r.exit_code, r.stdout, r.stderr) == (1, "", stderr)
    r = ws.terminal("later")
    assert (r.exit_code, r.stderr) == (1, "later\n")
    assert ws.terminal("leave none 0").exit_code == 0
    for name in ("leave code", "give", "both"):
        codes = [ws.terminal(f"{name} {n}").exit_code for n in (0, 255, 256, 300, -1, -256, 1 << 70)]
        assert codes == [0, 255, 255, 44, 255, 255, 255], name
