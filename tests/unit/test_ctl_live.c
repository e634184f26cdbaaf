/* What a dead daemon left, met by one that is out of descriptors (or memory, or has a bad disk) for a moment:
 * what cannot be looked at is not gone. Work in memory stays with its supervisor, and an upper that somebody
 * may still write to is not absorbed; the next use, when it can be looked at, goes on as if nothing had been.
 */
#include "ctl_fixture.h"
#include "exec/live_memory.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <sys/prctl.h>

static struct cfx fx;

/* ---- openings that fail, by the names that the headers make of open and openat */

/* Threads of the daemon's ask, too. */
static struct {
	const char *_Atomic path; /* a pattern; NULL: none */
	_Atomic int err, met;
} bad;

static bool fails(const char *path)
{
	const char *pattern = bad.path;

	if (!pattern || fnmatch(pattern, path, 0))
		return false;
	bad.met++;
	errno = bad.err;
	return true;
}

int my_open(const char *path, int flags, ...) __asm__("open64");
int my_openat(int dirfd, const char *path, int flags, ...) __asm__("openat64");

int my_openat(int dirfd, const char *path, int flags, ...)
{
	static _Atomic(void *) real;
	int (*f)(int, const char *, int, ...);
	va_list ap;
	mode_t mode;

	if (!real)
		real = dlsym(RTLD_NEXT, "openat64");
	*(void **)&f = real;
	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return fails(path) ? -1 : f(dirfd, path, flags, mode);
}

int my_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return my_openat(AT_FDCWD, path, flags, mode);
}

/* ---- a daemon that ended without a commit */

CFX_SETUP(setup, .fold_entries = 0)

static int teardown(void **state)
{
	(void)state;
	bad.path = NULL;
	ntr_memory_force(false);
	cfx_teardown(&fx);
	return 0;
}

/* Leaves g uncommitted, and the store closed. */
static struct ntr_head leave(void)
{
	struct cfx_fault k = {.from = 1, .stays = true};
	struct ntr_head h;

	cfx_run(&fx, "s", "echo base >f");
	cfx_run_no_commit(&fx, "s", "echo precious >g");
	h = cfx_head(&fx, "s");
	assert_true(h.upper != 0);
	cfx_fault_on(&fx, &k);
	cfx_close(&fx);
	return h;
}

/* A daemon to which what matches path is out of reach. */
static void open_with(const char *path, int err)
{
	bad.met = 0;
	bad.err = err;
	bad.path = path;
	cfx_open(&fx);
	assert_true(bad.met > 0);
}

/* As long as it is, whoever uses the session is told, and nothing is given up. */
static void told(const struct ntr_head *h)
{
	struct ntr_call_result res;
	struct ntr_err e;

	assert_int_equal(cfx_head(&fx, "s").upper, h->upper);
	assert_int_equal(
	        cfx_try(&fx, "s", "true", (struct ntr_call_spec){.capture = true}, &res, &e), -bad.err);
	cfx_said("run", -bad.err, &e);
	assert_int_equal(cfx_head(&fx, "s").upper, h->upper);
	bad.path = NULL;
}

static void has_all(void)
{
	char out[64];

	cfx_run_code(&fx, "s", "cat f g", 0, out, sizeof out);
	assert_string_equal(out, "base\nprecious\n");
}

/* ---- in memory */

static void in_memory(const char *path, int err)
{
	struct ntr_head h;

	ntr_memory_force(true);
	h = leave();
	open_with(path, err);
	told(&h);
	has_all();
}

static void test_memory(void **state)
{
	(void)state;
	in_memory("/proc/*/fd/*", EMFILE);
}

static void test_memory_no_room(void **state)
{
	(void)state;
	in_memory("/proc/*/fd/*", ENOMEM);
}

static void test_memory_note(void **state)
{
	(void)state;
	in_memory("upper/*/init", EMFILE);
}

static void test_memory_note_bad_disk(void **state)
{
	(void)state;
	in_memory("upper/*/init", EIO);
}

static void test_memory_marker(void **state)
{
	(void)state;
	in_memory("upper/*/memory", EMFILE);
}

static void test_memory_boot(void **state)
{
	(void)state;
	in_memory("/proc/sys/kernel/random/boot_id", EMFILE);
}

static void test_memory_stat(void **state)
{
	(void)state;
	in_memory("/proc/*/stat", ENFILE);
}

static void test_memory_comm(void **state)
{
	(void)state;
	in_memory("/proc/*/comm", EMFILE);
}

