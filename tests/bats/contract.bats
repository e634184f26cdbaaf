# The contract, line by line, through the command line, MCP and the Python package: the tables in tests/contract, all in one
# store. NTR_LONG=1 runs the rows that take long, too, and as an ordinary user C and all ways of D.
load common

setup_file()
{
	ntr_setup
	export TEST_DIR NTR_BIN PYTHONDONTWRITEBYTECODE=1
}

teardown_file() { ntr_teardown; }

table()
{
	if [[ $1$2 != A* && $1$2 != Dpackage && $(id -u) != 0 && -z ${NTR_LONG:-} ]]; then
		skip "as an ordinary user with NTR_LONG=1 only"
	fi
	[[ $2 != package ]] || /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
		skip "the package needs Python 3.10"
	/usr/bin/python3 "$NTR_TESTS/contract/table.py" "$1" "$2"
}

@test "contract: A, workspaces and calls, through the command line" { table A cli; }
@test "contract: A, workspaces and calls, through MCP" { table A mcp; }
@test "contract: A, workspaces and calls, through the package" { table A package; }
@test "contract: C, Python, through the command line" { table C cli; }
@test "contract: C, Python, through MCP" { table C mcp; }
@test "contract: C, Python, through the package" { table C package; }
@test "contract: D, tools, through the command line" { table D cli; }
@test "contract: D, tools, through MCP" { table D mcp; }
@test "contract: D, tools, through the package" { table D package; }
