#!/usr/bin/env python3
"""layers.py STATE POINT CMD...: a command over plain overlayfs, where all that earlier commands made is in lower layers.

Each command has an upper of its own; what it leaves there is the topmost lower layer of the next. So it meets what it
would meet in a session after a fold, but no code of ours: what fails here is overlayfs. As root, where an upper can be.
The options are those of root's sessions; POINT is where the command sees the files, in a mount namespace of its own.
"""
import ctypes
import os
import shutil
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_PRIVATE_REC = 0x20000, 0x44000
FSOPEN, FSCONFIG, FSMOUNT, MOVE_MOUNT = 430, 431, 432, 429
SET_STRING, CREATE = 1, 6
MOST = 400   # overlayfs takes 500


def checked(what: str, r: int) -> int:
    if r < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")
    return r


def overlay(layers: list[str], upper: str, work: str, point: str) -> None:
    fs = checked("fsopen", libc.syscall(FSOPEN, b"overlay", 0))
    options = [("lowerdir+", d) for d in reversed(layers)]
    options += [("upperdir", upper), ("workdir", work)]
    options += [("redirect_dir", "on"), ("metacopy", "on"), ("index", "off"), ("xino", "on")]
    for key, value in options:
        checked(key, libc.syscall(FSCONFIG, fs, SET_STRING, key.encode(), os.fsencode(value), 0))
    checked("overlay", libc.syscall(FSCONFIG, fs, CREATE, None, None, 0))
    mount = checked("fsmount", libc.syscall(FSMOUNT, fs, 0, 0))
    checked("move_mount", libc.syscall(MOVE_MOUNT, mount, b"", -100, os.fsencode(point), 4))
    os.close(mount)
    os.close(fs)


def copy(src: int, dst: int, seen: dict[int, int]) -> None:
    """A directory's entries, by descriptors, for paths may be longer than PATH_MAX; seen: inode -> a descriptor of its copy."""
    for name in os.listdir(src):
        st = os.stat(name, dir_fd=src, follow_symlinks=False)
        if st.st_ino in seen:
            os.link(f"/proc/self/fd/{seen[st.st_ino]}", name, dst_dir_fd=dst, follow_symlinks=True)
            continue
        if stat.S_ISDIR(st.st_mode):
            os.mkdir(name, dir_fd=dst)
            a, b = (os.open(name, os.O_DIRECTORY, dir_fd=d) for d in (src, dst))
            copy(a, b, seen)
            os.close(a)
            os.close(b)
        elif stat.S_ISLNK(st.st_mode):
            os.symlink(os.readlink(name, dir_fd=src), name, dir_fd=dst)
        elif stat.S_ISREG(st.st_mode):
            with open(os.open(name, os.O_RDONLY, dir_fd=src), "rb") as f, open(
                    os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=dst), "wb") as g:
                shutil.copyfileobj(f, g)
        else:
            os.mknod(name, st.st_mode, st.st_rdev, dir_fd=dst)
        os.chown(name, st.st_uid, st.st_gid, dir_fd=dst, follow_symlinks=False)
        if not stat.S_ISLNK(st.st_mode):
            os.chmod(name, stat.S_IMODE(st.st_mode), dir_fd=dst)
        os.utime(name, ns=(st.st_atime_ns, st.st_mtime_ns), dir_fd=dst, follow_symlinks=False)
        if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
            seen[st.st_ino] = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=dst)


def like(path: str, model: str) -> None:
    st = os.stat(model)
    os.chown(path, st.st_uid, st.st_gid)
    os.chmod(path, stat.S_IMODE(st.st_mode))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def main() -> int:
    state, point, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    upper, work = state + "/upper", state + "/work"
    if not os.path.exists(state):
        for d in (state, upper, work, state + "/0"):
            os.mkdir(d)
    numbers = sorted(int(d) for d in os.listdir(state) if d.isdigit())
    checked("unshare", libc.unshare(CLONE_NEWNS))
    checked("private", libc.mount(None, b"/", None, MS_PRIVATE_REC, None))
    overlay([f"{state}/{n}" for n in numbers], upper, work, point)
    pid = os.fork()
    if not pid:
        try:
            os.chdir(os.environ["PJD_CWD"])
            os.execvp(command[0], command)
        except OSError as e:
            print(f"{command[0]}: {e}", file=sys.stderr)
        os._exit(127)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not os.listdir(upper):
        checked("umount", libc.umount2(os.fsencode(point), 0))
    else:
        top = f"{state}/{numbers[-1] + 1}"
        if len(numbers) >= MOST:   # all in one: the only case in which a ctime or an inode number changes for it
            os.mkdir(top)
            a, b = (os.open(d, os.O_DIRECTORY) for d in (point, top))
            copy(a, b, {})
            like(top, upper)
            for n in numbers:
                shutil.rmtree(f"{state}/{n}")
            shutil.rmtree(upper)
        else:
            checked("umount", libc.umount2(os.fsencode(point), 0))
            os.rename(upper, top)
        os.mkdir(upper)
        like(upper, top)
    return status if status >= 0 else 128 - status


sys.exit(main())
