#!/usr/bin/env bash
# mcp_inspector.sh DIR: ntr mcp under the official inspector's command line, which is in DIR with a node of its own.
set -euo pipefail
export PATH=$1:$PATH
trap 'ntr daemon stop' EXIT

# inspect EXPRESSION ARG…: whether the expression holds of the result r.
inspect() {
	local holds=$1 out
	shift
	out=$(timeout 120 mcp-inspector --cli ntr mcp -s w --versions "$@")
	printf '%s' "$out" | /usr/bin/python3 -c '
import json, sys
r = json.load(sys.stdin)
assert eval(sys.argv[1]), (sys.argv[1], r)' "$holds"
	echo "inspector: $*"
}
call() {
	local holds=$1 tool=$2 arg args=()
	shift 2
	for arg; do args+=(--tool-arg "$arg"); done
	inspect "$holds" --method tools/call --tool-name "$tool" "${args[@]}"
}

inspect 'len(r["tools"]) == 9 and all(t["inputSchema"]["type"] == "object" for t in r["tools"])' --method tools/list
call 'r["content"][0]["text"] == "hi" and r["structuredContent"]["exit_code"] == 0' terminal 'command=echo hi'
call 'r["isError"] and "[exit code 3]" in r["content"][0]["text"]' terminal 'command=exit 3'
call 'r["content"][0]["text"] == "42"' run_python 'code=6*7'
call 'r["content"][0]["text"] == "wrote d/f.txt (3 bytes)" and r["content"][1]["uri"] == "workspace://d/f.txt"' file_write path=d/f.txt content=abc
call '"replaced 1 occ" in r["content"][0]["text"]' file_edit path=d/f.txt old_string=b new_string=B
call 'not r["isError"]' terminal "command=printf iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== | base64 -d > i.png"
call 'r["content"][1]["mimeType"] == "image/png"' view_image path=i.png
call 'len(r["content"][0]["text"].splitlines()) >= 4' history
call '"i.png" in r["content"][0]["text"]' diff
call 'r["content"][0]["text"].startswith("forked try from w at")' fork name=try
call 'r["content"][0]["text"].startswith("rolled back to")' rollback steps=1 session=try
call '"i.png" not in r["content"][0]["text"]' terminal command=ls session=try
inspect 'r["resources"][0]["uri"] == "workspace://-/tree"' --method resources/list
inspect 'r["resourceTemplates"][0]["uriTemplate"] == "workspace://{path}"' --method resources/templates/list
inspect '"d/f.txt  (3 bytes)" in r["contents"][0]["text"]' --method resources/read --uri workspace://-/tree
inspect 'r["contents"][0]["text"] == "aBc"' --method resources/read --uri workspace://d/f.txt
inspect 'r["contents"][0]["blob"].startswith("iVBOR")' --method resources/read --uri workspace://i.png
if out=$(mcp-inspector --cli ntr mcp -s w --method tools/call --tool-name nosuch 2>&1); then
	echo "a tool that is not there: $out"
	exit 1
fi
[[ $out = *"there is no tool 'nosuch'"* ]]
