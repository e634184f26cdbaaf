# Tools that copy, save, link, lock and talk, over calls with a commit and a fold after each.
load common
load tools

setup() { ntr_setup; }
teardown() {
	[ -z "${agent:-}" ] || kill "$agent" 2>/dev/null || true
	ntr_teardown
}

manifest() { echo "/usr/bin/python3 $NTR_TESTS/helpers/manifest.py $1"; }

make_tree() {
	mkdir -p t/a/b t/empty 't/with space' $'t/new\nline'
	echo one >t/a/one && ln t/a/one t/a/b/two && ln t/a/one t/three
	ln -s a/one t/link && ln -s /nowhere t/dangling && mkfifo t/pipe
	echo x >"$(printf 't/with space/bytes\xff')" && echo y >t/$'new\nline'/y
	truncate -s 3M t/sparse && printf tail >>t/sparse && printf mid | dd of=t/sparse bs=1 seek=2000000 conv=notrunc status=none
	head -c 300000 /dev/urandom >t/big && chmod 4750 t/big && chmod 1777 't/with space'
	setfattr -n user.note -v value t/a/one 2>/dev/null || true
	setfacl -m u:$(id -u):r t/a/one 2>/dev/null || true
	setfacl -d -m g::rx t/empty 2>/dev/null || true
	touch -d '2001-02-03 04:05:06.789012345' t/a/one
	find t -depth -newermt 2010-01-01 -exec touch -h -d '2003-02-03 04:05:06.7' {} +
}

@test "tar and rsync -aHAX carry everything in, about, and out" {
	need tar rsync
	make_tree
	tar --xattrs --acls --sparse -cf t.tar -C t .
	call "mkdir x && tar --xattrs --acls -xpf $PWD/t.tar -C x"
	ntr run -c "$(manifest x)" >got
	$(manifest t) >want
	diff want got
	call 'tar --xattrs --acls --sparse -cf again.tar -C x . && mkdir y && tar --xattrs --acls -xpf again.tar -C y'
	ntr run -c "$(manifest y)" | diff want -
	call 'rsync -aHAX --sparse x/ z/'
	ntr run -c "$(manifest z)" | diff want -
	call 'echo more >>x/big; rm x/link; mkdir x/n; touch x/n/f; touch -d 2004-01-01 x/n x; rsync -aHAX --delete --itemize-changes x/ z/ | grep -v /$ | sort >changes'
	run ntr run -- grep -c . changes
	assert_output 3 # big, n/f, link
	ntr run -c 'rsync -aHAXn --delete --itemize-changes x/ z/' >again
	assert_equal "$(cat again)" ""
	ntr run -c "rsync -aHAX z/ $PWD/out/"
	ntr run -c "$(manifest z)" >want
	$(manifest out) | diff want -
}

@test "cp -a, cp --sparse, cp --reflink=auto, cp -l, dd, install, and what is sparse stays so" {
	both 'truncate -s 24M s; printf x | dd of=s bs=1 seek=20000000 conv=notrunc status=none; md5sum s'
	both 'cp --sparse=always s s1; cp --sparse=auto s s2; cp --reflink=auto s s3; md5sum s*; for f in s*; do [ $(($(stat -c "%b*%B" $f))) -lt 4000000 ] && echo sparse; done'
	both 'fallocate -p -o 0 -l 1M s1; fallocate -z -o 20000000 -l 4096 s2; md5sum s1 s2; cp -a s3 s4; rm s3; md5sum s4; stat -c %s s4'
	both 'head -c 5000000 s4 | md5sum; dd if=s4 bs=1M skip=15 count=5 status=none | md5sum; truncate -s 22000000 s4; tail -c 2500000 s4 | md5sum; cmp s4 s'
	both 'install -D -m 751 s1 i/j/k; stat -c %a i/j/k; cp -l i/j/k l; stat -c %h l i/j/k; [ l -ef i/j/k ] || [ $(id -u) -ne 0 ]; cat l i/j/k | md5sum'
	both 'for i in $(seq 0 31); do truncate -s $((i * 4097)) h$i; printf $i >>h$i; done; cat h* | md5sum; cp -a --sparse=always . ../copy 2>/dev/null || cp -a h* i; md5sum h* | md5sum'
}

