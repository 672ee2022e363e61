/* SPDX-License-Identifier: Apache-2.0
 *
 * A registry of counters, gauges and histograms, printed in the Prometheus text format 0.0.4.
 * Values are registered once and updated from any thread with relaxed atomics. A metric that many threads update often
 * has a cell for each of them, which its `collect` adds up when it is printed. Names and label texts are borrowed for
 * the life of the process. Registering and updating never wait for a print.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

enum { METRIC_MAX_BUCKETS = 24 };

struct metric {
	enum metric_kind kind;
	const char *name;   /* sluice_…; a counter ends in _total, a time in _seconds */
	const char *help;   /* one line */
	const char *labels; /* `tier="free"` or NULL */
	atomic_int_least64_t value;
	/* Histograms: upper bounds, ascending; counts has one more (+Inf). */
	int n_buckets;
	const double *bounds; /* in the printed unit; times (scale below 1) in seconds, less than a day */
	double scale;         /* printed value = integer * scale (1e-9: observe ns, print s); gauges: 0 is 1 */
	atomic_int_least64_t counts[METRIC_MAX_BUCKETS + 1];
	atomic_int_least64_t sum;
	void (*collect)(struct metric *m); /* sets its values before it is printed; NULL: they are set */
	struct metric *_Atomic next;
};

/* An initialiser. labels: `tier="free"`, NULL. */
#define METRIC_OF(kind_, name_, labels_, help_)                                \
	{                                                                      \
		.kind = kind_, .name = name_, .labels = labels_, .help = help_ \
	}
/* Of observed ns, printed as seconds. */
#define HISTOGRAM_OF(name_, labels_, help_, bounds_)                                            \
	{                                                                                       \
		.kind = METRIC_HISTOGRAM, .name = name_, .labels = labels_, .help = help_,      \
		.n_buckets = sizeof bounds_ / sizeof *bounds_, .bounds = bounds_, .scale = 1e-9 \
	}
/* METRIC defines a static metric that registers itself at program start. METRICS registers an existing metric or array.
 */
#define METRIC(var, kind_, name_, labels_, help_)                           \
	static struct metric var = METRIC_OF(kind_, name_, labels_, help_); \
	METRICS(var)
#define COUNTER(var, name_, help_) METRIC(var, METRIC_COUNTER, name_, NULL, help_)
#define GAUGE(var, name_, help_) METRIC(var, METRIC_GAUGE, name_, NULL, help_)
#define METRICS(var)                                                                                 \
	__attribute__((constructor)) static void register_##var(void)                                \
	{                                                                                            \
		metrics_register((struct metric *)(void *)&var, sizeof var / sizeof(struct metric)); \
	}                                                                                            \
	_Static_assert(sizeof var % sizeof(struct metric) == 0, "a metric or an array of them")

/* The metric must be static or outlive the process. Registering the same (name, labels) twice is
 * a BUG. Thread-safe. */
void metric_register(struct metric *m);
void metrics_register(struct metric *m, size_t n);

static inline void metric_add(struct metric *m, int64_t d)
{
	atomic_fetch_add_explicit(&m->value, d, memory_order_relaxed);
}

static inline void metric_set(struct metric *m, int64_t v)
{
	atomic_store_explicit(&m->value, v, memory_order_relaxed);
}

static inline int64_t metric_get(struct metric *m) { return atomic_load_explicit(&m->value, memory_order_relaxed); }

void metric_observe(struct metric *m, int64_t v);

/* Appends the whole registry, families together, in the order of first registration. */
int metrics_print(struct sl_buf *out);

#endif
