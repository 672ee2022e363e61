/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/chat_metrics.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"

/* Tiers beyond it share the last row. */
enum { MAX_TIERS = 16, NAME_BYTES = 64 };

static const double ttft_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
static const double itl_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

static struct metric ttft =
    HISTOGRAM_OF("sluice_ttft_seconds", NULL, "Time from the end of a request's body to its first token", ttft_bounds);
METRICS(ttft);
#define ITL(is_paced)                                                \
	HISTOGRAM_OF("sluice_itl_seconds", "paced=\"" is_paced "\"", \
		     "Time between two arrivals of tokens of one choice, without waits for a slow reader", itl_bounds)
static struct metric itl[2] = {ITL("false"), ITL("true")};
METRICS(itl);

/* Metrics live as long as the process, so the rows are static and the names copied. */
static struct tier_row {
	char name[NAME_BYTES], prompt_labels[NAME_BYTES + 32], completion_labels[NAME_BYTES + 32];
	struct metric prompt, completion;
} rows[MAX_TIERS];
static atomic_size_t n_rows;

static struct tier_row *find_row(const char *tier)
{
	size_t n = atomic_load_explicit(&n_rows, memory_order_acquire);
	for (size_t i = 0; i < n; i++)
		if (strncmp(rows[i].name, tier, NAME_BYTES - 1) == 0)
			return &rows[i];
	return n == MAX_TIERS ? &rows[n - 1] : NULL;
}

static void add_row(const char *tier)
{
	size_t n = atomic_load(&n_rows);
	struct tier_row *r = &rows[n];
	char label[NAME_BYTES];
	snprintf(r->name, sizeof r->name, "%s", tier);
	snprintf(label, sizeof label, "%s", tier);
	/* What a label's value may not hold unescaped. */
	for (char *p = label; *p != '\0'; p++)
		if (*p == '"' || *p == '\\' || *p == '\n')
			*p = '_';
	snprintf(r->prompt_labels, sizeof r->prompt_labels, "tier=\"%s\",kind=\"prompt\"", label);
	snprintf(r->completion_labels, sizeof r->completion_labels, "tier=\"%s\",kind=\"completion\"", label);
	r->prompt = (struct metric){.kind = METRIC_COUNTER,
				    .name = "sluice_tokens_total",
				    .labels = r->prompt_labels,
				    .help = "Tokens of chat requests, by tier"};
	r->completion = r->prompt;
	r->completion.labels = r->completion_labels;
	metric_register(&r->prompt);
	metric_register(&r->completion);
	atomic_store_explicit(&n_rows, n + 1, memory_order_release);
}

void chat_metrics_register(const char *const *tiers, size_t n_tiers)
{
	for (size_t i = 0; i < n_tiers; i++)
		if (find_row(tiers[i]) == NULL)
			add_row(tiers[i]);
}

void chat_metrics_tokens(const char *tier, uint32_t n_prompt, uint32_t n_completion)
{
	struct tier_row *r = find_row(tier);
	if (r == NULL)
		return;
	metric_add(&r->prompt, n_prompt);
	metric_add(&r->completion, n_completion);
}

void chat_metrics_ttft(uint64_t ns) { metric_observe(&ttft, (int64_t)ns); }
void chat_metrics_itl(uint64_t ns, bool paced) { metric_observe(&itl[paced], (int64_t)ns); }
