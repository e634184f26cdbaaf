/* controller_cache: what the files of the cache share. Everything here wants the cache's lock. */
#ifndef NTR_EXEC_CONTROLLER_CACHE_H
#define NTR_EXEC_CONTROLLER_CACHE_H

#include "../fs/cache.h"
#include "controller_impl.h"

struct ntr_cache_change {
	char *key, *val; /* val NULL: deleted */
	size_t len;
	bool applied; /* in the transaction that is being committed */
	UT_hash_handle hh;
};

struct ntr_cache {
	pthread_mutex_t m; /* innermost of all locks */
	struct ntr_cache_change *changes;
	int fd; /* the journal; -1: none yet */
	uint64_t n;
	off_t end;
	bool torn; /* half a record may lie behind end */
};

/* Whether the tree holds just that. val NULL: no such key. 1, 0 or negative errno. */
int ntr_cache_tree_has(const struct ntr_snap *snap, const char *key, const void *val, size_t len);
/* h: the head. val NULL: deletes, though there may be nothing to delete. */
int ntr_cache_set_locked(
        struct ntr_sess *s, const struct ntr_head *h, const char *key, const void *val, size_t len);
/* 0, -ENOENT: not there, or deleted. */
int ntr_cache_get_locked(struct ntr_sess *s, const struct ntr_head *h, const char *key, struct ntr_buf *ret);
int ntr_cache_del_locked(struct ntr_sess *s, const struct ntr_head *h, const char *key);
/* k NULL: only what the tree holds. */
int ntr_cache_keys_locked(struct ntr_cache *k, const struct ntr_snap *snap, json_t **ret);

#endif
