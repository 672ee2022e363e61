/* SPDX-License-Identifier: Apache-2.0
 *
 * When an unused model goes: the latest of what its tenants' last uses and wishes allow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/sched/keep_alive.h"

static void configured(void **state)
{
	(void)state;
	struct keep_alive k;
	keep_alive_init(&k, 300);
	assert_int_equal(keep_alive_end(&k), 0);
	keep_alive_use(&k, 1, 1000);
	assert_int_equal(keep_alive_end(&k), 1300);
	keep_alive_use(&k, 2, 1100);
	assert_int_equal(keep_alive_end(&k), 1400);
	keep_alive_init(&k, UINT64_MAX);
	keep_alive_use(&k, 1, 1000);
	assert_true(keep_alive_end(&k) == UINT64_MAX);
}

static void a_tenant_asks(void **state)
{
	(void)state;
	struct keep_alive k;
	keep_alive_init(&k, 300);
	keep_alive_use(&k, 1, 1000);
	keep_alive_ask(&k, 1, 0, 1010); /* alone: at once */
	assert_int_equal(keep_alive_end(&k), 1010);
	keep_alive_ask(&k, 1, 900, 1020);
	keep_alive_use(&k, 1, 1030); /* counts from its last use */
	assert_int_equal(keep_alive_end(&k), 1930);
	keep_alive_ask(&k, 1, UINT64_MAX, 1040);
	assert_true(keep_alive_end(&k) == UINT64_MAX);
	keep_alive_clear(&k);
	keep_alive_use(&k, 1, 2000);
	assert_int_equal(keep_alive_end(&k), 2300);
}

static void nobody_ends_what_others_use(void **state)
{
	(void)state;
	struct keep_alive k;
	keep_alive_init(&k, 300);
	keep_alive_use(&k, 1, 1000);
	keep_alive_ask(&k, 2, 0, 1200);
	assert_int_equal(keep_alive_end(&k), 1300);
	keep_alive_ask(&k, 3, 500, 1200);
	keep_alive_ask(&k, 2, 0, 1201);
	assert_int_equal(keep_alive_end(&k), 1700);
}

/* More tenants than it has entries for: their last use still counts. */
static void many_tenants(void **state)
{
	(void)state;
	struct keep_alive k;
	keep_alive_init(&k, 300);
	for (uint64_t t = 1; t <= 1000; t++)
		keep_alive_use(&k, t, 1000 + t);
	for (uint64_t t = 1001; t <= 1000 + 2 * KEEP_ALIVE_TENANTS; t++)
		keep_alive_ask(&k, t, 0, 2000);
	assert_int_equal(keep_alive_end(&k), 2300); /* of those that no entry was left for */
	keep_alive_init(&k, 300);
	keep_alive_use(&k, 7, 1000);
	for (uint64_t t = 100; t < 100 + KEEP_ALIVE_TENANTS; t++)
		keep_alive_ask(&k, t, 0, 1001);
	assert_int_equal(keep_alive_end(&k), 1300);
}

/* Ten thousand tenants, each of which may ask for anything: a use lasts for the shorter one of what its tenant asked
 * for and what is configured, and no longer than the longer one. */
static void however_many_tenants_ask(void **state)
{
	enum { MANY = 10000, CONFIGURED = 300, STEPS = 60000 };
	static const uint64_t times[] = {0, 1, 50, CONFIGURED, 5000};
	static struct {
		uint64_t used, least, most;
	} tenants[MANY];
	struct keep_alive k;
	uint64_t random = 1;
	(void)state;
	keep_alive_init(&k, CONFIGURED);
	for (int i = 0; i < MANY; i++)
		tenants[i].least = tenants[i].most = CONFIGURED;
	for (uint64_t step = 1; step <= STEPS; step++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		/* Phases of a few tenants and of all. */
		uint64_t t = (random >> 33) % (step / 1000 % 2 == 0 ? 40 : MANY), ms = times[(random >> 20) % 5];
		tenants[t].used = step;
		if ((random >> 50) % 2 == 0) {
			keep_alive_use(&k, t, step);
		} else {
			keep_alive_ask(&k, t, ms, step);
			tenants[t].least = ms < CONFIGURED ? ms : CONFIGURED;
			tenants[t].most = ms > CONFIGURED ? ms : CONFIGURED;
		}
		uint64_t least = 0, most = 0;
		for (int i = 0; step % 50 == 0 && i < MANY; i++) {
			if (tenants[i].used == 0)
				continue;
			uint64_t l = tenants[i].used + tenants[i].least, m = tenants[i].used + tenants[i].most;
			least = l > least ? l : least;
			most = m > most ? m : most;
		}
		if (step % 50 == 0)
			assert_in_range(keep_alive_end(&k), least, most);
	}
}

/* A short time holds even if its tenant has no entry left, whatever other tenants ask for later. */
static void a_short_time_is_not_lost(void **state)
{
	(void)state;
	struct keep_alive k;
	keep_alive_init(&k, 300);
	keep_alive_ask(&k, 1, 100, 1000);
	for (uint64_t t = 2; t < 2 + KEEP_ALIVE_TENANTS; t++)
		keep_alive_use(&k, t, 1000);
	for (uint64_t t = 2; t < 2 + KEEP_ALIVE_TENANTS; t++)
		keep_alive_ask(&k, t, 0, 1001);
	assert_int_equal(keep_alive_end(&k), 1100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(configured),
					   cmocka_unit_test(a_tenant_asks),
					   cmocka_unit_test(nobody_ends_what_others_use),
					   cmocka_unit_test(many_tenants),
					   cmocka_unit_test(however_many_tenants_ask),
					   cmocka_unit_test(a_short_time_is_not_lost)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
