/* Frames, requests and connections of a server with ops of its own: whatever a client sends, the others go
 * on. */
#include "server_fixture.h"

#include <pthread.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct server_fixture fx;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_cond = PTHREAD_COND_INITIALIZER;
static int gate_waiting;
static bool gate_open;

/* ---- ops */

static int op_hello(struct ntrd_req *rq)
{
	*ntrd_conn_greeted(rq->conn) = true;
	return 0;
}

/* Every kind of member once. */
static int op_args(struct ntrd_req *rq)
{
	static const char *const words[] = {"red", "green", NULL};
	const char *str = ntrd_arg_str(rq, "str", NTRD_REQUIRED);
	const char *bytes = ntrd_arg_bytes(rq, "bytes", NTRD_OPTIONAL);
	size_t len = 0;
	const char *blob = ntrd_arg_blob(rq, "blob", &len);
	char *const *strv = ntrd_arg_strv(rq, "strv");
	int64_t n = ntrd_arg_int(rq, "int", -5, 5, 3);
	double d = ntrd_arg_real(rq, "real", 0, 10, 2.5);
	int word = ntrd_arg_word(rq, "word", words);
	bool flag = ntrd_arg_bool(rq, "bool");
	size_t count = 0;

	if (rq->bad)
		return rq->bad;
	while (strv && strv[count])
		count++;
	return ntrd_reply_row(
	        rq, json_pack("{s:s,s:s,s:I,s:i,s:I,s:f,s:i,s:b}", "str", str, "bytes",
	                    bytes ? bytes : "none", "blob", (json_int_t)(blob ? len : 999), "strv",
	                    (int)count, "int", (json_int_t)n, "real", d, "word", word, "bool", flag));
}

static int op_fail(struct ntrd_req *rq)
{
	int code = (int)ntrd_arg_int(rq, "code", 1, 4095, 5);

	if (ntrd_arg_bool(rq, "text")) {
		ntr_err_set(rq->e, -code, "open \xff'x'");
		ntr_err_why(rq->e, "because");
		ntr_err_todo(rq->e, "do this");
	}
	return -code;
}

static int op_fds(struct ntrd_req *rq)
{
	char c = 'K';

	assert_int_equal(write(rq->fds[0], &c, 1), 1);
	return ntrd_reply_set(rq, "n", json_integer((json_int_t)rq->nfds));
}

