/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/observe/sinks.h"

#include <string.h>

#include "base/alloc.h"
#include "gateway/observe/aside.h"
#include "gateway/observe/record.h"
#include "gateway/observe/tracer.h"

static bool is_off(const char *to) { return to == NULL || to[0] == '\0' || strcmp(to, "off") == 0; }

int sinks_create(const struct gw_config *cfg, struct sinks **out, struct sl_err *err)
{
	struct sinks *s = sl_zalloc(sizeof *s);
	int rc = s == NULL ? sl_errf(err, SL_ENOMEM, "no memory for the configuration") : 0;
	if (rc == 0 && !is_off(cfg->requests.to))
		rc = records_create(cfg->requests.to, cfg->requests.sample, cfg->state_dir, &s->records, err);
	if (rc == 0 && !is_off(cfg->trace.endpoint))
		rc = tracer_create(cfg->trace.endpoint, cfg->trace.sample, cfg->trace.timeout_ms, &s->tracer, err);
	if (rc != 0) {
		sinks_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void sinks_destroy(void *sinks)
{
	struct sinks *s = sinks;
	if (s == NULL)
		return;
	records_destroy(s->records);
	tracer_destroy(s->tracer);
	sl_free(s);
}

void sinks_wait(unsigned ms) { (void)aside_wait(ms); }
