/* SPDX-License-Identifier: Apache-2.0
 *
 * What a certificate's file says, for `sluice doctor`.
 */
#ifndef GATEWAY_CERT_FACTS_H
#define GATEWAY_CERT_FACTS_H

#include <stdbool.h>

#include "base/err.h"

struct cert_facts {
	char names[300]; /* its server names, separated by spaces; as many as fit */
	char end[16];    /* the day of its expiry, "2026-01-31" */
	int days_left;   /* whole days until then; negative: it has expired */
	bool is_early;   /* it is not valid yet */
};

/* Of the first certificate in a PEM file. 0; SL_EINVAL and other codes with the reason alone in *why. */
int cert_facts_read(const char *path, struct cert_facts *out, struct sl_err *why);

#endif
