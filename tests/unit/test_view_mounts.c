/* The view as a mount: its place, the two overlay flavours, fold, swap, clone, and what errors say. */
#include "init_harness.h"

#include "exec/view.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>

static json_t *layer_op(struct th *t, const char *op)
{
	int fds[3];
	json_t *m;

	th_next_layers(t, fds);
	m = th_do(t, json_pack("{s:s}", "op", op), fds, 3);
	ntr_wire_close_fds(fds, 3);
	return m;
}

static int number_of(const char *s)
{
	return (int)strtol(s, NULL, 10);
}

static bool is_ok(const json_t *m)
{
	return ntr_json_bool(m, "ok", false);
}

/* ---- the place ---- */

static void seen_at(bool user, const char *wsroot)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct stat before, after;
	int had = stat(wsroot, &before);
	char script[512];

	th_dirs(&t, user);
	th_start(&t, wsroot);
	if (!is_ok(t.started)) {
		json_dumpf(t.started, stderr, 0);
		fail_msg("no session at %s", wsroot);
	}
	snprintf(script, sizeof script,
	        "pwd -P; cat hello; echo x > new; rm hello; ls; [ -d /proc/self ] && [ -c /dev/null ]"
	        "&& [ -x /bin/sh ] && echo system; cd %s && ls",
	        wsroot);
	th_script(&t, script, &r);
	snprintf(script, sizeof script, "%s\nhello\nnew\nsystem\nnew\n", wsroot);
	assert_string_equal(r.out, script);
	assert_true(th_exists(&t, "upper", "new"));
	/* Nothing of it on the host. */
	assert_int_equal(stat(wsroot, &after), had);
	if (!had)
		assert_int_equal(before.st_ino, after.st_ino);
}

static void places(bool user)
{
	ntr_auto(th_close) struct th t;
	char there[128], deep[128], neighbour[160];

	th_dirs(&t, user);
	snprintf(there, sizeof there, "%s/there", t.dir);
	assert_int_equal(mkdir(there, 0755), 0);
	snprintf(neighbour, sizeof neighbour, "%s/neigh bour", t.dir);
	assert_int_equal(mkdir(neighbour, 0755), 0);
	snprintf(deep, sizeof deep, "%s/not/yet/there", t.dir);
	seen_at(user, there);
	seen_at(user, deep);
	seen_at(user, "/workspace");
	seen_at(user, "/ntr-no-such-root/a/b");
	seen_at(user, "/srv");
	th_start(&t, deep);
	snprintf(neighbour, sizeof neighbour, "ls -d ../../../neigh*; ls %s/there | wc -l; echo > ../x",
	        t.dir);
	{
		ntr_auto(th_result_done) struct th_result r = {0};

		th_script(&t, neighbour, &r);
		assert_string_equal(r.out, "../../../neigh bour\n0\n");
		assert_non_null(strstr(r.err, "Read-only file system"));
	}
}
TH_BOTH(places)

/* What is closed to an ordinary user outside is closed by its mode inside, too. */
static void closed_root_user(void **state)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct statvfs fs;

	(void)state;
	if (!statvfs("/", &fs) && fs.f_flag & ST_RDONLY)
		skip(); /* within a session of ntr's: there it is closed by that, not by its mode */
	th_open(&t, true);
	th_script(&t, "echo > /ntr-x; mkdir /ntr-y; ls -d /ntr-*; cat hello", &r);
	assert_string_equal(r.out, "hello\n");
	assert_non_null(strstr(r.err, "/ntr-x: Permission denied"));
	assert_null(strstr(r.err, "Read-only"));
}

static void bad_places(bool user)
{
	static const char *const bad[] = {
	        "/", "relative", "/a/../b", "/a//b", "/a/", "/.", "", "/etc/passwd", "/etc/passwd/x"};

	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		ntr_auto(th_close) struct th t;
		const json_t *e;

		th_dirs(&t, user);
		th_start(&t, bad[i]);
		e = json_object_get(t.started, "error");
		if (!e || !*ntr_json_str(e, "what", "") || !*ntr_json_str(e, "why", ""))
			fail_msg("a session at '%s' is not refused", bad[i]);
		assert_int_equal(th_gone(&t), 0);
	}
}
TH_BOTH(bad_places)

/* The workspace covers the folder that holds the store: the layers of later overlays are found all the same.
 */
static void above_the_store(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_autojson json_t *fold = NULL, *swap = NULL;

	th_dirs(&t, user);
	th_start(&t, t.dir);
	assert_true(is_ok(t.started));
	th_expect(&t, "echo a > a; ls", "a\nhello\n");
	fold = layer_op(&t, "fold");
	assert_true(is_ok(fold));
	th_expect(&t, "echo b > b; ls", "b\nhello\n");
	assert_true(th_exists(&t, "upper", "b"));
	swap = layer_op(&t, "swap");
	assert_true(is_ok(swap));
	th_expect(&t, "ls", "hello\n");
}
TH_BOTH(above_the_store)

/* ---- the overlay ---- */

