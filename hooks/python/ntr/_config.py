"""What agent code may do: settings of a workspace's Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

Echo = Literal["none", "last", "all"]
TIMEOUT_MAX = 1e9  # the protocol's; what is longer is no limit


def check_timeout(seconds: float | None) -> float | None:
    """Give a limit of time, ``inf`` where it is none; ValueError for what is no number. The daemon refuses the rest."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"a timeout is a number of seconds, not a {type(seconds).__name__}")
    if seconds != seconds or seconds == -inf:
        raise ValueError(f"timeout is {seconds!r}: it has to be a number of seconds, or inf for no limit")
    return seconds if seconds <= TIMEOUT_MAX else inf


@dataclass(frozen=True)
class ModuleGrant:
    """A module that agent code may import.

    include and exclude are patterns of its members' names; recursive grants its submodules, too; name is what agent code
    calls it.
    """

    module: str
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    recursive: bool = True
    name: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Give it as the protocol has it."""
        m: dict[str, Any] = {"module": self.module, "recursive": self.recursive}
        if self.include is not None:
            m["include"] = list(self.include)
        if self.exclude is not None:
            m["exclude"] = list(self.exclude)
        if self.name is not None:
            m["name"] = self.name
        return m


@dataclass(frozen=True)
class HostObject:
    """An object of this program whose methods agent code may call. allow narrows them to these names."""

    object: Any
    allow: Sequence[str] | None = None


@dataclass(frozen=True)
class PythonConfig:
    """The Python of a workspace.

    modules, stdlib: an import gate; None and None: no gate, everything that the interpreter has may be imported. The gate
    guides cooperative code; it is no boundary. host_objects: by name, as agent code sees them. network, isolation: what
    this build cannot give raises IsolationUnavailable. timeout: seconds, None or inf for no limit. preload: modules that
    the warm interpreter keeps imported. python: the interpreter; None: the session's.
    """

    modules: Sequence[str | ModuleGrant] | None = None
    stdlib: bool | None = None
    host_objects: Mapping[str, Any] = field(default_factory=dict)
    network: bool = True
    isolation: str = "none"
    timeout: float | None = 30.0
    memory_limit_mb: int | None = None
    echo: Echo = "last"
    preload: Sequence[str] = ()
    python: str | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        check_timeout(self.timeout)

    def __or__(self, other: PythonConfig) -> PythonConfig:
        """Join grants, objects and modules to preload; everything else as the right one has it where that is no default."""
        if not isinstance(other, PythonConfig):
            return NotImplemented
        plain = PythonConfig()
        changed = {
            k: getattr(other, k)
            for k in ("network", "isolation", "timeout", "memory_limit_mb", "echo", "python", "cache")
            if getattr(other, k) != getattr(plain, k)
        }
        grants = [*(self.modules or ()), *(other.modules or ())]
        gate = [x for x in (self.stdlib, other.stdlib) if x is not None]
        return replace(
            self,
            modules=grants if self.modules is not None or other.modules is not None else None,
            stdlib=any(gate) if gate else None,
            host_objects={**self.host_objects, **other.host_objects},
            preload=list(dict.fromkeys([*self.preload, *other.preload])),
            **changed,
        )

    def module_names(self) -> list[str]:
        """Names of what is granted, as agent code knows it."""
        return [m if isinstance(m, str) else m.name or m.module for m in self.modules or ()]

    def to_wire(self) -> dict[str, Any]:
        """Give the members of a request."""
        limit = check_timeout(self.timeout)
        m: dict[str, Any] = {"echo": self.echo, "timeout": 0 if limit in (None, inf) else limit, "cache": self.cache}
        if self.modules is not None or self.stdlib is not None:
            grants = [g if isinstance(g, str) else g.to_wire() for g in self.modules or ()]
            m["policy"] = {"stdlib": bool(self.stdlib), "modules": grants}
        if not self.network:
            m["network"] = False
        if self.isolation != "none":
            m["isolation"] = self.isolation
        if self.memory_limit_mb is not None:
            m["memory_mb"] = self.memory_limit_mb
        if self.preload:
            m["preload"] = list(self.preload)
        if self.python is not None:
            m["python"] = self.python
        return m


STDLIB = PythonConfig(stdlib=True)
"""The safe part of the standard library: data, text, numbers, files; no processes, no sockets."""


def dataframes(*, preload: bool = True) -> PythonConfig:
    """Give STDLIB with numpy and pandas."""
    return replace(STDLIB, modules=["numpy", "pandas"], preload=["numpy", "pandas"] if preload else [])


def plotting(*, preload: bool = True) -> PythonConfig:
    """Give dataframes() with matplotlib, without a display (Agg) and with its fonts warmed."""
    more = PythonConfig(
        modules=["matplotlib", "mpl_toolkits"],
        preload=["matplotlib.pyplot", "matplotlib.font_manager"] if preload else [],
    )
    return dataframes(preload=preload) | more
