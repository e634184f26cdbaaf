# Processes that live on between calls: those whose main thread has ended, and what is stored through shared mappings.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# A process of a thread alone: the main one ends at once.
leaderless() {
	cat >"$TEST_DIR/leaderless.py" <<-'P'
		import ctypes, sys, threading, time
		def run():
		    for _ in range(3000): # should nobody end it
		        with open(sys.argv[1], 'w') as f: f.write('x')
		        time.sleep(0.01)
		threading.Thread(target=run).start()
		ctypes.CDLL(None).pthread_exit(None)
	P
}

@test "a process whose main thread has ended is in the background, and a rollback ends it" {
	leaderless
	ntr run -c 'echo base > base'
	ntr run -c "/usr/bin/python3 $TEST_DIR/leaderless.py tick </dev/null >/dev/null 2>&1 & while [ ! -s tick ]; do sleep 0.05; done; sleep 0.2"
	run ntr log -n 1 --json
	assert_equal "$(json '["background"]' <<<"$output")" true
	run ntr ps
	assert_output --partial leaderless.py
	run timeout -s KILL 20 ntr rollback '~1'
	assert_success
	assert_output --partial ended
	run ntr ps --json
	assert_output ""
	run timeout -s KILL 20 ntr run -c 'ls'
	assert_output base
}

@test "a timeout ends a call whose main thread has ended" {
	leaderless
	run timeout -s KILL 20 ntr run --timeout 1 -- /usr/bin/python3 "$TEST_DIR/leaderless.py" "$PWD/tick"
	assert_failure 124
	assert_file_exists tick
	rm tick
	sleep 0.3
	assert_file_not_exists tick
}

# A process that maps the file $1 in the background, stores an A and does $2; after a commit it stores a B.
# What the session's commits then hold is printed. $3: the workspace's root.
stored_after_commit() {
	local marks=$TEST_DIR/marks-$2 program=$TEST_DIR/store.py
	mkdir "$marks"
	cat >"$program" <<-'P'
		import ctypes, os, sys, time
		marks, name, kind = sys.argv[1:]
		libc = ctypes.CDLL(None)
		libc.mmap.restype = ctypes.c_void_p
		libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
		libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
		fd = os.open(name, os.O_RDWR)
		at = libc.mmap(None, 4096, 3, 1, fd, 0)
		if kind != 'linked': os.close(fd)
		ctypes.memmove(at, b'A', 1)
		if kind == 'protected': libc.mprotect(at, 4096, 1)
		if kind in ('linked', 'relinked', 'replaced'):
		    os.link(name, 'other')
		    os.unlink(name)
		if kind == 'relinked': os.rename('other', name)
		if kind == 'replaced':
		    with open(name, 'w') as f: f.write('-')
		open(marks + '/stored', 'w').close()
		while not os.path.exists(marks + '/go'): time.sleep(0.02)
		libc.mprotect(at, 4096, 3)
		ctypes.memmove(at, b'B', 1)
		open(marks + '/again', 'w').close()
		time.sleep(1000)
	P
	ntr new "$2" ${3:+--root "$3"} >/dev/null
	ntr run -s "$2" -- /usr/bin/python3 -c 'import sys; open(sys.argv[1], "wb").write(bytes(4096))' "$1"
	ntr run -s "$2" --timeout 60s -- sh -c '/usr/bin/python3 "$@" </dev/null >/dev/null 2>"$2/errors" & while [ ! -e "$2/stored" ]; do sleep 0.02; done' \
		sh "$program" "$marks" "$1" "$2"
	touch "$marks/go"
	for _ in {1..3000}; do [ ! -e "$marks/again" ] || break; sleep 0.02; done
	ntr run -s "$2" -- true
	ntr stop -s "$2" >/dev/null
	ntr cat -s "$2" "${4:-$1}" | head -c 1
}

@test "a store into a page that was dirty at the last commit is in the next one" {
	run stored_after_commit f plain
	assert_output B
}

@test "so is one below a root that was named through a symlink" {
	mkdir -p real
	ln -s real link
	run stored_after_commit f rooted "$PWD/link/ws"
	assert_output B
}

@test "so is one into a mapping that was read-only at the commit" {
	run stored_after_commit f protected
	assert_output B
}

@test "so is one into a file whose name was unlinked, and made anew by a link" {
	run stored_after_commit f relinked
	assert_output B
}

@test "so is one into a file that goes by another link, where the process has kept a descriptor" {
	run stored_after_commit f linked '' other
	assert_output B
}

# The process's range of addresses leads to the file: what only root may use.
@test "so is one into a file that goes by another link, its name by another file" {
	[ "$(id -u)" -eq 0 ] || skip "an ordinary user's session does not see which file it is"
	run stored_after_commit f replaced '' other
	assert_output B
}

@test "so is one into a file whose name looks like an escape of maps" {
	run stored_after_commit 'a\012b' escape
	assert_output B
	run stored_after_commit $'a\nb' newline
	assert_output B
}
