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

# Skips what takes long, unless it is asked for.
long() { [ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"; }

# reach WHAT COMMAND…: skips unless the command, which asks a registry, is answered.
reach() {
	local what=$1
	shift
	timeout 120 "$@" >reach.log 2>&1 || skip "$what cannot be reached: $(tail -n 1 reach.log)"
}

# What comes between two calls. NTR_FOLDS: stop (the default) folds, so that the next call sees what this one did as committed,
# read from the store; keep leaves it in the upper; quiet waits for the fold that comes by itself when the upper is large;
# mixed does one of these at random (NTR_SEED repeats it).
settle() {
	local how=${NTR_FOLDS:-stop} kinds=(stop keep quiet restart)
	if [ "$how" = mixed ]; then
		[ -n "${settled:-}" ] || { settled=${NTR_SEED:-$RANDOM}; echo "NTR_SEED=$settled"; RANDOM=$settled; }
		how=${kinds[RANDOM % 4]}
	fi
	case $how in
	stop) ntr stop >/dev/null ;;
	quiet) sleep 0.4 ;;
	restart) ntr daemon stop ;;
	esac
}

# A call in the default session, committed and as a rule folded.
call() {
	ntr run -c "set -e; $1"
	settle
}

# both SCRIPT: the script as a call, with a fold after it, and in the directory ./plain. Exit status and output must be
# the same; paths are shown as the session has them. As in a session, the working directory sticks.
both() {
	local status=0 wanted=0 here=$PWD
	mkdir -p plain
	plain_cwd=${plain_cwd:-$here/plain}
	ntr run -c "set -e; $1" >got 2>&1 || status=$?
	settle
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

# same_trees DIR [SED]: what DIR holds after a fold is what it holds in the plain directory: names, types, modes, owners, sizes,
# which names are links of one file, targets, attributes, content; not times. SED drops what may differ.
same_trees() {
	local drop=${2:-}
	ntr stop >/dev/null
	ntr run -- /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" "/workspace/$1" --no-dir-times >got.manifest
	/usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" "plain/$1" --no-dir-times >want.manifest
	[ -s want.manifest ]
	diff <(sed -E "s/ m[0-9]+//;$drop" want.manifest) <(sed -E "s/ m[0-9]+//;$drop" got.manifest) | head -n 40 >differ
	[ ! -s differ ] || { echo "$1 differs:" && cat differ && return 1; }
}
