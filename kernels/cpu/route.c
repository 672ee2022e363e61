/* SPDX-License-Identifier: Apache-2.0
 *
 * In double, one row at a time: a row costs some exponentials, where its experts cost millions of multiply-adds.
 */
#include "kernels/cpu/route.h"

#include <math.h>

/* Scores of all experts. Returns whether every logit is finite. */
static bool score(const struct kn_route *r, const float *logits, double *scores)
{
	bool finite = true;
	double max = -INFINITY, sum = 0;
	for (int e = 0; e < r->n; e++) {
		finite = finite && isfinite(logits[e]);
		max = (double)logits[e] > max ? (double)logits[e] : max;
	}
	for (int e = 0; e < r->n; e++) {
		scores[e] = r->sigmoid ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e] - max);
		sum += scores[e];
	}
	for (int e = 0; e < r->n && !r->sigmoid; e++)
		scores[e] /= sum;
	return finite;
}

/* The index of the largest of x[n]; of equal ones the first. */
static int largest(const double *x, int n)
{
	int best = 0;
	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

static double two_best(const double *x, int n)
{
	double first = -INFINITY, second = -INFINITY;
	for (int i = 0; i < n; i++) {
		if (x[i] > first) {
			second = first;
			first = x[i];
		} else if (x[i] > second) {
			second = x[i];
		}
	}
	return n > 1 ? first + second : first;
}

/* Excludes experts outside of the best groups. */
static void keep_groups(const struct kn_route *r, double *rank)
{
	double of_group[KN_MAX_EXPERTS];
	bool kept[KN_MAX_EXPERTS] = {false};
	int each = r->n / r->n_groups;
	for (int g = 0; g < r->n_groups; g++)
		of_group[g] =
		    r->group_best ? rank[g * each + largest(rank + g * each, each)] : two_best(rank + g * each, each);
	for (int i = 0; i < r->n_groups_used; i++) {
		int g = largest(of_group, r->n_groups);
		kept[g] = true;
		of_group[g] = -INFINITY;
	}
	for (int e = 0; e < r->n; e++)
		if (!kept[e / each])
			rank[e] = -INFINITY;
}

/* The largest logit that is not chosen yet, and its share among those that are close to it. rank: the logits, -inf for
 * chosen ones. */
static double take_close(double *rank, int n, double sparse, int32_t *chosen)
{
	int best = largest(rank, n);
	double m = rank[best], sum = 0;
	for (int e = 0; e < n; e++)
		if (m - rank[e] <= 2 * sparse * fmax(fabs(rank[e]), m))
			sum += exp(rank[e] - m);
	rank[best] = -INFINITY;
	*chosen = best;
	return 1 / sum;
}

static void route_sparse(const struct kn_route *r, const float *logits, int32_t *chosen, float *weights)
{
	double rank[KN_MAX_EXPERTS];
	for (int e = 0; e < r->n; e++)
		rank[e] = (double)logits[e];
	for (int k = 0; k < r->n_used; k++)
		weights[k] = (float)((double)r->scale * take_close(rank, r->n, (double)r->sparse, &chosen[k]));
}

void kn_route_row(const struct kn_route *r, const float *logits, int32_t *chosen, float *weights)
{
	double scores[KN_MAX_EXPERTS], rank[KN_MAX_EXPERTS], sum = 0;
	if (!score(r, logits, scores)) {
		for (int k = 0; k < r->n_used; k++) {
			chosen[k] = k;
			weights[k] = NAN;
		}
		return;
	}
	if (r->sparse > 0) {
		route_sparse(r, logits, chosen, weights);
		return;
	}
	for (int e = 0; e < r->n; e++)
		rank[e] = scores[e] + (r->bias != NULL ? (double)r->bias[e] : 0);
	if (r->n_groups > 0)
		keep_groups(r, rank);
	for (int k = 0; k < r->n_used; k++) {
		chosen[k] = largest(rank, r->n);
		rank[chosen[k]] = -INFINITY;
		sum += scores[chosen[k]];
	}
	double factor = (double)r->scale / (r->norm ? sum : 1);
	for (int k = 0; k < r->n_used; k++)
		weights[k] = (float)(scores[chosen[k]] * factor);
}