@test "editors' ways to save: in place, rename over, backup, link and unlink, vim, sed -i, patch" {
	both 'echo v1 >f; chmod 640 f; echo other >g; ln f hard'
	both 'echo v2 >f.tmp; chmod --reference=f f.tmp; mv f.tmp f; cat f hard; stat -c %a f'
	both 'cp -p f f~; echo v3 >f; cat f f~; stat -c "%a %h" f f~'
	both 'mv f f.bak; echo v4 >f; cat f f.bak; rm f.bak; ls -A'
	both 'ln f f.old; echo v5 >f.new; mv f.new f; cat f f.old; rm f.old; stat -c %h f'
	both 'sed -i s/v5/v6/ f; cat f; printf -- "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-v6\n+v7\n" >p; patch -s -p1 <p || cp p f; cat f; ls -A'
	both 'exec 3<>f; printf V >&3; exec 3>&-; cat f; exec 3>>f; echo appended >&3; echo again >&3; exec 3>&-; cat f'
	both 'printf "%s" "" >f; stat -c %s f; echo after >f; cat f; truncate -s 3 f; cat f; echo; unlink f; echo new >f; cat f'
	if command -v vim >/dev/null; then
		for backup in 'set nobackup nowritebackup' 'set backup backupcopy=yes' 'set backup backupcopy=no'; do
			both "vim -u NONE -es -c '$backup' -c 'set noswapfile backupskip=' -c 'normal ovim was here' -c wq g >/dev/null 2>&1; cat g; ls -A"
		done
	fi
}

# Hard links between committed names are broken by the first change of one of them, as with docker; new ones are not. When a name of
# a committed file goes, the others count it until the fold (docs/posix.md).
@test "hard links: within a call, over calls, over folds" {
	both 'echo 1 >a; ln a b; stat -c %h a b; [ a -ef b ]; echo 2 >>b; cat a; ln b c; rm a; stat -c %h b c; cat c; chmod 600 b; stat -c %a c'
	both 'stat -c %h b c; [ b -ef c ]; cat b c; find . -samefile b | sort; mkdir x; mv b x/b; cat x/b'
	both 'cat x/b c; rm c; cat x/b; mkdir n; cd n; seq 5 >1; for i in 2 3 4; do ln 1 $i; done; mv 1 ../x; stat -c %h 2 ../x/1; cd ..'
	ntr stop
	both 'stat -c %h x/b n/3; [ x/1 -ef n/4 ]; rm n/4 x/1; cat n/2'
	ntr stop
	both 'stat -c %h n/3; rm -r x n; ls -A'
	# A new link of a committed file with one name, seen at once and after the fold.
	ntr run -c 'echo 1 >f'
	ntr stop
	run ntr run -c 'ln f g; stat -c %h f g; echo 2 >>g; cat f'
	assert_output $'2\n2\n1\n2'
	ntr stop
	run ntr run -c '[ f -ef g ] && stat -c %h f'
	assert_output 2
	# The change of one of two committed names.
	run ntr run -c 'echo 3 >>f; cat g'
	assert_output $'1\n2'
	ntr stop
	run ntr run -c 'stat -c %h f g; cat f g | md5sum'
	assert_output "$(printf '1\n1\n'; printf '1\n2\n3\n1\n2\n' | md5sum)"
}

@test "sqlite in WAL mode: two processes at once, over calls" {
	need sqlite3
	cat >db.py <<-'P'
		import sqlite3, sys
		db = sqlite3.connect("db", timeout=60, isolation_level=None)
		db.execute("pragma journal_mode=wal")
		db.execute("pragma synchronous=off")
		for i in range(int(sys.argv[2])):
		    db.execute("begin immediate")
		    n, = db.execute("select n from counter").fetchone()
		    db.execute("update counter set n=?", (n + 1,))
		    db.execute("insert into log values (?, ?)", (sys.argv[1], i))
		    db.execute("commit")
	P
	call 'sqlite3 db "pragma journal_mode=wal; create table counter(n); insert into counter values(0); create table log(who, i)"'
	local round
	for round in 1 2 3; do
		ntr run -c "/usr/bin/python3 $PWD/db.py a 200 & /usr/bin/python3 $PWD/db.py b 200; wait"
		run ntr run -- sqlite3 db 'select n from counter; select count(distinct who||i) from log; pragma integrity_check'
		assert_output "$((round * 400))"$'\n400\nok'
		if [ $round -eq 1 ]; then ntr stop; fi
	done
	# A writer in the background, calls beside it.
	ntr run -c "/usr/bin/python3 $PWD/db.py c 300 >/dev/null 2>&1 & echo"
	for round in 1 2 3; do ntr run -c "/usr/bin/python3 $PWD/db.py d$round 100"; done
	for _ in {1..100}; do [ "$(ntr ps --json)" = "" ] && break; sleep 0.1; done
	run ntr run -- sqlite3 db 'select n from counter; pragma integrity_check'
	assert_output $'1800\nok'
	ntr stop
	ntr fork default f
	run ntr run -s f -- sqlite3 db 'select n from counter; pragma integrity_check; pragma wal_checkpoint(truncate)'
	assert_line --index 0 1800
	assert_line --index 1 ok
	ntr rollback --steps 1
	run ntr run -- sqlite3 db 'pragma integrity_check'
	assert_output ok
}

