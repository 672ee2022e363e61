/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer: vocabulary, control tokens and the way from text to ids.
 *
 *   text → cut at added tokens → normalized → pre-tokens → merges or the best path → ids
 *
 * Ordinary text never yields a control token, not even where the merges would build its exact text: control tokens are
 * not in the vocabulary that merging uses, so no split can reach them. Tokens are stored as the bytes they mean:
 * decoded from GPT-2's notation, in which each byte is one printable character, or from SentencePiece's, where U+2581
 * is a space and <0x0A> a byte.
 *
 * Ownership: everything is copied; immutable after creation, shared by threads without locks.
 */
#include "engine/token/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "engine/token/bpe.h"
#include "engine/token/normalize.h"
#include "engine/token/pretokenize.h"
#include "engine/token/tokenizer_source.h"
#include "engine/token/unigram.h"
#include "engine/token/wordpiece.h"

struct token {
	const char *at;      /* in mem */
	const char *written; /* in mem: as it is found in text; of added tokens only */
	uint32_t n, n_written;
	uint8_t attr, flags;
	bool end;
};

/* Ids of tokens that are found by their text: by first byte, then longest first. */
struct written {
	int32_t *ids;
	size_t n;
	uint32_t from[257];
};

struct tokenizer {
	struct token *tokens;
	size_t n;
	char *mem;
	struct norm *norm;
	struct pretok *pretok;
	struct bpe *bpe; /* or */
	struct unigram *unigram;
	struct wordpiece *wordpiece;
	uint32_t *words; /* ids by their bytes, open addressed; NULL unless whole words count */
	size_t words_mask;
	struct written special; /* control and user-defined tokens, found in text */
	struct written inner;   /* found in what is to be merged; of TOK_INNER */
	int32_t bos, eos;
	int32_t before, after; /* of an input */
	bool add_bos, strips_space, twice;
};

enum { NO_WORD = 0xFFFFFFFFu };

void tok_ids_dispose(struct tok_ids *l)
{
	sl_free(l->ids);
	*l = (struct tok_ids){.max = l->max};
}

/* ---- GPT-2's notation: bytes as characters ---- */

/* Printable bytes are their own character; the others are U+0100 and up, in order. */
static bool byte_prints(unsigned b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

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

/* Decodes it into out (at least text.n bytes). False: text is not in this notation. */
static bool undo_writing(const struct byte_chars *m, struct proto_str text, char *out, size_t *n)
{
	*n = 0;
	for (size_t i = 0; i < text.n;) {
		uint32_t cp;
		int len = utf8_decode((const uint8_t *)text.at + i, text.n - i, &cp);
		if (len <= 0 || cp >= sizeof(m->byte_of) / sizeof(m->byte_of[0]) || m->byte_of[cp] < 0)
			return false;
		out[(*n)++] = (char)m->byte_of[cp];
		i += (size_t)len;
	}
	return true;
}

/* ---- creation ---- */

bool tok_split_merge(struct proto_str merge, struct proto_str half[2])
{
	const char *space = merge.n > 1 ? memchr(merge.at + 1, ' ', merge.n - 1) : NULL;
	if (space == NULL)
		return false;
	half[0] = (struct proto_str){merge.at, (size_t)(space - merge.at)};
	half[1] = (struct proto_str){space + 1, merge.n - half[0].n - 1};
	return true;
}

static bool is_special(const struct token *t) { return t->attr == TOK_CONTROL || t->attr == TOK_USER; }

int tok_byte_written(struct proto_str text)
{
	static const char digits[] = "0123456789ABCDEF";
	if (text.n != 6 || memcmp(text.at, "<0x", 3) != 0 || text.at[5] != '>')
		return -1;
	const char *hi = memchr(digits, text.at[3], 16), *lo = memchr(digits, text.at[4], 16);
	return hi != NULL && lo != NULL ? (int)((hi - digits) * 16 + (lo - digits)) : -1;
}

/* The meaning of a SentencePiece token; out has room for text.n bytes. */
static size_t undo_spaces(struct proto_str text, char *out)
{
	size_t n = 0;
	for (size_t i = 0; i < text.n;) {
		if (text.n - i >= 3 && memcmp(text.at + i, "\xE2\x96\x81", 3) == 0) {
			out[n++] = ' ';
			i += 3;
		} else {
			out[n++] = text.at[i++];
		}
	}
	return n;
}

static size_t undo(const struct tok_source *src, const struct byte_chars *chars, const struct token *tok,
		   struct proto_str text, char *out)
{
	size_t n;
	bool raw = src->kind == TOK_BPE_BYTES ? is_special(tok) : tok->attr == TOK_CONTROL;
	if (raw || (src->kind == TOK_BPE_BYTES && !undo_writing(chars, text, out, &n))) {
		/* The file has them as they are, and so it has tokens outside of the notation. */
		memcpy(out, text.at, text.n);
		return text.n;
	}
	if (src->kind == TOK_BPE_BYTES)
		return n;
	int byte = src->byte_fallback || tok->attr == TOK_BYTE ? tok_byte_written(text) : -1;
	if (byte < 0)
		return undo_spaces(text, out);
	out[0] = (char)byte;
	return 1;
}

static int copy_tokens(struct tokenizer *t, const struct tok_source *src, const struct byte_chars *chars,
		       struct sl_err *err)
{
	size_t total = 0;
	for (size_t i = 0; i < src->n_tokens; i++)
		if (__builtin_add_overflow(total, src->tokens[i].n, &total))
			return sl_errf(err, SL_EINVAL, "the vocabulary's texts are too long");
	t->tokens = sl_zalloc_n(src->n_tokens, sizeof(*t->tokens));
	t->mem = sl_alloc(2 * total + 1);
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
		*tok = (struct token){.at = at, .attr = (uint8_t)attr, .flags = src->flags != NULL ? src->flags[i] : 0};
		tok->n = (uint32_t)undo(src, chars, tok, text, at);
		at += tok->n;
		if (!is_special(tok) || text.n == 0)
			continue;
		memcpy(at, text.at, text.n);
		tok->written = at;
		tok->n_written = (uint32_t)text.n;
		at += text.n;
	}
	return 0;
}

