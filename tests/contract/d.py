"""Section D of the contract: the tools that an agent sees, and the ways in. test_app, the adapters for nontainer and agno, the
hooks for command-line agents and the apps are not in this version.
"""

from __future__ import annotations

import d_calls  # noqa: F401
import d_files  # noqa: F401
import d_hooks  # noqa: F401
import d_mcp  # noqa: F401
import d_package  # noqa: F401
import d_state  # noqa: F401
import d_versions  # noqa: F401

LINES = {
    "D.1": "terminal(command)",
    "D.2": "run_python(code)",
    "D.3": "a tool's arguments; what does not fit is an answer that says why",
    "D.4": "test_app and --apps: this version says that it has neither",
    "D.5": "file_write(path, content): `wrote PATH (N bytes)`",
    "D.6": "file_edit(path, old_string, new_string, replace_all), exactly: `replaced N occurrence(s) in PATH`",
    "D.7": "file_edit, then trailing-blank tolerant: ` (matched via trailing_ws)`",
    "D.8": "file_edit, then indent tolerant: ` (matched via indent_flexible)`",
    "D.9": "file_edit: two hits are an error with the count",
    "D.10": "file_edit: an edit already applied is `no-op: replacement already present in PATH`",
    "D.11": "file_edit: a miss shows the most similar lines",
    "D.12": "file_edit: `edit failed: WHY`",
    "D.13": "view_image(path), png jpeg gif webp, 10,000,000 bytes: `PATH (png, N bytes)`",
    "D.14": "`view_image failed: WHY`",
    "D.15": "texts of calls: stdout, `[exit code N]`, `[stderr]`, `[error]`",
    "D.16": "texts of calls: `[hint: …]`",
    "D.17": "texts of calls: `(no output)`",
    "D.18": "the text for an agent is the same in all ways",
    "D.19": "descriptions coach one batched call per turn",
    "D.20": "descriptions carry the embedder's primers",
    "D.21": "history, diff, fork and rollback tools when they are turned on",
    "D.22": "the tool history",
    "D.23": "the tool diff",
    "D.24": "the tool fork",
    "D.25": "the tool rollback",
    "D.26": "ntr mcp --session S --store D",
    "D.27": "ntr mcp --tools auto|terminal|split",
    "D.28": "ntr mcp --no-cache",
    "D.29": "ntr mcp --module M",
    "D.30": "ntr mcp --mount P=D[:rw]",
    "D.31": "ntr mcp --versions",
    "D.32": "ntr mcp: the tools above, as the protocol has them",
    "D.33": "resource workspace://-/tree",
    "D.34": "template workspace://{path}",
    "D.35": "resource links on writes",
    "D.36": "images as image content",
    "D.37": "the package: pure Python over the daemon's socket, typed",
    "D.38": "workspace(session, …) and its options",
    "D.39": "the package: terminal, run_python",
    "D.40": "the package: write_file, edit_file",
    "D.41": "the package: put, get, fs",
    "D.42": "the package: cache",
    "D.43": "the package: checkpoint, discard, dirty",
    "D.44": "the package: restore(id) and rollback(steps) move the head as ntr rollback does",
    "D.45": "the package: history, head",
    "D.46": "the package: fork",
    "D.47": "the package: lock",
    "D.48": "the package: mount",
    "D.49": "the package: aterminal, arun_python and the other twins",
    "D.50": "the package: close; sessions(), delete()",
    "D.51": "results TerminalResult, PythonResult, WriteOutcome, EditOutcome, with .checkpoint",
    "D.52": "capability flags; what is unsupported raises NotSupportedError",
    "D.53": "the seam WorkspaceProvider, with ntr's own as the default",
    "D.54": "the seam Executor, with ntr's own as the default",
    "D.55": "the package's exceptions",
    "D.56": "hooks: executables in the store's or the session's hooks/ folder",
    "D.57": "the hook pre-run, which may refuse",
    "D.58": "the hook post-run",
    "D.59": "the hook pre-commit",
    "D.60": "the hook post-commit",
    "D.61": "the hook post-fork",
    "D.62": "the hook post-rollback",
    "D.63": "hooks get JSON on stdin",
}