@test "locks: flock, record locks, OFD locks between processes of one call and of two" {
	call 'echo x >lock; echo x >committed'
	cat >locks.py <<-'P'
		import fcntl, os, struct, subprocess, sys, time
		def refused(f):
		    try: f()
		    except OSError as e: return e.errno in (11, 13)
		    return False
		ofd = lambda cmd, fd, t: fcntl.fcntl(fd, cmd, struct.pack("hhqqi4x", t, 0, 0, 0, 0))
		for name in "lock", "new":
		    a, b = (open(name, "a+") for _ in "ab")
		    fcntl.flock(a, fcntl.LOCK_EX)
		    assert refused(lambda: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB))
		    fcntl.flock(a, fcntl.LOCK_UN)
		    fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
		    ofd(37, a, fcntl.F_WRLCK)  # F_OFD_SETLK
		    assert refused(lambda: ofd(37, b, fcntl.F_WRLCK))
		    ofd(37, a, fcntl.F_UNLCK)
		    fcntl.lockf(a, fcntl.LOCK_EX)
		    child = os.fork()
		    if not child:
		        c = open(name, "a+")
		        t, *_ = struct.unpack("hhqqi4x", fcntl.fcntl(c, 5, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)))  # F_GETLK
		        os._exit(not (t == fcntl.F_WRLCK and refused(lambda: fcntl.lockf(c, fcntl.LOCK_EX | fcntl.LOCK_NB))))
		    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
		print("ok")
	P
	run ntr run -- /usr/bin/python3 "$PWD/locks.py"
	assert_output ok
	ntr run -c 'exec 9>>lock; flock 9; echo held; sleep 30 </dev/null >/dev/null 2>&1 &'
	run ntr run -- flock -n lock echo got
	assert_failure
	ntr stop
	run ntr run -- flock -n lock echo got
	assert_output got
}

@test "unix sockets, fifos, ssh-agent and a server across calls" {
	cat >serve.py <<-'P'
		import os, socket
		s = socket.socket(socket.AF_UNIX)
		s.bind("sock"); s.listen(5)
		while True:
		    c, _ = s.accept()
		    with c, open("served", "a") as f:
		        data = c.recv(100); f.write(data.decode()); c.sendall(data.upper())
		        if data == b"end": break
	P
	cat >ask.py <<-'P'
		import socket, sys
		s = socket.socket(socket.AF_UNIX); s.connect("sock"); s.sendall(sys.argv[1].encode()); print(s.recv(100).decode())
	P
	ntr run -c "/usr/bin/python3 $PWD/serve.py >/dev/null 2>&1 </dev/null & until [ -S sock ]; do sleep 0.05; done"
	run ntr run -- /usr/bin/python3 "$PWD/ask.py" one
	assert_output ONE
	ntr run -c 'for i in {1..200}; do echo $i >n$i; done' # due for a fold, which has to wait for the server
	sleep 0.3
	run ntr run -- /usr/bin/python3 "$PWD/ask.py" two
	assert_output TWO
	run ntr run -- /usr/bin/python3 "$PWD/ask.py" end
	assert_output END
	run ntr run -- cat served
	assert_output onetwoend
	ntr run -c 'mkfifo p; cat <p >out & echo through >p; wait; cat out' >got
	assert_equal "$(cat got)" through
	ntr stop
	run ntr run -c 'stat -c %F sock p; rm sock; cat <p & echo again >p; wait'
	assert_output $'socket\nfifo\nagain'
	if command -v ssh-agent ssh-add ssh-keygen >/dev/null; then
		ntr run -c 'eval "$(ssh-agent -a "$PWD/agent")" >/dev/null; export SSH_AUTH_SOCK SSH_AGENT_PID; ssh-keygen -qt ed25519 -N "" -f key; ssh-add -q key'
		run ntr run -c 'ssh-add -l | grep -c ED25519; echo signed >msg; ssh-keygen -q -Y sign -f key.pub -n file msg && ls msg.sig'
		assert_output --partial $'1\n'
		assert_output --partial msg.sig
		ntr run -c 'ssh-agent -k >/dev/null'
	fi
}

