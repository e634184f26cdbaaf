"""Content: appends, truncation, fallocate, holes, copies, direct I/O."""
import errno
import mmap
import os

from posixlib import (Topic, attempt, attempt_open, digest, fallocate, in_child, opened, pattern, read, syscall, tick, write)

KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
MIB = 1 << 20


class Append(Topic):
    """O_APPEND from many processes: no record is lost or torn."""

    WRITERS, RECORDS = 6, 150

    def make(self, m):
        m.file("log", b"begin\n")
        m.file("log2", b"begin\n" * 5000)

    def writer(self, path, who):
        def work():
            with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
                for i in range(self.RECORDS):
                    os.write(fd, b"%02d-%05d-%s\n" % (who, i, b"x" * (who * 13)))
        return work

    def act(self):
        for path in ("log", "log2", "new"):
            write(path, b"", os.O_WRONLY | os.O_CREAT)
            before = os.stat(path).st_size
            pids = []
            for who in range(self.WRITERS):
                pid = os.fork()
                if not pid:
                    try:
                        self.writer(path, who)()
                    finally:
                        os._exit(0)
                pids.append(pid)
            status = [os.waitpid(pid, 0)[1] for pid in pids]
            with open(path, "rb") as f:
                f.seek(before)
                lines = f.read().splitlines()
            want = {b"%02d-%05d-%s" % (w, i, b"x" * (w * 13)) for w in range(self.WRITERS) for i in range(self.RECORDS)}
            mine = [[x for x in lines if x.startswith(b"%02d-" % w)] for w in range(self.WRITERS)]
            yield path, status, len(lines), set(lines) == want, all(x == sorted(x) for x in mine)
            with opened(path, os.O_WRONLY) as fd:  # the order is nobody's
                os.pwrite(fd, b"\n".join(sorted(lines)), before)
        with opened("log", os.O_RDWR | os.O_APPEND) as fd:
            yield "offsets", os.lseek(fd, 0, 0), os.write(fd, b"end"), os.lseek(fd, 0, 1) == os.fstat(fd).st_size, os.pwrite(fd, b"P", 0), \
                os.pread(fd, 5, 0), os.pread(fd, 1, os.fstat(fd).st_size - 1)


class Truncate(Topic):
    """truncate and ftruncate: sizes, errors, what readers see."""

    def make(self, m):
        for i in range(8):
            m.file(f"f{i}", pattern(10000, i))
        m.file("readonly", b"1234", 0o444)
        m.file("big", pattern(3 * MIB))
        m.dir("dir")
        m.symlink("sym", "f6")
        m.fifo("pipe")

    def act(self):
        for i, size in enumerate((0, 1, 4096, 4097, 9999, 10000)):
            yield f"to {size}", attempt(os.truncate, f"f{i}", size), os.stat(f"f{i}").st_size, digest(f"f{i}")
            yield f"and up again from {size}", attempt(os.truncate, f"f{i}", 12000), digest(f"f{i}")
        yield "through a symlink", attempt(os.truncate, "sym", 5), os.stat("f6").st_size
        yield "errors", attempt(os.truncate, "dir", 0), attempt(os.truncate, "none", 0), attempt(os.truncate, "f1/x", 0), \
            attempt(os.truncate, "f1", -1), attempt(os.truncate, "pipe", 0)
        with opened("f7") as fd:
            yield "ftruncate of a descriptor for reading", attempt(os.ftruncate, fd, 1), os.fstat(fd).st_size
        with opened("big", os.O_RDWR) as a, opened("big") as b:
            os.lseek(b, 2 * MIB, 0)
            os.ftruncate(a, MIB)
            yield "a reader past the end", os.read(b, 10), os.lseek(b, 0, 2), os.pread(b, 4, MIB - 4) == pattern(3 * MIB)[MIB - 4:MIB]
            os.ftruncate(a, 2 * MIB)
            yield "zeros where it was cut", os.pread(b, MIB, MIB).strip(b"\0") == b""
            os.pwrite(a, b"far", 50 * MIB)
            yield "a hole by writing", os.fstat(b).st_size, os.pread(b, 3, 50 * MIB), os.pread(b, 8, 30 * MIB)
        before = os.stat("f0")
        tick()
        os.truncate("f0", before.st_size)
        after = os.stat("f0")
        yield "to the same size", after.st_mtime_ns > before.st_mtime_ns, after.st_ctime_ns > before.st_ctime_ns
        yield "open with O_TRUNC", attempt_open("f1", os.O_WRONLY | os.O_TRUNC), os.stat("f1").st_size, \
            attempt_open("f2", os.O_RDONLY | os.O_TRUNC), os.stat("f2").st_size


