# A daemon whose disk fails or is held up: tests/helpers/faultio.c, told by the file $FAULTIO. For files that load common.

setup_file()
{
	command -v cc >/dev/null || skip "no C compiler for the fault injector"
	cc -shared -fPIC -O1 -o "$BATS_FILE_TMPDIR/faultio.so" "$BATS_TEST_DIRNAME/../helpers/faultio.c" -ldl
	chmod -R a+rX "$BATS_FILE_TMPDIR"
}

faultio_setup()
{
	ntr_setup
	export FAULTIO=$TEST_DIR/fault
	: >"$FAULTIO"
}

# The daemon, with the injector in it; with no argument, or with what the environment shall be. Its pid is in pid.
faultio_daemon()
{
	env LD_PRELOAD="$BATS_FILE_TMPDIR/faultio.so" "$@" ntr sessions >/dev/null
	pid=$(ntr daemon status --json | json '["pid"]')
}
