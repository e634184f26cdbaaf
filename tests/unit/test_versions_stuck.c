/* A store that does not answer: the watchdog, service to others meanwhile, and a stop that returns. The store
 * is stopped by the hook that replaces the name hash. */
#include "base/fusemount.h"
#include "versions_fixture.h"

#include <pthread.h>

static struct vfixture f;
static char root[400];
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int waiting;

static uint64_t slow_hash(const char *name, size_t n)
{
	uint64_t h = 5381;

	for (size_t i = 0; i < n; i++)
		h = h * 33 + (uint8_t)name[i];
	if (n >= 5 && !memcmp(name, "stuck", 5)) {
		atomic_fetch_add(&waiting, 1);
		pthread_mutex_lock(&gate);
		pthread_mutex_unlock(&gate);
		atomic_fetch_sub(&waiting, 1);
	}
	return 3 + (h >> 2);
}

static int setup(void **state)
{
	struct ntr_versions_options o = VFX_PLAIN;
	struct ntr_txn *t;

	(void)state;
	vfx_setup(&f);
	ntr_dirent_hash_hook = slow_hash;
	t = fx_begin(&f.fx);
	vfx_new(t, NTR_INO_ROOT, "stuck", S_IFREG | 0644, "x", 1);
	vfx_new(t, NTR_INO_ROOT, "fine", S_IFREG | 0644, "x", 1);
	for (int i = 0; i < 8; i++) {
		char name[16];

		snprintf(name, sizeof(name), "stuck%d", i);
		vfx_new(t, NTR_INO_ROOT, name, S_IFREG | 0644, "x", 1);
	}
	fx_commit(&f.fx, t);
	o.watchdog_s = 1;
	vfx_mount(&f, o);
	vfx_root_path(&f, f.fx.head.root, root);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vfx_teardown(&f);
	ntr_dirent_hash_hook = NULL;
	return 0;
}

static int try(const char *name)
{
	char path[500];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return stat(path, &st) < 0 ? errno : 0;
}

static void *try_stuck(void *arg)
{
	return (void *)(intptr_t)try(arg);
}

static void wait_for(int n)
{
	for (int i = 0; i < 500 && atomic_load(&waiting) != n; i++)
		usleep(10000);
	assert_int_equal(atomic_load(&waiting), n);
}

static void test_watchdog(void **state)
{
	char name[] = "stuck";
	uint64_t t0;
	pthread_t th;
	void *r;

	(void)state;
	assert_int_equal(try("."), 0);
	pthread_mutex_lock(&gate);
	assert_int_equal(pthread_create(&th, NULL, try_stuck, name), 0);
	wait_for(1);
	/* others are served meanwhile */
	t0 = ntr_mono_ns();
	assert_int_equal(try("fine"), 0);
	assert_true(ntr_mono_ns() - t0 < 900000000ull);
	pthread_join(th, &r);
	assert_int_equal((intptr_t)r, EIO);
	pthread_mutex_unlock(&gate);
	wait_for(0);
	/* an error is not remembered, and the thread serves again */
	for (int i = 0; i < 3; i++)
		assert_int_equal(try("stuck"), 0);
	assert_int_equal(try("absent"), ENOENT);
	assert_int_equal(vfx_inodes(&f), 3);
}

