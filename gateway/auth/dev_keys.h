/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys for development, created once and kept in the state folder.
 */
#ifndef GATEWAY_DEV_KEYS_H
#define GATEWAY_DEV_KEYS_H

#include "base/err.h"

/* Reads state_dir/dev-keys.yaml, or creates it, mode 0600: one key each for free, paid and admin. out: the keys in that
 * order. The supervisor prints them; the gateway hashes them. */
enum { GW_DEV_FREE, GW_DEV_PAID, GW_DEV_ADMIN, GW_N_DEV_KEYS };
struct gw_dev_keys {
	char key[GW_N_DEV_KEYS][64];
};
int gw_dev_keys_ensure(const char *state_dir, struct gw_dev_keys *out, struct sl_err *err);

#endif
