#!/usr/bin/env python3
"""mount(2) without mount(8), which refuses ordinary users even where they may (in a user namespace of their own).

    mnt.py TYPE DIR [OPTIONS]      a new file system;  TYPE `bind`: OPTIONS is what to bind;  `ro`: DIR becomes read-only
"""

import ctypes
import os
import sys

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
# what a user namespace may not take off a mount that it was given
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 2, 4, 8, 1024, 2048, 1 << 21


def locked_flags(path):
    """The flags of the mount that path lies on: a remount has to repeat them."""
    v = os.statvfs(path).f_flag
    names = {os.ST_NOSUID: MS_NOSUID, os.ST_NODEV: MS_NODEV, os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: MS_NOATIME}
    names.update({os.ST_NODIRATIME: MS_NODIRATIME, os.ST_RELATIME: MS_RELATIME})
    return sum(flag for st, flag in names.items() if v & st)


def mount(source, target, fstype, flags, options):
    libc = ctypes.CDLL(None, use_errno=True)
    args = [a.encode() if a is not None else None for a in (source, target, fstype)]
    if libc.mount(*args, ctypes.c_ulong(flags), options.encode() if options else None):
        sys.exit("mnt.py: %s: %s" % (target, os.strerror(ctypes.get_errno())))


def main():
    kind, target = sys.argv[1:3]
    options = sys.argv[3] if len(sys.argv) > 3 else ""
    if kind == "bind":
        mount(options, target, None, MS_BIND | MS_REC, None)
    elif kind == "ro":
        mount(target, target, None, MS_BIND, None)
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | locked_flags(target), None)
    else:
        mount("none", target, kind, 0, options)


if __name__ == "__main__":
    main()
