/* SPDX-License-Identifier: Apache-2.0
 *
 * What the table of keys (schema.c) and the checks between keys (schema_check.c) share.
 */
#ifndef CMD_SCHEMA_PRIV_H
#define CMD_SCHEMA_PRIV_H

#include "cmd/config/schema.h"

#define LIST_AT(list, type, i) ((type *)(list).items + (i))

/* The names of a model's roles, by number; ends with NULL. */
extern const char *const schema_roles[];
/* Likewise what keys of engines may be; schema_kv_types begins with "default", which only a model's may. */
extern const char *const schema_backends[],
    *const schema_poolings[], *const schema_matryoshkas[], *const schema_kv_types[], *const schema_adapter_types[];

/* sluice_config_load of the engine by that name; NULL: of the first one. */
int schema_load(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets, const char *name,
		struct sl_err *err);

/* ---- engines.c ---- */

/* Names of enum gw_engine_role. */
extern const char *const schema_engine_roles[];

/* The table of an item's keys, once engines_prepare has read that of all keys. */
extern struct conf_row engine_item_rows[];
void engines_prepare(const struct conf_row *rows);
/* What the gateway needs to know of them. */
int engines_derive(struct sluice_config *cfg, struct sl_err *err);
int engines_check(const struct sluice_config *cfg, struct sl_err *err);

/* The checks between keys, of a configuration whose derived defaults are filled in: 0, or SL_EINVAL with *err, the
 * first fault. */
int schema_check(const struct sluice_config *cfg, struct sl_err *err);

#endif
