/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over a row of logits: the largest, the mass of a softmax, the best k, and the fewest that
 * hold a share of the mass. Each is linear, none sorts the vocabulary, and all results are
 * functions of the row alone: sums are taken in one fixed order, ties go to the lower id.
 */
#ifndef ENGINE_LOGITS_H
#define ENGINE_LOGITS_H

#include <stddef.h>
#include <stdint.h>

enum { LOGITS_BLOCK = 256 }; /* elements per partial result */

/* A place in the order of a row: larger for a larger value, for the lower index of equal ones. */
typedef uint64_t logits_rank;

struct logits_item {
	logits_rank rank;
	float w;
};

/* Replaces NaN by -inf. The largest; -inf when there is nothing else. */
float logits_clean_max(float *l, int n);
/* The largest of a row without NaN; -inf for n 0. */
float logits_max(const float *l, int n);
/* The indices of the elements that are at least `least`, ascending; n ≤ LOGITS_BLOCK. How many. */
int logits_list_from(const float *l, int n, float least, uint8_t *at);
/* The index of the largest, the lowest of equal ones; n ≥ 1, no NaN. */
int32_t logits_argmax(const float *l, int n);
/* Σ exp((l[i] - max) · inv_t), where max ≥ every l[i]. Terms below e^-86 count as 0. w [n] gets the terms; may be NULL.
 * Relative error of a term below 3e-7. */
double logits_mass(const float *l, int n, float max, float inv_t, float *w);

/* The rank of element i with the value v. */
logits_rank logits_rank_of(float v, int32_t i);
int32_t logits_rank_index(logits_rank r);
float logits_rank_value(logits_rank r);

/* The ranks of the best k of n elements (-inf is never one), in no order; how many there are. room has
 * logits_best_room(n, k) places. */
int logits_best(const float *l, int n, int k, struct logits_item *room);
size_t logits_best_room(int n, int k);
/* Highest rank first. */
void logits_sort(struct logits_item *items, int n);
/* The lowest rank of the best k (1 ≤ k ≤ n), which are then in front. */
logits_rank logits_kth(struct logits_item *items, int n, int k);

/* The lowest rank of the fewest best elements, by key, whose weights add up to target; all that weigh
 * anything where they don't reach it, and at least one. room: n items. */
logits_rank logits_share(const float *key, const float *w, int n, double target, struct logits_item *room);
/* Keeps elements of rank at least `least` of parallel arrays, in their order; ids may be NULL, when
 * the element's index is its id. How many were kept. Outputs may be the inputs. */
int logits_keep(const float *key, const float *l, const int32_t *ids, int n, logits_rank least, float *l_out,
		int32_t *ids_out);

#endif
