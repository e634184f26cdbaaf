# tests/posix: what system calls give in a session, on committed files, on new ones and on a mix, is what they give in a plain
# directory; and what they left is the same after a commit, a fold, a fork, a rollback and a restart.
load common
load tools

setup() { ntr_setup; }
teardown() {
	chmod -R u+rwx "$TEST_DIR/work" 2>/dev/null || true
	ntr_teardown
}

POSIX() { /usr/bin/python3 "$NTR_TESTS/posix/posix.py" "$@"; }
posix="/usr/bin/python3 $NTR_TESTS/posix/posix.py"
# Directories' times and links of symlinks apart, which ext4 has otherwise.
manifest() { echo "/usr/bin/python3 $NTR_TESTS/helpers/manifest.py . --no-dir-times"; }
inside() { ntr run -s "$1" --no-commit -c "cd /workspace; $(manifest)"; }

# The plain directory's answers, once.
plain() {
	[ -d plain ] || (mkdir plain && cd plain && POSIX make "$@" && POSIX act "$@" >../plain.log && $(manifest) >../plain.manifest)
}

# without_times FILE: a manifest without what the clock has put in.
without_times() { sed -E 's/ m-?[0-9]+( |$)/ /' "$1"; }

# placed HOW TOPIC…: the topics in a session, their files committed or not; the answers in HOW.log.
placed() {
	local how=$1 s=$1
	shift
	ntr new "$s" >/dev/null
	case $how in
	new) ntr run -s "$s" -c "$posix make $*; $posix act $*" >"$how.log" ;;
	committed)
		ntr run -s "$s" -c "$posix make $*"
		ntr stop -s "$s"
		ntr run -s "$s" -c "$posix act $*" >"$how.log"
		;;
	mix)
		ntr run -s "$s" -c "$posix even $*"
		ntr stop -s "$s"
		ntr run -s "$s" -c "$posix odd $*"
		ntr run -s "$s" -c "$posix act $*" >"$how.log"
		;;
	esac
}

# kept SESSION: what is there is what every other way to it shows.
kept() {
	local s=$1
	inside "$s" >"$s.live"
	ntr stop -s "$s"
	inside "$s" >"$s.folded"
	ntr fork "$s" "$s-fork" >/dev/null
	inside "$s-fork" | diff "$s.folded" -
	local head
	head=$(head_of "$s")
	ntr run -s "$s" -c 'chmod -R u+rwx . 2>/dev/null; rm -rf -- * .[!.]*; echo other >only'
	ntr rollback -s "$s" "$head" >/dev/null
	inside "$s" | diff "$s.folded" -
	ntr daemon stop
	inside "$s" | diff "$s.folded" -
}

# Whether rename(2) moves a committed directory: root's does everywhere, an ordinary user's where the supervisor may help.
moves_dirs() {
	ntr new probe >/dev/null
	ntr run -s probe -c 'mkdir a a/b'
	ntr stop -s probe
	ntr run -s probe -- /usr/bin/python3 -c 'import os; os.rename("a", "c")' 2>/dev/null
}

# alike HOW: all topics, or those that need no rename of a committed directory.
alike() {
	local topics=()
	if [ "$1" != new ] && ! moves_dirs; then
		[ "$(id -u)" -ne 0 ]
		for t in $(POSIX list); do
			[[ $t = rename || $t = ancestors || $t = hostile || $t = deep ]] || topics+=("$t")
		done
	fi
	set -- "$1" "${topics[@]}"
	plain "${@:2}"
	placed "$@"
	diff plain.log "$1.log"
	kept "$1"
	diff <(without_times plain.manifest) <(without_times "$1.folded")
	run ntr fsck
	assert_success
}

@test "system calls on committed files" { alike committed; }
@test "system calls on new files" { alike new; }
@test "system calls on a mix of both" { alike mix; }
