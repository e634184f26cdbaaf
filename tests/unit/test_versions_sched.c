/* The policy of ring threads: when a machine counts as crowded, and that a thread follows. */
#include "fs/versions_impl.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_step(void **state)
{
	double avg = 0;
	bool crowded = false;

	(void)state;
	/* a client, its ring thread and the watchdog on two CPUs; one busy loop more; two clients */
	for (int i = 0; i < 100; i++)
		assert_false(crowded = ntr_vsched_step(&avg, 2 + (i & 1), 2, crowded));
	/* one count is no verdict */
	assert_false(crowded = ntr_vsched_step(&avg, 5, 2, crowded));
	int n = 0;

	while (!crowded && ++n < 20)
		crowded = ntr_vsched_step(&avg, 5, 2, crowded);
	assert_true(crowded && n < 10);
	for (int i = 0; i < 100; i++)
		assert_true(crowded = ntr_vsched_step(&avg, 4, 2, crowded));
	for (n = 0; crowded && n < 100; n++)
		crowded = ntr_vsched_step(&avg, 2, 2, crowded);
	assert_true(!crowded && n > 1 && n < 20);
}

static void *thread(void *arg)
{
	struct ntr_versions v = {.o.sched_idle = 1};
	struct ntr_vslot s = {.v = &v};
	bool *ok = arg;

	ntr_vsched_follow(&s);
	*ok = sched_getscheduler(0) == SCHED_IDLE && s.idle;
	atomic_store(&v.crowded, true);
	ntr_vsched_follow(&s);
	/* who may not come back stays, and does not ask again */
	*ok &= s.sched_fixed ? sched_getscheduler(0) == SCHED_IDLE && geteuid() != 0
	                     : sched_getscheduler(0) == SCHED_OTHER && !s.idle;
	atomic_store(&v.crowded, false);
	ntr_vsched_follow(&s);
	*ok &= sched_getscheduler(0) == SCHED_IDLE;
	return NULL;
}

static void test_follow(void **state)
{
	pthread_t t;
	bool ok = false;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, thread, &ok), 0);
	pthread_join(t, NULL);
	assert_true(ok);
}

static void *ordinary(void *arg)
{
	struct ntr_versions v = {.o.sched_idle = 0};
	struct ntr_vslot s = {.v = &v};

	ntr_vsched_follow(&s);
	*(bool *)arg = sched_getscheduler(0) == SCHED_OTHER;
	return NULL;
}

static void test_off(void **state)
{
	pthread_t t;
	bool ok = false;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, ordinary, &ok), 0);
	pthread_join(t, NULL);
	assert_true(ok);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_step),
	        cmocka_unit_test(test_follow),
	        cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