static int op_give(struct ntrd_req *rq)
{
	rq->reply_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

static int op_rows(struct ntrd_req *rq)
{
	json_t *a = json_array();

	for (int i = 0; i < 3; i++)
		json_array_append_new(a, json_pack("{s:i}", "i", i));
	return ntrd_reply_list(rq, "rows", a);
}

static int op_huge(struct ntrd_req *rq)
{
	size_t n = NTR_WIRE_MAX + 1;
	char *p = malloc(n);

	memset(p, 'h', n);
	ntrd_own(rq, p, free);
	return ntrd_reply_set(rq, "text", json_stringn_nocheck(p, n));
}

static int op_wait(struct ntrd_req *rq)
{
	(void)rq;
	pthread_mutex_lock(&gate_lock);
	gate_waiting++;
	pthread_cond_broadcast(&gate_cond);
	while (!gate_open)
		pthread_cond_wait(&gate_cond, &gate_lock);
	gate_waiting--;
	pthread_mutex_unlock(&gate_lock);
	return 0;
}

/* Events until the client has not read for 30 ms; then a reply, which has to wait for it. */
static int op_pour(struct ntrd_req *rq)
{
	char text[20001];
	int n = 0, r;

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	do
		r = ntrd_conn_try_send(
		        rq->conn, json_pack("{s:s,s:i,s:s}", "event", "row", "n", n++, "text", text), 30);
	while (!r && n < 100000);
	if (r != -ETIMEDOUT)
		return r ? r : -EIO;
	pthread_mutex_lock(&gate_lock);
	gate_waiting++;
	pthread_cond_broadcast(&gate_cond);
	pthread_mutex_unlock(&gate_lock);
	return ntrd_reply_set(rq, "sent", json_integer(n - 1));
}

static int op_quiet(struct ntrd_req *rq)
{
	rq->silent = true;
	return 0;
}

static int op_bye(struct ntrd_req *rq)
{
	rq->hangup = true;
	return 0;
}

static const struct ntrd_op ops[] = {
        {"hello", op_hello, 0, 0, true},
        {"args", op_args, 0, 0, false},
        {"pour", op_pour, 0, 0, false},
        {"fail", op_fail, 0, 0, false},
        {"fds", op_fds, 1, 2, false},
        {"give", op_give, 0, 0, false},
        {"rows", op_rows, 0, 0, false},
        {"huge", op_huge, 0, 0, false},
        {"wait", op_wait, 0, 0, false},
        {"quiet", op_quiet, 0, 0, false},
        {"bye", op_bye, 0, 0, false},
        {NULL, NULL, 0, 0, false},
};

static int setup(void **state)
{
	(void)state;
	gate_open = false;
	gate_waiting = 0;
	sf_setup(&fx, ops);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sf_teardown(&fx);
	return 0;
}

static void gate(bool open)
{
	pthread_mutex_lock(&gate_lock);
	gate_open = open;
	pthread_cond_broadcast(&gate_cond);
	pthread_mutex_unlock(&gate_lock);
}

static void gate_await(int n)
{
	pthread_mutex_lock(&gate_lock);
	while (gate_waiting < n)
		pthread_cond_wait(&gate_cond, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

/* ---- requests */

static void test_members(void **state)
{
	int c = sf_connect(&fx);
	ntr_autojson json_t *m = NULL, *d = NULL;

	(void)state;
	m = sf_request(c, "{\"op\":\"args\",\"str\":\"s\",\"bytes\":{\"base64\":\"YWI=\"},\"blob\":{"
	                  "\"base64\":\"AAEC\"},"
	                  "\"strv\":[\"a\",{\"base64\":\"/"
	                  "w==\"}],\"int\":-5,\"real\":7,\"word\":\"green\",\"bool\":true,"
	                  "\"unknown\":[1]}");
	assert_true(ntr_json_bool(m, "ok", false));
	assert_string_equal(ntr_json_str(m, "bytes", ""), "ab");
	assert_int_equal(ntr_json_int(m, "blob", 0), 3);
	assert_int_equal(ntr_json_int(m, "strv", 0), 2);
	assert_int_equal(ntr_json_int(m, "int", 0), -5);
	assert_true(ntr_json_real(m, "real", 0) == 7);
	assert_int_equal(ntr_json_int(m, "word", 0), 1);
	assert_true(ntr_json_bool(m, "bool", false));
	d = sf_request(c, "{\"op\":\"args\",\"str\":\"s\",\"int\":null,\"bytes\":null}");
	assert_string_equal(ntr_json_str(d, "bytes", ""), "none");
	assert_int_equal(ntr_json_int(d, "blob", 0), 999);
	assert_int_equal(ntr_json_int(d, "int", 0), 3);
	assert_true(ntr_json_real(d, "real", 0) == 2.5);
	assert_int_equal(ntr_json_int(d, "word", 0), -1);
	close(c);
}

static void test_bad_members(void **state)
{
	static const char *const bad[] = {
	        "{\"op\":\"args\"}",
	        "{\"op\":\"args\",\"str\":null}",
	        "{\"op\":\"args\",\"str\":1}",
	        "{\"op\":\"args\",\"str\":\"a\\u0000b\"}",
	        "{\"op\":\"args\",\"str\":\"s\",\"bytes\":5}",
	        "{\"op\":\"args\",\"str\":\"s\",\"bytes\":{\"base64\":\"!\"}}",
	        "{\"op\":\"args\",\"str\":\"s\",\"bytes\":{\"base64\":\"AAEC\"}}",
	        "{\"op\":\"args\",\"str\":\"s\",\"blob\":{\"b\":\"\"}}",
	        "{\"op\":\"args\",\"str\":\"s\",\"strv\":\"a\"}",
	        "{\"op\":\"args\",\"str\":\"s\",\"strv\":[1]}",
	        "{\"op\":\"args\",\"str\":\"s\",\"strv\":[\"a\\u0000\"]}",
	        "{\"op\":\"args\",\"str\":\"s\",\"int\":6}",
	        "{\"op\":\"args\",\"str\":\"s\",\"int\":1.5}",
	        "{\"op\":\"args\",\"str\":\"s\",\"int\":\"1\"}",
	        "{\"op\":\"args\",\"str\":\"s\",\"real\":-1}",
	        "{\"op\":\"args\",\"str\":\"s\",\"real\":true}",
	        "{\"op\":\"args\",\"str\":\"s\",\"word\":\"blue\"}",
	        "{\"op\":\"args\",\"str\":\"s\",\"bool\":1}",
	        "{\"op\":\"nothing-like-it\"}",
	        "{\"op\":5}",
	        "{\"op\":null}",
	        "{}",
	};
	int c = sf_connect(&fx);

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		ntr_autojson json_t *text = json_loads(bad[i], JSON_ALLOW_NUL, NULL), *m = NULL;

		assert_non_null(text);
		assert_int_equal(ntr_wire_send(c, text, NULL, 0), 0);
		m = sf_recv(c);
		sf_is_error(m, "usage");
	}
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}"); /* the connection goes on */
	close(c);
}

static void expect_kind(int c, int code, const char *kind)
{
	char text[64];
	ntr_autojson json_t *m = NULL;

	snprintf(text, sizeof text, "{\"op\":\"fail\",\"code\":%d}", code);
	m = sf_request(c, text);
	sf_is_error(m, kind);
	assert_int_equal(ntr_json_int(json_object_get(m, "error"), "errno", 0), code);
}

static void test_errors(void **state)
{
	int c = sf_connect(&fx);
	ntr_autojson json_t *m = NULL;
	const json_t *e;

	(void)state;
	expect_kind(c, EINVAL, "usage");
	expect_kind(c, ENOENT, "not-found");
	expect_kind(c, EEXIST, "exists");
	expect_kind(c, EBUSY, "busy");
	expect_kind(c, EDEADLK, "busy");
	expect_kind(c, ENODEV, "isolation");
	expect_kind(c, EOPNOTSUPP, "failed");
	expect_kind(c, ENOSPC, "full");
	expect_kind(c, EUCLEAN, "corrupt");
	expect_kind(c, EPROTO, "protocol");
	expect_kind(c, EIO, "failed");
	m = sf_request(c, "{\"op\":\"fail\",\"code\":2,\"text\":true}");
	e = json_object_get(m, "error");
	assert_string_equal(ntr_json_str(e, "what", ""), "open \xEF\xBF\xBD'x'");
	assert_string_equal(ntr_json_str(e, "why", ""), "because");
	assert_string_equal(ntr_json_str(e, "todo", ""), "do this");
	close(c);
}

static void test_hello_first(void **state)
{
	int c = sf_connect_raw(&fx);

	(void)state;
	sf_expect_error(c, "{\"op\":\"args\",\"str\":\"s\"}", "protocol");
	sf_expect_ok(c, "{\"op\":\"hello\"}");
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}");
	close(c);
}

