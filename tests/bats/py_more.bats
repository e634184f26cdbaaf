# run_python at its edges: where artifacts may go, what a read-only call leaves, what a call sees of others' changes.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

py() { ntr py "$@"; }

@test "a ui folder that is a symlink is neither written nor listed" {
	mkdir "$TEST_DIR/out"
	echo secret >"$TEST_DIR/out/host.txt"
	run py --render -c "import os; os.symlink('$TEST_DIR/out', 'ui'); ui = {'rep': 1}"
	assert_success
	assert_line --partial '[ui note: ui is a symlink'
	refute_output --partial 'ui artifacts'
	refute_output --partial 'host.txt'
	assert_equal "$(ls "$TEST_DIR/out")" host.txt
	run py -c "open('$TEST_DIR/out/more', 'w').close()" # a call that has nothing to do with it
	assert_output ''
	run py --readonly -c "ui = {'rep': 1}"
	assert_output --partial '[ui note: ui is a symlink'
	refute_output --partial 'ui artifacts'
}

@test "symlinks below ui: none is written through, those that lead out are told" {
	mkdir "$TEST_DIR/out"
	echo secret >"$TEST_DIR/out/host.txt"
	ntr run -c "mkdir ui; echo in >in.txt"
	run py -c "
import os
os.symlink('$TEST_DIR/out/host.txt', 'ui/a.txt')
os.symlink('$TEST_DIR/out', 'ui/dir')
os.symlink('../in.txt', 'ui/b.txt')
os.symlink('$TEST_DIR/out/new', 'ui/c.json.part')
os.symlink('$TEST_DIR/out/host.txt', 'ui/c.json')
os.symlink('$TEST_DIR/out', 'dir')
ui = {'c': 1, 'd': 'dir/host.txt', 'e': 'ui/b.txt'}"
	assert_success
	assert_line '[ui artifacts: c -> /workspace/ui/c.json, e -> /workspace/ui/b.txt]'
	assert_line '[ui note: d: /workspace/dir/host.txt leads out of the workspace]'
	assert_line '[ui note: a.txt: /workspace/ui/a.txt leads out of the workspace]'
	assert_equal "$(ls "$TEST_DIR/out")" host.txt
	assert_equal "$(cat "$TEST_DIR/out/host.txt")" secret
	run ntr run -c 'cat ui/c.json; test ! -L ui/c.json'
	assert_success
	assert_output 1
	run py -c 'open("ui/f.txt", "w").close()' # what was there before is not told again
	assert_output '[ui artifacts: f.txt -> /workspace/ui/f.txt]'
}

@test "a read-only call leaves directory and umask as they were" {
	ntr run -c 'mkdir d; cd d; umask 022; export A=1'
	py --readonly -c 'import os; os.chdir("/tmp"); os.umask(0o77); os.environ["A"] = "2"'
	run ntr run -c 'pwd; umask; echo $A'
	assert_output $'/workspace/d\n0022\n1'
	py -c 'import os; os.chdir("/tmp"); os.umask(0o77)' # any other call's stay
	run ntr run -c 'pwd; umask'
	assert_output $'/tmp\n0077'
}

@test "ui names that would be one file are two" {
	run py -c 'ui = {"a": 1, "a.json": 2, "a-2": 3, "a-2.json": 4}'
	assert_output '[ui artifacts: a -> /workspace/ui/a.json, a.json -> /workspace/ui/a-2.json, a-2 -> /workspace/ui/a-2-2.json, a-2.json -> /workspace/ui/a-2-3.json]'
	run ntr run -c 'cat ui/a.json ui/a-2.json ui/a-2-2.json ui/a-2-3.json; rm -r ui'
	assert_output 1234
	for _ in 1 2; do # no new name at each call; a file that is shown as it is stays what it is
		run py -c '
import os
os.makedirs("ui", exist_ok=True)
open("ui/t.json", "w").write("own")
ui = {"t": 1, "own": "ui/t.json", "b": b"\x89PNG\r\n\x1a\n", "b.png": b"\x89PNG\r\n\x1a\n2"}'
		assert_line --partial '[ui artifacts: t -> /workspace/ui/t-2.json, own -> /workspace/ui/t.json, b -> /workspace/ui/b.png, b.png -> /workspace/ui/b-2.png]'
	done
	run ntr run -c 'cat ui/t.json ui/t-2.json; ls ui'
	assert_output $'own1b-2.png\nb.png\nt-2.json\nt.json'
}
