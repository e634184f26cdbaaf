/* The ops on a real store, as far as they need no live session (those are in tests/bats). */
#include "server_fixture.h"

#include "exec/controller.h"

#include <signal.h>

static struct server_fixture fx;
static int conn;

static int setup(void **state)
{
	struct ntr_ctl_options o = {.uring = 0, .init_path = "/nonexistent/ntr-init"};
	struct ntr_err e = {0};

	(void)state;
	memset(&fx, 0, sizeof fx);
	sf_make(&fx);
	if (ntr_ctl_open(fx.store, &o, &fx.ctl, &e))
		fail_msg("%s: %s", e.what, ntr_err_reason(&e));
	sf_listen(&fx, ntrd_ops);
	conn = sf_connect(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(conn);
	ntr_sock_unlink(fx.store);
	assert_int_equal(ntrd_server_drain(fx.srv, SF_PATIENCE_MS), 0);
	ntrd_server_free(fx.srv);
	close(fx.listen_fd);
	ntr_ctl_close(fx.ctl);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, fx.dir), 0);
	return 0;
}

static json_t *ask(const char *text)
{
	json_t *m = sf_request(conn, text);

	if (!ntr_json_bool(m, "ok", false))
		fail_msg("%s -> %s", text, json_dumps(m, 0));
	return m;
}

/* Sends with one descriptor and waits for the final reply, which must be good. */
static json_t *ask_fd(const char *text, int fd)
{
	ntr_autojson json_t *req = json_loads(text, 0, NULL);
	json_t *m;

	assert_non_null(req);
	assert_int_equal(ntr_wire_send(conn, req, &fd, 1), 0);
	m = sf_recv(conn);
	if (!ntr_json_bool(m, "ok", false))
		fail_msg("%s -> %s", text, json_dumps(m, 0));
	return m;
}

static void make(const char *name)
{
	ntr_autofree char *text = ntr_sprintf("{\"op\":\"new\",\"name\":\"%s\"}", name);

	json_decref(ask(text));
}

