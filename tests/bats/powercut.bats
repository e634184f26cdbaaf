# Power failures: what a disk can look like after one, opened. A sample here; all cuts in the long tier.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

helper() {
	local f
	for f in "$NTR_BIN" "$NTR_TESTS/../build/release/tests"; do
		[[ -x $f/$1 ]] && { echo "$f"; return; }
	done
	return 1
}

@test "the store survives a power failure behind any of its calls" {
	NTR_POWERCUT=$(helper ntr-powercut-check) || skip "the test's recorder is not built"
	export NTR_POWERCUT
	run /usr/bin/python3 "$NTR_TESTS/crash/powercut.py" --seconds "${NTR_POWERCUT_SECONDS:-5}"
	assert_success
	echo "$output"
}

@test "a file is never older than what was acknowledged, after a power failure of the whole filesystem" {
	[[ $EUID -eq 0 ]] || skip "mounting a filesystem needs root"
	NTR_POWERCUT=$(helper ntr-powercut-disk) || skip "the test's disk is not built"
	export NTR_POWERCUT
	[[ -c /dev/loop-control && -x $(command -v mkfs.ext4) ]] || skip "no loop device, or no mkfs.ext4"
	run /usr/bin/python3 "$NTR_TESTS/crash/powercut_disk.py" --cuts "${NTR_POWERCUT_CUTS:-4}"
	assert_success
	echo "$output"
}

@test "commits that were on disk and are gone: the next command, daemon status and fsck say so" {
	ntr run -c 'echo 1 >a'
	ntr daemon stop
	printf '%020d\n' 99999999 >"$NTR_STORE/synced"
	run --separate-stderr ntr log -n 1
	assert_success
	[[ $stderr == *"has lost commits: number 99999999 was safely on disk"* ]]
	run --separate-stderr ntr log -n 1
	[[ -z $stderr ]] # said once
	run ntr daemon status
	assert_line --partial 'warning: '
	run ntr fsck
	assert_failure 1
	assert_output --partial 'has lost commits'
}
