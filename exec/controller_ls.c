/* ls: in the view of a live session the supervisor's child lists (entries.h), else the tree is read. */
#include "controller_impl.h"
#include "entries.h"

#include "../base/shownino.h"
#include "../fs/file.h"
#include "../fs/names.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static int add(const struct ntr_snap *snap, const struct ntr_inode *in, const char *name, json_t *list)
{
	bool link = in->data_kind == NTR_DATA_SYMLINK;
	char target[4097] = "";
	struct stat st;

	ntr_inode_stat(snap->store, in, &st);
	st.st_ino = ntr_shown_of(in->ino, in->tag);
	if (link) {
		memcpy(target, in->payload, in->payload_len);
		target[in->payload_len] = '\0';
	}
	return json_array_append_new(list, ntr_entries_one(name, &st, link ? target : NULL)) ? -ENOMEM : 0;
}

static int ls_dir(const struct ntr_snap *snap, uint64_t dir, struct ntr_inode *in, json_t *list)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, snap, dir, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) == 1) {
		r = ntr_inode_get(snap, en.ino, in);
		if (!r)
			r = add(snap, in, en.name, list);
		if (r)
			break;
	}
	ntr_dir_iter_done(&it);
	return r;
}

/* follow: a symlink that the path leads to is -ELOOP. */
static int ls_tree(const struct ntr_snap *snap, const char *path, bool follow, json_t *list)
{
	ntr_autofree struct ntr_inode *in = malloc(sizeof *in);
	const char *base = strrchr(path, '/');
	int r = ntr_path_inode(snap, path, in);

	if (r)
		return r;
	if (S_ISDIR(in->mode))
		return ls_dir(snap, in->ino, in, list);
	if (S_ISLNK(in->mode) && follow)
		return -ELOOP;
	if (base && !base[1])
		return -ENOTDIR;
	return add(snap, in, base ? base + 1 : path, list);
}

static const char *sort_key(const json_t *o, char **ret_own)
{
	*ret_own = NULL;
	ntr_json_get_bytes(json_object_get(o, "name"), ret_own, NULL);
	return *ret_own ? *ret_own : "";
}

static int by_name(const void *a, const void *b)
{
	ntr_autofree char *x = NULL, *y = NULL;
	const char *p = sort_key(*(json_t *const *)a, &x), *q = sort_key(*(json_t *const *)b, &y);

	return strcmp(p, q);
}

static json_t *sorted(json_t *list)
{
	size_t n = json_array_size(list);
	ntr_autofree json_t **v = calloc(n + 1, sizeof *v);
	json_t *out = json_array();

	for (size_t i = 0; v && i < n; i++)
		v[i] = json_array_get(list, i);
	if (v)
		qsort(v, n, sizeof *v, by_name);
	for (size_t i = 0; v && i < n; i++)
		json_array_append(out, v[i]);
	return out;
}

/* *ret_again: the mount below the view, or the supervisor, ended meanwhile; or the view has to be asked. */
static int ls_once(struct ntr_ctl *c, const char *session, const char *rev, const char *path, json_t *list,
        bool *ret_again, struct ntr_err *e)
{
	struct ntr_snap snap;
	const char *inner;
	int fd = -1;
	int r = ntr_ctl_list_now(c, session, rev, path, &fd, &snap, &inner, e);

	*ret_again = false;
	if (r)
		return r;
	json_array_clear(list);
	if (fd < 0) {
		r = ls_tree(&snap, inner, !rev, list);
		*ret_again = !rev && ntr_ctl_asks_view(r);
	} else {
		r = ntr_entries_read(fd, list);
		*ret_again = r == -ENOTCONN || r == -ECONNABORTED || r == -EINTR;
	}
	return r;
}

int ntr_ctl_ls(struct ntr_ctl *c, const char *session, const char *rev, const char *path, json_t **ret,
        struct ntr_err *e)
{
	ntr_autojson json_t *list = json_array();
	bool again = false;
	int r = list ? ls_once(c, session, rev, path, list, &again, e) : -ENOMEM;

	if (again) {
		r = ntr_ctl_make_live(c, session, e);
		if (!r)
			r = ls_once(c, session, rev, path, list, &again, e);
	}
	if (r)
		return ntr_ctl_path_fail(e, r, "list", path);
	*ret = sorted(list);
	return *ret ? 0 : -ENOMEM;
}
