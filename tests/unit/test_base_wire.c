/* wire: frames over a socketpair: whole, in pieces, with descriptors, and everything a bad peer can send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/util.h"
#include "base/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct pair {
	int a, b;
	unsigned fds_before;
};

static int setup(void **state)
{
	static struct pair p;
	int sv[2];

	p.fds_before = open_fds();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	p.a = sv[0];
	p.b = sv[1];
	*state = &p;
	return 0;
}

/* Whatever a test did, no descriptor is left open. */
static int teardown(void **state)
{
	struct pair *p = *state;

	ntr_closep(&p->a);
	ntr_closep(&p->b);
	assert_int_equal(open_fds(), p->fds_before);
	return 0;
}

static void hang_up(int *fd)
{
	close(*fd);
	*fd = -1;
}

static int receive(int sock, json_t **ret)
{
	int fds[NTR_WIRE_FDS];
	size_t n = 99;
	int r = ntr_wire_recv(sock, ret, fds, &n);

	assert_int_equal(n, 0);
	return r;
}

static void assert_same_file(int a, int b)
{
	struct stat x, y;

	assert_int_equal(fstat(a, &x), 0);
	assert_int_equal(fstat(b, &y), 0);
	assert_true(x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static void test_order(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 50; i++)
		assert_int_equal(ntr_wire_send_new(p->a, json_pack("{s:i}", "n", i), NULL, 0), 0);
	for (int i = 0; i < 50; i++) {
		ntr_autojson json_t *m = NULL;

		assert_int_equal(receive(p->b, &m), 0);
		assert_int_equal(ntr_json_int(m, "n", -1), i);
	}
	assert_int_equal(ntr_wire_send_new(p->a, NULL, NULL, 0), -ENOMEM);
}

struct sender {
	int sock;
	json_t *msg;
	const int *fds;
	size_t nfds;
	int ret;
};

static void *send_main(void *arg)
{
	struct sender *s = arg;

	s->ret = ntr_wire_send(s->sock, s->msg, s->fds, s->nfds);
	return NULL;
}

/* Far larger than the socket's buffer: written in many pieces, read in many pieces, the descriptors once. */
static void test_large(void **state)
{
	struct pair *p = *state;
	size_t n = 3 << 20;
	ntr_autofree char *text = malloc(n + 1);
	ntr_autojson json_t *got = NULL, *msg = NULL;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC), zero = open("/dev/zero", O_RDWR | O_CLOEXEC),
	    size = 1;
	int send_fds[2] = {nul, zero}, fds[NTR_WIRE_FDS];
	struct sender s = {.sock = p->a, .fds = send_fds, .nfds = 2, .ret = 1};
	size_t nfds;
	pthread_t t;

	assert_non_null(text);
	for (size_t i = 0; i < n; i++)
		text[i] = (char)('a' + i % 23);
	text[n] = '\0';
	setsockopt(p->a, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	setsockopt(p->b, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	s.msg = msg = json_pack("{s:s}", "text", text);
	assert_int_equal(pthread_create(&t, NULL, send_main, &s), 0);
	assert_int_equal(ntr_wire_recv(p->b, &got, fds, &nfds), 0);
	pthread_join(t, NULL);
	assert_int_equal(s.ret, 0);
	assert_string_equal(ntr_json_str(got, "text", ""), text);
	assert_int_equal(nfds, 2);
	assert_same_file(fds[0], nul);
	assert_same_file(fds[1], zero);
	ntr_wire_close_fds(fds, nfds);
	assert_int_equal(fds[0], -1);
	close(nul);
	close(zero);
}

static void test_all_descriptors(void **state)
{
	struct pair *p = *state;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC), send_fds[NTR_WIRE_FDS + 1], fds[NTR_WIRE_FDS];
	ntr_autojson json_t *m = json_object(), *got = NULL;
	size_t n;

	for (size_t i = 0; i < NTR_COUNT(send_fds); i++)
		send_fds[i] = nul;
	assert_int_equal(ntr_wire_send(p->a, m, send_fds, NTR_WIRE_FDS + 1), -EINVAL);
	assert_int_equal(ntr_wire_send(p->a, m, send_fds, NTR_WIRE_FDS), 0);
	assert_int_equal(ntr_wire_recv(p->b, &got, fds, &n), 0);
	assert_int_equal(n, NTR_WIRE_FDS);
	assert_int_equal(ntr_json_int(got, "fds", 0), NTR_WIRE_FDS);
	for (size_t i = 0; i < n; i++) {
		assert_same_file(fds[i], nul);
		assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	}
	ntr_wire_close_fds(fds, n);
	assert_true(fcntl(nul, F_GETFD) >= 0); /* they stay open at the sender's */
	close(nul);
}

/* Two frames with descriptors in one go: each gets its own. */
static void test_two_with_descriptors(void **state)
{
	struct pair *p = *state;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC), zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	const int which[2] = {nul, zero};

	for (int i = 0; i < 2; i++)
		assert_int_equal(ntr_wire_send_new(p->a, json_object(), &which[i], 1), 0);
	for (int i = 0; i < 2; i++) {
		ntr_autojson json_t *got = NULL;
		int fds[NTR_WIRE_FDS];
		size_t n;

		assert_int_equal(ntr_wire_recv(p->b, &got, fds, &n), 0);
		assert_int_equal(n, 1);
		assert_same_file(fds[0], which[i]);
		ntr_wire_close_fds(fds, n);
	}
	close(nul);
	close(zero);
}

