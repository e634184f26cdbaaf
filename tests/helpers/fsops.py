#!/usr/bin/env python3
"""fsops.py SEED FROM TO [--follow LOG]: a random sequence of file operations in the working directory.

The sequence depends on the seed alone, so operations [FROM, TO) may run in one process or be spread over many calls.
Prints one JSON line an operation: number, name, arguments, and what it gave (a value, or an errno's name). Two
filesystems that behave the same give the same lines and afterwards have the same manifest: whatever changes a file
also sets its mtime to a value of the operation's own.

--follow LOG: the lines that another directory gave. Where a rename of a directory gave EXDEV there (overlayfs without
redirect_dir: a committed directory of an ordinary user) it is not done here either.

Names h* are hard links: made, read, moved and removed, but not changed in place or linked again: the first change of a
committed one breaks the link in overlayfs. `pair` does so within one operation.
"""
import ctypes
import errno
import hashlib
import json
import mmap
import os
import random
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, SYMLINK_FOLLOW, NOREPLACE, EXCHANGE = -100, 0x400, 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
FILES = [f"f{i}" for i in range(7)] + ["with space", "\udcff\udcfe", "n\nl", "x" * 120, "ü"]
DIRS = [f"d{i}" for i in range(5)]
FILE_MODES = [0o644, 0o600, 0o755, 0o444, 0o400, 0o200, 0o000, 0o4755, 0o2711, 0o1666]
DIR_MODES = [0o755, 0o755, 0o755, 0o700, 0o1777, 0o2755, 0o555, 0o311]


def syscall(r):
    if r < 0:
        raise OSError(ctypes.get_errno(), "")
    return r


def renameat2(a, b, flags):
    syscall(libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), flags))


