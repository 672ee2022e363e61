/* SPDX-License-Identifier: Apache-2.0
 *
 * How the layers of a model share pages, and how many pages a sequence holds and needs. Pure.
 *
 * Layers that keep the same positions form groups of equally many layers; a page has page_tokens positions of one
 * group's layers. So all pages of a pool have the same size, and a page is the unit of cost everywhere. Groups
 * 0 … n_full - 1 keep all positions. The others keep a window: the largest one of their layers (kernels mask each
 * layer's own), and a sequence gives back the pages that no row to come sees.
 *
 * A sequence's pages are numbered from its beginning, the same in every group: it holds the indices 0 … end - 1 in a
 * full group and first … end - 1 in a windowed one. A model without windows has one full group; then all counts are
 * those of indices.
 *
 * FIGURES: what a sequence keeps after its prompt, in parts of a page of one layer, against one group of all layers.
 * 32 layers, every fourth sees all, windows of 1,024, 32,768 tokens: 17,920 of 65,536, or 0.273 (test_kv_groups.c).
 */
#ifndef ENGINE_KV_GROUPS_H
#define ENGINE_KV_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { KV_GROUPS_MAX = 16 };

struct kv_groups {
	uint32_t page_tokens;
	uint32_t n_groups, n_full;
	uint32_t n_layers; /* of each group; the last one of a kind may have fewer, and its pages unused ends */
	uint32_t window;   /* positions, the row's own included; 0: no group is windowed */
};

/* One group, as of a model without windows. */
struct kv_groups kv_groups_one(uint32_t page_tokens, uint32_t n_layers);
/* windows[n_layers]: positions that each layer sees, its own included; 0: all. Chooses the layers of a page so that one
 * whole context of n_ctx takes the fewest bytes, of equal ones the most layers; at most an eighth of the layers is
 * padding. One group, if that saves less than an eighth. */
struct kv_groups kv_groups_make(const int *windows, uint32_t n_layers, uint32_t n_ctx, uint32_t page_tokens);
/* out[n_layers]: where each layer lies. */
void kv_groups_places(const struct kv_groups *g, const int *windows, uint32_t n_layers, struct kn_place *out);

/* Page indices of n_tokens. */
uint32_t kv_groups_indices(const struct kv_groups *g, uint64_t n_tokens);
/* The first index that a row at position n_past, or any later one, sees in a windowed group. */
uint32_t kv_groups_first(const struct kv_groups *g, uint32_t n_past);
/* Pages held. */
uint32_t kv_groups_held(const struct kv_groups *g, uint32_t first, uint32_t end);
/* Number i of them: full groups first, then windowed ones, each by index. */
void kv_groups_at(const struct kv_groups *g, uint32_t first, uint32_t end, uint32_t i, uint32_t *group,
		  uint32_t *index);
/* Pages to allocate before rows from position n_past up to n_tokens are computed, if pages exist up to `end`. */
uint32_t kv_groups_more(const struct kv_groups *g, uint32_t n_past, uint32_t end, uint64_t n_tokens);
/* Further tokens after the one at n_past that n_free pages have room for. */
uint64_t kv_groups_room(const struct kv_groups *g, uint32_t n_past, uint32_t end, uint32_t n_free);

/* The most pages that are held at once, beyond those of first … end - 1, until n_tokens are computed from position
 * n_past on, at most `chunk` of them in a step: pages are allocated before a step and given back after it. */
uint32_t kv_groups_rest(const struct kv_groups *g, uint32_t n_past, uint64_t n_tokens, uint32_t chunk, uint32_t first,
			uint32_t end);
/* The same for a whole sequence. */
uint32_t kv_groups_peak(const struct kv_groups *g, uint64_t n_tokens, uint32_t chunk);
/* The most tokens, up to `most`, whose peak is at most n_pages. */
uint32_t kv_groups_fit(const struct kv_groups *g, uint64_t n_pages, uint32_t chunk, uint32_t most);

#endif