static void test_end(void **state)
{
	struct pair *p = *state;
	json_t *m = NULL;

	assert_int_equal(ntr_wire_send_new(p->a, json_object(), NULL, 0), 0);
	hang_up(&p->a);
	assert_int_equal(receive(p->b, &m), 0);
	json_decref(m);
	m = NULL;
	assert_int_equal(receive(p->b, &m), -ENODATA);
	assert_int_equal(receive(p->b, &m), -ENODATA);
	assert_null(m);
}

/* Writing to a peer that left is an error, not a signal. */
static void test_peer_gone(void **state)
{
	struct pair *p = *state;

	signal(SIGPIPE, SIG_DFL);
	hang_up(&p->b);
	assert_int_equal(ntr_wire_send_new(p->a, json_object(), NULL, 0), -EPIPE);
}

/* A frame that breaks off after every possible byte. */
static void test_half(void **state)
{
	static const uint8_t frame[] = "\x09\0\0\0{\"a\":123}";
	struct pair *p = *state;

	for (size_t n = 1; n < sizeof frame - 1; n++) {
		json_t *m = NULL;
		int sv[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
		assert_int_equal(ntr_write_all(sv[0], frame, n), 0);
		close(sv[0]);
		assert_int_equal(receive(sv[1], &m), -EPROTO);
		assert_null(m);
		close(sv[1]);
	}
	assert_int_equal(ntr_write_all(p->a, frame, sizeof frame - 1), 0);
	{
		ntr_autojson json_t *m = NULL;

		assert_int_equal(receive(p->b, &m), 0);
		assert_int_equal(ntr_json_int(m, "a", 0), 123);
	}
}

static void send_raw(int sock, const void *text, uint32_t n)
{
	uint8_t head[4];

	ntr_put_le32(head, n);
	assert_int_equal(ntr_write_all(sock, head, 4), 0);
	assert_int_equal(ntr_write_all(sock, text, n), 0);
}

static void test_garbage(void **state)
{
	static const char *const bad[] = {"", "x", "{", "[]", "1", "\"x\"", "null", "{\"a\":1}x",
	        "{\"a\":1,\"a\":2}", "{\"a\":\"\xFF\"}", "{\"fds\":1}", "{\"fds\":-1}"};
	struct pair *p = *state;

	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		json_t *m = NULL;

		send_raw(p->a, bad[i], (uint32_t)strlen(bad[i]));
		if (receive(p->b, &m) != -EPROTO)
			fail_msg("'%s' was taken", bad[i]);
		assert_null(m);
	}
	{ /* the stream is still in step */
		ntr_autojson json_t *m = NULL;

		send_raw(p->a, "{\"z\":\"\\u0000\"}", 14);
		assert_int_equal(receive(p->b, &m), 0);
		assert_int_equal(json_string_length(json_object_get(m, "z")), 1);
	}
}

