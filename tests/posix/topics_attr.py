"""Attributes: times, modes and who may change them, access control lists, extended attributes."""
import os
import struct

from posixlib import (NOBODY, ROOT, Topic, as_nobody, attempt, attempt_open, in_child, mode_of, opened, renameat2, tick, write)

NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2


class Times(Topic):
    """utimensat, and which calls move which times of what, of the parent too."""

    def make(self, m):
        m.touch = False  # opening what was only touched moves its mtime (docs/posix.md)
        for i in range(30):
            m.file(f"f{i}", b"data")
            m.file(f"d{i}/in", b"data")
        m.symlink("sym", "f1")
        m.dir("to")
        m.fifo("pipe")

    def act(self):
        for i, ns in enumerate(((0, 0), (1, 999999999), (10**18, 10**18 + 1), (-10**9, -1), (4 * 10**18, 10**9), (2**31 * 10**9, 2**32 * 10**9))):
            yield f"set {ns}", attempt(os.utime, f"f{i}", ns=ns), os.stat(f"f{i}").st_atime_ns, os.stat(f"f{i}").st_mtime_ns
            yield f"set {ns} of a directory", attempt(os.utime, f"d{i}", ns=ns), os.stat(f"d{i}").st_mtime_ns
        yield "of a symlink", attempt(lambda: os.utime("sym", ns=(5, 7), follow_symlinks=False)), os.lstat("sym").st_mtime_ns, \
            os.stat("f1").st_mtime_ns
        yield "through a symlink", attempt(os.utime, "sym", ns=(11, 13)), os.lstat("sym").st_mtime_ns, os.stat("f1").st_mtime_ns
        yield "of a pipe", attempt(os.utime, "pipe", ns=(5, 7)), os.stat("pipe").st_mtime_ns
        yield "errors", attempt(os.utime, "none"), attempt(os.utime, "f1/x"), as_nobody(lambda: os.utime("f8", ns=(1, 1))), \
            as_nobody(lambda: os.utime("f9"))
        yield from self.rules()

    RULES = {  # what is done; whose times are looked at: the object and its parent
        "read": lambda n: open(f"d{n}/in").read(), "open": lambda n: attempt_open(f"d{n}/in", os.O_RDWR),
        "write": lambda n: write(f"d{n}/in", b"x"), "write nothing": lambda n: write(f"d{n}/in", b""),
        "create": lambda n: write(f"d{n}/new", b""), "chmod": lambda n: os.chmod(f"d{n}/in", 0o600),
        "same mode": lambda n: os.chmod(f"d{n}/in", 0o644), "chown": lambda n: os.chown(f"d{n}/in", os.geteuid(), os.getegid()),
        "link": lambda n: os.link(f"d{n}/in", f"d{n}/hard"), "link elsewhere": lambda n: os.link(f"d{n}/in", f"to/hard{n}"),
        "symlink": lambda n: os.symlink("x", f"d{n}/sym"), "mkdir": lambda n: os.mkdir(f"d{n}/sub"),
        "rename": lambda n: (os.rename(f"d{n}/in", f"d{n}/x"), os.link(f"d{n}/x", f"d{n}/in")),
        "set time": lambda n: os.utime(f"d{n}/in", ns=(1, 1)), "setxattr": lambda n: os.setxattr(f"d{n}/in", "user.a", b"1"),
        "truncate": lambda n: os.truncate(f"d{n}/in", 1), "list": lambda n: os.listdir(f"d{n}"),
        "failing create": lambda n: attempt_open(f"d{n}/in", os.O_CREAT | os.O_EXCL), "failing rmdir": lambda n: attempt(os.rmdir, f"d{n}"),
        "failing link": lambda n: attempt(os.link, f"d{n}/in", f"d{n}/in"), "chmod of the parent": lambda n: os.chmod(f"d{n}", 0o700),
        "replace": lambda n: (write("tmp", b""), os.rename("tmp", f"d{n}/in")),
        "access": lambda n: os.access(f"d{n}/in", os.R_OK), "fsync": lambda n: self_fsync(f"d{n}/in"),
    }

    # The first call that may write moves the ctime of a committed file and of its directory (docs/posix.md).
    FIRST = ("open", "write nothing", "fsync")
    ENTRIES = ("create", "link", "symlink", "mkdir", "rename", "replace", "chmod of the parent", "read", "list", "access",
               "failing create", "failing rmdir", "failing link")

    def rules(self):
        for n, (name, fn) in enumerate(self.RULES.items(), 6):
            n %= 30
            was = os.stat(f"d{n}/in"), os.stat(f"d{n}")
            tick()
            fn(n)
            now = os.stat(f"d{n}/in"), os.stat(f"d{n}")
            moved = [(a.st_mtime_ns != b.st_mtime_ns, b.st_ctime_ns > a.st_ctime_ns) for a, b in zip(was, now)]
            yield f"rules of {name}", moved[0] if name not in self.FIRST else moved[0][0], moved[1] if name in self.ENTRIES else moved[1][0]
        tick()
        before = os.stat("to").st_mtime_ns, os.stat("d0").st_mtime_ns, os.stat("f20").st_mtime_ns
        os.rename("f20", "to/f20")
        os.unlink("d0/in")
        yield "rename and unlink: parents", os.stat("to").st_mtime_ns > before[0], os.stat("d0").st_mtime_ns > before[1], \
            os.stat("to/f20").st_mtime_ns == before[2]


