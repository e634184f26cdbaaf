/* Opening and making stores: what is refused, what is said, what the side files are for. */
#include "store_fixture.h"

#include "fs/store_impl.h"

#include <errno.h>

static struct fixture fx;

static int setup(void **state)
{
	(void)state;
	memset(&fx, 0, sizeof fx);
	fx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fx_teardown(&fx);
	return 0;
}

static int open_at(const char *path, bool create, struct ntr_store **ret, struct ntr_err *e)
{
	memset(e, 0, sizeof *e);
	return ntr_store_open(path, &(struct ntr_store_options){.create = create}, ret, e);
}

static void in_dir(char *buf, size_t n, const char *name)
{
	snprintf(buf, n, "%s/%s", fx.dir, name);
}

static void test_layout(void **state)
{
	static const char *const names[] = {"db", "lock", "synced", "upper", "versions"};
	char uuid[33], again[33];
	struct stat st;

	(void)state;
	assert_int_equal(stat(fx.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	for (size_t i = 0; i < NTR_COUNT(names); i++)
		assert_int_equal(faccessat(ntr_store_dirfd(fx.st), names[i], F_OK, 0), 0);
	assert_string_equal(ntr_store_path(fx.st), fx.path);
	ntr_store_uuid(fx.st, uuid);
	assert_int_equal(strspn(uuid, "0123456789abcdef"), 32);
	fx_reopen(&fx);
	ntr_store_uuid(fx.st, again);
	assert_string_equal(uuid, again);
}

static void test_not_there(void **state)
{
	struct ntr_store *s;
	struct ntr_err e;
	char p[400];

	(void)state;
	in_dir(p, sizeof p, "none");
	assert_int_equal(open_at(p, false, &s, &e), -ENOENT);
	assert_non_null(strstr(e.why, "no store"));
	assert_int_not_equal(access(p, F_OK), 0); /* and looking made nothing */
	in_dir(p, sizeof p, "empty");
	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(open_at(p, false, &s, &e), -ENOENT);
	assert_int_equal(open_at(p, true, &s, &e), 0);
	ntr_store_close(s);
	assert_int_equal(open_at(p, false, &s, &e), 0);
	ntr_store_close(s);
	in_dir(p, sizeof p, "a/b/c");
	assert_int_equal(open_at(p, true, &s, &e), 0);
	ntr_store_close(s);
}

static void test_foreign_folder(void **state)
{
	struct ntr_store *s;
	struct ntr_err e;
	struct stat st;
	char p[400], f[420];
	int fd;

	(void)state;
	in_dir(p, sizeof p, "home");
	assert_int_equal(mkdir(p, 0755), 0);
	snprintf(f, sizeof f, "%s/thesis.tex", p);
	fd = open(f, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	close(fd);
	assert_int_equal(open_at(p, true, &s, &e), -ENOTEMPTY);
	assert_non_null(strstr(e.why, "thesis.tex"));
	assert_non_null(strstr(e.todo, "empty folder"));
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(open_at(f, true, &s, &e), -ENOTDIR);
	assert_int_equal(open_at(f, false, &s, &e), -ENOENT);
}

static void test_held(void **state)
{
	struct ntr_store *s;
	struct ntr_err e;
	char pid[32];

	(void)state;
	assert_int_equal(open_at(fx.path, false, &s, &e), -EBUSY);
	snprintf(pid, sizeof pid, "process %d (", (int)getpid());
	assert_non_null(strstr(e.why, pid));
	assert_true(e.todo[0]);
	ntr_store_close(fx.st);
	fx_open(&fx, false); /* the pid left in the file holds nothing */
}

static void put_super(const void *val, size_t n)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();

	if (val)
		ntr_kv_batch_put(b, ntr_store_kv(fx.st), NTR_CF_META, "S", 1, val, n);
	else
		ntr_kv_batch_del(b, ntr_store_kv(fx.st), NTR_CF_META, "S", 1);
	assert_int_equal(ntr_kv_write(ntr_store_kv(fx.st), b, NTR_KV_SYNC, NULL), 0);
	ntr_kv_batch_free(b);
}

/* Writes super as the format record, then opens: the result. */
static int reopen_with(const void *super, size_t n, struct ntr_err *e)
{
	struct ntr_kv *kv;
	char db[320];
	int r;

	put_super(super, n);
	ntr_store_close(fx.st);
	fx.st = NULL;
	r = open_at(fx.path, true, &fx.st, e);
	if (r) { /* what was refused must be openable again once it is put right: open the database below it
		  */
		snprintf(db, sizeof db, "%s/db", fx.path);
		assert_int_equal(ntr_kv_open(db, &(struct ntr_kv_options){0}, &kv, NULL), 0);
		ntr_kv_close(kv);
	}
	return r;
}

static void restore_super(const void *super, size_t n)
{
	struct ntr_kv_batch *b = ntr_kv_batch_new();
	struct ntr_kv *kv;
	char db[320];

	snprintf(db, sizeof db, "%s/db", fx.path);
	assert_int_equal(ntr_kv_open(db, &(struct ntr_kv_options){0}, &kv, NULL), 0);
	ntr_kv_batch_put(b, kv, NTR_CF_META, "S", 1, super, n);
	assert_int_equal(ntr_kv_write(kv, b, NTR_KV_SYNC, NULL), 0);
	ntr_kv_batch_free(b);
	ntr_kv_close(kv);
	fx_open(&fx, false);
}

static void test_formats(void **state)
{
	uint8_t good[512], bad[512];
	struct ntr_kv_pin pin;
	struct ntr_err e;
	size_t n;

	(void)state;
	assert_int_equal(ntr_kv_get(ntr_store_kv(fx.st), NTR_CF_META, "S", 1, &pin), 0);
	assert_true(pin.len <= sizeof good);
	memcpy(good, pin.data, n = pin.len);
	ntr_kv_unpin(&pin);
	memcpy(bad, good, n);
	ntr_put_le32(bad, 7);
	assert_int_equal(reopen_with(bad, n, &e), -ENOTSUP);
	assert_non_null(strstr(e.why, "format version 7"));
	assert_non_null(strstr(e.why, "knows 1"));
	assert_non_null(strstr(e.todo, "newer ntr"));
	restore_super(good, n);
	ntr_put_le32(bad, 1);
	ntr_put_le32(bad + 4, 0x20);
	assert_int_equal(reopen_with(bad, n, &e), -ENOTSUP);
	assert_non_null(strstr(e.why, "flags 32"));
	restore_super(good, n);
	ntr_put_le32(bad + 4, 0);
	ntr_put_le32(bad + 8, 20);
	assert_int_equal(reopen_with(bad, n, &e), -ENOTSUP);
	restore_super(good, n);
	for (size_t cut = 0; cut < n; cut += 11) {
		assert_int_equal(reopen_with(good, cut, &e), -EUCLEAN);
		restore_super(good, n);
	}
	/* Records, but no format record: nothing is made anew over them. */
	fx_session(&fx, "s");
	assert_int_equal(reopen_with(NULL, 0, &e), -EUCLEAN);
	restore_super(good, n);
	assert_int_equal(ntr_session_get(fx.st, "s", &fx.head, NULL), 0);
}

static uint64_t synced_file(void)
{
	char *text;
	uint64_t v;

	assert_int_equal(ntr_read_file(ntr_store_dirfd(fx.st), "synced", 64, &text, NULL), 0);
	v = strtoull(text, NULL, 10);
	free(text);
	return v;
}

static void commit_one(void)
{
	struct ntr_txn *t = fx_begin(&fx);

	assert_int_equal(ntr_kvitem_set(t, "c:n", &fx.head.seq, sizeof fx.head.seq), 0);
	fx_commit(&fx, t);
}

static int count_syncs(void *user, uint64_t number, const char *op)
{
	(void)number;
	*(unsigned *)user += op[0] == 's';
	return 0;
}

static int fail_all(void *user, uint64_t number, const char *op)
{
	(void)user;
	(void)number;
	(void)op;
	return -EIO;
}

static void test_synced(void **state)
{
	struct ntr_session_options o = {.durability = NTR_RELAXED_DURABILITY};
	unsigned syncs = 0;
	struct ntr_err e;

	(void)state;
	assert_int_equal(ntr_session_new(fx.st, "r", &o, NULL, &fx.head, NULL), 0);
	ntr_kv_set_fault(ntr_store_kv(fx.st), count_syncs, &syncs);
	commit_one();
	assert_int_equal(synced_file(), 0); /* not on the path of a commit */
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0);
	assert_int_equal(syncs, 1);
	assert_int_equal(synced_file(), fx.head.commit);
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0);
	assert_int_equal(syncs, 1); /* nothing was pending */
	commit_one();
	ntr_kv_set_fault(ntr_store_kv(fx.st), fail_all, NULL);
	memset(&e, 0, sizeof e);
	assert_int_equal(ntr_store_sync(fx.st, &e), -EIO);
	assert_true(e.what[0]);
	assert_int_equal(synced_file(), fx.head.commit - 1);
	ntr_kv_set_fault(ntr_store_kv(fx.st), count_syncs, &syncs);
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0); /* the failed one is made up for */
	assert_int_equal(syncs, 2);
	assert_int_equal(synced_file(), fx.head.commit);
	ntr_kv_set_fault(ntr_store_kv(fx.st), NULL, NULL);
	commit_one();
	fx_reopen(&fx);
	assert_int_equal(synced_file(), fx.head.commit); /* closing syncs */
}

