/* session_mounts: the host directories that a session shows, as the text of a JSON array
 * (exec/live_mounts.h): record M. They belong to the session and not to its commits: a rollback leaves them,
 * a fork copies them. */
#include "store.h"
#include "store_impl.h"

#include <errno.h>

enum { FORMAT = 1, PREFIX = 2 };

int ntr_session_mounts(struct ntr_store *s, uint64_t sid, char **ret)
{
	uint8_t key[NTR_META_KEY];
	struct ntr_kv_pin pin;
	int r = ntr_kv_get(s->kv, NTR_CF_META, key, ntr_key_u64(key, 'M', sid), &pin);

	*ret = NULL;
	if (r == -ENOENT)
		return 0;
	if (r)
		return r;
	if (pin.len < PREFIX || pin.data[0] != FORMAT || pin.data[1])
		r = -EUCLEAN;
	else if (!(*ret = strndup((const char *)pin.data + PREFIX, pin.len - PREFIX)))
		r = -ENOMEM;
	ntr_kv_unpin(&pin);
	return r;
}

int ntr_mounts_record(struct ntr_store *s, struct ntr_kv_batch *b, uint64_t sid, const char *text)
{
	ntr_auto(ntr_buf_done) struct ntr_buf rec = {0};
	const uint8_t prefix[PREFIX] = {FORMAT};
	uint8_t key[NTR_META_KEY];
	size_t n = ntr_key_u64(key, 'M', sid);

	if (!text) {
		ntr_kv_batch_del(b, s->kv, NTR_CF_META, key, n);
		return 0;
	}
	if (ntr_buf_add(&rec, prefix, sizeof prefix) || ntr_buf_str(&rec, text))
		return -ENOMEM;
	ntr_kv_batch_put(b, s->kv, NTR_CF_META, key, n, rec.data, rec.len);
	return 0;
}

int ntr_mounts_copy(struct ntr_store *s, struct ntr_kv_batch *b, uint64_t from, uint64_t to)
{
	ntr_autofree char *text = NULL;
	int r = ntr_session_mounts(s, from, &text);

	return r || !text ? r : ntr_mounts_record(s, b, to, text);
}

int ntr_session_set_mounts(struct ntr_store *s, uint64_t sid, const char *text, struct ntr_err *e)
{
	ntr_auto(ntr_kv_batch_freep) struct ntr_kv_batch *b = ntr_kv_batch_new();
	int r = b ? ntr_mounts_record(s, b, sid, text) : -ENOMEM;

	if (!r)
		r = ntr_store_write(s, b, NTR_FSYNC, 0, e);
	return r ? ntr_err_default(e, r, "record the session's host directories") : 0;
}