/* Halves decoded from GPT-2's notation, in *mem; both to be freed. */
static int undo_halves(const struct tok_source *src, const struct byte_chars *chars, struct proto_str **out, char **mem,
		       struct sl_err *err)
{
	size_t total = 0;
	for (size_t i = 0; i < 2 * src->n_merges; i++)
		if (__builtin_add_overflow(total, src->halves[i].n, &total))
			return sl_errf(err, SL_EINVAL, "the merges' texts are too long");
	*out = sl_zalloc_n(src->n_merges + 1, 2 * sizeof **out);
	*mem = sl_alloc(total + 1);
	if (*out == NULL || *mem == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	char *at = *mem;
	for (size_t i = 0; i < 2 * src->n_merges; i++) {
		size_t n = 0;
		if (src->halves[i].n == 0 || !undo_writing(chars, src->halves[i], at, &n))
			return sl_errf(err, SL_EINVAL, "merge %zu is malformed", i / 2);
		(*out)[i] = (struct proto_str){at, n};
		at += n;
	}
	return 0;
}

/* What ordinary text can become, in the model's own alphabet. */
static struct proto_str ordinary(const struct tokenizer *t, const struct tok_source *src, size_t i)
{
	if (t->tokens[i].attr != TOK_NORMAL && t->tokens[i].attr != TOK_USER)
		return (struct proto_str){0};
	if (src->as_library && t->tokens[i].attr == TOK_USER && (t->tokens[i].flags & TOK_INNER) == 0)
		return (struct proto_str){0};
	if (src->kind == TOK_BPE_BYTES)
		return (struct proto_str){t->tokens[i].at, t->tokens[i].n};
	if (src->byte_fallback && tok_byte_written(src->tokens[i]) >= 0)
		return (struct proto_str){0};
	return src->tokens[i];
}

static void find_bytes(const struct tok_source *src, int32_t byte_tokens[256])
{
	for (int i = 0; i < 256; i++)
		byte_tokens[i] = -1;
	for (size_t i = 0; i < src->n_tokens; i++) {
		int byte = tok_byte_written(src->tokens[i]);
		if (byte >= 0)
			byte_tokens[byte] = (int32_t)i;
	}
}

static int create_bpe(struct tokenizer *t, const struct tok_source *src, const struct byte_chars *chars,
		      const struct proto_str *texts, const int32_t *byte_tokens, struct sl_err *err)
{
	struct bpe_source b = {.tokens = texts,
			       .n_tokens = t->n,
			       .halves = src->halves,
			       .n_merges = src->n_merges,
			       .scores = src->scores,
			       .chars = src->kind == TOK_BPE_CHARS,
			       .byte_tokens = src->byte_fallback ? byte_tokens : NULL,
			       .fuse_unknown = src->fuse_unknown,
			       .unknown = src->unknown};
	struct proto_str *halves = NULL;
	char *mem = NULL;
	int rc = 0;
	if (src->kind == TOK_BPE_BYTES) {
		rc = undo_halves(src, chars, &halves, &mem, err);
		b.halves = halves;
	}
	if (rc == 0)
		rc = bpe_create(&b, &t->bpe, err);
	sl_free(halves);
	sl_free(mem);
	return rc;
}

static int create_model(struct tokenizer *t, const struct tok_source *src, const struct byte_chars *chars,
			struct sl_err *err)
{
	int32_t byte_tokens[256];
	struct proto_str *texts = sl_zalloc_n(t->n, sizeof(*texts));
	if (texts == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	for (size_t i = 0; i < t->n; i++)
		texts[i] = ordinary(t, src, i);
	find_bytes(src, byte_tokens);
	int rc;
	if (src->kind == TOK_UNIGRAM) {
		struct unigram_source u = {.tokens = texts,
					   .scores = src->scores,
					   .n_tokens = t->n,
					   .attrs = src->as_library ? src->attrs : NULL,
					   .unknown = src->unknown,
					   .byte_tokens = src->byte_fallback ? byte_tokens : NULL};
		rc = unigram_create(&u, &t->unigram, err);
	} else if (src->kind == TOK_WORDPIECE) {
		struct wordpiece_source w = {.tokens = texts,
					     .n_tokens = t->n,
					     .prefix = src->word_prefix,
					     .prefix_begins = src->prefix_begins,
					     .max_chars = src->max_word_chars,
					     .unknown = src->unknown};
		rc = wordpiece_create(&w, &t->wordpiece, err);
	} else {
		rc = create_bpe(t, src, chars, texts, byte_tokens, err);
	}
	sl_free(texts);
	return rc;
}

static size_t word_slot(const struct tokenizer *t, const char *at, size_t n)
{
	size_t i = XXH3_64bits(at, n) & t->words_mask;
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
	if (x->written[0] != y->written[0])
		return (uint8_t)x->written[0] < (uint8_t)y->written[0] ? -1 : 1;
	if (x->n_written != y->n_written)
		return x->n_written > y->n_written ? -1 : 1;
	return ia < ib ? -1 : 1;
}

static bool is_found(const struct token *tok, bool inner)
{
	return tok->n_written > 0 && ((tok->flags & TOK_INNER) != 0) == inner;
}

static int index_written(struct tokenizer *t, struct written *w, bool inner, struct sl_err *err)
{
	size_t n = 0;
	for (size_t i = 0; i < t->n; i++)
		n += is_found(&t->tokens[i], inner);
	w->ids = sl_zalloc_n(n + 1, sizeof(*w->ids));
	if (w->ids == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the vocabulary");
	for (size_t i = 0; i < t->n; i++)
		if (is_found(&t->tokens[i], inner))
			w->ids[w->n++] = (int32_t)i;
	qsort_r(w->ids, n, sizeof(*w->ids), by_first_then_longest, t);
	size_t k = 0;
	for (unsigned first = 0; first <= 256; first++) {
		while (k < n && (uint8_t)t->tokens[w->ids[k]].written[0] < first)
			k++;
		w->from[first] = (uint32_t)(first == 256 ? n : k);
	}
	return 0;
}

/* Tokens that end a turn in some family's template, by their text: files often name only one. */
static const char *const turn_ends[] = {"<|im_end|>", "<|eot_id|>",      "<|endoftext|>",
					"</s>",       "<|end_of_text|>", "<|end|>"};
/* Harmony's answers are several messages, each with an <|end|>. */
static const char *const message_ends[] = {"<|return|>", "<|call|>", "<|endoftext|>"};

static bool is_one_of(const struct token *tok, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (tok->attr == TOK_CONTROL && tok->n == strlen(names[i]) && memcmp(tok->at, names[i], tok->n) == 0)
			return true;
	return false;
}

static void mark_ends(struct tokenizer *t, const struct tok_source *src)
{
	const char *const *names = turn_ends;
	size_t n = sizeof(turn_ends) / sizeof(*turn_ends);
	for (size_t i = 0; i < t->n; i++)
		if (is_one_of(&t->tokens[i], message_ends, 1)) {
			names = message_ends;
			n = sizeof(message_ends) / sizeof(*message_ends);
		}
	for (size_t i = 0; i < t->n; i++)
		if (is_one_of(&t->tokens[i], names, n))
			t->tokens[i].end = true;
	if (src->eos >= 0)
		t->tokens[src->eos].end = true;
	if (src->eot >= 0)
		t->tokens[src->eot].end = true;
}

static int check_source(const struct tok_source *src, struct sl_err *err)
{
	if (src->n_tokens == 0 || src->n_tokens > 1u << 24)
		return sl_errf(err, SL_EINVAL, "a vocabulary of %zu tokens", src->n_tokens);
	const struct {
		const char *name;
		int32_t id;
	} ids[] = {{"bos", src->bos},         {"eos", src->eos},        {"eot", src->eot},
		   {"unknown", src->unknown}, {"leading", src->before}, {"trailing", src->after}};
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (ids[i].id < -1 || (ids[i].id >= 0 && (size_t)ids[i].id >= src->n_tokens))
			return sl_errf(err, SL_EINVAL, "the %s token %d is not in the vocabulary of %zu", ids[i].name,
				       ids[i].id, src->n_tokens);
	if (src->add_bos == 1 && src->bos < 0)
		return sl_errf(err, SL_EINVAL, "prompts are to begin with bos, but there is none");
	if (src->scores == NULL && (src->kind == TOK_UNIGRAM || (src->kind == TOK_BPE_CHARS && !src->halves)))
		return sl_errf(err, SL_EINVAL, "the vocabulary has no scores");
	for (size_t i = 0; src->scores != NULL && i < src->n_tokens; i++)
		if (src->scores[i] - src->scores[i] != 0)
			return sl_errf(err, SL_EINVAL, "token %zu's score is not a finite number", i);
	if ((src->kind == TOK_UNIGRAM || src->kind == TOK_WORDPIECE) && src->unknown < 0)
		return sl_errf(err, SL_EINVAL, "the vocabulary has no token for unknown text");
	if (src->kind != TOK_BPE_BYTES && src->pretok != NULL && pretok_whole_words(src->pretok))
		return sl_errf(err, SL_EUNSUPPORTED, "whole words before merges are supported for bytes only");
	return 0;
}

int tokenizer_create_from(const struct tok_source *src, struct tokenizer **out, struct sl_err *err)
{
	struct tokenizer *t = sl_zalloc(sizeof(*t));
	if (t == NULL) {
		norm_destroy(src->norm);
		pretok_destroy(src->pretok);
		return sl_errf(err, SL_ENOMEM, "no memory for the tokenizer");
	}
	t->norm = src->norm;
	t->pretok = src->pretok;
	struct byte_chars chars;
	byte_chars_fill(&chars);
	int rc = check_source(src, err);
	if (rc == 0 && t->pretok == NULL && pretok_create_empty(&t->pretok) != 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the tokenizer");
	if (rc == 0)
		rc = copy_tokens(t, src, &chars, err);
	if (rc == 0)
		rc = create_model(t, src, &chars, err);
	if (rc == 0 && pretok_whole_words(t->pretok))
		rc = index_words(t, err);
	if (rc == 0)
		rc = index_written(t, &t->special, false, err);
	if (rc == 0)
		rc = index_written(t, &t->inner, true, err);
	if (rc != 0) {
		tokenizer_destroy(t);
		return rc;
	}
	mark_ends(t, src);
	t->bos = src->bos;
	t->eos = src->eos;
	t->add_bos = src->bos >= 0 && (src->add_bos >= 0 ? src->add_bos : pretok_adds_bos(t->pretok));
	t->strips_space = src->strips_space;
	t->before = src->before >= 0 ? src->before : t->add_bos ? t->bos : -1;
	t->after = src->after;
	t->twice = src->twice;
	*out = t;
	return 0;
}

void tokenizer_destroy(struct tokenizer *t)
{
	if (t == NULL)
		return;
	norm_destroy(t->norm);
	pretok_destroy(t->pretok);
	bpe_destroy(t->bpe);
	unigram_destroy(t->unigram);
	wordpiece_destroy(t->wordpiece);
	sl_free(t->tokens);
	sl_free(t->mem);
	sl_free(t->words);
	sl_free(t->special.ids);
	sl_free(t->inner.ids);
	sl_free(t);
}

/* ---- encoding ---- */

struct encoding {
	const struct tokenizer *t;
	struct bpe_scratch scratch;
	struct sl_buf normal; /* a segment, normalized */
	struct tok_ids *out;
};

static bool is_word_byte(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (uint8_t)c >= 0x80;
}

/* The longest of w's tokens at text[i]; control tokens only within trusted bytes. -1: none. */
static int32_t match_written(const struct tokenizer *t, const struct written *w, const char *text, size_t n, size_t i,
			     size_t trusted_to)
{
	unsigned first = (uint8_t)text[i];
	for (uint32_t k = w->from[first]; k < w->from[first + 1]; k++) {
		const struct token *tok = &t->tokens[w->ids[k]];
		size_t most = tok->attr == TOK_CONTROL ? trusted_to : n, end = i + tok->n_written;
		if (end > most || memcmp(tok->written, text + i, tok->n_written) != 0)
			continue;
		if ((tok->flags & TOK_SINGLE_WORD) != 0 &&
		    ((i > 0 && is_word_byte(text[i - 1])) || (end < n && is_word_byte(text[end]))))
			continue;
		return w->ids[k];
	}
	return -1;
}

/* Merges what is between inner tokens. */
static int merge_between(struct encoding *e, const char *piece, size_t n)
{
	size_t begin = 0, i = 0;
	int rc = 0;
	while (i < n && rc == 0) {
		int32_t id = match_written(e->t, &e->t->inner, piece, n, i, 0);
		if (id < 0) {
			i++;
			continue;
		}
		if (i > begin)
			rc = bpe_encode(e->t->bpe, &e->scratch, piece + begin, i - begin, e->out);
		if (rc == 0)
			rc = tok_ids_push(e->out, id);
		begin = i += e->t->tokens[id].n_written;
	}
	return rc == 0 && n > begin ? bpe_encode(e->t->bpe, &e->scratch, piece + begin, n - begin, e->out) : rc;
}

static int encode_piece(void *arg, const char *piece, size_t n)
{
	struct encoding *e = arg;
	if (e->t->words != NULL) {
		uint32_t id = e->t->words[word_slot(e->t, piece, n)];
		if (id != NO_WORD)
			return tok_ids_push(e->out, (int32_t)id);
	}
	if (e->t->wordpiece != NULL)
		return wordpiece_encode(e->t->wordpiece, piece, n, e->out);
	if (e->t->unigram != NULL)
		return unigram_encode(e->t->unigram, piece, n, e->out);
	return e->t->inner.n > 0 ? merge_between(e, piece, n) : bpe_encode(e->t->bpe, &e->scratch, piece, n, e->out);
}

/* Text between added tokens; first: it begins the whole text. */
static int encode_segment(struct encoding *e, const char *text, size_t n, bool first)
{
	if (n == 0)
		return 0;
	if (!norm_is_empty(e->t->norm)) {
		int rc = norm_apply(e->t->norm, text, n, &e->normal);
		if (rc != 0)
			return rc;
		text = (const char *)buf_data(&e->normal);
		n = e->normal.len;
	}
	return pretok_split(e->t->pretok, text, n, first, encode_piece, e);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int encode_all(struct encoding *e, const char *text, size_t n, const uint8_t *trust)
{
	const struct tokenizer *t = e->t;
	size_t begin = 0, i = 0, trusted_to = 0;
	while (i < n) {
		unsigned byte = (uint8_t)text[i];
		if (t->special.from[byte] == t->special.from[byte + 1]) {
			i++;
			continue;
		}
		if (trust != NULL && trusted_to <= i && trust[i])
			for (trusted_to = i + 1; trusted_to < n && trust[trusted_to];)
				trusted_to++;
		int32_t id = match_written(t, &t->special, text, n, i, trusted_to > i ? trusted_to : i);
		if (id < 0) {
			i++;
			continue;
		}
		const struct token *tok = &t->tokens[id];
		size_t end = i;
		while ((tok->flags & TOK_LSTRIP) != 0 && end > begin && is_space(text[end - 1]))
			end--;
		int rc = encode_segment(e, text + begin, end - begin, begin == 0);
		if (rc == 0)
			rc = tok_ids_push(e->out, id);
		if (rc != 0)
			return rc;
		i += tok->n_written;
		while ((tok->flags & TOK_RSTRIP) != 0 && i < n && is_space(text[i]))
			i++;
		begin = i;
	}
	return encode_segment(e, text + begin, n - begin, begin == 0);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const uint8_t *trust, struct tok_ids *out)
{
	struct encoding e = {.t = t, .out = out};
	size_t before = out->n, max;
	/* The longest that a character becomes in any normal form is 18 of its own length. */
	if (__builtin_mul_overflow(n, (size_t)18, &max) || __builtin_add_overflow(max, (size_t)1024, &max))
		return SL_ELIMIT;
	buf_init(&e.normal, max);
	int rc = encode_all(&e, text, n, trust);
	if (rc != 0)
		out->n = before;
	bpe_scratch_dispose(&e.scratch);
	buf_dispose(&e.normal);
	return rc;
}

int tokenizer_encode_input(const struct tokenizer *t, const struct proto_str *texts, int n_texts, struct tok_ids *out,
			   size_t *n_first)
{
	int rc = t->before >= 0 ? tok_ids_push(out, t->before) : 0;
	for (int i = 0; i < n_texts && rc == 0; i++) {
		if (i > 0 && t->twice && t->after >= 0)
			rc = tok_ids_push(out, t->after);
		if (rc == 0)
			rc = tokenizer_encode(t, texts[i].at, texts[i].n, NULL, out);
		if (rc == 0 && t->after >= 0)
			rc = tok_ids_push(out, t->after);
		if (i == 0)
			*n_first = out->n;
	}
	return rc;
}

int tokenizer_pad(struct tokenizer *t, size_t n)
{
	if (n <= t->n)
		return 0;
	struct token *grown = n <= 1u << 24 ? sl_realloc_n(t->tokens, n, sizeof *grown) : NULL;
	if (grown == NULL)
		return SL_ENOMEM;
	for (size_t i = t->n; i < n; i++)
		grown[i] = (struct token){.at = t->mem, .attr = TOK_UNUSED};
	t->tokens = grown;
	t->n = n;
	return 0;
}

void tokenizer_mark_end(struct tokenizer *t, int32_t id)
{
	if (id >= 0 && (size_t)id < t->n)
		t->tokens[id].end = true;
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

int tokenizer_n_vocab(const struct tokenizer *t) { return (int)t->n; }

uint64_t tokenizer_digest(const struct tokenizer *t)
{
	uint64_t digest = t->n;
	for (int32_t id = 0; id < (int32_t)t->n; id++) {
		struct proto_str bytes = tokenizer_bytes(t, id);
		uint32_t is[] = {(uint32_t)bytes.n, (uint32_t)tokenizer_attr(t, id), tokenizer_is_end(t, id)};
		digest = XXH64(bytes.at, bytes.n, XXH64(is, sizeof is, digest));
	}
	return digest != 0 ? digest : 1;
}

struct proto_str tokenizer_bytes(const struct tokenizer *t, int32_t id)
{
	const struct token *tok = token_of(t, id);
	return (struct proto_str){tok->at, tok->n};
}

enum tok_attr tokenizer_attr(const struct tokenizer *t, int32_t id) { return (enum tok_attr)token_of(t, id)->attr; }

bool tokenizer_is_end(const struct tokenizer *t, int32_t id) { return token_of(t, id)->end; }

bool tokenizer_strips_space(const struct tokenizer *t) { return t->strips_space; }

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }

int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