/* Commits that were synced and are gone are reported, and the store opens. */
static void test_regression(void **state)
{
	struct ntr_err e;
	char text[32], why[64];
	int fd;

	(void)state;
	fx_session(&fx, "s");
	commit_one();
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0);
	assert_int_equal(synced_file(), fx.head.commit);
	ntr_store_close(fx.st);
	assert_int_equal(open_at(fx.path, false, &fx.st, &e), 0);
	assert_int_equal(e.what[0], 0);
	fd = openat(ntr_store_dirfd(fx.st), "synced", O_WRONLY | O_CLOEXEC);
	ntr_store_close(fx.st);
	snprintf(text, sizeof text, "%020u\n", 60000);
	assert_int_equal(pwrite(fd, text, 21, 0), 21);
	close(fd);
	assert_int_equal(open_at(fx.path, false, &fx.st, &e), 0);
	assert_int_equal(e.code, 0);
	assert_non_null(strstr(e.what, "has lost commits"));
	snprintf(why, sizeof why, "the newest there now is %u", (unsigned)fx.head.commit);
	assert_non_null(strstr(e.why, why));
	assert_non_null(strstr(e.todo, "fsck"));
	/* The next commit's number is above what was lost, and ends the report. */
	commit_one();
	assert_true(fx.head.commit > 60000);
	ntr_store_close(fx.st);
	assert_int_equal(open_at(fx.path, false, &fx.st, &e), 0);
	assert_int_equal(e.what[0], 0);
}

