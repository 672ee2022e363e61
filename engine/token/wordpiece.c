/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens are in one open-addressed table by their bytes and by whether they begin a word. Bytes are copied.
 */
#include "engine/token/wordpiece.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "engine/token/bpe.h"

struct piece {
	uint32_t at, n; /* in mem */
	int32_t id;     /* -1: an empty slot */
	bool begins;
};

struct wordpiece {
	struct piece *slots;
	size_t mask;
	char *mem;
	size_t longest, max_chars;
	int32_t unknown;
};

static size_t slot_of(const struct wordpiece *w, const char *at, size_t n, bool begins)
{
	size_t i = XXH3_64bits_withSeed(at, n, begins) & w->mask;
	for (; w->slots[i].id >= 0; i = (i + 1) & w->mask) {
		const struct piece *p = &w->slots[i];
		if (p->begins == begins && p->n == n && memcmp(w->mem + p->at, at, n) == 0)
			break;
	}
	return i;
}

/* The text of token i without its mark; of the same text the first token counts. */
static void add(struct wordpiece *w, const struct wordpiece_source *src, size_t i, uint32_t *used)
{
	struct proto_str text = src->tokens[i];
	bool marked = text.n > src->prefix.n && memcmp(text.at, src->prefix.at, src->prefix.n) == 0;
	if (marked) {
		text.at += src->prefix.n;
		text.n -= src->prefix.n;
	}
	bool begins = marked == src->prefix_begins;
	size_t slot = text.n > 0 ? slot_of(w, text.at, text.n, begins) : 0;
	if (text.n == 0 || w->slots[slot].id >= 0)
		return;
	memcpy(w->mem + *used, text.at, text.n);
	w->slots[slot] = (struct piece){.at = *used, .n = (uint32_t)text.n, .id = (int32_t)i, .begins = begins};
	*used += (uint32_t)text.n;
	w->longest = text.n > w->longest ? text.n : w->longest;
}

static int fill(struct wordpiece *w, const struct wordpiece_source *src, struct sl_err *err)
{
	size_t total = 1, slots = 16;
	uint32_t used = 0;
	for (size_t i = 0; i < src->n_tokens; i++)
		total += src->tokens[i].at != NULL ? src->tokens[i].n : 0;
	if (total > UINT32_MAX)
		return sl_errf(err, SL_EINVAL, "the vocabulary's texts are too long");
	while (slots < 2 * src->n_tokens)
		slots *= 2;
	w->mask = slots - 1;
	w->mem = sl_alloc(total);
	w->slots = sl_zalloc_n(slots, sizeof *w->slots);
	if (w->mem == NULL || w->slots == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	for (size_t i = 0; i < slots; i++)
		w->slots[i].id = -1;
	for (size_t i = 0; i < src->n_tokens; i++)
		if (src->tokens[i].at != NULL)
			add(w, src, i, &used);
	return 0;
}

int wordpiece_create(const struct wordpiece_source *src, struct wordpiece **out, struct sl_err *err)
{
	struct wordpiece *w = sl_zalloc(sizeof *w);
	if (w == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	w->unknown = src->unknown;
	w->max_chars = src->max_chars;
	int rc = fill(w, src, err);
	if (rc != 0) {
		wordpiece_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

void wordpiece_destroy(struct wordpiece *w)
{
	if (w == NULL)
		return;
	sl_free(w->slots);
	sl_free(w->mem);
	sl_free(w);
}

static bool is_inside(char c) { return ((uint8_t)c & 0xC0) == 0x80; }

static size_t count_chars(const char *s, size_t n)
{
	size_t chars = 0;
	for (size_t i = 0; i < n; i++)
		chars += !is_inside(s[i]);
	return chars;
}

/* The longest token at the front of text; -1: none. *taken: its bytes. */
static int32_t longest_at(const struct wordpiece *w, const char *text, size_t n, bool begins, size_t *taken)
{
	for (size_t k = n < w->longest ? n : w->longest; k > 0; k--) {
		if (k < n && is_inside(text[k]))
			continue;
		int32_t id = w->slots[slot_of(w, text, k, begins)].id;
		if (id >= 0) {
			*taken = k;
			return id;
		}
	}
	return -1;
}

int wordpiece_encode(const struct wordpiece *w, const char *word, size_t n, struct tok_ids *out)
{
	size_t before = out->n, taken = 0;
	bool known = count_chars(word, n) <= w->max_chars;
	for (size_t i = 0; known && i < n; i += taken) {
		int32_t id = longest_at(w, word + i, n - i, i == 0, &taken);
		int rc = id >= 0 ? tok_ids_push(out, id) : 0;
		if (rc != 0)
			return rc;
		known = id >= 0;
	}
	if (known)
		return 0;
	out->n = before;
	return tok_ids_push(out, w->unknown);
}
