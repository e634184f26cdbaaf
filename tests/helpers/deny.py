#!/usr/bin/env python3
"""Runs a program for which some system calls fail, as on a kernel or in a container without them.

    deny.py ERRNO:SYSCALL… -- ARGV…        deny.py ENODEV:fsopen -- ntr run -- true

A seccomp filter, so that whatever the program starts has it too. Set-uid programs still work where the caller may
install a filter without no_new_privs (root, and who has the capabilities of a user namespace).
"""

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {  # x86_64 (aarch64 shares those from 424 on)
    "x86_64": (0xC000003E, {"mount": 165, "unshare": 272, "setns": 308}),
    "aarch64": (0xC00000B7, {"mount": 40, "unshare": 97, "setns": 268}),
}
COMMON = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "openat2": 437}
LD_ABS, JEQ, RET = 0x20, 0x15, 0x06
RET_ERRNO, RET_ALLOW = 0x00050000, 0x7FFF0000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def program(rules):
    arch, own = NUMBERS[platform.machine()]
    numbers = {**COMMON, **own}
    code = [(LD_ABS, 0, 0, 4), (JEQ, 1, 0, arch), (RET, 0, 0, RET_ALLOW), (LD_ABS, 0, 0, 0)]
    for rule in rules:
        name, call = rule.split(":")
        code += [(JEQ, 0, 1, numbers[call]), (RET, 0, 0, RET_ERRNO | getattr(errno, name))]
    code.append((RET, 0, 0, RET_ALLOW))
    return code


def install(code):
    libc = ctypes.CDLL(None, use_errno=True)
    text = b"".join(struct.pack("HBBI", *c) for c in code)
    buf = ctypes.create_string_buffer(text)
    fprog = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buf))
    if libc.prctl(PR_SET_SECCOMP, FILTER, fprog, 0, 0) == 0:
        return
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER, fprog, 0, 0):
        sys.exit("deny.py: " + os.strerror(ctypes.get_errno()))


def main():
    split = sys.argv.index("--")
    install(program(sys.argv[1:split]))
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])


if __name__ == "__main__":
    main()