class Allocate(Topic):
    """Every mode of fallocate."""

    MODES = {"alloc": 0, "keep": KEEP_SIZE, "punch": PUNCH | KEEP_SIZE, "punch alone": PUNCH, "zero": ZERO,
             "zero keep": ZERO | KEEP_SIZE, "collapse": COLLAPSE, "insert": INSERT, "collapse keep": COLLAPSE | KEEP_SIZE, "all": 127}
    RANGES = [(0, 4096), (8192, 8192), (100, 5000), (60000, 20000), (200000, 4096)]

    def make(self, m):
        for mode in self.MODES:
            for i in range(len(self.RANGES)):
                m.file(f"{mode}{i}", pattern(65536, i))
        m.file("f", b"x" * 100)
        m.dir("dir")
        m.fifo("pipe")

    def act(self):
        for name, mode in self.MODES.items():
            for i, (off, n) in enumerate(self.RANGES):
                path = f"{name}{i}"
                with opened(path, os.O_RDWR) as fd:
                    yield f"{name} {off}+{n}", attempt(fallocate, fd, mode, off, n), os.fstat(fd).st_size, digest(path)
        with opened("f") as fd, opened("f", os.O_RDWR) as rw, opened("dir") as d:
            yield "errors", attempt(fallocate, fd, 0, 0, 9), attempt(fallocate, rw, 0, -1, 9), attempt(fallocate, rw, 0, 0, 0), \
                attempt(fallocate, rw, 0, 0, -5), attempt(fallocate, rw, 0, 1 << 62, 1 << 62), attempt(fallocate, d, 0, 0, 9)
            yield "posix_fallocate", attempt(os.posix_fallocate, rw, 50, 100), os.fstat(fd).st_size


class Holes(Topic):
    """SEEK_HOLE and SEEK_DATA of files whose data lies in whole MiB, so that no filesystem's block size shows."""

    def make(self, m):
        def sparse(path, parts, size):
            def work():
                with opened(path, os.O_CREAT | os.O_WRONLY) as fd:
                    for at in parts:
                        os.pwrite(fd, pattern(MIB, at), at * MIB)
                    os.ftruncate(fd, size * MIB)
            m.object(path, work)
        sparse("solid", range(3), 3)
        sparse("middle", [2], 5)
        sparse("ends", [0, 6], 7)
        sparse("nothing", [], 4)
        sparse("comb", range(0, 12, 2), 13)
        m.file("empty", b"")
        m.file("small", b"abc")

    def segments(self, path):
        out, at = [], 0
        with opened(path) as fd:
            size = os.fstat(fd).st_size
            while at < size:
                try:
                    data = os.lseek(fd, at, os.SEEK_DATA)
                except OSError as e:
                    assert e.errno == errno.ENXIO
                    break
                at = os.lseek(fd, data, os.SEEK_HOLE)
                out.append((data, at))
        return out

    def act(self):
        names = ("solid", "middle", "ends", "nothing", "comb", "empty", "small")
        for path in names:
            yield path, self.segments(path), digest(path)
        with opened("middle") as fd:
            yield "within", [attempt(os.lseek, fd, at, w) for at in (MIB + 5, 2 * MIB + 7, 4 * MIB, 5 * MIB, 6 * MIB, -1)
                             for w in (os.SEEK_DATA, os.SEEK_HOLE)]
        with opened("solid", os.O_RDWR) as fd:
            fallocate(fd, PUNCH | KEEP_SIZE, MIB, MIB)
            yield "punched", self.segments("solid"), digest("solid")
        with opened("nothing", os.O_RDWR) as fd:
            os.pwrite(fd, pattern(MIB), 2 * MIB)
            yield "filled", self.segments("nothing")
        os.truncate("comb", 5 * MIB)
        os.truncate("comb", 9 * MIB)
        yield "cut", self.segments("comb"), digest("comb")


class Copies(Topic):
    """copy_file_range, sendfile, splice, and clones where there are none."""

    def make(self, m):
        m.file("a", pattern(300000, 1))
        m.file("b", pattern(200000, 2))
        m.file("c", pattern(100000, 3))
        m.file("big", pattern(5 * MIB, 4))
        m.dir("dir")
        m.fifo("pipe")

    def act(self):
        # O_RDWR: of a committed file that was never changed it is EXDEV (limits)
        with opened("a", os.O_RDWR) as a, opened("b", os.O_RDWR) as b, opened("new", os.O_RDWR | os.O_CREAT) as new, \
                opened("big", os.O_RDWR) as big, opened("dir") as d, opened("c", os.O_RDWR) as c:
            yield "to a new file", os.copy_file_range(a, new, 300000), digest("new")
            yield "into an old one", os.copy_file_range(a, b, 50000, 1000, 150001), os.fstat(b).st_size, digest("b")
            yield "within", attempt(os.copy_file_range, c, c, 1000, 0, 50000), digest("c")
            yield "overlapping", attempt(os.copy_file_range, c, c, 1000, 0, 500)
            yield "past the end", os.copy_file_range(a, new, 10, 300000, 0), os.copy_file_range(a, new, 10, 299995, 400000), \
                os.fstat(new).st_size
            yield "large", self.whole(big, new), digest("new")
            yield "errors", attempt(os.copy_file_range, d, new, 10), \
                attempt(os.copy_file_range, a, d, 10)
            os.ftruncate(new, 0)
            os.lseek(new, 0, 0)
            yield "sendfile", os.sendfile(new, a, 100, 100000), digest("new"), attempt(os.sendfile, d, new, 0, 5)
        with opened("a", os.O_WRONLY | os.O_APPEND) as ap, opened("b") as b:
            yield "to O_APPEND", attempt(os.copy_file_range, b, ap, 10)
        with opened("a") as a:
            r, w = os.pipe()
            yield "splice", os.splice(a, w, 5000, offset_src=7), os.read(r, 9000) == pattern(300000, 1)[7:5007]

    def whole(self, a, b):
        at = 0
        while n := os.copy_file_range(a, b, 5 * MIB, at, at):
            at += n
        return at


