# What has gone wrong in file systems of this kind, and must not here. Where a plain directory is the judge, both do the
# same; files that a call finds are committed ones.
#
# What went wrong elsewhere, and the test that would see it here (in this file unless another is named):
#
# I/O on a file unlinked while open; hidden names left behind; rmdir of and    "an unlinked file lives on while it is open"
#   rename over a directory whose last file is still open
# a directory's rename refused, or the old one emptied; rename over the        "rename: the whole matrix of types and flags";
#   wrong type; rename without replacing onto a deleted name; exchange          "a directory that is committed moves" (tools_git)
# a directory deleted and made again shows its old content; a deleted file     "rename onto what was deleted, exchange, …"
#   comes back after a change and an unlink
# hard links refused; link counts late; other inode numbers for one file; one  "hard links: …" (tools_files), "one of two committed
#   name unlinked, the other not to be written                                   names"; cargo, pnpm, bun (tools_packages)
# two directories with one inode number; a number that changes                 "no two names share …", "a file keeps its inode number"
# output by way of mappings: linkers, ranlib, two shared maps; mmap against    "mapped output" (tools_build), "mapped files: …"
#   truncate in many processes
# sqlite's shared memory and byte locks, F_GETLK, OFD locks, flock; two        "sqlite …" (tools_files, tools_db), "locks: …"
#   writers destroy a database                                                   (tools_files), "PostgreSQL …" (tools_db)
# O_TMPFILE and linkat; the ways editors save                                  "ways to save" (tools_editors)
# fallocate, holes, SEEK_DATA, copy_file_range, O_APPEND by several            "holes: …", "cp -a, cp --sparse …" (tools_files)
# git cannot append to its logs; links checked out with size 0; the racy index "clone, edit, commit …", "an edit within the second …",
#                                                                                "random work in a repository" (tools_git)
# ctime, parents' mtime, utimensat; nanoseconds                                "times: …"
# set-id bits and sticky directories; chown refused to a package manager       "set-id bits …", "chown by who may not …"
# stale content, lengths and listings after a change from elsewhere or a       "a change from outside shows at once", "what maps a file
#   rollback, mapped files among them                                            over a rollback"
# rename into place leaves what cannot be deleted                              "pip …" (tools_packages), "many processes that link …"
# a first listing is empty; listings change while names go                     "names: …", "a directory of thousands …" (tools_files)
# attributes of symbolic links, ACLs, capabilities over a copy-up              "attributes: …", "tar and rsync …" (tools_files)
# fifos, sockets, devices                                                      "unix sockets …" (tools_files), "devices …"
# what was fsynced is gone after a crash                                       "what was fsynced or only written …"; crash.bats
# few descriptors: close fails, names vanish                                   "few descriptors …"
# a mount point that is sticky; a lower that contains the mount point          "a workspace that is sticky …", "a workspace below its own
#                                                                                store's folder"
# names that differ in case only                                               "names: …"
# linking, renaming and deleting at once leaves what cannot be deleted         "many processes that link, rename and delete"
# an installer takes for ever; rm -rf of its tree does; npm ci cannot mkdir    "npm: …" (tools_packages); docs/performance.md
# EXDEV, or another errno, when a package manager's store is elsewhere         "what is outside is another device"; "pnpm …", "bun …"
# symlinks refused to yarn                                                     "yarn …" (tools_packages)
# watchers miss changes made outside                                           "a watcher in the background …" (tools_watch)
# watchers that refuse FUSE                                                    "what the filesystem says it is"
# git status asks for everything, also for what is not there                   "what is not there is asked for once"; tools_cache
# gc in a copy prunes the original's worktrees                                 "gc in a copy …" (tools_git)
# a container engine's overlay on it                                           "an overlay in the workspace" (a documented limit)
# agents' sockets, signed commits                                              "commits signed …", "a commit signed with gpg" (tools_git)
# wheels, executable bits, scripts of environments                             "python: …" (tools_build), "pip …" (tools_packages)
# a byte of a large file costs the whole                                       "one byte of a large file …"
# a client hangs where the driver stands still                                 "a daemon that stands still …"
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# Runs a Python program, read from stdin, in the session and in the plain directory.
both_python() {
	{
		echo 'import ctypes, errno, fcntl, mmap, os, stat, struct, sys, threading, time'
		echo 'libc = ctypes.CDLL(None, use_errno=True)'
		echo 'def name(e): return errno.errorcode[e.errno]'
		echo 'def attempt(f, *a, **k):'
		echo '    try: return f(*a, **k)'
		echo '    except OSError as e: return name(e)'
		echo 'def renameat2(a, b, flags):'
		echo '    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags): raise OSError(ctypes.get_errno(), "")'
		cat
	} >p.py
	both "/usr/bin/python3 $PWD/p.py"
}

