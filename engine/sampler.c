/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling. The filters work on a partially ordered list of candidates: a heap-like selection finds
 * the top k when k is set; top-p pops candidates in order until their mass is reached. Ties go to
 * the lower id everywhere, so a result depends on the logits alone.
 */
#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014). */
static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15ull;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 27) * 0x94D049BB133111EBull;
	return x ^ x >> 31;
}

/* Uniform in [0, 1), 53 bits, of the index-th token of this seed. */
static double uniform(uint64_t seed, uint64_t index)
{
	return (double)(mix(mix(seed) ^ mix(index ^ 0xD1B54A32D192ED03ull)) >> 11) * 0x1.0p-53;
}

/* a comes before b: larger logit, lower id on ties. */
static bool before(const float *logits, int32_t a, int32_t b)
{
	return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* heap[0] is the first of n by `before`. */
static void sift_down(const float *logits, int32_t *heap, int n, int i)
{
	for (;;) {
		int child = 2 * i + 1;
		if (child >= n)
			return;
		if (child + 1 < n && before(logits, heap[child + 1], heap[child]))
			child++;
		if (!before(logits, heap[child], heap[i]))
			return;
		int32_t t = heap[i];
		heap[i] = heap[child];
		heap[child] = t;
		i = child;
	}
}

/* Without top-k and top-p no order is needed: min-p is a threshold, and the draw walks by id. */
static int32_t draw_from_all(const struct sampler_params *p, const float *logits, int n_vocab, double u)
{
	double t = (double)p->temperature, max = -INFINITY, mass = 0, so_far = 0;
	for (int i = 0; i < n_vocab; i++)
		max = (double)logits[i] > max ? (double)logits[i] : max;
	int32_t last = 0;
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < n_vocab; i++) {
			double w = exp(((double)logits[i] - max) / t);
			if (w == 0 || w < (double)p->min_p)
				continue;
			if (pass == 0) {
				mass += w;
				last = i;
			} else if (u * mass < (so_far += w)) {
				return i;
			}
		}
	}
	return last;
}

/* The chosen id for u in [0, 1). Candidates leave the heap in order, so top-k, min-p and top-p are all
 * a question of where to stop; the draw is then made among what left. */
static int32_t draw(const struct sampler_params *p, const float *logits, int n_vocab, double u,
		    int32_t *heap)
{
	if (p->top_p >= 1 && (p->top_k == 0 || p->top_k >= (uint32_t)n_vocab))
		return draw_from_all(p, logits, n_vocab, u);
	for (int i = 0; i < n_vocab; i++)
		heap[i] = i;
	for (int i = n_vocab / 2 - 1; i >= 0; i--)
		sift_down(logits, heap, n_vocab, i);

	double t = (double)p->temperature, max = (double)logits[heap[0]];
	int k = p->top_k > 0 && p->top_k < (uint32_t)n_vocab ? (int)p->top_k : n_vocab;
	/* The mass that top-p is a share of: everything, or what top-k left. */
	double mass = 0, target = 0;
	bool bounded = k < n_vocab;
	if (!bounded) {
		for (int i = 0; i < n_vocab; i++)
			mass += exp(((double)logits[i] - max) / t);
		target = mass * (double)p->top_p;
	}
	/* Popped candidates gather at the end of the array, best last. */
	int n = n_vocab, kept = 0;
	double kept_mass = 0;
	while (kept < k && n > 0) {
		double w = exp(((double)logits[heap[0]] - max) / t);
		if (kept > 0 && (w < (double)p->min_p || w == 0))
			break;
		int32_t best = heap[0];
		heap[0] = heap[--n];
		heap[n] = best;
		sift_down(logits, heap, n, 0);
		kept++;
		kept_mass += w;
		if (!bounded && kept_mass >= target)
			break;
	}
	if (bounded && p->top_p < 1) {
		target = kept_mass * (double)p->top_p;
		double so_far = 0;
		int i = 0;
		while (i < kept && so_far < target)
			so_far += exp(((double)logits[heap[n_vocab - 1 - i++]] - max) / t);
		kept = i > 0 ? i : 1;
		kept_mass = so_far;
	}
	double at = u * kept_mass, so_far = 0;
	for (int i = 0; i < kept; i++) {
		so_far += exp(((double)logits[heap[n_vocab - 1 - i]] - max) / t);
		if (at < so_far)
			return heap[n_vocab - 1 - i];
	}
	return heap[n_vocab - kept];
}

struct sampler_choice sampler_draw(const struct sampler_params *p, float *logits, int n_vocab,
				   const uint16_t *counts, uint64_t index, int32_t *scratch)
{
	BUG_IF(n_vocab <= 0, "sampler_draw: n_vocab %d", n_vocab);
	float max = -INFINITY;
	for (int i = 0; i < n_vocab; i++) {
		if (isnan(logits[i]))
			logits[i] = -INFINITY;
		if (logits[i] > max)
			max = logits[i];
	}
	if (!isfinite(max))
		return (struct sampler_choice){.id = -1};
	double sum = 0;
	for (int i = 0; i < n_vocab; i++)
		sum += exp((double)(logits[i] - max));
	double log_z = (double)max + log(sum);

	/* Penalties change the order, so what the model said is kept aside as log_z and undone below. */
	bool penalised = counts != NULL && (p->presence_penalty != 0 || p->frequency_penalty != 0);
	if (penalised)
		for (int i = 0; i < n_vocab; i++)
			if (counts[i] > 0)
				logits[i] -= p->presence_penalty + p->frequency_penalty * (float)counts[i];

	int32_t id = 0;
	if (p->temperature == 0) {
		for (int i = 1; i < n_vocab; i++)
			if (logits[i] > logits[id])
				id = i;
	} else {
		id = draw(p, logits, n_vocab, uniform(p->seed, index), scratch);
	}
	double logit = (double)logits[id];
	if (penalised && counts[id] > 0)
		logit += (double)(p->presence_penalty + p->frequency_penalty * (float)counts[id]);
	return (struct sampler_choice){.id = id, .logprob = (float)(logit - log_z)};
}
