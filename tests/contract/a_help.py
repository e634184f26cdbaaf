"""What the rows of section A have in common: reasons, folders to begin with, looks at a session."""

from __future__ import annotations

import os

NO_ORIGIN = {
    "mcp": "ntr mcp takes no origin: ntr new makes the session before",
    "package": "workspace() takes no origin; fork does",
}
NO_NEW = {"mcp": "ntr mcp has no options of a new session", "package": "workspace() has no such option"}
NO_ROOT = {"mcp": "ntr mcp has no root: ntr new makes the session before"}
NO_STATUS = {
    "mcp": "an exit status of ntr itself is the command line's",
    "package": "an exit status of ntr itself is the command line's",
}
NO_STAGING = {"mcp": "an agent's calls always commit"}
RUN_ONLY = {"mcp": "ntr run is the command line's", "package": "ntr run is the command line's"}


def tree_of(t):
    """A folder of the host with all kinds of things in it."""
    t.path("from/a.txt", "one\n")
    t.path("from/sub/run.sh", "#!/bin/sh\necho ran\n")
    os.chmod(t.path("from/sub/run.sh"), 0o755)
    os.symlink("a.txt", t.path("from/link"))
    os.mkdir(t.path("from/empty"))
    return t.path("from")


def is_the_tree(way, t):
    t.eq(way.terminal("find . | sort; cat a.txt link; sub/run.sh; stat -c %a sub/run.sh").text.split(),
         [".", "./a.txt", "./empty", "./link", "./sub", "./sub/run.sh", "one", "one", "ran", "755"])  # fmt: skip


def tools_of(way):
    return [c["tool"] for c in way.history()]


def told(way):
    return way.history()[0]


ALL_FOUR = (
    "mkdir -p /workspace/d; echo {0} >/workspace/f; ntr cache set k {0} >/dev/null; export TABLE_X={0}; cd /workspace/d"
)


def four(way):
    """Files, cache, directory and environment as they are."""
    words = way.terminal(
        "cat /workspace/f 2>/dev/null || echo -; ntr cache get k 2>/dev/null || echo -; echo; pwd; echo ${TABLE_X--}"
    ).text
    return words.split()


TOO_FAR = r"history begins \d+ steps? back"
