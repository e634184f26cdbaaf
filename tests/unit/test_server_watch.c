/* Signals and hang-ups of running calls, and calls that would wait for themselves. */
#include "server_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>

struct call {
	int sock[2]; /* client's end, server's end */
	uint64_t id;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int got[64], n;
	uint64_t when[64];
	unsigned slow_us;
};

static struct ntrd_watcher *w;

static int setup(void **state)
{
	(void)state;
	return ntrd_watcher_new(&w);
}

static int teardown(void **state)
{
	(void)state;
	ntrd_watcher_free(w);
	return 0;
}

static void on_signal(void *user, int sig)
{
	struct call *c = user;

	if (c->slow_us)
		usleep(c->slow_us);
	pthread_mutex_lock(&c->lock);
	if (c->n < 64) {
		c->when[c->n] = ntr_mono_ns();
		c->got[c->n++] = sig;
	}
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

static int try_begin(struct call *c, const char *session, const char *inside)
{
	struct ntrd_watch watch = {.signal = on_signal, .user = c, .session = session, .inside = inside};
	int r;

	memset(c, 0, sizeof *c);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->cond, NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c->sock), 0);
	watch.sock = c->sock[1];
	r = ntrd_watch_add(w, &watch, &c->id);
	if (r) {
		close(c->sock[0]);
		close(c->sock[1]);
	}
	return r;
}

static void begin(struct call *c)
{
	assert_int_equal(try_begin(c, "s", NULL), 0);
}

static void finish(struct call *c)
{
	ntrd_watch_remove(w, c->id);
	if (c->sock[0] >= 0)
		close(c->sock[0]);
	close(c->sock[1]);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->cond);
}

/* The n-th signal (from 0) within four seconds. */
static void expect(struct call *c, int n, int sig)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&c->lock);
	while (c->n <= n && !r)
		r = pthread_cond_timedwait(&c->cond, &c->lock, &until);
	pthread_mutex_unlock(&c->lock);
	assert_int_equal(r, 0);
	assert_int_equal(c->got[n], sig);
}

static int count(struct call *c)
{
	int n;

	pthread_mutex_lock(&c->lock);
	n = c->n;
	pthread_mutex_unlock(&c->lock);
	return n;
}

static void test_signals(void **state)
{
	struct call c;

	(void)state;
	begin(&c);
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":2}");
	expect(&c, 0, SIGINT);
	/* several at once, invalid ones among them */
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":10}");
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":0}");
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":-9}");
	sf_send(c.sock[0], "{\"op\":\"signal\"}");
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":1000}");
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":12}");
	expect(&c, 1, SIGUSR1);
	expect(&c, 2, SIGUSR2);
	finish(&c);
	assert_int_equal(c.n, 3);
}

/* A signal that came before the call did. */
static void test_early_signal(void **state)
{
	struct ntrd_watch watch = {.signal = on_signal, .session = "s"};
	struct call c = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, c.sock), 0);
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":15}");
	watch.sock = c.sock[1];
	watch.user = &c;
	assert_int_equal(ntrd_watch_add(w, &watch, &c.id), 0);
	expect(&c, 0, SIGTERM);
	finish(&c);
}

static void test_trickling_signal(void **state)
{
	static const char text[] = "\x1a\0\0\0{\"op\":\"signal\", \"sig\":  2}";
	struct call c;

	(void)state;
	begin(&c);
	for (size_t i = 0; i < sizeof text - 1; i++) {
		assert_int_equal(send(c.sock[0], text + i, 1, 0), 1);
		usleep(300);
	}
	expect(&c, 0, SIGINT);
	finish(&c);
}

/* Another request stays in the stream for whoever reads after the call, and so does what follows it. */
static void test_foreign_frames(void **state)
{
	ntr_autojson json_t *next = NULL, *late = NULL;
	struct call c;

	(void)state;
	begin(&c);
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":2}");
	sf_send(c.sock[0], "{\"op\":\"log\"}");
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":3}");
	expect(&c, 0, SIGINT);
	usleep(20000);
	assert_int_equal(count(&c), 1);
	next = sf_recv(c.sock[1]);
	assert_string_equal(ntr_json_str(next, "op", ""), "log");
	late = sf_recv(c.sock[1]);
	assert_int_equal(ntr_json_int(late, "sig", 0), 3);
	finish(&c);
}

