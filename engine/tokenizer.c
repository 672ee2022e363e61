/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer: vocabulary, control tokens and the way from text to ids.
 *
 *   text → cut at control tokens (trusted bytes only) → pre-tokens → byte pair merges → ids
 *
 * A control or user-defined token never comes out of ordinary text, not even where the merges would
 * build its very text: such tokens are kept out of the vocabulary that merging uses, so no trick
 * with the split can reach them. Tokens are stored as bytes, undone from GPT-2's writing, in which
 * each byte stands for one printable character.
 *
 * Ownership: everything is copied; immutable after creation, shared by threads without locks.
 */
#include "engine/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "engine/bpe.h"
#include "engine/pretokenize.h"
#include "engine/tokenizer_source.h"

struct token {
	const char *at; /* in mem */
	uint32_t n;
	uint8_t attr;
	bool end;
};

struct tokenizer {
	struct token *tokens;
	size_t n;
	char *mem;
	struct pretok *pretok;
	struct bpe *bpe;
	uint32_t *words; /* ids by their bytes, open addressed; NULL unless whole words count */
	size_t words_mask;
	int32_t *special; /* ids of control and user-defined tokens: by first byte, then longest first */
	uint32_t special_from[257];
	int32_t bos, eos;
	bool add_bos;
};

enum { NO_WORD = 0xFFFFFFFFu };

void tok_ids_dispose(struct tok_ids *l)
{
	sl_free(l->ids);
	*l = (struct tok_ids){.max = l->max};
}

/* ---- the writing of bytes as characters ---- */

