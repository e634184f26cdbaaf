/* The cache beside calls: commits of its own and of calls it joins, rollback, fork, discard, killed
 * supervisors, failing writes, a daemon that went without a commit. */
#include "ctl_fixture.h"

#include "base/value.h"

#include <pthread.h>

static struct cfx fx;

CFX_SETUP(setup, .fold_entries = 0)

CFX_TEARDOWN(teardown)

/* The value of a key, "(none)" when there is none; in a buffer of this thread. */
static const char *get_at(const char *session, const char *rev, const char *key)
{
	static __thread char text[4][1024];
	static __thread unsigned which;
	char *t = text[which++ % 4];
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	struct ntr_err e = {0};
	int r = ntr_ctl_cache_get(fx.c, session, rev, key, &b, &e);

	if (r == -ENOENT)
		return "(none)";
	if (r)
		cfx_fail(key, &e);
	snprintf(t, sizeof text[0], "%s", ntr_buf_cstr(&b));
	return t;
}

static const char *get(const char *key)
{
	return get_at("s", NULL, key);
}

static int try_set(const char *key, const char *val, bool inside, char *commit, struct ntr_err *e)
{
	*e = (struct ntr_err){0};
	return val ? ntr_ctl_cache_set(fx.c, "s", key, val, strlen(val), inside, commit, e)
	           : ntr_ctl_cache_del(fx.c, "s", key, inside, commit, e);
}

/* The commit's name, "" for none. val NULL: deletes. */
static const char *set(const char *key, const char *val)
{
	static char commit[NTR_COMMIT_HEX + 1];
	struct ntr_err e;

	if (try_set(key, val, false, commit, &e))
		cfx_fail(key, &e);
	return commit;
}

static void keys_are(const char *session, const char *rev, const char *want)
{
	ntr_autofree char *text = NULL;
	ntr_autojson json_t *keys = NULL;
	struct ntr_err e = {0};

	if (ntr_ctl_cache_keys(fx.c, session, rev, &keys, &e))
		cfx_fail("keys", &e);
	text = json_dumps(keys, JSON_COMPACT);
	assert_string_equal(text, want);
}

static bool state_changed(void)
{
	ntr_auto(ntr_diff_done) struct ntr_diff d = {0};
	struct ntr_err e = {0};
	uint64_t head, work;

	if (ntr_ctl_work(fx.c, "s", &d, &head, &work, &e))
		cfx_fail("work", &e);
	return d.state_changed;
}

/* ---- by itself */

static void own_commits(void)
{
	struct ntr_err e;
	char commit[NTR_COMMIT_HEX + 1];

	assert_string_not_equal(set("k", NULL), "");
	assert_string_not_equal(set("b", "1"), "");
	assert_string_equal(cfx_tool(&fx, "s"), "cache");
	assert_string_not_equal(set("a", "\"x\""), "");
	assert_string_equal(set("a", "\"x\""), ""); /* what it holds: no change */
	assert_string_equal(get("a"), "\"x\"");
	assert_string_equal(get_at("s", "~1", "a"), "(none)");
	keys_are("s", NULL, "[\"a\",\"b\"]");
	keys_are("s", "~1", "[\"b\"]");
	assert_string_not_equal(set("b", NULL), "");
	assert_string_equal(get("b"), "(none)");
	keys_are("s", NULL, "[\"a\"]");
	assert_int_equal(try_set("b", NULL, false, commit, &e), -ENOENT);
	cfx_said("rm", -ENOENT, &e);
	assert_false(state_changed());
}

static void test_not_live(void **state)
{
	(void)state;
	set("k", "0"); /* makes the session */
	own_commits();
	assert_false(cfx_is_live(&fx, "s"));
}

static void test_live(void **state)
{
	(void)state;
	cfx_run(&fx, "s", "true");
	assert_true(cfx_is_live(&fx, "s"));
	set("k", "0");
	own_commits();
	cfx_reopen(&fx);
	assert_string_equal(get("a"), "\"x\"");
}

