/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/grammar/phase.h"
#include "engine/token/tokenizer.h"

struct word {
	const char *at;
	uint32_t n;
	int32_t id;
	uint32_t chars; /* characters of a plain token, or NOT_PLAIN */
};
enum { NOT_PLAIN = UINT32_MAX };

static bool is_plain(uint32_t cp) { return cp >= ' ' && cp != '"' && cp != '\\' && cp != 0x7F; }

/* The number of characters of a plain token. */
static uint32_t count_plain(struct proto_str b)
{
	uint32_t chars = 0, cp;
	for (size_t i = 0; i < b.n; chars++) {
		int n = utf8_decode((const uint8_t *)b.at + i, b.n - i, &cp);
		if (n <= 0 || !is_plain(cp))
			return NOT_PLAIN;
		i += (size_t)n;
	}
	return chars;
}

static int by_bytes(const void *x, const void *y)
{
	const struct word *a = x, *b = y;
	int c = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
	if (c != 0)
		return c;
	return a->n != b->n ? (a->n < b->n ? -1 : 1) : a->id < b->id ? -1 : 1;
}

bool vocab_is_text(const struct tokenizer *t, int32_t id)
{
	enum tok_attr attr = tokenizer_attr(t, id);
	bool text = attr == TOK_NORMAL || attr == TOK_USER || attr == TOK_BYTE;
	struct proto_str b = tokenizer_bytes(t, id);
	return text && !tokenizer_is_end(t, id) && b.n > 0 && memchr(b.at, VOCAB_MARK, b.n) == NULL;
}

bool vocab_is_mark(const struct tokenizer *t, int32_t id)
{
	struct proto_str b = tokenizer_bytes(t, id);
	return tokenizer_attr(t, id) == TOK_CONTROL && b.n > 0 && memchr(b.at, VOCAB_MARK, b.n) == NULL;
}

static size_t marks_size(const struct tokenizer *t)
{
	size_t n = 0;
	for (int32_t id = 0; id < tokenizer_n_vocab(t); id++)
		n += vocab_is_mark(t, id) ? tokenizer_bytes(t, id).n + 2 : 0;
	return n;
}

static struct proto_str write_mark(char **to, struct proto_str text)
{
	char *at = *to;
	at[0] = at[text.n + 1] = (char)VOCAB_MARK;
	memcpy(at + 1, text.at, text.n);
	*to += text.n + 2;
	return (struct proto_str){at, text.n + 2};
}

/* marks: room for the words of all control tokens. */
static size_t collect(const struct tokenizer *t, struct word *words, char *marks)
{
	size_t n = 0;
	for (int32_t id = 0; id < tokenizer_n_vocab(t); id++) {
		struct proto_str b = tokenizer_bytes(t, id);
		bool mark = vocab_is_mark(t, id);
		if (mark)
			b = write_mark(&marks, b);
		if (mark || vocab_is_text(t, id))
			words[n++] = (struct word){b.at, (uint32_t)b.n, id, count_plain(b)};
	}
	qsort(words, n, sizeof(*words), by_bytes);
	return n;
}

/* ---- classes of text ---- */

static void add_bytes(struct rx_set *s, const char *bytes)
{
	for (; *bytes != '\0'; bytes++)
		set_add(s, (uint8_t)*bytes);
}

static void add_letters(struct rx_set *s)
{
	set_add_range(s, 'a', 'z');
	set_add_range(s, 'A', 'Z');
}

