/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/batch_means.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *const names[BATCH_FIGURES] = {"ttft_ms", "tpot_ms", "total_ms"};

void batch_means_init(struct batch_means *b)
{
	memset(b, 0, sizeof *b);
	b->each = 1;
}

static void join(struct batch_means *b)
{
	for (int i = 0; i < BATCHES / 2; i++) {
		struct batch one = b->all[2 * i], two = b->all[2 * i + 1];
		for (int f = 0; f < BATCH_FIGURES; f++) {
			one.n[f] += two.n[f];
			one.sum_log[f] += two.sum_log[f];
		}
		b->all[i] = one;
	}
	memset(b->all + BATCHES / 2, 0, sizeof b->all / 2);
	b->each *= 2;
}

void batch_means_add(struct batch_means *b, const uint64_t ns[BATCH_FIGURES])
{
	if (b->n == b->each * BATCHES)
		join(b);
	struct batch *at = &b->all[b->n++ / b->each];
	for (int f = 0; f < BATCH_FIGURES; f++) {
		if (ns[f] == 0)
			continue;
		at->n[f]++;
		at->sum_log[f] += log((double)ns[f] / 1e6);
	}
}

int batch_means_json(const struct batch_means *b, struct sl_buf *out)
{
	int rc = 0;
	for (int f = 0; f < BATCH_FIGURES && rc == 0; f++) {
		bool first = true;
		rc = buf_printf(out, "%s\"%s\":[", f == 0 ? "{" : ",", names[f]);
		for (uint64_t i = 0; i < b->n / b->each && rc == 0; i++) {
			const struct batch *x = &b->all[i];
			if (x->n[f] == 0)
				continue;
			rc = buf_printf(out, "%s%.6g", first ? "" : ",", exp(x->sum_log[f] / (double)x->n[f]));
			first = false;
		}
		if (rc == 0)
			rc = buf_append_str(out, "]");
	}
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

/* ---- comparison ---- */

struct sample {
	double mean, var_of_mean;
	int n;
};

/* False: malformed. Of logarithms. */
static bool read_sample(const json_t *o, const char *name, struct sample *out)
{
	double v[BATCHES], sum = 0, squares = 0;
	const json_t *list = json_object_get(o, name);
	size_t n = json_array_size(list);
	*out = (struct sample){0};
	if (list != NULL && (!json_is_array(list) || n > BATCHES))
		return false;
	for (size_t i = 0; i < n; i++) {
		double x = json_number_value(json_array_get(list, i));
		if (!(x > 0 && x < 1e15))
			return false;
		v[i] = log(x);
		sum += v[i];
	}
	if (n < BATCHES_LEAST)
		return true;
	out->n = (int)n;
	out->mean = sum / (double)n;
	for (size_t i = 0; i < n; i++)
		squares += (v[i] - out->mean) * (v[i] - out->mean);
	out->var_of_mean = squares / (double)(n - 1) / (double)n;
	return true;
}

/* The 99.9 % quantile of Student's t, by Cornish and Fisher's expansion of the normal one. */
static double quantile(double df)
{
	const double z = 3.0902, z3 = z * z * z, z5 = z3 * z * z;
	return z + (z3 + z) / (4 * df) + (5 * z5 + 16 * z3 + 3 * z) / (96 * df * df);
}

/* Welch's interval. */
static void compare(const struct sample *a, const struct sample *b, double tolerance, struct comparison *out)
{
	double var = a->var_of_mean + b->var_of_mean;
	double parts = a->var_of_mean * a->var_of_mean / (a->n - 1) + b->var_of_mean * b->var_of_mean / (b->n - 1);
	double half = parts > 0 ? quantile(var * var / parts) * sqrt(var) : 0, d = b->mean - a->mean;
	out->ratio = exp(d);
	out->low = exp(d - half);
	out->high = exp(d + half);
	out->verdict = out->low > 1 + tolerance         ? VERDICT_WORSE
		       : out->high < 1 - tolerance      ? VERDICT_BETTER
		       : out->high <= 1 + 5 * tolerance ? VERDICT_SAME
							: VERDICT_UNKNOWN;
}

int batch_means_compare(const char *before, const char *after, double tolerance, struct comparison out[BATCH_FIGURES])
{
	json_t *a = json_loads(before, JSON_REJECT_DUPLICATES, NULL),
	       *b = json_loads(after, JSON_REJECT_DUPLICATES, NULL);
	int n = json_is_object(a) && json_is_object(b) ? 0 : SL_EINVAL;
	for (int f = 0; f < BATCH_FIGURES && n >= 0; f++) {
		struct sample x, y;
		if (!read_sample(a, names[f], &x) || !read_sample(b, names[f], &y)) {
			n = SL_EINVAL;
			break;
		}
		if (x.n == 0 || y.n == 0)
			continue;
		out[n].figure = names[f];
		compare(&x, &y, tolerance, &out[n++]);
	}
	json_decref(a);
	json_decref(b);
	return n;
}
