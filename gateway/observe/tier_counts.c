/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/observe/tier_counts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"
#include "gateway/observe/label.h"

/* Tiers beyond it (after reloads) share the row `other`, which may be a tier's own. */
enum { MAX_TIERS = 64, NAME_BYTES = 68, LABEL_BYTES = 2 * NAME_BYTES + 32 };
enum count { PROMPT, COMPLETION, JUDGED, GOOD, TTFT_TARGET, ITL_TARGET, COUNTS };

/* Metrics live as long as the process, so the rows are static and the names copied. */
static struct tier_row {
	char name[NAME_BYTES], labels[COUNTS][LABEL_BYTES];
	struct metric counts[COUNTS];
} rows[MAX_TIERS];
static atomic_size_t n_rows;

static const char other[] = "other";

static struct tier_row *find_own(const char *tier)
{
	size_t n = atomic_load_explicit(&n_rows, memory_order_acquire);
	for (size_t i = 0; i < n; i++)
		if (strncmp(rows[i].name, tier, NAME_BYTES - 1) == 0)
			return &rows[i];
	return NULL;
}

/* NULL: it was never registered. */
static struct tier_row *find_row(const char *tier)
{
	struct tier_row *r = find_own(tier);
	return r == NULL && atomic_load_explicit(&n_rows, memory_order_acquire) >= MAX_TIERS - 1 ? find_own(other) : r;
}

static void add_row(const char *tier)
{
	static const struct {
		const char *name, *help, *more;
	} counts[COUNTS] = {
	    [TTFT_TARGET] = {"sluice_tier_ttft_target_seconds", "The tier's ttft_target; 0: none", ""},
	    [ITL_TARGET] = {"sluice_tier_itl_target_seconds", "The tier's itl_target; 0: none", ""},
	    [PROMPT] = {"sluice_tokens_total", "Tokens of chat requests, by tier", ",kind=\"prompt\""},
	    [COMPLETION] = {"sluice_tokens_total", "Tokens of chat requests, by tier", ",kind=\"completion\""},
	    [JUDGED] = {"sluice_answers_judged_total",
			"Answers that count for goodput: not those that the client's own error or departure ended", ""},
	    [GOOD] = {"sluice_answers_good_total", "Answers within the targets of their tier: goodput", ""},
	};
	size_t n = atomic_load(&n_rows);
	struct tier_row *r = &rows[n];
	char label[2 * NAME_BYTES];
	snprintf(r->name, sizeof r->name, "%s", tier);
	label_escape(label, sizeof label, r->name);
	for (int i = 0; i < COUNTS; i++) {
		snprintf(r->labels[i], LABEL_BYTES, "tier=\"%s\"%s", label, counts[i].more);
		r->counts[i] = (struct metric)METRIC_OF(METRIC_COUNTER, counts[i].name, r->labels[i], counts[i].help);
		if (i >= TTFT_TARGET) {
			r->counts[i].kind = METRIC_GAUGE;
			r->counts[i].scale = 1e-3;
		}
		metric_register(&r->counts[i]);
	}
	atomic_store_explicit(&n_rows, n + 1, memory_order_release);
}

void tier_counts_register(const char *const *tiers, size_t n_tiers)
{
	for (size_t i = 0; i < n_tiers; i++) {
		/* The last row is for what has none of its own. */
		const char *name = atomic_load(&n_rows) < MAX_TIERS - 1 ? tiers[i] : other;
		if (find_own(tiers[i]) == NULL && find_own(name) == NULL)
			add_row(name);
	}
}

void tier_counts_targets(const char *tier, uint64_t ttft_ms, uint64_t itl_ms)
{
	struct tier_row *r = find_row(tier);
	if (r == NULL)
		return;
	metric_set(&r->counts[TTFT_TARGET], (int64_t)ttft_ms);
	metric_set(&r->counts[ITL_TARGET], (int64_t)itl_ms);
}

void tier_counts_tokens(const char *tier, uint32_t n_prompt, uint32_t n_completion)
{
	struct tier_row *r = find_row(tier);
	if (r == NULL)
		return;
	metric_add(&r->counts[PROMPT], n_prompt);
	metric_add(&r->counts[COMPLETION], n_completion);
}

void tier_counts_judged(const char *tier, bool good)
{
	struct tier_row *r = find_row(tier);
	if (r == NULL)
		return;
	metric_add(&r->counts[JUDGED], 1);
	metric_add(&r->counts[GOOD], good);
}
