/* The cache of a session: what calls have changed in it and no commit has yet, and its journal.
 *
 *     journal := STORE/upper/<sid>.<n>/cache, records one behind another
 *     record  := LE64 check | u8 op (1 set, 0 deleted) | LE16 key length | LE64 value length | LE64 seq | key
 * | value check   := XXH3-64 of the value (where there is one), seeded with that of the key, seeded with that
 * of op, lengths and seq
 *
 * The journal lies beside the upper, so that whatever becomes of the upper (a commit, a rollback's fresh one,
 * trash, recovery after a crash) becomes of it too, without a write of its own. It is not synced: like an
 * upper it is there for a daemon that dies, not for a power cut. seq is the session's at the time, and the
 * step after it is the commit that takes the change in, or passes it by because it came while that commit was
 * being written already. A daemon killed then may leave either head, so a record counts for both: all that
 * the journal holds, in order, over the commit that was made from it gives what was set last. It counts for
 * no later step, and after a power cut, which may bring back a part of what had been emptied, for none. */
#include "controller_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { HEAD = 8 + 1 + 2 + 8 + 8 };

struct ntr_cache *ntr_cache_new(void)
{
	struct ntr_cache *k = calloc(1, sizeof *k);

	if (!k)
		return NULL;
	pthread_mutex_init(&k->m, NULL);
	k->fd = -1;
	return k;
}

static void change_free(struct ntr_cache *k, struct ntr_cache_change *ch)
{
	HASH_DEL(k->changes, ch);
	free(ch->key);
	free(ch->val);
	free(ch);
}

static void forget(struct ntr_cache *k)
{
	struct ntr_cache_change *ch, *next;

	HASH_ITER (hh, k->changes, ch, next)
		change_free(k, ch);
	ntr_closep(&k->fd);
	k->fd = -1;
}

void ntr_cache_free(struct ntr_cache *k)
{
	if (!k)
		return;
	forget(k);
	pthread_mutex_destroy(&k->m);
	free(k);
}

int ntr_cache_key_check(const char *key, size_t len, struct ntr_err *e)
{
	const char *why;
	int r = ntr_cacheitem_key_check(key, len, &why);

	if (!r)
		return 0;
	ntr_err_set(e, r, "use the cache key '%.*s'", (int)NTR_MIN(len, (size_t)80), key);
	ntr_err_why(e, "%s", why);
	ntr_err_todo(
	        e, "take 1 to %d bytes of UTF-8 without '/' that do not begin with '__'", NTR_CACHE_KEY_MAX);
	return r;
}

/* ---- the journal */

static void journal_path(uint64_t sid, uint64_t n, const char *suffix, char buf[96])
{
	snprintf(buf, 96, "upper/%llu.%llu/cache%s", (unsigned long long)sid, (unsigned long long)n, suffix);
}

