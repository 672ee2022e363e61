/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/arrivals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BURST = 65536 };

double load_uniform(struct load_random *r)
{
	r->state = r->state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(r->state >> 11) + 1) * 0x1p-53;
}

int arrivals_parse(const char *text, struct arrivals *out)
{
	char *end = NULL;
	double v = 0;
	const char *colon = strchr(text, ':');
	struct arrivals a = {.rate = out->rate, .shape = 1, .burst = 1};
	if (colon != NULL) {
		v = strtod(colon + 1, &end);
		if (end == colon + 1 || *end != '\0')
			return SL_EINVAL;
	}
	if (strcmp(text, "even") == 0)
		a.shape = HUGE_VAL;
	else if (strncmp(text, "gamma:", 6) == 0 && v >= 0.01 && v <= 1e6)
		a.shape = v;
	else if (strncmp(text, "burst:", 6) == 0 && v >= 1 && v <= MOST_BURST && v == floor(v))
		a.burst = (uint32_t)v;
	else if (strcmp(text, "poisson") != 0)
		return SL_EINVAL;
	*out = a;
	return 0;
}

/* Box and Muller, one of the pair. */
static double normal(struct load_random *r)
{
	double u = load_uniform(r);
	return sqrt(-2 * log(u)) * cos(2 * M_PI * load_uniform(r));
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; mean = shape. */
static double gamma_at_least_1(double shape, struct load_random *r)
{
	double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double x = normal(r), v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		if (log(load_uniform(r)) < 0.5 * x * x + d - d * v + d * log(v))
			return d * v;
	}
}

static double draw_gamma(double shape, struct load_random *r)
{
	if (shape == 1)
		return -log(load_uniform(r));
	if (shape >= 1)
		return gamma_at_least_1(shape, r);
	double more = gamma_at_least_1(shape + 1, r);
	return more * pow(load_uniform(r), 1 / shape);
}

double arrivals_gap(struct arrivals *a, struct load_random *r)
{
	double mean = (double)a->burst / a->rate;
	if (++a->n_in_burst < a->burst)
		return 0;
	a->n_in_burst = 0;
	return isinf(a->shape) ? mean : draw_gamma(a->shape, r) / a->shape * mean;
}