static int temp_file(const char *content)
{
	char path[] = "/tmp/ntr-server-file-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void expect_content(int fd, const char *want)
{
	char buf[4096] = "";

	assert_true(pread(fd, buf, sizeof buf - 1, 0) >= 0);
	assert_string_equal(buf, want);
}

static void put(const char *session, const char *path, const char *content)
{
	ntr_autofree char *text = ntr_sprintf(
	        "{\"op\":\"put\",\"session\":\"%s\",\"path\":\"%s\",\"mode\":420}", session, path);
	int fd = temp_file(content);

	json_decref(ask_fd(text, fd));
	close(fd);
}

/* The rows before the final reply. */
static json_t *rows(const char *text)
{
	json_t *a = json_array();

	sf_send(conn, text);
	for (;;) {
		ntr_autojson json_t *m = sf_recv(conn);

		if (!json_object_get(m, "event")) {
			assert_true(ntr_json_bool(m, "ok", false));
			return a;
		}
		json_array_append(a, m);
	}
}

static void test_hello(void **state)
{
	int c = sf_connect_raw(&fx);
	ntr_autojson json_t *m = sf_request(c, "{\"op\":\"hello\",\"protocol\":1,\"version\":\"9\"}");

	(void)state;
	assert_int_equal(ntr_json_int(m, "protocol", 0), 1);
	assert_int_equal(ntr_json_int(m, "pid", 0), getpid());
	assert_string_equal(ntr_json_str(m, "store", ""), fx.store);
	sf_expect_error(c, "{\"op\":\"hello\"}", "usage");
	sf_expect_error(c, "{\"op\":\"hello\",\"protocol\":2}", "protocol");
	sf_expect_end(c);
	close(c);
}

static void expect_str(const json_t *o, const char *key, const char *want)
{
	assert_string_equal(ntr_json_str(o, key, "(no string)"), want);
}

static void test_new(void **state)
{
	ntr_autojson json_t *a = ask("{\"op\":\"new\",\"name\":\"a\"}");
	ntr_autojson json_t *b =
	        ask("{\"op\":\"new\",\"name\":\"b\",\"wsroot\":\"//x/y//\",\"durability\":\"relaxed\"}");
	ntr_autojson json_t *c = ask("{\"op\":\"new\",\"name\":\"c\",\"from_rev\":\"b\"}");
	ntr_autojson json_t *list = rows("{\"op\":\"sessions\"}");

	(void)state;
	expect_str(a, "name", "a");
	expect_str(a, "wsroot", "/workspace");
	expect_str(a, "durability", "fsync");
	assert_int_equal(strlen(ntr_json_str(a, "head", "")), 40);
	assert_true(json_is_null(json_object_get(a, "origin")));
	assert_false(ntr_json_bool(a, "live", true));
	assert_false(ntr_json_bool(a, "running", true));
	assert_int_equal(strlen(ntr_json_str(a, "created", "")), 30);
	expect_str(b, "wsroot", "/x/y");
	expect_str(b, "durability", "relaxed");
	expect_str(c, "wsroot", "/x/y");
	expect_str(c, "durability", "relaxed");
	expect_str(c, "origin", ntr_json_str(b, "head", ""));
	assert_int_equal(json_array_size(list), 3);
	expect_str(json_array_get(list, 1), "name", "b");
	sf_expect_error(conn, "{\"op\":\"new\",\"name\":\"a\"}", "exists");
	sf_expect_error(conn, "{\"op\":\"fork\",\"source\":\"a\",\"name\":\"b\"}", "exists");
	sf_expect_error(conn, "{\"op\":\"fork\",\"source\":\"nobody\",\"name\":\"d\"}", "not-found");
}

static void test_files(void **state)
{
	int out = temp_file("");
	ntr_autojson json_t *cat = NULL, *ls = NULL;

	(void)state;
	make("a");
	put("a", "f", "hello\n");
	cat = ask_fd("{\"op\":\"cat\",\"session\":\"a\",\"path\":\"/workspace/f\"}", out);
	assert_int_equal(ntr_json_int(cat, "mode", 0), 0644);
	expect_content(out, "hello\n");
	ls = ask("{\"op\":\"ls\",\"session\":\"a\"}");
	assert_int_equal(json_array_size(json_object_get(ls, "entries")), 1);
	expect_str(json_array_get(json_object_get(ls, "entries"), 0), "name", "f");
	sf_expect_error(conn, "{\"op\":\"ls\",\"session\":\"a\",\"rev\":\"~1\",\"path\":\"f\"}", "not-found");
	sf_expect_error(
	        conn, "{\"op\":\"cat\",\"session\":\"a\",\"path\":\"f\"}", "usage"); /* no descriptor */
	close(out);
}

static void test_history(void **state)
{
	ntr_autojson json_t *log = NULL, *one = NULL, *show = NULL, *init = NULL, *st = NULL;
	const json_t *top, *en;

	(void)state;
	make("a");
	put("a", "f", "1\n");
	put("a", "f", "1\n2\n");
	log = rows("{\"op\":\"log\",\"session\":\"a\"}");
	assert_int_equal(json_array_size(log), 3);
	top = json_array_get(log, 0);
	expect_str(top, "tool", "put");
	expect_str(top, "session", "a");
	assert_int_equal(ntr_json_int(json_object_get(top, "changes"), "modified", 0), 1);
	expect_str(json_array_get(log, 2), "tool", "init");
	assert_int_equal(json_array_size(json_object_get(json_array_get(log, 2), "parents")), 0);
	assert_string_equal(json_string_value(json_array_get(json_object_get(top, "parents"), 0)),
	        ntr_json_str(json_array_get(log, 1), "commit", ""));
	one = rows("{\"op\":\"log\",\"rev\":\"a~1\",\"n\":1}");
	assert_int_equal(json_array_size(one), 1);
	expect_str(json_array_get(one, 0), "commit", ntr_json_str(json_array_get(log, 1), "commit", ""));
	show = ask("{\"op\":\"show\",\"session\":\"a\",\"rev\":\"HEAD\"}");
	en = json_array_get(json_object_get(show, "entries"), 0);
	expect_str(en, "path", "f");
	expect_str(en, "kind", "modified");
	init = ask("{\"op\":\"show\",\"rev\":\"a~2\"}");
	expect_str(init, "tool", "init");
	st = ask("{\"op\":\"status\",\"session\":\"a\"}");
	expect_str(st, "head", ntr_json_str(top, "commit", ""));
	assert_int_equal(json_array_size(json_object_get(st, "changes")), 0);
	assert_false(ntr_json_bool(st, "state_changed", true));
	sf_expect_error(conn, "{\"op\":\"show\",\"session\":\"a\",\"rev\":\"~9\"}", "not-found");
}

static void expect_diff(const char *text, bool differs, const char *want)
{
	int fd = temp_file("");
	ntr_autojson json_t *m = ask_fd(text, fd);

	assert_int_equal(ntr_json_bool(m, "differs", !differs), differs);
	expect_content(fd, want);
	close(fd);
}

static void test_diff(void **state)
{

	(void)state;
	make("a");
	put("a", "f", "1\n");
	put("a", "g", "2\n");
	put("a", "f", "1\n3\n");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\",\"a\":\"~2\",\"format\":\"name-status\"}", true,
	        "M\tf\nA\tg\n");
	expect_diff(
	        "{\"op\":\"diff\",\"a\":\"a~3\",\"b\":\"a~2\",\"format\":\"name-status\"}", true, "A\tf\n");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\",\"a\":\"~2\",\"format\":\"stat\",\"width\":60}", true,
	        " f | 1 +\n g | 1 +\n 2 files changed, 2 insertions(+)\n");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\",\"a\":\"~2\",\"format\":\"name-status\","
	            "\"paths\":[\"/workspace/g\",\"none\"]}",
	        true, "A\tg\n");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\",\"a\":\"~2\",\"paths\":[\"none\"]}", false, "");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\"}", false, "");
	expect_diff("{\"op\":\"diff\",\"session\":\"a\",\"a\":\"~1\",\"b\":\"HEAD\",\"paths\":[\".\"]}", true,
	        "diff --git a/f b/f\nindex d00491fd7e5bb6fa28c517a0bb32b8b506539d4d.."
	        "2b2f2e1b9261c50c3816610eb3eb140fabf1745a 100644\n"
	        "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n 1\n+3\n");
}