/* Bytes that print stand for themselves; the others, in order, for U+0100 and on. */
static bool byte_prints(unsigned b)
{
	return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

struct byte_chars {
	int16_t byte_of[0x144]; /* by code point; -1: none */
};

static void byte_chars_fill(struct byte_chars *m)
{
	memset(m, 0xFF, sizeof(*m));
	int16_t next = 0x100;
	for (unsigned b = 0; b < 256; b++)
		m->byte_of[byte_prints(b) ? (int16_t)b : next++] = (int16_t)b;
}

/* Undoes the writing into out (at least text.n bytes). False when text is not written so. */
static bool undo_writing(const struct byte_chars *m, struct proto_str text, char *out, size_t *n)
{
	*n = 0;
	for (size_t i = 0; i < text.n;) {
		uint32_t cp;
		int len = utf8_decode((const uint8_t *)text.at + i, text.n - i, &cp);
		if (len <= 0 || cp >= sizeof(m->byte_of) / sizeof(m->byte_of[0]) ||
		    m->byte_of[cp] < 0)
			return false;
		out[(*n)++] = (char)m->byte_of[cp];
		i += (size_t)len;
	}
	return true;
}

/* ---- creation ---- */

static bool is_special(const struct token *t)
{
	return t->attr == TOK_CONTROL || t->attr == TOK_USER;
}

static int copy_tokens(struct tokenizer *t, const struct tok_source *src,
		       const struct byte_chars *chars, struct sl_err *err)
{
	size_t total = 0;
	for (size_t i = 0; i < src->n_tokens; i++)
		if (__builtin_add_overflow(total, src->tokens[i].n, &total))
			return sl_errf(err, SL_EINVAL, "the vocabulary's texts are too long");
	t->tokens = sl_zalloc_n(src->n_tokens, sizeof(*t->tokens));
	t->mem = sl_alloc(total + 1);
	if (t->tokens == NULL || t->mem == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	t->n = src->n_tokens;
	char *at = t->mem;
	for (size_t i = 0; i < t->n; i++) {
		const struct proto_str text = src->tokens[i];
		int32_t attr = src->attrs ? src->attrs[i] : TOK_NORMAL;
		if (attr < TOK_NORMAL || attr > TOK_BYTE)
			return sl_errf(err, SL_EINVAL, "token %zu has the unknown type %d", i, attr);
		if (text.n > UINT16_MAX)
			return sl_errf(err, SL_EINVAL, "token %zu is %zu bytes long", i, text.n);
		struct token *tok = &t->tokens[i];
		*tok = (struct token){.at = at, .attr = (uint8_t)attr};
		size_t n = text.n;
		/* Control tokens stand in the file as they are, and so does what isn't written so. */
		if (is_special(tok) || !undo_writing(chars, text, at, &n)) {
			memcpy(at, text.at, text.n);
			n = text.n;
		}
		tok->n = (uint32_t)n;
		at += n;
	}
	return 0;
}

static int create_bpe(struct tokenizer *t, const struct tok_source *src,
		      const struct byte_chars *chars, struct sl_err *err)
{
	size_t total = 0;
	for (size_t i = 0; i < src->n_merges; i++)
		if (__builtin_add_overflow(total, src->merges[i].n, &total))
			return sl_errf(err, SL_EINVAL, "the merges' texts are too long");
	struct proto_str *texts = sl_zalloc_n(t->n, sizeof(*texts));
	struct proto_str *halves = sl_zalloc_n(src->n_merges + 1, 2 * sizeof(*halves));
	char *mem = sl_alloc(total + 1), *at = mem;
	int rc = 0;
	if (texts == NULL || halves == NULL || mem == NULL)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	for (size_t i = 0; i < t->n && rc == 0; i++)
		if (t->tokens[i].attr == TOK_NORMAL)
			texts[i] = (struct proto_str){t->tokens[i].at, t->tokens[i].n};
	for (size_t i = 0; i < src->n_merges && rc == 0; i++) {
		struct proto_str m = src->merges[i];
		const char *space = m.n > 1 ? memchr(m.at + 1, ' ', m.n - 1) : NULL;
		size_t left = space ? (size_t)(space - m.at) : 0;
		struct proto_str half[2] = {{m.at, left}, {m.at + left + 1, m.n - left - 1}};
		for (int h = 0; h < 2 && rc == 0; h++) {
			size_t n = 0;
			if (space == NULL || half[h].n == 0 ||
			    !undo_writing(chars, half[h], at, &n))
				rc = sl_errf(err, SL_EINVAL, "merge %zu is malformed", i);
			halves[2 * i + (size_t)h] = (struct proto_str){at, n};
			at += n;
		}
	}
	if (rc == 0) {
		struct bpe_source b = {.tokens = texts,
				       .n_tokens = t->n,
				       .halves = halves,
				       .n_merges = src->n_merges,
				       .unknown = src->unknown};
		rc = bpe_create(&b, &t->bpe, err);
	}
	sl_free(texts);
	sl_free(halves);
	sl_free(mem);
	return rc;
}

static size_t word_slot(const struct tokenizer *t, const char *at, size_t n)
{
	uint64_t h = 0xCBF29CE484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)at[i]) * 0x100000001B3u;
	size_t i = (h ^ h >> 29) & t->words_mask;
	while (t->words[i] != NO_WORD) {
		const struct token *tok = &t->tokens[t->words[i]];
		if (tok->n == n && memcmp(tok->at, at, n) == 0)
			break;
		i = (i + 1) & t->words_mask;
	}
	return i;
}

