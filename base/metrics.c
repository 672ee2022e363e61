/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const double MOST_SECONDS = 86400;
enum { BOUND_BYTES = 16 }; /* "%g" has at most 13 characters */

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

/* The last list of bounds, as text: formatting a number takes longer than the rest of its line, and a family's metrics
 * share their bounds. Under `printing`. */
static struct {
	const double *of;
	int n;
	char text[METRIC_MAX_BUCKETS][BOUND_BYTES];
} bounds;

static void set_bounds(const struct metric *m)
{
	if (bounds.of == m->bounds && bounds.n == m->n_buckets)
		return;
	bounds.of = m->bounds;
	bounds.n = m->n_buckets;
	for (int i = 0; i < m->n_buckets; i++)
		snprintf(bounds.text[i], BOUND_BYTES, "%g", m->bounds[i]);
}

static char *put(char *at, const char *text)
{
	size_t n = strlen(text);
	memcpy(at, text, n);
	return at + n;
}

/* The beginning of a line, up to its value. le: the bound of a bucket; NULL: it is none. */
static int put_series(struct sl_buf *out, const struct metric *m, const char *suffix, const char *le)
{
	const char *labels = m->labels != NULL ? m->labels : "";
	uint8_t *room;
	int rc = buf_reserve(out, strlen(m->name) + strlen(suffix) + strlen(labels) + BOUND_BYTES + 16, &room);
	if (rc != 0)
		return rc;
	char *at = put(put((char *)room, m->name), suffix);
	if (m->labels != NULL || le != NULL)
		at = put(put(at, "{"), labels);
	if (le != NULL)
		at = put(put(put(at, m->labels != NULL ? ",le=\"" : "le=\""), le), "\"");
	at = put(at, m->labels != NULL || le != NULL ? "} " : " ");
	buf_commit(out, (size_t)(at - (char *)room));
	return 0;
}

static int put_value(struct sl_buf *out, int64_t v)
{
	int rc = v < 0 ? buf_append(out, "-", 1) : 0;
	if (rc == 0)
		rc = buf_append_uint(out, v < 0 ? -(uint64_t)v : (uint64_t)v);
	return rc == 0 ? buf_append(out, "\n", 1) : rc;
}

static int print_histogram(struct sl_buf *out, const struct metric *m)
{
	int64_t seen = 0;
	int rc = 0;
	set_bounds(m);
	for (int i = 0; i <= m->n_buckets && rc == 0; i++) {
		seen += atomic_load_explicit(&m->counts[i], memory_order_relaxed);
		rc = put_series(out, m, "_bucket", i < m->n_buckets ? bounds.text[i] : "+Inf");
		if (rc == 0)
			rc = put_value(out, seen);
	}
	if (rc == 0)
		rc = put_series(out, m, "_sum", NULL);
	if (rc == 0)
		rc = buf_printf(out, "%.9g\n", (double)atomic_load_explicit(&m->sum, memory_order_relaxed) * m->scale);
	if (rc == 0)
		rc = put_series(out, m, "_count", NULL);
	return rc == 0 ? put_value(out, seen) : rc;
}

static int print_metric(struct sl_buf *out, struct metric *m)
{
	if (m->kind == METRIC_HISTOGRAM)
		return print_histogram(out, m);
	int rc = put_series(out, m, "", NULL);
	if (rc != 0)
		return rc;
	return m->scale > 0 ? buf_printf(out, "%.12g\n", (double)metric_get(m) * m->scale)
			    : put_value(out, metric_get(m));
}

int metrics_print(struct sl_buf *out)
{
	static const char *const kinds[] = {"counter", "gauge", "histogram"};
	const char *family = "";
	int rc = 0;
	pthread_mutex_lock(&printing);
	for (struct metric *m = first; m != NULL && rc == 0; m = m->next) {
		if (m->collect != NULL)
			m->collect(m);
		if (strcmp(family, m->name) != 0)
			rc = buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, kinds[m->kind]);
		family = m->name;
		if (rc == 0)
			rc = print_metric(out, m);
	}
	pthread_mutex_unlock(&printing);
	return rc;
}
