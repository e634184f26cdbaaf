/* open and pathop: single operations on files of the view, and that none of them leaves it. */
#include "init_harness.h"

static json_t *open_msg(const char *path, int flags, int mode)
{
	return json_pack("{s:s,s:o,s:i,s:i}", "op", "open", "path", ntr_json_bytes(path, strlen(path)),
	        "flags", flags, "mode", mode);
}

/* 0 with the descriptor in t->fds[0], or the errno. */
static int do_open(struct th *t, const char *path, int flags, int mode)
{
	ntr_autojson json_t *m = th_do(t, open_msg(path, flags, mode), NULL, 0);

	if (!ntr_json_bool(m, "ok", false))
		return (int)ntr_json_int(m, "errno", -1);
	assert_int_equal(t->nfds, 1);
	return 0;
}

static int pathop(struct th *t, const char *kind, const char *path, const char *to, int mode)
{
	json_t *q = json_pack("{s:s,s:s,s:o,s:i}", "op", "pathop", "kind", kind, "path",
	        ntr_json_bytes(path, strlen(path)), "mode", mode);
	ntr_autojson json_t *m = NULL;

	if (to)
		json_object_set_new(q, "to", ntr_json_bytes(to, strlen(to)));
	m = th_do(t, q, NULL, 0);
	return ntr_json_bool(m, "ok", false) ? 0 : (int)ntr_json_int(m, "errno", -1);
}

static void expect_content(struct th *t, const char *path, const char *want)
{
	char buf[256];
	ssize_t n;
	int r = do_open(t, path, O_RDONLY, 0);

	if (r)
		fail_msg("open %s: %s", path, strerror(r));
	n = read(t->fds[0], buf, sizeof buf - 1);
	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, want);
}

