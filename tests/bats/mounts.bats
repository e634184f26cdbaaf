# Host directories in a session: --mount POINT=DIR[:rw].

load common

setup()
{
	ntr_setup
	host=$TEST_DIR/host
	mkdir -p "$host/sub"
	echo from-host >"$host/file"
	echo deep >"$host/sub/deep"
}

teardown()
{
	ntr_teardown
}

@test "a host directory is seen by bash and Python, read-only, and never versioned" {
	ntr new s --mount "/workspace/data=$host"
	run ntr run -s s -c 'cat data/file data/sub/deep /workspace/data/file'
	assert_output $'from-host\ndeep\nfrom-host'
	run ntr py -s s -c 'print(open("data/file").read(), end="")'
	assert_output from-host
	run ntr run -s s -c 'echo x >data/new'
	assert_failure
	assert_output --partial "Read-only file system"
	run ntr py -s s -c 'open("data/new", "w")'
	assert_failure
	assert_output --partial "Read-only"
	assert_file_not_exists "$host/new"
	# only the first commit, which has the directory that bears it
	run ntr log -s s --json
	assert_equal "${#lines[@]}" 1
	run ntr show s
	assert_output --partial data
	refute_output --partial file
	# files of it, also where the session is not live yet; of a commit, the directory is empty
	ntr stop -s s
	run ntr cat -s s data/file
	assert_output from-host
	ntr stop -s s
	run ntr ls -s s data
	assert_output $'file\nsub'
	run ntr ls -s s~0 data
	assert_output ""
	ntr stop -s s
	run ntr put -s s - data/plain <<<x
	assert_failure
	run ntr tool -s s file_write '{"path": "data/w", "content": "x"}'
	assert_failure
	assert_output 'write failed: data/w: Read-only file system'
	ntr run -s s --mount "/workspace/data=$host:rw" -- true
	ntr stop -s s
	run ntr tool -s s file_write '{"path": "data/w", "content": "x"}'
	assert_success
	assert_equal "$(cat "$host/w")" x
	run ntr log -s s --json
	assert_equal "${#lines[@]}" 1
}

@test "background processes are in the way of other host directories only while they run" {
	ntr run -s s -c 'sleep 0.5 &'
	run ntr run -s s --mount "/data=$host" -- true
	assert_failure 125
	assert_output --partial "its background processes"
	for _ in {1..100}; do
		[[ $(ntr sessions --json | json '["background"]') == 0 ]] && break
		sleep 0.05
	done
	run ntr run -s s --mount "/data=$host" -- cat /data/file
	assert_success
	assert_output from-host
}

