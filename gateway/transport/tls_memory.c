/* SPDX-License-Identifier: Apache-2.0
 *
 * Idle connections have no record buffers (SSL_MODE_RELEASE_BUFFERS), so a busy connection allocates and frees one or
 * two of 17 KB in each iteration. When such a block is freed, the allocator merges it with its neighbours and
 * consolidates its small free blocks; then it splits the result again. That took a twentieth of a small request's time.
 * So each thread caches a few record buffers.
 *
 * A block is recognised by its usable size, which OpenSSL requests for no other purpose. If it did, a cached block
 * would serve as well.
 */
#include "gateway/transport/tls_memory.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
	RECORD_LEAST = 16 << 10, /* OpenSSL's record buffers are between these sizes */
	RECORD_BYTES = 18 << 10,
	RECORD_SLACK = 64, /* the allocator's rounding */
	SPARES = 4,
};

struct spares {
	void *at[SPARES];
	unsigned n;
};

static _Thread_local struct spares spares;
static _Thread_local bool registered;
static pthread_key_t key;
static bool has_key;

static void free_spares(void *arg)
{
	struct spares *s = arg;
	while (s->n > 0)
		free(s->at[--s->n]);
}

static bool is_record(size_t n) { return n >= RECORD_LEAST && n <= RECORD_BYTES; }

static void *tls_alloc(size_t n, const char *file, int line)
{
	(void)file, (void)line;
	if (!is_record(n))
		return malloc(n);
	if (spares.n > 0)
		return spares.at[--spares.n];
	return malloc(RECORD_BYTES);
}

static void *tls_realloc(void *p, size_t n, const char *file, int line)
{
	(void)file, (void)line;
	return realloc(p, n);
}

/* Registers the destructor that frees the thread's cache. */
static bool can_cache(void)
{
	if (!registered && has_key)
		registered = pthread_setspecific(key, &spares) == 0;
	return registered;
}

static void tls_free(void *p, const char *file, int line)
{
	(void)file, (void)line;
	if (p == NULL)
		return;
	size_t n = malloc_usable_size(p);
	if (n >= RECORD_BYTES && n < RECORD_BYTES + RECORD_SLACK && spares.n < SPARES && can_cache())
		spares.at[spares.n++] = p;
	else
		free(p);
}

void tls_memory_install(void)
{
	has_key = has_key || pthread_key_create(&key, free_spares) == 0;
	(void)CRYPTO_set_mem_functions(tls_alloc, tls_realloc, tls_free);
}