static void options(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0}, mv = {0};

	th_dirs(&t, user);
	{
		char p[256];

		th_path(&t, p, sizeof p, "lower", "dir");
		assert_int_equal(mkdir(p, 0755), 0);
		if (user && !geteuid())
			assert_int_equal(chown(p, TH_NOBODY, TH_NOBODY), 0);
	}
	th_start(&t, "/workspace");
	th_script(&t, "grep ' /workspace ' /proc/self/mounts", &r);
	assert_non_null(strstr(r.out, user ? "userxattr" : "redirect_dir=on"));
	assert_null(strstr(r.out, "index=on"));
	if (!user)
		assert_non_null(strstr(r.out, "metacopy=on"));
	th_script(&t,
	        "mv dir dir2; ls; stat -c %s hello; echo more >> hello; cat hello; rm hello; ls; mknod p p; "
	        "ln p q",
	        &mv);
	assert_string_equal(mv.out, "dir2\nhello\n6\nhello\nmore\ndir2\n");
	assert_string_equal(mv.err, "");
}
TH_BOTH(options)

/* ---- fold and swap ---- */

static void fold(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *busy = NULL, *ok = NULL, *file = NULL, *idle = NULL;
	int pid;

	th_open(&t, user);
	th_expect(&t, "echo one > one; ls", "hello\none\n");
	th_put(&t, "lower", "one", "one\n"); /* as if committed */
	idle = layer_op(&t, "fold");
	assert_true(is_ok(idle));
	th_expect(&t, "ls; echo two > two", "hello\none\n");
	assert_true(th_exists(&t, "upper", "two"));
	assert_false(th_exists(&t, "upper", "one"));

	/* A working directory in the view, then an open file: busy, and everything as before. */
	th_script(&t, "sleep 1000 & echo $!", &r);
	pid = number_of(r.out);
	busy = layer_op(&t, "fold");
	assert_true(ntr_json_bool(busy, "busy", false));
	assert_false(th_exists(&t, "upper", "two"));
	th_expect(&t, "ls; echo three > three", "hello\none\ntwo\n");
	assert_false(th_exists(&t, "upper", "three"));
	assert_true(th_alive(pid));
	kill(pid, SIGKILL);
	TH_EVENTUALLY(!th_alive(pid));
	th_expect(&t, "cd /; exec 3</workspace/hello; sleep 1000 & true", "");
	file = layer_op(&t, "fold");
	assert_true(ntr_json_bool(file, "busy", false));
	assert_int_equal(th_ask(&t, "ps", "req") > 0, 1);
	json_decref(th_do(&t, json_pack("{s:s,s:i}", "op", "kill", "call", 0), NULL, 0));

	/* One that works elsewhere is no hindrance, does not see a gap, and goes on. */
	th_script(&t, "cd /; (while :; do [ -e /workspace/hello ] || echo gap; done) & echo $!", &r);
	for (int i = 0; i < 10; i++) {
		json_decref(ok);
		ok = layer_op(&t, "fold");
		if (!is_ok(ok) && !ntr_json_bool(ok, "busy", false))
			fail_msg("fold fails");
	}
	pid = number_of(r.out);
	assert_true(th_alive(pid));
}

static void fold_mapped(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *busy = NULL, *ok = NULL;

	th_open(&t, user);
	th_script(&t, "cp /bin/sleep s; cd /; /workspace/s 1000 & echo $!; sleep 0.2", &r);
	busy = layer_op(&t, "fold");
	assert_true(ntr_json_bool(busy, "busy", false));
	kill(number_of(r.out), SIGKILL);
	TH_EVENTUALLY(!th_alive(number_of(r.out)));
	TH_EVENTUALLY((json_decref(ok), ok = layer_op(&t, "fold"), is_ok(ok)));
}

static void swap(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *m = NULL;

	th_open(&t, user);
	th_script(&t, "echo lost > lost; rm hello; sleep 1000 & echo $!", &r);
	m = layer_op(&t, "swap");
	assert_true(is_ok(m));
	assert_int_equal(ntr_json_int(m, "killed", -1), 1);
	assert_false(th_alive(number_of(r.out)));
	th_expect(&t, "ls; pwd", "hello\n/workspace\n");
	th_expect(&t, "echo new > new", "");
	assert_true(th_exists(&t, "upper", "new"));
}

/* How many mounts the session sees, without those that others make and unmount under /tmp meanwhile. */
static void count_mounts(struct th *t, struct th_result *r)
{
	char script[128];

	snprintf(script, sizeof script,
	        "grep -cv ' /tmp/' /proc/self/mounts; grep -c %s /proc/self/mounts || :",
	        strrchr(t->dir, '.') + 1);
	th_script(t, script, r);
}