static void test_names(void **state)
{
	ntr_autojson json_t *rm = NULL, *list = NULL;

	(void)state;
	make("a");
	json_decref(ask("{\"op\":\"rename\",\"old\":\"a\",\"new\":\"b\"}"));
	sf_expect_error(conn, "{\"op\":\"rename\",\"old\":\"a\",\"new\":\"c\"}", "not-found");
	sf_expect_error(conn, "{\"op\":\"rm\",\"name\":\"b\",\"inside\":\"b\"}", "busy");
	rm = ask("{\"op\":\"rm\",\"name\":\"b\"}");
	assert_int_equal(ntr_json_int(rm, "killed", -1), 0);
	assert_true(json_is_null(json_object_get(rm, "staged")));
	list = rows("{\"op\":\"sessions\"}");
	assert_int_equal(json_array_size(list), 0);
	sf_expect_error(conn, "{\"op\":\"rm\",\"name\":\"b\"}", "not-found");
}

static void test_rollback(void **state)
{
	ntr_autojson json_t *new = ask("{\"op\":\"new\",\"name\":\"a\"}"), *back = NULL, *none = NULL;

	(void)state;
	put("a", "f", "1\n");
	back = ask("{\"op\":\"rollback\",\"session\":\"a\",\"steps\":1}");
	expect_str(json_object_get(back, "to"), "tool", "init");
	expect_str(json_object_get(back, "to"), "commit", ntr_json_str(new, "head", ""));
	assert_true(json_is_null(json_object_get(back, "staged")));
	none = ask("{\"op\":\"commit\",\"session\":\"a\",\"message\":\"m\"}");
	assert_true(json_is_null(json_object_get(none, "commit")));
	sf_expect_error(conn, "{\"op\":\"rollback\",\"session\":\"a\",\"steps\":1}", "not-found");
}