static void send_fds(int c, const char *text, size_t n, int *fds)
{
	ntr_autojson json_t *m = json_loads(text, 0, NULL);

	assert_int_equal(ntr_wire_send(c, m, fds, n), 0);
}

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_descriptors(void **state)
{
	int c = sf_connect(&fx), p[2], got[NTR_WIRE_FDS], three[3], two[2];
	ntr_autojson json_t *m = NULL, *few = NULL, *many = NULL, *given = NULL;
	unsigned before;
	size_t n = 0;
	char b = 0;

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	before = open_fds();
	two[0] = p[1];
	two[1] = p[0];
	send_fds(c, "{\"op\":\"fds\"}", 2, two);
	m = sf_recv(c);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_int_equal(ntr_json_int(m, "n", 0), 2);
	few = sf_request(c, "{\"op\":\"fds\"}");
	sf_is_error(few, "usage");
	three[0] = three[1] = three[2] = p[1];
	send_fds(c, "{\"op\":\"fds\"}", 3, three);
	many = sf_recv(c);
	sf_is_error(many, "usage");
	sf_send(c, "{\"op\":\"give\"}");
	assert_int_equal(ntr_wire_recv(c, &given, got, &n), 0);
	assert_int_equal(n, 1);
	close(got[0]);
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}");
	assert_int_equal(open_fds(), before); /* client and server are one process here: nothing has leaked */
	assert_int_equal(read(p[0], &b, 1), 1);
	assert_int_equal(b, 'K');
	close(p[0]);
	close(p[1]);
	close(c);
}

