"""The import gate: which modules agent code may import. It guides cooperative code; it is no boundary.

The check is made where agent code imports (the call itself and modules of the workspace). What a granted module imports
for itself is its own business.
"""

from __future__ import annotations

import builtins
import fnmatch
import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Optional

from .show import Replacement

# The safe part of the standard library: data, text, numbers, files. Left out: processes, sockets, native code, the
# interpreter's own machinery.
STDLIB = frozenset(
    """__future__ abc argparse array ast base64 binascii bisect bz2 calendar cmath codecs collections colorsys contextlib
    contextvars copy copyreg csv dataclasses datetime decimal difflib dis email encodings enum errno filecmp fileinput
    fnmatch fractions functools getpass gettext glob graphlib gzip hashlib heapq hmac html io ipaddress itertools json
    keyword linecache locale logging lzma math mimetypes numbers opcode operator os.path pathlib pickle pickletools pkgutil
    platform plistlib pprint queue quopri random re reprlib sched secrets shlex shutil sqlite3 stat statistics string
    stringprep struct tarfile tempfile textwrap threading time timeit token tokenize tomllib traceback types typing
    unicodedata unittest uuid urllib.parse warnings wave weakref xml zipfile zlib zoneinfo""".split()
)


class ModuleNotGranted(ModuleNotFoundError):
    """A module that the embedding program does not grant."""

    ntr_gate = True

    def __reduce__(self) -> Any:  # no other process could find this class
        return ModuleNotFoundError, self.args, {"name": self.name, "path": self.path}


ModuleNotGranted.__module__ = "builtins"


class Grant:
    def __init__(self, spec: Any) -> None:
        if type(spec) is str:
            spec = {"module": spec}
        self.module: str = spec["module"]
        self.name: str = spec.get("name") or self.module
        self.include: Optional[list[str]] = spec.get("include")
        self.exclude: list[str] = spec.get("exclude") or []
        self.recursive: bool = spec.get("recursive", True)

    def covers(self, name: str) -> bool:
        return name in (self.module, self.name) or (self.recursive and name.startswith(self.module + "."))

    def allows(self, attr: str) -> bool:
        if any(fnmatch.fnmatchcase(attr, p) for p in self.exclude):
            return False
        return self.include is None or any(fnmatch.fnmatchcase(attr, p) for p in self.include)

    def narrows(self) -> bool:
        return self.include is not None or bool(self.exclude)


class Facade(types.ModuleType):
    """A module of which only some names are granted."""

    def __init__(self, module: types.ModuleType, grant: Grant) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_ntr_module"] = module
        self.__dict__["_ntr_grant"] = grant

    def __getattr__(self, attr: str) -> Any:
        module, grant = self.__dict__["_ntr_module"], self.__dict__["_ntr_grant"]
        if attr.startswith("__") or grant.allows(attr):
            return getattr(module, attr)
        raise AttributeError("%s.%s is not granted here" % (grant.name, attr))

    def __dir__(self) -> list[str]:
        module, grant = self.__dict__["_ntr_module"], self.__dict__["_ntr_grant"]
        return [n for n in dir(module) if not n.startswith("_") and grant.allows(n)]


