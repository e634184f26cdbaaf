/* ls: what the supervisor's child writes is what is there, and an end that never came is no empty directory.
 */
#include "base/fusemount.h"
#include "ctl_fixture.h"
#include "exec/entries.h"

#include <sys/socket.h>
#include <sys/un.h>

static struct cfx fx;

CFX_SETUP(setup, .fold_entries = 1, .fold_price = 10)

CFX_TEARDOWN(teardown)

/* The entry of that name; more than one is an error. */
static const json_t *find(const json_t *list, const char *name)
{
	const json_t *o, *found = NULL;
	size_t i;

	json_array_foreach (list, i, o) {
		ntr_autofree char *its = NULL;

		assert_int_equal(ntr_json_get_bytes(json_object_get(o, "name"), &its, NULL), 0);
		if (strcmp(its, name))
			continue;
		assert_null(found);
		found = o;
	}
	return found;
}

static void assert_type(const json_t *list, const char *name, const char *type)
{
	const json_t *o = find(list, name);

	assert_non_null(o);
	assert_string_equal(ntr_json_str(o, "type", ""), type);
}

/* ---- writing and reading */

static int listed(int dir, const char *path, json_t *list)
{
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	ntr_entries_write(dir, path, p[1]);
	return ntr_entries_read(p[0], list);
}

static void make_socket(const char *path)
{
	ntr_autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void test_types(void **state)
{
	ntr_autojson json_t *list = json_array(), *one = json_array(), *none = json_array();
	char dir[] = "/tmp/ntr-entries.XXXXXX", path[64];
	ntr_autoclose int fd = -1, file = -1;
	const json_t *o;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/sock", dir);
	make_socket(path);
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	file = openat(fd, "b\xff", O_CREAT | O_WRONLY | O_CLOEXEC, 0640);
	assert_int_equal(ntr_write_all(file, "12345", 5), 0);
	assert_int_equal(mkdirat(fd, "d", 0750), 0);
	assert_int_equal(symlinkat("to\xfe", fd, "l"), 0);
	assert_int_equal(mkfifoat(fd, "p", 0600), 0);
	assert_int_equal(listed(fd, "", list), 0);
	assert_int_equal(json_array_size(list), 5);
	assert_type(list, "sock", "socket");
	assert_type(list, "d", "dir");
	assert_type(list, "p", "fifo");
	assert_type(list, "l", "symlink");
	assert_non_null(json_object_get(json_object_get(find(list, "l"), "target"), "base64"));
	o = find(list, "b\xff");
	assert_non_null(o);
	assert_string_equal(ntr_json_str(o, "type", ""), "file");
	assert_int_equal(ntr_json_int(o, "size", 0), 5);
	assert_int_equal(ntr_json_int(o, "mode", 0), 0640);
	assert_int_equal(listed(file, "a/b/c", one), 0);
	assert_int_equal(json_array_size(one), 1);
	assert_type(one, "c", "file");
	assert_int_equal(ntr_rm_rf(AT_FDCWD, dir), 0);
	assert_int_equal(listed(fd, "", none), 0); /* gone meanwhile */
	assert_int_equal(json_array_size(none), 0);
}

/* A reader of the directory that was killed: what has come looks whole, but is not. */
static void test_no_end(void **state)
{
	static const char *const texts[] = {
	        "", "{\"name\":\"a\"}\n", "{\"name\":\"a\"}\n{\"na", "[1]\n", "{\"end\":-13}\n"};
	static const int results[] = {-EINTR, -EINTR, -EINTR, -EINTR, -EACCES};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(texts); i++) {
		ntr_autojson json_t *list = json_array();
		int p[2];

		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		assert_int_equal(ntr_write_all(p[1], texts[i], strlen(texts[i])), 0);
		close(p[1]);
		assert_int_equal(ntr_entries_read(p[0], list), results[i]);
	}
}

/* ---- in a session */

static json_t *ls(const char *path)
{
	struct ntr_err e = {0};
	json_t *list = NULL;

	if (ntr_ctl_ls(fx.c, "s", NULL, path, &list, &e))
		cfx_fail("ls", &e);
	return list;
}

/* A large directory, of files in a commit and new ones, links and sockets; live and not. */
static void test_session(void **state)
{
	ntr_autojson json_t *link = NULL;

	(void)state;
	cfx_run(&fx, "s", "mkdir d; cd d; for i in {1..3000}; do : >$i; done; ln -s 7 l; mkfifo p");
	usleep(200000);
	ntr_ctl_tick(fx.c);
	cfx_run(&fx, "s", "cd /workspace/d; for i in {3001..3500}; do : >$i; done; rm 1; mv 2 two");
	for (int live = 1; live >= 0; live--) {
		ntr_autojson json_t *list = ls("d");
		struct ntr_err e = {0};

		assert_int_equal(cfx_is_live(&fx, "s"), live);
		assert_int_equal(json_array_size(list), 3501);
		assert_null(find(list, "1"));
		assert_null(find(list, "2"));
		assert_type(list, "two", "file");
		assert_type(list, "l", "symlink");
		assert_type(list, "p", "fifo");
		assert_string_equal(ntr_json_str(find(list, "l"), "target", ""), "7");
		assert_int_equal(ntr_ctl_stop(fx.c, "s", NULL, &e), 0);
	}
	cfx_run(&fx, "s", "true");
	link = ls("d/p");
	assert_int_equal(json_array_size(link), 1);
	assert_type(link, "p", "fifo");
}

/* The mount below the view ends: the session goes live anew, and the listing is whole. */
static void test_mount_ended(void **state)
{
	ntr_autojson json_t *list = NULL;
	unsigned ended = 0;

	(void)state;
	cfx_run(&fx, "s", "mkdir d; for i in {1..300}; do : >d/$i; done");
	usleep(200000);
	ntr_ctl_tick(fx.c);
	cfx_run(&fx, "s", "true");
	for (int i = 0; i < 2; i++) {
		ntr_autofree char *path =
		        ntr_sprintf("%s/%s", ntr_store_path(ntr_ctl_store(fx.c)), i ? "plain" : "versions");
		dev_t dev;

		if (!ntr_fuse_dev(path, &dev))
			ended += !ntr_fuse_abort(dev);
	}
	if (!ended && geteuid())
		skip(); /* only root can, where fusectl is not mounted */
	assert_true(ended > 0);
	list = ls("d");
	assert_int_equal(json_array_size(list), 300);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_types),
	        cmocka_unit_test(test_no_end),
	        cmocka_unit_test_setup_teardown(test_session, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_mount_ended, setup, teardown),
	};
	return cfx_run_tests(tests);
}
