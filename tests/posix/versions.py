#!/usr/bin/env python3
"""versions.py DIR ENTRIES: the read-only mount of a commit against what tests/posix/versions.py make left in the session.

    make ENTRIES        in the working directory
    check DIR ENTRIES   look-ups, listings and cookies, reads at every offset, attributes, hostile names, refusals
"""
import errno
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from posixlib import attempt, attempt_open, opened, pattern, read, write  # noqa: E402
from topics_name import Dir, Hostile, libc  # noqa: E402

SIZES = (0, 1, 2, 511, 4095, 4096, 4097, 65535, 65536, 131073, 1 << 20, (1 << 20) + 1, 5000001)


def make(entries):
    for i, size in enumerate(SIZES):
        write(f"s{size}", pattern(size, i))
    os.mkdir("many")
    for i in range(entries):
        os.close(os.open(f"many/e{i}", os.O_CREAT | os.O_WRONLY))
    os.makedirs("names")
    for i, name in enumerate(Hostile.NAMES):
        write("names/" + name, b"%d" % i)
    write("attr", b"x")
    os.setxattr("attr", "user.a", b"1" * 300)
    os.setxattr("attr", "user.empty", b"")
    os.setxattr("names", "user.d", b"\x00\xff")
    os.symlink("s4096", "link")
    os.symlink("t" * 4000, "longlink")
    os.mkfifo("pipe")
    os.link("attr", "attr2")
    deep = os.path.join(*["d" * 200] * 15)
    os.makedirs(deep)
    write(deep + "/f", b"deep")


def reads():
    r = random.Random(5)
    for i, size in enumerate(SIZES):
        want = pattern(size, i)
        assert read(f"s{size}") == want, size
        with opened(f"s{size}") as fd:
            for _ in range(60):
                off, n = r.randrange(size + 10), r.choice((1, 3, 511, 4096, 70000, 1 << 21))
                assert os.pread(fd, n, off) == want[off:off + n], (size, off, n)
            for off in [*range(min(size, 9000))][::7]:
                assert os.pread(fd, 2, off) == want[off:off + 2], (size, off)
        if size:
            with opened(f"s{size}", os.O_RDONLY | os.O_DIRECT) as fd:
                import mmap
                buf = mmap.mmap(-1, 8192)
                assert os.preadv(fd, [buf], 0) == min(size, 8192) and buf[:min(size, 8192)] == want[:8192]


def listing(entries):
    d, at, order = Dir("many"), [], []
    while True:
        at.append(libc.telldir(d.d))
        name = d.next()
        if name is None:
            break
        order.append(name)
    assert len(order) == entries and set(order) == {b"e%d" % i for i in range(entries)}
    r = random.Random(11)
    other = Dir("many")  # a cookie is the directory's, not the stream's
    for _ in range(300):
        i = r.randrange(entries)
        for stream in (d, other):
            libc.seekdir(stream.d, at[i])
            assert stream.next() == order[i], i
    libc.seekdir(d.d, at[entries // 3])
    assert list(d) == order[entries // 3:]
    assert list(Dir("many")) == order, "the order changed"
    for i in (0, entries // 2, entries - 1):
        assert os.stat(f"many/e{i}").st_size == 0
    for name in (f"many/e{entries}", "many/E0", "many/" + "e" * 255):
        assert attempt(os.stat, name) == "ENOENT"
    assert attempt(os.stat, "many/" + "e" * 256) == "ENAMETOOLONG"


def names_and_attributes():
    assert sorted(os.listdir(b"names")) == sorted(os.fsencode(n) for n in Hostile.NAMES)
    for i, name in enumerate(Hostile.NAMES):
        assert read("names/" + name) == b"%d" % i, name
    assert os.getxattr("attr", "user.a") == b"1" * 300 and os.getxattr("attr", "user.empty") == b""
    assert sorted(os.listxattr("attr")) == ["user.a", "user.empty"] and os.listxattr("s0") == []
    assert os.getxattr("names", "user.d") == b"\x00\xff"
    for path in ("attr", "s0", "names"):
        assert attempt(os.getxattr, path, "user.none") == "ENODATA", path
    assert os.path.samefile("attr", "attr2") and os.stat("attr").st_nlink == 2
    assert os.readlink("link") == "s4096" and os.readlink("longlink") == "t" * 4000
    assert read(os.path.join(*["d" * 200] * 15) + "/f") == b"deep"


def refusals():
    for fn, *args in ((os.mkdir, "n"), (os.unlink, "s0"), (os.rmdir, "names"), (os.rename, "s0", "s"), (os.symlink, "x", "y"), (os.link, "s0", "s"),
                      (os.chmod, "s0", 0), (os.truncate, "s1", 0), (os.utime, "s0"), (os.setxattr, "s0", "user.x", b""), (os.removexattr, "attr", "user.a"),
                      (os.mkfifo, "p")):
        assert attempt(fn, *args) == "EROFS", fn
    assert attempt_open("s0", os.O_RDWR) == attempt_open("new", os.O_CREAT | os.O_WRONLY) == "EROFS"
    assert attempt(os.listdir, "s0") == "ENOTDIR" and attempt(os.stat, "s0/x") == "ENOTDIR" and attempt(os.readlink, "s0") == "EINVAL"
    with opened("s4096") as fd, opened("names") as d:
        assert attempt(os.read, d, 1) == "EISDIR" and attempt(os.write, fd, b"x") == "EBADF"
        assert attempt(os.lseek, fd, 4096, os.SEEK_DATA) == "ENXIO" and os.lseek(fd, 0, os.SEEK_HOLE) == 4096
        assert attempt(os.lseek, fd, -1, os.SEEK_SET) == "EINVAL"
    assert errno.EROFS


def main():
    if sys.argv[1] == "make":
        make(int(sys.argv[2]))
        return
    os.chdir(sys.argv[2])
    for check, args in ((reads, ()), (listing, (int(sys.argv[3]),)), (names_and_attributes, ()), (refusals, ())):
        check(*args)
        print(check.__name__, "ok")


main()
