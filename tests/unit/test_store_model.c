/* Long random histories against a simple twin: several sessions; names, contents and attributes changed in
 * transactions; commits, forks, moves of heads, renames and removals of sessions; diffs between any two
 * commits; closing and opening again. At the end every commit's whole tree is what its twin says, and fsck
 * finds nothing.
 *
 * NTR_TEST_STEPS: how long; NTR_TEST_SEED: another history. */
#include "fsck_fixture.h"
#include "store_twin_check.h"
#include "store_twin_ops.h"

#include "fs/store_impl.h"

enum { STEPS = 5000, SESSIONS = 8, COMMITS = 250, LIST = 4096 };

struct mcommit {
	uint64_t id, root, parent, inodes, bytes;
	char hex[NTR_COMMIT_HEX + 1];
	struct twin t;
};

struct msession {
	bool used;
	struct ntr_head h;
	size_t head; /* index of its commit */
	unsigned seq;
	struct ntr_list_entry list[LIST]; /* what is expected */
};

static struct fixture fx;
static struct report report;
static struct msession sessions[SESSIONS];
static struct mcommit commits[COMMITS];
static size_t ncommits;
static struct twin_pair *pairs;
static struct {
	unsigned commits, aborts, unchanged, forks, moves, diffs, reopens, renames, removes;
} done;

/* ---- commits and sessions ---- */

static struct msession *session_any(void)
{
	for (;;) {
		struct msession *s = &sessions[below(SESSIONS)];

		if (s->used)
			return s;
	}
}

static size_t commit_any(void)
{
	return (size_t)below(ncommits);
}

/* Room for one more: a commit that is no session's head is no longer looked at. */
static struct mcommit *commit_slot(void)
{
	size_t i;

	if (ncommits < COMMITS)
		return &commits[ncommits++];
	for (;;) {
		bool head = false;

		i = commit_any();
		for (int k = 0; k < SESSIONS; k++)
			head |= sessions[k].used && sessions[k].head == i;
		if (!head)
			break;
	}
	twin_done(&commits[i].t);
	return &commits[i];
}

static void expect_step(struct msession *s, enum ntr_step kind, uint64_t from)
{
	assert_true(s->seq < LIST);
	s->list[s->seq++] = (struct ntr_list_entry){.commit = s->h.commit, .from = from, .kind = kind};
}

static void commit_note(struct msession *s, const struct ntr_commit *c, struct twin t)
{
	struct mcommit *m = commit_slot();

	*m = (struct mcommit){.id = c->id, .root = c->root, .parent = c->nparents ? c->parent[0] : 0, .t = t};
	memcpy(m->hex, c->hex, sizeof m->hex);
	twin_counts(&t, &m->inodes, &m->bytes);
	s->head = (size_t)(m - commits);
}

/* The session's record, as anybody would read it, is what its twin says. */
static void session_check(const struct msession *s)
{
	const struct mcommit *m = &commits[s->head];
	struct ntr_head h;

	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), 0);
	if (h.sid != s->h.sid || h.commit != m->id || h.root != m->root || h.seq != s->seq ||
	        h.inodes != m->inodes || h.bytes != m->bytes)
		fail_msg("session %s: commit %llu (%llu) root %llu (%llu) seq %llu (%u) inodes %llu (%llu) "
		         "bytes %llu (%llu)",
		        h.name, (unsigned long long)h.commit, (unsigned long long)m->id,
		        (unsigned long long)h.root, (unsigned long long)m->root, (unsigned long long)h.seq,
		        s->seq, (unsigned long long)h.inodes, (unsigned long long)m->inodes,
		        (unsigned long long)h.bytes, (unsigned long long)m->bytes);
}

static struct msession *session_slot(void)
{
	for (int i = 0; i < SESSIONS; i++)
		if (!sessions[i].used)
			return &sessions[i];
	return NULL;
}

static void name_session(char name[NTR_NAME_MAX + 1])
{
	struct ntr_head h;

	do
		snprintf(name, NTR_NAME_MAX + 1, "s%u", (unsigned)below(40));
	while (!ntr_session_get(fx.st, name, &h, NULL));
}