static void test_large_and_broken_frames(void **state)
{
	struct call c, d;
	uint8_t head[4] = {0xff, 0xff, 0xff, 0xff}, got[4];

	(void)state;
	begin(&c);
	assert_int_equal(send(c.sock[0], head, 4, 0), 4);
	begin(&d);
	assert_int_equal(send(d.sock[0], "\x02\0\0\0xx", 6, 0), 6);
	usleep(20000);
	assert_int_equal(count(&c) + count(&d), 0);
	assert_int_equal(recv(c.sock[1], got, 4, MSG_DONTWAIT), 4); /* still there, for the error reply */
	assert_int_equal(recv(d.sock[1], got, 4, MSG_DONTWAIT), 4);
	finish(&c);
	finish(&d);
}

static void close_client(struct call *c)
{
	close(c->sock[0]);
	c->sock[0] = -1;
}

static void test_gone(void **state)
{
	struct call c;

	(void)state;
	begin(&c);
	close_client(&c);
	expect(&c, 0, SIGHUP);
	expect(&c, 1, SIGKILL);
	assert_true(c.when[1] - c.when[0] > 1950000000);
	usleep(20000);
	finish(&c);
	assert_int_equal(c.n, 2);
}

/* It ends in time: no kill. Signals sent before the end of the connection arrive. */
static void test_gone_in_time(void **state)
{
	struct call c, other;

	(void)state;
	begin(&c);
	begin(&other);
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":10}");
	close_client(&c);
	expect(&c, 0, SIGUSR1);
	expect(&c, 1, SIGHUP);
	finish(&c);
	assert_int_equal(c.n, 2);
	usleep(2100000);
	assert_int_equal(count(&other), 0);
	finish(&other);
}

/* Nothing more to say is not gone. */
static void test_half_closed(void **state)
{
	struct call c;

	(void)state;
	begin(&c);
	sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":10}");
	assert_int_equal(shutdown(c.sock[0], SHUT_WR), 0);
	expect(&c, 0, SIGUSR1);
	usleep(20000);
	assert_int_equal(count(&c), 1);
	finish(&c);
}

static void test_hangup_all(void **state)
{
	struct call c[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		begin(&c[i]);
	ntrd_watch_hangup(w);
	for (int i = 0; i < 5; i++)
		expect(&c[i], 0, SIGHUP);
	for (int i = 0; i < 5; i++)
		finish(&c[i]);
}

/* Removal waits for a signal that is being delivered; a slow delivery holds up no other removal. */
static void test_slow_delivery(void **state)
{
	struct call slow, quick;
	uint64_t began;

	(void)state;
	begin(&slow);
	begin(&quick);
	slow.slow_us = 6000000;
	sf_send(slow.sock[0], "{\"op\":\"signal\",\"sig\":2}");
	usleep(50000);
	began = ntr_mono_ns();
	finish(&quick);
	assert_true(ntr_mono_ns() - began < 5000000000);
	finish(&slow);
	assert_int_equal(slow.n, 1);
	assert_true(ntr_mono_ns() - began > 5000000000);
}

static void test_deadlocks(void **state)
{
	struct call ab, bc, x, cd;

	(void)state;
	assert_int_equal(try_begin(&x, "a", "a"), -EDEADLK);
	assert_int_equal(try_begin(&ab, "b", "a"), 0); /* a waits for b */
	assert_int_equal(try_begin(&x, "a", "b"), -EDEADLK);
	assert_int_equal(try_begin(&bc, "c", "b"), 0);
	assert_int_equal(try_begin(&x, "a", "c"), -EDEADLK);
	assert_int_equal(try_begin(&x, "b", "c"), -EDEADLK);
	assert_int_equal(try_begin(&cd, "d", "c"), 0);
	assert_int_equal(try_begin(&x, "a", "d"), -EDEADLK);
	finish(&cd);
	assert_int_equal(try_begin(&x, "a", "d"), 0); /* d waits for nobody any more */
	finish(&x);
	assert_int_equal(try_begin(&x, "b", NULL), 0); /* comes from no call */
	finish(&x);
	assert_int_equal(try_begin(&x, "c", "a"), 0); /* two ways to the same end are no circle */
	assert_int_equal(try_begin(&cd, "a", "c"), -EDEADLK);
	finish(&x);
	finish(&bc);
	finish(&ab);
}

/* ---- answers */

struct answered {
	struct call c;
	size_t n, bytes;
	int64_t last;
};

static void on_answer(void *user, const json_t *msg)
{
	struct answered *a = user;

	pthread_mutex_lock(&a->c.lock);
	a->n++;
	a->last = ntr_json_int(msg, "n", -1);
	a->bytes += strlen(ntr_json_str(msg, "value", ""));
	pthread_cond_broadcast(&a->c.cond);
	pthread_mutex_unlock(&a->c.lock);
}

static void begin_answers(struct answered *a)
{
	struct ntrd_watch watch = {.signal = on_signal, .answer = on_answer, .user = a, .session = "s"};

	memset(a, 0, sizeof *a);
	pthread_mutex_init(&a->c.lock, NULL);
	pthread_cond_init(&a->c.cond, NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a->c.sock), 0);
	watch.sock = a->c.sock[1];
	assert_int_equal(ntrd_watch_add(w, &watch, &a->c.id), 0);
}

