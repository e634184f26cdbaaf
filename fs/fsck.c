#include "fsck.h"

#include "fsck_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void ntr_fsck_problem(struct ntr_fsck_run *k, const char *fmt, ...)
{
	char text[1536];
	va_list ap;

	k->f->problems++;
	if (!k->f->problem)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	k->f->problem(k->f->user, text);
}

void ntr_fsck_progress(struct ntr_fsck_run *k, const char *stage, uint64_t done, uint64_t total)
{
	if (k->f->progress)
		k->f->progress(k->f->user, stage, done, total);
}

const char *ntr_fsck_hex(const struct ntr_fsck_commit *c, char buf[NTR_COMMIT_PREFIX + 1])
{
	for (size_t i = 0; i < NTR_COMMIT_PREFIX / 2; i++)
		snprintf(buf + 2 * i, 3, "%02x", c->name[i]);
	return buf;
}

static int commit_compare(const void *key, const void *c)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct ntr_fsck_commit *)c)->id;

	return (a > b) - (a < b);
}

struct ntr_fsck_commit *ntr_fsck_commit_find(struct ntr_fsck_run *k, uint64_t id)
{
	return k->nc ? bsearch(&id, k->c, k->nc, sizeof(*k->c), commit_compare) : NULL;
}

static int head_compare(const void *key, const void *h)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct ntr_fsck_head *)h)->sid;

	return (a > b) - (a < b);
}

struct ntr_fsck_head *ntr_fsck_head_find(struct ntr_fsck_run *k, uint64_t sid)
{
	return k->nh ? bsearch(&sid, k->h, k->nh, sizeof(*k->h), head_compare) : NULL;
}

/* The database's own checksums. What it finds damaged the later stages find again where it matters, with
 * names. */
static int files_check(struct ntr_fsck_run *k)
{
	struct ntr_err e = {0};
	int r;

	ntr_fsck_progress(k, "database", 0, 1);
	r = ntr_kv_verify(k->s->kv, &e);
	if (r == -EUCLEAN || r == -EIO)
		ntr_fsck_problem(k, "database: %s: %s", e.what, ntr_err_reason(&e));
	else if (r)
		return r;
	ntr_fsck_progress(k, "database", 1, 1);
	return 0;
}

static void run_done(struct ntr_fsck_run *k)
{
	ntr_fsck_lens_done(&k->lens);
	free(k->c);
	free(k->h);
}

int ntr_fsck_run(struct ntr_store *s, struct ntr_fsck *f, struct ntr_err *e)
{
	static int (*const stages[])(struct ntr_fsck_run * k) = {
	        files_check, ntr_fsck_meta, ntr_fsck_chunks, ntr_fsck_nodes, ntr_fsck_trees};
	ntr_auto(run_done) struct ntr_fsck_run k = {.s = s, .f = f};
	int r = 0;

	f->sessions = f->commits = f->nodes = f->items = f->inodes = f->chunks = f->bytes = f->problems = 0;
	for (size_t i = 0; !r && i < NTR_COUNT(stages); i++)
		r = stages[i](&k);
	return r ? ntr_err_default(e, r, "check store '%s'", ntr_store_path(s)) : 0;
}
