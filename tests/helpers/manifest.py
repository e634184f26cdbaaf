#!/usr/bin/env python3
"""manifest.py DIR: one line a path: type, mode, owner, size, mtime (ns), links, symlink target, xattrs, sha256.

Hard links are named by the first path of their group. Directories show no size and no link count (filesystems
disagree about both) and, with --no-dir-times, no times. Two trees are the same when their manifests are.
"""
import hashlib
import os
import stat
import sys

KIND = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p", stat.S_IFSOCK: "s",
        stat.S_IFCHR: "c", stat.S_IFBLK: "b"}


def digest(path):
    h = hashlib.sha256()
    try:
        f = open(path, "rb")
    except PermissionError:
        return "unreadable"
    with f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def xattrs(path):
    out = []
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if name.startswith((b"security." if isinstance(name, bytes) else "security.")):
            continue
        try:
            value = os.getxattr(path, name, follow_symlinks=False).hex()
        except PermissionError:
            value = "unreadable"
        out.append(f"{name}={value}")
    return ",".join(out)


def walk(top):
    for root, dirs, files in os.walk(top):
        dirs.sort()
        yield root
        for name in sorted(files + [d for d in dirs if os.path.islink(os.path.join(root, d))]):
            yield os.path.join(root, name)


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    dir_times = "--no-dir-times" not in sys.argv
    top = os.fsencode(args[0])
    first = {}
    for path in walk(top):
        st = os.lstat(path)
        rel = os.path.relpath(path, top)
        kind = KIND[stat.S_IFMT(st.st_mode)]
        line = [rel.decode("utf-8", "surrogateescape").encode("unicode_escape", "surrogateescape").decode("latin-1"),
                kind, oct(st.st_mode & 0o7777), f"{st.st_uid}:{st.st_gid}"]
        if kind != "d":
            line += [str(st.st_size), f"n{st.st_nlink}"]
            if st.st_nlink > 1:
                line.append("=" + repr(first.setdefault((st.st_dev, st.st_ino), rel)))
        if kind != "d" or dir_times:
            line.append(f"m{st.st_mtime_ns}")
        if kind == "l":
            line.append(repr(os.readlink(path)))
        if kind == "f":
            line.append(digest(path))
        if kind in "cb":
            line.append(f"{os.major(st.st_rdev)}:{os.minor(st.st_rdev)}")
        extra = xattrs(path)
        print(*line, extra)


main()
