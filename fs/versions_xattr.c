/* GETXATTR and LISTXATTR.
 *
 * An overlayfs above reads trusted.overlay.* (an ordinary user's, with userxattr: user.overlay.*) as its own
 * marks and shows trusted.overlay.overlay.X as trusted.overlay.X to its users. A stored attribute of that
 * kind is a user's own (absorb has unescaped it), so it is served with one more "overlay."; the other kind
 * means nothing to it and passes as it is. A mount of one tree alone is seen without an overlayfs: there
 * names are served as they are. */
#include "../base/buf.h"
#include "../base/upperfs.h"
#include "versions_impl.h"

#include <stdio.h>
#include <unistd.h>

static const char more[] = "overlay.";

/* The mark that a name begins with, or NULL. */
static const char *mark_of(const char *name)
{
	const char *mark = ntr_fs_userxattr() ? "user.overlay." : "trusted.overlay.";

	return strncmp(name, mark, strlen(mark)) ? NULL : mark;
}

bool ntr_vxattr_escape(const char *stored, char *out)
{
	const char *m = mark_of(stored);
	int n = m ? snprintf(out, NTR_VXATTR_MAX, "%s%s%s", m, more, stored + strlen(m))
	          : snprintf(out, NTR_VXATTR_MAX, "%s", stored);

	return n >= 0 && n < NTR_VXATTR_MAX;
}

bool ntr_vxattr_unescape(const char *served, char *out)
{
	const char *m = mark_of(served);
	const char *rest = m ? served + strlen(m) : served;

	if (m && strncmp(rest, more, strlen(more)) != 0)
		return false;
	if (m)
		rest += strlen(more);
	int n = snprintf(out, NTR_VXATTR_MAX, "%s%s", m ? m : "", rest);

	return n >= 0 && n < NTR_VXATTR_MAX;
}

static bool escaped(const struct ntr_versions *v)
{
	return v->o.root == 0;
}

/* size 0 asks for the length. */
static void reply(struct ntr_vslot *s, fuse_req_t req, const void *data, size_t len, size_t size)
{
	if (size && len > size) {
		ntr_vreq_err(s, req, ERANGE);
	} else if (ntr_vreq_claim(s)) {
		if (size)
			fuse_reply_buf(req, data, len);
		else
			fuse_reply_xattr(req, len);
	}
}

void ntr_vop_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_GETXATTR);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	ntr_autofree uint8_t *val = NULL;
	char stored[NTR_VXATTR_MAX];
	size_t len;

	if (!s)
		return;
	if (v->o.plain) {
		ntr_vreq_err(s, req, ENOSYS);
		return;
	}
	if (ntr_vnode_is_top(n) || strlen(name) >= sizeof(stored) ||
	        (escaped(v) && !ntr_vxattr_unescape(name, stored))) {
		ntr_vreq_err(s, req, ENODATA);
		return;
	}
	int r = ntr_xattr_get(&snap, n->ino, escaped(v) ? stored : name, &val, &len);

	if (r)
		ntr_vreq_err(s, req, r == -ENOENT ? ENODATA : -r);
	else
		reply(s, req, val, len, size);
}

struct lister {
	struct ntr_buf names;
	bool escape, trusted;
};

static int add_name(void *user, const char *name, const uint8_t *val, size_t len)
{
	struct lister *l = user;
	char out[NTR_VXATTR_MAX];

	(void)val;
	(void)len;
	/* as every file system does for those who could not read them */
	if (!l->trusted && !strncmp(name, "trusted.", 8))
		return 0;
	if (!l->escape)
		return ntr_buf_add(&l->names, name, strlen(name) + 1);
	if (!ntr_vxattr_escape(name, out))
		return 0;
	return ntr_buf_add(&l->names, out, strlen(out) + 1);
}

void ntr_vop_listxattr(fuse_req_t req, fuse_ino_t id, size_t size)
{
	struct ntr_versions *v = fuse_req_userdata(req);
	struct ntr_vnode *n = ntr_vnode_of(v, id);
	struct ntr_vslot *s = ntr_vreq_begin(req, NTR_VOP_LISTXATTR);
	struct ntr_snap snap = ntr_vnode_snap(v, n);
	struct lister l = {.escape = escaped(v), .trusted = fuse_req_ctx(req)->uid == 0};

	if (!s)
		return;
	/* a plain mount's trees hold none; the kernel caches that no better than an answer, and cp asks twice
	 * a file */
	int r = v->o.plain || ntr_vnode_is_top(n) ? 0 : ntr_xattr_each(&snap, n->ino, add_name, &l);

	if (r)
		ntr_vreq_err(s, req, -r);
	else
		reply(s, req, l.names.data, l.names.len, size);
	ntr_buf_done(&l.names);
}
