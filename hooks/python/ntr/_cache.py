"""The cache of a workspace, as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from ._results import Commit
from ._seam import Seam


class Cache(MutableMapping[str, Any]):
    """Values by key, committed, rolled back and forked with the files; the same ``cache`` as agent code has.

    A value that is fetched is a copy: to change it, set it again. What agent code has put there that is no plain data
    comes as an ``Opaque``, which names its type and is unpickled by an explicit call only. Each change is a commit.
    """

    def __init__(self, seam: Seam, at: str | None = None) -> None:
        self._seam = seam
        self._at = at

    def at(self, commit: str | Commit) -> Cache:
        """Give the cache as it was; it cannot be changed."""
        return Cache(self._seam, str(commit))

    def _change(self) -> None:
        if self._at is not None:
            raise TypeError("the cache of a commit cannot be changed")

    def __getitem__(self, key: str) -> Any:
        with self._seam.turn():
            return self._seam.provider.cache_get(self._seam.session, key, self._at)

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def set(self, key: str, value: Any) -> str | None:
        """Set a value; give the commit, None where it was that already."""
        self._change()
        with self._seam.turn():
            return self._seam.provider.cache_set(self._seam.session, key, value, commit=self._seam.commits)

    def __delitem__(self, key: str) -> None:
        self._change()
        with self._seam.turn():
            self._seam.provider.cache_delete(self._seam.session, key, commit=self._seam.commits)

    def __iter__(self) -> Iterator[str]:
        with self._seam.turn():
            return iter(self._seam.provider.cache_keys(self._seam.session, self._at))

    def __len__(self) -> int:
        with self._seam.turn():
            return len(self._seam.provider.cache_keys(self._seam.session, self._at))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in list(self)

    def __repr__(self) -> str:
        return f"<cache of {self._seam.session}{'@' + self._at[:12] if self._at else ''}>"