/* What schemas' patterns and formats repeat most. */
static void classes_init(struct text_class *c)
{
	set_add_range(&c[1].bytes, ' ', '~');
	set_remove(&c[1].bytes, '"');
	set_remove(&c[1].bytes, '\\');
	c[2].bytes = c[1].bytes;
	set_remove(&c[2].bytes, ' ');
	add_letters(&c[3].bytes);
	set_add_range(&c[3].bytes, '0', '9');
	add_bytes(&c[3].bytes, "_-.");
	add_letters(&c[4].bytes);
	set_add_range(&c[4].bytes, '0', '9');
	set_add(&c[4].bytes, '_');
	add_letters(&c[5].bytes);
	c[6].bytes = c[5].bytes;
	set_add(&c[6].bytes, ' ');
	set_add_range(&c[7].bytes, 'a', 'z');
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

/* The classes of a byte, without CLASS_PLAIN, which bytes do not decide. */
static uint8_t classes_of(const struct text_class *classes, uint8_t byte)
{
	unsigned in = 0;
	for (unsigned k = CLASS_PLAIN + 1; k < N_CLASSES; k++)
		in |= (unsigned)set_has(&classes[k].bytes, byte) << k;
	return (uint8_t)in;
}

static void mark_node(struct trie_node *n, uint8_t below, uint8_t phase, uint32_t height)
{
	n->below &= below;
	n->phase = (phase == NO_PHASE ? 0u : phase) & (N_PHASES - 1u);
	if (n->height < height)
		n->height = (height < MAX_HEIGHT ? height : MAX_HEIGHT) & MAX_HEIGHT;
}

/* Marks, for the nodes on a word's path, which classes the suffix after each belongs to. A suffix may begin and end
 * inside a character. phase: room for the depth plus one. */
static void mark_path(const struct grammar_vocab *v, struct trie *t, const struct word *w, const uint32_t *path,
		      uint8_t *phase)
{
	const uint8_t *at = (const uint8_t *)w->at;
	unsigned ascii = 0xFF & ~(1u << CLASS_PLAIN);
	phase[0] = BOUNDARY;
	for (uint32_t d = 0; d < w->n; d++)
		phase[d + 1] = phase_next(phase[d], at[d]);
	bool plain = phase[w->n] != NO_PHASE;
	for (uint32_t d = w->n; d > 0; d--) {
		mark_node(&t->nodes[path[d - 1]], (uint8_t)(ascii | (unsigned)plain << CLASS_PLAIN), phase[d],
			  w->n - d);
		ascii &= classes_of(v->classes, at[d - 1]);
		plain = plain && (at[d - 1] >= 0x80 || is_plain(at[d - 1]));
	}
}

static uint8_t above_of(const struct grammar_vocab *v, const struct word *w, uint32_t n)
{
	unsigned in = 0xFF & ~(1u << CLASS_PLAIN);
	for (uint32_t i = 0; i < n; i++)
		in &= classes_of(v->classes, (uint8_t)w->at[i]);
	return (uint8_t)(in | (unsigned)(count_plain((struct proto_str){w->at, n}) != NOT_PLAIN) << CLASS_PLAIN);
}

static void write_nodes(const struct grammar_vocab *v, struct trie *t, const struct word *words, size_t n,
			uint32_t *path, uint8_t *phase)
{
	uint32_t at = 0, depth = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t same = i > 0 ? common(&words[i - 1], &words[i]) : 0;
		while (depth > same)
			t->nodes[path[--depth]].end = at;
		while (depth < words[i].n) {
			t->nodes[at] = (struct trie_node){.first = (uint32_t)i,
							  .above = above_of(v, &words[i], depth + 1),
							  .below = 0xFF,
							  .byte = (uint8_t)words[i].at[depth]};
			path[depth++] = at++;
		}
		mark_path(v, t, &words[i], path, phase);
		t->ids[i] = words[i].id;
	}
	while (depth > 0)
		t->nodes[path[--depth]].end = at;
	t->nodes[at] = (struct trie_node){.end = at, .first = (uint32_t)n};
}

static int build(const struct grammar_vocab *v, struct trie *t, const struct word *words, size_t n)
{
	size_t nodes = count_nodes(words, n, &t->depth);
	if (nodes > UINT32_MAX / 2)
		return SL_ENOMEM;
	t->nodes = sl_zalloc_n(nodes + 1, sizeof(*t->nodes));
	t->ids = sl_zalloc_n(n + 1, sizeof(*t->ids));
	uint32_t *path = sl_zalloc_n((size_t)t->depth + 1, sizeof(*path));
	uint8_t *phase = sl_zalloc((size_t)t->depth + 1);
	bool ok = t->nodes != NULL && t->ids != NULL && path != NULL && phase != NULL;
	if (ok)
		write_nodes(v, t, words, n, path, phase);
	t->n_nodes = (uint32_t)nodes;
	t->n_ids = (uint32_t)n;
	sl_free(path);
	sl_free(phase);
	return ok ? 0 : SL_ENOMEM;
}

static void trie_dispose(struct trie *t)
{
	sl_free(t->nodes);
	sl_free(t->ids);
}

/* ---- slices ---- */

/* rest: room for n words. */
static int slice_build(const struct grammar_vocab *v, struct slice *s, const struct word *words, size_t n,
		       struct word *rest)
{
	size_t n_rest = 0;
	s->mask = sl_zalloc_n(v->words + 1, sizeof(*s->mask));
	if (s->mask == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (words[i].chars > s->max_chars || words[i].chars == NOT_PLAIN) {
			rest[n_rest++] = words[i];
			continue;
		}
		s->mask[(uint32_t)words[i].id / 32] |= (uint32_t)1 << ((uint32_t)words[i].id % 32);
		s->n_plain++;
	}
	return build(v, &s->rest, rest, n_rest);
}

static int slices_build(struct grammar_vocab *v, const struct word *words, size_t n, struct word *rest)
{
	static const uint32_t max_chars[N_SLICES] = {UINT32_MAX, 16, 8, 4};
	int rc = 0;
	for (int i = 0; i < N_SLICES && rc == 0; i++) {
		v->slices[i].max_chars = max_chars[i];
		rc = slice_build(v, &v->slices[i], words, n, rest);
	}
	return rc;
}

