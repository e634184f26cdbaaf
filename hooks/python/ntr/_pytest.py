"""A plugin for pytest: the fixture ntr_fork gives each test a fork of a prepared session, and takes it away afterwards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ._workspace import Workspace


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --ntr-session and --ntr-store, and the same settings for the configuration file."""
    group = parser.getgroup("ntr")
    for name, text in (("session", "the prepared session that ntr_fork forks"), ("store", "the store that it is in")):
        group.addoption(f"--ntr-{name}", default=None, metavar=name.upper(), help=text)
        parser.addini(f"ntr_{name}", text, default="")


def _setting(config: pytest.Config, name: str) -> str | None:
    return config.getoption(f"--ntr-{name}") or config.getini(f"ntr_{name}") or None


@pytest.fixture(scope="session")
def ntr_base(pytestconfig: pytest.Config) -> Iterator[Workspace]:
    """Give the session that tests begin with: --ntr-session, or ntr_session of the configuration file, or an empty one.

    Override it to prepare one in code. An empty one is made for the run and removed at its end.
    """
    import ntr

    name, store = _setting(pytestconfig, "session"), _setting(pytestconfig, "store")
    made = name is None
    if name is not None and name not in {s.name for s in ntr.sessions(store)}:
        raise pytest.UsageError(f"ntr: there is no session {name} to fork; prepare it with `ntr run -s {name} …`")
    ws = ntr.workspace(name or f"pytest-{os.urandom(6).hex()}", store=store)
    try:
        yield ws
    finally:
        ws.close()
        if made:
            with suppress(ntr.SessionNotFoundError):
                ntr.delete(ws.session, store=store)


@pytest.fixture
def ntr_fork(ntr_base: Workspace, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """Give a throw-away fork of ntr_base, whatever its size at once; its processes and files are gone after the test."""
    import ntr

    test = re.sub(r"[^A-Za-z0-9_.-]+", "-", request.node.name).strip("-.")[:60]
    ws = ntr_base.fork(f"test-{test}-{os.urandom(4).hex()}")
    try:
        yield ws
    finally:
        ws.close()
        with suppress(ntr.SessionNotFoundError):  # the test has done so itself
            ws._provider.delete(ws.session)
