/* SPDX-License-Identifier: Apache-2.0
 *
 * An owner of sequences for plans of a scheduler alone: nothing is cached, shared or given back.
 */
#ifndef TESTS_BARE_OWNER_H
#define TESTS_BARE_OWNER_H

#include "engine/sched/sched.h"

static void bare_look(void *ctx, struct sched_seq *s, struct sched_look *out)
{
	(void)ctx;
	(void)s;
	(void)out;
}

static uint32_t bare_pages_back(void *ctx, const struct sched_seq *s)
{
	(void)ctx;
	(void)s;
	return 0;
}

static uint32_t bare_more_pages(void *ctx, const struct sched_seq *by, uint64_t n)
{
	(void)ctx;
	(void)by;
	(void)n;
	return 0;
}

static const struct sched_owner bare_owner = {
    .look = bare_look, .pages_back = bare_pages_back, .more_pages = bare_more_pages};

#endif
