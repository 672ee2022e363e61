/* SPDX-License-Identifier: Apache-2.0
 *
 * The best path from left to right (Viterbi 1967): for every character boundary the best score to reach it and the last
 * token. Tokens that begin at a boundary are found by walking a trie, whose edges are in one open-addressed table; the
 * walk ends where no token continues. A character that is no token costs ten more than the worst token; neighbouring
 * ones are one unknown token.
 */
#include "engine/token/unigram.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/token/bpe.h"

enum { NO_NODE = 0 };

struct edge {
	uint32_t node; /* it leads to; NO_NODE: a free slot */
	uint32_t from;
	uint8_t byte;
};

struct unigram {
	struct edge *edges;
	uint64_t mask;
	int32_t *token; /* by node; -1: none ends there */
	double *scores; /* by token */
	double unknown_score;
	int32_t unknown, byte_token[256];
	bool falls_back, rounds;
};

struct best {
	double score;
	uint32_t from;
	int32_t id; /* -1: not reached; -2: a character that is no token */
};

static struct edge *edge_slot(const struct unigram *u, uint32_t from, uint8_t byte)
{
	uint64_t h = ((uint64_t)from << 8 | byte) * 0x9E3779B97F4A7C15u;
	uint64_t i = (h ^ h >> 32) & u->mask;
	while (u->edges[i].node != NO_NODE && (u->edges[i].from != from || u->edges[i].byte != byte))
		i = (i + 1) & u->mask;
	return &u->edges[i];
}

/* Returns the score that unknown text is measured by. */
static double set_scores(struct unigram *u, const struct unigram_source *src)
{
	double best = 0, worst = 0;
	for (size_t i = 0; i < src->n_tokens; i++) {
		u->scores[i] = (double)src->scores[i];
		if (src->attrs != NULL && src->attrs[i] != TOK_NORMAL)
			continue;
		best = fmax(best, u->scores[i]);
		worst = fmin(worst, u->scores[i]);
	}
	for (size_t i = 0; i < src->n_tokens && src->attrs != NULL; i++)
		if (src->attrs[i] == TOK_USER)
			u->scores[i] = (double)src->tokens[i].n * best - 0.1;
	return worst;
}

int unigram_create(const struct unigram_source *src, struct unigram **out, struct sl_err *err)
{
	size_t n_bytes = 0, slots = 16;
	for (size_t i = 0; i < src->n_tokens; i++)
		n_bytes += src->tokens[i].at != NULL ? src->tokens[i].n : 0;
	while (slots < 2 * n_bytes)
		slots *= 2;
	struct unigram *u = sl_zalloc(sizeof *u);
	if (u == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	u->edges = sl_zalloc_n(slots, sizeof *u->edges);
	u->token = sl_zalloc_n(n_bytes + 2, sizeof *u->token);
	u->scores = sl_zalloc_n(src->n_tokens, sizeof *u->scores);
	if (u->edges == NULL || u->token == NULL || u->scores == NULL) {
		unigram_destroy(u);
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	}
	u->mask = slots - 1;
	u->unknown = src->unknown;
	memset(u->token, 0xFF, (n_bytes + 2) * sizeof *u->token);
	double worst = set_scores(u, src);
	u->falls_back = src->byte_tokens != NULL;
	if (u->falls_back)
		memcpy(u->byte_token, src->byte_tokens, sizeof u->byte_token);
	uint32_t n_nodes = 2; /* 1 is the root */
	for (size_t i = 0; i < src->n_tokens; i++) {
		if (src->tokens[i].at == NULL || src->tokens[i].n == 0)
			continue;
		uint32_t at = 1;
		for (size_t k = 0; k < src->tokens[i].n; k++) {
			struct edge *e = edge_slot(u, at, (uint8_t)src->tokens[i].at[k]);
			if (e->node == NO_NODE)
				*e = (struct edge){n_nodes++, at, (uint8_t)src->tokens[i].at[k]};
			at = e->node;
		}
		u->token[at] = (int32_t)i;
	}
	u->rounds = src->attrs != NULL;
	u->unknown_score = worst - 10;
	*out = u;
	return 0;
}

void unigram_destroy(struct unigram *u)
{
	if (u == NULL)
		return;
	sl_free(u->edges);
	sl_free(u->token);
	sl_free(u->scores);
	sl_free(u);
}

static double rounded(const struct unigram *u, double score) { return u->rounds ? (double)(float)score : score; }

static void reach(const struct unigram *u, struct best *b, double score, uint32_t from, int32_t id)
{
	if (b->id == -1 || score > b->score)
		*b = (struct best){rounded(u, score), from, id};
}

static void find_best(const struct unigram *u, const char *piece, uint32_t n, struct best *best)
{
	uint32_t cp;
	for (uint32_t i = 0, len; i < n; i += len) {
		int got = utf8_decode((const uint8_t *)piece + i, n - i, &cp);
		len = got > 0 ? (uint32_t)got : 1;
		double score = best[i].score;
		bool single = false;
		uint32_t at = 1;
		for (uint32_t end = i; end < n;) {
			at = edge_slot(u, at, (uint8_t)piece[end])->node;
			if (at == NO_NODE)
				break;
			end++;
			if (u->token[at] < 0)
				continue;
			single |= end - i == len;
			reach(u, &best[end], score + u->scores[u->token[at]], i, u->token[at]);
		}
		if (!single)
			reach(u, &best[i + len], rounded(u, score + u->unknown_score), i, -2);
	}
}

static int push_bytes(const struct unigram *u, const char *at, uint32_t n, struct tok_ids *out)
{
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = tok_ids_push(out, u->byte_token[(uint8_t)at[i]]);
	return rc;
}

static bool has_bytes(const struct unigram *u, const char *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (u->byte_token[(uint8_t)at[i]] < 0)
			return false;
	return u->falls_back;
}

int unigram_encode(const struct unigram *u, const char *piece, size_t n, struct tok_ids *out)
{
	if (n == 0)
		return 0;
	if (n >= UINT32_MAX)
		return SL_ELIMIT;
	struct best *best = sl_zalloc_n(n + 1, sizeof *best);
	if (best == NULL)
		return SL_ENOMEM;
	for (size_t i = 1; i <= n; i++)
		best[i].id = -1;
	find_best(u, piece, (uint32_t)n, best);
	/* Turn the path round: best[i].from becomes where the token that begins at i ends. */
	uint32_t end = (uint32_t)n, next = UINT32_MAX;
	int32_t next_id = 0;
	while (end != UINT32_MAX) {
		uint32_t from = end > 0 ? best[end].from : UINT32_MAX;
		int32_t id = best[end].id;
		best[end].from = next;
		best[end].id = next_id;
		next = end;
		next_id = id;
		end = from;
	}
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0;) {
		uint32_t stop = best[i].from;
		if (best[i].id >= 0) {
			rc = tok_ids_push(out, best[i].id);
		} else {
			while (stop < n && best[stop].id < 0)
				stop = best[stop].from;
			rc = has_bytes(u, piece + i, stop - i) ? push_bytes(u, piece + i, stop - i, out)
							       : tok_ids_push(out, u->unknown);
		}
		i = stop;
	}
	sl_free(best);
	return rc;
}
