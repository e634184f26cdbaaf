#!/usr/bin/env python3
"""posix.py make|even|odd|act|list [TOPIC...]: conformance tests, in the working directory.

Each topic makes files and later does things with them, and prints what each gave. A session and a plain directory must
print the same, wherever a commit or a fold came between. `make` makes everything; `even` and `odd` half each.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import topics_attr   # noqa: E402
import topics_data   # noqa: E402
import topics_name   # noqa: E402
import topics_proc   # noqa: E402
from posixlib import Maker  # noqa: E402

TOPICS = {}
for module in (topics_name, topics_data, topics_attr, topics_proc):
    TOPICS.update(module.TOPICS)


def main():
    what, names = sys.argv[1], sys.argv[2:] or list(TOPICS)
    if what == "list":
        print(*TOPICS)
        return
    os.umask(0o022)
    sys.stdout.reconfigure(errors="backslashreplace")
    top = os.getcwd()
    for name in names:
        os.makedirs(name, exist_ok=True)
        os.chdir(name)
        topic = TOPICS[name]()
        if what == "act":
            for label, *value in topic.act():
                print(f"{name}: {label}: {' '.join(map(str, value))}".encode("unicode_escape").decode(), flush=True)
        else:
            topic.make(Maker({"make": "all"}.get(what, what)))
        os.chdir(top)


main()