@test "an unlinked file lives on while it is open; no hidden names; its directory goes" {
	both 'mkdir -p d/sub e; echo committed >d/f; echo g >d/sub/g; echo o >e/o; echo x >top'
	both_python <<-'P'
		fd = os.open("d/f", os.O_RDWR)
		g = os.open("d/sub/g", os.O_RDONLY)
		os.unlink("d/f")
		os.write(fd, b"C"); os.fsync(fd)
		print(os.fstat(fd).st_nlink, os.pread(fd, 100, 0), os.fstat(fd).st_size)
		os.ftruncate(fd, 3); os.lseek(fd, 0, 2); os.write(fd, b"end"); print(os.pread(fd, 100, 0))
		os.fchmod(fd, 0o600); os.utime(fd, (1, 1)); print(os.fstat(fd).st_mtime)
		os.unlink("d/sub/g"); print(os.listdir("d"), os.listdir("d/sub"))
		os.rmdir("d/sub"); os.rmdir("d"); print(sorted(os.listdir(".")), os.read(g, 10))
		with mmap.mmap(fd, 3) as m: m[0:3] = b"map"
		print(os.pread(fd, 100, 0)); os.close(fd); os.close(g)
		o = os.open("e/o", os.O_RDWR); os.unlink("e/o"); os.mkdir("new"); os.rename("new", "e")
		os.write(o, b"orphan"); print(os.pread(o, 10, 0), os.listdir("e")); os.close(o)
		t = os.open("top", os.O_RDWR); os.rename("e", "e2"); os.unlink("top"); print(sorted(os.listdir(".")), os.fstat(t).st_nlink)
	P
	both 'ls -A . e2'
}

@test "rename: the whole matrix of types and flags, over committed names" {
	cat >matrix.py <<-'P'
		import ctypes, errno, os, sys
		libc = ctypes.CDLL(None, use_errno=True)
		kinds = ["file", "empty", "full", "link", "dangling", "fifo"]
		cases = [(flags, x, y) for flags in (0, 1, 2) for x in kinds for y in kinds + ["missing"]]
		def make(kind, path):
		    if kind == "file": open(path, "w").write(path)
		    if kind in ("empty", "full"): os.mkdir(path)
		    if kind == "full": open(path + "/x", "w").write(path)
		    if kind == "link": os.symlink("a", path)
		    if kind == "dangling": os.symlink("no", path)
		    if kind == "fifo": os.mkfifo(path)
		for i, (flags, x, y) in enumerate(cases):
		    d = f"{i}"
		    if sys.argv[1] == "make":
		        os.mkdir(d); make(x, d + "/a"); make(y, d + "/b")
		    else:
		        r = libc.renameat2(-100, f"{d}/a".encode(), -100, f"{d}/b".encode(), flags)
		        print(flags, x, y, r and errno.errorcode[ctypes.get_errno()])
	P
	both "/usr/bin/python3 $PWD/matrix.py make"
	both "/usr/bin/python3 $PWD/matrix.py"
	both "/usr/bin/python3 $NTR_TESTS/helpers/manifest.py . --no-dir-times | sed 's/ m[0-9]*//'"
	# Names made just now, and names left by the first round.
	both "rm -rf ./*; /usr/bin/python3 $PWD/matrix.py make; /usr/bin/python3 $PWD/matrix.py; /usr/bin/python3 $PWD/matrix.py"
}

@test "rename onto what was deleted, exchange, a directory deleted and made again" {
	both 'mkdir -p d/in bak; echo 1 >d/1; echo 2 >d/in/2; echo b >bak/b; echo f >f; echo g >g'
	both 'rm f; echo new >y; mv -n y f; cat f; ls'
	both_python <<-'P'
		os.unlink("g"); open("z", "w").write("z")
		print(attempt(renameat2, "z", "g", 1), open("g").read(), attempt(renameat2, "f", "g", 1))
		print(attempt(renameat2, "f", "g", 2), open("g").read(), open("f").read())
	P
	both 'rm -rf d; mkdir d; ls d; echo again >d/1; ls d; cat d/1'
	both 'cat d/1; ls -A d; rm -r d; cp -r bak d; rm -rf bak; ls d; rmdir bak 2>/dev/null || echo gone'
	both 'ls -A . d; mkdir bak; ls -A bak; echo n >bak/n; rm -r bak; ln -s d bak; ls bak/; rm bak; echo file >bak; cat bak'
	both 'echo edited >>f; rm f; ls; [ ! -e f ]; touch f; stat -c %s f'
	both 'cat f; ls -A'
	if [ "$(id -u)" -eq 0 ]; then
		both 'mkdir a b; echo a >a/a; echo b >b/b; mkdir a/deep; seq 100 >a/deep/s'
		both_python <<-'P'
			print(attempt(renameat2, "a", "b", 2), os.listdir("a"), sorted(os.listdir("b")))
			print(attempt(renameat2, "a", "f", 2), os.listdir("f"), os.path.isfile("a"))
			os.rename("b", "c"); os.rename("c/deep", "deep"); print(sorted(os.listdir("c")), os.listdir("deep"))
		P
		both 'find . | sort; cat deep/s | md5sum; mv c deep/; find . | sort'
		both 'find . | sort; rm -r deep/c; mkdir deep/c; ls -A deep/c'
	fi
	both 'find . | sort'
}