static void expect_answers(struct answered *a, size_t n)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	pthread_mutex_lock(&a->c.lock);
	while (a->n < n && !r)
		r = pthread_cond_timedwait(&a->c.cond, &a->c.lock, &until);
	pthread_mutex_unlock(&a->c.lock);
	assert_int_equal(r, 0);
}

static void test_answers(void **state)
{
	ntr_autojson json_t *next = NULL;
	struct answered a;

	(void)state;
	begin_answers(&a);
	sf_send(a.c.sock[0], "{\"op\":\"answer\",\"n\":1,\"value\":\"x\"}");
	expect_answers(&a, 1);
	sf_send(a.c.sock[0], "{\"op\":\"signal\",\"sig\":0}");
	sf_send(a.c.sock[0], "{\"op\":\"answer\",\"n\":2}");
	sf_send(a.c.sock[0], "{\"op\":\"signal\",\"sig\":2}");
	sf_send(a.c.sock[0], "{\"op\":\"answer\",\"n\":3}");
	expect_answers(&a, 3);
	expect(&a.c, 0, SIGINT);
	assert_int_equal(a.last, 3);
	/* whatever else comes is not for the call, nor what follows */
	sf_send(a.c.sock[0], "{\"op\":\"log\"}");
	sf_send(a.c.sock[0], "{\"op\":\"answer\",\"n\":4}");
	usleep(20000);
	next = sf_recv(a.c.sock[1]);
	assert_string_equal(ntr_json_str(next, "op", ""), "log");
	finish(&a.c);
	assert_int_equal(a.n, 3);
}

static void send_frame(int sock, const char *text, size_t n, size_t step)
{
	uint8_t head[4];

	ntr_put_le32(head, (uint32_t)n);
	for (size_t i = 0; i < 4; i += step < 4 ? step : 4)
		assert_true(send(sock, head + i, NTR_MIN(step, 4 - i), 0) > 0);
	for (size_t off = 0; off < n;) {
		ssize_t k = send(sock, text + off, NTR_MIN(step, n - off), 0);

		assert_true(k > 0);
		off += (size_t)k;
		if (step < 4)
			usleep(300);
	}
}

