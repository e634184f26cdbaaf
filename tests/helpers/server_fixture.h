/* A server with ops of a test's own, and clients of it. */
#ifndef NTR_TESTS_SERVER_FIXTURE_H
#define NTR_TESTS_SERVER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sockpath.h"
#include "base/util.h"
#include "cli/ntrd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Against waiting for ever; far beyond what a starved machine takes. */
enum { SF_PATIENCE_MS = 60000 };

struct server_fixture {
	char dir[64], store[96];
	int listen_fd;
	struct ntr_ctl *ctl; /* set before sf_listen where the ops need one */
	struct ntrd_server *srv;
};

static inline void sf_make(struct server_fixture *f)
{
	snprintf(f->dir, sizeof f->dir, "/tmp/ntr-server-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->store, sizeof f->store, "%s/store", f->dir);
	assert_int_equal(mkdir(f->store, 0700), 0);
	setenv("XDG_RUNTIME_DIR", f->dir, 1);
}

static inline void sf_listen(struct server_fixture *f, const struct ntrd_op *ops)
{
	struct ntrd_server_options o = {.ctl = f->ctl, .ops = ops, .store = f->store};

	assert_int_equal(ntr_sock_listen(f->store, &f->listen_fd, NULL), 0);
	o.listen_fd = f->listen_fd;
	assert_int_equal(ntrd_server_new(&o, &f->srv), 0);
}

static inline void sf_setup(struct server_fixture *f, const struct ntrd_op *ops)
{
	sf_make(f);
	sf_listen(f, ops);
}

static inline void sf_teardown(struct server_fixture *f)
{
	ntr_sock_unlink(f->store);
	assert_int_equal(ntrd_server_drain(f->srv, SF_PATIENCE_MS), 0);
	ntrd_server_free(f->srv);
	close(f->listen_fd);
	assert_int_equal(ntr_rm_rf(AT_FDCWD, f->dir), 0);
}

static inline int sf_connect_raw(const struct server_fixture *f)
{
	int fd = -1;

	assert_int_equal(ntr_sock_connect(f->store, &fd), 0);
	return fd;
}

/* The next frame in time, without descriptors. */
static inline json_t *sf_recv(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	int fds[NTR_WIRE_FDS];
	json_t *m = NULL;
	size_t n = 0;

	assert_int_equal(poll(&p, 1, SF_PATIENCE_MS), 1);
	assert_int_equal(ntr_wire_recv(sock, &m, fds, &n), 0);
	assert_int_equal(n, 0);
	return m;
}

static inline void sf_send(int sock, const char *text)
{
	ntr_autojson json_t *m = json_loads(text, 0, NULL);

	assert_non_null(m);
	assert_int_equal(ntr_wire_send(sock, m, NULL, 0), 0);
}

static inline json_t *sf_request(int sock, const char *text)
{
	sf_send(sock, text);
	return sf_recv(sock);
}

static inline int sf_connect(const struct server_fixture *f)
{
	int fd = sf_connect_raw(f);
	ntr_autojson json_t *m = sf_request(fd, "{\"op\":\"hello\",\"protocol\":1}");

	assert_true(ntr_json_bool(m, "ok", false));
	return fd;
}

static inline void sf_expect_ok(int sock, const char *text)
{
	ntr_autojson json_t *m = sf_request(sock, text);

	if (!ntr_json_bool(m, "ok", false))
		fail_msg("%s -> %s", text, json_dumps(m, 0));
}

static inline void sf_is_error(const json_t *m, const char *kind)
{
	const json_t *e = json_object_get(m, "error");

	if (!e || strcmp(ntr_json_str(e, "kind", ""), kind))
		fail_msg("expected an error of kind %s: %s", kind, json_dumps(m, 0));
	assert_true(ntr_json_str(e, "what", "")[0] != '\0');
	assert_true(ntr_json_str(e, "why", "")[0] != '\0');
	assert_non_null(ntr_json_str(e, "todo", NULL));
	assert_true(ntr_json_int(e, "errno", 0) > 0);
}

static inline void sf_expect_error(int sock, const char *text, const char *kind)
{
	ntr_autojson json_t *m = sf_request(sock, text);

	sf_is_error(m, kind);
}

/* The server ends the connection in time. */
static inline void sf_expect_end(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	char c;

	assert_int_equal(poll(&p, 1, SF_PATIENCE_MS), 1);
	assert_true(recv(sock, &c, 1, 0) <= 0);
}

/* Waits for a number of connections. */
static inline void sf_wait_connections(const struct server_fixture *f, unsigned n)
{
	for (int i = 0; i < SF_PATIENCE_MS && ntrd_server_connections(f->srv) != n; i++)
		usleep(1000);
	assert_int_equal(ntrd_server_connections(f->srv), n);
}

#endif