@test "times: what changes a committed file moves its ctime, what changes a name the directory's times" {
	both 'mkdir d e; for f in chmod chown trunc link unlink rename xattr write utime; do echo $f >d/$f; done; touch -d 2001-01-01 d/*; touch -d 2001-01-01 d e'
	both_python <<-'P'
		def moved(path, f, parent=None):
		    a, p = os.lstat(path), os.stat(parent or "d")
		    time.sleep(0.02); f(); b = os.lstat(path) if os.path.lexists(path) else None; q = os.stat(parent or "d")
		    print(path, b and (b.st_ctime_ns > a.st_ctime_ns, b.st_mtime_ns > a.st_mtime_ns), q.st_mtime_ns > p.st_mtime_ns)
		moved("d/chmod", lambda: os.chmod("d/chmod", 0o600))
		moved("d/chown", lambda: os.chown("d/chown", os.getuid(), os.getgid()))
		moved("d/trunc", lambda: os.truncate("d/trunc", 2))
		moved("d/link", lambda: os.link("d/link", "d/link2"))
		moved("d/unlink", lambda: os.unlink("d/unlink"))
		moved("d/rename", lambda: os.rename("d/rename", "e/rename"))
		moved("d/xattr", lambda: os.setxattr("d/xattr", "user.x", b"1"))
		moved("d/write", lambda: open("d/write", "a").write("more"))
		moved("d/utime", lambda: os.utime("d/utime", ns=(1, 123456789)))
		print(os.stat("d/utime").st_mtime_ns, os.stat("d/utime").st_atime_ns)
		moved("e", lambda: os.mkdir("e/sub"), "e")
		for t in (0, -1, 2**31, 4102444800): os.utime("d/write", (t, t)); print(os.stat("d/write").st_mtime)
		os.utime("d/write", None); print(abs(os.stat("d/write").st_mtime - time.time()) < 5)
	P
	both 'stat -c "%n %Y" d/utime; find d -newermt "2001-06-01" | sort'
}

@test "set-id bits go with a write, sticky directories protect, modes hold" {
	both 'echo x >f; chmod 6755 f; mkdir -m 1777 s; echo y >s/y; umask 027; mkdir m; touch m/f; stat -c %a m m/f; umask 022'
	both 'stat -c %a f s; echo more >>f; stat -c %a f; chmod 2755 m; mkdir m/sub; stat -c %a m/sub; chmod 000 s/y; stat -c %a s/y; rm -f s/y; ls s'
	if [ "$(id -u)" -eq 0 ]; then
		both 'echo x >g; chmod 6777 g; mkdir -m 1777 t; echo z >t/z; chmod 755 .'
		both 'setpriv --reuid=1234 --clear-groups sh -c "echo more >>g; rm -f t/z 2>/dev/null || echo refused; touch t/own; mv t/z t/q 2>/dev/null || echo refused"; stat -c "%a %u" g t/own; cat t/z'
	else
		both 'chmod 400 f; echo no >>f && exit 1; chmod 000 f; cat f && exit 1; chmod 600 f; cat f; chmod 555 m; touch m/no && exit 1; chmod 755 m; touch m/yes; chown $(id -u):$(id -g) f'
	fi
}

@test "holes: SEEK_DATA and SEEK_HOLE of a committed file, copy_file_range, fallocate, O_APPEND by two" {
	both_python <<-'P'
		fd = os.open("s", os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 1 << 30); os.pwrite(fd, b"x" * 4096, 512 << 20); os.fsync(fd)
		print(os.path.getsize("s"))
	P
	both_python <<-'P'
		fd = os.open("s", os.O_RDONLY)
		data = os.lseek(fd, 0, os.SEEK_DATA)
		print(256 << 20 <= data <= 512 << 20, os.lseek(fd, data, os.SEEK_HOLE) <= 768 << 20, os.lseek(fd, 0, os.SEEK_HOLE), attempt(os.lseek, fd, 2 << 30, os.SEEK_DATA))
		print(os.pread(fd, 4, (512 << 20) - 2), os.stat("s").st_blocks < 100000)
		out = os.open("copy", os.O_RDWR | os.O_CREAT)
		# From a committed file to a new one may be EXDEV, after which everybody copies by hand; between new ones it works.
		new = os.open("new", os.O_RDWR | os.O_CREAT); os.write(new, b"n" * 8192)
		print(attempt(os.copy_file_range, fd, out, 8192, 512 << 20, 0) in (8192, "EXDEV"), os.copy_file_range(new, out, 8192, 0, 0), os.pread(out, 8192, 0) == b"n" * 8192)
		rw = os.open("s", os.O_RDWR); os.pwrite(rw, b"y", 100); print(os.pread(fd, 1, 512 << 20), os.stat("s").st_blocks < 100000)
		os.posix_fallocate(out, 0, 100000); print(os.path.getsize("copy"))
		print(libc.fallocate(out, 3, ctypes.c_long(0), ctypes.c_long(4096)), os.pread(out, 4, 0), libc.fallocate(out, 64, ctypes.c_long(0), ctypes.c_long(4096)) != 0)
	P
	both 'rm s copy; echo >log; echo'
	both 'for w in 1 2 3; do (for i in $(seq 300); do echo "$w $i" >>log; done) & done; wait; wc -l <log; sort -u log | wc -l'
	both '(for i in $(seq 300); do echo a; done >>log) & (for i in $(seq 300); do echo b; done >>log) & wait; grep -c a log; grep -c b log; wc -c <log'
}