static void test_lists(void **state)
{
	int c = sf_connect(&fx);
	ntr_autojson json_t *m = sf_request(c, "{\"op\":\"rows\"}");

	(void)state;
	assert_int_equal(json_array_size(json_object_get(m, "rows")), 3);
	sf_send(c, "{\"op\":\"rows\",\"stream\":true}");
	for (int i = 0; i < 3; i++) {
		ntr_autojson json_t *row = sf_recv(c);

		assert_string_equal(ntr_json_str(row, "event", ""), "row");
		assert_int_equal(ntr_json_int(row, "i", -1), i);
	}
	json_decref(m);
	m = sf_recv(c);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_null(json_object_get(m, "rows"));
	close(c);
}

static void test_reply_too_large(void **state)
{
	int c = sf_connect(&fx);

	(void)state;
	sf_expect_error(c, "{\"op\":\"huge\"}", "failed");
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}");
	close(c);
}

static void test_pipelined(void **state)
{
	int c = sf_connect_raw(&fx);

	(void)state;
	sf_send(c, "{\"op\":\"hello\"}");
	sf_send(c, "{\"op\":\"quiet\"}");
	sf_send(c, "{\"op\":\"args\",\"str\":\"one\"}");
	sf_send(c, "{\"op\":\"args\",\"str\":\"two\"}");
	for (int i = 0; i < 3; i++) {
		static const char *const want[] = {"", "one", "two"};
		ntr_autojson json_t *m = sf_recv(c);

		assert_string_equal(ntr_json_str(m, "str", ""), want[i]);
	}
	sf_expect_ok(c, "{\"op\":\"bye\"}");
	sf_expect_end(c);
	close(c);
}

/* ---- frames */

static void send_raw(int c, const void *p, size_t n)
{
	assert_int_equal(send(c, p, n, MSG_NOSIGNAL), n);
}

/* In one piece: the server may have refused the head before the rest is sent. */
static void send_framed(int c, const char *text, size_t n)
{
	uint8_t frame[256];

	assert_true(n + 4 <= sizeof frame);
	ntr_put_le32(frame, (uint32_t)n);
	memcpy(frame + 4, text, n);
	send_raw(c, frame, n + 4);
}

static void expect_refused(int c)
{
	ntr_autojson json_t *m = sf_recv(c);

	sf_is_error(m, "protocol");
	sf_expect_end(c);
	close(c);
}

static void test_bad_frames(void **state)
{
	static const char *const bad[] = {"", "x", "[]", "5", "\"hello\"", "null", "{\"op\":\"hello\"",
	        "{} {}", "{\"op\":\"hello\",\"op\":\"hello\"}", "{\"op\":\"\xff\"}",
	        "{\"op\":\"hello\",\"fds\":1}", "{\"op\":\"hello\",\"fds\":-1}"};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		int c = sf_connect_raw(&fx);

		send_framed(c, bad[i], strlen(bad[i]));
		expect_refused(c);
	}
}

static void test_undeclared_descriptors(void **state)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {{0}};
	char frame[] = "\x0e\0\0\0{\"op\":\"hello\"}";
	struct iovec iov = {.iov_base = frame, .iov_len = sizeof frame - 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	int c = sf_connect_raw(&fx), zero = 0;

	(void)state;
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &zero, sizeof zero);
	assert_int_equal(sendmsg(c, &mh, 0), sizeof frame - 1);
	expect_refused(c);
}

static void test_oversized(void **state)
{
	static const uint32_t sizes[] = {NTR_WIRE_MAX + 1, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(sizes); i++) {
		int c = sf_connect_raw(&fx);
		uint8_t head[4];

		ntr_put_le32(head, sizes[i]);
		send_raw(c, head, 4);
		expect_refused(c);
	}
}

/* The largest frame is no problem. */
static void test_largest(void **state)
{
	int c = sf_connect(&fx);
	size_t n = NTR_WIRE_MAX - 64;
	char *p = malloc(n + 1);
	ntr_autojson json_t *req = NULL, *m = NULL;

	(void)state;
	memset(p, 'l', n);
	p[n] = '\0';
	req = json_pack("{s:s,s:s,s:o}", "op", "args", "str", "s", "blob", json_stringn_nocheck(p, n));
	free(p);
	assert_int_equal(ntr_wire_send(c, req, NULL, 0), 0);
	m = sf_recv(c);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_int_equal(ntr_json_int(m, "blob", 0), n);
	close(c);
}

