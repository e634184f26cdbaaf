/* failing_malloc: allocations of the program itself that fail when told to. For one source file of a program:
 * it defines malloc and its family. Not with the sanitizers, whose allocators cannot be replaced. */
#ifndef NTR_TESTS_FAILING_MALLOC_H
#define NTR_TESTS_FAILING_MALLOC_H

#ifndef NTR_SANITIZED
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern char __executable_start[], etext[];

static __thread long armed; /* how many allocations until one fails; 0: never */

/* Only what ntr calls: RocksDB, like most C++, has no answer to a failed allocation but its end. */
static bool fails(const char *caller)
{
	return armed && caller >= __executable_start && caller < etext && --armed == 0;
}

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? (errno = ENOMEM, NULL) : __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
	return fails(__builtin_return_address(0)) ? (errno = ENOMEM, NULL) : __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
	return fails(__builtin_return_address(0)) ? (errno = ENOMEM, NULL) : __libc_realloc(p, n);
}

void *reallocarray(void *p, size_t n, size_t m)
{
	return fails(__builtin_return_address(0)) ? (errno = ENOMEM, NULL) : __libc_realloc(p, n * m);
}

char *strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *d = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);

	return d ? memcpy(d, s, n) : NULL;
}
#endif

#endif