def self_fsync(path):
    with opened(path, os.O_RDWR) as fd:
        os.fsync(fd)


class Modes(Topic):
    """chmod, umask, set-id bits: who may, and what clears them."""

    BITS = (0o4755, 0o2755, 0o6755, 0o2745, 0o4644, 0o6777, 0o1755)

    def make(self, m):
        for what in ("write", "truncate", "chown", "open", "chmod", "append", "fallocate"):
            for mode in self.BITS:
                m.file(f"{what}-{mode:o}", b"#!/bin/true\n")
        for mode in (0o755, 0o2775, 0o1777, 0o000, 0o7777):
            m.dir(f"d{mode:o}", mode)
        m.file("f")
        m.symlink("sym", "f")

    def change(self, what, path):
        if what == "write":
            write(path, b"x", os.O_WRONLY)
        elif what == "append":
            write(path, b"x", os.O_WRONLY | os.O_APPEND)
        elif what == "truncate":
            os.truncate(path, 3)
        elif what == "chown":
            os.chown(path, -1, os.getegid())
        elif what == "open":
            attempt_open(path, os.O_WRONLY)
        elif what == "chmod":
            os.chmod(path, 0o7711)
        elif what == "fallocate":
            with opened(path, os.O_RDWR) as fd:
                os.posix_fallocate(fd, 0, 9999)

    def act(self):
        for what in ("write", "truncate", "chown", "open", "chmod", "append", "fallocate"):
            for mode in self.BITS:
                path = f"{what}-{mode:o}"
                if ROOT:
                    os.chown(path, NOBODY, NOBODY)
                os.chmod(path, mode)
                before = mode_of(path)
                yield path, before, as_nobody(lambda: self.change(what, path)), mode_of(path)
        if ROOT:
            for mode in self.BITS:
                path = f"open-{mode:o}"
                os.chown(path, 1000, 1000)
                yield f"root's chown of {mode:o}", mode_of(path), attempt(os.chmod, path, mode), attempt(write, path, b"y"), mode_of(path)
                os.chown(path, 1000, NOBODY)
                os.chmod(path, 0o6777)
                yield f"another's write to {mode:o}", in_child(lambda: write(path, b"z"), NOBODY), mode_of(path), \
                    in_child(lambda: os.chmod(path, 0o777), NOBODY)
        for mode in (0o755, 0o2775, 0o1777, 0o7777):
            d = f"d{mode:o}"
            for mask in (0o022, 0o077, 0):
                os.umask(mask)
                os.mkdir(f"{d}/{mask:o}")
                write(f"{d}/f{mask:o}", b"")
                os.mkfifo(f"{d}/p{mask:o}")
                yield f"made in {d} under {mask:o}", mode_of(f"{d}/{mask:o}"), mode_of(f"{d}/f{mask:o}"), mode_of(f"{d}/p{mask:o}")
        os.umask(0o022)
        yield "chmod through a symlink", attempt(os.chmod, "sym", 0o611), mode_of("f"), attempt(os.chmod, "none", 0)
        yield "a directory of mode 0", as_nobody(lambda: os.listdir("d0")), as_nobody(lambda: attempt_open("d0/x", os.O_CREAT))
        yield "access", [as_nobody(lambda: os.access("write-4644", a)) for a in (os.R_OK, os.W_OK, os.X_OK)], os.access("none", os.F_OK)


