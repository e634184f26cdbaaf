/* Numbers for `ntr daemon status`. */
#include "controller_impl.h"

static int add_op(void *user, const char *op, uint64_t count, double p50_us, double p99_us)
{
	return json_object_set_new(user, op,
	        json_pack("{s:I,s:f,s:f}", "count", (json_int_t)count, "p50_us", p50_us, "p99_us", p99_us));
}

static int count_one(void *user, const struct ntr_head *h)
{
	(void)h;
	++*(json_int_t *)user;
	return 0;
}

static void add_own(struct ntr_ctl *c, json_t *ops)
{
	static const char *const names[NTR_OP_COUNT] = {[NTR_OP_RUN] = "run",
	        [NTR_OP_AFTER] = "run.unchanged",
	        [NTR_OP_COMMIT] = "run.commit",
	        [NTR_OP_LIVE] = "live",
	        [NTR_OP_FORK] = "fork",
	        [NTR_OP_ROLLBACK] = "rollback",
	        [NTR_OP_FOLD] = "fold",
	        [NTR_OP_FOLD_OWED] = "fold.owed",
	        [NTR_OP_FOLD_REFUSED] = "fold.refused"};

	for (int i = 0; i < NTR_OP_COUNT; i++) {
		uint64_t n;
		double p50, p99;

		ntr_hist_read(&c->ops[i], &n, &p50, &p99);
		if (n)
			add_op(ops, names[i], n, p50, p99);
	}
}

/* Counts add up over the mounts; the times shown are of the mount that serves most. */
static int add_fuse_op(void *user, const char *op, uint64_t count, double p50_us, double p99_us)
{
	json_t *ops = user, *have = json_object_get(ops, op);
	json_int_t n = have ? ntr_json_int(have, "count", 0) : 0;

	if (!have || (json_int_t)count > n)
		add_op(ops, op, count, p50_us, p99_us);
	return json_object_set_new(json_object_get(ops, op), "count", json_integer(n + (json_int_t)count));
}

static void add_fuse(struct ntr_ctl *c, json_t *o)
{
	const char *transport = "none (nothing is mounted)";
	uint64_t inodes = 0, bytes = 0;
	json_t *ops = json_object();

	add_own(c, ops);
	pthread_mutex_lock(&c->m);
	for (int i = 0; i < NTR_VMOUNTS; i++) {
		struct ntr_versions *v = c->mounts[i].v;
		uint64_t k = 0, b = 0;

		if (!v)
			continue;
		transport = ntr_versions_transport(v) == NTR_TRANSPORT_URING ? "io_uring" : "/dev/fuse";
		ntr_versions_stats(v, add_fuse_op, ops);
		ntr_versions_table(v, &k, &b);
		inodes += k;
		bytes += b;
	}
	pthread_mutex_unlock(&c->m);
	json_object_set_new(o, "transport", json_string(transport));
	json_object_set_new(o, "ops", ops);
	json_object_set_new(o, "fuse_inodes", json_integer((json_int_t)inodes));
	json_object_set_new(o, "fuse_table_bytes", json_integer((json_int_t)bytes));
}

static json_t *live_list(struct ntr_ctl *c)
{
	struct ntr_sess *s, *next;
	json_t *a = json_array();

	pthread_mutex_lock(&c->m);
	HASH_ITER (hh, c->sessions, s, next) {
		struct ntr_head h;

		if (ntr_sess_is_live(s) && !ntr_session_by_id(c->store, s->sid, &h, NULL))
			json_array_append_new(a, json_string(h.name));
	}
	pthread_mutex_unlock(&c->m);
	return a;
}

json_t *ntr_ctl_status(struct ntr_ctl *c)
{
	json_t *o = json_object();
	json_int_t sessions = 0;
	uint64_t bytes, hits, misses;

	if (!o)
		return NULL;
	ntr_session_each(c->store, count_one, &sessions);
	ntr_tree_stats(ntr_store_tree(c->store), &bytes, &hits, &misses);
	json_object_set_new(o, "store", json_string(ntr_store_path(c->store)));
	json_object_set_new(o, "sessions", json_integer(sessions));
	json_object_set_new(o, "live", live_list(c));
	json_object_set_new(
	        o, "running", json_integer((json_int_t)__atomic_load_n(&c->running, __ATOMIC_RELAXED)));
	json_object_set_new(o, "uptime", json_real((double)(ntr_mono_ns() - c->started_ns) / 1e9));
	json_object_set_new(o, "node_cache",
	        json_pack("{s:I,s:I,s:I}", "bytes", (json_int_t)bytes, "hits", (json_int_t)hits, "misses",
	                (json_int_t)misses));
	json_object_set_new(
	        o, "store_memory", json_integer((json_int_t)ntr_kv_memory_bytes(ntr_store_kv(c->store))));
	json_object_set_new(o, "libfuse", json_string(ntr_versions_libfuse()));
	add_fuse(c, o);
	return o;
}
