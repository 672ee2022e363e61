/* SPDX-License-Identifier: Apache-2.0
 *
 * Relaxed atomics: the three numbers of a reason may stem from two simultaneous refusals.
 */
#include "gateway/admission/refusals.h"

#include <stdatomic.h>

#include "base/clock.h"

enum { RECENT_S = 60 };

static const struct {
	const char *name, *words;
} reasons[N_REFUSALS] = {
    [REFUSED_LATE] = {"late", "the first token was predicted later than the tier allows"},
    [REFUSED_FULL] = {"full", "the queue was full"},
    [REFUSED_WAITED] = {"waited", "the first token did not come within the tier's max_wait"},
    [REFUSED_PROMPT] = {"prompt", "the prompt was longer than the tier allows under load"},
    [REFUSED_DISPLACED] = {"displaced", "another request displaced it from the queue"},
    [REFUSED_ERRORS] = {"errors", "many requests for the model failed in its engine"},
};

static struct {
	atomic_uint_least64_t total, at_ns, predicted_ms;
} of[N_REFUSALS];

void refusals_note(enum refusal why, uint64_t predicted_ms, uint64_t now_ns)
{
	atomic_fetch_add_explicit(&of[why].total, 1, memory_order_relaxed);
	atomic_store_explicit(&of[why].predicted_ms, predicted_ms, memory_order_relaxed);
	atomic_store_explicit(&of[why].at_ns, now_ns, memory_order_relaxed);
}

int refusals_print(struct sl_buf *out, uint64_t now_ns)
{
	const char *comma = "";
	int rc = buf_append_str(out, "[");
	for (int i = 0; i < N_REFUSALS && rc == 0; i++) {
		uint64_t total = atomic_load_explicit(&of[i].total, memory_order_relaxed);
		uint64_t at = atomic_load_explicit(&of[i].at_ns, memory_order_relaxed);
		uint64_t ago = now_ns > at ? (now_ns - at) / NS_PER_S : 0;
		if (total == 0 || ago >= RECENT_S)
			continue;
		rc = buf_printf(out,
				"%s{\"reason\":\"%s\",\"message\":\"%s\",\"total\":%llu,\"seconds_ago\":%llu,"
				"\"predicted_ms\":%llu}",
				comma, reasons[i].name, reasons[i].words, (unsigned long long)total,
				(unsigned long long)ago,
				(unsigned long long)atomic_load_explicit(&of[i].predicted_ms, memory_order_relaxed));
		comma = ",";
	}
	return rc == 0 ? buf_append_str(out, "]") : rc;
}
