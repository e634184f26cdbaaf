#!/usr/bin/env python3
"""inturn.py write DIR SECONDS: numbered records to DIR/a1 … a4, to each after the one before, as fast as it goes: appended
(a1 a2) and stored into shared mappings (a3 a4), which are written to without any system call. A timer and a child run
on meanwhile. Ends with a line in DIR/../report: records, the longest pause between two of them, timer ticks, child.

inturn.py check DIR: prints the four numbers; fails when a later one has what an earlier one lacks.
"""
import mmap
import os
import signal
import struct
import sys
import time

ROOM = 4096
ticks = 0


def tick(*_):
    global ticks
    ticks += 1


def mapped(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, ROOM)
    return mmap.mmap(fd, ROOM)


def write(where, seconds):
    appended = [os.open(f"{where}/a{i}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for i in (1, 2)]
    maps = [mapped(f"{where}/a{i}") for i in (3, 4)]
    child = os.fork()
    if not child:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
        os._exit(7)
    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    n, longest, last = 0, 0.0, time.monotonic()
    end = last + seconds
    while last < end:
        n += 1
        for fd in appended:
            os.write(fd, b"%019d\n" % n)
        for m in maps:
            m[:8] = struct.pack("<Q", n)
        now = time.monotonic()
        longest = max(longest, now - last)
        last = now
        if n % 64 == 0:
            time.sleep(0.0002)
    signal.setitimer(signal.ITIMER_REAL, 0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"{where}/report", "w", encoding="ascii") as f:
        print(n, f"{longest:.4f}", ticks, status, file=f)


def check(where):
    last = []
    for i in (1, 2):
        with open(f"{where}/a{i}", "rb") as f:
            records = f.read()
        if len(records) % 20 or (records and int(records[-20:]) != len(records) // 20):
            return f"a{i} ends with {records[-40:]!r} after {len(records) // 20} records"
        last.append(len(records) // 20)
    for i in (3, 4):
        with open(f"{where}/a{i}", "rb") as f:
            last.append(struct.unpack("<Q", f.read(8) or bytes(8))[0])  # empty: just made
    print(*last)
    if sorted(last, reverse=True) != last or last[0] - last[3] > 1:
        return f"no one moment: {last}"
    return None


if __name__ == "__main__":
    if sys.argv[1] == "write":
        sys.exit(write(sys.argv[2], float(sys.argv[3])))
    sys.exit(check(sys.argv[2]))