/* Byte by byte, and far larger than what a socket holds. */
static void test_answers_in_pieces(void **state)
{
	static const char small[] = " { \"op\" :\t\"answer\", \"n\": 7 }";
	static const char head[] = "{\"op\":\"answer\",\"n\":8,\"value\":\"";
	size_t n = 3 << 20;
	ntr_autofree char *large = malloc(n);
	struct answered a;

	(void)state;
	assert_non_null(large);
	begin_answers(&a);
	send_frame(a.c.sock[0], small, sizeof small - 1, 1);
	expect_answers(&a, 1);
	assert_int_equal(a.last, 7);
	memset(large, 'x', n);
	memcpy(large, head, sizeof head - 1);
	memcpy(large + n - 2, "\"}", 2);
	send_frame(a.c.sock[0], large, n, n);
	expect_answers(&a, 2);
	assert_int_equal(a.bytes, n - (sizeof head - 1) - 2);
	finish(&a.c);
}

/* Until the watcher has taken what was sent so far. */
static void wait_taken(int sock)
{
	int left = 1;

	for (int i = 0; i < SF_PATIENCE_MS && left; i++) {
		assert_int_equal(ioctl(sock, FIONREAD, &left), 0);
		usleep(1000);
	}
	assert_int_equal(left, 0);
}

/* The call ends in the middle of one: what follows it is read as it was sent. */
static void *late_half(void *arg)
{
	usleep(50000);
	send_frame(*(int *)arg, "{\"op\":\"log\"}", 12, 100);
	return arg;
}

static void test_answer_cut_off(void **state)
{
	static const char text[] = "{\"op\":\"answer\",\"value\":\"half";
	ntr_autojson json_t *next = NULL;
	uint8_t head[4];
	struct answered a;
	pthread_t t;
	int sock;

	(void)state;
	begin_answers(&a);
	sock = a.c.sock[0];
	ntr_put_le32(head, sizeof text - 1 + 16);
	assert_int_equal(send(sock, head, 4, 0), 4);
	assert_int_equal(send(sock, text, sizeof text - 1, 0), sizeof text - 1);
	wait_taken(a.c.sock[1]);
	/* its end, 16 bytes, is a whole frame here, which must not be taken for one */
	assert_int_equal(pthread_create(&t, NULL, late_half, &sock), 0);
	ntrd_watch_remove(w, a.c.id);
	pthread_join(t, NULL);
	send_frame(sock, "{\"op\":\"ls\"}", 11, 100);
	next = sf_recv(a.c.sock[1]);
	assert_string_equal(ntr_json_str(next, "op", ""), "ls");
	close(a.c.sock[0]);
	close(a.c.sock[1]);
	assert_int_equal(a.n, 0);
}

static void test_broken_answers(void **state)
{
	struct answered a;
	struct call c;

	(void)state;
	begin_answers(&a);
	send_frame(a.c.sock[0], "{\"op\":\"answer\" nonsense", 24, 100);
	expect(&a.c, 0, SIGHUP);
	finish(&a.c);
	assert_int_equal(a.n, 0);
	/* where none is expected it stays in the stream */
	begin(&c);
	sf_send(c.sock[0], "{\"op\":\"answer\",\"n\":1}");
	usleep(20000);
	json_decref(sf_recv(c.sock[1]));
	finish(&c);
	/* a frame that ends before it tells what it is */
	begin_answers(&a);
	send_frame(a.c.sock[0], "{", 1, 100);
	usleep(20000);
	assert_int_equal(count(&a.c), 0);
	finish(&a.c);
}

/* Many threads come and go with clients that signal and leave. */
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 200; i++) {
		struct call c;

		if (try_begin(&c, "s", NULL))
			return arg;
		if (rand_r(&seed) % 2)
			sf_send(c.sock[0], "{\"op\":\"signal\",\"sig\":10}");
		if (rand_r(&seed) % 2)
			close_client(&c);
		if (rand_r(&seed) % 2)
			usleep((unsigned)rand_r(&seed) % 300);
		finish(&c);
	}
	return NULL;
}

static void test_churn(void **state)
{
	pthread_t t[4];
	void *res;

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &res);
		assert_null(res);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_early_signal, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_trickling_signal, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_foreign_frames, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_large_and_broken_frames, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_gone_in_time, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_half_closed, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_hangup_all, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_slow_delivery, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_deadlocks, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_answers_in_pieces, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_answer_cut_off, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_broken_answers, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_churn, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
