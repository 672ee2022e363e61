/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the configuration again while processes run (SIGHUP). gateway/server/process.h applies it in the gateway.
 */
#ifndef CMD_RELOAD_H
#define CMD_RELOAD_H

#include "cmd/config/cmd.h"

/* Overrides that keep keys at the values they have; see reload_config. Zeroed: none. */
struct reload_pins {
	char **sets; /* owned */
	size_t n;
};

/* Reads the file and the overrides of o again. Keys that differ from now and need kept or more (RESTART_GATEWAY: also
 * RESTART_ALL) keep their values: if log is set, each is named in the log; pins become the overrides that keep the values in
 * processes started later. 0 with *out on the heap (reload_config_free); or one line in *err, and nothing has changed.
 * pins may be NULL. */
int reload_config(const struct cmd_options *o, const struct sluice_config *now, enum restart_need kept, bool log,
		  struct reload_pins *pins, struct sluice_config **out, struct sl_err *err);
/* Whether keys differ that engines read when they start (RESTART_ENGINE). */
bool reload_touches_engines(const struct sluice_config *a, const struct sluice_config *b);
/* A digest of the files of every model: its value changes when one is replaced or written. 0: there are none. */
uint64_t reload_model_files(const struct sluice_config *cfg);
/* The first time: cmd_load onto the heap. 0 or an exit status. */
int reload_config_first(const struct cmd_options *o, const char *name, struct sluice_config **out);
/* NULL is allowed. */
void reload_config_free(void *config);
void reload_pins_dispose(struct reload_pins *p);

#endif
