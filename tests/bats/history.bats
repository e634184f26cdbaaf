# Trees that come back exactly: manifests before and after; exports and imports; patches that git applies.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

manifest() { /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" "$@"; }
# In a session, where the workspace's manifest is taken by a program of the session.
inside() { ntr run -s "$1" -- /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" /workspace; }

# A directory with every kind of thing that this user can make.
make_tree() {
	mkdir -p "$1" && cd "$1"
	mkdir -p a/b/c empty 'with space' $'new\nline' $'bytes\xff\xfe'
	echo one >a/one
	ln a/one a/b/two
	ln a/one a/b/c/three
	ln -s one a/link
	ln -s /nowhere dangling
	mkfifo pipe
	/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
	head -c 100000 /dev/urandom >big
	truncate -s 5M sparse && printf tail >>sparse && printf mid | dd of=sparse bs=1 seek=3000000 conv=notrunc 2>/dev/null
	printf x >"with space/x" && printf y >$'new\nline/y' && printf z >$'bytes\xff\xfe/\xc3\x28'
	# An import reads as the caller: a file that its owner may not read is root's to import.
	if [ "$(id -u)" -eq 0 ]; then chmod 000 a/b/c/three; else chmod 400 a/b/c/three; fi
	chmod 750 empty && chmod 4755 big && chmod 1777 'with space'
	setfattr -n user.note -v 'some value' a/one 2>/dev/null || true
	# (an id that the user namespace does not map shows as -1 inside a session, as everywhere)
	setfacl -m "u:$(id -u):r" a/one 2>/dev/null || true
	setfacl -d -m g::rx empty 2>/dev/null || true
	touch -h -d '2001-02-03 04:05:06.789012345' dangling
	touch -d '1999-12-31 23:59:59.000000001' a/one
	if [ "$(id -u)" -eq 0 ]; then
		chown 1234:4321 big && chown -h 7:8 dangling && mknod dev c 1 3
	fi
	touch -d '2010-01-01 00:00:00.5' a/b a empty
	cd - >/dev/null
}

@test "an export after an import is identical; so is a tar; so is the live view" {
	make_tree t
	manifest t >want
	ntr new s --from t
	ntr export -s s --dir out
	manifest out >got
	diff want got
	inside s >got
	diff want got
	ntr export -s s --tar s.tar
	ntr new s2 --from s.tar
	ntr export -s s2 --dir out2
	manifest out2 >got
	diff <(grep -v ^sock want) got # a tar has no sockets
	tar -C . -cf t.tar -C t --xattrs --acls --sparse . 2>/dev/null || tar -cf t.tar -C t .
	run ntr new s3 --from t.tar
	assert_success
}

@test "a fork wrecked and rolled back is identical; its origin never changed" {
	make_tree t
	ntr new s --from t
	ntr run -s s -c 'echo more >> big; mkdir n; echo n > n/n; mv a moved 2>/dev/null || true'
	inside s >want
	ntr fork s f
	inside f >got
	diff want got
	ntr run -s f -c 'chmod -R u+rwx . ; rm -rf /workspace/* /workspace/.[!.]*; ls -A /workspace | wc -l'
	run ntr run -s f -c 'ls -A /workspace'
	assert_output ""
	inside s >got
	diff want got
	ntr run -s f -c 'mkdir -p a/one; echo file > n; ln -s x big'
	ntr rollback -s f s
	inside f >got
	diff want got
	ntr rollback -s f --steps 1
	inside f | diff <(manifest t) - || true
	ntr stop -s f
	ntr rollback -s f s
	ntr export -s f --dir out
	manifest out >got
	diff want got
	ntr daemon stop
	inside f >got
	diff want got
}

@test "diff A B | git apply on an export of A gives the export of B" {
	mkdir t && cd t
	printf 'a\nb\nc\n' >text && printf '\0\1\2bin' >bin && echo run >tool && ln -s text link && mkdir d && echo x >d/x
	printf 'no newline' >nn && echo gone >gone && printf 'q' >'with "quotes" and ünïcode' && : >emptyfile
	cd ..
	ntr new s --from t
	ntr run -s s -c $'printf "a\\nB\\nc\\nd\\n" > text; head -c 3000 /dev/urandom > bin; chmod +x tool; ln -sfn d link; rm gone
		git init -q scratch 2>/dev/null; rm -rf scratch; mkdir -p new/deep; echo n > new/deep/n; : > new/empty; rm d/x; rmdir d
		echo d-is-file > d; printf "q2" > "with \\"quotes\\" and ünïcode"; printf "now\\n" > nn; rm emptyfile; ln -s d emptyfile'
	ntr export -s s~1 --dir A
	ntr export -s s --dir B
	ntr diff s~1 s >patch || [ $? -eq 1 ]
	(cd A && git init -q . && git apply --whitespace=nowarn ../patch && rm -rf .git)
	diff -r --no-dereference A B
	[ -x A/tool ]
	run ntr diff s s
	assert_success
	assert_output ""
	run ntr diff s~1 s --stat
	assert_failure 1
	assert_output --partial text
	run ntr diff s~1 s --name-status -- new
	assert_output --partial new/deep/n
	refute_output --partial text
}

@test "commits by every way of naming them; wrong names say so" {
	ntr run -c 'echo 1 > f'
	ntr run -c 'echo 2 > f'
	ntr run -c 'echo 3 > f'
	local id; id=$(ntr log -n 2 --json | tail -1 | json '["commit"]')
	for rev in default~1 "default@${id:0:8}" "${id:0:10}" "$id" "~1" "@${id:0:7}"; do
		run ntr show "$rev" --json
		assert_success
		assert_equal "$(head -1 <<<"$output" | json '["commit"]')" "$id"
	done
	run ntr rollback nosuch
	assert_failure 1
	assert_output --partial 'ntr: '
	assert_output --partial 'nosuch'
	run ntr rollback default~99
	assert_failure 1
	run ntr rollback --steps 99
	assert_failure 1
	run ntr fork nosuch x
	assert_failure 1
	run ntr fork default '../x'
	assert_failure
	run ntr run -- cat f
	assert_output 3
}

@test "rollback never crosses the first commit; an abandoned head stays findable" {
	ntr run -c 'echo 1 > f'
	local head; head=$(head_of default)
	ntr rollback --steps 1
	run ntr run -- ls
	assert_output ""
	run ntr rollback --steps 1
	assert_failure 1
	ntr rollback "${head:0:12}"
	run ntr run -- cat f
	assert_output 1
}

@test "a committed file keeps its inode number over fork, rollback, remount and restart" {
	ntr run -c 'echo 1 > a; echo 2 > b; mkdir d; echo 3 > d/c'
	ntr stop
	local want; want=$(ntr run -- stat -c '%i' a b d d/c)
	ntr fork default f
	assert_equal "$(ntr run -s f -- stat -c '%i' a b d d/c)" "$want"
	ntr run -c 'echo x > x'
	assert_equal "$(ntr run -- stat -c '%i' a b d d/c)" "$want"
	ntr rollback --steps 1
	assert_equal "$(ntr run -- stat -c '%i' a b d d/c)" "$want"
	ntr daemon stop
	assert_equal "$(ntr run -- stat -c '%i' a b d d/c)" "$want"
	ntr run -c 'echo more >> a'
	ntr stop
	assert_equal "$(ntr run -- stat -c '%i' b d d/c)" "$(tail -n +2 <<<"$want")"
}

@test "an import of what cannot be imported names it and leaves nothing" {
	mkdir t && echo x >t/x
	if [ "$(id -u)" -ne 0 ]; then
		chmod 000 t/x
		run ntr new s --from t
		assert_failure 1
		assert_output --partial x
		chmod 644 t/x
	fi
	/usr/bin/python3 - <<-'P'
		import tarfile, io
		def tar(name, entries):
		    with tarfile.open(name, "w") as t:
		        for n, kw in entries:
		            i = tarfile.TarInfo(n); data = kw.pop("data", b"x")
		            for k, v in kw.items(): setattr(i, k, v)
		            i.size = len(data) if i.type == tarfile.REGTYPE else 0
		            t.addfile(i, io.BytesIO(data))
		tar("dotdot.tar", [("ok", {}), ("../evil", {})])
		tar("absolute.tar", [("/etc/evil", {})])
		tar("through.tar", [("l", dict(type=tarfile.SYMTYPE, linkname="/tmp")), ("l/evil", {})])
		tar("hardout.tar", [("h", dict(type=tarfile.LNKTYPE, linkname="../../etc/passwd"))])
		tar("whiteout.tar", [("w", dict(type=tarfile.CHRTYPE, devmajor=0, devminor=0))])
	P
	for t in dotdot absolute through hardout whiteout; do
		run ntr new "$t" --from "$t.tar"
		assert_failure 1
		assert_output --partial 'ntr: '
	done
	run ntr new nodir --from ./nothere
	assert_failure
	run ntr sessions --json
	assert_output ""
	run ntr fsck
	assert_success
}

@test "show and status tell new content from a touch" {
	ntr run -s w -c 'echo 1 >a; echo 1 >b; echo 1 >c; chmod 644 a b c'
	sleep 1.1
	ntr run -s w --no-commit -c 'echo 22 >a; touch b; echo 3 >c; chmod 600 c'
	run ntr status -s w
	assert_line --regexp '^ *modified +a$'
	assert_line --regexp '^ *modified +b \(mtime\)$'
	assert_line --regexp '^ *modified +c \(content, mode\)$'
	ntr commit -s w -m x
	run ntr show w
	assert_line --regexp '^ *modified +a$'
	assert_line --regexp '^ *modified +b \(mtime\)$'
	assert_line --regexp '^ *modified +c \(content, mode\)$'
}

@test "rollback --force tells of the call it ended, and where its work is kept" {
	ntr run -s w -c 'echo base >base'
	ntr run -s w -c 'echo part >part; sleep 60' &
	local call=$! i
	for i in {1..100}; do [ "$(ntr ls -s w)" = $'base\npart' ] && break; sleep 0.1; done
	run --separate-stderr ntr rollback -s w --force --steps 1 --json
	assert_success
	wait $call || true
	assert_equal "$(/usr/bin/python3 -c 'import json, sys; print(json.loads(sys.argv[1])["killed"] >= 1)' "$output")" True
	local kept; kept=$(/usr/bin/python3 -c 'import json, sys; print(json.loads(sys.argv[1])["staged"])' "$output")
	assert_equal "$(ntr ls -s w)" base
	assert_equal "$(ntr cat -s "w@$kept" part)" part
}
