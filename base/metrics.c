/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const double MOST_SECONDS = 86400;

/* Metrics are only ever added, so reading the list needs no lock. */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER, printing = PTHREAD_MUTEX_INITIALIZER;
static struct metric *_Atomic first;

static int same(const char *a, const char *b) { return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0); }

void metric_register(struct metric *m)
{
	BUG_IF(m->n_buckets > METRIC_MAX_BUCKETS, "metric %s: too many buckets", m->name);
	BUG_IF(m->n_buckets > 0 && m->scale < 1 && !(m->bounds[m->n_buckets - 1] < MOST_SECONDS),
	       "metric %s: its bounds are not seconds", m->name);
	pthread_mutex_lock(&adding);
	struct metric *_Atomic *at = &first, *_Atomic *after_family = NULL;
	for (struct metric *it; (it = *at) != NULL; at = &it->next) {
		if (strcmp(it->name, m->name) != 0)
			continue;
		BUG_IF(same(it->labels, m->labels), "metric %s registered twice", m->name);
		after_family = &it->next;
	}
	if (after_family != NULL)
		at = after_family;
	m->next = *at;
	*at = m;
	pthread_mutex_unlock(&adding);
}

void metrics_register(struct metric *m, size_t n)
{
	while (n-- > 0)
		metric_register(m++);
}

void metric_observe(struct metric *m, int64_t v)
{
	int i = 0;
	double scaled = (double)v * m->scale;
	while (i < m->n_buckets && scaled > m->bounds[i])
		i++;
	atomic_fetch_add_explicit(&m->counts[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->sum, v, memory_order_relaxed);
}

static int print_histogram(struct sl_buf *out, struct metric *m)
{
	const char *labels = m->labels ? m->labels : "";
	const char *comma = m->labels ? "," : "";
	const char *open = m->labels ? "{" : "", *close = m->labels ? "}" : "";
	int64_t seen = 0;
	int rc = 0;
	for (int i = 0; i <= m->n_buckets && rc == 0; i++) {
		seen += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
		char bound[32] = "+Inf";
		if (i < m->n_buckets)
			snprintf(bound, sizeof bound, "%g", m->bounds[i]);
		rc = buf_printf(out, "%s_bucket{%s%sle=\"%s\"} %lld\n", m->name, labels, comma, bound, (long long)seen);
	}
	if (rc == 0)
		rc = buf_printf(out, "%s_sum%s%s%s %.9g\n%s_count%s%s%s %lld\n", m->name, open, labels, close,
				(double)atomic_load_explicit(&m->sum, memory_order_relaxed) * m->scale, m->name, open,
				labels, close, (long long)seen);
	return rc;
}

int metrics_print(struct sl_buf *out)
{
	static const char *const kinds[] = {"counter", "gauge", "histogram"};
	const char *family = "";
	int rc = 0;
	pthread_mutex_lock(&printing);
	for (struct metric *m = first; m != NULL && rc == 0; m = m->next) {
		const char *labels = m->labels ? m->labels : "";
		const char *open = m->labels ? "{" : "", *close = m->labels ? "}" : "";
		if (m->collect != NULL)
			m->collect(m);
		if (strcmp(family, m->name) != 0) {
			family = m->name;
			rc = buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, kinds[m->kind]);
			if (rc != 0)
				break;
		}
		if (m->kind == METRIC_HISTOGRAM)
			rc = print_histogram(out, m);
		else if (m->scale > 0)
			rc = buf_printf(out, "%s%s%s%s %.12g\n", m->name, open, labels, close,
					(double)metric_get(m) * m->scale);
		else
			rc = buf_printf(out, "%s%s%s%s %lld\n", m->name, open, labels, close, (long long)metric_get(m));
	}
	pthread_mutex_unlock(&printing);
	return rc;
}
