/* Files: ls, cat, put, export, mount. */
#include "ntrd.h"

#include "../base/util.h"
#include "../exec/controller.h"
#include "../fs/port.h"

#include <errno.h>
#include <sys/stat.h>

int ntrd_op_ls(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	const char *path = ntrd_arg_bytes(rq, "path", NTRD_OPTIONAL);
	json_t *entries = NULL;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_ls(rq->ctl, session, rev, path ? path : "", &entries, rq->e);
	return r ? r : ntrd_reply_list(rq, "entries", entries);
}

int ntrd_op_cat(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	const char *path = ntrd_arg_bytes(rq, "path", NTRD_REQUIRED);
	uint32_t mode = 0;
	int r = rq->bad;

	if (!r)
		r = ntr_ctl_cat(rq->ctl, session, rev, path, rq->fds[0], &mode, rq->e);
	return r ? r : ntrd_reply_set(rq, "mode", json_integer(mode & 07777));
}

int ntrd_op_put(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *path = ntrd_arg_bytes(rq, "path", NTRD_REQUIRED);
	/* the type bits of a st_mode do no harm */
	uint32_t mode = (uint32_t)ntrd_arg_int(rq, "mode", 0, UINT16_MAX, 0644) & 07777;
	char commit[NTR_COMMIT_HEX + 1] = "";
	int r = rq->bad;

	if (!r)
		r = ntrd_check_inside(rq, session);
	if (!r)
		r = ntr_ctl_put(rq->ctl, session, path, rq->fds[0], mode, commit, rq->e);
	return r ? r : ntrd_reply_set(rq, "commit", ntrd_json_hex(commit));
}

/* ---- export */

static int write_out(struct ntrd_req *rq, const struct ntr_commit *c, bool tar, const char *label)
{
	struct ntr_snap s = ntr_snap_root(ntr_ctl_store(rq->ctl), c->root);
	const struct ntr_progress p = {.fn = ntrd_progress, .user = rq};

	return tar ? ntr_export_tar(&s, NTR_INO_ROOT, rq->fds[0], &p, rq->e)
	           : ntr_export_dir(&s, NTR_INO_ROOT, rq->fds[0], label, &p, rq->e);
}

int ntrd_op_export(struct ntrd_req *rq)
{
	static const char *const formats[] = {"dir", "tar", NULL};
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	const char *label = ntrd_arg_bytes(rq, "label", NTRD_OPTIONAL);
	int format = ntrd_arg_word(rq, "format", formats);
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};
	struct ntr_head h;
	struct stat st;
	int r = rq->bad;

	if (r)
		return r;
	if (format < 0)
		return ntrd_arg_bad(rq, "the member 'format' is missing");
	if (format == 0 && (fstat(rq->fds[0], &st) || !S_ISDIR(st.st_mode)))
		return ntrd_arg_bad(rq, "the descriptor is no directory");
	r = rev ? 0 : ntr_ctl_stage(rq->ctl, session, rq->e);
	if (!r)
		r = ntr_ctl_resolve(rq->ctl, session, rev ? rev : "HEAD", &c, &h, rq->e);
	if (!r)
		r = write_out(rq, &c, format == 1, label ? label : "the directory");
	if (r)
		return r;
	return ntrd_reply_row(rq, json_pack("{s:I,s:I,s:s}", "entries", (json_int_t)c.inodes, "bytes",
	                                  (json_int_t)c.bytes, "commit", c.hex));
}

/* ---- mount */

int ntrd_op_mount(struct ntrd_req *rq)
{
	const char *session = ntrd_arg_session(rq, "session", NTRD_REQUIRED);
	const char *rev = ntrd_arg_bytes(rq, "rev", NTRD_OPTIONAL);
	const char *where = ntrd_arg_bytes(rq, "where", NTRD_REQUIRED);
	pid_t pid;
	uid_t uid;
	int r = rq->bad;

	if (!r && !rev) /* a commit waits for nobody */
		r = ntrd_check_inside(rq, session);
	if (r)
		return r;
	if (rq->nfds)
		return ntr_ctl_mount_serve(rq->ctl, session, rev, where, rq->fds[0], rq->e);
	if (geteuid())
		return ntrd_arg_bad(rq, "an ordinary user's mount needs an open /dev/fuse");
	r = ntr_wire_peer(ntrd_conn_sock(rq->conn), &pid, &uid);
	return r ? r : ntr_ctl_mount_fd(rq->ctl, session, rev, where, pid, &rq->reply_fd, rq->e);
}