static void do_new(void)
{
	struct ntr_session_options o = {.durability = below(3) ? NTR_RELAXED_DURABILITY : NTR_FSYNC};
	struct msession *s = session_slot();
	struct twin t = {0};
	struct twin_obj root = {.ino = NTR_INO_ROOT};
	struct ntr_commit c;
	struct ntr_inode in;
	struct ntr_snap snap;
	char name[NTR_NAME_MAX + 1];

	if (!s)
		return;
	name_session(name);
	assert_int_equal(ntr_session_new(fx.st, name, &o, NULL, &s->h, NULL), 0);
	assert_int_equal(ntr_commit_get(fx.st, s->h.commit, &c, NULL), 0);
	snap = ntr_snap_root(fx.st, c.root);
	assert_int_equal(ntr_inode_get(&snap, NTR_INO_ROOT, &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	root.mode = in.mode;
	root.uid = root.gid = NTR_OWNER_ID;
	root.mtime = in.mtime;
	twin_enter(&t, "", twin_obj_add(&t, &root));
	s->used = true;
	s->seq = 0;
	commit_note(s, &c, t);
	expect_step(s, NTR_STEP_NEW, 0);
	ntr_commit_done(&c);
	session_check(s);
}

static void finish(struct msession *s, struct work *k, bool elsewhere)
{
	struct ntr_head before = s->h;
	struct ntr_commit c;
	struct ntr_err e = {0};

	if (ntr_store_commit(fx.st, &s->h, k->t, "{\"tool\":\"model\"}", &(struct ntr_stats){0}, &c, &e))
		fx_fail("commit", &e);
	if (!c.id) { /* nothing came of it: then it must be as it was */
		assert_true(before.root == s->h.root && before.commit == s->h.commit);
		twin_check_root(fx.st, s->h.root, &k->w, &pairs);
		twin_done(&k->w);
		done.unchanged++;
		return;
	}
	assert_true(k->touched || elsewhere);
	assert_true(c.nparents == 1 && c.parent[0] == before.commit);
	commit_note(s, &c, k->w);
	expect_step(s, NTR_STEP_COMMIT, before.commit);
	ntr_commit_done(&c);
	session_check(s);
	done.commits++;
	if (!below(8)) { /* a head of the past must not be committed to */
		struct ntr_txn *t;

		assert_int_equal(ntr_txn_begin(fx.st, before.root, &t), 0);
		assert_int_equal(ntr_kvitem_set(t, "e:STALE", "1", 1), 0);
		assert_int_equal(ntr_store_commit(fx.st, &before, t, "{}", NULL, &c, NULL), -ESTALE);
		session_check(s);
	}
}

static void do_commit(void)
{
	struct msession *s = session_any();
	bool elsewhere = !below(12); /* on top of another commit's tree, as a merge or a checkout does it */
	size_t base = elsewhere ? commit_any() : s->head;
	struct work k = {.w = twin_copy(&commits[base].t)};
	unsigned steps = (unsigned)below(12);

	clock_gettime(CLOCK_REALTIME, &k.now);
	assert_int_equal(ntr_txn_begin(fx.st, commits[base].root, &k.t), 0);
	if (!below(8))
		ntr_txn_set_limit(k.t, 3000); /* by way of intermediate roots */
	while (steps--)
		op_any(&k);
	assert_true(k.touched || ntr_txn_empty(k.t));
	if (below(10)) {
		finish(s, &k, elsewhere);
		return;
	}
	ntr_txn_abort(k.t);
	twin_done(&k.w);
	session_check(s);
	done.aborts++;
}

static void do_fork(void)
{
	struct msession *src = session_any(), *s = session_slot();
	size_t at = commit_any();
	struct ntr_commit c;
	char name[NTR_NAME_MAX + 1];

	if (!s)
		return;
	assert_int_equal(ntr_commit_by_hex(fx.st, commits[at].hex, &c, NULL), 0);
	assert_true(c.id == commits[at].id);
	assert_int_equal(ntr_session_fork(fx.st, &src->h, &c, src->h.name, &s->h, NULL), -EEXIST);
	name_session(name);
	assert_int_equal(ntr_session_fork(fx.st, &src->h, &c, name, &s->h, NULL), 0);
	assert_true(s->h.origin == c.id);
	ntr_commit_done(&c);
	s->used = true;
	s->head = at;
	s->seq = 0;
	expect_step(s, NTR_STEP_FORK, 0);
	session_check(s);
	done.forks++;
}

static void do_move(void)
{
	struct msession *s = session_any();
	size_t to = commit_any();
	uint64_t from = s->h.commit;
	struct ntr_commit c;

	assert_int_equal(ntr_commit_get(fx.st, commits[to].id, &c, NULL), 0);
	assert_int_equal(ntr_session_move(fx.st, &s->h, &c, NULL), 0);
	ntr_commit_done(&c);
	s->head = to;
	expect_step(s, NTR_STEP_MOVE, from);
	session_check(s);
	done.moves++;
}

static void do_rename(void)
{
	struct msession *s = session_any(), *other = session_any();
	char name[NTR_NAME_MAX + 1];
	struct ntr_head h;

	name_session(name);
	if (other != s)
		assert_int_equal(ntr_session_rename(fx.st, s->h.name, other->h.name, NULL), -EEXIST);
	assert_int_equal(ntr_session_rename(fx.st, s->h.name, name, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), -ENOENT);
	strcpy(s->h.name, name);
	session_check(s);
	done.renames++;
}

/* Its commits stay: other sessions may fork from them, or move there. */
static void do_remove(void)
{
	struct msession *s = session_any();
	struct ntr_head h;
	unsigned used = 0;

	for (int i = 0; i < SESSIONS; i++)
		used += sessions[i].used;
	if (used < 3)
		return;
	assert_int_equal(ntr_session_remove(fx.st, s->h.sid, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), -ENOENT);
	assert_int_equal(ntr_session_remove(fx.st, s->h.sid, NULL), -ENOENT);
	s->used = false;
	done.removes++;
}

static void do_diff(void)
{
	const struct mcommit *a = &commits[commit_any()],
	                     *b = &commits[below(2) ? session_any()->head : commit_any()];

	twin_check_diff(fx.st, a->root, b->root, &a->t, &b->t);
	done.diffs++;
}

static void commit_check(const struct mcommit *m)
{
	struct ntr_commit c;

	assert_int_equal(ntr_commit_get(fx.st, m->id, &c, NULL), 0);
	assert_true(c.root == m->root && c.inodes == m->inodes && c.bytes == m->bytes);
	assert_string_equal(c.hex, m->hex);
	assert_true((c.nparents ? c.parent[0] : 0) == m->parent);
	ntr_commit_done(&c);
	twin_check_root(fx.st, m->root, &m->t, &pairs);
}

/* ---- the session's own list ---- */

struct list_walk {
	const struct msession *s;
	unsigned n;
};

static int list_step(void *user, const struct ntr_list_entry *en)
{
	struct list_walk *w = user;
	const struct ntr_list_entry *want = &w->s->list[w->n];

	assert_true(w->n < w->s->seq);
	assert_int_equal(en->seq, w->n + 1);
	assert_int_equal(en->kind, want->kind);
	assert_true(en->commit == want->commit && en->from == want->from);
	w->n++;
	return 0;
}

static void list_check(const struct msession *s)
{
	struct list_walk w = {.s = s};

	assert_int_equal(ntr_session_list(fx.st, s->h.sid, 1, list_step, &w), 0);
	assert_int_equal(w.n, s->seq);
}

static void do_reopen(void)
{
	ntr_store_close(fx.st);
	fx_open(&fx, false);
	for (int i = 0; i < SESSIONS; i++) {
		if (!sessions[i].used)
			continue;
		session_check(&sessions[i]);
		list_check(&sessions[i]);
	}
	commit_check(&commits[commit_any()]);
	done.reopens++;
}

static void do_sync(void)
{
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0);
}

static void do_check(void)
{
	commit_check(&commits[commit_any()]);
}

/* ---- the whole ---- */

static void step(void)
{
	static const struct {
		unsigned weight;
		void (*fn)(void);
	} ops[] = {{60, do_commit}, {6, do_fork}, {6, do_move}, {2, do_new}, {2, do_rename}, {3, do_remove},
	        {12, do_diff}, {4, do_check}, {4, do_sync}, {1, do_reopen}};
	uint64_t at = below(100);

	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		if (at < ops[i].weight) {
			ops[i].fn();
			return;
		}
		at -= ops[i].weight;
	}
}

