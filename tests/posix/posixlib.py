"""What the topics share: system calls that Python has not, a maker of files in parts, children, and how results read."""
import ctypes
import errno
import hashlib
import json
import os
import signal
import stat
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x400, 0x1000
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
NOBODY = 65534
ROOT = os.geteuid() == 0


def syscall(name, *args):
    """A function of libc by name; ints are passed as long, names as bytes."""
    def arg(a):
        return ctypes.c_long(a) if isinstance(a, int) else os.fsencode(a) if isinstance(a, str) else a
    r = getattr(libc, name)(*map(arg, args))
    if r < 0:
        raise OSError(ctypes.get_errno(), "")
    return r


def renameat2(a, b, flags=0):
    syscall("renameat2", AT_FDCWD, a, AT_FDCWD, b, flags)


def link_fd(fd, path):
    syscall("linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, path, AT_SYMLINK_FOLLOW)


def fallocate(fd, mode, off, n):
    syscall("fallocate", fd, mode, off, n)


def attempt(fn, *args, **kw):
    """What fn gives, "ok" for None, or the errno's name."""
    try:
        value = fn(*args, **kw)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    return "ok" if value is None else value


class opened:
    """with opened(path, flags, mode) as fd"""

    def __init__(self, path, flags=os.O_RDONLY, mode=0o666):
        self.fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def attempt_open(path, flags, mode=0o666):
    """Opens and closes."""
    def work():
        with opened(path, flags, mode):
            pass
    return attempt(work)


def write(path, data, flags=os.O_WRONLY | os.O_CREAT):
    with opened(path, flags) as fd:
        return os.write(fd, data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def digest(path):
    return hashlib.md5(read(path)).hexdigest()[:12]


def pattern(n, salt=0):
    """n bytes that differ everywhere, the same each time."""
    return hashlib.shake_128(salt.to_bytes(4, "little")).digest(n)


def kind(path):
    """Type of what path names, and what is in it: content, target, or names."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as e:
        return errno.errorcode[e.errno]
    if stat.S_ISLNK(mode):
        return "->" + os.readlink(path)
    if stat.S_ISDIR(mode):
        return {name: kind(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    if stat.S_ISREG(mode):
        data = read(path) if os.access(path, os.R_OK) else b"?"
        return data.decode("latin-1") if len(data) < 40 else digest(path)
    return {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}[stat.S_IFMT(mode)]


def mode_of(path):
    return oct(os.lstat(path).st_mode & 0o7777)


def tick():
    """Waits until the clock of time stamps has moved on."""
    time.sleep(0.012)


def in_child(fn, uid=None, groups=()):
    """What fn gives in a child process, as another user if told; a signal's name if that ends it."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(r)
            signal.alarm(60)
            if uid is not None:
                os.setgroups(groups)
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            os.write(w, json.dumps(attempt(fn)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        text = f.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return json.loads(text) if text else "failed"


def as_nobody(fn):
    """fn as a user without rights: root's own child, or the ordinary user himself."""
    return in_child(fn, NOBODY) if ROOT else attempt(fn)


class Maker:
    """Makes what a topic starts with. part "all"; or "even" and later "odd", so that half of the objects, in turn,
    is older; "odd" also touches some of the old ones, which the session then holds in both layers."""

    def __init__(self, part):
        self.part, self.n, self.touch = part, 0, True

    def object(self, path, fn, *needs):
        self.n += 1
        if self.part == "even" and (self.n % 2 or any(not os.path.lexists(x) for x in needs)):
            return
        if os.path.lexists(path):
            if self.touch and self.n % 3 == 0 and not os.path.islink(path):
                st = os.stat(path)
                os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
            return
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        fn()

    def file(self, path, data=None, mode=0o644):
        def make():
            write(path, os.fsencode(path) if data is None else data)
            os.chmod(path, mode)
        self.object(path, make)

    def dir(self, path, mode=0o755):
        def make():
            os.mkdir(path)
            os.chmod(path, mode)
        self.object(path, make)

    def symlink(self, path, target):
        self.object(path, lambda: os.symlink(target, path))

    def fifo(self, path):
        self.object(path, lambda: os.mkfifo(path, 0o644))

    def link(self, old, new):
        """Both names in one part: a link to an older file is another matter (see limits)."""
        self.object(new, lambda: os.link(old, new), old)

    def kind(self, path, what):
        if what == "file":
            self.file(path)
        elif what in ("empty", "full"):
            self.dir(path)
            if what == "full":
                self.file(path + "/in")
        elif what == "link":
            self.symlink(path, ".")
        elif what == "dangling":
            self.symlink(path, "nowhere")
        elif what == "fifo":
            self.fifo(path)


class Topic:
    """make: in one or two calls, with commits and folds between. act: yields (label, value): equal on every filesystem."""

    def make(self, m):
        pass

    def act(self):
        return ()
