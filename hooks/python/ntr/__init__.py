"""ntr: a versioned workspace with a stateful terminal and Python, for programs with an agent loop.

    import ntr

    ws = ntr.workspace("demo")
    ws.terminal("mkdir src && cd src && echo 'x = 1' > a.py")
    result = ws.run_python("import a; a.x + 1")
    if not result:
        print(result.error)
    ws.rollback(1)

Names are loaded when they are first used.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from typing import Any

    from ._client import Control as Control
    from ._commands import Command as Command
    from ._commands import CommandCall as CommandCall
    from ._commands import CommandResult as CommandResult
    from ._config import STDLIB as STDLIB
    from ._config import HostObject as HostObject
    from ._config import ModuleGrant as ModuleGrant
    from ._config import PythonConfig as PythonConfig
    from ._config import dataframes as dataframes
    from ._config import plotting as plotting
    from ._errors import BinaryNotFoundError as BinaryNotFoundError
    from ._errors import CacheError as CacheError
    from ._errors import CallCancelledError as CallCancelledError
    from ._errors import CheckpointNotFoundError as CheckpointNotFoundError
    from ._errors import DaemonLostError as DaemonLostError
    from ._errors import IsolationUnavailable as IsolationUnavailable
    from ._errors import NestedCallError as NestedCallError
    from ._errors import NotSupportedError as NotSupportedError
    from ._errors import ProtocolError as ProtocolError
    from ._errors import RefusedError as RefusedError
    from ._errors import SessionExistsError as SessionExistsError
    from ._errors import SessionIdError as SessionIdError
    from ._errors import SessionNotFoundError as SessionNotFoundError
    from ._errors import WorkspaceError as WorkspaceError
    from ._executor import NtrExecutor as NtrExecutor
    from ._protocols import Capabilities as Capabilities
    from ._protocols import Executor as Executor
    from ._protocols import PythonCode as PythonCode
    from ._protocols import Script as Script
    from ._protocols import WorkspaceProvider as WorkspaceProvider
    from ._provider import NtrProvider as NtrProvider
    from ._results import Artifact as Artifact
    from ._results import Change as Change
    from ._results import Changes as Changes
    from ._results import Commit as Commit
    from ._results import EditOutcome as EditOutcome
    from ._results import FileStat as FileStat
    from ._results import ImageResult as ImageResult
    from ._results import PythonResult as PythonResult
    from ._results import RollbackOutcome as RollbackOutcome
    from ._results import SessionInfo as SessionInfo
    from ._results import TerminalResult as TerminalResult
    from ._results import ToolResult as ToolResult
    from ._results import WriteOutcome as WriteOutcome
    from ._values import Opaque as Opaque
    from ._workspace import Workspace as Workspace
    from ._workspace import delete as delete
    from ._workspace import sessions as sessions
    from ._workspace import workspace as workspace

_WHERE = {
    "_client": "Control",
    "_commands": "Command CommandCall CommandResult",
    "_config": "STDLIB HostObject ModuleGrant PythonConfig dataframes plotting",
    "_errors": "BinaryNotFoundError CacheError CallCancelledError CheckpointNotFoundError DaemonLostError "
    "IsolationUnavailable NestedCallError NotSupportedError ProtocolError RefusedError SessionExistsError SessionIdError "
    "SessionNotFoundError WorkspaceError",
    "_executor": "NtrExecutor",
    "_protocols": "Capabilities Executor PythonCode Script WorkspaceProvider",
    "_provider": "NtrProvider",
    "_results": "Artifact Change Changes Commit EditOutcome FileStat ImageResult PythonResult RollbackOutcome SessionInfo "
    "TerminalResult ToolResult WriteOutcome",
    "_values": "Opaque",
    "_workspace": "Workspace delete sessions workspace",
}
_HOME = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ntr' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"ntr.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
