/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a configuration's answers are written to: records and traces. Belongs to a snapshot of the configuration.
 */
#ifndef GATEWAY_SINKS_H
#define GATEWAY_SINKS_H

#include "base/err.h"
#include "gateway/config/gw_config.h"

struct sinks {
	struct records *records; /* NULL: off */
	struct tracer *tracer;   /* NULL: off */
};

/* 0, or a code with *err, which names the key. */
int sinks_create(const struct gw_config *cfg, struct sinks **out, struct sl_err *err);
/* Does not wait for what is still to be written. */
void sinks_destroy(void *sinks);
/* At the process' end: waits for it, for so long at most. */
void sinks_wait(unsigned ms);

#endif
