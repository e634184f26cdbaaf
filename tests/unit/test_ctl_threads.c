/* Many sessions at a time, and everything that looks at them meanwhile. Each session's file counts its calls:
 * a call, a rollback or a commit that got lost or was done twice shows in the count. NTR_TEST_STEPS: calls a
 * session. */
#include "ctl_fixture.h"

#include <pthread.h>

enum { SESSIONS = 8, CALLS = 12 };

static struct cfx fx;
static _Atomic bool over;
static unsigned calls = CALLS;

static int setup(void **state)
{
	const char *steps = getenv("NTR_TEST_STEPS");

	(void)state;
	if (steps && *steps)
		calls = (unsigned)NTR_MAX(strtoul(steps, NULL, 0), 1ul);
	fx = (struct cfx){.fold_entries = 4};
	over = false;
	cfx_setup(&fx);
	return 0;
}

CFX_TEARDOWN(teardown)

/* ---- each session's own thread ---- */

struct worker {
	pthread_t t;
	unsigned i, rnd;
	char name[16];
};

static unsigned below(struct worker *w, unsigned n)
{
	w->rnd = w->rnd * 1103515245u + 12345u;
	return (w->rnd >> 16) % n;
}

static void step_back(struct worker *w, unsigned count)
{
	struct ntr_rollback_result res;
	struct ntr_err e = {0};
	char want[16];

	snprintf(want, sizeof want, "%u\n", count - 1);
	if (ntr_ctl_rollback(fx.c, w->name, NULL, 1, below(w, 2), false, &res, &e))
		cfx_fail("rollback", &e);
	ntr_commit_done(&res.to);
	cfx_has(&fx, w->name, "n", want);
}

static void fork_off(struct worker *w, unsigned count)
{
	struct ntr_err e = {0};
	struct ntr_head h;
	char name[32], want[16];

	snprintf(name, sizeof name, "%s.fork", w->name);
	snprintf(want, sizeof want, "%u\n", count);
	if (ntr_ctl_fork(fx.c, w->name, name, &h, &e))
		cfx_fail("fork", &e);
	cfx_has(&fx, name, "n", want);
	if (below(w, 2))
		cfx_run(&fx, name, "echo other >n");
	if (ntr_ctl_remove(fx.c, name, false, NULL, &e))
		cfx_fail("remove", &e);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ntr_err e = {0};
	unsigned count = 0;
	char want[16];

	for (unsigned k = 0; k < calls; k++) {
		cfx_run(&fx, w->name,
		        "n=$(cat n 2>/dev/null); echo $((n + 1)) >n; for i in 1 2 3 4 5; do echo $n >f$i; "
		        "done");
		count++;
		switch (below(w, 6)) {
		case 0:
			if (count > 1)
				step_back(w, count--);
			break;
		case 1:
			fork_off(w, count);
			break;
		case 2:
			if (below(w, 3) == 0 && ntr_ctl_stop(fx.c, w->name, NULL, &e))
				cfx_fail("stop", &e);
			break;
		default:
			break;
		}
	}
	snprintf(want, sizeof want, "%u\n", count);
	cfx_has(&fx, w->name, "n", want);
	return NULL;
}

/* ---- those who look ---- */

static void look_at(const char *name, json_t *status)
{
	ntr_autojson json_t *procs = NULL, *list = NULL, *info = NULL;
	uint64_t head, rootw;
	struct ntr_diff d;
	struct ntr_head h;
	struct ntr_err e = {0};

	json_decref(status);
	if (ntr_session_get(ntr_ctl_store(fx.c), name, &h, NULL))
		return; /* not made yet */
	info = ntr_ctl_session_info(fx.c, &h);
	assert_non_null(info);
	if (ntr_ctl_ps(fx.c, name, &procs, &e) && e.code != -EPIPE)
		cfx_fail("ps", &e);
	e = (struct ntr_err){0};
	if (ntr_ctl_ls(fx.c, name, NULL, "", &list, &e))
		cfx_fail("ls", &e);
	cfx_cat(&fx, name, NULL, "n");
	if (ntr_ctl_work(fx.c, name, &d, &head, &rootw, &e))
		cfx_fail("work", &e);
	ntr_diff_done(&d);
}

