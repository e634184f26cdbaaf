/* What a cache's change survives when the daemon is killed at the worst moments of a commit: the journal as
 * it lay there then is put in place of what came later. And a disk that refuses to take back half a record.
 */
#include "ctl_fixture.h"

#include <dlfcn.h>
#include <pthread.h>

static struct cfx fx;

/* ---- a disk that fails: what the journal is written with, by the names that its source file gets */

static _Atomic int bad_writes, bad_cuts;

static bool is_journal(int fd)
{
	char link[64], path[600];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	return n > 6 && !strcmp(path + n - 6, "/cache");
}

static bool fails(_Atomic int *left, int fd)
{
	if (*left <= 0 || !is_journal(fd))
		return false;
	--*left;
	return true;
}

ssize_t my_pwrite(int fd, const void *p, size_t n, off_t at) __asm__("pwrite64");
int my_ftruncate(int fd, off_t size) __asm__("ftruncate64");

ssize_t my_pwrite(int fd, const void *p, size_t n, off_t at)
{
	static _Atomic(void *) real;
	ssize_t (*f)(int, const void *, size_t, off_t);
	bool fault = bad_writes == 1 && fails(&bad_writes, fd);

	if (bad_writes > 1 && is_journal(fd)) /* that one goes well yet */
		--bad_writes;
	if (!real)
		real = dlsym(RTLD_NEXT, "pwrite64");
	*(void **)&f = real;
	if (!fault)
		return f(fd, p, n, at);
	(void)!f(fd, p, n / 2, at);
	errno = EIO;
	return -1;
}

int my_ftruncate(int fd, off_t size)
{
	static _Atomic(void *) real;
	int (*f)(int, off_t);

	if (!real)
		real = dlsym(RTLD_NEXT, "ftruncate64");
	*(void **)&f = real;
	if (!fails(&bad_cuts, fd))
		return f(fd, size);
	errno = EIO;
	return -1;
}

/* ---- a call whose commit is being written */

CFX_SETUP(setup, .fold_entries = 0)

static int teardown(void **state)
{
	(void)state;
	bad_writes = bad_cuts = 0;
	cfx_teardown(&fx);
	return 0;
}

static int try_inside(const char *key, const char *val, struct ntr_err *e)
{
	char commit[NTR_COMMIT_HEX + 1];

	*e = (struct ntr_err){0};
	return ntr_ctl_cache_set(fx.c, "s", key, val, strlen(val), true, commit, e);
}

static void inside(const char *key, const char *val)
{
	struct ntr_err e;

	if (try_inside(key, val, &e))
		cfx_fail(key, &e);
}

static void has_at(const char *rev, const char *key, const char *want)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	struct ntr_err e = {0};
	int r = ntr_ctl_cache_get(fx.c, "s", rev, key, &b, &e);

	if (r && r != -ENOENT)
		cfx_fail(key, &e);
	assert_string_equal(r ? "(none)" : ntr_buf_cstr(&b), want);
}

struct call {
	pthread_t t;
	struct ntr_call_result res;
	int r;
	struct ntr_err e;
};

static void *call_main(void *arg)
{
	struct call *c = arg;

	c->r = cfx_try(&fx, "s", "touch began; while [ ! -e go ]; do sleep 0.02; done; rm -f began go",
	        (struct ntr_call_spec){.capture = true}, &c->res, &c->e);
	return NULL;
}

static void call_begin(struct call *c)
{
	*c = (struct call){.r = 0};
	assert_int_equal(pthread_create(&c->t, NULL, call_main, c), 0);
	while (!cfx_cat(&fx, "s", NULL, "began"))
		usleep(5000);
}

static void call_end(struct call *c)
{
	char path[300];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/root/workspace/go", (int)cfx_init_pid(&fx, "s"));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	close(fd);
	pthread_join(c->t, NULL);
	ntr_call_result_done(&c->res);
}

static void journal_path(char path[300])
{
	struct ntr_head h = cfx_head(&fx, "s");

	snprintf(path, 300, "%s/upper/%llu.%llu/cache", fx.store, (unsigned long long)h.sid,
	        (unsigned long long)h.upper);
}

/* What happens while the commit is written: changes come, and the journal is noted as it is then. */
struct moment {
	const char *key, *val, *val2; /* NULL: none comes */
	int ret;                      /* of the write */
	bool over;
	char link[300]; /* the file itself, under a second name */
	char *text;
	size_t len;
};

static int at_commit(void *user, uint64_t number, const char *op)
{
	struct moment *m = user;
	char path[300];

	(void)number;
	(void)op;
	if (m->over)
		return m->ret;
	m->over = true;
	if (m->key)
		inside(m->key, m->val);
	if (m->key && m->val2)
		inside(m->key, m->val2);
	journal_path(path);
	snprintf(m->link, sizeof m->link, "%.150s/journal", fx.dir);
	unlink(m->link);
	if (link(path, m->link) || ntr_read_file(AT_FDCWD, path, 1 << 20, &m->text, &m->len))
		m->ret = -EIO;
	return m->ret;
}

/* A call that has set k to 1, and the moment of its commit. */
static void commit_with(struct moment *m)
{
	struct call c;

	call_begin(&c);
	inside("k", "1");
	ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(fx.c)), at_commit, m);
	call_end(&c);
	cfx_fault_off(&fx);
	assert_true(m->over && m->text);
	if (m->ret) {
		assert_int_equal(c.r, m->ret);
		has_at("HEAD", "k", "(none)");
	} else if (c.r) {
		cfx_fail("call", &c.e);
	} else {
		has_at("HEAD", "k", "1");
	}
}

