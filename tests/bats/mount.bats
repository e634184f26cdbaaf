# ntr mount: the live session read-write, commits read-only; edits made there are kept.
load common

setup() { ntr_setup; mkdir m; }
teardown() {
	cd "$TEST_DIR/work" && mountpoint -q m && ntr umount m
	ntr_teardown
}

@test "a live session at a directory: both sides see each other's writes" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	assert_equal "$(cat m/f)" 1
	echo 2 >m/f
	echo new >m/g
	mkdir m/d && mv m/g m/d/
	run ntr run -- cat f d/g
	assert_output $'2\nnew'
	ntr run -c 'echo 3 > f'
	assert_equal "$(cat m/f)" 3
	ntr umount m
	assert_equal "$(ls m)" ""
	run ntr run -- cat f d/g
	assert_output $'3\nnew'
}

@test "an edit through the mount survives a rollback, a fork and an rm" {
	ntr run -c 'echo 1 > f'
	ntr run -c 'echo 2 > f'
	ntr mount default m
	echo edited >m/e
	ntr fork default f
	run ntr run -s f -- cat e
	assert_output edited
	echo again >m/e2
	run ntr rollback default~2
	assert_success
	assert_output --partial 'kept in'
	# the mount shows the state that was rolled back to
	assert_equal "$(cat m/f)" 1
	assert_equal "$(ls m)" f
	echo after >m/after
	run ntr run -- cat after
	assert_output after
	ntr umount m
	ntr run --no-commit -c 'echo last > last'
	run ntr rm default
	assert_success
	local staged; staged=$(grep -oE '[0-9a-f]{12,40}' <<<"$output" | head -1)
	[ -n "$staged" ]
	run ntr cat -s f f
	assert_output 2
}

@test "a commit, read-only, any number at once" {
	ntr run -c 'echo 1 > f'
	ntr run -c 'echo 2 > f'
	mkdir old older
	ntr mount default~1 old
	ntr mount default m
	assert_equal "$(cat old/f)" 1
	assert_equal "$(cat m/f)" 2
	run bash -c 'echo x > old/f'
	assert_failure
	ntr rollback --steps 1
	assert_equal "$(cat old/f)" 1
	ntr umount old
	ntr umount m
}

@test "mistakes are told" {
	run ntr mount nosuch m
	assert_failure 1
	assert_output --partial "ntr: "
	ntr run -c 'echo 1 > f'
	run ntr mount default ./nothere
	assert_failure 1
	run ntr umount m
	assert_failure 1
	assert_output --partial "ntr: "
}

@test "a busy mount is not taken away" {
	ntr run -c 'echo 1 > f'
	ntr mount default m
	local fd
	exec {fd}<m/f
	run ntr umount m
	assert_failure 1
	assert_output --partial "ntr: "
	exec {fd}<&-
	ntr umount m
}
