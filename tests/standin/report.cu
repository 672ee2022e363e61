/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run did, as one line on the standard error at its end, where SLUICE_STANDIN_REPORT is set: how often it took
 * the paths that matter, and a digest of the order in which the operations ran. Two runs of one seed have the same
 * digest if the program makes its calls in one order.
 */
#include "tests/standin/standin.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t ran, order = 0xCBF29CE484222325ull;

static void mix(uint64_t v) { order = (order ^ v) * 0x9E3779B97F4A7C15ull, order ^= order >> 29; }

void report_ran(const struct op *o)
{
	ran++;
	mix((uint64_t)o->slot << 32 | o->pos);
	mix((uint64_t)o->kind);
}

__attribute__((destructor)) static void report(void)
{
	const struct standin_counts *c = &standin_counts;
	if (getenv("SLUICE_STANDIN_REPORT") == NULL)
		return;
	fprintf(stderr,
		"reached operations=%llu launches=%llu captures=%llu graph_launches=%llu copies=%llu stream_waits=%llu "
		"host_waits=%llu queries=%llu\n",
		(unsigned long long)ran, (unsigned long long)c->launches, (unsigned long long)c->captures,
		(unsigned long long)c->graph_launches,
		(unsigned long long)(c->copies_in + c->copies_out + c->copies_within),
		(unsigned long long)c->stream_waits, (unsigned long long)c->waits, (unsigned long long)c->queries);
	fprintf(stderr, "order %016llx\n", (unsigned long long)order);
}