@test "mapped files: shared maps of two processes, of a committed file, written and truncated at once" {
	both 'head -c 100000 /dev/zero >m; head -c 65536 /dev/zero >n'
	both_python <<-'P'
		fd = os.open("m", os.O_RDWR); a = mmap.mmap(fd, 100000); b = mmap.mmap(os.open("m", os.O_RDWR), 100000)
		a[5] = 7; print(b[5], os.pread(fd, 1, 5)); os.pwrite(fd, b"w", 6); print(a[6:7], b[6:7]); a.flush()
		child = os.fork()
		if not child: b[99999] = 9; os._exit(0)
		os.waitpid(child, 0); print(a[99999]); del a, b; os.close(fd)
		maps = [mmap.mmap(os.open("n", os.O_RDWR), 65536) for k in range(3)]
		def writer(k):
		    for i in range(2000): maps[k][(i * 37 + k) % 4096] = i % 256
		def cutter():
		    f = os.open("n", os.O_RDWR)
		    for i in range(300): os.ftruncate(f, 4096); os.ftruncate(f, 65536)
		ts = [threading.Thread(target=writer, args=(k,)) for k in range(3)] + [threading.Thread(target=cutter)]
		[t.start() for t in ts]; [t.join() for t in ts]; print(os.path.getsize("n"))
	P
	both 'md5sum m; stat -c %s n'
}

@test "attributes: symbolic links without any, ACLs and capabilities over a copy-up and a fork" {
	both 'echo x >f; ln -s f l; mkdir d; echo y >d/y; setfattr -n user.a -v 1 f; setfattr -n user.b -v 2 d'
	both 'getfattr -hd l; ls -la l >/dev/null; getfattr -d f d d/y; echo more >>f; getfattr -d f; setfattr -x user.a f; getfattr -d f; mv f d/; getfattr -d d/f'
	both 'setfattr -n user.b -v 3 d; getfattr -d d; setfattr -n user.big -v "$(printf %2000s x)" d/y; getfattr --only-values -n user.big d/y | wc -c; cp -a d e; getfattr -d e e/y | md5sum'
	both "setfacl -m u:$(id -u):rwx,m::rx e/y; setfacl -d -m g::r e; getfacl -nc e e/y"
	both 'getfacl -nc e e/y; echo z >>e/y; getfacl -nc e/y; touch e/new; getfacl -nc e/new; chmod 600 e/y; getfacl -nc e/y'
	ntr fork default f
	ntr run -s f -- getfacl -nc e e/y >forked
	(cd plain && getfacl -nc e e/y) | diff - forked
	if [ "$(id -u)" -eq 0 ] && command -v setcap >/dev/null; then
		both 'cp /bin/true c; setcap cap_net_raw+ep c; getcap c'
		both 'getcap c; chmod 700 c; getcap c; cp -a c c2; mv c c3; getcap c2 c3; echo >>c3; getcap c3'
	fi
}

@test "few descriptors: for the call, and for the daemon" {
	both 'for i in $(seq 300); do echo $i >f$i; done'
	echo 'ulimit -n 32; for r in 1 2 3; do cat f* >/dev/null; for i in $(seq 300); do echo more >>f$i; done; done; cat f* | md5sum; ls | wc -l' >few
	both "bash $PWD/few"
	ntr daemon stop
	mkdir many
	(cd many && mkdir d{1..20} && for d in d*; do (cd "$d" && seq 50 | xargs touch); done)
	tar -cf many.tar many
	(ulimit -n 256 && ntr run -c "tar -xf $PWD/many.tar; find many | wc -l") >out
	assert_equal "$(cat out)" 1021
	ntr stop
	run ntr run -c 'find many | wc -l; ls many/* | wc -l; rm -r many; ls -d many 2>/dev/null || echo gone'
	assert_line --index 0 1021
	assert_line gone
}