static void *look(void *arg)
{
	unsigned k = *(unsigned *)arg;
	char name[16];

	while (!over) {
		snprintf(name, sizeof name, "s%u", k++ % SESSIONS);
		look_at(name, ntr_ctl_status(fx.c));
		ntr_ctl_busy(fx.c);
		usleep(2000);
	}
	return NULL;
}

static void *tick(void *arg)
{
	(void)arg;
	while (!over) {
		ntr_ctl_tick(fx.c);
		usleep(5000);
	}
	return NULL;
}

static void test_parallel(void **state)
{
	struct worker w[SESSIONS];
	pthread_t lookers[2], ticker;
	unsigned from[2] = {0, 4};

	(void)state;
	assert_int_equal(pthread_create(&ticker, NULL, tick, NULL), 0);
	for (size_t i = 0; i < NTR_COUNT(lookers); i++)
		assert_int_equal(pthread_create(&lookers[i], NULL, look, &from[i]), 0);
	for (unsigned i = 0; i < SESSIONS; i++) {
		w[i] = (struct worker){.i = i, .rnd = 2026 + i};
		snprintf(w[i].name, sizeof w[i].name, "s%u", i);
		assert_int_equal(pthread_create(&w[i].t, NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < SESSIONS; i++)
		pthread_join(w[i].t, NULL);
	over = true;
	for (size_t i = 0; i < NTR_COUNT(lookers); i++)
		pthread_join(lookers[i], NULL);
	pthread_join(ticker, NULL);
}

/* ---- one session, many callers: they queue ---- */

static void *append(void *arg)
{
	(void)arg;
	for (unsigned k = 0; k < calls / 2 + 1; k++)
		cfx_run(&fx, "one", "n=$(cat n 2>/dev/null); echo $((n + 1)) >n");
	return NULL;
}

/* Work that no commit has must be in every fork, also while others look at the session for a moment. */
static void *forker(void *arg)
{
	char name[32];

	for (unsigned k = 0; k < 10; k++) {
		struct ntr_err e = {0};
		struct ntr_head h;

		snprintf(name, sizeof name, "f%u", k);
		cfx_run_no_commit(&fx, "two", "n=$(cat n 2>/dev/null); echo $((n + 1)) >n");
		if (ntr_ctl_fork(fx.c, "two", name, &h, &e))
			cfx_fail("fork", &e);
		cfx_has(&fx, name, "n", cfx_cat(&fx, "two", NULL, "n"));
	}
	return arg;
}

static void *look_two(void *arg)
{
	while (!over)
		look_at("two", NULL);
	return arg;
}

static void test_queue(void **state)
{
	pthread_t t[4], f, l, ticker;
	char want[16];

	(void)state;
	assert_int_equal(pthread_create(&ticker, NULL, tick, NULL), 0);
	assert_int_equal(pthread_create(&f, NULL, forker, NULL), 0);
	assert_int_equal(pthread_create(&l, NULL, look_two, NULL), 0);
	for (size_t i = 0; i < NTR_COUNT(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, append, NULL), 0);
	for (size_t i = 0; i < NTR_COUNT(t); i++)
		pthread_join(t[i], NULL);
	pthread_join(f, NULL);
	over = true;
	pthread_join(l, NULL);
	pthread_join(ticker, NULL);
	snprintf(want, sizeof want, "%u\n", (calls / 2 + 1) * (unsigned)NTR_COUNT(t));
	cfx_has(&fx, "one", "n", want);
	cfx_has(&fx, "two", "n", "10\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_parallel, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_queue, setup, teardown),
	};
	return cfx_run_tests(tests);
}