class Sequence:
    """The operations of a seed. It remembers what would exist if everything succeeded, so that most names mean something."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.dirs, self.files = ["."], []

    def dir(self):
        return self.r.choice(self.dirs)

    def old(self):
        if self.files and self.r.random() < 0.85:
            return self.r.choice(self.files)
        return self.new(FILES)

    def new(self, names):
        d = self.dir()
        name = self.r.choice(names)
        return name if d == "." else d + "/" + name

    def any(self):
        return self.r.choice(self.dirs) if self.r.random() < 0.3 else self.old()

    def made(self, path):
        if path not in self.files:
            self.files.append(path)
        if len(self.files) > 60:
            self.files.pop(self.r.randrange(len(self.files)))
        return path

    def gone(self, path):
        self.files = [f for f in self.files if f != path and not f.startswith(path + "/")]
        self.dirs = [d for d in self.dirs if d != path and not d.startswith(path + "/")] or ["."]

    def moved(self, a, b):
        def to(p):
            return b + p[len(a):] if p == a or p.startswith(a + "/") else p
        self.files = [to(f) for f in self.files]
        self.dirs = [to(d) for d in self.dirs]

    def size(self):
        return self.r.choice([0, 1, 100, 4095, 4096, 4097, 70000, 300000])

    def op_create(self):
        return self.made(self.new(FILES)), self.size(), self.r.choice([0, os.O_EXCL, os.O_TRUNC, os.O_TRUNC])

    def op_append(self):
        return self.old(), self.size()

    def op_pwrite(self):
        return self.old(), self.r.choice([0, 1, 4096, 65535, 1 << 20]), self.size()

    def op_truncate(self):
        return self.old(), self.size()

    def op_fallocate(self):
        return self.old(), self.r.choice([0, KEEP_SIZE, KEEP_SIZE | PUNCH_HOLE, ZERO_RANGE]), self.r.choice([0, 4096, 5000]), \
            self.r.choice([1, 4096, 100000])

    def op_mapped(self):
        return self.old(), self.r.random()

    def op_save(self):
        return self.made(self.old()), self.size()

    def op_tmpfile(self):
        return self.dir(), self.made(self.new(FILES))

    def op_read(self):
        return (self.old(),)

    def op_stat(self):
        return (self.any(),)

    def op_readdir(self):
        return (self.dir(),)

    def op_mkdir(self):
        path = self.new(DIRS)
        if path.count("/") < 5 and path not in self.dirs:
            self.dirs.append(path)
        return path, self.r.choice(DIR_MODES)

    def op_rmdir(self):
        return (self.dir(),)

    def op_rmtree(self):
        path = self.dir()
        if path != ".":
            self.gone(path)
        return (path,)

    def op_unlink(self):
        path = self.any()
        if path in self.files:
            self.gone(path)
        return (path,)

    def op_rename(self):
        a, b = self.old(), self.made(self.new(FILES))
        self.moved(a, b)
        return a, b, self.r.choice([0, 0, NOREPLACE, EXCHANGE])

    def op_rename_dir(self):
        a, b = self.dir(), self.new(DIRS)
        if a != "." and not b.startswith(a + "/"):
            self.moved(a, b)
        return a, b, self.r.choice([0, 0, 0, NOREPLACE, EXCHANGE])

    def op_rename_any(self):
        return self.any(), self.any(), self.r.choice([0, NOREPLACE, EXCHANGE])

    def hard(self):
        return self.new(["h0", "h1", "h2", "h3"])

    def op_hard(self):
        return self.hard(), self.hard(), self.hard(), self.size()

    def op_hard_unlink(self):
        return (self.hard(),)

    def op_hard_read(self):
        return (self.hard(),)

    def op_pair(self):
        return self.new(["q0", "q1"]), self.new(["q0", "q1", "q2"])

    def op_symlink(self):
        return self.r.choice(self.files + self.dirs + ["/nonexistent/x", "s0"]), self.made(self.new(["s0", "s1", "s2"]))

    def op_chmod(self):
        path = self.any()
        return path, self.r.choice(DIR_MODES if path in self.dirs else FILE_MODES)

    def op_utime(self):
        return self.any(), self.r.choice([0, 1, 10**9 + 1, 2**31 * 10**9 + 7, 1234567890123456789])

    def op_setxattr(self):
        return self.any(), self.r.choice(["user.a", "user.b", "user.overlay.x"]), self.r.choice([0, 0, 1, 2]), \
            "v" * self.r.choice([0, 1, 300])

    def op_removexattr(self):
        return self.any(), self.r.choice(["user.a", "user.b", "user.overlay.x"])

    def op_xattrs(self):
        return (self.any(),)

    def op_mkfifo(self):
        return (self.made(self.new(["p0", "p1"])),)

    def op_socket(self):
        return (self.made(self.new(["k0", "k1"])),)

    def op_chown(self):
        return self.any(), self.r.choice([0, 1, 1000]), self.r.choice([-1, 5])

    WEIGHTS = dict(create=14, append=6, pwrite=6, truncate=4, fallocate=3, mapped=3, save=5, tmpfile=1, read=10, stat=8,
                   readdir=6, mkdir=9, rmdir=2, rmtree=1, unlink=7, rename=6, rename_dir=4, rename_any=3, hard=4,
                   hard_unlink=3, hard_read=2, pair=1, symlink=3, chmod=5, utime=3, setxattr=4,
                   removexattr=1, xattrs=3, mkfifo=1, socket=1, chown=2)

    def __iter__(self):
        names, weights = list(self.WEIGHTS), list(self.WEIGHTS.values())
        while True:
            name = self.r.choices(names, weights)[0]
            yield name, getattr(self, "op_" + name)()


class Run:
    """Does operations; each gives a value or raises OSError."""

    def __init__(self, follow):
        self.i, self.follow = 0, follow

    def data(self, n, salt=0):
        return random.Random(self.i * 1000 + salt).randbytes(n)

    def time(self):
        t = (1500000000 + self.i) * 10**9 + self.i * 1000003 % 10**9
        return t, t

    def write(self, path, flags, work, mode=0o666):
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return "special"
            value = work(fd)
            os.utime(fd, ns=self.time())
            return value
        finally:
            os.close(fd)

    def op_create(self, path, size, flags):
        return self.write(path, os.O_WRONLY | os.O_CREAT | flags, lambda fd: os.write(fd, self.data(size)))

    def op_append(self, path, size):
        return self.write(path, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, self.data(size)))

    def op_pwrite(self, path, off, size):
        return self.write(path, os.O_WRONLY, lambda fd: os.pwrite(fd, self.data(size), off))

    def op_truncate(self, path, size):
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "special"
        os.truncate(path, size)
        os.utime(path, ns=self.time())

    def op_fallocate(self, path, mode, off, n):
        return self.write(path, os.O_RDWR, lambda fd: syscall(libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(n))))

    def op_mapped(self, path, where):
        def work(fd):
            size = os.fstat(fd).st_size
            if size:
                with mmap.mmap(fd, size) as m:
                    m[int(size * where)] = 42
            return size
        return self.write(path, os.O_RDWR, work)

    def op_save(self, path, size):
        tmp = os.path.join(os.path.dirname(path) or ".", ".save~")
        self.write(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda fd: (os.write(fd, self.data(size)), os.fsync(fd)))
        try:
            os.rename(tmp, path)
        except OSError:
            os.unlink(tmp)
            raise

    def op_tmpfile(self, d, path):
        def work(fd):
            os.write(fd, self.data(5000))
            name = f"/proc/self/fd/{fd}".encode()
            syscall(libc.linkat(AT_FDCWD, name, AT_FDCWD, os.fsencode(path), SYMLINK_FOLLOW))
        self.write(d, os.O_TMPFILE | os.O_RDWR, work)

    def op_read(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return "special"
            h = hashlib.md5()
            while block := os.read(fd, 1 << 16):
                h.update(block)
            return h.hexdigest()
        finally:
            os.close(fd)

    def op_stat(self, path):
        st = os.lstat(path)
        if stat.S_ISDIR(st.st_mode):
            return oct(st.st_mode), st.st_uid, st.st_gid
        out = oct(st.st_mode), st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns
        return out + (os.readlink(path),) if stat.S_ISLNK(st.st_mode) else out

    def op_readdir(self, path):
        with os.scandir(path) as entries:
            return sorted((e.name, oct(e.stat(follow_symlinks=False).st_mode), e.is_dir(follow_symlinks=False)) for e in entries)

    def op_mkdir(self, path, mode):
        os.mkdir(path, mode)

    def op_rmdir(self, path):
        os.rmdir(path)

    def op_rmtree(self, path):
        if path == ".":
            return None
        removed = []

        def remove(p):
            if self.is_dir(p):
                for name in sorted(os.listdir(p)):
                    remove(os.path.join(p, name))
                os.rmdir(p)
            else:
                os.unlink(p)
            removed.append(p)
        remove(path)
        return removed

    def op_unlink(self, path):
        os.unlink(path)

    def is_dir(self, path):
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError:
            return False

    def op_rename(self, a, b, flags):
        if self.follow.get(self.i) == "EXDEV" and (self.is_dir(a) or flags == EXCHANGE and self.is_dir(b)):
            raise OSError(errno.EXDEV, "")
        renameat2(a, b, flags)

    op_rename_dir = op_rename_any = op_rename

    def op_hard(self, path, a, b, size):
        self.write(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, lambda fd: os.write(fd, self.data(size)))
        os.link(path, a)
        os.link(a, b)
        return os.stat(b).st_nlink

    op_hard_unlink = op_unlink
    op_hard_read = op_read

    def op_pair(self, a, b):
        for path in (a, b):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
        self.write(a, os.O_WRONLY | os.O_CREAT, lambda fd: os.write(fd, b"one"))
        os.link(a, b)
        one, two = os.stat(a), os.stat(b)
        self.write(b, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"two"))
        with open(a, "rb") as f:
            text = f.read().decode()
        os.unlink(a)
        self.write(b, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"three"))
        return text, one.st_nlink, one.st_ino == two.st_ino, os.stat(b).st_nlink

    def op_symlink(self, target, path):
        os.symlink(target, path)
        os.utime(path, ns=self.time(), follow_symlinks=False)

    def op_chmod(self, path, mode):
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return "symlink"
        os.chmod(path, mode)

    def op_utime(self, path, ns):
        os.utime(path, ns=(ns, ns), follow_symlinks=False)

    def op_setxattr(self, path, name, flags, value):
        os.setxattr(path, name, value.encode(), flags, follow_symlinks=False)

    def op_removexattr(self, path, name):
        try:
            os.removexattr(path, name, follow_symlinks=False)
        except OSError as e:  # a tree without any attribute is served as by a filesystem that has none
            if e.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise
            return "none"

    def op_xattrs(self, path):
        names = sorted(os.listxattr(path, follow_symlinks=False))
        return [(n, os.getxattr(path, n, follow_symlinks=False).decode("latin-1")) for n in names if n.startswith("user.")]

    def op_mkfifo(self, path):
        os.mkfifo(path, 0o640)
        os.utime(path, ns=self.time())

    def op_socket(self, path):
        with socket.socket(socket.AF_UNIX) as s:
            fd = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
            try:  # the short way to a long path
                s.bind(f"/proc/self/fd/{fd}/{os.path.basename(path)}")
            finally:
                os.close(fd)
        os.utime(path, ns=self.time(), follow_symlinks=False)

    def op_chown(self, path, uid, gid):
        if os.geteuid() == 0:
            os.chown(path, uid, gid, follow_symlinks=False)

    def do(self, i, name, args):
        self.i = i
        try:
            return getattr(self, "op_" + name)(*args)
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e.errno))


def main():
    seed, first, last = map(int, sys.argv[1:4])
    follow = {}
    if "--follow" in sys.argv:
        with open(sys.argv[sys.argv.index("--follow") + 1], encoding="ascii") as f:
            follow = {line[0]: line[3] for line in map(json.loads, f)}
    os.umask(0o022)
    run = Run(follow)
    for i, (name, args) in enumerate(Sequence(seed)):
        if i >= last:
            break
        if i >= first:
            print(json.dumps([i, name, args, run.do(i, name, args)]), flush=True)


main()
