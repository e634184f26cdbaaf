# The server under clients that others wrote: the official Python SDK's, newest and newest 1.x, the official inspector on its
# command line, and command-line agents that are set up as the README says. They are fetched (2 GB); what cannot be had is skipped, with the reason.
mcp_venv() { # DIR REQUIREMENT
	/usr/bin/python3 -m venv "$1" && "$1/bin/pip" install -q --disable-pip-version-check "$2" && chmod -R a+rX "$1"
}
for want in 'mcp<2' 'mcp>=2'; do
	venv=$stage_dir/sdk-${want//[^0-9]/}-${#want}
	if mcp_venv "$venv" "$want" >"$stage_dir/pip.log" 2>&1; then
		for_everybody "mcp, Python SDK $("$venv/bin/pip" show mcp 2>/dev/null | sed -n 's/^Version: //p')" \
			"$venv/bin/python" "$stage_dir/tests/helpers/mcp_sdk.py" "$stage_dir/bin/ntr"
	else
		skips+=("mcp, Python SDK $want: $(tail -n 1 "$stage_dir/pip.log")")
	fi
done
mcp_npm() { # DIR PACKAGE…
	npm install --silent --prefix "$stage_dir/$1" node@22 "${@:2}" >"$stage_dir/npm.log" 2>&1 && chmod -R a+rX "$stage_dir/$1"
}
if mcp_npm inspector @modelcontextprotocol/inspector; then
	for_everybody "mcp, inspector" "$stage_dir/tests/helpers/mcp_inspector.sh" "$stage_dir/inspector/node_modules/.bin"
else
	skips+=("mcp, inspector: npm cannot install it: $(tail -n 1 "$stage_dir/npm.log")")
fi
for package in @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai; do
	if ! mcp_npm agents "$package"; then
		skips+=("mcp, $package: npm cannot install it: $(tail -n 1 "$stage_dir/npm.log")")
	fi
done
if [ -d "$stage_dir/agents/node_modules/.bin" ]; then
	as root "$stage_dir/tests/helpers/mcp_agents.sh" "$stage_dir/agents/node_modules/.bin" "$stage_dir/README.md" ||
		failures+=("mcp, agents")
fi
if [ "$(id -u)" -eq 0 ]; then
	bats_run root "mcp, wire, root" "$stage_dir" /mcp NTR_LONG=1 || failures+=("mcp, wire, root")
fi
if has_userns; then
	bats_run user "mcp, wire, user" "$stage_dir" /mcp NTR_LONG=1 || failures+=("mcp, wire, user")
fi
