# The oracle: random file operations, spread over many calls with commits, folds, forks, rollbacks, restarts and crashes of
# the daemon between them, give what they give in a plain directory.
load common

setup() { ntr_setup; }
teardown() {
	chmod -R u+rwx "$TEST_DIR/work" 2>/dev/null || true
	ntr_teardown
}

ops() { /usr/bin/python3 "$NTR_TESTS/helpers/fsops.py" "$@"; }
manifest() { /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" . --no-dir-times; }
inside() { ntr run -s "$1" -- /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" . --no-dir-times; }
# A link count is right after the next fold: before it a committed file still has what the commit says.
without_links() { sed -E 's/ n[0-9]+( =b.*)? m/ m/' "$1"; }

# Something that must not show in what the next operations see. $1: the session; sets $session.
disturb() {
	case $((RANDOM % 8)) in
	0) ntr stop -s "$session" ;;
	1) sleep 0.25 ;;
	2)
		inside "$session" >"parent.$session"
		ntr fork "$session" "${session}x" >/dev/null
		session=${session}x
		;;
	3) ntr daemon stop ;;
	4)
		ntr run -s "$session" -c 'chmod -R u+rwx .; rm -rf d0 d1 f*; mkdir -p d2/d3; touch junk d2/junk; mv d3 d4' 2>/dev/null || true
		ntr rollback -s "$session" --steps 1 >/dev/null
		;;
	5) kill -9 "$(ntr daemon status --json | json '["pid"]')" ;;
	6) ntr run -s "$session" --no-commit -- true ;;
	esac
}

# oracle SEED OPERATIONS CALLS
oracle() {
	local seed=$1 count=$2 calls=$3 step=$(($2 / $3)) session=s$1 i parent
	echo "seed $seed"
	RANDOM=$seed
	rm -rf plain live.log parent.*
	ntr new "$session" >/dev/null
	for ((i = 0; i < calls; i++)); do
		ntr run -s "$session" -- /usr/bin/python3 "$NTR_TESTS/helpers/fsops.py" "$seed" $((i * step)) $(((i + 1) * step)) >>live.log
		disturb
	done
	inside "$session" >live.manifest
	ntr stop -s "$session"
	inside "$session" >folded.manifest
	mkdir plain
	(cd plain && ops "$seed" 0 $((step * calls)) --follow ../live.log >../plain.log && manifest >../plain.manifest)
	diff live.log plain.log
	diff <(without_links live.manifest) <(without_links plain.manifest)
	diff folded.manifest plain.manifest
	# A fork never changes where it came from.
	for parent in parent.*; do
		[ -e "$parent" ] || continue
		ntr stop -s "${parent#parent.}"
		inside "${parent#parent.}" >now.manifest
		diff <(without_links "$parent") <(without_links now.manifest)
	done
	[ "$(id -u)" -ne 0 ] || [ "$(grep -c EXDEV live.log)" -eq 0 ]
	chmod -R u+rwx plain
}

@test "random operations over many calls give what a plain directory gives" {
	for seed in ${NTR_SEED:-1 2 3}; do oracle "$seed" 320 12; done
	run ntr fsck
	assert_success
}

@test "long random sequences" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	for ((seed = 100; seed < 160; seed++)); do oracle "$seed" 2000 40; done
	run ntr fsck
	assert_success
}