/* Many replacements leave no descriptors, processes or mounts behind. */
static void leaks(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result before = {0}, after = {0};
	int fds;

	th_open(&t, user);
	json_decref(layer_op(&t, "fold"));
	count_mounts(&t, &before);
	fds = th_descriptors(t.pid);
	for (int i = 0; i < 20; i++) {
		ntr_autojson json_t *m = layer_op(&t, i % 2 ? "fold" : "swap");

		assert_true(is_ok(m));
	}
	count_mounts(&t, &after);
	assert_string_equal(before.out, after.out);
	TH_EVENTUALLY(th_descriptors(t.pid) == fds);
	TH_EVENTUALLY(th_children(t.pid) == 0);
}

/* A layer that cannot be mounted: an error, and the session goes on as before. */
static void bad_layers(bool user)
{
	static const char *const ops[] = {"fold", "swap"};
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	th_expect(&t, "echo a > a; sleep 1000 & true", "");
	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		int fds[3];
		ntr_autojson json_t *m = NULL;

		th_layer_fds(&t, fds);
		close(fds[1]);
		fds[1] = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
		m = th_do(&t, json_pack("{s:s}", "op", ops[i]), fds, 3);
		ntr_wire_close_fds(fds, 3);
		assert_non_null(json_object_get(m, "error"));
		assert_true(*ntr_json_str(json_object_get(m, "error"), "why", ""));
		th_expect(&t, "ls", "a\nhello\n");
		assert_int_equal(th_ask(&t, "freeze", "frozen"), 1); /* nobody was killed */
		th_ask(&t, "thaw", "frozen");
	}
}

static void clone_view(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_autojson json_t *m = NULL;
	ntr_autofree char *text = NULL;

	th_open(&t, user);
	th_expect(&t, "echo c > c", "");
	m = th_do(&t, json_pack("{s:s}", "op", "clone"), NULL, 0);
	assert_true(is_ok(m));
	assert_int_equal(t.nfds, 1);
	assert_int_equal(ntr_read_file(t.fds[0], "c", 100, &text, NULL), 0);
	assert_string_equal(text, "c\n");
}

/* ---- view.h alone ---- */

/* Runs f in a child with namespaces of its own; its result is f's. */
static int in_namespace(int (*f)(const struct th *t), const struct th *t)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct ntr_err e = {0};

		th_become(t);
		prctl(PR_SET_DUMPABLE, 1); /* as after an exec: else /proc/self is root's */
		if (ntr_view_enter(t->user, &e)) {
			ntr_err_print(&e);
			_exit(97);
		}
		_exit(f(t));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int upper_on_overlay(const struct th *t)
{
	struct ntr_overlay o = {.userxattr = t->user};
	struct ntr_err e = {0};
	int fds[3], mount_fd, r;
	char p[256];

	th_layer_fds(t, fds);
	o.lower_fd = fds[0];
	o.upper_fd = fds[1];
	o.work_fd = fds[2];
	th_path(t, p, sizeof p, "lower", "");
	if (ntr_view_overlay(&o, &mount_fd, &e) || ntr_view_attach(mount_fd, "/srv", false, &e))
		return 1;
	if (ntr_view_busy("/srv") != 1) /* mount_fd */
		return 2;
	close(mount_fd);
	if (ntr_view_busy("/srv") || ntr_view_busy("/srv"))
		return 3;
	if (mkdir("/srv/u", 0755) || mkdir("/srv/w", 0755))
		return 4;
	o.upper_fd = open("/srv/u", O_PATH | O_CLOEXEC);
	o.work_fd = open("/srv/w", O_PATH | O_CLOEXEC);
	r = ntr_view_overlay(&o, &mount_fd, &e);
	if (r != -EINVAL || !strstr(e.why, "overlayfs") || !strstr(e.todo, "ext4"))
		return 5;
	if (ntr_view_detach("/srv", false) != -EBUSY)
		return 6;
	close(o.upper_fd);
	close(o.work_fd);
	return ntr_view_detach("/srv", false) ? 7 : 0;
}

static void api(bool user)
{
	ntr_auto(th_close) struct th t;

	th_dirs(&t, user);
	assert_int_equal(in_namespace(upper_on_overlay, &t), 0);
}

/* An ordinary user where the limit on user namespaces is 0: in a user namespace that has such a limit. */
static void no_namespaces(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (!pid) {
		struct ntr_err e = {0};
		int fd, r;

		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			_exit(77);
		fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY);
		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(77);
		close(fd);
		r = ntr_view_enter(true, &e);
		_exit(r == -ENOSPC && strstr(e.why, "user.max_user_namespaces") && strstr(e.todo, "sysctl")
		                ? 0
		                : 1);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

TH_BOTH(fold)
TH_BOTH(fold_mapped)
TH_BOTH(swap)
TH_BOTH(leaks)
TH_BOTH(bad_layers)
TH_BOTH(clone_view)
TH_BOTH(api)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(places), cmocka_unit_test(closed_root_user),
	        TH_TESTS(bad_places), TH_TESTS(above_the_store), TH_TESTS(options), TH_TESTS(fold),
	        TH_TESTS(fold_mapped), TH_TESTS(swap), TH_TESTS(leaks), TH_TESTS(bad_layers),
	        TH_TESTS(clone_view), TH_TESTS(api), cmocka_unit_test(no_namespaces)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