class Direct(Topic):
    """O_DIRECT: aligned transfers, coherence with the cache, what alignment is asked."""

    def make(self, m):
        m.file("f", pattern(64 * 4096))
        m.file("odd", pattern(10001, 5))

    def act(self):
        buf = mmap.mmap(-1, 16 * 4096)
        with opened("f", os.O_RDWR | os.O_DIRECT) as fd, opened("f", os.O_RDWR) as cached:
            yield "read", os.preadv(fd, [buf], 4096), bytes(buf) == pattern(64 * 4096)[4096:17 * 4096]
            os.pwrite(cached, b"cached" * 1000, 8192)
            yield "after a cached write", os.preadv(fd, [buf], 8192), bytes(buf)[:12]
            buf[:] = b"d" * len(buf)
            yield "write", os.pwritev(fd, [buf], 20 * 4096), os.pread(cached, 6, 20 * 4096), digest("f")
            yield "at the end", os.preadv(fd, [buf], 60 * 4096), os.preadv(fd, [buf], 64 * 4096)
            yield "extend", os.pwritev(fd, [buf], 64 * 4096), os.fstat(cached).st_size, digest("f")
        with opened("odd", os.O_RDONLY | os.O_DIRECT) as fd:
            yield "a file of odd size", os.preadv(fd, [buf], 0), bytes(buf[:10001]) == pattern(10001, 5)
        buf[:] = b"n" * len(buf)
        with opened("new", os.O_CREAT | os.O_RDWR | os.O_DIRECT | os.O_SYNC) as fd:
            yield "a new one", os.pwritev(fd, [buf], 0), digest("new"), attempt(os.fsync, fd), attempt(os.fdatasync, fd)
        with opened(".") as d:
            yield "fsync of a directory", attempt(os.fsync, d), attempt(syscall, "syncfs", d)


class Offsets(Topic):
    """Reads and writes at every kind of offset, one descriptor after another and several at once."""

    def make(self, m):
        for i, size in enumerate((0, 1, 4095, 4096, 4097, 65536, 200001, MIB, MIB + 1)):
            m.file(f"f{i}", pattern(size, i))

    def act(self):
        for i, size in enumerate((0, 1, 4095, 4096, 4097, 65536, 200001, MIB, MIB + 1)):
            want, wrong = pattern(size, i), 0
            with opened(f"f{i}") as fd:
                for off in (0, 1, 2, 511, 4094, 4095, 4096, 4097, 65535, 131071, 200000, size // 2, max(size - 1, 0), size, size + 5000):
                    for n in (1, 2, 4096, 5000, 131072):
                        wrong += os.pread(fd, n, off) != want[off:off + n]
            yield f"reads of {size}", wrong
        for i in range(9):
            with opened(f"f{i}", os.O_RDWR) as fd, opened(f"f{i}") as other:
                size = os.fstat(fd).st_size
                os.pwrite(fd, b"W" * 3, size // 3)
                os.pwrite(fd, b"E" * 5000, size)
                yield f"writes to f{i}", os.pread(other, 3, size // 3), os.pread(other, 9000, size) == b"E" * 5000, digest(f"f{i}")
        with opened("f5", os.O_RDWR) as fd:
            yield "odd ones", attempt(os.pread, fd, 5, -1), attempt(os.pwrite, fd, b"x", -1), attempt(os.lseek, fd, -1, 0), \
                os.lseek(fd, 1 << 40, 0), os.read(fd, 9), attempt(os.lseek, fd, 0, 9)
        yield "a large offset", in_child(lambda: self.large())
        yield "a file too large", read("f0")[:1]

    def large(self):
        with opened("huge", os.O_CREAT | os.O_RDWR) as fd:
            os.pwrite(fd, b"end", 1 << 40)
            os.unlink("huge")  # others would read it
            return os.fstat(fd).st_size, os.pread(fd, 3, 1 << 40).decode(), attempt(os.ftruncate, fd, 1 << 62)


TOPICS = {"append": Append, "truncate": Truncate, "allocate": Allocate, "holes": Holes, "copies": Copies, "direct": Direct,
          "offsets": Offsets}
