/* POSIX ACLs. The kernel keeps one as the attribute system.posix_acl_access or …_default: LE32 version 2,
 * then per entry LE16 tag, LE16 permissions, LE32 id, ordered by tag. Tars keep it as text (SCHILY.acl.*),
 * libarchive as entries, of which the three that every file has live in the mode. */
#include "port_impl.h"

#include <errno.h>

enum { ACL_VERSION = 2, ENTRY_BYTES = 8, ACL_ENTRIES_MAX = 1024 };
enum { TAG_USER_OBJ = 1, TAG_USER = 2, TAG_GROUP_OBJ = 4, TAG_GROUP = 8, TAG_MASK = 16, TAG_OTHER = 32 };

static const char access_name[] = "system.posix_acl_access", default_name[] = "system.posix_acl_default";

static const struct {
	unsigned tag;
	int arch;
} tags[] = {
        {TAG_USER_OBJ, ARCHIVE_ENTRY_ACL_USER_OBJ},
        {TAG_USER, ARCHIVE_ENTRY_ACL_USER},
        {TAG_GROUP_OBJ, ARCHIVE_ENTRY_ACL_GROUP_OBJ},
        {TAG_GROUP, ARCHIVE_ENTRY_ACL_GROUP},
        {TAG_MASK, ARCHIVE_ENTRY_ACL_MASK},
        {TAG_OTHER, ARCHIVE_ENTRY_ACL_OTHER},
};

bool ntr_acl_is_xattr(const char *name)
{
	return !strcmp(name, access_name) || !strcmp(name, default_name);
}

static int arch_tag(unsigned tag)
{
	for (size_t i = 0; i < NTR_COUNT(tags); i++)
		if (tags[i].tag == tag)
			return tags[i].arch;
	return 0;
}

int ntr_acl_to_entry(struct archive_entry *en, const char *name, const uint8_t *val, size_t len)
{
	int type = strcmp(name, access_name) ? ARCHIVE_ENTRY_ACL_TYPE_DEFAULT : ARCHIVE_ENTRY_ACL_TYPE_ACCESS;

	if (len < 4 || (len - 4) % ENTRY_BYTES || ntr_get_le32(val) != ACL_VERSION)
		return -EINVAL;
	for (size_t off = 4; off < len; off += ENTRY_BYTES) {
		unsigned tag = ntr_get_le16(val + off);
		bool named = tag == TAG_USER || tag == TAG_GROUP;

		if (!arch_tag(tag))
			return -EINVAL;
		if (archive_entry_acl_add_entry(en, type, ntr_get_le16(val + off + 2) & 7, arch_tag(tag),
		            named ? (int)ntr_get_le32(val + off + 4) : -1, NULL) != ARCHIVE_OK)
			return -EINVAL;
	}
	return 0;
}

struct acl_entry {
	unsigned tag, perm;
	uint32_t id;
};
struct acl {
	struct acl_entry v[ACL_ENTRIES_MAX];
	size_t n;
};

static int by_tag(const void *a, const void *b)
{
	const struct acl_entry *x = a, *y = b;

	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static int gather(struct archive_entry *en, int type, struct acl *ret)
{
	int t, perm, arch, id;
	const char *name;

	ret->n = 0;
	if (!archive_entry_acl_reset(en, type))
		return 0;
	while (archive_entry_acl_next(en, type, &t, &perm, &arch, &id, &name) == ARCHIVE_OK) {
		struct acl_entry *x = &ret->v[ret->n];

		if (ret->n == ACL_ENTRIES_MAX)
			return -E2BIG;
		x->tag = 0;
		for (size_t i = 0; i < NTR_COUNT(tags); i++)
			if (tags[i].arch == arch)
				x->tag = tags[i].tag;
		x->perm = (unsigned)perm & 7;
		x->id = x->tag == TAG_USER || x->tag == TAG_GROUP ? (uint32_t)id : UINT32_MAX;
		if (!x->tag)
			return -EINVAL;
		ret->n++;
	}
	return 0;
}

static const struct acl_entry *find(const struct acl *a, unsigned tag)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].tag == tag)
			return &a->v[i];
	return NULL;
}

/* An ACL that names somebody must have a mask: where the tar has none, it is what allows everything named. */
static int complete(struct acl *a)
{
	unsigned perm = 0;

	if (find(a, TAG_MASK) || (!find(a, TAG_USER) && !find(a, TAG_GROUP)))
		return 0;
	if (a->n == ACL_ENTRIES_MAX)
		return -E2BIG;
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].tag & (TAG_USER | TAG_GROUP | TAG_GROUP_OBJ))
			perm |= a->v[i].perm;
	a->v[a->n++] = (struct acl_entry){TAG_MASK, perm, UINT32_MAX};
	return 0;
}

static int store(struct acl *a, const char *name, struct ntr_xattrs *x)
{
	uint8_t val[4 + ENTRY_BYTES * ACL_ENTRIES_MAX];

	if (!find(a, TAG_USER_OBJ) || !find(a, TAG_GROUP_OBJ) || !find(a, TAG_OTHER))
		return -EINVAL;
	qsort(a->v, a->n, sizeof a->v[0], by_tag);
	ntr_put_le32(val, ACL_VERSION);
	for (size_t i = 0; i < a->n; i++) {
		uint8_t *p = val + 4 + i * ENTRY_BYTES;

		ntr_put_le16(p, (uint16_t)a->v[i].tag);
		ntr_put_le16(p + 2, (uint16_t)a->v[i].perm);
		ntr_put_le32(p + 4, a->v[i].id);
	}
	return ntr_xattrs_add(x, name, val, 4 + a->n * ENTRY_BYTES);
}

int ntr_acl_from_entry(struct archive_entry *en, struct ntr_xattrs *x, uint32_t *mode)
{
	struct acl a;
	const struct acl_entry *mask;
	int r = gather(en, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, &a);

	if (!r)
		r = complete(&a);
	if (!r && a.n > 3) {
		mask = find(&a, TAG_MASK);
		if (mask) /* with a mask, the group bits of the mode are the mask's */
			*mode = (*mode & ~070u) | mask->perm << 3;
		r = store(&a, access_name, x);
	}
	if (!r)
		r = gather(en, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, &a);
	if (!r)
		r = complete(&a);
	return r || !a.n ? r : store(&a, default_name, x);
}