static void test_bad(void **state)
{
	static const char *const keys[] = {"", "a/b", "__x", "\xff"};
	char commit[NTR_COMMIT_HEX + 1];
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	json_t *list;
	struct ntr_err e;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(keys); i++) {
		assert_int_equal(try_set(keys[i], "1", false, commit, &e), -EINVAL);
		cfx_said("set", -EINVAL, &e);
		e = (struct ntr_err){0};
		assert_int_equal(ntr_ctl_cache_get(fx.c, "s", NULL, keys[i], &b, &e), -EINVAL);
		cfx_said("get", -EINVAL, &e);
	}
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_cache_get(fx.c, "none", NULL, "k", &b, &e), -ENOENT);
	cfx_said("get", -ENOENT, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_cache_keys(fx.c, "none", NULL, &list, &e), -ENOENT);
	cfx_said("keys", -ENOENT, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_cache_del(fx.c, "none", "k", false, commit, &e), -ENOENT);
	cfx_said("rm", -ENOENT, &e);
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_cache_set(fx.c, "s", "k", "", (size_t)257 << 20, false, commit, &e), -E2BIG);
	cfx_said("set", -E2BIG, &e);
}

/* ---- within calls */

struct bg {
	pthread_t t;
	const char *script;
	bool no_commit;
	struct ntr_call_result res;
};

static void *bg_main(void *arg)
{
	struct bg *b = arg;
	struct ntr_err e;

	if (cfx_try(&fx, "s", b->script, (struct ntr_call_spec){.capture = true, .no_commit = b->no_commit},
	            &b->res, &e))
		cfx_fail(b->script, &e);
	return NULL;
}

/* Runs until go is there; returns when it has begun. */
static void bg_start(struct bg *b, bool no_commit)
{
	*b = (struct bg){.script = "touch began; while [ ! -e go ]; do sleep 0.02; done; rm -f began go",
	        .no_commit = no_commit};
	assert_int_equal(pthread_create(&b->t, NULL, bg_main, b), 0);
	while (!cfx_cat(&fx, "s", NULL, "began"))
		usleep(5000);
}

static void inside(const char *key, const char *val)
{
	char commit[NTR_COMMIT_HEX + 1];
	struct ntr_err e;

	if (try_set(key, val, true, commit, &e))
		cfx_fail(key, &e);
	assert_string_equal(commit, "");
}

/* Within the view, as the session's own process would make it. */
static void go(struct bg *b)
{
	char path[300];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/root/workspace/go", (int)cfx_init_pid(&fx, "s"));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	close(fd);
	pthread_join(b->t, NULL);
}

static void test_joins_the_call(void **state)
{
	struct bg b;
	uint64_t seq;

	(void)state;
	cfx_run(&fx, "s", "true");
	set("old", "1");
	set("gone", "1");
	seq = cfx_head(&fx, "s").seq;
	bg_start(&b, false);
	inside("k", "1");
	inside("k", "2");
	inside("old", "9");
	inside("old", "1"); /* what the head holds: no change after all */
	inside("gone", NULL);
	assert_string_equal(get("k"), "2");
	assert_string_equal(get_at("s", "HEAD", "k"), "(none)");
	keys_are("s", NULL, "[\"k\",\"old\"]");
	keys_are("s", "HEAD", "[\"gone\",\"old\"]");
	go(&b);
	assert_string_not_equal(b.res.commit, "");
	assert_int_equal(cfx_head(&fx, "s").seq, seq + 1); /* one commit for all of it */
	assert_string_equal(get_at("s", "HEAD", "k"), "2");
	assert_string_equal(get("old"), "1");
	assert_string_equal(get("gone"), "(none)");
	ntr_call_result_done(&b.res);
}

/* A call that changed nothing else; and from inside where no call runs: a commit of its own, without waiting.
 */