static void test_daemon(void **state)
{
	ntr_autojson json_t *st = ask("{\"op\":\"daemon-status\"}"), *stop = NULL;
	struct pollfd p = {.fd = ntrd_server_stop_fd(fx.srv), .events = POLLIN};
	char b;

	(void)state;
	assert_int_equal(ntr_json_int(st, "pid", 0), getpid());
	assert_int_equal(ntr_json_int(st, "connections", 0), 1);
	assert_true(ntr_json_int(st, "rss", 0) > 1 << 20);
	assert_true(ntr_json_real(st, "uptime", -1) >= 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	stop = ask("{\"op\":\"daemon-stop\"}");
	assert_int_equal(poll(&p, 1, SF_PATIENCE_MS), 1);
	sf_wait_connections(&fx, 0);
	assert_int_equal(recv(conn, &b, 1, MSG_DONTWAIT), -1); /* open until the process ends */
	assert_int_equal(errno, EAGAIN);
}

/* The supervisor's program is missing: an error, and the session is as before. */
static void test_no_supervisor(void **state)
{
	ntr_autojson json_t *req = json_loads(
	        "{\"op\":\"run\",\"session\":\"a\",\"argv\":[\"true\"],\"env\":[],\"capture\":true}", 0,
	        NULL);
	ntr_autojson json_t *started = NULL, *m = NULL;
	int null = open("/dev/null", O_RDONLY);

	(void)state;
	make("a");
	assert_int_equal(ntr_wire_send(conn, req, &null, 1), 0);
	close(null);
	started = sf_recv(conn);
	expect_str(started, "event", "started");
	m = sf_recv(conn);
	assert_non_null(json_object_get(m, "error"));
	json_decref(ask("{\"op\":\"status\",\"session\":\"a\"}"));
}

/* ---- whatever members a request has, it is answered and the server lives */

static json_t *any_value(unsigned *seed, int depth)
{
	static const char *const strings[] = {"", "a", "a~1", "a@", "HEAD", "~99999999999999999999", "@zz",
	        "/", "..", "a/b", "/workspace", "\xF0\x9F\x98\x80", "patch", "tar", "dir", "json", "fsync",
	        "file_write", "file_edit", "view_image", "history", "diff", "fork", "rollback"};

	switch (rand_r(seed) % (depth ? 9 : 7)) {
	case 0:
		return json_integer((json_int_t)rand_r(seed) - 5);
	case 1:
		return json_real(rand_r(seed) / 1e3);
	case 2:
		return json_boolean(rand_r(seed) % 2);
	case 3:
		return json_null();
	case 4:
		return json_pack("{s:s}", "base64", rand_r(seed) % 2 ? "/w==" : "AA==");
	case 7:
		return json_pack("[o,o]", any_value(seed, 0), any_value(seed, 0));
	case 8:
		return json_pack("{s:o,s:o,s:o}", "path", any_value(seed, 0),
		        rand_r(seed) % 2 ? "content" : "old_string", any_value(seed, 0),
		        rand_r(seed) % 2 ? "new_string" : "limit", any_value(seed, 0));
	default:
		return json_string(strings[(size_t)rand_r(seed) % NTR_COUNT(strings)]);
	}
}

static json_t *any_request(unsigned *seed)
{
	static const char *const keys[] = {"session", "rev", "path", "name", "source", "old", "new", "a", "b",
	        "n", "steps", "format", "paths", "mode", "discard", "force", "message", "stream", "wsroot",
	        "durability", "from_rev", "from_dir", "from_tar", "inside", "argv", "script", "env",
	        "capture", "where", "width", "key", "value", "args", "code", "inputs", "objects", "policy",
	        "preload", "budget", "render", "primers", "modules", "echo", "python"};
	size_t nops = 0;
	json_t *o = json_object();

	while (ntrd_ops[nops].name)
		nops++;
	do
		json_object_set_new(o, "op", json_string(ntrd_ops[(size_t)rand_r(seed) % nops].name));
	while (!strncmp(ntr_json_str(o, "op", ""), "daemon-st", 9) ||
	        !strcmp(ntr_json_str(o, "op", ""), "fsck") || !strcmp(ntr_json_str(o, "op", ""), "mount") ||
	        !strcmp(ntr_json_str(o, "op", ""), "signal") || !strcmp(ntr_json_str(o, "op", ""), "answer"));
	if (rand_r(seed) % 4)
		json_object_set_new(o, "session", json_string("a"));
	for (int i = rand_r(seed) % 6; i > 0; i--)
		json_object_set_new(o, keys[(size_t)rand_r(seed) % NTR_COUNT(keys)], any_value(seed, 1));
	return o;
}

static void test_any_request(void **state)
{
	unsigned seed = 4711;
	int c = -1;

	(void)state;
	print_message("seed %u\n", seed);
	make("a");
	put("a", "f", "x\n");
	for (int i = 0; i < 3000; i++) {
		ntr_autojson json_t *req = any_request(&seed);
		int fd = temp_file("");
		bool final = false;

		if (c < 0)
			c = sf_connect(&fx);
		assert_int_equal(ntr_wire_send(c, req, &fd, (size_t)rand_r(&seed) % 2), 0);
		while (!final) {
			ntr_autojson json_t *m = sf_recv(c);

			final = !json_object_get(m, "event");
			if (final && !json_object_get(m, "error") && !ntr_json_bool(m, "ok", false))
				fail_msg("%s -> %s", json_dumps(req, 0), json_dumps(m, 0));
			if (final &&
			        !strcmp(ntr_json_str(json_object_get(m, "error"), "kind", ""), "protocol")) {
				close(c);
				c = -1;
			}
		}
		close(fd);
	}
	if (c >= 0)
		close(c);
	json_decref(rows("{\"op\":\"sessions\"}"));
}

/* ---- captured output */

static void expect_output(const char *p, size_t n, bool base64)
{
	ntr_autojson json_t *j = ntrd_json_output(p, n);
	ntr_autofree char *back = NULL;
	size_t len = 0;

	assert_int_equal(json_is_object(j), base64);
	assert_int_equal(ntr_json_get_bytes(j, &back, &len), 0);
	assert_int_equal(len, n);
	assert_memory_equal(back, n ? p : "", n);
}

static void test_output(void **state)
{
	size_t n = 16 << 20;
	ntr_autofree char *big = malloc(n);

	(void)state;
	expect_output(NULL, 0, false);
	expect_output("\n\n\n", 3, false);
	expect_output("\x01\x02", 2, false);
	expect_output("a\0b", 3, false);
	expect_output("\xff", 1, true);
	memset(big, 'x', n);
	expect_output(big, n, false);
	memset(big, 1, n); /* six characters each as a string: two of them would not fit into a frame */
	expect_output(big, n, true);
	memset(big, '"', n);
	expect_output(big, n, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_hello, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_new, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_history, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_diff, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_rollback, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_daemon, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_no_supervisor, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_any_request, setup, teardown),
	        cmocka_unit_test(test_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
