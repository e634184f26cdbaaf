"""Section C of the contract: Python (run_python)."""

from __future__ import annotations

import c_host  # noqa: F401
import c_model  # noqa: F401
import c_output  # noqa: F401
import c_policy  # noqa: F401
import c_science  # noqa: F401
import c_ui  # noqa: F401
import c_values  # noqa: F401

LINES = {
    "C.1": "each call is a process of its own, forked from a warm interpreter",
    "C.2": "top-level names do not survive",
    "C.3": "files and the cache survive",
    "C.4": "files and the working directory are shared with the shell",
    "C.5": "imports resolve from the root of the workspace, packages without __init__ too",
    "C.6": "an import that misses names the file that was found and the spelling that works",
    "C.7": "the cache commits, rolls back and forks with the files",
    "C.8": "cache keys: str, not beginning with __, without /",
    "C.9": "cache values must pickle, which is checked at the write",
    "C.10": "changes inside of a fetched value count",
    "C.11": "values cross to the host as data",
    "C.12": "the host never unpickles what agent code wrote unless told to",
    "C.13": "inputs bind data by name",
    "C.14": "namespace gives back plain top-level results, to the host only",
    "C.15": "the value of a last bare expression is echoed, None is not; echo none, last, all",
    "C.16": "exec_python: code, inputs, stdin, argv, echo, readonly",
    "C.17": "exec_python takes no lock and makes no commit",
    "C.18": "a result has stdout, stderr, error, duration, truncated, namespace, commit",
    "C.19": "error is a traceback without plumbing frames",
    "C.20": "above 60 lines a traceback has its first 8 and its last 40",
    "C.21": "an agent's failure is a result, never a host exception",
    "C.22": "an agent sees 32,000 characters of each stream by default",
    "C.23": "small output is exact, to the byte",
    "C.24": "larger prints are rendered by their structure: heads of containers, ...N more",
    "C.25": "nothing is cut silently: truncated and [output truncated]",
    "C.26": "hints: the network",
    "C.27": "hints: a missing module and how to get it",
    "C.28": "hints: a wrong import spelling",
    "C.29": "hints: timeouts",
    "C.30": "hints: the other usual traps",
    "C.31": "ui: each name becomes a file below the workspace's ui folder",
    "C.32": "ui: a plotly figure is a .plotly.json",
    "C.33": "ui: a DataFrame is a .table.json of 200 rows, with the total and the column types",
    "C.34": "ui: cards are a .cards.json",
    "C.35": "ui: matplotlib, PIL and bytes images are image files",
    "C.36": "ui: what has _repr_html_ is an .html",
    "C.37": "ui: a path that exists is taken as it is",
    "C.38": "ui: everything else is a .json",
    "C.39": "ui: files that the code wrote into ui/ join",
    "C.40": "ui: at most 20 names",
    "C.41": "ui: at most 8,000,000 bytes each, a larger one leaves its diagnosis in NAME.txt",
    "C.42": "ui: one note line tells the names and paths",
    "C.43": "ui: problems are [ui note: …]",
    "C.44": "host objects: agent code calls public methods of live objects by name",
    "C.45": "host objects: no method with a leading _, and allow narrows them",
    "C.46": "host objects: arguments and results are data",
    "C.47": "host objects: what they do is not versioned",
    "C.48": "host objects: calls back into the workspace do not deadlock",
    "C.49": "policy: PythonConfig's modules and stdlib are an import gate",
    "C.50": "policy: ModuleGrant: module, include, exclude, recursive, name",
    "C.51": "policy: STDLIB is the safe standard library, warnings and urllib.parse included",
    "C.52": "policy: dataframes() and plotting()",
    "C.53": "policy: a timeout, of 30 s by default",
    "C.54": "policy: a memory limit",
    "C.55": "policy: echo is a setting, host_objects, preload, python and cache are",
    "C.56": "what a setting asks for and this build cannot give is IsolationUnavailable",
    "C.57": "the import gate guides; the boundary is the rung, and the documentation says so",
    "C.58": "python and python3 inside the shell are the same interpreter with the same modules",
}
