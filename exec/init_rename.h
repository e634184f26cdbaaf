/* init_rename: rename(2) of a committed directory where overlayfs refuses it (EXDEV, without redirect_dir).
 * Private to init_rename*.c.
 *
 *     caller   stops in rename(2): a seccomp filter that all of the session inherits    init_rename_filter.c
 *     helper   a child of ntr-init, gets every such stop and lets nearly all go on      init_rename_answer.c
 *     mover    a child of the helper, one per directory: asks as the caller would,      init_rename_call.c
 *              then copies and moves                                                    init_rename_move.c,
 * _copy.c ntr-init gives one mover at a time its turn, and stops the session for it         init_rename.c
 *
 * A mover's socket to ntr-init, one datagram each way: 'T' may I touch the view? -> 't'; 'F' may I have it
 * alone? -> 'f' and the descriptors of lower, upper and work. Its end gives back both. */
#ifndef NTR_EXEC_INIT_RENAME_H
#define NTR_EXEC_INIT_RENAME_H

#include "../base/shownino.h"
#include "../base/util.h"

#include <limits.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* Renames of ntr-init's own, and those of its helpers, carry it as a sixth argument: the filter lets them
 * pass. */
#define NTR_RENAME_PLAIN UINT64_C(0x6e74722d6d6f7665)
/* On what was copied out of the commit, in upper: the tree inode it was. overlayfs shows nobody its own
 * prefix. */
#define NTR_RENAME_MARK "user.overlay.ntr"

enum { NTR_RENAME_LOWER, NTR_RENAME_UPPER, NTR_RENAME_WORK, NTR_RENAME_FDS };

enum { NTR_ANSWER_IDLE, NTR_ANSWER_BUSY, NTR_ANSWER_PAUSED };
struct ntr_rename_shared {      /* of ntr-init and the helper */
	_Atomic uint32_t pause; /* a futex */
	_Atomic uint32_t state;
	_Atomic uint32_t xino; /* inode numbers tell the layers apart */
	_Atomic uint64_t id;   /* the stop that the helper has in hand; 0: none */
};

struct ntr_rename_helper { /* what the helper has */
	int notify, ctl;
	const char *wsroot;
	struct ntr_rename_shared *shared;
};

struct ntr_rename_hello { /* of a mover, with its socket, through ctl */
	uint64_t id;
	int32_t pid; /* the caller */
};

struct ntr_rename_call { /* a caller's rename, or link */
	uint64_t id;
	pid_t pid;
	int from_dir, to_dir;
	unsigned flags;
	bool link;
	char from[PATH_MAX], to[PATH_MAX];
};

struct ntr_rename_place { /* a name in an opened directory of the view */
	int dir;
	char name[NAME_MAX + 1];
};

struct ntr_rename_move {
	const struct ntr_rename_helper *h;
	uint64_t id;
	struct ntr_rename_place from, to;
	unsigned flags;
	int layers[NTR_RENAME_FDS];
};

/* ---- init_rename_filter.c ---- */
/* Puts the filter on this process. *ret_killable: a caller whose stop has been received can only be killed.
 * -EBUSY: there is one around us already. */
int ntr_rename_filter(int *ret_notify, bool *ret_killable);
/* What a stop asks for: 0, or -EINVAL (none of ours). Reads the caller's memory. */
int ntr_rename_decode(const struct seccomp_notif *n, struct ntr_rename_call *ret);
/* result: 0 or negative errno; go_on: the kernel shall do it. */
void ntr_rename_reply(int notify, uint64_t id, int result, bool go_on);
bool ntr_rename_waits(int notify, uint64_t id); /* the caller lives and waits */
int ntr_rename_plain(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int ntr_rename_plain_link(int from_dir, const char *from, int to_dir, const char *to);

/* ---- init_rename_answer.c ---- */
void __attribute__((noreturn)) ntr_rename_answer(const struct ntr_rename_helper *h);
/* 1: the call's source (or, of an exchange, its target) is a directory of the view. cached: -EAGAIN instead
 * of asking a filesystem. */
int ntr_rename_concerns(const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool cached);

/* ---- init_rename_call.c ---- */
/* The caller's result: 0 or negative errno. *ret_go_on: it shall be the kernel's. */
int ntr_rename_serve_call(
        const struct ntr_rename_helper *h, const struct ntr_rename_call *c, bool sure, bool *ret_go_on);

/* ---- init_rename_move.c ---- */
int ntr_rename_move(struct ntr_rename_move *m);

/* ---- init_rename_copy.c ---- */
struct ntr_rename_copied { /* what came out of the commit */
	char *path;        /* below the moved directory */
	uint64_t ino;      /* of the tree; 0: do not say */
};
struct ntr_rename_link; /* a file with several names */
struct ntr_rename_copy {
	const struct ntr_rename_move *move;
	int stage; /* the copy's top */
	struct ntr_rename_copied *v;
	size_t n, cap;
	struct ntr_rename_link *links;
};
/* Copies what a committed directory holds, but what upper has of it, into c->stage. from, upper, lower: the
 * directory in the view and in the layers (-1: not there). */
int ntr_rename_copy(struct ntr_rename_copy *c, int from, int upper, int lower);
void ntr_rename_copy_done(struct ntr_rename_copy *c);
/* Owner, mode, attributes and (times) times of one directory to another. raw: `to` is of upper. */
int ntr_rename_look_like(int from, int to, bool raw, bool times);
/* The names in a directory, without "." and "..", NULL at the end; free with ntr_strv_free. */
int ntr_rename_names(int dir, char ***ret);
/* A layer's own directory `name` in dir (either may be -1: none), O_PATH. */
int ntr_rename_layer(int dir, const char *name);
bool ntr_rename_opaque(int upper_dir); /* nothing of the commit shows in it */

#endif