@test "names: case, length, bytes; a first listing of a thousand; nothing twice" {
	both_python <<-'P'
		for n in ["a", "A", "É", "é", "x" * 255, b"\xff\xfe", b"new\nline", " ", "-rf", "*", "..."]: open(n, "w").write(repr(n))
		print(attempt(open, "y" * 256, "w"), attempt(os.mkdir, "z" * 256), attempt(os.rename, "a", "w" * 256))
		os.mkdir("many"); [open(f"many/{i:05}", "w").close() for i in range(1200)]
	P
	both_python <<-'P'
		print(sorted(os.listdir(b".")), sorted(open(n).read() for n in os.listdir(b".") if n != b"many"))
		names = os.listdir("many"); print(len(names), len(set(names)), all(os.path.exists(f"many/{n}") for n in names))
		os.rename("x" * 255, "q" * 255); os.unlink(b"\xff\xfe"); print(attempt(os.stat, "x" * 255), attempt(os.stat, b"\xff\xfe"))
	P
	both 'ls -A | md5sum; find . -name "a" -o -name "A" | sort; rm ./-rf "./*" ./...; ls -A | md5sum; find . | sort | md5sum'
}

@test "many processes that link, rename and delete at once leave what can be deleted" {
	cat >stress.py <<-'P'
		import os, random, sys
		pids = []
		for k in range(4):
		    pid = os.fork()
		    if pid: pids.append(pid); continue
		    r = random.Random(k)
		    for i in range(1500):
		        a, b = (f"d{r.randrange(4)}/n{r.randrange(12)}" for _ in "ab")
		        try:
		            r.choice([lambda: os.link(a, b), lambda: os.rename(a, b), lambda: os.unlink(a), lambda: open(a, "a").write("x"),
		                      lambda: os.symlink(a, b), lambda: os.mkdir(a), lambda: os.rmdir(a), lambda: os.listdir(os.path.dirname(a))])()
		        except OSError: pass
		    os._exit(0)
		assert all(os.waitpid(p, 0)[1] == 0 for p in pids)
	P
	local i
	ntr run -c 'mkdir d{0..3}'
	for i in 1 2 3; do
		ntr run -- /usr/bin/python3 "$PWD/stress.py"
		ntr run -- /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" . --no-dir-times >live
		ntr stop
		ntr run -- /usr/bin/python3 "$NTR_TESTS/helpers/manifest.py" . --no-dir-times >folded
		diff <(sed -E 's/ n[0-9]+( =b.*)? m/ m/' live) <(sed -E 's/ n[0-9]+( =b.*)? m/ m/' folded)
	done
	run ntr run -c 'rm -r d?; ls -A'
	assert_output ""
	run ntr fsck
	assert_success
}

@test "what is outside is another device: link and rename say EXDEV, mv copies" {
	echo out >outside
	ntr run -c 'echo in >f'
	ntr stop
	run ntr run -- /usr/bin/python3 -c '
import errno, os, sys
for f in (os.link, os.rename):
    for a, b in (("f", sys.argv[1] + "/x"), (sys.argv[1] + "/outside", "y")):
        try: f(a, b)
        except OSError as e: print(errno.errorcode[e.errno])' "$PWD"
	assert_output $'EXDEV\nEXDEV\nEXDEV\nEXDEV'
	ntr run -c "mv f $PWD/moved; cp $PWD/outside ."
	assert_equal "$(cat moved)" in
	run ntr run -- cat outside
	assert_output out
	run ntr run -- ls
	assert_output outside
}

@test "a change from outside shows at once: put, rollback, another length, mapped" {
	ntr run -c 'echo ref: refs/heads/main >HEAD; mkdir d; touch d/old'
	ntr run -c 'cat HEAD; ls d' >/dev/null
	echo 'ref: refs/heads/a-much-longer-name' >longer
	ntr put longer HEAD
	run ntr run -c 'cat HEAD; stat -c %s HEAD'
	assert_output $'ref: refs/heads/a-much-longer-name\n35'
	ntr run -c 'echo x >HEAD; rm d/old; touch d/new; mkdir e'
	run ntr run -c 'cat HEAD; ls d'
	assert_output $'x\nnew'
	ntr rollback --steps 1
	run ntr run -c 'cat HEAD; ls d; ls -d e 2>/dev/null; /usr/bin/python3 -c "
import mmap
f = open(\"HEAD\")
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])"'
	assert_output $'ref: refs/heads/a-much-longer-name\nold\nb\'ref: refs/heads/a-much-longer-name\\n\''
	ntr rollback --steps 1
	run ntr run -c 'cat HEAD; ls d'
	assert_output $'ref: refs/heads/main\nold'
}

