"""Names: rename, link, unlink, rmdir, long and hostile names, directories while they change."""
import ctypes
import os
import random
import shutil

from posixlib import (EXCHANGE, NOBODY, NOREPLACE, ROOT, Topic, as_nobody, attempt, attempt_open, in_child, kind, libc,
                      link_fd, mode_of, opened, read, renameat2, syscall, write)

KINDS = ["none", "file", "empty", "full", "link", "dangling", "fifo"]


class Rename(Topic):
    """Every pair of types with every flag."""

    PAIRS = [(name, flag, a, b) for name, flag in (("plain", 0), ("noreplace", NOREPLACE), ("exchange", EXCHANGE))
             for a in KINDS for b in KINDS]

    def make(self, m):
        for name, _, a, b in self.PAIRS:
            d = f"{name}.{a}.{b}"
            m.dir(d)
            m.kind(d + "/a", a)
            m.kind(d + "/b", b)

    def act(self):
        for name, flag, a, b in self.PAIRS:
            d = f"{name}.{a}.{b}"
            yield d, attempt(renameat2, d + "/a", d + "/b", flag), kind(d)
        yield "flags", attempt(renameat2, "plain.none.file/b", "x", NOREPLACE | EXCHANGE), \
            attempt(renameat2, "plain.none.file/b", "x", 64)


class Ancestors(Topic):
    """Directories into themselves, over their parents, with all that is in them, and paths that end oddly."""

    def make(self, m):
        for t in ("t", "u", "v", "w", "s", "q", "p/o"):
            for i in range(3):
                m.file(f"{t}/x/y{i}/f", b"%d" % i)
                m.symlink(f"{t}/x/l{i}", f"y{i}/f")
        m.file("f")
        m.file("g")
        m.dir("empty")
        m.symlink("loop", "loop")
        m.symlink("tolink", "t")

    def act(self):
        for a, b in (("t", "t/x/y0/n"), ("t", "t/x"), ("t", "t/n"), ("t/x/y0", "t"), ("t/x", "t"), ("t/.", "n"),
                     ("t", "u/."), ("t/..", "n"), (".", "n"), ("..", "n"), ("t", ".."), ("f/", "n"), ("f", "n/"),
                     ("t/x", "f/"), ("t/x", "f"), ("f", "t/"), ("f", "none/n"), ("f", "g/n"), ("f/x", "n"), ("", "n"),
                     ("f", ""), ("f", "n" * 256), ("loop/x", "n"), ("f", "loop/x"), ("f", "f"), ("t", "t"), ("f", "loop"),
                     ("tolink", "tolink2"), ("tolink2/x", "t/X"), ("t/X", "t/x"), ("f", "/proc/n")):
            yield f"{a} {b[:20]}", attempt(renameat2, a, b)
        yield "exchange below", attempt(renameat2, "t", "t/x", EXCHANGE), attempt(renameat2, "t/x", "t", EXCHANGE)
        yield "after", kind(".")
        yield "move", attempt(renameat2, "t/x", "moved"), kind("moved"), kind("t")
        yield "again", attempt(renameat2, "moved", "u/moved"), kind("u/moved")
        yield "over empty", attempt(renameat2, "u/moved", "empty"), kind("empty")
        yield "change within", attempt(write, "empty/y1/f", b"changed"), attempt(os.unlink, "empty/y2/f"), \
            attempt(os.rename, "empty/y0/f", "empty/y2/g"), attempt(write, "empty/y0/n", b"new"), kind("empty")
        yield "the old name", attempt(os.mkdir, "t/x"), kind("t")
        yield "in turn", [attempt(renameat2, *p) for p in (("v", "n"), ("w", "v"), ("n", "w"))], kind("v"), kind("w")
        yield "exchange", attempt(renameat2, "v/x", "w/x/y0", EXCHANGE), kind("v"), kind("w")
        yield "exchange with a file", attempt(renameat2, "s/x", "g", EXCHANGE), kind("s"), kind("g")
        yield "inside out", [attempt(renameat2, *p) for p in (("q/x/y1", "inner"), ("q", "inner/q"), ("inner/q/x", "q"))], \
            kind("inner"), kind("q")
        yield "parents", attempt(renameat2, "p/o/x", "p/x"), attempt(os.rmdir, "p/o"), attempt(renameat2, "p", "p2"), kind("p2")
        yield "remove all", attempt(self.remove, "w"), attempt(os.mkdir, "w"), kind("w")

    def remove(self, path):
        for name in os.listdir(path):
            sub = os.path.join(path, name)
            if os.path.isdir(sub) and not os.path.islink(sub):
                self.remove(sub)
            else:
                os.unlink(sub)
        os.rmdir(path)