/* As many stuck requests as there are threads: everyone gets an answer all the same. */
static void test_all_stuck(void **state)
{
	static char name[8][16];
	pthread_t th[8];
	void *r;

	(void)state;
	assert_int_equal(try("."), 0);
	pthread_mutex_lock(&gate);
	for (int i = 0; i < 2; i++) {
		snprintf(name[i], sizeof(name[i]), "stuck%d", i);
		assert_int_equal(pthread_create(&th[i], NULL, try_stuck, name[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(th[i], &r);
		assert_int_equal((intptr_t)r, EIO);
	}
	assert_int_equal(try("fine"), 0);
	pthread_mutex_unlock(&gate);
	wait_for(0);
	assert_int_equal(try("stuck0"), 0);
}

static void *stop(void *arg)
{
	(void)arg;
	ntr_versions_stop(f.v);
	return NULL;
}

/* The store comes back while stop waits for it: nothing is lost or used after its end. */
static void test_stop_waits(void **state)
{
	char name[] = "stuck";
	pthread_t th, ts;
	void *r;

	(void)state;
	assert_int_equal(try("."), 0);
	pthread_mutex_lock(&gate);
	assert_int_equal(pthread_create(&th, NULL, try_stuck, name), 0);
	wait_for(1);
	assert_int_equal(pthread_create(&ts, NULL, stop, NULL), 0);
	usleep(200000);
	pthread_mutex_unlock(&gate);
	pthread_join(ts, NULL);
	pthread_join(th, &r);
	f.v = NULL;
	assert_int_equal(try("fine"), ENOENT); /* the bare directory */
}

/* On a ring nobody can answer in the stuck thread's stead: the connection ends, for this caller and all
 * others; a new mount serves while the old one's thread is still stuck. */
static struct ntr_versions *left_behind; /* as long as the process lives */

static void test_ring_ends(void **state)
{
	char name[] = "stuck";
	uint64_t t0 = ntr_mono_ns();
	pthread_t th;
	int err;
	void *r;

	(void)state;
	assert_int_equal(try("."), 0);
	assert_int_equal(try("fine"), 0);
	pthread_mutex_lock(&gate);
	assert_int_equal(pthread_create(&th, NULL, try_stuck, name), 0);
	wait_for(1);
	pthread_join(th, &r);
	err = (int)(intptr_t)r;
	assert_true(err == ECONNABORTED || err == EIO);
	assert_true(ntr_mono_ns() - t0 < 9000000000ull);
	for (int i = 0; i < 100 && ntr_versions_alive(f.v); i++)
		usleep(10000);
	assert_false(ntr_versions_alive(f.v));
	err = try("absent");
	assert_true(err == ENOTCONN || err == ECONNABORTED);
	left_behind = f.v;
	t0 = ntr_mono_ns();
	ntr_versions_stop(f.v);
	assert_true(ntr_mono_ns() - t0 < 9000000000ull);
	assert_int_equal(ntr_versions_left_behind(), 1);
	vfx_mount(&f, (struct ntr_versions_options){.fuse_fd = -1, .watchdog_s = 1});
	assert_int_equal(try("fine"), 0);
	assert_int_equal(try("absent"), ENOENT);
	pthread_mutex_unlock(&gate);
	wait_for(0);
	assert_int_equal(try("stuck"), 0);
	for (int i = 0; i < 500 && ntr_versions_left_behind(); i++)
		usleep(10000); /* the old thread is on its way out of the store */
	assert_int_equal(ntr_versions_left_behind(), 0);
}

/* A caller that has just been told so asks for a new mount at once: the end is known before a thread of the
 * driver, all of which are busy here, comes to read of it. */
static void test_end_is_known(void **state)
{
	int n = f.want == NTR_TRANSPORT_URING ? 1 : 2; /* two on one ring wait for each other */
	char name[2][16] = {"stuck0", "stuck1"};
	pthread_t th[2];
	bool alive;
	dev_t dev;
	int r;

	(void)state;
	assert_int_equal(try("."), 0);
	assert_true(ntr_versions_alive(f.v));
	assert_int_equal(ntr_fuse_dev(f.mnt, &dev), 0);
	pthread_mutex_lock(&gate);
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&th[i], NULL, try_stuck, name[i]), 0);
	wait_for(n);
	r = ntr_fuse_abort(dev);
	alive = ntr_versions_alive(f.v);
	pthread_mutex_unlock(&gate);
	for (int i = 0; i < n; i++)
		pthread_join(th[i], NULL);
	wait_for(0);
	if (r && geteuid())
		skip(); /* only root can, where fusectl is not mounted */
	assert_int_equal(r, 0);
	assert_false(alive);
}

static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_watchdog, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_stuck, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_is_known, setup, teardown),
};

static const struct CMUnitTest ring_tests[] = {
        cmocka_unit_test_setup_teardown(test_ring_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_is_known, setup, teardown),
};

int main(void)
{
	int failed;

	if (geteuid() != 0 && access("/dev/fuse", R_OK | W_OK) < 0) {
		print_message("skipped: /dev/fuse cannot be opened\n");
		return 0;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (vfx_enable_uring()) {
		print_message("over io_uring\n");
		f.want = NTR_TRANSPORT_URING;
		failed += cmocka_run_group_tests(ring_tests, NULL, NULL);
	}
	return failed;
}
