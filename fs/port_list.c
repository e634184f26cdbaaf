#include "port_impl.h"

#include <errno.h>
#include "port_hash.h"

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ntr_listed *)a)->name, ((const struct ntr_listed *)b)->name);
}

void ntr_listing_done(struct ntr_listing *l)
{
	free(l->v);
	free(l->names);
	*l = (struct ntr_listing){0};
}

static int gather(const struct ntr_snap *s, uint64_t dir, struct ntr_buf *v, struct ntr_buf *names)
{
	struct ntr_dir_iter it;
	struct ntr_dirent en;
	int r;

	ntr_dir_iter_init(&it, s, dir, 0);
	while ((r = ntr_dir_iter_next(&it, &en)) > 0) {
		struct ntr_listed x = {.ino = en.ino, .dtype = en.dtype};

		ntr_buf_add(v, &x, sizeof x);
		ntr_buf_add(names, en.name, en.name_len + 1u);
		if (v->err || names->err) {
			r = -ENOMEM;
			break;
		}
	}
	ntr_dir_iter_done(&it);
	return r;
}

int ntr_listing_read(const struct ntr_snap *s, uint64_t dir, struct ntr_listing *ret)
{
	ntr_auto(ntr_buf_done) struct ntr_buf v = {0}, names = {0};
	int r = gather(s, dir, &v, &names);
	const char *p;

	if (r)
		return r;
	ret->n = v.len / sizeof ret->v[0];
	ret->v = (struct ntr_listed *)(void *)ntr_steal_ptr(v.data);
	ret->names = (char *)ntr_steal_ptr(names.data);
	p = ret->names; /* set only now: the buffer moved while it grew */
	for (size_t i = 0; i < ret->n; i++, p += strlen(p) + 1)
		ret->v[i].name = p;
	if (ret->n)
		qsort(ret->v, ret->n, sizeof ret->v[0], by_name);
	return 0;
}

struct ntr_linkmap_entry {
	uint64_t ino;
	UT_hash_handle hh;
	char path[];
};

int ntr_linkmap_note(struct ntr_linkmap *m, uint64_t ino, const char *path, const char **ret_first)
{
	size_t n = strlen(path) + 1;
	struct ntr_linkmap_entry *x;

	*ret_first = NULL;
	HASH_FIND(hh, m->head, &ino, sizeof ino, x);
	if (x) {
		*ret_first = x->path;
		return 0;
	}
	x = malloc(sizeof *x + n);
	if (!x)
		return -ENOMEM;
	x->ino = ino;
	memcpy(x->path, path, n);
	HASH_ADD(hh, m->head, ino, sizeof ino, x);
	if (ntr_hashed(hh, x))
		return 0;
	free(x);
	return -ENOMEM;
}

void ntr_linkmap_done(struct ntr_linkmap *m)
{
	struct ntr_linkmap_entry *x, *next;

	HASH_ITER (hh, m->head, x, next) {
		HASH_DEL(m->head, x);
		free(x);
	}
}