static void test_only_cache(void **state)
{
	char commit[NTR_COMMIT_HEX + 1];
	struct ntr_err e;
	struct bg b;

	(void)state;
	cfx_run(&fx, "s", "true");
	bg_start(&b, false);
	inside("k", "[1]");
	inside("k", NULL);
	go(&b);
	assert_string_equal(b.res.commit, ""); /* all undone */
	ntr_call_result_done(&b.res);
	bg_start(&b, false);
	inside("k", "[1]");
	go(&b);
	assert_string_not_equal(b.res.commit, "");
	assert_int_equal(b.res.changes.created + b.res.changes.modified + b.res.changes.deleted, 0);
	ntr_call_result_done(&b.res);
	assert_int_equal(try_set("k", "2", true, commit, &e), 0);
	assert_string_not_equal(commit, "");
}

static void pend(const char *key, const char *val)
{
	struct bg b;

	bg_start(&b, true);
	inside(key, val);
	go(&b);
	assert_string_equal(b.res.commit, "");
	ntr_call_result_done(&b.res);
	assert_true(state_changed());
	assert_string_equal(get(key), val);
}

static void test_uncommitted(void **state)
{
	struct ntr_commit done;
	struct ntr_head fork;
	struct ntr_err e = {0};

	(void)state;
	cfx_run(&fx, "s", "true");
	pend("k", "1");
	assert_int_equal(ntr_ctl_discard(fx.c, "s", NULL, &e), 0);
	assert_string_equal(get("k"), "(none)");
	assert_false(state_changed());
	pend("k", "2");
	assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", NULL, &done, &e), 0);
	assert_true(done.id != 0);
	ntr_commit_done(&done);
	assert_string_equal(get_at("s", "HEAD", "k"), "2");
	assert_false(state_changed());
	pend("k", "3"); /* a fork takes it, committed first */
	assert_int_equal(ntr_ctl_fork(fx.c, "s", "f", &fork, &e), 0);
	assert_string_equal(cfx_tool(&fx, "s"), "staged");
	assert_string_equal(get_at("f", NULL, "k"), "3");
	pend("k", "4"); /* as does a stop */
	assert_int_equal(ntr_ctl_stop(fx.c, "s", NULL, &e), 0);
	assert_false(cfx_is_live(&fx, "s"));
	assert_string_equal(get_at("s", "HEAD", "k"), "4");
}

static void test_rollback(void **state)
{
	struct ntr_rollback_result res;
	struct ntr_err e = {0};
	char at[NTR_COMMIT_HEX + 1];

	(void)state;
	cfx_run(&fx, "s", "echo 1 >f");
	snprintf(at, sizeof at, "%s", set("k", "1"));
	set("k", "2");
	set("other", "2");
	pend("k", "3");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", at, 0, false, false, &res, &e), 0);
	assert_string_equal(get("k"), "1");
	assert_string_equal(get("other"), "(none)");
	assert_string_equal(get_at("s", res.staged, "k"), "3"); /* nothing is lost */
	ntr_commit_done(&res.to);
	pend("k", "5");
	assert_int_equal(ntr_ctl_rollback(fx.c, "s", NULL, 1, true, false, &res, &e), 0);
	ntr_commit_done(&res.to);
	assert_string_equal(get("k"), "(none)");
	cfx_has(&fx, "s", "f", "1\n");
	/* what was dropped does not come back with the next start */
	cfx_reopen(&fx);
	assert_string_equal(get("k"), "(none)");
}

/* ---- renamed sessions */

/* From inside nothing is made, whatever the name. */
static void test_inside_makes_none(void **state)
{
	char commit[NTR_COMMIT_HEX + 1];
	struct ntr_head h;
	struct ntr_err e;

	(void)state;
	assert_int_equal(try_set("k", "1", true, commit, &e), -ENOENT);
	cfx_said("set", -ENOENT, &e);
	assert_string_equal(e.what, "use the cache of session s");
	assert_string_equal(ntr_err_reason(&e),
	        "the request comes from inside that session, which was renamed or removed");
	assert_non_null(strstr(ntr_err_advice(&e), "-s"));
	assert_int_equal(try_set("k", NULL, true, commit, &e), -ENOENT);
	assert_string_equal(e.what, "use the cache of session s");
	assert_int_equal(ntr_session_get(ntr_ctl_store(fx.c), "s", &h, NULL), -ENOENT);
}

