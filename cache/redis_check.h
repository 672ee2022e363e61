/* SPDX-License-Identifier: Apache-2.0
 *
 * One look at the Redis that a configuration names, for `sluice doctor`: synchronous, with a deadline for each step.
 */
#ifndef CACHE_REDIS_CHECK_H
#define CACHE_REDIS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"

struct redis_facts {
	char version[32];
	char role[16];          /* "master", "slave" */
	char policy[32];        /* maxmemory-policy; "": not reported */
	uint64_t max_memory;    /* bytes; 0: no limit */
	uint64_t latency_us;    /* of the fastest of a few PINGs */
	bool password_needless; /* one is configured, and the server has none */
	bool is_refused;        /* after a failure: it answered, and refused the user or the password */
	bool is_password_file;  /* after a failure: the file cannot be read */
	bool of_sentinel;       /* after a failure: it is the last sentinel's, and so are the two above */
};

/* Asks sentinels, if there are some, until one knows it; connects, authenticates, selects the database and asks. 0;
 * SL_EIO, SL_EINVAL and so on with one line in *err. */
int redis_check(const struct cache_config *cfg, struct redis_facts *out, struct sl_err *err);

#endif