static void test_oversized(void **state)
{
	struct pair *p = *state;
	uint8_t head[8];
	json_t *m = NULL;
	size_t n = NTR_WIRE_MAX;
	char *text;

	ntr_put_le32(head, NTR_WIRE_MAX + 1);
	assert_int_equal(ntr_write_all(p->a, head, 4), 0);
	assert_int_equal(receive(p->b, &m), -EMSGSIZE);
	ntr_put_le32(head, UINT32_MAX);
	assert_int_equal(ntr_write_all(p->a, head, 4), 0);
	assert_int_equal(receive(p->b, &m), -EMSGSIZE);
	assert_null(m);
	text = malloc(n + 1);
	assert_non_null(text);
	memset(text, 'x', n);
	text[n] = '\0';
	assert_int_equal(ntr_wire_send_new(p->a, json_pack("{s:s}", "t", text), NULL, 0), -EMSGSIZE);
	free(text);
	assert_int_equal(recv(p->b, head, sizeof head, MSG_DONTWAIT), -1); /* nothing of it was sent */
}

/* Sends text as a frame with descriptors attached to byte number `at` of it. */
static void send_with_fd(int sock, const char *text, size_t at, int fd, size_t times)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 64)];
		struct cmsghdr align;
	} ctl;
	uint8_t frame[256];
	size_t n = strnlen(text, sizeof frame - 4);
	struct iovec iov = {.iov_base = frame + at, .iov_len = n + 4 - at};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf};
	struct cmsghdr *c;

	memset(&ctl, 0, sizeof ctl);
	ntr_put_le32(frame, (uint32_t)n);
	memcpy(frame + 4, text, n);
	if (at)
		assert_int_equal(ntr_write_all(sock, frame, at), 0);
	mh.msg_controllen = CMSG_SPACE(sizeof(int) * times);
	c = &ctl.align;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * times);
	for (size_t i = 0; i < times; i++)
		memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
	assert_int_equal(sendmsg(sock, &mh, 0), (ssize_t)iov.iov_len);
}

/* Descriptors that do not fit what the frame says: refused, and every one of them closed (teardown counts).
 */
static void test_wrong_descriptors(void **state)
{
	static const struct {
		const char *text;
		size_t at, times;
	} bad[] = {{"{}", 0, 1}, {"{\"fds\":2}", 0, 1}, {"{\"fds\":1}", 0, 2}, {"not json", 0, 3},
	        {"{}", 5, 1}, {"{\"fds\":17}", 0, 17}, {"{\"fds\":40}", 0, 40}};
	struct pair *p = *state;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		unsigned before;
		json_t *m = NULL;
		int sv[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
		before = open_fds();
		send_with_fd(sv[0], bad[i].text, bad[i].at, nul, bad[i].times);
		if (receive(sv[1], &m) != -EPROTO)
			fail_msg("case %zu was taken", i);
		assert_null(m);
		assert_int_equal(open_fds(), before);
		close(sv[0]);
		close(sv[1]);
	}
	{ /* with a later byte of the same frame they still belong to it */
		ntr_autojson json_t *m = NULL;
		int fds[NTR_WIRE_FDS];
		size_t n;

		send_with_fd(p->a, "{\"fds\":1}", 6, nul, 1);
		assert_int_equal(ntr_wire_recv(p->b, &m, fds, &n), 0);
		assert_int_equal(n, 1);
		ntr_wire_close_fds(fds, n);
	}
	close(nul);
}

static void test_half_with_descriptors(void **state)
{
	struct pair *p = *state;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC), fd = nul;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {.buf = {0}};
	struct iovec iov = {.iov_base = (char[]){"\x20\0\0\0{"}, .iov_len = 5};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl.buf};
	struct cmsghdr *c = &ctl.align;
	json_t *m = NULL;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	assert_int_equal(sendmsg(p->a, &mh, 0), 5);
	hang_up(&p->a);
	assert_int_equal(receive(p->b, &m), -EPROTO);
	close(nul);
}

static void test_peer(void **state)
{
	struct pair *p = *state;
	pid_t pid;
	uid_t uid;

	assert_int_equal(ntr_wire_peer(p->a, &pid, &uid), 0);
	assert_int_equal(pid, getpid());
	assert_int_equal(uid, geteuid());
	assert_int_equal(ntr_wire_peer(-1, &pid, &uid), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_all_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_two_with_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_peer_gone, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_half, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_oversized, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_wrong_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_half_with_descriptors, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_peer, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
