#include "fsck_impl.h"

#include <errno.h>

enum { PAGE = 1 << NTR_FSCK_PAGE_BITS, PAGES_MAX = 1 << 28 };

/* Makes page i of a directory of pages, all zeros. */
static int page_make(void ***dir, size_t *n, uint64_t i, size_t bytes)
{
	if (i >= PAGES_MAX)
		return -ERANGE;
	if (i >= *n) {
		size_t bigger = NTR_MAX((size_t)i + 1, *n * 2);
		void **p = reallocarray(*dir, bigger, sizeof(*p));

		if (!p)
			return -ENOMEM;
		memset(p + *n, 0, (bigger - *n) * sizeof(*p));
		*dir = p;
		*n = bigger;
	}
	if (!(*dir)[i])
		(*dir)[i] = calloc(1, bytes);
	return (*dir)[i] ? 0 : -ENOMEM;
}

static void pages_free(void **dir, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(dir[i]);
	free(dir);
}

static uint64_t *word(const struct ntr_fsck_bits *b, uint64_t id)
{
	uint64_t i = id >> NTR_FSCK_PAGE_BITS;

	return i < b->npages && b->page[i] ? &b->page[i][id % PAGE / 64] : NULL;
}

bool ntr_fsck_bits_test(const struct ntr_fsck_bits *b, uint64_t id)
{
	const uint64_t *w = word(b, id);

	return w && *w >> id % 64 & 1;
}

int ntr_fsck_bits_add(struct ntr_fsck_bits *b, uint64_t id)
{
	void **dir = (void **)b->page;
	int r = page_make(&dir, &b->npages, id >> NTR_FSCK_PAGE_BITS, PAGE / 8);
	uint64_t *w;

	b->page = (uint64_t **)dir;
	w = r ? NULL : word(b, id);
	if (w)
		*w |= UINT64_C(1) << id % 64;
	return r;
}

void ntr_fsck_bits_done(struct ntr_fsck_bits *b)
{
	pages_free((void **)b->page, b->npages);
	*b = (struct ntr_fsck_bits){0};
}

uint32_t ntr_fsck_lens_get(const struct ntr_fsck_lens *l, uint64_t id)
{
	uint64_t i = id >> NTR_FSCK_PAGE_BITS;

	return i < l->npages && l->page[i] ? l->page[i][id % PAGE] : 0;
}

int ntr_fsck_lens_put(struct ntr_fsck_lens *l, uint64_t id, uint32_t len)
{
	void **dir = (void **)l->page;
	int r = page_make(&dir, &l->npages, id >> NTR_FSCK_PAGE_BITS, PAGE * sizeof(uint32_t));

	l->page = (uint32_t **)dir;
	if (!r)
		l->page[id >> NTR_FSCK_PAGE_BITS][id % PAGE] = len;
	return r;
}

void ntr_fsck_lens_done(struct ntr_fsck_lens *l)
{
	pages_free((void **)l->page, l->npages);
	*l = (struct ntr_fsck_lens){0};
}
