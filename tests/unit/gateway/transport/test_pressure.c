/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that was freed goes back to the system, also from between what is still used and from another thread's arena.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/transport/pressure.h"

enum { MIB = 1 << 20, PIECE = 16384, PIECES = 96 * MIB / PIECE, EVERY = 64 };

static sem_t made, go_on, freed;
static void *pieces[PIECES], *kept[PIECES / EVERY + 1];

static size_t resident(void)
{
	unsigned long long pages;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %llu", &pages), 1);
	fclose(f);
	return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Many pieces, and small ones between them that stay: what a flood leaves beside connections that live on. */
static void *flood(void *arg)
{
	(void)arg;
	for (int i = 0; i < PIECES; i++) {
		pieces[i] = malloc(PIECE);
		memset(pieces[i], 1, PIECE);
		if (i % EVERY == EVERY - 1)
			kept[i / EVERY] = malloc(40);
	}
	sem_post(&made);
	sem_wait(&go_on);
	for (int i = 0; i < PIECES; i++)
		free(pieces[i]);
	sem_post(&freed);
	sem_wait(&go_on);
	for (int i = 0; i <= PIECES / EVERY; i++)
		free(kept[i]);
	return NULL;
}

static void what_a_flood_leaves_is_returned(void **state)
{
	(void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
	skip(); /* another allocator */
#endif
	uint64_t now = 1000 * NS_PER_S;
	pthread_t t;
	sem_init(&made, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&freed, 0, 0);
	pressure_look(0, now);
	size_t start = resident();
	assert_int_equal(pthread_create(&t, NULL, flood, NULL), 0);
	sem_wait(&made);
	assert_true(resident() > start + 90 * (size_t)MIB);
	/* All of it is used: nothing is gained, and nothing is lost. */
	for (int i = 0; i < 4; i++)
		pressure_look(0, now += 3 * NS_PER_S);
	assert_true(resident() > start + 90 * (size_t)MIB);
	sem_post(&go_on);
	sem_wait(&freed);
	assert_true(resident() > start + 48 * (size_t)MIB); /* the allocator keeps it */
	pressure_look(0, now += 3 * NS_PER_S);
	assert_true(resident() < start + 24 * (size_t)MIB);
	assert_int_equal(pressure_now(), PRESSURE_NONE);
	sem_post(&go_on);
	pthread_join(t, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_flood_leaves_is_returned)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
