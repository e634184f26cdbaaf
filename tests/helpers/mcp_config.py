"""Starts the server exactly as the documentation tells programs to: mcp_config.py FILE…. Takes every code block in JSON, TOML or
shell that names a server, in each of the forms that programs have for it."""
import json
import os
import re
import shlex
import sys
import tomllib

from mcp_client import Server

TABLES = ("mcpServers", "servers", "mcp", "mcp_servers")


def from_table(config):
    for table in TABLES:
        for name, entry in config.get(table, {}).items():
            command = entry["command"]
            argv = command if isinstance(command, list) else [command, *entry.get("args", [])]
            yield f"{table}.{name}", argv, entry.get("env", entry.get("environment", {}))


def from_shell(text):
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[1:3] == ["mcp", "add"]:
            yield line, words[words.index("--") + 1:], {}


def servers(text):
    for kind, block in re.findall(r"^```(json|toml|sh)\n(.*?)^```$", text, re.M | re.S):
        if kind == "sh":
            yield from from_shell(block)
        else:
            yield from from_table(json.loads(block) if kind == "json" else tomllib.loads(block))


def check(label, argv, env):
    assert argv[:2] == ["ntr", "mcp"], argv
    if "NTR_STORE" in env:  # the place is the reader's to choose
        env = {**env, "NTR_STORE": os.environ["NTR_STORE"] + ".other"}
    with Server(*argv[2:], session=None, env=env, revision="2025-11-25") as s:
        assert [t["name"] for t in s.ask("tools/list")["tools"]][:1] == ["terminal"]
        session = argv[argv.index("-s") + 1]
        assert s.sh("echo $NTR_SESSION $(pwd)") == f"{session} /workspace"
        assert s.close() == 0
    print("started:", label)


def main():
    seen = 0
    for path in sys.argv[1:]:
        with open(path) as f:
            found = list(servers(f.read()))
        assert found, f"{path}: no configuration"
        for label, argv, env in found:
            check(label, argv, env)
            seen += 1
    print(seen, "configurations")


main()
