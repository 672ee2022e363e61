/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "cascade/weights.h"

/* An empty part counts as so much, so that one request there is no infinite drift. */
static const double least_share = 0.005;

static int bin_of(float score)
{
	int i = (int)(score * (float)CASC_DRIFT_BINS);
	return i < 0 ? 0 : i >= CASC_DRIFT_BINS ? CASC_DRIFT_BINS - 1 : i;
}

void casc_drift_add(struct casc_drift *d, float plain_score)
{
	for (int i = 0; i < CASC_DRIFT_BINS; i++)
		d->weight[i] *= 1 - 1.0 / CASC_DRIFT_MEMORY;
	d->weight[bin_of(plain_score)] += 1;
	d->n++;
}

static double at_least(double share) { return share > least_share ? share : least_share; }

double casc_drift_index(const struct casc_drift *d, const struct casc_reference *ref)
{
	double all = 0, index = 0;
	for (int i = 0; i < CASC_DRIFT_BINS; i++)
		all += d->weight[i];
	if (d->n < CASC_DRIFT_LEAST)
		return 0;
	for (int i = 0; i < CASC_DRIFT_BINS; i++) {
		double p = at_least(d->weight[i] / all), q = at_least((double)ref->share[i]);
		index += (p - q) * log(p / q);
	}
	return index;
}