def acl(*entries):
    """An access control list as the kernel takes it: (tag, rights, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER, NONE = 1, 2, 4, 8, 16, 32, 0xffffffff


class Acls(Topic):
    """POSIX access control lists: kept, inherited, applied; chmod and the mask."""

    def make(self, m):
        for i in range(4):
            m.file(f"f{i}", b"data", 0o640)
            m.dir(f"d{i}")

    def act(self):
        me = os.geteuid()
        full = acl((USER_OBJ, 6, NONE), (USER, 4, me), (GROUP_OBJ, 0, NONE), (GROUP, 6, os.getegid()), (MASK, 6, NONE), (OTHER, 0, NONE))
        name, default = "system.posix_acl_access", "system.posix_acl_default"
        yield "none", attempt(os.getxattr, "f0", name), attempt(os.getxattr, "d0", default)
        yield "set", attempt(os.setxattr, "f0", name, full), mode_of("f0"), os.getxattr("f0", name) == full
        yield "chmod sets the mask", attempt(os.chmod, "f0", 0o604), mode_of("f0"), os.getxattr("f0", name)[-14:-8] != full[-14:-8]
        yield "minimal becomes a mode", attempt(os.setxattr, "f1", name, acl((USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 1, NONE))), \
            mode_of("f1"), attempt(os.getxattr, "f1", name)
        yield "removed", attempt(os.removexattr, "f0", name), attempt(os.getxattr, "f0", name)
        yield "bad ones", attempt(os.setxattr, "f2", name, b"junk"), attempt(os.setxattr, "f2", name, acl((USER_OBJ, 7, NONE))), \
            attempt(os.setxattr, "f2", default, full), attempt(os.setxattr, "f2", name, full[:-8])
        yield "default", attempt(os.setxattr, "d0", default, full), os.getxattr("d0", default) == full
        os.mkdir("d0/sub")
        write("d0/new", b"")
        with opened("d0/tmp", os.O_CREAT | os.O_RDWR, 0o600):
            pass
        yield "inherited", mode_of("d0/sub"), os.getxattr("d0/sub", default) == full, mode_of("d0/new"), mode_of("d0/tmp"), \
            len(os.getxattr("d0/new", name))
        os.setxattr("d1", name, acl((USER_OBJ, 7, NONE), (USER, 7, me), (GROUP_OBJ, 0, NONE), (MASK, 7, NONE), (OTHER, 0, NONE)))
        os.rename("f3", "d1/f3")
        yield "with what was renamed", mode_of("d1"), mode_of("d1/f3"), sorted(os.listxattr("d1"))
        if ROOT:
            os.chmod("f3" if os.path.exists("f3") else "d1/f3", 0o600)
            os.chmod(".", 0o755)
            os.setxattr("f2", name, acl((USER_OBJ, 6, NONE), (USER, 4, NOBODY), (GROUP_OBJ, 0, NONE), (MASK, 4, NONE), (OTHER, 0, NONE)))
            yield "applied", as_nobody(lambda: open("f2").read()), as_nobody(lambda: attempt_open("f2", os.O_WRONLY)), \
                in_child(lambda: open("f2").read(), 1234)


class Xattrs(Topic):
    """Extended attributes: sizes, flags, names, kinds of files, errors."""

    SIZES = (0, 1, 2, 100, 255, 256, 1000, 3000)

    def make(self, m):
        for i in range(12):
            m.file(f"f{i}", b"data")
        for i in range(4):
            m.dir(f"d{i}")
        m.symlink("sym", "f0")
        m.fifo("pipe")
        for i in range(3):
            m.object(f"had{i}", lambda: (write(f"had{i}", b""), os.setxattr(f"had{i}", "user.old", b"old%d" % i)))
        m.file("readonly", b"", 0o444)

    def act(self):
        yield "committed before", [os.getxattr(f"had{i}", "user.old") for i in range(3)], attempt(os.getxattr, "had0", "user.none"), \
            attempt(os.removexattr, "had0", "user.none"), attempt(os.getxattr, "f0", "user.none")
        for i, size in enumerate(self.SIZES):
            path = f"f{i}" if i % 2 else f"d{i // 2}"
            yield f"size {size}", attempt(os.setxattr, path, "user.v", b"v" * size), len(os.getxattr(path, "user.v")), \
                attempt(os.setxattr, path, "user.v", b"w" * size, os.XATTR_CREATE), attempt(os.setxattr, path, "user.v", b"x" * size, os.XATTR_REPLACE), \
                os.getxattr(path, "user.v")[:1], attempt(os.setxattr, path, "user.n", b"", os.XATTR_REPLACE)
        yield "too long", attempt(os.setxattr, "f1", "user." + "n" * 250, b"1"), attempt(os.setxattr, "f1", "user." + "n" * 251, b"1"), \
            attempt(os.setxattr, "f1", "user.big", b"v" * 65537), attempt(os.setxattr, "f1", "user.", b"1"), attempt(os.setxattr, "f1", "nothing", b"1"), \
            attempt(os.setxattr, "f1", "other.x", b"1")
        yield "not UTF-8", attempt(os.setxattr, "f2", b"user.\xff\xfe", b"\x00\xff"), os.getxattr("f2", b"user.\xff\xfe"), len(os.listxattr("f2"))
        yield "kinds", attempt(lambda: os.setxattr("sym", "user.a", b"1", follow_symlinks=False)), attempt(os.setxattr, "pipe", "user.a", b"1"), \
            attempt(os.setxattr, "sym", "user.a", b"1"), os.getxattr("f0", "user.a")
        for i in range(40):
            os.setxattr("f9", f"user.many{i}", b"%d" % i)
        yield "many", len(os.listxattr("f9")), os.getxattr("f9", "user.many39")
        yield "removed", attempt(os.removexattr, "f9", "user.many0"), attempt(os.removexattr, "f9", "user.many0"), len(os.listxattr("f9")), \
            attempt(os.getxattr, "f9", "user.many0"), attempt(os.removexattr, "had1", "user.old"), os.listxattr("had1")
        yield "names of overlayfs's own", [attempt(os.setxattr, "f10", n, b"mine") for n in self.own()], \
            [attempt(os.getxattr, "f10", n) for n in self.own()], sorted(os.listxattr("f10"))
        renameat2("f9", "g9")
        yield "after a rename", os.getxattr("g9", "user.many39"), as_nobody(lambda: os.setxattr("readonly", "user.a", b"1"))
        with opened("f11") as fd:
            yield "by descriptor", attempt(os.setxattr, fd, "user.fd", b"1"), os.listxattr(fd)
        if ROOT:
            yield "root's", attempt(os.setxattr, "f1", "trusted.t", b"1"), as_nobody(lambda: os.getxattr("f1", "trusted.t")), \
                "trusted.t" in os.listxattr("f1"), attempt(lambda: os.setxattr("sym", "trusted.t", b"1", follow_symlinks=False))

    def own(self):
        return ["user.overlay.opaque", "user.overlay.x"] + (["trusted.overlay.opaque", "trusted.overlay.redirect"] if ROOT else [])


TOPICS = {"times": Times, "modes": Modes, "acls": Acls, "xattrs": Xattrs}
