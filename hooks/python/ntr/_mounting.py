"""Showing a session's files at a directory of the host, by the client program."""

from __future__ import annotations

import subprocess
import time

from ._daemon import find_binary
from ._errors import WorkspaceError

BUSY_S = 3.0  # whoever has just looked through the host's files may hold one for a moment


def _ntr(*args: str) -> str | None:
    """None, or what it says is wrong."""
    done = subprocess.run([find_binary(), *args], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not done.returncode:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[0].removeprefix("ntr: ") if said else f"exit status {done.returncode}"


def mount(store: str, what: str, where: str) -> None:
    """Do ``ntr mount``."""
    wrong = _ntr("mount", "--store", store, what, where)
    if wrong:
        raise WorkspaceError(f"mount {what} at {where}", wrong)


def umount(store: str, where: str) -> None:
    """Do ``ntr umount``; again for a while where somebody is still in there."""
    until = time.monotonic() + BUSY_S
    while wrong := _ntr("umount", "--store", store, where):
        if "in use" not in wrong or time.monotonic() > until:
            raise WorkspaceError(f"unmount {where}", wrong)
        time.sleep(0.1)