/* A process's session is found wherever its name goes. */
static void test_session_of(void **state)
{
	char name[NTR_NAME_MAX + 1] = "", out[64];
	struct ntr_err e = {0};
	pid_t pid;

	(void)state;
	cfx_run(&fx, "other", "true");
	cfx_run_code(&fx, "s", "sleep 100 </dev/null >/dev/null 2>&1 & echo $!", 0, out, sizeof out);
	pid = (pid_t)strtol(out, NULL, 10);
	assert_int_equal(ntr_ctl_session_of(fx.c, pid, name), 0);
	assert_string_equal(name, "s");
	assert_int_equal(ntr_ctl_rename(fx.c, "s", "t", &e), 0);
	assert_int_equal(ntr_ctl_rename(fx.c, "other", "s", &e), 0);
	assert_int_equal(ntr_ctl_session_of(fx.c, pid, name), 0);
	assert_string_equal(name, "t");
	assert_int_equal(ntr_ctl_session_of(fx.c, getpid(), name), -ENOENT);
	assert_int_equal(ntr_ctl_session_of(fx.c, 0, name), -ENOENT);
	assert_int_equal(ntr_ctl_stop(fx.c, "t", NULL, &e), 0);
	assert_int_equal(ntr_ctl_session_of(fx.c, pid, name), -ENOENT);
}

/* ---- crashes */

static void test_supervisor_dies(void **state)
{
	(void)state;
	cfx_run(&fx, "s", "true");
	set("k", "1");
	pend("k", "2");
	pend("big", "\"0123456789\"");
	cfx_kill_init(&fx, "s");
	assert_string_equal(get("k"), "2");
	cfx_run(&fx, "s", "true");
	assert_string_equal(cfx_tool(&fx, "s"), "recovered");
	assert_string_equal(get_at("s", "HEAD", "k"), "2");
	assert_string_equal(get_at("s", "HEAD", "big"), "\"0123456789\"");
	assert_false(state_changed());
}

/* The store cannot be written when the daemon ends: all is in upper and journal. */
static void end_without_commit(void)
{
	struct cfx_fault k = {.from = 1, .stays = true};

	cfx_fault_on(&fx, &k);
	cfx_reopen(&fx);
}

static void test_daemon_dies(void **state)
{
	(void)state;
	cfx_run(&fx, "s", "true");
	set("old", "1");
	pend("k", "2");
	pend("old", "5");
	pend("k", "3");
	end_without_commit();
	assert_string_equal(cfx_tool(&fx, "s"), "recovered");
	assert_string_equal(get_at("s", "HEAD", "k"), "3");
	assert_string_equal(get_at("s", "HEAD", "old"), "5");
}

static void journal_path(char *path, size_t size)
{
	struct ntr_head h = cfx_head(&fx, "s");

	snprintf(path, size, "%s/upper/%llu.%llu/cache", fx.store, (unsigned long long)h.sid,
	        (unsigned long long)h.upper);
}

/* A journal that was cut short or damaged: what lies before that counts. */
static void test_torn_journal(void **state)
{
	char path[300];
	struct stat st;

	(void)state;
	cfx_run(&fx, "s", "true");
	pend("first", "1");
	journal_path(path, sizeof path);
	assert_int_equal(stat(path, &st), 0);
	pend("second", "\"a longer value\"");
	assert_int_equal(truncate(path, st.st_size + 30), 0);
	end_without_commit();
	assert_string_equal(get("first"), "1");
	assert_string_equal(get("second"), "(none)");
}

