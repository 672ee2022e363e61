/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/token/tokenizer.h"

struct word {
	const char *at;
	uint32_t n;
	int32_t id;
};

static int by_bytes(const void *x, const void *y)
{
	const struct word *a = x, *b = y;
	int c = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
	if (c != 0)
		return c;
	return a->n != b->n ? (a->n < b->n ? -1 : 1) : a->id < b->id ? -1 : 1;
}

static bool in_texts(enum tok_attr attr) { return attr == TOK_NORMAL || attr == TOK_USER || attr == TOK_BYTE; }

static size_t collect(const struct tokenizer *t, struct word *words)
{
	size_t n = 0;
	for (int32_t id = 0; id < tokenizer_n_vocab(t); id++) {
		struct proto_str b = tokenizer_bytes(t, id);
		if (in_texts(tokenizer_attr(t, id)) && !tokenizer_is_end(t, id) && b.n > 0)
			words[n++] = (struct word){b.at, (uint32_t)b.n, id};
	}
	qsort(words, n, sizeof(*words), by_bytes);
	return n;
}

/* ---- the trie ---- */

static uint32_t common(const struct word *a, const struct word *b)
{
	uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
	while (i < n && a->at[i] == b->at[i])
		i++;
	return i;
}

static size_t count_nodes(const struct word *words, size_t n, uint32_t *depth)
{
	size_t nodes = 0;
	*depth = 0;
	for (size_t i = 0; i < n; i++) {
		nodes += words[i].n - (i > 0 ? common(&words[i - 1], &words[i]) : 0);
		if (words[i].n > *depth)
			*depth = words[i].n;
	}
	return nodes;
}

static void write_nodes(struct trie *t, const struct word *words, size_t n, uint32_t *path)
{
	uint32_t at = 0, depth = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t same = i > 0 ? common(&words[i - 1], &words[i]) : 0;
		while (depth > same)
			t->nodes[path[--depth]].end = at;
		while (depth < words[i].n) {
			t->nodes[at] = (struct trie_node){.first = (uint32_t)i, .byte = (uint8_t)words[i].at[depth]};
			path[depth++] = at++;
		}
		t->nodes[path[depth - 1]].n_own++;
		t->ids[i] = words[i].id;
	}
	while (depth > 0)
		t->nodes[path[--depth]].end = at;
	t->nodes[at] = (struct trie_node){.end = at, .first = (uint32_t)n};
}

static int build(struct trie *t, const struct word *words, size_t n)
{
	size_t nodes = count_nodes(words, n, &t->depth);
	if (nodes > UINT32_MAX / 2)
		return SL_ENOMEM;
	t->nodes = sl_zalloc_n(nodes + 1, sizeof(*t->nodes));
	t->ids = sl_zalloc_n(n + 1, sizeof(*t->ids));
	uint32_t *path = sl_zalloc_n((size_t)t->depth + 1, sizeof(*path));
	if (t->nodes != NULL && t->ids != NULL && path != NULL)
		write_nodes(t, words, n, path);
	bool ok = t->nodes != NULL && t->ids != NULL && path != NULL;
	t->n_nodes = (uint32_t)nodes;
	t->n_ids = (uint32_t)n;
	sl_free(path);
	return ok ? 0 : SL_ENOMEM;
}

static void trie_dispose(struct trie *t)
{
	sl_free(t->nodes);
	sl_free(t->ids);
}

/* ---- life ---- */

int grammar_vocab_create(const struct tokenizer *t, struct grammar_vocab **out)
{
	struct grammar_vocab *v = sl_zalloc(sizeof(*v));
	struct word *words = sl_zalloc_n((size_t)tokenizer_n_vocab(t) + 1, sizeof(*words));
	int rc = v != NULL && words != NULL ? 0 : SL_ENOMEM;
	if (rc == 0) {
		v->tok = t;
		v->refs = 1;
		v->words = ((size_t)tokenizer_n_vocab(t) + 31) / 32;
		rc = build(&v->all, words, collect(t, words));
	}
	sl_free(words);
	if (rc == 0)
		*out = v;
	else
		grammar_vocab_unref(v);
	return rc;
}

struct grammar_vocab *grammar_vocab_ref(struct grammar_vocab *v)
{
	v->refs++;
	return v;
}

void grammar_vocab_unref(struct grammar_vocab *v)
{
	if (v == NULL || --v->refs > 0)
		return;
	trie_dispose(&v->all);
	sl_free(v);
}

size_t grammar_vocab_mask_words(const struct grammar_vocab *v) { return v->words; }
