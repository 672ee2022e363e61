/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gateway/trial/trial.h"

struct trial_past trial_past_sum(struct trial_past a, struct trial_past b)
{
	struct trial_past sum = {a.n + b.n, a.failed + b.failed};
	while (sum.n > TRIAL_PAST_MOST) {
		sum.n /= 2;
		sum.failed /= 2;
	}
	return sum;
}

void trial_remember(struct trial_history *h, bool failed, uint64_t user)
{
	if (h->n_seen++ == TRIAL_PAST_MOST) {
		memset(h->seen, 0, sizeof h->seen);
		h->n_seen = 1;
	}
	uint8_t *seen = &h->seen[user % TRIAL_USERS];
	if (*seen == TRIAL_FAILS_OF_USER)
		return;
	++*seen;
	h->fresh = trial_past_sum(h->fresh, (struct trial_past){1, failed});
}
