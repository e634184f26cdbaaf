#!/usr/bin/env bash
# mcp_agents.sh DIR README: agents' own programs, installed in DIR, set up as the README says, and what they say of the server then.
# They need no account for that. What is not installed is passed over; at least one has to be there.
set -euo pipefail
readme=$(realpath "$2")
export PATH=$1:$PATH DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
export GEMINI_CLI_TRUST_WORKSPACE=true # its folder is the one made here
mkdir -p "$HOME/project/.gemini" "$HOME/.codex"
cd "$HOME/project"
trap 'ntr daemon stop' EXIT
seen=0

# block WORD: the README's block that has the word in it.
block() {
	/usr/bin/python3 -c '
import re, sys
blocks = re.findall(r"^```(?:json|toml|sh)\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S)
sys.stdout.write(next(b for b in blocks if sys.argv[2] in b))' "$readme" "$1"
}

# agent NAME EXPECTED COMMAND…
agent() {
	local name=$1 expected=$2 out
	shift 2
	out=$(timeout 120 "$@" </dev/null 2>&1) || true
	grep -q -- "$expected" <<<"$out" || {
		echo "$name: no '$expected' in: $out"
		exit 1
	}
	echo "$name $("$name" --version </dev/null 2>/dev/null | tail -n 1): $expected"
	seen=$((seen + 1))
}

if command -v claude >/dev/null; then
	eval "$(block 'claude mcp add' | grep '^claude ')" </dev/null
	agent claude 'work: ntr mcp -s work .*Connected' claude mcp list
fi
if command -v codex >/dev/null; then
	eval "$(block 'codex mcp add' | grep '^codex ')" </dev/null
	agent codex 'ntr  *mcp -s work --versions .*enabled' codex mcp list
	block mcp_servers.work >"$HOME/.codex/config.toml"
	agent codex 'tool_timeout_sec: 660' codex mcp get work
fi
if command -v gemini >/dev/null; then
	block mcpServers >.gemini/settings.json
	agent gemini 'work: ntr mcp -s work (stdio) - Connected' gemini mcp list
fi
if command -v opencode >/dev/null; then
	block opencode.ai >opencode.json
	agent opencode 'work .*connected' opencode mcp list
fi
((seen > 0)) || { echo "no agent is installed in $1"; exit 1; }