static void test_half_frames(void **state)
{
	int slow = sf_connect_raw(&fx);
	static const char text[] = "\x0e\0\0\0{\"op\":\"hello\"}";

	(void)state;
	for (size_t cut = 1; cut < sizeof text - 1; cut += 5) {
		int c = sf_connect_raw(&fx);

		send_raw(c, text, cut);
		assert_int_equal(shutdown(c, SHUT_WR), 0);
		expect_refused(c);
	}
	/* A frame that trickles in is a frame. */
	for (size_t i = 0; i < sizeof text - 1; i++) {
		send_raw(slow, text + i, 1);
		usleep(200);
	}
	json_decref(sf_recv(slow));
	sf_expect_ok(slow, "{\"op\":\"args\",\"str\":\"s\"}");
	close(slow);
}

/* Garbage from a fixed seed, cut anywhere: every connection ends or answers, and the server lives. */
static void test_garbage(void **state)
{
	unsigned seed = 20261129;

	(void)state;
	print_message("seed %u\n", seed);
	for (int i = 0; i < 300; i++) {
		int c = sf_connect_raw(&fx);
		uint8_t buf[256];
		size_t n = (size_t)rand_r(&seed) % sizeof buf + 1;

		for (size_t k = 0; k < n; k++)
			buf[k] = (uint8_t)rand_r(&seed);
		if (i % 2 && n > 4)
			ntr_put_le32(buf, (uint32_t)(n - 4));
		send(c, buf, n, MSG_NOSIGNAL);
		close(c);
	}
	sf_wait_connections(&fx, 0);
	close(sf_connect(&fx));
}

/* ---- connections */

static void test_silent_clients(void **state)
{
	int silent[64], c;

	(void)state;
	for (size_t i = 0; i < NTR_COUNT(silent); i++)
		silent[i] = sf_connect_raw(&fx);
	sf_wait_connections(&fx, NTR_COUNT(silent));
	c = sf_connect(&fx);
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}");
	close(c);
	for (size_t i = 0; i < NTR_COUNT(silent); i++)
		close(silent[i]);
	sf_wait_connections(&fx, 0);
}

/* Two hundred requests under way at once, and one more client is still served. */
static void test_parallel(void **state)
{
	enum { N = 200 };
	int c[N], extra;

	(void)state;
	for (int i = 0; i < N; i++) {
		c[i] = sf_connect(&fx);
		sf_send(c[i], "{\"op\":\"wait\"}");
	}
	gate_await(N);
	extra = sf_connect(&fx);
	sf_expect_ok(extra, "{\"op\":\"args\",\"str\":\"s\"}");
	gate(true);
	for (int i = 0; i < N; i++) {
		ntr_autojson json_t *m = sf_recv(c[i]);

		assert_true(ntr_json_bool(m, "ok", false));
		close(c[i]);
	}
	close(extra);
	sf_wait_connections(&fx, 0);
	assert_true(ntrd_server_requests(fx.srv) >= 2 * N + 2);
}

/* A client that goes away during its request, or does not read the reply, holds up nobody. */
static void test_gone_clients(void **state)
{
	int gone = sf_connect(&fx), deaf = sf_connect(&fx), c;

	(void)state;
	sf_send(gone, "{\"op\":\"wait\"}");
	gate_await(1);
	close(gone);
	for (int i = 0; i < 3000; i++) { /* more than its socket holds */
		ntr_autojson json_t *m = json_pack("{s:s}", "op", "rows");
		ntr_autofree char *text = json_dumps(m, 0);
		uint8_t head[4];

		ntr_put_le32(head, (uint32_t)strlen(text));
		if (send(deaf, head, 4, MSG_DONTWAIT | MSG_NOSIGNAL) != 4 ||
		        send(deaf, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)strlen(text))
			break;
	}
	c = sf_connect(&fx);
	sf_expect_ok(c, "{\"op\":\"args\",\"str\":\"s\"}");
	gate(true);
	close(deaf);
	close(c);
	sf_wait_connections(&fx, 0);
}