class Rights(Topic):
    """Sticky bits, and directories without write or search."""

    OPS = {"rename": lambda p: renameat2(p, p + "2"), "replace": lambda p: renameat2("free/" + p.replace("/", "-"), p),
           "unlink": os.unlink, "link": lambda p: os.link(p, p + "3"), "create": lambda p: write(p + "4", b""),
           "mkdir": lambda p: os.mkdir(p + "5"), "open": read, "chmod": lambda p: os.chmod(p, 0o600),
           "utime": os.utime, "set time": lambda p: os.utime(p, ns=(1, 1)), "truncate": lambda p: os.truncate(p, 1)}

    def make(self, m):
        for d, mode in (("sticky", 0o1777), ("closed", 0o555), ("blind", 0o755), ("search", 0o711)):
            m.dir(d)
            for op in self.OPS:
                for owner in ("mine", "other"):
                    m.file(f"{d}/{op}-{owner}")
        m.dir("free", 0o777)

    def act(self):
        os.chmod("free", 0o777)
        for d in ("sticky", "closed", "blind", "search"):
            for op in self.OPS:
                for owner in ("mine", "other"):
                    write(f"free/{d}-{op}-{owner}", b"")
                    for p in (f"{d}/{op}-{owner}", f"free/{d}-{op}-{owner}"):
                        if ROOT:
                            os.chown(p, NOBODY if owner == "mine" else 1000, NOBODY)
                        os.chmod(p, 0o644)
        for d, mode in (("sticky", 0o1777), ("closed", 0o555), ("blind", 0o444), ("search", 0o311)):
            if ROOT:
                os.chown(d, 1000, 1000)
            os.chmod(d, mode)
            for op, fn in self.OPS.items():
                for owner in ("mine", "other"):
                    value = as_nobody(lambda: fn(f"{d}/{op}-{owner}"))
                    yield f"{d} {op} {owner}", value if isinstance(value, str) and value.startswith("E") else "ok"
        for d in ("sticky", "closed", "blind", "search"):
            os.chmod(d, 0o755)
            yield d, sorted(os.listdir(d))


