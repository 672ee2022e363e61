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

/* The checks between keys, of a configuration whose derived defaults are filled in: 0, or SL_EINVAL with *err, the
 * first fault. */
int schema_check(const struct sluice_config *cfg, struct sl_err *err);

#endif
