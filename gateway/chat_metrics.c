/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/chat_metrics.h"

#include "base/metrics.h"

static const double ttft_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
static const double itl_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

static struct metric ttft = {.kind = METRIC_HISTOGRAM, .name = "sluice_ttft_seconds",
			     .help = "Time from a complete request to its first token",
			     .n_buckets = sizeof ttft_bounds / sizeof ttft_bounds[0], .bounds = ttft_bounds,
			     .scale = 1e-9};
static struct metric itl = {.kind = METRIC_HISTOGRAM, .name = "sluice_itl_seconds",
			    .help = "Time between two arrivals of tokens in one generation",
			    .n_buckets = sizeof itl_bounds / sizeof itl_bounds[0], .bounds = itl_bounds,
			    .scale = 1e-9};

void chat_metrics_register(void)
{
	metric_register(&ttft);
	metric_register(&itl);
}

void chat_metrics_ttft(uint64_t ns) { metric_observe(&ttft, (int64_t)ns); }
void chat_metrics_itl(uint64_t ns) { metric_observe(&itl, (int64_t)ns); }