# git's index keeps the low 32 bits of a number; with another one there it would read every file of a new clone again.
@test "the fold of new files changes their numbers only above 32 bits, as listings show them, too: git reads none again" {
	local low='import sys
for line in sys.stdin:
    number, path = line.split()
    print(int(number) % (1 << 32), path)' before
	ntr run -c 'git init -q .; mkdir d; for i in {1..40}; do echo $i >d/$i; done; ln -s 1 d/l; git add .; sleep 1.1; git status --porcelain >/dev/null'
	before=$(ntr run -c 'find d -printf "%i %p\n" | sort -k2' | /usr/bin/python3 -c "$low")
	ntr stop
	assert_equal "$(ntr run -c 'find d -printf "%i %p\n" | sort -k2' | /usr/bin/python3 -c "$low")" "$before"
	run ntr run -c 'git diff-files'
	assert_output ""
	run ntr run -c 'diff <(ls -ia d | awk "{ print \$1, \$2 }" | sort -k2) <(cd d; stat -c "%i %n" . .. * | sort -k2)'
	assert_success
}

# An ordinary user's rename of a committed file is a new file to the store: overlayfs leaves no trace of the old name.
@test "a file keeps its inode number over a change, a fold, a rename, a restart; two files never share one" {
	local ids one=one
	[ "$(id -u)" -eq 0 ] || one=1
	ntr run -c 'mkdir d; for i in 1 2 3 4 5; do echo $i >d/$i; done'
	ntr stop
	ids=$(ntr run -- stat -c %i d d/1 d/2 d/3)
	ntr run -c 'echo more >>d/1; chmod 600 d/2; truncate -s 100000 d/3'
	ntr stop
	assert_equal "$(ntr run -- stat -c %i d d/1 d/2 d/3)" "$ids"
	ntr daemon stop
	ntr run -c "[ $one = 1 ] || mv d/1 d/$one; touch d/2; rm d/5; echo new >d/5; mkdir e; touch e/{1..50}"
	ntr stop
	assert_equal "$(ntr run -- stat -c %i d d/$one d/2 d/3)" "$ids"
	run ntr run -c 'find . -type f | xargs stat -c %i | sort | uniq -d; find . >/dev/null'
	assert_output ""
}

@test "a workspace that is sticky, or that only its owner may search" {
	mkdir t && echo x >t/f && chmod 1777 t
	ntr new s --from t
	run ntr run -s s -c 'stat -c %a .; cat f; chmod 711 .; ls; touch g'
	assert_output $'1777\nx\nf'
	ntr stop -s s
	run ntr run -s s -c 'stat -c %a .; ls; chmod 300 .; cat g f; touch h'
	assert_output $'711\nf\ng\nx'
	kill -9 "$(ntr daemon status --json | json '["pid"]')"
	run ntr run -s s -c 'stat -c %a .; chmod 755 .; ls'
	assert_output $'300\nf\ng\nh'
}

@test "commits signed by way of an agent's socket in the workspace" {
	need git ssh-agent ssh-keygen ssh-add
	ntr run -c 'eval "$(ssh-agent -a "$PWD/agent")" >/dev/null; export SSH_AUTH_SOCK SSH_AGENT_PID
		ssh-keygen -qt ed25519 -N "" -f key && ssh-add -q key && rm key && git init -q r && cd r
		git config gpg.format ssh; git config user.signingkey ../key.pub; git config user.name a; git config user.email a@b'
	ntr run -c 'echo "a@b $(cat ../key.pub)" >../allowed; git config gpg.ssh.allowedSignersFile ../allowed; touch f; git add f; git commit -q -S -m signed'
	run ntr run -c 'git log --format=%G? -n 1; ssh-agent -k >/dev/null'
	assert_output G
}

@test "inotify tells of changes in committed files and directories" {
	ntr run -c 'mkdir d; echo 1 >d/f; echo 2 >d/g'
	ntr stop
	cat >watch.py <<-'P'
		import ctypes, os, struct, subprocess
		libc = ctypes.CDLL(None)
		fd = libc.inotify_init1(os.O_NONBLOCK)
		for p in (b"d", b"d/f"): libc.inotify_add_watch(fd, p, 0x2 | 0x100 | 0x200 | 0xc0)
		subprocess.run("echo more >>d/f; echo n >d/n; rm d/g; mv d/n d/m", shell=True)
		data, seen = os.read(fd, 65536), set()
		while data:
		    wd, mask, _, n = struct.unpack_from("iIII", data); seen.add((mask & 0xfff, data[16:16 + n].rstrip(b"\0").decode())); data = data[16 + n:]
		print(sorted(seen))
	P
	ntr run -- /usr/bin/python3 "$PWD/watch.py" >got
	mkdir -p plain/d && echo 1 >plain/d/f && echo 2 >plain/d/g
	(cd plain && /usr/bin/python3 ../watch.py) | diff - got
}

