/* The number that a tree's inode is shown by: there and back, and never the same for two, as a JavaScript
 * number neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those first */
#include <cmocka.h>

#include "base/shownino.h"
#include "base/util.h"

#define LAYER (UINT64_C(1) << 63) /* overlayfs's */
#define SPARE (UINT64_C(1) << 62) /* overlayfs's, for what it cannot tell */

static const uint64_t inos[] = {1, 2, 3, 4, 1000, 1001, (1u << 29) - 2, (1u << 29) - 1, 1u << 29,
        (1u << 29) + 1, (1u << 30) - 1, UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1, (UINT64_C(1) << 50) - 1};
static const uint32_t tags[] = {0, 1, 1023, 1024, 1025, 4096, 0x7fffffff, 0xfffff7ff, 0xfffff800, 0xfffff801,
        0xfffffbff, 0xfffffc00, 0xffffffff};

static void test_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < NTR_COUNT(inos); i++)
		for (size_t k = 0; k < NTR_COUNT(tags); k++) {
			uint64_t shown = ntr_shown_of(inos[i], tags[k]);

			assert_true(shown && !(shown & (LAYER | SPARE)));
			assert_true(ntr_shown_ino(shown) == inos[i]);
			assert_true(ntr_shown_ino(shown | LAYER) == inos[i]);
		}
}

/* What git's index keeps, for every number that ext4 gives. */
static void test_low(void **state)
{
	(void)state;
	for (size_t k = 0; k < NTR_COUNT(tags) && tags[k] <= NTR_SHOWN_TAG_MAX; k++)
		assert_true((uint32_t)ntr_shown_of(77, tags[k]) == tags[k]);
}

static double js(uint64_t shown)
{
	return (double)(shown | LAYER);
}

static void test_distinct(void **state)
{
	(void)state;
	for (size_t i = 0; i < NTR_COUNT(inos); i++)
		for (size_t j = 0; j < i; j++)
			for (size_t k = 0; k < NTR_COUNT(tags) * NTR_COUNT(tags); k++) {
				uint64_t a = ntr_shown_of(inos[i], tags[k % NTR_COUNT(tags)]);
				uint64_t b = ntr_shown_of(inos[j], tags[k / NTR_COUNT(tags)]);

				assert_true(a != b && (double)a != (double)b && js(a) != js(b));
			}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_back),
	        cmocka_unit_test(test_low),
	        cmocka_unit_test(test_distinct),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
