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

@test "cache: what others set during a call is seen, unless the code holds the value" {
	cat >c.py <<-'X'
	import subprocess, time
	def other(key, text):
	    subprocess.run(["ntr", "cache", "set", "--json", key, text], check=True, capture_output=True)
	cache["n"] = 1
	cache["l"] = [1, [2]]
	cache["d"] = {"x": {}}
	cache["gone"] = 1
	assert cache["n"] == 1 and cache["l"] == [1, [2]] and cache["gone"] == 1
	other("n", "2"); other("l", "[3]"); other("new", "5"); subprocess.run(["ntr", "cache", "rm", "gone"], check=True, capture_output=True)
	assert cache["n"] == 2 and cache["l"] == [3] and cache["new"] == 5
	assert "gone" not in cache and cache.get("gone") is None
	# one that does not end, and is not waited for
	p = subprocess.Popen("ntr cache set --json n 3; echo; read x", shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
	p.stdout.readline()
	assert cache["n"] == 3
	p.kill(); p.wait()
	# held, whole or in part: the code's own
	held = cache["l"]
	inner = cache["d"]["x"]
	other("l", "[4]"); other("d", "0")
	assert cache["l"] is held and cache["d"]["x"] is inner
	inner["y"] = 1
	# changed and not held: it goes before
	cache["c"] = [1]
	cache["c"].append(2)
	other("c", "[9]")
	assert cache["c"] == [1, 2]
	X
	ntr put c.py
	run py c.py
	assert_success
	assert_output ''
	run py -c 'dict(cache)' # held but not changed: theirs stays
	assert_output "{'c': [1, 2], 'd': {'x': {'y': 1}}, 'l': [4], 'n': 3, 'new': 5}"
	run py -c 'v = [cache["c"] for _ in range(20000)]; d = {"a": 1, "b": 2.5, "c": {"z": [1.0, 1e300]}}; cache["m"] = d
import time; time.sleep(0.01); cache["m"] is d, cache["m"]["c"]["z"]'
	assert_output '(True, [1.0, 1e+300])'
	run py -c '
import multiprocessing, time
cache["w"] = {"a": 1}
def work(i): time.sleep(0.01); return cache["w"]["a"] + i
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(work, range(3)))'
	assert_output '[1, 2, 3]'
}

@test "a module of the workspace is not preloaded, and no note says so" {
	ntr run -c 'mkdir -p pkg d; echo "X = 1" >helpers.py; echo "Y = 2" >pkg/sub.py; echo "import nosuch" >broken.py; echo "Z = 3" >d/near.py'
	run py --preload helpers --preload pkg.sub --preload broken -c 'import helpers, pkg.sub; helpers.X + pkg.sub.Y'
	assert_success
	assert_output 3
	ntr run -c 'echo "X = 5" >helpers.py; cd d'
	run py --preload helpers --preload near -c 'import helpers, near; helpers.X, near.Z'
	assert_output '(5, 3)'
	run py --preload nosuchmodule --preload pkg.sub --preload os.nosuch -c 1
	assert_line --partial 'the module nosuchmodule could not be preloaded: ModuleNotFoundError'
	assert_line --partial 'the module os.nosuch could not be preloaded'
	refute_output --partial 'pkg'
	ntr run -c 'cd ..; rm -r helpers.py'
	run py --preload helpers -c 1
	assert_output --partial 'the module helpers could not be preloaded'
}