class Gate:
    def __init__(self, policy: dict[str, Any], root: str) -> None:
        self.root = root + os.sep
        self.stdlib: bool = bool(policy.get("stdlib", False))
        self.grants = [Grant(g) for g in policy.get("modules") or []]
        self.facades: dict[str, Facade] = {}
        self.original_import = builtins.__import__
        self.original_module = importlib.import_module

    def install(self) -> None:
        builtins.__import__ = _Import(self)
        importlib.import_module = _ImportModule(self)

    def _is_agent(self, scope: Optional[dict[str, Any]]) -> bool:
        if scope is None:
            return False
        if scope.get("__name__") == "__main__":
            return True
        path = scope.get("__file__")
        if type(path) is not str or not path.startswith(self.root):
            return False
        return "/site-packages/" not in path

    def _grant(self, name: str) -> Optional[Grant]:
        for grant in self.grants:
            if grant.covers(name):
                return grant
        return None

    def _granted(self, name: str) -> bool:
        if name == "builtins":  # its names are there anyway, and pickle imports it in the name of who calls it
            return True
        if self._grant(name) is not None or any(g.module.startswith(name + ".") for g in self.grants):
            return True
        if self.stdlib:
            parts = name.split(".")
            if any(".".join(parts[: i + 1]) in STDLIB for i in range(len(parts))):
                return True
            if any(s.startswith(name + ".") for s in STDLIB):
                return True
        return self._of_workspace(name.partition(".")[0])

    def _of_workspace(self, top: str) -> bool:
        module = sys.modules.get(top)
        if module is not None:
            paths = [getattr(module, "__file__", None)] + list(getattr(module, "__path__", None) or [])
            return any(type(p) is str and p.startswith(self.root) and "/site-packages/" not in p for p in paths)
        return os.path.isfile(self.root + top + ".py") or os.path.isdir(self.root + top)

    def _check(self, name: str) -> None:
        if not self._granted(name):
            have = sorted({g.name for g in self.grants})
            if self.stdlib:
                have.append("the safe standard library")
            text = "the module %r is not granted here; granted: %s" % (name, ", ".join(have) or "none")
            raise ModuleNotGranted(text, name=name)

    def _narrowed(self, module: types.ModuleType) -> types.ModuleType:
        grant = self._grant(module.__name__)
        if grant is None or not grant.narrows():
            return module
        return self.facades.setdefault(module.__name__, Facade(module, grant))

    def _real(self, name: str) -> str:
        for grant in self.grants:
            if name == grant.name and grant.name != grant.module:
                return grant.module
        return name

    def import_name(
        self, name: str, scope: Any, globals: Any, locals: Any, fromlist: Any, level: int
    ) -> types.ModuleType:
        """scope: the names of the code that imports."""
        if level or not self._is_agent(scope):
            return self.original_import(name, globals, locals, fromlist, level)
        self._check(name)
        real = self._real(name)
        if real != name:
            return self._narrowed(self.original_module(real))
        for sub in fromlist or ():
            if sub != "*":
                self._check_member(name, sub)
        return self._narrowed(self.original_import(real, globals, locals, fromlist, level))

    def _check_member(self, name: str, sub: str) -> None:
        """from urllib import request: the package is granted for the sake of another member only, or without submodules."""
        grant = self._grant(name)
        if grant is not None:
            if not grant.recursive and self._is_submodule(grant.module, sub):
                self._check("%s.%s" % (name, sub))
            return
        if name in STDLIB or not self.stdlib or self._of_workspace(name.partition(".")[0]):
            return
        self._check("%s.%s" % (name, sub))

    @staticmethod
    def _is_submodule(name: str, sub: str) -> bool:
        try:
            return importlib.util.find_spec("%s.%s" % (name, sub)) is not None
        except (ImportError, ValueError):
            return False

    def import_module(self, name: str, scope: Any, package: Optional[str]) -> types.ModuleType:
        if not name.startswith(".") and self._is_agent(scope):
            self._check(name)
            return self._narrowed(self.original_module(self._real(name), package))
        return self.original_module(name, package)


class _Import(Replacement):
    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.original_import)
        self.gate = gate

    def __call__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> types.ModuleType:
        scope = sys._getframe(1).f_globals if globals is None else globals  # __import__("name") gives none
        return self.gate.import_name(name, scope, globals, locals, fromlist, level)


class _ImportModule(Replacement):
    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.original_module)
        self.gate = gate

    def __call__(self, name: str, package: Optional[str] = None) -> types.ModuleType:
        return self.gate.import_module(name, sys._getframe(1).f_globals, package)
