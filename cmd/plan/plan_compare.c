/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_compare.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/percentile.h"

static const double percents[COMPARE_PERCENTILES] = {50, 90, 95, 99};

struct plan_request *compare_traffic(const struct plan_ask *a)
{
	struct plan_request *all = sl_zalloc_n(a->trace.n, sizeof *all);
	for (size_t i = 0; i < a->trace.n && all != NULL; i++)
		all[i] = (struct plan_request){.came_ns = (uint64_t)(a->trace.items[i].at * 1e9) + 1,
					       .work = a->trace.items[i].work};
	return all;
}

/* ---- figures: measured and simulated; 0: a request has none ---- */

struct pair {
	double measured, simulated;
};

static struct pair ttft(const struct trace_item *t, const struct plan_request *r)
{
	return (struct pair){t->ttft_ms, (double)(r->first_ns - r->came_ns) / 1e6};
}

static struct pair itl(const struct trace_item *t, const struct plan_request *r)
{
	return (struct pair){t->itl_ms, r->n_made > 1 ? (double)(r->last_ns - r->first_ns) / 1e6 / (r->n_made - 1) : 0};
}

static struct pair longest(const struct trace_item *t, const struct plan_request *r)
{
	return (struct pair){t->itl_max_ms, (double)r->longest_ns / 1e6};
}

static void fill(struct compare_line *l, const struct plan_ask *a, const struct plan_request *all, double *x, double *y,
		 struct pair (*of)(const struct trace_item *, const struct plan_request *))
{
	for (size_t i = 0; i < a->trace.n; i++) {
		const struct pair p = of(&a->trace.items[i], &all[i]);
		if (p.measured <= 0 || all[i].first_ns == 0)
			continue;
		x[l->n] = p.measured;
		y[l->n++] = p.simulated;
	}
	for (int i = 0; i < COMPARE_PERCENTILES; i++)
		l->at[i] =
		    (struct compare_at){percents[i], percentile(x, l->n, percents[i]), percentile(y, l->n, percents[i]),
					(size_t)((double)l->n * (100 - percents[i]) / 100)};
}

int compare_run(const struct plan_ask *a, const struct plan_box *box, struct compare *out)
{
	const size_t n = a->trace.n;
	struct histogram *gaps = sl_zalloc(sizeof *gaps);
	const struct plan_arrangement one = {.box = *box, .n_engines = 1, .gaps = gaps};
	struct plan_request *all = compare_traffic(a);
	double *x = sl_zalloc_n(2 * n, sizeof *x);
	uint64_t prefilled;
	*out = (struct compare){.ttft.name = "first token",
				.itl.name = "between tokens, mean of an answer",
				.longest.name = "between tokens, longest of an answer"};
	int rc = all != NULL && x != NULL && gaps != NULL ? plan_simulate(&one, all, n, &prefilled) : SL_ENOMEM;
	if (rc == 0) {
		fill(&out->ttft, a, all, x, x + n, ttft);
		fill(&out->itl, a, all, x, x + n, itl);
		fill(&out->longest, a, all, x, x + n, longest);
		out->n_gaps = gaps->n;
		for (int i = 0; i < COMPARE_PERCENTILES; i++)
			out->gap_ms[i] = (double)histogram_percentile(gaps, percents[i]) / 1e6;
	}
	sl_free(x);
	sl_free(all);
	sl_free(gaps);
	return rc;
}

/* ---- the table ---- */

static double ratio(const struct compare_at *at)
{
	return at->measured_ms > 0 ? at->simulated_ms / at->measured_ms : 0;
}

static void print_line(const struct compare_line *l)
{
	for (int i = 0; i < COMPARE_PERCENTILES && l->n > 0; i++) {
		const struct compare_at *at = &l->at[i];
		printf("%-36s  p%-4g %12.2f %12.2f %8.3f%s\n", i == 0 ? l->name : "", at->percent, at->measured_ms,
		       at->simulated_ms, ratio(at), at->beyond < COMPARE_FEW ? "  few" : "");
	}
}

static void print_json_line(const char *name, const struct compare_line *l)
{
	printf("\"%s\":{\"n\":%zu,\"at\":[", name, l->n);
	for (int i = 0; i < COMPARE_PERCENTILES; i++)
		printf("%s{\"percent\":%g,\"measured_ms\":%.3f,\"simulated_ms\":%.3f,\"beyond\":%zu}", i > 0 ? "," : "",
		       l->at[i].percent, l->at[i].measured_ms, l->at[i].simulated_ms, l->at[i].beyond);
	printf("]},");
}

void compare_print(const struct compare *c, bool json)
{
	if (!json) {
		printf("%zu answers, %zu gaps            percent  measured ms simulated ms    ratio\n\n", c->ttft.n,
		       c->n_gaps);
		print_line(&c->ttft);
		print_line(&c->itl);
		print_line(&c->longest);
		return;
	}
	printf("{");
	print_json_line("ttft", &c->ttft);
	print_json_line("itl", &c->itl);
	print_json_line("longest", &c->longest);
	printf("\"gaps\":{\"n\":%zu,\"at\":[", c->n_gaps);
	for (int i = 0; i < COMPARE_PERCENTILES; i++)
		printf("%s{\"percent\":%g,\"simulated_ms\":%.3f}", i > 0 ? "," : "", percents[i], c->gap_ms[i]);
	printf("]}}\n");
}