class Links(Topic):
    """Links and removals, with descriptors open."""

    def make(self, m):
        for i in range(6):
            m.file(f"f{i}", b"%d" % i * 5000)
        m.dir("empty")
        m.dir("cwd")
        m.file("full/f")
        m.symlink("sym", "f1")
        m.symlink("dangling", "nowhere")
        m.fifo("pipe")
        m.dir("d/e")

    def act(self):
        for path in ("f0", "new"):
            write(path, b"x")
            yield f"link of {path}", attempt(os.link, path, path + "l"), os.stat(path).st_nlink, read(path + "l")[:2]
            write(path + "l", b"both", os.O_WRONLY | os.O_APPEND)
            yield "written by the other", read(path)[-4:], os.stat(path + "l").st_nlink
        yield "rename to another name of it", attempt(renameat2, "new", "newl"), os.path.samefile("new", "newl")
        for a, b in (("empty", "n"), ("none", "n"), ("f1", "f2"), ("f1", "empty"), ("f1", "f2/n"), ("f1", "none/n"),
                     ("f1", "n" * 256), ("f1", "/proc/n"), ("f1", "dangling"), ("f1/", "n"), ("", "n"), ("f1", "")):
            yield f"link {a} {b[:9]}", attempt(os.link, a, b)
        yield "link of a symlink", attempt(lambda: os.link("sym", "sym2", follow_symlinks=False)), attempt(os.readlink, "sym2")
        yield "link through a symlink", attempt(syscall, "linkat", -100, "sym", -100, "lf1", 0x400), kind("lf1")
        yield "link of a fifo", attempt(os.link, "pipe", "pipe2"), kind("pipe2"), os.stat("pipe").st_nlink
        yield "errors", attempt(os.unlink, "empty"), attempt(os.unlink, "none"), attempt(os.unlink, "f1/x"), \
            attempt(os.rmdir, "full"), attempt(os.rmdir, "f1"), attempt(os.rmdir, "sym"), attempt(os.rmdir, "."), \
            attempt(os.rmdir, "full/."), attempt(os.rmdir, "full/.."), attempt(os.rmdir, "none"), attempt(os.unlink, "f1/")
        yield from self.open_files()
        yield from self.open_dirs()
        yield from self.unnamed()
        for i in range(300):
            os.link("f5", f"many{i}")
        yield "many links", os.stat("many299").st_nlink, len({os.stat(f"many{i}").st_ino for i in range(300)})
        for i in range(0, 300, 2):
            os.unlink(f"many{i}")
        yield "half of them", os.stat("f5").st_nlink, read("many299")[:3]

    def open_files(self):
        with opened("f2", os.O_RDWR) as fd, opened("f2") as other:
            os.unlink("f2")
            os.pwrite(fd, b"after", 2)
            yield "unlinked", os.fstat(fd).st_nlink, os.pread(other, 9, 0), os.fstat(other).st_size, attempt(os.ftruncate, fd, 3), \
                os.fstat(other).st_size, attempt(link_fd, fd, "back"), attempt(os.lstat, "f2")
            write("f2", b"new")
            yield "its name again", os.pread(fd, 9, 0), read("f2")
        with opened("f3") as fd:
            os.unlink("f3")
            yield "unlinked, only read", os.pread(fd, 3, 4000), os.lseek(fd, 0, 2)
        with opened("f4") as fd:
            write("n4", b"replacement")
            os.rename("n4", "f4")
            yield "replaced", os.pread(fd, 3, 0), read("f4")

    def open_dirs(self):
        with opened("d/e", os.O_DIRECTORY) as fd:
            os.rmdir("d/e")
            yield "removed directory", attempt(os.listdir, fd), \
                attempt(lambda: os.open("n", os.O_CREAT | os.O_WRONLY, dir_fd=fd)), attempt(lambda: os.mkdir("n", dir_fd=fd))

        def in_cwd():
            os.chdir("cwd")
            os.rmdir("../cwd")
            return attempt(os.getcwd), attempt(os.listdir, "."), attempt(write, "n", b""), attempt(os.stat, "..") != "ENOENT"
        yield "removed working directory", in_child(in_cwd)

    def unnamed(self):
        with opened(".", os.O_TMPFILE | os.O_RDWR, 0o640) as fd:
            os.write(fd, b"unnamed")
            yield "O_TMPFILE", os.fstat(fd).st_nlink, attempt(link_fd, fd, "named"), os.fstat(fd).st_nlink, mode_of("named")
            os.write(fd, b" more")
            yield "and its link", read("named"), attempt(link_fd, fd, "named"), attempt(link_fd, fd, "second"), os.stat("second").st_nlink
        with opened(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL) as fd:
            yield "O_TMPFILE | O_EXCL", attempt(link_fd, fd, "never")
        yield "O_TMPFILE errors", attempt_open(".", os.O_TMPFILE | os.O_RDONLY), attempt_open("named", os.O_TMPFILE | os.O_RDWR), \
            attempt_open("none", os.O_TMPFILE | os.O_RDWR)


