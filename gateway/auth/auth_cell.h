/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of a key's generations and requests over all threads; for auth.c and auth_key.c.
 */
#ifndef GATEWAY_AUTH_CELL_H
#define GATEWAY_AUTH_CELL_H

#include <stdatomic.h>

#include "gateway/auth/auth.h"

struct count_cell;

/* For a key of a set; NULL: no memory. */
struct count_cell *count_cell_create(void);
struct count_cell *count_cell_ref(struct count_cell *c);
/* BUG if the counts are not zero when the last reference goes. name: for its message. NULL allowed. */
void count_cell_unref(struct count_cell *c, const char *name);
struct count_cell *count_cell_of(const struct auth_key *k);
/* Points k's counts into c. */
void count_cell_use(struct count_cell *c, struct auth_key *k);

#endif
