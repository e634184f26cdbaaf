# The recipe of docs/ci.md, run as it is written there.

load common

setup()
{
	ntr_setup
}

teardown()
{
	ntr_teardown
}

# The code block behind the marker.
block()
{
	awk -v mark="<!-- ci: $1 -->" '$0 == mark { on = 1; next } on && /^```/ { if (seen++) exit; next } on && seen' \
		"$NTR_TESTS/../docs/ci.md"
}

project()
{
	mkdir -p project/tests
	printf 'deps:\n\techo dep >dep\n' >project/Makefile
	for i in {1..8}; do
		cat >"project/tests/t$i.sh" <<-END
			set -e
			test -e dep
			test ! -e mine
			echo $i >mine
			sleep 1000 &
			rm -r tests
			[[ $i != 5 ]]
		END
	done
	ln -s project/tests tests
}

@test "the recipe: a base, a fork for each of eight parallel tests, one fails, nothing is left" {
	project
	for part in base test all end; do
		block "$part" >"$part.sh"
		assert_file_not_empty "$part.sh"
	done
	cat base.sh test.sh all.sh end.sh >job.sh
	run bash job.sh
	assert_failure 1
	assert_line --partial '"name":"base"'
	refute_line --partial '"name":"test-'
	# each ran in a fork of its own, and only the failed one has a patch
	for i in {1..8}; do
		assert_file_exists "logs/t$i.log"
		assert_equal "$(cat "logs/t$i.log")" ""
	done
	assert_equal "$(ls logs/*.patch)" logs/t5.patch
	run cat logs/t5.patch
	assert_output --partial "+5"
	# nothing is left: processes, mounts, sessions
	assert_equal "$(ntr_processes)" ""
	assert_equal "$(ntr_mounts)" ""
	run ntr sessions --json
	assert_equal "${#lines[@]}" 1
	# the second job finds the base
	head=$(head_of base)
	ntr daemon stop
	run bash job.sh
	assert_failure 1
	assert_equal "$(head_of base)" "$head"
}

@test "the recipe: a job that is killed in the middle is cleaned up by the next command" {
	project
	echo 'sleep 1000' >project/tests/t1.sh
	for part in base test all end; do
		block "$part"
	done >job.sh
	setsid bash job.sh >out 2>&1 3>&- &
	job=$!
	for _ in {1..100}; do
		ntr sessions 2>/dev/null | grep -q test-t1 && break
		sleep 0.05
	done
	kill -KILL -- "-$job"
	wait "$job" || true
	ntr daemon stop
	assert_equal "$(ntr_processes)" ""
	assert_equal "$(ntr_mounts)" ""
	for s in $(ntr sessions --json | grep -o '"name":"test-[^"]*' | cut -d'"' -f4); do
		ntr rm --discard "$s"
	done
	ntr run -s base -- test -e dep
	run ntr sessions --json
	assert_equal "${#lines[@]}" 1
}