@test "read-write on demand: what is written is the host's, and no commit" {
	ntr run -s s --mount "/workspace/data=$host:rw" -- true
	head=$(head_of s)
	run ntr run -s s --json -c 'echo new >data/new; rm data/file; mkdir data/d'
	assert_success
	assert_equal "$(json '["commit"]' <<<"$output")" null
	assert_equal "$(json '["changes"]["created"]' <<<"$output")" 0
	assert_equal "$(cat "$host/new")" new
	assert_file_not_exists "$host/file"
	assert_equal "$(head_of s)" "$head"
	run ntr diff -s s
	assert_output ""
	run ntr py -s s -c 'open("data/py", "w").write("py"); open("own", "w").write("own")'
	assert_success
	assert_equal "$(cat "$host/py")" py
	run ntr show s --json
	assert_equal "$(json '["entries"]' <<<"$output" | grep -o '"path": "[^"]*"')" '"path": "own"'
}

@test "outside the workspace, where the host has the point and where it has not" {
	mkdir "$TEST_DIR/there"
	run ntr run -s s --mount "$TEST_DIR/there=$host" --mount "/ntr-not-there/a=$host" -c "cat /ntr-not-there/a/file $TEST_DIR/there/file; echo own >own; cat own"
	assert_output $'from-host\nfrom-host\nown'
	assert_dir_not_exists /ntr-not-there
	assert_file_not_exists "$TEST_DIR/there/file"
}

@test "a mount stays with the session: further calls, stop, forks, rollback, status" {
	ntr new s --mount "/workspace/data=$host"
	ntr run -s s -c 'echo 1 >a'
	ntr stop -s s
	run ntr run -s s -- cat data/file
	assert_output from-host
	ntr fork s t
	run ntr run -s t -- cat data/file
	assert_output from-host
	ntr run -s s -c 'echo 2 >a'
	ntr rollback -s s --steps 1
	run ntr run -s s -- cat a data/file
	assert_output $'1\nfrom-host'
	ntr stop -s s
	ntr rollback -s s --steps 1
	run ntr run -s s -- cat data/file
	assert_output from-host
	run ntr status -s s --json
	assert_equal "$(json '["mounts"]' <<<"$output")" "[{\"point\": \"/workspace/data\", \"dir\": \"$host\", \"rw\": false}]"
	run ntr sessions --json
	assert_output --partial "\"dir\":\"$host\""
	run ntr new u --from s
	run ntr run -s u -- cat data/file
	assert_output from-host
	ntr rename u v
	run ntr run -s v -- cat data/file
	assert_output from-host
	ntr rm v
	run ntr fsck
	assert_success
}

@test "run --mount adds, changes and takes off; the same again changes nothing" {
	ntr run -s s -- true
	ntr run -s s --mount "/workspace/x=$host" -- test -e x/file
	head=$(head_of s)
	ntr run -s s --mount "/workspace/x=$host" -- test -e x/file
	assert_equal "$(head_of s)" "$head"
	mkdir other
	ntr run -s s --mount "/workspace/x=other:rw" -c 'echo hi >x/hi'
	assert_equal "$(cat other/hi)" hi
	ntr run -s s --mount /workspace/x= -c 'test ! -e x/hi && echo own >x/own'
	assert_file_not_exists other/own
	run ntr cat -s s x/own
	assert_output own
	run ntr status -s s --json
	assert_equal "$(json '["mounts"]' <<<"$output")" "[]"
}

@test "run --rm --mount is for the throw-away fork only" {
	ntr run -s s -c 'echo 1 >a'
	run ntr run -s s --rm --mount "/workspace/x=$host" -- cat a x/file
	assert_output $'1\nfrom-host'
	run ntr status -s s --json
	assert_equal "$(json '["mounts"]' <<<"$output")" "[]"
}

@test "what cannot be a mount is refused, and makes no session" {
	touch plain
	ln -s "$host" link
	for m in "data=$host" "/=$host" "/workspace=$host" "/proc=$host" "/proc/x=$host" "/workspace/../etc=$host" \
		"/workspace/d=$TEST_DIR/missing" "/workspace/d=plain" "/workspace/d" "=$host"; do
		run ntr new s --mount "$m"
		assert_failure
		assert_output --partial "ntr: "
	done
	run ntr sessions
	assert_output ""
	run ntr new s --root /a/b/c --mount "/a/b=$host"
	assert_failure
	assert_output --partial "cover the workspace"
	run ntr run -s s --mount "/workspace/d=$TEST_DIR/missing" -- true
	assert_failure
	# a link on the command line is the user's own: what it leads to is shown
	run ntr run -s s --mount "/workspace/d=link" -- cat d/file
	assert_output from-host
	run ntr status -s s --json
	assert_equal "$(json '["mounts"][0]["dir"]' <<<"$output")" "$host"
}

@test "symlinks and .. lead nowhere: neither in the workspace nor out of the host directory" {
	ntr run -s s -c 'ln -s /etc sub; mkdir real'
	run ntr run -s s --mount "/workspace/sub/x=$host" -- true
	assert_failure
	assert_output --partial "symlink"
	# a symlink of the workspace into the mount is fine, and .. of its root is the workspace
	run ntr run -s s --mount "/workspace/real/x=$host" -c 'ln -s real/x/file l; cat l; ls real/x/..'
	assert_output $'from-host\nx'
	run ntr run -s s -- cat l
	assert_output from-host
	# what was a directory when the mount was made may be a symlink in an older state
	ntr run -s t -c 'ln -s /etc p'
	ntr run -s t -c 'rm p; mkdir p'
	ntr run -s t --mount "/workspace/p/x=$host" -- true
	ntr rollback -s t --steps 2
	run ntr run -s t -- true
	assert_failure
	assert_output --partial "/workspace/p/x"
	assert_output --partial "--mount /workspace/p/x="
	run ntr run -s t --mount /workspace/p/x= -- readlink p
	assert_output /etc
}

@test "a symlink that took the directory's place on the host is not followed" {
	ntr new s --mount "/workspace/data=$host"
	ntr stop -s s
	mv "$host" "$host.moved"
	ln -s /etc "$host"
	run ntr run -s s -- ls data
	assert_failure
	assert_output --partial "symlink"
}

@test "a directory that is gone when the session goes live: a clear error, and nothing lost" {
	ntr new s --mount "/workspace/data=$host"
	ntr run -s s -c 'echo 1 >a'
	ntr stop -s s
	mv "$host" "$host.moved"
	run ntr run -s s -- true
	assert_failure 125
	assert_output --partial "show the host directory $host at /workspace/data: it is gone"
	run ntr cat -s s a
	assert_output 1
	mv "$host.moved" "$host"
	run ntr run -s s -- cat data/file
	assert_output from-host
}

@test "host directories in one another, and a host directory with mounts of its own" {
	mkdir inner
	echo inner >inner/i
	ntr new s --mount "/workspace/a=$host" --mount "/workspace/a/sub=inner"
	run ntr run -s s -- cat a/file a/sub/i
	assert_output $'from-host\ninner'
	run ntr new t --mount "/workspace/a=$host" --mount "/workspace/a/none=inner"
	assert_failure
	assert_output --partial "has none of that name"
	run ntr sessions
	refute_line --regexp '^t( |$)'
	assert_dir_not_exists "$host/none"
	# all of /dev, mounts and all, but no device of it
	run ntr run -s u --mount /workspace/dev=/dev -c 'test -d dev/pts && echo x >dev/null'
	assert_failure
	run ntr run -s u --mount /workspace/dev=/dev:rw -c 'echo x >dev/null'
	assert_failure
}

@test "a fold keeps the host directory, and who works in it" {
	ntr new s --mount "/workspace/data=$host:rw"
	ntr run -s s -c 'cd data; for i in {1..200}; do echo $i >../f$i; done'
	for _ in {1..100}; do
		run ntr daemon status --json
		[[ $(json '["ops"]["fold"]["count"]' <<<"$output") != 0 ]] && break
		sleep 0.1
	done
	assert_not_equal "$(json '["ops"]["fold"]["count"]' <<<"$output")" 0
	run ntr run -s s -c 'pwd; cat file; echo in >in; ls .. | wc -l'
	assert_output $'/workspace/data\nfrom-host\n201'
	assert_equal "$(cat "$host/in")" in
	run ntr run -s s -c 'grep -c " /workspace/data " /proc/self/mountinfo'
	assert_output 1
}

@test "a directory above the mount that is renamed: the next view shows it at its point" {
	ntr new s --mount "/workspace/a/data=$host"
	ntr run -s s -c 'mv a b; cat b/data/file; echo own >b/own'
	ntr run -s s -c 'echo 1 >x'
	ntr rollback -s s --steps 1
	run ntr run -s s -- cat a/data/file b/own
	assert_output $'from-host\nown'
}

@test "a background process and a mount of the session hold off a change of its host directories" {
	ntr new s --mount "/workspace/data=$host"
	ntr run -s s -c '(cd data; sleep 60) >/dev/null 2>&1 & '
	run ntr run -s s --mount "/workspace/x=$host" -- true
	assert_failure
	assert_output --partial "ntr stop -s s"
	run ntr run -s s --mount "/workspace/data=$host" -- cat data/file
	assert_success
	ntr stop -s s
	ntr run -s s --mount "/workspace/x=$host" -- cat x/file
}

@test "somebody who writes into the host directory does not make commits racy, and is no change" {
	ntr new s --mount "/workspace/data=$host:rw"
	ntr run -s s -c '(for i in {1..400}; do echo $i >>data/log; sleep 0.01; done) >/dev/null 2>&1 &'
	for i in 1 2 3; do
		run ntr run -s s --json -c "echo $i >f$i"
		assert_equal "$(json '["changes"]["created"]' <<<"$output")" 1
		run ntr show s --json
		refute_output --partial '"racy":true'
		refute_output --partial log
	done
	ntr stop -s s
}

@test "killed supervisor, killed daemon: the mounts are there again, and on the host nothing of them" {
	ntr new s --mount "/workspace/data=$host:rw"
	ntr run -s s -c 'echo 1 >a; (cd data; sleep 1000) >/dev/null 2>&1 &'
	kill -KILL "$(ntr ps -s s --json | head -n 1 | json '["ppid"]')" || true
	run ntr run -s s -- cat a data/file
	assert_output $'1\nfrom-host'
	ntr run -s s -c '(cd data; sleep 1000) >/dev/null 2>&1 & echo 2 >b'
	kill -KILL "$(ntr daemon status --json | json '["pid"]')"
	run ntr run -s s -- cat b data/file
	assert_output $'2\nfrom-host'
	run grep -F "$host" /proc/self/mountinfo
	assert_failure
	assert_equal "$(cat "$host/file")" from-host
	run ntr fsck
	assert_success
}

@test "members that are none are refused by the daemon, in words" {
	ntr run -s s -- true
	/usr/bin/python3 - "$NTR_STORE" "$host" <<-'EOF'
		import json, os, socket, struct, sys

		c = socket.socket(socket.AF_UNIX)
		c.connect(os.path.join(sys.argv[1], "socket"))
		f = c.makefile("rb")
		null = os.open("/dev/null", os.O_RDWR)

		def ask(m, fds=()):
		    b = json.dumps(dict(m, fds=len(fds)) if fds else m).encode()
		    socket.send_fds(c, [struct.pack("<I", len(b)) + b], list(fds))
		    while True:
		        r = json.loads(f.read(struct.unpack("<I", f.read(4))[0]))
		        if "event" not in r:
		            return r

		ask({"op": "hello", "protocol": 1, "version": "t"})
		host = sys.argv[2]
		p = "/workspace/d"
		for mounts in ["x", 1, {}, [1], [[]], [{}], [{"point": p}], [{"point": 1, "dir": host}], [{"point": p, "dir": 2}],
		               [{"point": p + "\0x", "dir": host}], [{"point": p, "dir": host + "\0"}],
		               [{"point": p, "dir": "rel"}], [{"point": "", "dir": host}], [{"point": "/" + "x" * 300, "dir": host}],
		               [{"point": p, "dir": host, "dev": 1, "ino": 2}], [{"point": p + str(i), "dir": host} for i in range(65)]]:
		    for m in ({"op": "run", "session": "s", "argv": ["true"], "env": []}, {"op": "new", "name": "n"}):
		        r = ask(dict(m, mounts=mounts), [null] * 3 if m["op"] == "run" else [])
		        assert r["error"]["kind"] == "usage" and r["error"]["what"], (mounts, r)
		r = ask({"op": "run", "session": "s", "argv": ["cat", "d/file"], "env": [], "capture": True,
		         "mounts": [{"point": "//workspace//d/", "dir": host}]}, [null])
		assert r["stdout"] == "from-host\n", r
		r = ask({"op": "fork", "source": "s", "name": "t", "mounts": [{"point": p, "dir": ""}]})
		assert r["mounts"] == [], r
	EOF
	run ntr sessions --json
	assert_equal "${#lines[@]}" 2
}

@test "ntr mount of a session with host directories" {
	ntr new s --mount "/workspace/data=$host:rw"
	ntr run -s s -c 'echo 1 >a'
	mkdir m
	ntr mount s m
	assert_equal "$(cat m/a)" 1
	echo 2 >m/b
	ntr umount m
	run ntr run -s s -- cat b data/file
	assert_output $'2\nfrom-host'
}

@test "the tools and MCP take it, too" {
	run ntr tool -s s --mount "/workspace/data=$host" terminal '{"command": "cat data/file"}'
	assert_success
	assert_output --partial from-host
	run ntr tool -s s run_python '{"code": "print(open(\"data/file\").read())"}'
	assert_output --partial from-host
	run bash -c 'printf "%s\n" \
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}" \
		"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}" \
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"terminal\",\"arguments\":{\"command\":\"cat d/file\"}}}" |
		ntr mcp -s m --mount "/workspace/d=$1"' _ "$host"
	assert_success
	assert_output --partial from-host
}

@test "a host directory that is refused is not kept" {
	ntr new s --mount "/workspace/data=$host"
	mkdir other
	run ntr run -s s --mount "/workspace/data/nosub=$PWD/other" -- ls
	assert_failure 125
	run ntr run -s s -c 'cat data/file'
	assert_output from-host
	run ntr tool -s s terminal '{"command": "cat data/file"}'
	assert_output from-host
	run ntr sessions --json
	refute_output --partial nosub
}
