/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/recorder.h"

#include <stdio.h>

#include "base/flight.h"

void start_flight_recorder(const char *process, const struct sluice_config *cfg)
{
	char folder[4096];
	struct sl_err err = {0};
	int n = snprintf(folder, sizeof folder, "%s/flight", cfg->state);
	if (n < 0 || (size_t)n >= sizeof folder)
		sl_errf(&err, SL_ERANGE, "the state folder's path is too long");
	else
		(void)flight_start(process, folder, &err);
	if (err.code != 0)
		log_warn("there is no flight recorder: %s", err.text);
}
