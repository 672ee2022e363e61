/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways of stretching a rotary embedding over a longer context. All of them change the frequency
 * of each pair once and for all; YaRN and longrope also make the scores sharper or flatter by a
 * factor on sine and cosine. Definitions: Chen et al. 2023 (linear), Meta's Llama 3.1 model card
 * (llama3), Peng et al., "YaRN", 2023, Ding et al., "LongRoPE", 2024, as the models' own
 * configurations use them.
 */
#include "engine/model/rope.h"

#include <math.h>

static double llama3(const struct arch_rope *r, double f)
{
	double wavelength = 2 * M_PI / f;
	if (wavelength < r->original_ctx / r->high_freq)
		return f;
	if (wavelength > r->original_ctx / r->low_freq)
		return f / r->factor;
	double smooth = (r->original_ctx / wavelength - r->low_freq) / (r->high_freq - r->low_freq);
	return (1 - smooth) * f / r->factor + smooth * f;
}

/* The pair that turns `turns` times within the original context. */
static double pair_of_turns(const struct arch_rope *r, double turns)
{
	return r->n_rot * log(r->original_ctx / (turns * 2 * M_PI)) / (2 * log(r->base));
}

static double yarn(const struct arch_rope *r, int i, double f)
{
	double low = pair_of_turns(r, r->beta_fast), high = pair_of_turns(r, r->beta_slow);
	low = fmax(r->fractional ? low : floor(low), 0);
	high = fmin(r->fractional ? high : ceil(high), r->n_rot - 1);
	double ramp = (i - low) / (high > low ? high - low : 0.001);
	ramp = fmin(fmax(ramp, 0), 1);
	return ramp * f / r->factor + (1 - ramp) * f;
}

void rope_frequencies(const struct arch_rope *r, double *inv_freq)
{
	for (int i = 0; i < r->n_rot / 2; i++) {
		double f = pow(r->base, -2.0 * i / r->n_rot);
		if (r->scaling == ARCH_ROPE_LINEAR)
			f /= r->factor;
		else if (r->scaling == ARCH_ROPE_LLAMA3)
			f = llama3(r, f);
		else if (r->scaling == ARCH_ROPE_YARN)
			f = yarn(r, i, f);
		if (i < r->n_factors)
			f /= (double)r->factors[i];
		inv_freq[i] = f;
	}
}

double rope_magnitude(const struct arch_rope *r, int n_ctx)
{
	if (r->magnitude > 0)
		return r->magnitude;
	if (r->scaling == ARCH_ROPE_YARN && r->factor > 1)
		return 0.1 * log(r->factor) + 1;
	if (r->scaling == ARCH_ROPE_LONGROPE && r->original_ctx > 1 && n_ctx > r->original_ctx)
		return sqrt(1 + log((double)n_ctx / r->original_ctx) / log(r->original_ctx));
	return 1;
}
