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

/* Keys that keep their values; bits: 1 << enum restart_need. */
enum reload_kept {
	KEPT_IN_RELOAD = 1 << RESTART_GATEWAY | 1 << RESTART_ALL, /* new engines take over */
	KEPT_IN_UPGRADE = 1 << RESTART_ENGINE | 1 << RESTART_ALL,
	KEPT_BY_ALL = KEPT_IN_RELOAD | KEPT_IN_UPGRADE,
};

/* Reads the file and the overrides of o again. Keys that differ from now and are of a kind in kept keep their values:
 * if log is set, each is named in the log; pins become the overrides that keep the values in processes started later. 0
 * with *out on the heap (reload_config_free); or one line in *err, and nothing has changed. pins may be NULL. */
int reload_config(const struct cmd_options *o, const struct sluice_config *now, enum reload_kept kept, bool log,
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