/* A note that cannot be made says nothing wrong later: the call that needs it fails. */
static void test_memory_begin(void **state)
{
	struct ntr_call_result res;
	struct ntr_err e;

	(void)state;
	ntr_memory_force(true);
	cfx_run(&fx, "other", "true");
	bad.err = ENFILE;
	bad.path = "/proc/*/stat";
	assert_int_equal(
	        cfx_try(&fx, "s", "true", (struct ntr_call_spec){.capture = true}, &res, &e), -ENFILE);
	cfx_said("run", -ENFILE, &e);
	bad.path = NULL;
	cfx_run(&fx, "s", "true");
}

/* What is gone is gone, and holds up nothing. */
static void test_memory_gone(void **state)
{
	struct ntr_head h;
	pid_t pid;

	(void)state;
	ntr_memory_force(true);
	cfx_run(&fx, "s", "true");
	pid = cfx_init_pid(&fx, "s");
	h = leave();
	assert_int_equal(kill(pid, SIGKILL), 0);
	waitpid(pid, NULL, 0);
	cfx_open(&fx);
	assert_int_equal(cfx_head(&fx, "s").upper, 0);
	assert_int_not_equal(h.upper, 0);
	cfx_has(&fx, "s", "f", "base\n");
	cfx_has_not(&fx, "s", "g");
	cfx_run(&fx, "s", "true");
}

/* ---- on disk, with a process that a dead daemon left in the session's namespace */

static pid_t leftover_begin(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)))
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static unsigned long long start_of(pid_t pid)
{
	ntr_autofree char *text = NULL;
	unsigned long long v = 0;
	char path[64];
	const char *p;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	assert_int_equal(ntr_read_file(AT_FDCWD, path, 4096, &text, NULL), 0);
	p = strrchr(text, ')');
	assert_int_equal(sscanf(p + 1,
	                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
	                         "%*d %llu",
	                         &v),
	        1);
	return v;
}

/* As if it had been the supervisor. */
static pid_t leftover(const struct ntr_head *h)
{
	char path[300], text[200], boot[NTR_BOOT_ID_MAX];
	pid_t pid = leftover_begin();
	ntr_autoclose int fd = -1;
	uint64_t own = ntr_namespace_of(getpid()), id = own;
	int n;

	for (int i = 0; i < 1000 && (!id || id == own); i++) {
		usleep(2000);
		id = ntr_namespace_of(pid);
	}
	assert_true(id && id != own);
	ntr_boot_id(boot);
	n = snprintf(text, sizeof text, "%d %llu %llu %s\n", (int)pid, start_of(pid), (unsigned long long)id,
	        boot);
	snprintf(path, sizeof path, "%s/upper/%llu.%llu/init", fx.store, (unsigned long long)h->sid,
	        (unsigned long long)h->upper);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ntr_write_all(fd, text, (size_t)n), 0);
	return pid;
}

static void on_disk(const char *path, int err)
{
	struct ntr_head h = leave();
	pid_t pid = leftover(&h);
	int status;

	open_with(path, err);
	told(&h);
	has_all();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_string_equal(cfx_tool(&fx, "s"), "recovered");
}

static void test_leftover_note(void **state)
{
	(void)state;
	on_disk("upper/*/init", EMFILE);
}

static void test_leftover_note_bad_disk(void **state)
{
	(void)state;
	on_disk("upper/*/init", EIO);
}

static void test_leftover_boot(void **state)
{
	(void)state;
	on_disk("/proc/sys/kernel/random/boot_id", EMFILE);
}

static void test_leftover_stat(void **state)
{
	(void)state;
	on_disk("/proc/*/stat", EMFILE);
}

static void test_leftover_namespace(void **state)
{
	(void)state;
	on_disk("/proc/*/ns/mnt", ENFILE);
}

/* An upper that no record names is kept as well, until nobody writes to it. */
static void test_leftover_of_orphan(void **state)
{
	struct ntr_head h = leave();
	char from[300], to[300];
	int status;
	pid_t pid;

	(void)state;
	snprintf(from, sizeof from, "%s/upper/%llu.%llu", fx.store, (unsigned long long)h.sid,
	        (unsigned long long)h.upper);
	snprintf(to, sizeof to, "%s/upper/999.1", fx.store);
	assert_int_equal(mkdir(to, 0700), 0);
	pid = leftover(&h);
	strcat(from, "/init");
	strcat(to, "/init");
	assert_int_equal(rename(from, to), 0);
	open_with("upper/999.1/init", EMFILE);
	bad.path = NULL;
	assert_int_equal(access(to, F_OK), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	cfx_reopen(&fx);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(access(to, F_OK), -1);
	has_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_no_room, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_note, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_note_bad_disk, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_marker, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_boot, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_stat, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_comm, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_begin, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_memory_gone, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_note, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_note_bad_disk, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_boot, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_stat, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_namespace, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_leftover_of_orphan, setup, teardown),
	};
	return cfx_run_tests(tests);
}