static int journal_open(struct ntr_cache *k, struct ntr_sess *s, uint64_t n)
{
	ntr_autoclose int fd = -1;
	char path[96];
	struct stat st;

	if (k->fd >= 0 && k->n == n)
		return 0;
	journal_path(s->sid, n, "", path);
	fd = openat(ntr_store_dirfd(s->ctl->store), path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	ntr_closep(&k->fd);
	k->fd = ntr_steal_fd(&fd);
	k->n = n;
	k->end = st.st_size;
	k->torn = false;
	return 0;
}

static void head_fill(uint8_t h[HEAD], uint64_t seq, const char *key, const void *val, size_t len)
{
	uint64_t x;

	h[8] = val != NULL;
	ntr_put_le16(h + 9, (uint16_t)strlen(key));
	ntr_put_le64(h + 11, val ? len : 0);
	ntr_put_le64(h + 19, seq);
	x = XXH3_64bits(h + 8, HEAD - 8);
	x = XXH3_64bits_withSeed(key, strlen(key), x);
	ntr_put_le64(h, val ? XXH3_64bits_withSeed(val, len, x) : x);
}

static int write_at(struct ntr_cache *k, const void *p, size_t n)
{
	for (const uint8_t *at = p; n;) {
		ssize_t w = pwrite(k->fd, at, n, k->end);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w ? -errno : -EIO;
		at += w;
		n -= (size_t)w;
		k->end += w;
	}
	return 0;
}

static int journal_cut(struct ntr_cache *k)
{
	if (ftruncate(k->fd, k->end))
		return -errno;
	k->torn = false;
	return 0;
}

/* Behind a record that is cut short nothing would be read: it is taken away again, and until it is, there is
 * no other. */
static int journal_add(struct ntr_cache *k, uint64_t seq, const char *key, const void *val, size_t len)
{
	uint8_t head[HEAD];
	off_t end = k->end;
	int r = k->torn ? journal_cut(k) : 0;

	if (r)
		return r;
	head_fill(head, seq, key, val, len);
	r = write_at(k, head, sizeof head);
	if (!r)
		r = write_at(k, key, strlen(key));
	if (!r && val)
		r = write_at(k, val, len);
	if (r) {
		k->end = end;
		k->torn = true;
		journal_cut(k);
	}
	return r;
}

/* A change of a live session is in its journal before it counts. */
static int journal(struct ntr_sess *s, uint64_t seq, const char *key, const void *val, size_t len)
{
	int r;

	if (!s->live)
		return 0;
	r = journal_open(s->cache, s, s->live->upper.n);
	return r ? r : journal_add(s->cache, seq, key, val, len);
}

/* ---- the changes */

static struct ntr_cache_change *find(const struct ntr_cache *k, const char *key)
{
	struct ntr_cache_change *ch;

	HASH_FIND_STR(k->changes, key, ch);
	return ch;
}

/* Takes val over. */
static int change_put(struct ntr_cache *k, const char *key, char *val, size_t len)
{
	struct ntr_cache_change *ch = find(k, key);

	if (!ch) {
		ch = calloc(1, sizeof *ch);
		if (ch && (ch->key = strdup(key))) {
			HASH_ADD_KEYPTR(hh, k->changes, ch->key, strlen(ch->key), ch);
			if (!ntr_hashed(hh, ch)) {
				free(ch->key);
				free(ch);
				ch = NULL;
			}
		} else {
			free(ch);
			ch = NULL;
		}
	}
	if (!ch) {
		free(val);
		return -ENOMEM;
	}
	free(ch->val);
	ch->val = val;
	ch->len = len;
	ch->applied = false;
	return 0;
}

int ntr_cache_tree_has(const struct ntr_snap *snap, const char *key, const void *val, size_t len)
{
	ntr_autofree uint8_t *old = NULL;
	size_t n = 0;
	int r = ntr_cacheitem_get(snap, key, &old, &n);

	if (r == -ENOENT)
		return !val;
	return r ? r : val && n == len && !memcmp(old, val, len);
}

int ntr_cache_set_locked(
        struct ntr_sess *s, const struct ntr_head *h, const char *key, const void *val, size_t len)
{
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	struct ntr_cache_change *ch = find(s->cache, key);
	ntr_autofree char *copy = NULL;
	bool same;
	int r;

	if (ch && !val == !ch->val && (!val || (ch->len == len && !memcmp(ch->val, val, len))))
		return 0;
	r = ntr_cache_tree_has(&snap, key, val, len);
	if (r < 0 || (r && !ch))
		return r < 0 ? r : 0;
	if (val && !(copy = malloc(len + 1)))
		return -ENOMEM;
	if (val)
		memcpy(copy, val, len);
	same = r;
	r = journal(s, h->seq, key, val, len);
	if (!r && same && !ch->applied)
		change_free(s->cache, ch);
	else if (!r) /* also what undoes a change that a commit is just taking */
		r = change_put(s->cache, key, ntr_steal_ptr(copy), len);
	return r;
}

int ntr_cache_get_locked(struct ntr_sess *s, const struct ntr_head *h, const char *key, struct ntr_buf *ret)
{
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	const struct ntr_cache_change *ch = find(s->cache, key);
	ntr_autofree uint8_t *val = NULL;
	size_t n;
	int r;

	if (ch)
		return ch->val ? ntr_buf_add(ret, ch->val, ch->len) : -ENOENT;
	r = ntr_cacheitem_get(&snap, key, &val, &n);
	return r ? r : ntr_buf_add(ret, val, n);
}

int ntr_cache_del_locked(struct ntr_sess *s, const struct ntr_head *h, const char *key)
{
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	const struct ntr_cache_change *ch = find(s->cache, key);
	int r = ch ? !ch->val : ntr_cache_tree_has(&snap, key, NULL, 0);

	if (r)
		return r > 0 ? -ENOENT : r;
	return ntr_cache_set_locked(s, h, key, NULL, 0);
}

static int add_key(void *user, const char *key)
{
	return json_object_set_new(user, key, json_true()) ? -ENOMEM : 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sorted_keys(json_t *set, json_t **ret)
{
	ntr_autofree const char **v = calloc(json_object_size(set) + 1, sizeof *v);
	ntr_autojson json_t *a = json_array();
	const char *key;
	json_t *val;
	size_t n = 0;

	if (!v || !a)
		return -ENOMEM;
	json_object_foreach (set, key, val)
		v[n++] = key;
	qsort(v, n, sizeof *v, by_text);
	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(a, json_string(v[i])))
			return -ENOMEM;
	*ret = ntr_steal_ptr(a);
	return 0;
}

int ntr_cache_keys_locked(struct ntr_cache *k, const struct ntr_snap *snap, json_t **ret)
{
	ntr_autojson json_t *set = json_object();
	struct ntr_cache_change *ch, *next;
	int r = set ? ntr_cacheitem_each(snap, add_key, set) : -ENOMEM;

	if (r)
		return r;
	if (!k)
		return sorted_keys(set, ret);
	HASH_ITER (hh, k->changes, ch, next) {
		if (!ch->val)
			json_object_del(set, ch->key);
		else if (add_key(set, ch->key))
			return -ENOMEM;
	}
	return sorted_keys(set, ret);
}

/* ---- for calls */

int ntr_cache_get(struct ntr_sess *s, const struct ntr_head *h, const char *key, struct ntr_buf *ret)
{
	int r;

	pthread_mutex_lock(&s->cache->m);
	r = ntr_cache_get_locked(s, h, key, ret);
	pthread_mutex_unlock(&s->cache->m);
	return r;
}

int ntr_cache_set(struct ntr_sess *s, const struct ntr_head *h, const char *key, const void *val, size_t len)
{
	int r = ntr_cacheitem_key_check(key, strlen(key), NULL);

	if (!r && len > NTR_CACHE_VALUE_MAX)
		r = -E2BIG;
	if (r)
		return r;
	pthread_mutex_lock(&s->cache->m);
	r = ntr_cache_set_locked(s, h, key, val, len);
	pthread_mutex_unlock(&s->cache->m);
	return r;
}

int ntr_cache_del(struct ntr_sess *s, const struct ntr_head *h, const char *key)
{
	int r = ntr_cacheitem_key_check(key, strlen(key), NULL);

	if (r)
		return r;
	pthread_mutex_lock(&s->cache->m);
	r = ntr_cache_del_locked(s, h, key);
	pthread_mutex_unlock(&s->cache->m);
	return r;
}

int ntr_cache_keys(struct ntr_sess *s, const struct ntr_head *h, json_t **ret)
{
	struct ntr_snap snap = ntr_snap_root(s->ctl->store, h->root);
	int r;

	pthread_mutex_lock(&s->cache->m);
	r = ntr_cache_keys_locked(s->cache, &snap, ret);
	pthread_mutex_unlock(&s->cache->m);
	return r;
}

bool ntr_cache_dirty(const struct ntr_sess *s)
{
	bool dirty;

	pthread_mutex_lock(&s->cache->m);
	dirty = s->cache->changes != NULL;
	pthread_mutex_unlock(&s->cache->m);
	return dirty;
}

/* ---- for commits */

static int apply(struct ntr_cache *k, struct ntr_txn *t)
{
	struct ntr_cache_change *ch, *next;
	int r = 0;

	HASH_ITER (hh, k->changes, ch, next) {
		if (!r)
			r = ntr_cache_tree_has(ntr_txn_snap(t), ch->key, ch->val, ch->len);
		if (!r)
			r = ntr_cacheitem_set(t, ch->key, ch->val, ch->len);
		if (r > 0)
			r = 0;
		ch->applied = true;
	}
	return r;
}

int ntr_cache_apply(struct ntr_sess *s, struct ntr_txn *t)
{
	int r;

	pthread_mutex_lock(&s->cache->m);
	r = apply(s->cache, t);
	pthread_mutex_unlock(&s->cache->m);
	return r;
}

static int write_changes(const struct ntr_cache *k, uint64_t seq, struct ntr_cache *to)
{
	struct ntr_cache_change *ch, *next;
	int r = 0;

	HASH_ITER (hh, k->changes, ch, next)
		if (!r)
			r = journal_add(to, seq, ch->key, ch->val, ch->len);
	return r;
}

/* A journal of what is left, in place of the old one: one of the two is there whenever the daemon is killed.
 * Where it cannot be made the old one goes on, and holds the same. */
static void journal_replace(struct ntr_cache *k, const struct ntr_sess *s, uint64_t seq)
{
	struct ntr_cache next = {.fd = -1};
	int dir = ntr_store_dirfd(s->ctl->store);
	char path[96], making[96];

	journal_path(s->sid, k->n, "", path);
	journal_path(s->sid, k->n, ".new", making);
	next.fd = openat(dir, making, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (next.fd >= 0 && !write_changes(k, seq, &next) && !renameat(dir, making, dir, path)) {
		ntr_closep(&k->fd);
		k->fd = ntr_steal_fd(&next.fd);
		k->end = next.end;
		k->torn = false;
	} else if (next.fd >= 0) {
		unlinkat(dir, making, 0);
	}
	ntr_closep(&next.fd);
}

void ntr_cache_kept(struct ntr_sess *s)
{
	struct ntr_cache *k = s->cache;
	struct ntr_cache_change *ch, *next;
	struct ntr_head h;

	pthread_mutex_lock(&k->m);
	HASH_ITER (hh, k->changes, ch, next)
		if (ch->applied)
			change_free(k, ch);
	if (k->fd >= 0 && !k->changes && !ftruncate(k->fd, 0)) {
		k->end = 0;
		k->torn = false;
	} else if (k->fd >= 0 && k->changes && !ntr_session_by_id(s->ctl->store, s->sid, &h, NULL)) {
		journal_replace(k, s, h.seq);
	}
	pthread_mutex_unlock(&k->m);
}

void ntr_cache_drop(struct ntr_sess *s)
{
	struct ntr_cache *k = s->cache;

	pthread_mutex_lock(&k->m);
	forget(k);
	pthread_mutex_unlock(&k->m);
}

/* One record into k, if its seq is from … to. 1, 0 at the end or at a record that was cut short, or negative
 * errno. */
static int replay_one(int fd, uint64_t from, uint64_t to, struct ntr_cache *k)
{
	ntr_autofree char *val = NULL;
	uint8_t head[HEAD], want[HEAD];
	char key[NTR_CACHE_KEY_MAX + 1];
	uint64_t len;
	size_t n;

	if (ntr_read_exact(fd, head, sizeof head))
		return 0;
	n = ntr_get_le16(head + 9);
	len = ntr_get_le64(head + 11);
	if (n > NTR_CACHE_KEY_MAX || len > NTR_CACHE_VALUE_MAX || ntr_read_exact(fd, key, n))
		return 0;
	key[n] = '\0';
	if (head[8] && !(val = malloc(len + 1)))
		return -ENOMEM;
	if (val && ntr_read_exact(fd, val, len))
		return 0;
	head_fill(want, ntr_get_le64(head + 19), key, val, len);
	if (memcmp(head, want, HEAD) != 0 || ntr_cacheitem_key_check(key, n, NULL))
		return 0;
	if (ntr_get_le64(head + 19) < from || ntr_get_le64(head + 19) > to)
		return 1;
	return change_put(k, key, ntr_steal_ptr(val), len) ? -ENOMEM : 1;
}

int ntr_cache_replay(struct ntr_store *st, const struct ntr_head *h, struct ntr_txn *t)
{
	uint64_t from = ntr_head_of_other_boot(h) ? h->seq : h->seq - 1;
	struct ntr_cache k = {.fd = -1};
	ntr_autoclose int fd = -1;
	char path[96];
	int r;

	journal_path(h->sid, h->upper, "", path);
	fd = openat(ntr_store_dirfd(st), path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	do
		r = replay_one(fd, from, h->seq, &k);
	while (r > 0);
	if (!r)
		r = apply(&k, t);
	forget(&k);
	return r;
}
