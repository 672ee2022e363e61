/* SPDX-License-Identifier: Apache-2.0
 *
 * What an upstream's own metrics say of its load: Prometheus' text format, by the names that vLLM, SGLang and
 * llama.cpp's server have. A Sluice has vLLM's. Pure; any thread.
 */
#ifndef ENGINE_REMOTE_GAUGES_H
#define ENGINE_REMOTE_GAUGES_H

#include <stddef.h>
#include <stdint.h>

enum { REMOTE_GAUGE_MOST = 1000000 /* requests; more are not believed */ };

struct remote_gauges {
	uint32_t running, waiting; /* requests, whoever sent them */
	uint32_t kv_permille;      /* of its KV cache that is in use; 0 where it does not say */
};

/* Adds up the lines of one name (models, ranks); of shares it takes the mean. 0, or SL_EPROTO: *why, a literal or in
 * room, says what is wrong: none of the names, or a number that can't be. */
int remote_gauges_read(const char *text, size_t n, struct remote_gauges *out, char *why, size_t room);

#endif