static void test_owners(void **state)
{
	struct ntr_store fake = {.uid = 1000, .gid = 100}, root = {.uid = 0, .gid = 0};

	(void)state;
	assert_int_equal(ntr_store_uid_in(&fake, 1000), NTR_OWNER_ID);
	assert_int_equal(ntr_store_gid_in(&fake, 100), NTR_OWNER_ID);
	assert_int_equal(ntr_store_uid_in(&fake, 0), 0);
	assert_int_equal(ntr_store_uid_out(&fake, NTR_OWNER_ID), 1000);
	assert_int_equal(ntr_store_uid_out(&fake, 0), 1000);
	assert_int_equal(ntr_store_gid_out(&fake, 5), 100);
	assert_int_equal(ntr_store_uid_out(&root, NTR_OWNER_ID), 0);
	assert_int_equal(ntr_store_uid_out(&root, 33), 33);
	assert_int_equal(ntr_store_gid_out(&root, 33), 33);
	assert_int_equal(ntr_store_uid_in(&root, 0), NTR_OWNER_ID);
	assert_int_equal(ntr_store_uid_in(fx.st, geteuid()), NTR_OWNER_ID);
}

static void test_read_only(void **state)
{
	struct ntr_store_options o = {.read_only = true};
	struct ntr_store *s;
	struct ntr_head h, n;
	struct ntr_err e = {0};

	(void)state;
	fx_session(&fx, "s");
	assert_int_equal(ntr_store_open(fx.path, &o, &s, &e), 0); /* beside its owner */
	assert_int_equal(ntr_session_get(s, "s", &h, NULL), 0);
	assert_int_not_equal(ntr_session_new(s, "t", NULL, NULL, &n, &e), 0);
	ntr_store_close(s);
	assert_int_equal(ntr_session_get(fx.st, "t", &n, NULL), -ENOENT);
	commit_one();
}

/* A failed making leaves nothing that a second try would stumble over. */
static void test_make_again(void **state)
{
	struct ntr_store *s;
	struct ntr_err e;
	char p[400], db[420];

	(void)state;
	in_dir(p, sizeof p, "again");
	snprintf(db, sizeof db, "%s/db", p);
	assert_int_equal(mkdir(p, 0700), 0);
	assert_int_equal(mkdir(db, 0700), 0); /* made, and then nothing more */
	assert_int_not_equal(open_at(p, false, &s, &e), 0);
	assert_int_equal(open_at(p, true, &s, &e), 0);
	ntr_store_close(s);
	assert_int_equal(open_at(p, false, &s, &e), 0);
	ntr_store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_not_there, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_foreign_folder, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_held, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_formats, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_synced, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_regression, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_owners, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_make_again, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
