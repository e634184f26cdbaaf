# What the tests of tools and of caching share.

# asked OP…: how many requests of these kinds the driver has had.
asked() {
	ntr daemon status --json |
		/usr/bin/python3 -c 'import json,sys; o=json.load(sys.stdin)["ops"]; print(sum(o[k]["count"] for k in sys.argv[1:]))' "$@"
}

# Whether one of a few attempts asks for nothing of the kinds in $1. The kernel may drop its caches at any time, when
# memory is short or when somebody tells it to: so one attempt proves nothing bad, and one is enough to prove the good.
asks_nothing() {
	local kinds=$1 before i
	shift
	for i in 1 2 3; do
		before=$(asked $kinds)
		"$@" >>again
		[ "$(asked $kinds)" -eq "$before" ] && return 0
	done
	echo "asked for $(($(asked $kinds) - before)) of: $kinds" >&2
	return 1
}

# Needs a program, which the session finds as well.
need() {
	local p
	for p; do command -v "$p" >/dev/null || skip "$p is not installed"; done
}

# A call in the default session, and then a fold: the next call sees what this one did as committed, read from the store.
call() {
	ntr run -c "set -e; $1"
	ntr stop >/dev/null
}

# both SCRIPT: the script as a call, with a fold after it, and in the directory ./plain. Exit status and output must be
# the same; paths are shown as the session has them. As in a session, the working directory sticks.
both() {
	local status=0 wanted=0 here=$PWD
	mkdir -p plain
	plain_cwd=${plain_cwd:-$here/plain}
	ntr run -c "set -e; $1" >got 2>&1 || status=$?
	ntr stop >/dev/null
	(cd "$plain_cwd" && bash -c "trap 'pwd >$here/cwd' EXIT; set -e; $1") >want 2>&1 || wanted=$?
	plain_cwd=$(<cwd)
	sed -i "s|$here/plain|/workspace|g" want
	if [ $status -ne $wanted ] || ! diff want got; then
		echo "in: $1"
		echo "gave:" && cat got
		echo "exit status $status, in a plain directory $wanted"
		return 1
	fi
}