static void reading_and_writing(bool user)
{
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	expect_content(&t, "hello", "hello\n");
	expect_content(&t, "/workspace/hello", "hello\n");
	expect_content(&t, "./a/../hello", "hello\n");
	assert_int_equal(do_open(&t, "new\xff", O_WRONLY | O_CREAT | O_EXCL, 0640), 0);
	assert_int_equal(ntr_write_all(t.fds[0], "x", 1), 0);
	assert_int_equal(fcntl(t.fds[0], F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(do_open(&t, "new\xff", O_WRONLY | O_CREAT | O_EXCL, 0640), EEXIST);
	assert_int_equal(do_open(&t, "new\xff", O_WRONLY | O_APPEND, 0), 0);
	assert_int_equal(ntr_write_all(t.fds[0], "y", 1), 0);
	th_expect(&t, "cat new*; stat -c %a new*", "xy640\n");
	assert_int_equal(do_open(&t, "hello", O_RDWR | O_TRUNC, 0), 0);
	expect_content(&t, "hello", "");
	assert_int_equal(do_open(&t, "nosuch", O_RDONLY, 0), ENOENT);
	assert_int_equal(do_open(&t, "hello/x", O_RDONLY, 0), ENOTDIR);
	assert_int_equal(do_open(&t, ".", O_RDONLY | O_DIRECTORY, 0), 0);
	assert_int_equal(do_open(&t, "", O_RDONLY | O_DIRECTORY, 0), 0);
	assert_int_equal(do_open(&t, "/workspace", O_RDONLY | O_DIRECTORY, 0), 0);
	assert_int_equal(do_open(&t, ".", O_WRONLY, 0), EISDIR);
}
TH_BOTH(reading_and_writing)

static void symlinks(bool user)
{
	static const struct {
		const char *path;
		int err;
	} cases[] = {{"rel", 0}, {"abs", 0}, {"d/up", 0}, {"chain", 0}, {"dirlink/up", 0}, {"absdir/up", 0},
	        {"out", EXDEV}, {"outrel", EXDEV}, {"outdir/passwd", EXDEV}, {"d/../../etc/passwd", EXDEV},
	        {"/etc/passwd", EXDEV}, {"/workspaces/x", EXDEV}, {"../x", EXDEV}, {"loop", ELOOP},
	        {"self/x", ELOOP}, {"dangling", ENOENT}};
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t,
	        "mkdir d; ln -s hello rel; ln -s /workspace/hello abs; ln -s ../rel d/up; ln -s d/up chain; "
	        "ln -s d dirlink; "
	        "ln -s /workspace/d absdir; ln -s /etc/passwd out; ln -s ../etc/passwd outrel; ln -s /etc "
	        "outdir; "
	        "ln -s loop loop; ln -s self self; ln -s nowhere dangling",
	        &r);
	assert_int_equal(r.code, 0);
	for (size_t i = 0; i < NTR_COUNT(cases); i++) {
		int err = do_open(&t, cases[i].path, O_RDONLY, 0);

		if (err != cases[i].err)
			fail_msg("%s: %s", cases[i].path, strerror(err));
	}
	assert_int_equal(do_open(&t, "rel", O_RDONLY | O_NOFOLLOW, 0), ELOOP);
	assert_int_equal(do_open(&t, "rel", O_PATH | O_NOFOLLOW, 0), 0);
	assert_int_equal(do_open(&t, "dangling", O_WRONLY | O_CREAT, 0600), 0);
	th_expect(&t, "ls nowhere", "nowhere\n");
	assert_int_equal(do_open(&t, "out", O_WRONLY | O_CREAT | O_TRUNC, 0600), EXDEV);
	assert_int_equal(do_open(&t, "rel", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
}
TH_BOTH(symlinks)

/* What must not stop the supervisor: a FIFO without a peer. */
static void fifo(bool user)
{
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	th_expect(&t, "mkfifo f", "");
	assert_int_equal(do_open(&t, "f", O_RDONLY, 0), 0);
	ntr_wire_close_fds(t.fds, t.nfds);
	t.nfds = 0;
	assert_int_equal(do_open(&t, "f", O_WRONLY, 0), ENXIO);
}
TH_BOTH(fifo)

static void names(bool user)
{
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	assert_int_equal(pathop(&t, "mkdir", "d", NULL, 0751), 0);
	th_expect(&t, "stat -c %a d", "751\n");
	assert_int_equal(pathop(&t, "mkdir", "d", NULL, 0755), EEXIST);
	assert_int_equal(pathop(&t, "mkdir", "a/b", NULL, 0755), ENOENT);
	assert_int_equal(pathop(&t, "rename", "hello", "d/h", 0), 0);
	th_expect(&t, "cat d/h; ls", "hello\nd\n");
	assert_int_equal(pathop(&t, "symlink", "l", "d/h", 0), 0);
	assert_int_equal(pathop(&t, "symlink", "o", "/etc", 0), 0);
	th_expect(&t, "cat l; readlink l o", "hello\nd/h\n/etc\n");
	assert_int_equal(pathop(&t, "chmod", "l", NULL, 0600), 0);
	th_expect(&t, "stat -c %a d/h", "600\n");
	assert_int_equal(pathop(&t, "chmod", "o/passwd", NULL, 0600), EXDEV);
	assert_int_equal(pathop(&t, "unlink", "o/passwd", NULL, 0), EXDEV);
	assert_int_equal(pathop(&t, "rename", "l", "o/l", 0), EXDEV);
	assert_int_equal(pathop(&t, "unlink", "d", NULL, 0), EISDIR);
	assert_int_equal(pathop(&t, "rmdir", "d", NULL, 0), ENOTEMPTY);
	assert_int_equal(pathop(&t, "unlink", "l", NULL, 0), 0); /* the link, not the file */
	assert_int_equal(pathop(&t, "unlink", "d/h", NULL, 0), 0);
	assert_int_equal(pathop(&t, "rmdir", "/workspace/d", NULL, 0), 0);
	assert_int_equal(pathop(&t, "rmdir", "/workspace", NULL, 0), EBUSY);
	assert_int_equal(pathop(&t, "nosuch", "x", NULL, 0), EINVAL);
	assert_int_equal(pathop(&t, "rename", "o", NULL, 0), EINVAL);
	th_expect(&t, "ls", "o\n");
}
TH_BOTH(names)

/* Requests leave nothing open: a fold right after them works. */
static void nothing_stays(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_autojson json_t *m = NULL;
	int before, fds[3];

	th_open(&t, user);
	th_expect(&t, "true", ""); /* all that starting took has been closed when this is answered */
	before = th_descriptors(t.pid);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(do_open(&t, "hello", O_RDONLY, 0), 0);
		assert_int_equal(do_open(&t, "/etc/passwd", O_RDONLY, 0), EXDEV);
		assert_int_equal(pathop(&t, "mkdir", "d", NULL, 0755), 0);
		assert_int_equal(pathop(&t, "rmdir", "d", NULL, 0), 0);
	}
	TH_EVENTUALLY(th_descriptors(t.pid) == before);
	ntr_wire_close_fds(t.fds, t.nfds);
	t.nfds = 0;
	th_next_layers(&t, fds);
	m = th_do(&t, json_pack("{s:s}", "op", "fold"), fds, 3);
	ntr_wire_close_fds(fds, 3);
	assert_true(ntr_json_bool(m, "ok", false));
}
TH_BOTH(nothing_stays)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(reading_and_writing), TH_TESTS(symlinks), TH_TESTS(fifo),
	        TH_TESTS(names), TH_TESTS(nothing_stays)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
