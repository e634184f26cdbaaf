/* initproto: what ntrd and ntr-init say to each other over the socketpair that is ntr-init's descriptor 3
 * (frames as in base/wire.h).
 *
 * ntrd -> ntr-init, first of all:
 *   {"op":"start","session":S,"wsroot":W,"user":bool,"userxattr":bool,"mounts":[{"point":B,"dir":B,
 * "rw":bool}]?,"tree":HEX?} fds versions upper work
 *       enters the namespaces, places and mounts the view. Answer {"ok":true,"pid":P,"mntns":N} or
 * {"error":E}; on an error it exits afterwards. With "tmpfs":BYTES in start, fold and swap, upper and work
 * are taken as patterns only: their part is played by directories of a tmpfs of that size, and the answer has
 * "upper_fd":N and a descriptor of upper (N is its number in ntr-init). When ntrd dies then, ntr-init ends
 * the session's processes, calls itself NTR_INIT_HELD and waits until it is told to end, so that the next
 * ntrd can open /proc/PID/fd/N. versions is the versions mount, HEX a tree's
 * name in it (none: versions itself), which becomes the overlay's lower: ntrd itself never looks anything up
 * there. Then any of these; each with "req":N (a number that the answer repeats), several may be under way:
 *   {"op":"call","argv":[B…] | "script":B,"env":[B…],"cwd":B,"umask":N}    fds stdin stdout stderr
 *       runs it: a new session and process group (pgid = pid), default signal dispositions. At once {"req":N,
 *       "started":pid}; when the main process has ended {"req":N,"code":0..255,"signal":0|N,"state":null |
 *       {"cwd":B,"umask":N,"env":[B…]},"background":N}: signal != 0 when it was killed by one (code is then
 * 128+signal); state: of a script's bash at its end; background: processes of the session still alive. A
 * command that cannot be executed: the reason is printed on the call's stderr, code 126 or 127. A cwd that is
 * gone: the call starts in wsroot, and "cwd_gone":true.
 *   {"op":"py","python":P?,"path":PATH,"preload":[M…]?,"readonly":bool}     fds stdin stdout stderr channel
 *       forks a process of the session's warm interpreter (init_py.h), which learns the rest through the
 * channel; answers as to call, state null. An interpreter that cannot start is an error.
 *   {"op":"signal","call":N,"sig":N}        to the process group of the call with that req. Answer
 * {"req","ok":bool}
 *   {"op":"kill","call":N|0,"grace_ms":N}   SIGTERM, after grace SIGKILL (grace 0: at once) to the whole tree
 * of one call, or of the session (0). Answer when all are gone {"req","killed":count}
 *   {"op":"ps"} {"req","procs":[{"pid","ppid","call","state","cmd":[B…],"start_ns"}]}
 *   {"op":"background"} {"req","background":N}   as in the answer to call, now
 *   {"op":"freeze"} / {"op":"thaw"}         stops / continues every process of the session (not the ones
 * stopped before).
 *                                           {"req","frozen":count} once they really stand still
 *   {"op":"mapped"}                         paths (below wsroot) that live processes map shared:
 *                                           {"req","paths":[B…]} after sync_file_range of each
 *   {"op":"fold","tree":HEX} fds versions upper work  new overlay beneath, then the old one off if nobody
 * uses it:
 *                                           {"req","ok":true}, or {"req","busy":true} with everything as
 * before
 *   {"op":"swap","tree":HEX} fds versions upper work  for rollback: kills all processes, detaches, mounts
 * anew.
 * {"req","ok","killed"}
 *   {"op":"open","path":B,"flags":N,"mode":N,"make":bool?}   opens below wsroot, symlinks that lead out
 *                                           refused; with make, what is not there is made:
 *                                           {"req","ok":true,"made":bool} fd, or {"req","errno":N}
 *   {"op":"list","path":B} fds pipe         a child writes what is there (entries.h): {"req","ok"|"errno"}
 *   {"op":"pathop","kind":"mkdir|unlink|rmdir|rename|chmod|symlink","path":B,"to":B,"mode":N}
 * {"req","ok"|"errno"}
 *   {"op":"tree","tree":HEX} fds versions empty   before start, too: a detached mount of that commit's tree:
 *                                           {"req","ok"} fd
 *   {"op":"clone"}                          a detached clone of the view's mount: {"req","ok"} fd
 *   {"op":"serve","rw":true}  fds fuse      a helper process serves the view on an open /dev/fuse descriptor
 *   {"op":"passes","what":W[,"force":true]} those helpers: W "count"; "release": they let go of the view (ok
 *                                           false: one has files open, unless force); "resume": they take
 *                                           it again: {"req","ok","passes":N}
 *   {"op":"there","path":B}                 can a call start in that directory, of the view or not?
 *   {"op":"stop"}                           kills all, answers {"req","ok"}, exits
 * Any request may answer {"req","error":E}, E as in docs/protocol.md. When the socket closes (ntrd died)
 * ntr-init kills every process of the session and exits. */
#ifndef NTR_EXEC_INITPROTO_H
#define NTR_EXEC_INITPROTO_H

enum { NTR_INIT_FD = 3, NTR_INIT_PROTOCOL = 1 };
#define NTR_OVERLAY_WHAT "mount the session's overlay"
#define NTR_INIT_HELD    "ntr-init-held"

#endif