static void moment_done(struct moment *m)
{
	free(m->text);
}

static void put_back(const struct moment *m)
{
	char path[300];
	int fd;

	journal_path(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, m->text, m->len), 0);
	close(fd);
}

/* The store cannot be written when the daemon ends: all is in upper and journal. */
static void end_without_commit(void)
{
	struct cfx_fault k = {.from = 1, .stays = true};

	cfx_fault_on(&fx, &k);
	cfx_reopen(&fx);
}

/* ---- tests */

/* Killed when the commit is on disk, before the journal is as small as it may be then. */
static void test_set_while_written(void **state)
{
	ntr_auto(moment_done) struct moment m = {.key = "late", .val = "0", .val2 = "1"};

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&m);
	has_at("HEAD", "late", "(none)");
	has_at(NULL, "late", "1");
	put_back(&m);
	end_without_commit();
	has_at("HEAD", "late", "1");
	has_at("HEAD", "k", "1");
	assert_string_equal(cfx_tool(&fx, "s"), "recovered");
}

/* Over what the commit takes in, too. */
static void test_same_key_while_written(void **state)
{
	ntr_auto(moment_done) struct moment m = {.key = "k", .val = "2"};

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&m);
	has_at(NULL, "k", "2");
	put_back(&m);
	end_without_commit();
	has_at("HEAD", "k", "2");
}

/* Killed before the commit is on disk. */
static void test_not_written(void **state)
{
	ntr_auto(moment_done) struct moment m = {.key = "late", .val = "1", .ret = -EIO};

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&m);
	end_without_commit();
	has_at("HEAD", "late", "1");
	has_at("HEAD", "k", "1");
}

/* What waits for the next commit is in a whole journal at every moment, or in two. */
static void test_never_emptied(void **state)
{
	ntr_auto(moment_done) struct moment m = {.key = "late", .val = "1"};
	ntr_autofree char *text = NULL;
	size_t len = 0;

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&m);
	assert_int_equal(ntr_read_file(AT_FDCWD, m.link, 1 << 20, &text, &len), 0);
	assert_int_equal(len, m.len);
	assert_memory_equal(text, m.text, len);
	end_without_commit(); /* the new one holds it as well */
	has_at("HEAD", "late", "1");
	has_at("HEAD", "k", "1");
}

/* A commit that failed has left its marks: what came later is newer. */
static void test_failed_first(void **state)
{
	ntr_auto(moment_done) struct moment first = {.key = "late", .val = "1", .ret = -EIO}, second = {0};

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&first);
	second.key = NULL;
	{
		struct call c;

		call_begin(&c);
		inside("late", "2");
		ntr_kv_set_fault(ntr_store_kv(ntr_ctl_store(fx.c)), at_commit, &second);
		call_end(&c);
		cfx_fault_off(&fx);
		assert_int_equal(c.r, 0);
	}
	has_at("HEAD", "late", "2");
	put_back(&second);
	end_without_commit();
	has_at("HEAD", "late", "2");
	has_at("HEAD", "k", "1");
}

/* A step later the same journal is history, whatever brought it back. */
static void test_two_steps_later(void **state)
{
	ntr_auto(moment_done) struct moment m = {.key = "late", .val = "1"};
	struct call c;

	(void)state;
	cfx_run(&fx, "s", "true");
	commit_with(&m);
	cfx_run(&fx, "s", "true"); /* commits it */
	has_at("HEAD", "late", "1");
	call_begin(&c);
	inside("late", "2");
	inside("k", "2");
	call_end(&c);
	put_back(&m);
	end_without_commit();
	has_at("HEAD", "late", "2");
	has_at("HEAD", "k", "2");
}

/* Half a record that stays does not hide what follows. */
static void torn(int writes)
{
	struct call c;
	struct ntr_err e;

	cfx_run(&fx, "s", "true");
	call_begin(&c);
	inside("first", "\"a value that is longer than a record without one\"");
	bad_writes = writes;
	bad_cuts = 1;
	assert_int_equal(
	        try_inside("lost", "\"a value that is longer than a record without one\"", &e), -EIO);
	cfx_said("set", -EIO, &e);
	assert_int_equal(bad_writes, 0);
	assert_int_equal(bad_cuts, 0);
	inside("second", "2");
	bad_writes = writes;
	bad_cuts = 2; /* and a second time, when it is tried again */
	assert_int_equal(try_inside("lost", "3", &e), -EIO);
	assert_int_equal(try_inside("lost", "4", &e), -EIO);
	assert_int_equal(bad_cuts, 0);
	inside("third", "3");
	cfx_fault_on(&fx, &(struct cfx_fault){.from = 1, .stays = true});
	call_end(&c);
	end_without_commit();
	has_at("HEAD", "first", "\"a value that is longer than a record without one\"");
	has_at("HEAD", "lost", "(none)");
	has_at("HEAD", "second", "2");
	has_at("HEAD", "third", "3");
}

static void test_torn_head(void **state)
{
	(void)state;
	torn(1);
}

static void test_torn_value(void **state)
{
	(void)state;
	torn(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_set_while_written, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_same_key_while_written, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_not_written, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_never_emptied, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_failed_first, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_two_steps_later, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_torn_head, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_torn_value, setup, teardown),
	};
	return cfx_run_tests(tests);
}
