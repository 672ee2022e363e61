/* SPDX-License-Identifier: Apache-2.0
 *
 * A server for one model: `sluice serve` with a configuration and a state folder that nothing else uses. It listens on
 * 127.0.0.1 only and takes the development keys of that folder.
 */
#ifndef CMD_HUB_SERVED_H
#define CMD_HUB_SERVED_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct hub_served {
	pid_t pid;
	char folder[64]; /* temporary */
	char url[64], key[64];
};

/* Starts it and waits until it is ready. port: NULL for a free one. On failure nothing is left. */
int hub_served_start(struct hub_served *s, const char *model_path, const char *port, struct sl_err *err);
/* Has it ended by itself? */
bool hub_served_ended(const struct hub_served *s);
/* Ends it and removes its folder. */
void hub_served_stop(struct hub_served *s);

#endif