/* A counting sort. */
static int plain_build(struct grammar_vocab *v, const struct word *words, size_t n)
{
	struct plain_tokens *p = &v->plain;
	p->ids = sl_zalloc_n(n + 1, sizeof(*p->ids));
	if (p->ids == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (words[i].chars <= MAX_PLAIN)
			p->from[words[i].chars + 1]++;
	for (uint32_t k = 1; k <= MAX_PLAIN + 1; k++)
		p->from[k] += p->from[k - 1];
	uint32_t next[MAX_PLAIN + 2];
	memcpy(next, p->from, sizeof(next));
	for (size_t i = 0; i < n; i++)
		if (words[i].chars <= MAX_PLAIN)
			p->ids[next[words[i].chars]++] = words[i].id;
	return 0;
}

static int classes_build(struct grammar_vocab *v, const struct word *words, size_t n)
{
	for (unsigned k = 0; k < N_CLASSES; k++) {
		struct text_class *c = &v->classes[k];
		c->mask = sl_zalloc_n(v->words + 1, sizeof(*c->mask));
		if (c->mask == NULL)
			return SL_ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		uint8_t in = above_of(v, &words[i], words[i].n);
		uint32_t id = (uint32_t)words[i].id;
		for (unsigned k = 0; k < N_CLASSES; k++)
			if ((in >> k & 1) != 0) {
				v->classes[k].mask[id / 32] |= (uint32_t)1 << (id % 32);
				v->classes[k].n++;
				if (v->classes[k].longest < words[i].n)
					v->classes[k].longest = words[i].n;
			}
	}
	return 0;
}

static int longs_build(struct grammar_vocab *v, const struct word *words, size_t n)
{
	const uint32_t bytes[N_LONG] = {v->all.depth > 64 ? v->all.depth : 64, 64, 32, 16};
	for (int i = 0; i < N_LONG; i++) {
		struct long_tokens *l = &v->longs[i];
		l->bytes = bytes[i];
		l->ids = sl_zalloc_n(n + 1, sizeof(*l->ids));
		if (l->ids == NULL)
			return SL_ENOMEM;
		for (size_t k = 0; k < n; k++)
			if (words[k].n > l->bytes && (words[k].chars == NOT_PLAIN || words[k].chars > l->bytes))
				l->ids[l->n++] = words[k].id;
	}
	return 0;
}

/* There is always a boundary between a control token and text. */
static int pairs_build(struct grammar_vocab *v, const struct word *words, size_t n)
{
	v->pairs = sl_zalloc_n(65536 / 64, sizeof(*v->pairs));
	if (v->pairs == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 1; k < words[i].n && (uint8_t)words[i].at[0] != VOCAB_MARK; k++) {
			uint32_t pair = (uint32_t)(uint8_t)words[i].at[k - 1] << 8 | (uint8_t)words[i].at[k];
			v->pairs[pair / 64] |= (uint64_t)1 << (pair % 64);
		}
	return 0;
}

/* ---- lifetime ---- */

int grammar_vocab_create(const struct tokenizer *t, struct grammar_vocab **out)
{
	struct grammar_vocab *v = sl_zalloc(sizeof(*v));
	size_t most = (size_t)tokenizer_n_vocab(t);
	struct word *words = sl_zalloc_n(2 * most + 1, sizeof(*words));
	int rc = v != NULL && words != NULL ? 0 : SL_ENOMEM;
	if (rc == 0)
		rc = (v->marks = sl_alloc(marks_size(t) + 1)) != NULL ? 0 : SL_ENOMEM;
	if (v != NULL)
		v->refs = 1;
	if (rc == 0) {
		v->tok = t;
		v->words = (most + 31) / 32;
		classes_init(v->classes);
		size_t n = collect(t, words, v->marks);
		rc = build(v, &v->all, words, n);
		if (rc == 0)
			rc = slices_build(v, words, n, words + most);
		if (rc == 0)
			rc = plain_build(v, words, n);
		if (rc == 0)
			rc = classes_build(v, words, n);
		if (rc == 0)
			rc = longs_build(v, words, n);
		if (rc == 0)
			rc = pairs_build(v, words, n);
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
	sl_free(v->pairs);
	sl_free(v->marks);
	sl_free(v->plain.ids);
	for (int i = 0; i < N_CLASSES; i++)
		sl_free(v->classes[i].mask);
	for (int i = 0; i < N_LONG; i++)
		sl_free(v->longs[i].ids);
	for (int i = 0; i < N_SLICES; i++) {
		trie_dispose(&v->slices[i].rest);
		sl_free(v->slices[i].mask);
	}
	sl_free(v);
}

int32_t vocab_mark(const struct grammar_vocab *v, const char *word, size_t n)
{
	const struct trie_node *nodes = v->all.nodes;
	uint32_t at = 0, end = v->all.n_nodes;
	for (size_t i = 0; i < n; i++) {
		while (at < end && nodes[at].byte != (uint8_t)word[i])
			at = nodes[at].end;
		if (at == end)
			return -1;
		end = nodes[at].end;
		at++;
	}
	return n > 0 && nodes[at - 1].first < nodes[at].first ? v->all.ids[nodes[at - 1].first] : -1;
}

size_t grammar_vocab_mask_words(const struct grammar_vocab *v) { return v->words; }
