/* SPDX-License-Identifier: Apache-2.0
 *
 * Where threads of a pool may run: on machines that folders of files describe, with the processors that the process may
 * use; and that a pool's threads do what they are told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/cpu/places.h"
#include "kernels/cpu/pool.h"

static char root[] = "/tmp/sluice-places-XXXXXX";
static int n_roots;

/* A new machine, below root. */
static const char *machine(void)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%d", root, n_roots++);
	assert_int_equal(mkdir(path, 0700), 0);
	return path;
}

static void put(const char *at, const char *name, const char *text)
{
	char path[512];
	snprintf(path, sizeof path, "%s%s", at, name);
	for (char *p = path + strlen(at) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
		*p = '/';
	}
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void put_node(const char *at, int node, const char *cpus)
{
	char name[128];
	snprintf(name, sizeof name, "/sys/devices/system/node/node%d/cpulist", node);
	put(at, name, cpus);
}

static cpu_set_t range(int lo, int hi)
{
	cpu_set_t s;
	CPU_ZERO(&s);
	for (int i = lo; i <= hi; i++)
		CPU_SET((size_t)i, &s);
	return s;
}

/* Two nodes of eight processors, each core has two: 0 and 16, 1 and 17 and so on would be usual; here 0 and 4. */
static const char *two_nodes(void)
{
	const char *at = machine();
	put(at, "/sys/devices/system/node/online", "0-1\n");
	put_node(at, 0, "0-7\n");
	put_node(at, 1, "8-15\n");
	for (int i = 0; i < 16; i++) {
		char name[128], text[32];
		int first = i / 8 * 8 + i % 4;
		snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
		snprintf(text, sizeof text, "%d,%d\n", first, first + 4);
		put(at, name, text);
	}
	return at;
}

static struct places p;
static const char *why;

static void assert_all_used(const cpu_set_t *allowed, int n_threads)
{
	cpu_set_t seen, its;
	CPU_ZERO(&seen);
	for (int i = 0; i < n_threads; i++) {
		places_of(&p, i, &its);
		assert_true(CPU_COUNT(&its) > 0);
		CPU_OR(&seen, &seen, &its);
	}
	assert_true(CPU_EQUAL(&seen, allowed));
}

static void threads_spread_over_nodes(void **state)
{
	const cpu_set_t all = range(0, 15);
	cpu_set_t its;
	char line[64];
	(void)state;
	assert_true(places_make(two_nodes(), &all, 16, PLACES_AUTO, &p, &why));
	assert_int_equal(p.n_nodes, 2);
	assert_false(p.single);
	places_print(&p, line, sizeof line);
	assert_string_equal(line, "8 on node 0, 8 on node 1");
	for (int i = 0; i < 16; i++) {
		const cpu_set_t want = i < 8 ? range(0, 7) : range(8, 15);
		places_of(&p, i, &its);
		assert_true(CPU_EQUAL(&its, &want));
	}
	assert_all_used(&all, 16);
}

static void few_threads_share_a_node(void **state)
{
	const char *at = two_nodes();
	const cpu_set_t all = range(0, 15), most = range(3, 15), second = range(8, 15);
	cpu_set_t its;
	(void)state;
	assert_true(places_make(at, &all, 8, PLACES_AUTO, &p, &why));
	assert_int_equal(p.n_nodes, 1);
	assert_int_equal(p.nodes[0].n_threads, 8);
	/* Of a cpuset that leaves more of the second node. */
	assert_true(places_make(at, &most, 6, PLACES_AUTO, &p, &why));
	for (int i = 0; i < 6; i++) {
		places_of(&p, i, &its);
		assert_true(CPU_EQUAL(&its, &second));
	}
}

static void a_cpuset_is_used_whole_and_never_left(void **state)
{
	const char *at = two_nodes();
	(void)state;
	for (int lo = 0; lo < 8; lo++)
		for (int hi = 8; hi < 16; hi++) {
			const cpu_set_t allowed = range(lo, hi);
			const int n = hi - lo + 1;
			for (int how = PLACES_AUTO; how <= PLACES_ON; how++) {
				assert_true(places_make(at, &allowed, n, how, &p, &why));
				assert_all_used(&allowed, n);
				int threads = 0;
				for (int i = 0; i < p.n_nodes; i++) {
					assert_int_equal(p.nodes[i].n_threads, p.nodes[i].n_cpus);
					threads += p.nodes[i].n_threads;
				}
				assert_int_equal(threads, n);
			}
		}
}

static void one_processor_each_cores_first(void **state)
{
	const cpu_set_t all = range(0, 15);
	cpu_set_t its;
	(void)state;
	assert_true(places_make(two_nodes(), &all, 4, PLACES_ON, &p, &why));
	assert_true(p.single);
	for (int i = 0; i < 4; i++) {
		const cpu_set_t want = range(i, i);
		places_of(&p, i, &its);
		assert_true(CPU_EQUAL(&its, &want));
	}
	/* More threads than processors: nodes only. */
	assert_true(places_make(two_nodes(), &all, 20, PLACES_ON, &p, &why));
	assert_false(p.single);
	assert_int_equal(p.nodes[0].n_threads + p.nodes[1].n_threads, 20);
	assert_all_used(&all, 20);
}

static void where_nothing_is_known_nothing_is_pinned(void **state)
{
	static const char *const bad[] = {"", "x\n", "0-\n", "3-1\n", "0-4000000000\n", "0,1;2\n", "-1\n"};
	const cpu_set_t all = range(0, 15), few = range(0, 3);
	(void)state;
	assert_false(places_make(two_nodes(), &all, 16, PLACES_OFF, &p, &why));
	assert_string_equal(why, "switched off");
	assert_false(places_make(machine(), &all, 16, PLACES_ON, &p, &why)); /* no files */
	assert_string_equal(why, "sysfs does not tell the nodes of all processors");
	assert_false(places_make(two_nodes(), &few, 4, PLACES_AUTO, &p, &why)); /* of one node only */
	assert_string_equal(why, "one node");
	assert_int_equal(p.n_nodes, 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const char *at = two_nodes();
		put_node(at, 1, bad[i]);
		assert_false(places_make(at, &all, 16, PLACES_AUTO, &p, &why));
		put_node(at, 1, "8-15\n");
		put(at, "/sys/devices/system/node/online", bad[i]);
		assert_false(places_make(at, &all, 16, PLACES_AUTO, &p, &why));
	}
	/* A processor in no node. */
	const char *at = two_nodes();
	put_node(at, 1, "8-14\n");
	assert_false(places_make(at, &all, 16, PLACES_ON, &p, &why));
}

/* ---- a pool ---- */

static cpu_set_t seen_by[64];

static void look(void *ctx, int i)
{
	(void)ctx, (void)i;
	const int self = kn_pool_self();
	assert_int_equal(sched_getaffinity(0, sizeof seen_by[self], &seen_by[self]), 0);
	usleep(200); /* the others get their turn */
}

static void a_pool_keeps_to_its_places(void **state)
{
	struct kn_pool *pool;
	struct sl_err err = {0};
	cpu_set_t own, one;
	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
	int cpu = 0;
	while (!CPU_ISSET((size_t)cpu, &own))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	assert_int_equal(kn_pool_create(3, &pool, &err), 0);
	assert_int_equal(kn_pool_pin(pool, 1, &one), 0);
	assert_int_equal(kn_pool_pin(pool, 2, &own), 0);
	/* A thread on a busy processor may come late to one run after another. */
	uint64_t end = clock_now_ns() + 100 * NS_PER_S;
	while ((CPU_COUNT(&seen_by[1]) == 0 || CPU_COUNT(&seen_by[2]) == 0) && clock_now_ns() < end) {
		kn_pool_wake(pool);
		kn_pool_run(pool, 64, look, NULL);
	}
	/* They are numbered as they start. */
	int first = CPU_EQUAL(&seen_by[1], &one) ? 1 : 2;
	assert_true(CPU_EQUAL(&seen_by[first], &one));
	assert_true(CPU_EQUAL(&seen_by[3 - first], &own));
	CPU_ZERO(&one); /* no processor at all: refused, and it stays where it was */
	assert_int_equal(kn_pool_pin(pool, 2, &one), SL_EIO);
	kn_pool_destroy(pool);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(root) == NULL;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(threads_spread_over_nodes),
					   cmocka_unit_test(few_threads_share_a_node),
					   cmocka_unit_test(a_cpuset_is_used_whole_and_never_left),
					   cmocka_unit_test(one_processor_each_cores_first),
					   cmocka_unit_test(where_nothing_is_known_nothing_is_pinned),
					   cmocka_unit_test(a_pool_keeps_to_its_places)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