class Opens(Topic):
    """open(2): flags against types, and through symlinks."""

    FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "creat": os.O_CREAT | os.O_WRONLY,
             "excl": os.O_CREAT | os.O_EXCL | os.O_WRONLY, "trunc": os.O_WRONLY | os.O_TRUNC, "dir": os.O_DIRECTORY,
             "nofollow": os.O_NOFOLLOW, "path": os.O_PATH, "path nofollow": os.O_PATH | os.O_NOFOLLOW,
             "creat dir": os.O_CREAT | os.O_DIRECTORY, "noatime": os.O_NOATIME, "append": os.O_WRONLY | os.O_APPEND}

    def make(self, m):
        for what in KINDS[1:]:
            m.kind(what, what)
        m.symlink("tofile", "file")
        m.symlink("tonew", "made")
        m.symlink("loop", "loop")
        m.file("readonly", mode=0o444)
        m.file("none-at-all", mode=0)

    def act(self):
        for path in KINDS + ["tofile", "loop", "readonly", "none-at-all", "file/", "empty/", "none/", "tofile/x"]:
            for name, flags in self.FLAGS.items():
                if "creat" in name and path in ("none", "dangling"):
                    continue
                yield f"{path} {name}", attempt_open(path, flags | os.O_NONBLOCK)
        yield "through a dangling symlink", attempt_open("tonew", os.O_CREAT | os.O_WRONLY), kind("made"), \
            attempt_open("tonew", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        yield "a symlink's end", attempt_open("dangling", os.O_RDONLY), attempt(os.readlink, "dangling"), attempt(os.readlink, "file")


class Hostile(Topic):
    """Names of 255 bytes, of any bytes, and paths of PATH_MAX."""

    NAMES = ["n" * 255, "ü" * 127 + "x", "\udcff\udcfe\udc80", "new\nline", "-rf", " ", "tab\t", "\x01\x7f", "é", "e\u0301", "E", "e",
             "%00", "\\", "'", '"', "*", "?", "{a,b}", "$HOME", ".a", "...", "#work", "wh.x", ".wh.x", ".wh..opq", "trash.1", ".fuse_hidden0001"]

    def make(self, m):
        for i, name in enumerate(self.NAMES):
            m.file(name, b"%d" % i)
            m.file("d/" + name + "/" + name, b"%d" % i)

    def act(self):
        yield "listing", sorted(os.listdir(b".")) == sorted([os.fsencode(n) for n in self.NAMES] + [b"d"])
        yield "contents", [read(n) == b"%d" % i == read(f"d/{n}/{n}") for i, n in enumerate(self.NAMES)].count(False)
        for i, name in enumerate(self.NAMES):
            new = "r" + name[:-1]
            results = [attempt(write, name, b"x"), attempt(renameat2, name, new), attempt(os.unlink, new), attempt(os.lstat, name),
                       attempt(renameat2, f"d/{name}/{name}", name), attempt(os.rmdir, "d/" + name)]
            yield f"name {i}", results, attempt(read, name)
        yield "too long", attempt(write, "n" * 256, b""), attempt(os.mkdir, "ü" * 128), attempt(os.lstat, "n" * 256), \
            attempt(os.symlink, "x", "n" * 256), attempt(os.mkfifo, "n" * 256)
        yield "dots", attempt(os.mkdir, "."), attempt(os.mkdir, ".."), attempt(os.symlink, "x", ".")


class Deep(Topic):
    """Paths of PATH_MAX, and a tree that is deeper than any path. Nothing of it stays: other programs could not name it."""

    LONG = "/".join(["p" * 100] * 40)
    MIDDLE = "/".join(["m" * 100] * 20)

    def make(self, m):
        m.file(self.LONG + "/" + "g" * 30, b"deep")
        m.file("f")
        for name in ("f", "g", "d/in"):
            m.file(f"{self.MIDDLE}/{name}", name.encode())
        if m.part != "even":
            self.down(os.mkdir)
            write("bottom", b"far")
            self.up()

    def down(self, each):
        self.top = os.getcwd()
        for _ in range(300):
            each("s" * 50)
            os.chdir("s" * 50)

    def up(self):
        os.chdir(self.top)

    def act(self):
        longest = self.LONG + "/" + "f" * (4095 - len(self.LONG) - 1)
        yield "PATH_MAX", attempt(write, longest, b"long"), attempt(read, longest), attempt(write, longest + "x", b""), \
            attempt(read, self.LONG + "/" + "g" * 30)
        yield "renames", attempt(renameat2, self.LONG + "/" + "g" * 30, self.LONG + "/h"), attempt(renameat2, longest, "out"), \
            attempt(renameat2, "f", longest), kind("out"), kind(longest), attempt(os.unlink, self.LONG + "/h")
        yield "from a long path", attempt(renameat2, self.MIDDLE + "/f", "moved"), attempt(os.link, self.MIDDLE + "/g", "linked"), \
            attempt(renameat2, self.MIDDLE + "/d", "dir"), kind("moved"), kind("linked"), kind("dir"), kind(self.MIDDLE)
        self.down(os.stat)
        yield "deeper than any path", read("bottom"), attempt(write, "bottom", b"new"), read("bottom"), attempt(os.rename, "bottom", "b")
        self.up()
        shutil.rmtree("s" * 50)
        shutil.rmtree("p" * 100)
        shutil.rmtree("m" * 100)
        yield "symlinks", attempt(os.symlink, "t" * 4095, "sl"), len(os.readlink("sl")), attempt(os.symlink, "t" * 4096, "sl2"), \
            attempt(os.symlink, "", "sl3")


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16), ("type", ctypes.c_uint8),
                ("name", ctypes.c_char * 256)]


