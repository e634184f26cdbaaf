"""Between processes: locks, shared and private mappings, inotify."""
import ctypes
import fcntl
import mmap
import os
import struct
import time

from posixlib import (Topic, attempt, in_child, opened, pattern, read, syscall, write)

OFD_SETLK, OFD_GETLK = 37, 36


def lock(kind, start=0, n=0, pid=0):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, n, pid)


class Locks(Topic):
    """POSIX, OFD and flock locks: who is kept out, and when they go."""

    def make(self, m):
        for i in range(6):
            m.file(f"f{i}", b"x" * 100)

    def try_posix(self, path, kind, start=0, n=0):
        def work():
            with opened(path, os.O_RDWR) as fd:
                fcntl.lockf(fd, (fcntl.LOCK_SH if kind == fcntl.F_RDLCK else fcntl.LOCK_EX) | fcntl.LOCK_NB, n, start)
        return in_child(work)

    def try_flock(self, path, how):
        def work():
            with opened(path) as fd:
                fcntl.flock(fd, how | fcntl.LOCK_NB)
        return in_child(work)

    def act(self):
        for path in ("f0", "new"):
            write(path, b"x" * 10)
            with opened(path, os.O_RDWR) as fd:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
                yield f"posix {path}", self.try_posix(path, fcntl.F_WRLCK, 0, 5), self.try_posix(path, fcntl.F_WRLCK, 0, 6), \
                    self.try_posix(path, fcntl.F_RDLCK, 14, 1), self.try_posix(path, fcntl.F_RDLCK, 15, 1), in_child(lambda: self.holder(path))
                with opened(path, os.O_RDWR):
                    pass
                yield "gone with any close", self.try_posix(path, fcntl.F_WRLCK)
        with opened("f1") as ro, opened("f1", os.O_RDWR) as rw:
            fcntl.lockf(ro, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield "shared", self.try_posix("f1", fcntl.F_RDLCK), self.try_posix("f1", fcntl.F_WRLCK), \
                attempt(fcntl.lockf, ro, fcntl.LOCK_EX | fcntl.LOCK_NB), attempt(fcntl.lockf, rw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with opened("f2", os.O_RDWR) as a, opened("f2", os.O_RDWR) as b:
            fcntl.fcntl(a, OFD_SETLK, lock(fcntl.F_WRLCK))
            yield "OFD", attempt(lambda: bool(fcntl.fcntl(b, OFD_SETLK, lock(fcntl.F_WRLCK)))), self.try_posix("f2", fcntl.F_WRLCK), \
                struct.unpack("hhqqi4x", fcntl.fcntl(b, OFD_GETLK, lock(fcntl.F_RDLCK)))[0] == fcntl.F_WRLCK
        yield "OFD after close", self.try_posix("f2", fcntl.F_WRLCK)
        with opened("f3") as a, opened("f3") as b:
            fcntl.flock(a, fcntl.LOCK_EX)
            yield "flock", attempt(fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB), self.try_flock("f3", fcntl.LOCK_EX), \
                self.try_posix("f3", fcntl.F_WRLCK)
            fcntl.flock(a, fcntl.LOCK_SH)
            yield "flock shared", attempt(fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB), self.try_flock("f3", fcntl.LOCK_EX), \
                self.try_flock("f3", fcntl.LOCK_SH)
        yield "held by a reader, seen by a writer", self.reader_and_writer()
        yield "kept by another process", self.kept()

    def reader_and_writer(self):
        """The writer's first open makes overlayfs copy the file up: the lock must hold across that."""
        with opened("f4") as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            one = self.try_flock("f4", fcntl.LOCK_EX)
            write("f4", b"changed")
            return one, self.try_flock("f4", fcntl.LOCK_EX)

    def holder(self, path):
        with opened(path, os.O_RDWR) as fd:
            got = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, lock(fcntl.F_WRLCK)))
            return got[0] == fcntl.F_WRLCK, got[2], got[3], got[4] == os.getppid()

    def kept(self):
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            fd = os.open("f5", os.O_RDWR)
            fcntl.lockf(fd, fcntl.LOCK_EX)
            os.write(w, b"1")
            time.sleep(60)
            os._exit(0)
        os.read(r, 1)
        held = self.try_posix("f5", fcntl.F_WRLCK)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return held, self.try_posix("f5", fcntl.F_WRLCK)


