#!/usr/bin/env python3
"""limits.py make|act: what a session does otherwise than ext4, for committed files, as docs/posix.md has it. Each line is
`name: what happened`. In a plain directory, or for new files, the same program shows what POSIX wants."""
import errno
import mmap
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from posixlib import attempt, in_child, opened, read, renameat2, tick, write  # noqa: E402


def make():
    for name in "abcdefghijklm":
        write(name, b"committed\n" * 1000)
    for name in ("one", "six", "two"):
        write(name, b"linked\n")
        os.link(name, name + "-2")
    os.makedirs("dir/sub")
    os.mkfifo("pipe")


def hard_link_broken():
    write("one", b"L")
    return "follows" if read("one-2") == read("one") else "broken"


def hard_links_one_inode():
    os.chmod("six", 0o600)
    return os.stat("six-2").st_mode & 0o777 == 0o600


def link_count_after_unlink():
    os.unlink("six")
    return os.stat("six-2").st_nlink


def rename_of_one_link_to_another():
    os.rename("two", "two-2")
    return "both stay" if os.path.exists("two") else "one goes"


def mapped_before_first_write():
    with opened("a") as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
        m[:1]
        in_child(lambda: write("a", b"CHANGED"))
        return m[:7].decode()


def read_before_first_write():
    with opened("b") as fd:
        os.pread(fd, 1, 0)
        in_child(lambda: write("b", b"CHANGED"))
        return os.pread(fd, 7, 0).decode()


def link_count_of_removed():
    with opened("c") as fd:
        os.unlink("c")
        return os.fstat(fd).st_nlink


def link_count_of_removed_directory():
    with opened("dir/sub", os.O_DIRECTORY) as fd:
        os.rmdir("dir/sub")
        return os.fstat(fd).st_nlink


def inode_number_across_first_write():
    was = os.stat("d").st_ino
    write("d", b"x")
    return "kept" if os.stat("d").st_ino == was else "changed"


def inode_number_of_new_link():
    write("e", b"x")
    os.link("e", "e2")
    return "same" if os.path.samefile("e", "e2") else "another"


def rename_to_the_same_file():
    write("f", b"x")
    os.link("f", "f2")
    return attempt(renameat2, "f", "f2")


def copy_file_range():
    with opened("g") as src, opened("g2", os.O_WRONLY | os.O_CREAT) as dst:
        return attempt(os.copy_file_range, src, dst, 100)


def rename_whiteout():
    return attempt(renameat2, "h", "h2", 4)


def open_of_mode_3():
    return attempt(lambda: os.close(os.open("i", 3)))


def ctime_at_first_open():
    was = os.stat("j").st_ctime_ns
    tick()
    with opened("j", os.O_RDWR):
        pass
    return "moved" if os.stat("j").st_ctime_ns > was else "kept"


def mtime_at_open_after_chmod():
    os.chmod("k", 0o600)
    was = os.stat("k").st_mtime_ns
    tick()
    with opened("k", os.O_RDWR):
        pass
    return "moved" if os.stat("k").st_mtime_ns > was else "kept"


def missing_attribute():
    return attempt(os.getxattr, "l", "user.none")


LIMITS = [hard_link_broken, hard_links_one_inode, link_count_after_unlink, rename_of_one_link_to_another,
          mapped_before_first_write, read_before_first_write,
          link_count_of_removed, link_count_of_removed_directory, inode_number_across_first_write, inode_number_of_new_link,
          rename_to_the_same_file, copy_file_range, rename_whiteout, open_of_mode_3, ctime_at_first_open, mtime_at_open_after_chmod,
          missing_attribute]

if sys.argv[1] == "make":
    make()
else:
    for fn in LIMITS:
        try:
            print(f"{fn.__name__}: {fn()}")
        except OSError as e:
            print(f"{fn.__name__}: {errno.errorcode[e.errno]}")