libc.opendir.restype = libc.readdir.restype = libc.seekdir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
for fn in (libc.readdir, libc.telldir, libc.rewinddir, libc.closedir):
    fn.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class Dir:
    """A stream of a directory's names, without . and .."""

    def __init__(self, path):
        self.d = libc.opendir(os.fsencode(path))

    def next(self):
        while p := libc.readdir(self.d):
            name = ctypes.cast(p, ctypes.POINTER(Dirent)).contents.name
            if name not in (b".", b".."):
                return name
        return None

    def __iter__(self):
        while (name := self.next()) is not None:
            yield name

    def close(self):
        libc.closedir(self.d)


class Listing(Topic):
    """A directory of many entries while entries come and go. POSIX_ENTRIES: how many."""

    COUNT = int(os.environ.get("POSIX_ENTRIES", "700"))

    def make(self, m):
        for d in ("change", "seek", "purge"):
            for i in range(self.COUNT):
                m.object(f"{d}/e{i:07}", lambda: write(f"{d}/e{i:07}", b""))

    def act(self):
        names = {b"e%07d" % i for i in range(self.COUNT)}
        yield "all", set(Dir("change")) == names
        yield from self.change(names)
        yield from self.seek(names)
        d, gone = Dir("purge"), 0
        for name in d:
            os.unlink(b"purge/" + name)
            gone += 1
        d.close()
        yield "removed while listed", gone == self.COUNT, os.listdir("purge"), attempt(os.rmdir, "purge"), attempt(os.mkdir, "purge"), \
            os.listdir("purge")

    def change(self, names):
        r, d, seen, removed, added = random.Random(7), Dir("change"), [], set(), set()
        order = sorted(names)
        for i, name in enumerate(d):
            seen.append(name)
            if i % 7 == 0:
                victim = order[r.randrange(len(order))]
                if victim not in removed:
                    os.unlink(b"change/" + victim)
                    removed.add(victim)
                added.add(b"new%d" % i)
                write(b"change/new%d" % i, b"")
        d.close()
        stay = names - removed
        yield "each that stays once", len(seen) == len(set(seen)), stay <= set(seen), set(seen) <= names | added
        yield "afterwards", set(Dir("change")) == stay | added
        yield "rewound", self.rewound(stay | added)
        for name in Dir("change"):  # which are there depends on the order
            os.unlink(b"change/" + name)

    def rewound(self, names):
        d = Dir("change")
        d.next()
        write("change/late", b"")
        libc.rewinddir(d.d)
        found = set(d)
        d.close()
        return found == names | {b"late"}

    def seek(self, names):
        d, at, order = Dir("seek"), [], []
        while True:
            at.append(libc.telldir(d.d))
            name = d.next()
            if name is None:
                break
            order.append(name)
        r, wrong = random.Random(3), 0
        for _ in range(200):
            i = r.randrange(len(order))
            libc.seekdir(d.d, at[i])
            wrong += d.next() != order[i]
        libc.seekdir(d.d, at[len(order) // 2])
        rest = list(d)
        d.close()
        yield "seekdir", wrong, rest == order[len(order) // 2:], set(order) == names


TOPICS = {"rename": Rename, "ancestors": Ancestors, "rights": Rights, "links": Links, "opens": Opens, "hostile": Hostile,
          "deep": Deep, "listing": Listing}