class Maps(Topic):
    """Shared and private mappings, truncation beneath them, msync."""

    def make(self, m):
        for i in range(8):
            m.file(f"f{i}", pattern(20000, i))

    def act(self):
        with opened("f0", os.O_RDWR) as fd, mmap.mmap(fd, 20000) as a, mmap.mmap(fd, 20000) as b:
            a[100:105] = b"hello"
            yield "shared", b[100:105], os.pread(fd, 5, 100), read("f0")[100:105], in_child(lambda: read("f0")[100:105].decode())
            os.pwrite(fd, b"written", 9000)
            yield "written beside", a[9000:9007], attempt(a.flush)
            in_child(lambda: write_mapped("f0", 15000, b"child"))
            yield "another process's", a[15000:15005]
            os.ftruncate(fd, 8192)
            yield "within the end", a[8000:8004] == pattern(20000)[8000:8004], in_child(lambda: a[8192])
            os.ftruncate(fd, 20000)
            yield "up again", a[8192:8200], a[8000:8004] == pattern(20000)[8000:8004]
            a[19999] = 7
            yield "beyond the last page", in_child(lambda: touch_beyond("f0"))
        with opened("f1", os.O_RDWR) as fd, mmap.mmap(fd, 20000, mmap.MAP_PRIVATE) as p:
            p[0:3] = b"own"
            yield "private", os.pread(fd, 3, 0) == pattern(20000, 1)[:3], p[0:3]
            os.pwrite(fd, b"seen", 12000)
            os.pwrite(fd, b"not", 0)
            yield "private pages", p[12000:12004], p[0:3]
        with opened("f2") as fd:
            with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as p:
                os.unlink("f2")
                yield "of an unlinked file", p[5000:5004] == pattern(20000, 2)[5000:5004], p.size()
        with opened("f3") as fd:
            yield "writable of a descriptor for reading", attempt(mmap.mmap, fd, 0), attempt(lambda: mmap.mmap(fd, 0, mmap.MAP_PRIVATE).close())
        with opened("f4", os.O_WRONLY) as fd:
            yield "of a descriptor for writing", attempt(mmap.mmap, fd, 4096)
        with opened("f5", os.O_RDWR) as fd:
            m = mmap.mmap(fd, 20000)
            m[50:54] = b"late"
            os.rename("f5", "g5")
            m[54:58] = b"more"
            m.close()
        yield "renamed meanwhile", read("g5")[50:58]
        with opened("new", os.O_CREAT | os.O_RDWR) as fd:
            os.ftruncate(fd, 1 << 20)
            with mmap.mmap(fd, 1 << 20) as m:
                m[::4096] = b"z" * 256
        yield "a new sparse file", read("new").count(b"z")
        yield "time of a store", self.time_of_store()

    def time_of_store(self):
        before = os.stat("f6").st_mtime_ns
        time.sleep(0.02)
        write_mapped("f6", 1, b"q")
        return os.stat("f6").st_mtime_ns > before


def write_mapped(path, at, data):
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as m:
        m[at:at + len(data)] = data
        m.flush()


def touch_beyond(path):
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 20000) as m:
        os.ftruncate(fd, 4096)
        m[4096] = 1


EVENTS = {1: "ACCESS", 2: "MODIFY", 4: "ATTRIB", 8: "CLOSE_WRITE", 16: "CLOSE", 32: "OPEN", 64: "FROM", 128: "TO", 256: "CREATE",
          512: "DELETE", 1024: "DELETE_SELF", 2048: "MOVE_SELF", 0x8000: "IGNORED"}


class Notify(Topic):
    """inotify on directories and files, by the same process and another."""

    def make(self, m):
        for i in range(6):
            m.file(f"d/f{i}", b"data")
        m.dir("d/sub")
        m.dir("e")
        m.file("alone", b"data")

    def events(self, fd):
        out = []
        while True:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return out
            while data:
                _, mask, _, n = struct.unpack_from("iIII", data)
                names = [v for k, v in EVENTS.items() if mask & k] + (["DIR"] if mask & 0x40000000 else [])
                out.append((data[16:16 + n].rstrip(b"\0").decode(), "|".join(names)))
                data = data[16 + n:]

    def act(self):
        fd = syscall("inotify_init1", os.O_NONBLOCK)
        for path in ("d", "e", "alone"):
            syscall("inotify_add_watch", fd, path, 0xfff)
        steps = {
            "create": lambda: write("d/new", b"x"), "modify": lambda: write("d/f0", b"changed"), "append": lambda: write("d/f1", b"+", os.O_WRONLY | os.O_APPEND),
            "read": lambda: bool(read("d/f2")), "chmod": lambda: os.chmod("d/f2", 0o600), "unlink": lambda: os.unlink("d/f3"),
            "rename within": lambda: os.rename("d/f4", "d/g4"), "rename across": lambda: os.rename("d/f5", "e/f5"), "mkdir": lambda: os.mkdir("d/sub2"),
            "rmdir": lambda: os.rmdir("d/sub"), "link": lambda: os.link("d/new", "d/hard"), "symlink": lambda: os.symlink("x", "d/sym"),
            "replace": lambda: (write("e/tmp", b""), os.rename("e/tmp", "d/f0")), "the file itself": lambda: write("alone", b"again"),
            "another process": lambda: in_child(lambda: write("d/f1", b"child")), "the file goes": lambda: os.unlink("alone"),
        }
        for name, fn in steps.items():
            fn()
            yield name, self.events(fd)
        os.close(fd)


TOPICS = {"locks": Locks, "maps": Maps, "notify": Notify}
