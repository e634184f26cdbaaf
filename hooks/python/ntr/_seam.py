"""What the parts of a workspace share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ._client import Control
from ._lock import Turn
from ._protocols import WorkspaceProvider


@dataclass
class Seam:
    """A session of a provider's, and the order of its calls."""

    provider: WorkspaceProvider
    session: str
    lock: Turn
    commits: bool = True
    closed: bool = False

    @contextmanager
    def turn(self, control: Control | None = None) -> Iterator[None]:
        """Around every call."""
        if self.closed:
            raise ValueError(f"the workspace {self.session} is closed")
        self.lock.enter_call(control)
        try:
            yield
        finally:
            self.lock.leave_call()