/* Draining lets a request end and its reply out, and takes no further one. */
static void *open_gate_later(void *arg)
{
	(void)arg;
	usleep(100000);
	gate(true);
	return NULL;
}

static void test_drain(void **state)
{
	int busy, idle, c = -1;
	ntr_autojson json_t *m = NULL;
	pthread_t t;

	(void)state;
	busy = sf_connect(&fx);
	idle = sf_connect(&fx);
	sf_send(busy, "{\"op\":\"wait\"}");
	sf_send(busy, "{\"op\":\"args\",\"str\":\"s\"}");
	gate_await(1);
	assert_int_equal(pthread_create(&t, NULL, open_gate_later, NULL), 0);
	assert_int_equal(ntrd_server_drain(fx.srv, SF_PATIENCE_MS), 0);
	pthread_join(t, NULL);
	m = sf_recv(busy);
	assert_true(ntr_json_bool(m, "ok", false));
	sf_expect_end(busy);
	sf_expect_end(idle);
	assert_int_equal(ntr_sock_connect(fx.store, &c), -ECONNREFUSED);
	close(busy);
	close(idle);
}

static void test_drain_hangs(void **state)
{
	int busy = sf_connect(&fx);

	(void)state;
	sf_send(busy, "{\"op\":\"wait\"}");
	gate_await(1);
	assert_int_equal(ntrd_server_drain(fx.srv, 50), -ETIMEDOUT);
	assert_int_equal(ntrd_server_connections(fx.srv), 1);
	gate(true);
	close(busy);
}

/* As another user: 0: connected and refused with an error of kind protocol; else an errno, or 255. */
static int try_as_other(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fds[NTR_WIRE_FDS], c = socket(AF_UNIX, SOCK_STREAM, 0);
	json_t *m = NULL, *e;
	size_t n;
	char b;

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	if (setgid(65534) || setuid(65534))
		return 255;
	if (connect(c, (const struct sockaddr *)&sa, sizeof sa))
		return errno;
	if (ntr_wire_recv(c, &m, fds, &n))
		return 255;
	e = json_object_get(m, "error");
	return strcmp(ntr_json_str(e, "kind", ""), "protocol") || recv(c, &b, 1, 0) ? 255 : 0;
}

static int fork_as_other(const char *path)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(try_as_other(path));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The folder and the socket's mode keep others out; where they do not, the uid is checked. */
static void test_other_user(void **state)
{
	ntr_autofree char *path = NULL, *folder = ntr_sprintf("%s/ntr", fx.dir);

	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(ntr_sock_path(fx.store, &path, NULL), 0);
	assert_int_equal(fork_as_other(path), EACCES);
	assert_int_equal(chmod(fx.dir, 0755), 0);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(fork_as_other(path), EACCES);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(fork_as_other(path), 0);
	close(sf_connect(&fx));
}

/* Every frame that comes is whole, whatever of it was on its way when the time was up. */
static void test_stalled_client(void **state)
{
	int fd = sf_connect(&fx), n = 0;

	(void)state;
	for (int round = 0; round < 3; round++) {
		sf_send(fd, "{\"op\":\"pour\"}");
		pthread_mutex_lock(&gate_lock);
		while (!gate_waiting)
			pthread_cond_wait(&gate_cond, &gate_lock);
		gate_waiting = 0;
		pthread_mutex_unlock(&gate_lock);
		for (n = 0;; n++) {
			ntr_autojson json_t *m = sf_recv(fd);

			if (!json_object_get(m, "event")) {
				assert_true(ntr_json_bool(m, "ok", false));
				/* the one that timed out came, too, if it was begun */
				assert_in_range(n - ntr_json_int(m, "sent", -9), 0, 1);
				break;
			}
			assert_int_equal(ntr_json_int(m, "n", -1), n);
			assert_int_equal(strlen(ntr_json_str(m, "text", "")), 20000);
		}
		assert_true(n > 1);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_members, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_bad_members, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_hello_first, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_lists, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_reply_too_large, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_pipelined, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_bad_frames, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_undeclared_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_oversized, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_largest, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_half_frames, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_silent_clients, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_parallel, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_gone_clients, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_stalled_client, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_drain_hangs, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_other_user, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