@test "what was fsynced or only written is there after kill -9 of the daemon" {
	ntr run -c 'mkdir d; echo old >d/f'
	ntr run -c '/usr/bin/python3 -c "
import os, time
fd = os.open(\"d/f\", os.O_WRONLY | os.O_TRUNC); os.write(fd, b\"synced\"); os.fsync(fd)
d = os.open(\"d\", os.O_RDONLY); os.close(os.open(\"d/new\", os.O_CREAT)); os.fsync(d)
open(\"d/plain\", \"w\").write(\"written\")
open(\"done\", \"w\").close(); time.sleep(60)" >/dev/null 2>&1 </dev/null & until [ -e done ]; do sleep 0.05; done' &
	wait $!
	kill -9 "$(ntr daemon status --json | json '["pid"]')"
	run ntr run -c 'cat d/f d/plain; echo; ls d'
	assert_output $'syncedwritten\nf\nnew\nplain'
}

@test "one byte of a large file costs the store little" {
	local size=100 before after
	[ -z "${NTR_LONG:-}" ] || size=1000
	head -c "${size}M" /dev/urandom >big
	ntr new s
	ntr put -s s big
	rm big
	ntr stop -s s
	before=$(du -s --block-size=1K "$NTR_STORE/db" | cut -f1) # (the upper is swept a moment later)
	ntr run -s s -c 'printf X | dd of=big bs=1 seek=50000000 conv=notrunc status=none; md5sum big' >one
	ntr stop -s s
	after=$(du -s --block-size=1K "$NTR_STORE/db" | cut -f1)
	ntr run -s s -- md5sum big | diff one -
	echo "the store grew by $((after - before)) KiB"
	[ $((after - before)) -lt 6000 ]
	ntr run -s s -c 'rm big'
}

@test "a daemon that stands still holds nobody who wants to go" {
	local pid
	ntr run -c 'echo x >f'
	pid=$(ntr daemon status --json | json '["pid"]')
	kill -STOP "$pid"
	run timeout -s INT 1 ntr run -- true
	kill -CONT "$pid"
	assert_failure
	run ntr run -- cat f
	assert_output x
}

@test "a crash of one store's daemon touches no process of another's" {
	local pid
	ntr run -c 'echo 1 >f'
	pid=$(ntr daemon status --json | json '["pid"]')
	kill -9 "$pid"
	for _ in {1..100}; do ntr_processes | grep -q ntr-init || break; sleep 0.05; done
	# Its mount namespace is gone, and the kernel gives the next one the same number.
	NTR_STORE=$TEST_DIR/other ntr run -c 'sleep 60 >/dev/null 2>&1 & echo started'
	ntr run -- cat f
	run env NTR_STORE="$TEST_DIR/other" ntr ps
	assert_output --partial 'sleep 60'
	NTR_STORE=$TEST_DIR/other ntr daemon stop
}

@test "one of two committed names is unlinked, the other written, linked again, replaced" {
	both 'echo 1 >a; ln a b; echo c >c; ln c d; mkdir e; echo e >e/e; ln e/e e/f; ln e/e g'
	both 'rm a; echo 2 >>b; cat b; ls; stat -c %h b; ln b h; echo 3 >>h; cat b; [ b -ef h ] && echo same'
	both 'rm c; chmod 600 d; stat -c "%a %h" d; mv d e; cat e/d; rm e/e e/f; echo more >>g; cat g; ls e'
	both 'mv -f g b; cat b h; rm -r b e; ls -A; cat h'
	ntr stop # h counts b until the fold
	both 'stat -c %h h; rm h; ls -A'
}

@test "no two names share a number unless they are one file: directories too, new and committed, over forks" {
	cat >numbers.py <<-'P'
		import os, sys
		seen, n = {}, 0
		for top in sys.argv[1:]:
		    for d, dirs, files in os.walk(top):
		        for p in [d] + [os.path.join(d, f) for f in files]:
		            s = os.lstat(p); n += 1
		            if s.st_nlink == 1 or os.path.isdir(p): assert seen.setdefault((s.st_dev, s.st_ino), p) == p, (p, seen[s.st_dev, s.st_ino])
		print(n)
	P
	ntr run -c 'mkdir -p {1..30}/{1..5}; for d in */*; do echo $d >$d/f; done'
	ntr stop
	ntr run -c 'mkdir -p new/n{1..30}; for d in new/*; do echo $d >$d/f; done; mv 1 new; rm -r 2; mkdir 2; touch 3/1/f'
	run ntr run -- /usr/bin/python3 "$PWD/numbers.py" .
	assert_output 382
	ntr stop
	run ntr run -- /usr/bin/python3 "$PWD/numbers.py" .
	assert_output 382
	ntr fork default f
	ntr run -s f -c 'mkdir -p more/{1..9}'
	mkdir one two
	ntr mount default~0 one
	ntr mount f~0 two
	run /usr/bin/python3 numbers.py one two
	ntr umount one
	ntr umount two
	assert_success
}

@test "chown by who may not is refused, by who may is kept; what pretends to be root works" {
	both 'echo x >f; mkdir d; echo y >d/g'
	if [ "$(id -u)" -eq 0 ]; then
		both 'chown 1234:4321 f; chown -R 12:34 d; stat -c "%u %g" f d d/g; setpriv --reuid=1234 --clear-groups chown 0 f 2>/dev/null || echo refused'
		both 'stat -c "%u %g %a" f d d/g; chown --reference=f d/g; chgrp 0 f; stat -c "%u %g" f d/g'
	else
		both 'chown 0 f 2>/dev/null || echo refused; chgrp 0 f 2>/dev/null || echo refused; chown $(id -u) f d; stat -c %u f d'
	fi
	# (in an ordinary user's session another id is EINVAL, not EPERM: a user namespace maps one)
	if command -v fakeroot >/dev/null; then
		both 'fakeroot sh -c "chown 0:7 d/g; stat -c \"%u %g\" d/g; tar -cf t.tar d" 2>/dev/null; tar -tvf t.tar | grep -c "root/"'
	fi
}

@test "what maps a file over a rollback reads what it is given; who opens it afterwards sees the old state" {
	ntr run -c 'yes old | head -c 100000 >f'
	ntr stop
	ntr run -c 'yes new | head -c 50000 >f'
	ntr run -c 'md5sum <f; /usr/bin/python3 -c "import mmap; f = open(\"f\"); m = mmap.mmap(f.fileno(), 0, prot=1); print(m[:3], len(m))"' >out
	assert_equal "$(tail -n 1 out)" "b'new' 50000"
	ntr rollback --steps 1
	run ntr run -c '/usr/bin/python3 -c "import mmap; f = open(\"f\"); m = mmap.mmap(f.fileno(), 0, prot=1); print(m[:3], len(m), m[:] == open(\"f\", \"rb\").read(), m.find(b\"new\"))"'
	assert_output "b'old' 100000 True -1"
}

# A character device 0:0 is how overlayfs marks a deleted name, so the kernel makes none in an overlay.
@test "devices are made, kept and used as in a plain directory, but for 0:0" {
	[ "$(id -u)" -eq 0 ] || skip "an ordinary user makes no devices"
	both 'mknod null c 1 3; mknod b b 7 200; chmod 640 b; mknod p p; echo x >null && cat null; stat -c "%F %t:%T %a" null b p'
	both 'stat -c "%F %t:%T %a" null b p; echo x >null && cat null; mv null n; ln n m; cp -a b c; stat -c "%F %t:%T %h" n m c; rm b; ls'
	both 'stat -c "%F %t:%T %h" n m c; head -c 3 n | wc -c; rm n m c p; ls -A'
	run ntr run -c 'mknod zero c 0 0 2>&1; ls -A'
	assert_output --partial 'Operation not permitted'
}

@test "a workspace below its own store's folder, and a store in the folder that was imported" {
	mkdir -p proj/sub && echo x >proj/sub/f
	export NTR_STORE=$PWD/proj/.ntr
	ntr new s --from proj
	run ntr run -s s -c 'ls -A; cat sub/f; find . | wc -l; touch new'
	assert_line --index 0 sub || assert_line --index 0 .ntr
	assert_line x
	ntr stop -s s
	run timeout 60 find proj -path proj/.ntr/upper -prune -o -name f -print # overlayfs closes its work folders to all
	assert_output proj/sub/f
	ntr daemon stop
	export NTR_STORE=$TEST_DIR/store
}

@test "what the filesystem says it is, how large, how long names may be" {
	run ntr run -c 'stat -f -c %T .; stat -f -c %l .; df --output=avail -B1 . | tail -n 1; getconf NAME_MAX .; [ "$(findmnt -no FSTYPE -T .)" = overlay ] && echo overlay'
	assert_line --index 0 overlayfs
	assert_line --index 1 255
	[ "${lines[2]}" -gt 1000000 ]
	assert_line --index 3 255
	assert_line --index 4 overlay
}

look_for_missing() { ntr run -c 'for i in {1..300}; do [ -e d/missing$i ] || [ -e d/sub/no$i ] || :; done; for i in {1..20}; do stat d/sub/none 2>/dev/null || :; done'; }

@test "what is not there is asked for once" {
	ntr run -c 'mkdir -p d/sub; touch d/{1..50} d/sub/{1..50}'
	ntr stop
	look_for_missing
	asks_nothing 'LOOKUP GETATTR' look_for_missing
}

# overlayfs accepts no upper that is on an overlay: engines need another driver there (fuse-overlayfs, vfs).
@test "an overlay in the workspace: its layers may be there, its upper may not" {
	[ "$(id -u)" -eq 0 ] || skip "an ordinary user mounts nothing without a namespace of its own"
	call 'mkdir -p a b u w m; echo a >a/f; echo b >b/g'
	run ntr run -c 'mount -t overlay -o lowerdir=a:b none m && cat m/f m/g && umount m'
	assert_output $'a\nb'
	run ntr run -c 'mount -t overlay -o lowerdir=a,upperdir=u,workdir=w none m 2>&1'
	assert_failure
	run ntr run -c 'mount -t tmpfs none w && mkdir w/u w/w && mount -t overlay -o lowerdir=a:b,upperdir=w/u,workdir=w/w none m && echo more >>m/f && cat m/f a/f && umount m && umount w; rmdir u'
	assert_output $'a\nmore\na'
}