@test "a directory of thousands of names: made, listed, emptied while it is read" {
	local n=3000
	[ -z "${NTR_LONG:-}" ] || n=50000
	call "mkdir d; cd d; seq $n | xargs touch; cd .."
	run ntr run -c 'ls d | wc -l; ls -U d | sort -un | wc -l; find d -name "*[13579]" -delete; ls d | wc -l'
	assert_output "$n"$'\n'"$n"$'\n'$((n / 2))
	ntr stop
	cat >empty.py <<-'P'
		import os
		n = 0
		for e in os.scandir("d"):
		    os.unlink(e.path)
		    n += 1
		print(n)
	P
	run ntr run -c "ls d | wc -l; touch d/1; /usr/bin/python3 $PWD/empty.py; ls -A d; rmdir d"
	assert_output $((n / 2))$'\n'$((n / 2 + 1))
	ntr stop
	run ntr run -- ls -A
	assert_output ""
}

# A commit stops what runs for a moment. Who looks after children must not take them for suspended: script(1) would stop itself.
@test "commits with a parent and children in the background: nobody sees a child stop" {
	cat >parent.py <<-'P'
		import os, signal, sys, time
		signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
		child = os.fork()
		if not child:
		    while True: time.sleep(0.001)
		print("ready", file=sys.stderr, flush=True)
		until = time.time() + 60
		with open("seen", "a", buffering=1) as f:
		    while time.time() < until and not os.path.exists("end"):
		        s = signal.sigtimedwait([signal.SIGCHLD], 0.05)
		        if s and s.si_code in (4, 5): print("stopped", file=f)  # CLD_TRAPPED, CLD_STOPPED
		        r = os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG)
		        if r: print("stop", r, file=f)
		    os.kill(child, 9); os.waitpid(child, 0); print("done", file=f)
	P
	local i
	ntr run -c "/usr/bin/python3 $PWD/parent.py </dev/null >/dev/null 2>ready & until [ -s ready ]; do sleep 0.02; done"
	ntr run -c 'script -qec "sleep 60" /dev/null </dev/null >/dev/null 2>&1 & sleep 0.2'
	for i in {1..10}; do ntr run -c "echo $i >f"; done
	ntr ps >out
	[ "$(grep -c ' T ' out)" -eq 0 ] || { cat out && false; }
	ntr run -c 'touch end; for i in {1..100}; do grep -q done seen && break; sleep 0.05; done; cat seen' >out
	assert_equal "$(cat out)" done
}

# Two commits hold files of one inode number and different content; whoever goes by device and number must not mix them up.
@test "two mounted commits: diff tells them apart, cp -a and tar copy both" {
	ntr run -c 'echo A >f; ln f g; echo same >s; mkdir d; echo 1 >d/x'
	ntr run -c 'echo B >f; touch -r s f; echo 2 >d/x'
	mkdir one two all
	ntr mount default~1 one
	ntr mount default~0 two
	run diff -rq one two
	cp -a one two all
	tar -cf t.tar one two
	find one two -mount -type f | wc -l >found
	ntr umount one
	ntr umount two
	assert_output $'Files one/d/x and two/d/x differ\nFiles one/f and two/f differ\nFiles one/g and two/g differ'
	assert_equal "$(cat found)" 8
	tar -xf t.tar
	assert_equal "$(cat one/[fg] two/[fg] all/one/[fg] all/two/[fg] two/d/x | tr -d '\n')" AABBAABB2
	[ all/two/f -ef all/two/g ]
}
