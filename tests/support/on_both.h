/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the store: one redis-server for all tests of a file, if installed, and the same tests on memory and on
 * Redis. The file has set_up_memory, set_up_redis (which leaves the state NULL unless `installed`) and tear_down.
 */
#ifndef TESTS_SUPPORT_ON_BOTH_H
#define TESTS_SUPPORT_ON_BOTH_H

#include "tests/support/redis_server.h"

static struct redis_server server;
static bool installed;

/* Of the group. */
static int start_server(void **state)
{
	(void)state;
	installed = redis_server_installed();
	if (installed)
		redis_server_start(&server, NULL);
	return 0;
}

static int stop_server(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

static inline void need_redis(void)
{
	if (installed)
		return;
	print_message("redis-server is not installed: skipped\n");
	skip();
}

/* *state, as set_up_memory or set_up_redis left it. */
static inline void *state_of(void **state)
{
	if (*state == NULL)
		need_redis();
	return *state;
}

#define ON_MEMORY(f)                                              \
	{                                                         \
#f " (memory)", f, set_up_memory, tear_down, NULL \
	}
#define ON_BOTH(f) \
	ON_MEMORY(f), { #f " (Redis)", f, set_up_redis, tear_down, NULL }

#endif