/* A power cut may bring an emptied journal back: what a later step has left behind is not repeated. */
static void test_old_journal(void **state)
{
	ntr_autofree char *old = NULL;
	char path[300];
	size_t n = 0;
	int fd;

	(void)state;
	cfx_run(&fx, "s", "true");
	pend("k", "1");
	journal_path(path, sizeof path);
	assert_int_equal(ntr_read_file(AT_FDCWD, path, 1 << 20, &old, &n), 0);
	assert_true(n > 0);
	cfx_run(&fx, "s", "true"); /* commits it */
	assert_string_equal(get_at("s", "HEAD", "k"), "1");
	set("k", "2");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, old, n), 0);
	close(fd);
	end_without_commit();
	assert_string_equal(get("k"), "2");
}

/* A commit empties it, so an old value cannot come back over a newer one. */
static void test_journal_is_emptied(void **state)
{
	char path[300];
	struct stat st;
	struct bg b;

	(void)state;
	cfx_run(&fx, "s", "true");
	bg_start(&b, false);
	inside("k", "1");
	journal_path(path, sizeof path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 0);
	go(&b);
	ntr_call_result_done(&b.res);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	set("k", "2");
	end_without_commit();
	assert_string_equal(get("k"), "2");
}

static void test_commit_fails(void **state)
{
	char commit[NTR_COMMIT_HEX + 1];
	struct cfx_fault k = {.from = 1, .stays = true};
	struct ntr_commit done;
	struct ntr_err e;

	(void)state;
	set("k", "1");
	cfx_fault_on(&fx, &k);
	assert_true(try_set("k", "2", false, commit, &e) < 0);
	cfx_said("set", e.code, &e);
	cfx_fault_off(&fx);
	assert_string_equal(get("k"), "1"); /* without a view: it did not happen */
	cfx_run(&fx, "s", "true");
	cfx_fault_on(&fx, &k);
	assert_true(try_set("k", "3", false, commit, &e) < 0);
	cfx_said("set", e.code, &e);
	cfx_fault_off(&fx);
	assert_string_equal(get("k"), "3"); /* with one it is kept, as what calls write is */
	assert_string_equal(get_at("s", "HEAD", "k"), "1");
	e = (struct ntr_err){0};
	assert_int_equal(ntr_ctl_commit(fx.c, "s", "commit", NULL, &done, &e), 0);
	ntr_commit_done(&done);
	assert_string_equal(get_at("s", "HEAD", "k"), "3");
}

/* ---- many at once: no change is lost */

enum { THREADS = 4, ROUNDS = 25 };

static void *hammer(void *arg)
{
	unsigned id = *(unsigned *)arg;

	for (unsigned i = 1; i <= ROUNDS; i++) {
		char key[16], val[16], commit[NTR_COMMIT_HEX + 1];
		struct ntr_err e;

		snprintf(key, sizeof key, "t%u", id);
		snprintf(val, sizeof val, "%u", i);
		if (try_set(key, val, true, commit, &e))
			cfx_fail(key, &e);
		if (strcmp(get(key), val) != 0)
			fail_msg("%s is %s instead of %s", key, get(key), val);
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[THREADS];
	unsigned id[THREADS];
	char key[16];

	(void)state;
	cfx_run(&fx, "s", "true");
	for (unsigned i = 0; i < THREADS; i++) {
		id[i] = i;
		assert_int_equal(pthread_create(&t[i], NULL, hammer, &id[i]), 0);
	}
	for (int i = 0; i < 15; i++)
		cfx_run(&fx, "s", "echo x >>f");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	cfx_run(&fx, "s", "echo x >>f");
	for (unsigned i = 0; i < THREADS; i++) {
		snprintf(key, sizeof key, "t%u", i);
		assert_string_equal(get_at("s", "HEAD", key), "25");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_not_live, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_live, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_bad, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_joins_the_call, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_only_cache, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_uncommitted, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_inside_makes_none, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_session_of, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_supervisor_dies, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_daemon_dies, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_torn_journal, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_old_journal, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_journal_is_emptied, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_commit_fails, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};
	return cfx_run_tests(tests);
}
