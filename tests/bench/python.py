#!/usr/bin/env python3
"""What calls from Python cost: p50 and p99, beside `bash -c` and `/usr/bin/python3 -c`, interleaved in one run.

    NTR_BIN=DIR tests/bench/python.py DIR [--rounds N] [--files 0,1000,10000] [--large N] [--python PATH]
        [--nontainer [ISOLATION,...]] [--nontainer-rounds N]

DIR: a folder on the filesystem to measure. --files: sizes of workspaces for opening, forking and one-file calls; --large:
one more (50,000). --python: an interpreter with numpy and pandas, for the lines about preloading. --nontainer: the same
calls through nontainer, where it can be imported (its process isolation: ten seconds a call at 10,000 files).
--json prints the figures as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "hooks" / "python"))

import ntr  # noqa: E402

Figures = dict[str, list[float]]
MANY = "1,000 files of 2 KiB by run_python"
FILL = "for i in $(seq %d); do mkdir -p d/$i; for k in $(seq 100); do echo $i.$k > d/$i/$k; done; done"


def interleaved(rounds: int, what: dict[str, Callable[[], object]], warm: int = 3) -> Figures:
    """Every line once a round, so that what the machine does meanwhile hits all alike. Milliseconds."""
    found: Figures = {name: [] for name in what}
    for i in range(rounds + warm):
        for name, call in what.items():
            began = time.perf_counter()
            call()
            if i >= warm:
                found[name].append((time.perf_counter() - began) * 1e3)
    return found


def p(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * q))]


def program(*argv: str) -> Callable[[], object]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return lambda: subprocess.run(argv, env=env, check=True, capture_output=True)


def good(result: object) -> object:
    assert result, result
    return result


def many_files(n: int) -> str:
    return f"import os\nos.makedirs('many', exist_ok=True)\nfor k in range(1000): open(f'many/{{k}}', 'w').write('{n:2048}')"


def fill(ws: ntr.Workspace, n: int) -> None:
    good(ws.terminal(FILL % (n // 100)))


def settle(store: Path) -> None:
    """Until the fold of what was just made and the deletion of its upper are over: they write to the same disk."""
    for _ in range(120):
        uppers = list((store / "upper").iterdir())
        if not any(u.name.startswith("trash.") or (u / "u" / "d").exists() for u in uppers):
            break
        time.sleep(0.5)
    else:
        raise TimeoutError(f"{store}: not folded after a minute")
    os.sync()


def measure_calls(rounds: int) -> Figures:
    ws = ntr.workspace("calls")
    n = iter(range(1 << 30))
    return interleaved(
        rounds,
        {
            "bash -c true": program("bash", "-c", "true"),
            "python3 -c pass": program("/usr/bin/python3", "-c", "pass"),
            'terminal("true")': lambda: good(ws.terminal("true")),
            'run_python("x=1")': lambda: good(ws.run_python("x=1")),
            "write_file of 1 KB": lambda: good(ws.write_file("f", f"{next(n):1024}")),
            "one file by terminal": lambda: good(ws.terminal(f"echo {next(n)} > g")),
            "cache[k] = v": lambda: ws.cache.__setitem__("k", next(n)),
        },
    )


def measure_import(rounds: int, place: Path) -> Figures:
    env = {**os.environ, "PYTHONPATH": str(TOP / "hooks" / "python"), "PYTHONPYCACHEPREFIX": str(place / "pyc")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # a package that is installed is compiled

    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run(["/usr/bin/python3", "-c", code], env=env, check=True)

    return interleaved(
        rounds,
        {"pass": run("pass"), "import ntr": run("import ntr"), "ntr.workspace": run("import ntr; ntr.workspace")},
    )


def measure_size(rounds: int, files: int, store: Path) -> Figures:
    name = f"size{files}"
    ws = ntr.workspace(name)
    if files:
        fill(ws, files)
        settle(store)
    n = iter(range(1 << 30))

    def fork() -> None:
        ws.fork(f"{name}-{next(n)}").close()

    lines: dict[str, Callable[[], object]] = {
        "open": lambda: ntr.workspace(name).close(),
        "nothing changes": lambda: good(ws.terminal("true")),
        "one file changes": lambda: good(ws.terminal(f"echo {next(n)} > changing")),
        "fork": fork,
    }
    found = interleaved(rounds, lines)
    found |= interleaved(3, {MANY: lambda: good(ws.run_python(many_files(next(n))))}, 1)
    for s in ntr.sessions():
        if s.name.startswith(f"{name}-"):
            ntr.delete(s.name)
    return found


def measure_preload(rounds: int, python: str) -> Figures:
    config = ntr.PythonConfig(python=python, preload=["numpy", "pandas"])
    ws = ntr.workspace("preload", python=config)
    return interleaved(
        rounds,
        {
            "python -c 'import numpy, pandas'": program(python, "-c", "import numpy, pandas"),
            "run_python, preloaded": lambda: good(ws.run_python("import numpy, pandas")),
        },
    )


def measure_nontainer(rounds: int, files: int, isolation: str, place: Path) -> Figures:
    """The same calls there, with its default backend; the files are made without isolation, which is faster."""
    import nontainer  # type: ignore[import-not-found]

    store = place / f"nontainer-{isolation}-{files}"
    config = nontainer.PythonConfig(isolation="process") if isolation == "process" else None
    ws = nontainer.workspace("bench", store=str(store))
    for i in range(files // 100):  # its shell has no loops
        code = f"import os\nos.makedirs('d/{i}')\nfor k in range(100): open(f'd/{i}/{{k}}', 'w').write('text')"
        assert ws.run_python(code)
    if files:
        assert ws.terminal("find d -type f | wc -l").stdout.strip() == str(files)
    ws.close()
    ws = nontainer.workspace("bench", store=str(store), python=config)
    n = iter(range(1 << 30))

    def reopen() -> None:
        nontainer.workspace("bench", store=str(store), python=config).close()

    lines: dict[str, Callable[[], object]] = {
        "nothing changes": lambda: ws.terminal("true"),
        "one file changes": lambda: ws.terminal(f"echo {next(n)} > changing"),
        'run_python("x=1")': lambda: ws.run_python("x=1"),
        "fork": lambda: ws.fork(f"f{next(n)}"),
    }
    warm = min(3, rounds)
    found = interleaved(rounds, lines, warm)
    found |= interleaved(min(rounds, 2), {MANY: lambda: ws.run_python(many_files(next(n)))}, 1)
    ws.close()
    return found | interleaved(rounds, {"open": reopen}, warm)


def show(title: str, figures: Figures) -> None:
    print(f"\n{title}", flush=True)
    for name, values in figures.items():
        mean = statistics.fmean(values)
        print(f"  {name:36} p50 {p(values, 0.5):8.2f} ms   p99 {p(values, 0.99):8.2f} ms   mean {mean:8.2f}")


class Everything(dict[str, Figures]):
    """Shows what is measured as it comes."""

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.shown = shown

    def __setitem__(self, title: str, figures: Figures) -> None:
        super().__setitem__(title, figures)
        if self.shown:
            show(title, figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--files", default="0,1000,10000")
    parser.add_argument("--large", type=int, default=50000)
    parser.add_argument("--python")
    parser.add_argument("--nontainer", nargs="?", const="default,process", metavar="ISOLATION,...")
    parser.add_argument("--nontainer-rounds", type=int, default=30, metavar="N")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    place = o.dir.resolve() / "ntr-bench-python"
    place.mkdir(parents=True)
    os.environ["NTR_STORE"] = str(place / "store")
    run = place / "run"
    run.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(run)
    everything = Everything(shown=not o.json)
    try:
        everything["calls"] = measure_calls(o.rounds)
        everything["import"] = measure_import(min(o.rounds, 30), place)
        for files in dict.fromkeys([*map(int, o.files.split(",")), o.large]):
            everything[f"{files} files"] = measure_size(o.rounds, files, place / "store")
        if o.python:
            everything["preload"] = measure_preload(min(o.rounds, 20), o.python)
        if o.nontainer:
            for isolation in o.nontainer.split(","):
                for files in map(int, o.files.split(",")):
                    title = f"nontainer, {isolation}, {files} files"
                    everything[title] = measure_nontainer(o.nontainer_rounds, files, isolation, place)
    finally:
        from ntr._daemon import find_binary

        subprocess.run([find_binary(), "daemon", "stop"], check=False)
        with contextlib.suppress(OSError):
            shutil.rmtree(place)
    if o.json:
        said = {t: {n: {"p50": p(v, 0.5), "p99": p(v, 0.99)} for n, v in f.items()} for t, f in everything.items()}
        print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