static void finish_all(void)
{
	do_reopen();
	for (size_t i = 0; i < ncommits; i++)
		commit_check(&commits[i]);
	fsck_clean(fx.st, &report);
	for (size_t i = 0; i < ncommits; i++)
		twin_done(&commits[i].t);
	twin_pairs_free(&pairs);
	print_message("%u commits, %u aborted, %u unchanged, %u forks, %u moves, %u diffs, %u reopened, %u "
	              "renamed, "
	              "%u removed\n",
	        done.commits, done.aborts, done.unchanged, done.forks, done.moves, done.diffs, done.reopens,
	        done.renames, done.removes);
	assert_true(done.commits && done.forks && done.moves && done.diffs && done.reopens);
}

static void run_model(uint64_t seed, unsigned long steps)
{
	rnd = seed;
	print_message("seed %llu, %lu steps\n", (unsigned long long)seed, steps);
	do_new();
	while (steps--)
		step();
	finish_all();
}

static unsigned long wanted_steps(unsigned long def)
{
	const char *s = getenv("NTR_TEST_STEPS");

	return s && *s ? NTR_MAX(strtoul(s, NULL, 0), 1ul) : def;
}

static uint64_t wanted_seed(void)
{
	const char *s = getenv("NTR_TEST_SEED");
	uint64_t seed = s && *s ? strtoull(s, NULL, 0) : 20261129;

	return seed ? seed : 1;
}

static int setup(void **state)
{
	(void)state;
	ncommits = 0;
	highest_ino = 0;
	pairs = NULL;
	memset(sessions, 0, sizeof sessions);
	memset(&done, 0, sizeof done);
	fx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = NULL;
	fx_teardown(&fx);
	return 0;
}

static void test_model(void **state)
{
	(void)state;
	run_model(wanted_seed(), wanted_steps(STEPS));
}

/* The same with names that all share a few hashes. */
static uint64_t few_hashes(const char *name, size_t n)
{
	return 3 + (uint64_t)(unsigned char)name[n - 1] % 3;
}

static void test_model_collisions(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = few_hashes;
	run_model(wanted_seed() + 1, wanted_steps(STEPS) / 4 + 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_model_collisions, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
