# ntr mcp: the protocol on the wire, in each of its revisions: the parts of helpers/mcp_wire.py. They mostly wait, so they
# run side by side, each with a store of its own. With real clients: tests/long/mcp.sh.
load common

parts=(handshakes stateless tools options running messages ends deaf config)

helper() { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$NTR_TESTS/helpers /usr/bin/python3 "$NTR_TESTS/helpers/$1" "${@:2}"; }

# One part, with its set-up and what it may leave behind. The status goes into a file.
part()
{
	local status
	ntr_setup
	if [[ $1 == config ]]; then
		helper mcp_config.py "$NTR_TESTS/../README.md" "$NTR_TESTS/../docs/cli/mcp.md"
		status=$?
		NTR_STORE=$NTR_STORE.other ntr daemon stop
	else
		helper mcp_wire.py "$1"
		status=$?
	fi
	ntr_teardown || status=1
	echo $status >"$BATS_FILE_TMPDIR/$1.status"
}

setup_file()
{
	local p
	for p in "${parts[@]}"; do
		(set +e; part "$p") >"$BATS_FILE_TMPDIR/$p.log" 2>&1 3>&- &
	done
}

done_well()
{
	for _ in {1..1800}; do
		[[ -e $BATS_FILE_TMPDIR/$1.status ]] && break
		sleep 0.1
	done
	cat "$BATS_FILE_TMPDIR/$1.log"
	assert_equal "$(cat "$BATS_FILE_TMPDIR/$1.status")" 0
}

@test "mcp: every revision by its handshake, with what it has and no more" { done_well handshakes; }
@test "mcp: requests that carry their revision, beside a handshake too" { done_well stateless; }
@test "mcp: tools, images, resources, names of all kinds" { done_well tools; }
@test "mcp: options: tools, cache, modules" { done_well options; }
@test "mcp: order, sessions side by side, progress, cancelling" { done_well running; }
@test "mcp: what is no message, and messages too early, too long, too many" { done_well messages; }
@test "mcp: a daemon that dies, clients that die or end" { done_well ends; }
@test "mcp: a client that does not read" { done_well deaf; }

@test "mcp: every configuration in the documentation starts the server" { done_well config; }

@test "mcp: what cannot be served is said at once" {
	ntr_setup
	run ntr mcp --tools some
	assert_failure 2
	assert_output --partial "none of auto, terminal, split"
	run ntr mcp --store /dev/null/x </dev/null
	assert_failure 1
	ntr_teardown
}
