/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/kv_groups.h"

enum { WASTE_PART = 8, SAVED_PART = 8 };

static uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t most_of(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t minus(uint32_t a, uint32_t b) { return a > b ? a - b : 0; }
static uint32_t parts_of(uint32_t n, uint32_t each) { return (n + each - 1) / each; }
static uint32_t n_windowed(const struct kv_groups *g) { return g->n_groups - g->n_full; }

/* ---- layers ---- */

struct kv_groups kv_groups_one(uint32_t page_tokens, uint32_t n_layers)
{
	return (struct kv_groups){.page_tokens = page_tokens, .n_groups = 1, .n_full = 1, .n_layers = n_layers};
}

/* In units of a layer's part of a page. */
static uint64_t cost_of(const struct kv_groups *g, uint32_t n_ctx)
{
	return (uint64_t)kv_groups_peak(g, n_ctx, 1) * g->n_layers;
}

struct kv_groups kv_groups_make(const int *windows, uint32_t n_layers, uint32_t n_ctx, uint32_t page_tokens)
{
	struct kv_groups best = kv_groups_one(page_tokens, n_layers);
	const uint64_t alone = cost_of(&best, n_ctx);
	uint64_t least = alone - alone / SAVED_PART;
	uint32_t n_full = 0, window = 0;
	for (uint32_t i = 0; i < n_layers; i++) {
		n_full += windows[i] <= 0;
		window = windows[i] > 0 ? most_of(window, (uint32_t)windows[i]) : window;
	}
	if (window == 0 || window >= n_ctx)
		return best;
	for (uint32_t each = n_layers; each > 0; each--) {
		struct kv_groups g = {
		    .page_tokens = page_tokens, .n_full = parts_of(n_full, each), .n_layers = each, .window = window};
		g.n_groups = g.n_full + parts_of(n_layers - n_full, each);
		uint32_t padding = g.n_groups * each - n_layers;
		if (g.n_groups > KV_GROUPS_MAX || padding > n_layers / WASTE_PART)
			continue;
		uint64_t cost = cost_of(&g, n_ctx);
		if (cost < least || (cost == least && best.window == 0)) {
			least = cost;
			best = g;
		}
	}
	return best;
}

void kv_groups_places(const struct kv_groups *g, const int *windows, uint32_t n_layers, struct kn_place *out)
{
	uint32_t next[2] = {0, g->n_full * g->n_layers}; /* of full and of windowed layers */
	for (uint32_t i = 0; i < n_layers; i++) {
		uint32_t *at = &next[g->window > 0 && windows[i] > 0];
		out[i] =
		    (struct kn_place){.group = (int16_t)(*at / g->n_layers), .layer = (int16_t)(*at % g->n_layers)};
		++*at;
	}
}

/* ---- pages ---- */

uint32_t kv_groups_indices(const struct kv_groups *g, uint64_t n_tokens)
{
	return (uint32_t)((n_tokens + g->page_tokens - 1) / g->page_tokens);
}

uint32_t kv_groups_first(const struct kv_groups *g, uint32_t n_past)
{
	return g->window > 0 && n_past >= g->window ? (n_past - g->window + 1) / g->page_tokens : 0;
}

uint32_t kv_groups_held(const struct kv_groups *g, uint32_t first, uint32_t end)
{
	return g->n_full * end + n_windowed(g) * minus(end, first);
}

void kv_groups_at(const struct kv_groups *g, uint32_t first, uint32_t end, uint32_t i, uint32_t *group, uint32_t *index)
{
	uint32_t full = g->n_full * end;
	*group = i < full ? i / end : g->n_full + (i - full) / (end - first);
	*index = i < full ? i % end : first + (i - full) % (end - first);
}

uint32_t kv_groups_more(const struct kv_groups *g, uint32_t n_past, uint32_t end, uint64_t n_tokens)
{
	uint32_t to = kv_groups_indices(g, n_tokens);
	return g->n_full * minus(to, end) + n_windowed(g) * minus(to, most_of(end, kv_groups_first(g, n_past)));
}

uint64_t kv_groups_room(const struct kv_groups *g, uint32_t n_past, uint32_t end, uint32_t n_free)
{
	uint64_t pages = most_of(end, n_past / g->page_tokens + 1);
	return (pages + n_free / g->n_groups) * g->page_tokens - n_past - 1;
}

/* The most indices that n adjacent positions are in, wherever they begin. */
static uint32_t span_of(const struct kv_groups *g, uint64_t n)
{
	return n < 2 ? (uint32_t)n : (uint32_t)((n - 2) / g->page_tokens + 2);
}

uint32_t kv_groups_rest(const struct kv_groups *g, uint32_t n_past, uint64_t n_tokens, uint32_t chunk, uint32_t first,
			uint32_t end)
{
	uint32_t to = kv_groups_indices(g, n_past + n_tokens), from = kv_groups_first(g, n_past);
	uint32_t rest = g->n_full * minus(to, end);
	if (g->window == 0)
		return rest;
	uint64_t step = n_tokens < chunk ? n_tokens : chunk;
	uint32_t most = least_of(minus(to, from), span_of(g, g->window - 1 + step));
	return rest + n_windowed(g) * minus(most, minus(end, most_of(first, from)));
}

uint32_t kv_groups_peak(const struct kv_groups *g, uint64_t n_tokens, uint32_t chunk)
{
	return kv_groups_rest(g, 0, n_tokens, chunk, 0, 0);
}

uint32_t kv_groups_fit(const struct kv_groups *g, uint64_t n_pages, uint32_t chunk, uint32_t most)
{
	uint32_t low = 0, high = most;
	while (low < high) {
		uint32_t middle = high - (high - low) / 2;
		if (kv_groups_peak(g, middle, chunk) <= n_pages)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}
