"""The program that stands for a command of the embedding program's in a session's PATH."""

from __future__ import annotations

import os
import shlex
import sys

# It passes its stdin, stdout and stderr on and waits for the exit code. No import but of built-in modules: it starts fast.
SOURCE = r"""
import os, sys
try:
    import _socket as socket
except ImportError:
    import socket
name = os.path.basename(sys.argv[0])
def fail(why):
    os.write(2, ("%s: %s\n" % (name, why)).encode("utf-8", "surrogateescape"))
    os._exit(126)
for fd in (0, 1, 2):  # before anything else is opened, which would take the number
    try:
        os.fstat(fd)
    except OSError:
        os.open("/dev/null", os.O_RDWR)
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    s.connect(PATH)
except OSError as e:
    fail("the program that offers this command does not answer (%s)" % e.strerror)
try:
    cwd = os.getcwd()
except OSError:
    cwd = ""
body = b"\0".join(os.fsencode(x) for x in [name, cwd] + sys.argv[1:])
data = len(body).to_bytes(4, "little") + body
fds = b"".join(n.to_bytes(4, sys.byteorder) for n in (0, 1, 2))
try:
    n = s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    while n < len(data):
        n += s.send(data[n:])
    said = s.recv(1)
except OSError:
    said = b""
os._exit(said[0]) if said else fail("the program that offers this command ended in the middle of it")
"""


def script(socket_path: str) -> str:
    """Text of an executable that asks at that socket."""
    interpreter = sys.executable or "/usr/bin/python3"
    body = SOURCE.replace("PATH", repr(socket_path), 1)
    shebang = f"#!{interpreter} -IS\n"
    if len(os.fsencode(shebang)) > 120 or " " in interpreter:
        quoted = shlex.quote(interpreter)
        return f"#!/bin/sh\n'''exec' {quoted} -IS \"$0\" \"$@\"\n' '''\n{body}"
    return shebang + body