static int index_words(struct tokenizer *t, struct sl_err *err)
{
	size_t slots = 16;
	while (slots < t->n * 2)
		slots *= 2;
	t->words = sl_zalloc_n(slots, sizeof(*t->words));
	if (t->words == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	memset(t->words, 0xFF, slots * sizeof(*t->words));
	t->words_mask = slots - 1;
	for (size_t i = 0; i < t->n; i++)
		if (t->tokens[i].attr == TOK_NORMAL && t->tokens[i].n > 0)
			t->words[word_slot(t, t->tokens[i].at, t->tokens[i].n)] = (uint32_t)i;
	return 0;
}

static int by_first_then_longest(const void *a, const void *b, void *arg)
{
	const struct tokenizer *t = arg;
	int32_t ia = *(const int32_t *)a, ib = *(const int32_t *)b;
	const struct token *x = &t->tokens[ia], *y = &t->tokens[ib];
	if (x->at[0] != y->at[0])
		return (uint8_t)x->at[0] < (uint8_t)y->at[0] ? -1 : 1;
	if (x->n != y->n)
		return x->n > y->n ? -1 : 1;
	return ia < ib ? -1 : 1;
}

static int index_special(struct tokenizer *t, struct sl_err *err)
{
	size_t n = 0;
	for (size_t i = 0; i < t->n; i++)
		n += is_special(&t->tokens[i]) && t->tokens[i].n > 0;
	t->special = sl_zalloc_n(n + 1, sizeof(*t->special));
	if (t->special == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	n = 0;
	for (size_t i = 0; i < t->n; i++)
		if (is_special(&t->tokens[i]) && t->tokens[i].n > 0)
			t->special[n++] = (int32_t)i;
	qsort_r(t->special, n, sizeof(*t->special), by_first_then_longest, t);
	size_t k = 0;
	for (unsigned first = 0; first <= 256; first++) {
		while (k < n && (uint8_t)t->tokens[t->special[k]].at[0] < first)
			k++;
		t->special_from[first] = (uint32_t)(first == 256 ? n : k);
	}
	return 0;
}

/* Tokens that end a turn in some family's template, by their text: files often name only one. */
static void mark_ends(struct tokenizer *t, const struct tok_source *src)
{
	static const char *const names[] = {"<|im_end|>",    "<|eot_id|>", "<|end|>",
					    "<|endoftext|>", "</s>",       "<|end_of_text|>"};
	for (size_t i = 0; i < t->n; i++) {
		struct token *tok = &t->tokens[i];
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			if (tok->attr == TOK_CONTROL && tok->n == strlen(names[k]) &&
			    memcmp(tok->at, names[k], tok->n) == 0)
				tok->end = true;
	}
	if (src->eos >= 0)
		t->tokens[src->eos].end = true;
	if (src->eot >= 0)
		t->tokens[src->eot].end = true;
}

static int check_source(const struct tok_source *src, struct sl_err *err)
{
	if (src->model.n != 4 || memcmp(src->model.at, "gpt2", 4) != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "tokenizer model \"%.*s\" is not supported",
			       src->model.n < 64 ? (int)src->model.n : 64, src->model.at);
	if (src->n_tokens == 0 || src->n_tokens > 1u << 24)
		return sl_errf(err, SL_EINVAL, "a vocabulary of %zu tokens", src->n_tokens);
	const struct {
		const char *name;
		int32_t id;
	} ids[] = {{"bos", src->bos}, {"eos", src->eos}, {"eot", src->eot}, {"unknown", src->unknown}};
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (ids[i].id < -1 || (ids[i].id >= 0 && (size_t)ids[i].id >= src->n_tokens))
			return sl_errf(err, SL_EINVAL, "the %s token %d is not in the vocabulary of %zu",
				       ids[i].name, ids[i].id, src->n_tokens);
	if (src->add_bos == 1 && src->bos < 0)
		return sl_errf(err, SL_EINVAL, "prompts are to begin with bos, but there is none");
	return 0;
}

int tokenizer_create_from(const struct tok_source *src, struct tokenizer **out, struct sl_err *err)
{
	int rc = check_source(src, err);
	if (rc != 0)
		return rc;
	struct tokenizer *t = sl_zalloc(sizeof(*t));
	if (t == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the tokenizer");
	struct byte_chars chars;
	byte_chars_fill(&chars);
	rc = pretok_create(src->pre, &t->pretok, err);
	if (rc == 0)
		rc = copy_tokens(t, src, &chars, err);
	if (rc == 0)
		rc = create_bpe(t, src, &chars, err);
	if (rc == 0 && pretok_whole_words(t->pretok))
		rc = index_words(t, err);
	if (rc == 0)
		rc = index_special(t, err);
	if (rc != 0) {
		tokenizer_destroy(t);
		return rc;
	}
	mark_ends(t, src);
	t->bos = src->bos;
	t->eos = src->eos;
	t->add_bos = src->bos >= 0 && (src->add_bos >= 0 ? src->add_bos : pretok_adds_bos(t->pretok));
	*out = t;
	return 0;
}

void tokenizer_destroy(struct tokenizer *t)
{
	if (t == NULL)
		return;
	pretok_destroy(t->pretok);
	bpe_destroy(t->bpe);
	sl_free(t->tokens);
	sl_free(t->mem);
	sl_free(t->words);
	sl_free(t->special);
	sl_free(t);
}

/* ---- encoding ---- */

struct encoding {
	const struct tokenizer *t;
	struct bpe_scratch scratch;
	struct tok_ids *out;
};

static int encode_piece(void *arg, const char *piece, size_t n)
{
	struct encoding *e = arg;
	if (e->t->words != NULL) {
		uint32_t id = e->t->words[word_slot(e->t, piece, n)];
		if (id != NO_WORD)
			return tok_ids_push(e->out, (int32_t)id);
	}
	return bpe_encode(e->t->bpe, &e->scratch, piece, n, e->out);
}

/* The longest special token at the beginning of n trusted bytes; -1: none. */
static int32_t match_special(const struct tokenizer *t, const char *at, size_t n)
{
	unsigned first = (uint8_t)at[0];
	for (uint32_t k = t->special_from[first]; k < t->special_from[first + 1]; k++) {
		const struct token *tok = &t->tokens[t->special[k]];
		if (tok->n <= n && memcmp(tok->at, at, tok->n) == 0)
			return t->special[k];
	}
	return -1;
}

static int encode_all(struct encoding *e, const char *text, size_t n, const uint8_t *trust)
{
	const struct tokenizer *t = e->t;
	size_t begin = 0, i = 0, trusted_to = 0;
	while (trust != NULL && i < n) {
		if (!trust[i]) {
			i++;
			continue;
		}
		if (trusted_to <= i)
			for (trusted_to = i + 1; trusted_to < n && trust[trusted_to];)
				trusted_to++;
		int32_t id = match_special(t, text + i, trusted_to - i);
		if (id < 0) {
			i++;
			continue;
		}
		int rc = pretok_split(t->pretok, text + begin, i - begin, encode_piece, e);
		if (rc == 0)
			rc = tok_ids_push(e->out, id);
		if (rc != 0)
			return rc;
		i += t->tokens[id].n;
		begin = i;
	}
	return pretok_split(t->pretok, text + begin, n - begin, encode_piece, e);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const uint8_t *trust,
		     struct tok_ids *out)
{
	struct encoding e = {.t = t, .out = out};
	size_t before = out->n;
	int rc = encode_all(&e, text, n, trust);
	if (rc != 0)
		out->n = before;
	bpe_scratch_dispose(&e.scratch);
	return rc;
}

int tokenizer_add_bos(const struct tokenizer *t, struct tok_ids *out)
{
	return t->add_bos ? tok_ids_push(out, t->bos) : 0;
}

/* ---- questions ---- */

static const struct token *token_of(const struct tokenizer *t, int32_t id)
{
	BUG_IF(id < 0 || (size_t)id >= t->n, "token %d of a vocabulary of %zu", id, t->n);
	return &t->tokens[id];
}

int tokenizer_n_vocab(const struct tokenizer *t)
{
	return (int)t->n;
}

struct proto_str tokenizer_bytes(const struct tokenizer *t, int32_t id)
{
	const struct token *tok = token_of(t, id);
	return (struct proto_str){tok->at, tok->n};
}

enum tok_attr tokenizer_attr(const struct tokenizer *t, int32_t id)
{
	return (enum tok_attr)token_of(t, id)->attr;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
	return token_of(t, id)->end;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
	return t->eos;
}
