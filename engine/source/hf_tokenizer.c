/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json as GGUF's tokenizer keys, for converted files. The JSON is scanned in its mapping; its strings are
 * borrowed from there.
 *
 * GGUF can express two kinds: byte-level BPE ("gpt2": tokens, merges, and the name of a known pre-tokenizer, found by
 * its pattern), and SentencePiece's BPE with byte fallback ("llama": tokens with scores; the pair whose token has the
 * best score is merged first, so a token's score is minus the rank of the first merge that makes it).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_scan.h"
#include "engine/source/arch_read.h"
#include "engine/file/map_file.h"
#include "engine/file/name_index.h"
#include "engine/source/hf_spm.h"
#include "engine/source/quantize_model.h"

enum { MAX_MERGES = 1 << 22 };

struct vocab {
	const struct hf_folder *folder;
	struct gguf_writer *w;
	struct sl_err *err;
	int n;                    /* rows of the weights; while counting: one more than the highest id */
	struct proto_str *tokens; /* [n], raw; .at NULL: none. NULL: ids are only counted */
	int32_t *types;           /* [n], GGUF's */
	float *scores;            /* [n] */
	uint32_t *by_text;        /* [n] ids sorted by normal_text, for the merges */
	struct proto_str merges;  /* the array's text */
	struct proto_str pre, normalizer, post, kind, unknown;
	bool byte_fallback, ignore_merges;
};

static const struct proto_str none = {.at = NULL, .n = 0};

static int fault(const struct vocab *v, int code, const char *what)
{
	return sl_errf(v->err, code, "%s/tokenizer.json: %s", hf_path(v->folder), what);
}

static bool contains(struct proto_str s, const char *word)
{
	return s.at != NULL && memmem(s.at, s.n, word, strlen(word)) != NULL;
}

/* The text of the next value, skipped. */
static struct proto_str span(struct json_scan *j)
{
	json_scan_peek(j);
	const char *begin = j->at;
	json_scan_skip(j);
	return (struct proto_str){.at = begin, .n = (size_t)(j->at - begin)};
}

static int set_token(struct vocab *v, uint64_t id, struct proto_str raw, int32_t type)
{
	if (v->tokens == NULL) {
		if (id < ARCH_MAX_VOCAB && id >= (uint64_t)v->n)
			v->n = (int)id + 1;
		return 0;
	}
	if (id >= (uint64_t)v->n)
		return sl_errf(v->err, SL_EINVAL, "%s/tokenizer.json: token %llu, but the weights have %d rows",
			       hf_path(v->folder), (unsigned long long)id, v->n);
	v->tokens[id] = raw;
	v->types[id] = type;
	return 0;
}

/* ---- walking the file ---- */

static int scan_vocab(struct vocab *v, struct json_scan *j)
{
	struct proto_str key;
	uint64_t id = 0;
	int rc = 0;
	if (json_scan_peek(j) != '{' && v->tokens != NULL)
		return fault(v, SL_EUNSUPPORTED, "its model's vocabulary is not one of BPE");
	if (json_scan_peek(j) != '{') { /* Unigram: a list of pieces */
		json_scan_array(j);
		while (json_scan_item(j) && json_scan_skip(j))
			rc = set_token(v, id++, none, 1);
		return rc;
	}
	json_scan_object(j);
	while (rc == 0 && json_scan_key(j, &key) && json_scan_uint(j, &id)) {
		/* added_tokens takes precedence. */
		if (v->tokens != NULL && id < (uint64_t)v->n && v->tokens[id].at != NULL)
			continue;
		bool is_byte = key.n == 6 && memcmp(key.at, "<0x", 3) == 0 && key.at[5] == '>';
		rc = set_token(v, id, key, is_byte ? 6 : 1);
	}
	return rc;
}

static int scan_model(struct vocab *v, struct json_scan *j)
{
	struct proto_str key;
	int rc = 0;
	json_scan_object(j);
	while (rc == 0 && json_scan_key(j, &key)) {
		if (json_is(key, "type"))
			json_scan_string(j, &v->kind);
		else if (json_is(key, "vocab"))
			rc = scan_vocab(v, j);
		else if (json_is(key, "merges"))
			v->merges = span(j);
		else if (json_is(key, "byte_fallback"))
			v->byte_fallback = json_is(span(j), "true");
		else if (json_is(key, "ignore_merges"))
			v->ignore_merges = json_is(span(j), "true");
		else if (json_is(key, "unk_token") && json_scan_peek(j) == '"')
			json_scan_string(j, &v->unknown);
		else
			json_scan_skip(j);
	}
	return rc;
}

static int scan_added(struct vocab *v, struct json_scan *j)
{
	struct proto_str key;
	int rc = 0;
	json_scan_array(j);
	while (rc == 0 && json_scan_item(j)) {
		struct proto_str content = none;
		uint64_t id = UINT64_MAX;
		bool special = false;
		json_scan_object(j);
		while (json_scan_key(j, &key)) {
			if (json_is(key, "id"))
				json_scan_uint(j, &id);
			else if (json_is(key, "content"))
				json_scan_string(j, &content);
			else if (json_is(key, "special"))
				special = json_is(span(j), "true");
			else
				json_scan_skip(j);
		}
		if (j->bad == NULL && (content.at != NULL || v->tokens == NULL))
			rc = set_token(v, id, content, special ? 3 : 4);
	}
	return rc;
}

static int scan_file(struct vocab *v, struct proto_str text)
{
	struct json_scan j;
	struct proto_str key;
	int rc = 0;
	json_scan_init(&j, text.at, text.n);
	json_scan_object(&j);
	while (rc == 0 && json_scan_key(&j, &key)) {
		if (json_is(key, "added_tokens"))
			rc = scan_added(v, &j);
		else if (json_is(key, "model") && (v->tokens != NULL || json_scan_peek(&j) == '{'))
			rc = scan_model(v, &j);
		else if (json_is(key, "pre_tokenizer"))
			v->pre = span(&j);
		else if (json_is(key, "normalizer"))
			v->normalizer = span(&j);
		else if (json_is(key, "post_processor"))
			v->post = span(&j);
		else
			json_scan_skip(&j);
	}
	if (rc == 0 && !json_scan_end(&j))
		return sl_errf(v->err, SL_EINVAL, "%s/tokenizer.json: byte %zu: %s", hf_path(v->folder),
			       (size_t)(j.at - j.text), j.bad);
	return rc;
}

/* ---- merges ---- */

static void begin_merges(const struct vocab *v, struct json_scan *j)
{
	json_scan_init(j, v->merges.at, v->merges.n);
	json_scan_array(j);
}

/* The next merge's two sides: "a b", or ["a", "b"]. */
static bool next_merge(struct json_scan *j, struct proto_str *left, struct proto_str *right)
{
	struct proto_str raw;
	if (!json_scan_item(j))
		return false;
	if (json_scan_peek(j) == '[') {
		json_scan_array(j);
		return json_scan_item(j) && json_scan_string(j, left) && json_scan_item(j) &&
		       json_scan_string(j, right) && !json_scan_item(j) && j->bad == NULL;
	}
	if (!json_scan_string(j, &raw))
		return false;
	const char *space = memchr(raw.at, ' ', raw.n);
	if (space == NULL)
		return false;
	*left = (struct proto_str){.at = raw.at, .n = (size_t)(space - raw.at)};
	*right = (struct proto_str){.at = space + 1, .n = raw.n - left->n - 1};
	return true;
}

/* The bytes of a raw string, in out. */
static size_t text_of(struct proto_str raw, char *out, size_t out_bytes)
{
	return raw.n <= out_bytes ? json_unescape(raw, out) : SIZE_MAX;
}

static int put_unescaped(struct vocab *v, struct proto_str raw)
{
	char *text = sl_alloc(raw.n + 1);
	size_t n = text != NULL ? json_unescape(raw, text) : 0;
	if (text != NULL && n != SIZE_MAX)
		gguf_item_str(v->w, text, n);
	sl_free(text);
	return text == NULL    ? fault(v, SL_ENOMEM, "no memory")
	       : n == SIZE_MAX ? fault(v, SL_EINVAL, "a malformed escape")
			       : 0;
}

static int count_merges(struct vocab *v, uint64_t *n)
{
	struct json_scan j;
	struct proto_str left, right;
	*n = 0;
	begin_merges(v, &j);
	while (next_merge(&j, &left, &right))
		(*n)++;
	if (!json_scan_end(&j) || *n > MAX_MERGES)
		return fault(v, SL_EINVAL, "its merges are no list of pairs");
	return 0;
}

static int put_merges(struct vocab *v)
{
	struct json_scan j;
	struct proto_str left, right;
	uint64_t n;
	int rc = count_merges(v, &n);
	if (rc != 0)
		return rc;
	gguf_put_array(v->w, "tokenizer.ggml.merges", GGUF_STRING, n);
	begin_merges(v, &j);
	while (next_merge(&j, &left, &right)) {
		char pair[4096];
		size_t a = text_of(left, pair, sizeof pair / 2), b;
		if (a == SIZE_MAX || (b = text_of(right, pair + a + 1, sizeof pair / 2 - 1)) == SIZE_MAX)
			return fault(v, SL_EINVAL, "a merge is malformed");
		pair[a] = ' ';
		gguf_item_str(v->w, pair, a + 1 + b);
	}
	return 0;
}

/* The text of a normal token, which merges produce; empty for other tokens. */
static struct proto_str normal_text(const void *vocab, size_t id)
{
	const struct vocab *v = vocab;
	return v->types[id] == 1 ? v->tokens[id] : none;
}

/* The first merge that makes each token is its rank. Raw strings are compared: one file escapes consistently. */
static int rank_scores(struct vocab *v)
{
	struct json_scan j;
	struct proto_str left, right;
	size_t n_tokens = (size_t)v->n, twice;
	if (name_index_make(normal_text, v, n_tokens, &v->by_text, &twice) != 0)
		return fault(v, SL_ENOMEM, "no memory");
	for (size_t i = 0; i < n_tokens; i++)
		v->scores[i] = v->types[i] == 1 ? -1e6f : 0;
	begin_merges(v, &j);
	uint64_t n;
	int rc = count_merges(v, &n);
	for (float rank = 0; rc == 0 && next_merge(&j, &left, &right); rank++) {
		char text[4096];
		if (left.n + right.n > sizeof text)
			return fault(v, SL_EINVAL, "a merge is malformed");
		memcpy(text, left.at, left.n);
		memcpy(text + left.n, right.at, right.n);
		struct proto_str whole = {.at = text, .n = left.n + right.n};
		size_t id = name_index_find(v->by_text, n_tokens, normal_text, v, whole);
		if (whole.n > 0 && id < n_tokens && v->scores[id] <= -1e6f)
			v->scores[id] = -rank;
	}
	return rc;
}

/* ---- keys ---- */

static int put_tokens(struct vocab *v)
{
	int rc = 0;
	gguf_put_array(v->w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)v->n);
	for (int i = 0; i < v->n && rc == 0; i++) {
		char unused[32];
		if (v->tokens[i].at != NULL) {
			rc = put_unescaped(v, v->tokens[i]);
			continue;
		}
		/* Rows of weights that have no token. */
		int n = snprintf(unused, sizeof unused, "[PAD%d]", i);
		gguf_item_str(v->w, unused, (size_t)n);
		v->types[i] = 5;
	}
	gguf_put_array(v->w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)v->n);
	gguf_item_bytes(v->w, v->types, (size_t)v->n * sizeof *v->types);
	return rc;
}

/* GGUF has only names of pre-tokenizers; the pattern, as JSON writes it, identifies one. whole: a piece that is a token
 * stays whole, regardless of merges (ignore_merges). */
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD SHORT "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
#define END(more) "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n" more "]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\""
#define UPPER "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define CASED(after) UPPER "*" LOWER "+" after "|" UPPER "+" LOWER "*" after

static const struct {
	const char *name, *pattern;
	bool whole;
} known[] = {
    {"llama-bpe", "\"" WORD "|\\\\p{N}{1,3}" END(""), true},
    {"smaug-bpe", "\"" WORD "|\\\\p{N}{1,3}" END(""), false},
    {"qwen2", "\"" WORD "|\\\\p{N}" END(""), false},
    {"tekken", "\"" CASED("") "|\\\\p{N}" END("/"), true},
    {"gpt-4o", "\"" CASED(SHORT "?") "|\\\\p{N}{1,3}" END("/"), false},
};

static const char *known_pre(const struct vocab *v)
{
	if (!contains(v->pre, "\"ByteLevel\""))
		return NULL;
	if (!contains(v->pre, "\"Split\"") && !contains(v->pre, "\"Digits\"") && !contains(v->pre, "\"Sequence\"") &&
	    !contains(v->pre, "\"use_regex\":false") && !contains(v->pre, "\"use_regex\": false"))
		return v->ignore_merges ? NULL : "gpt-2";
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].whole == v->ignore_merges && contains(v->pre, known[i].pattern))
			return known[i].name;
	return NULL;
}

static int put_kind(struct vocab *v)
{
	if (!json_is(v->kind, "BPE") && v->kind.n > 0)
		return sl_errf(v->err, SL_EUNSUPPORTED,
			       "%s/tokenizer.json: a tokenizer of type %.*s can't be written to GGUF",
			       hf_path(v->folder), (int)(v->kind.n > 30 ? 30 : v->kind.n), v->kind.at);
	if (v->merges.at == NULL)
		return fault(v, SL_EINVAL, "its model has no merges");
	int rc;
	if (v->byte_fallback) {
		gguf_put_str(v->w, "tokenizer.ggml.model", "llama", 5);
		gguf_put_str(v->w, "tokenizer.ggml.pre", "default", 7);
		bool prefix = contains(v->normalizer, "\"Prepend\"") ||
			      contains(v->pre, "\"prepend_scheme\": \"first\"") ||
			      contains(v->pre, "\"prepend_scheme\":\"first\"");
		gguf_put_bool(v->w, "tokenizer.ggml.add_space_prefix", prefix);
		if ((rc = rank_scores(v)) != 0)
			return rc;
		for (int i = 0; i < v->n; i++)
			if (v->tokens[i].at != NULL && v->unknown.at != NULL && v->tokens[i].n == v->unknown.n &&
			    memcmp(v->tokens[i].at, v->unknown.at, v->unknown.n) == 0) {
				v->types[i] = 2;
				gguf_put_u32(v->w, "tokenizer.ggml.unknown_token_id", (uint32_t)i);
			}
		if ((rc = put_tokens(v)) != 0)
			return rc;
		gguf_put_array(v->w, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)v->n);
		gguf_item_bytes(v->w, v->scores, (size_t)v->n * sizeof *v->scores);
		return 0;
	}
	const char *pre = known_pre(v);
	if (pre == NULL)
		return fault(v, SL_EUNSUPPORTED,
			     "its pre-tokenizer has no name in GGUF (known: gpt-2, llama-bpe, smaug-bpe, qwen2, "
			     "tekken, gpt-4o)");
	gguf_put_str(v->w, "tokenizer.ggml.model", "gpt2", 4);
	gguf_put_str(v->w, "tokenizer.ggml.pre", pre, strlen(pre));
	rc = put_tokens(v);
	return rc != 0 ? rc : put_merges(v);
}

size_t hf_put_ends(const struct hf_folder *f, struct gguf_writer *w)
{
	size_t n;
	const int32_t *ends = hf_end_ids(f, &n);
	if (n > 0)
		gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)ends[0]);
	if (n > 1)
		gguf_put_u32(w, "tokenizer.ggml.eot_token_id", (uint32_t)ends[n - 1]);
	return n;
}

void hf_put_template(const struct hf_folder *f, struct gguf_writer *w)
{
	struct proto_str template;
	struct sl_err ignored;
	if (hf_template(f, &template, &ignored) == 0)
		gguf_put_str(w, "tokenizer.chat_template", template.at, template.n);
}

/* Whether the post-processor puts a special token before the text. */
static bool begins_with_special(const struct vocab *v)
{
	const char *single = v->post.at == NULL ? NULL : memmem(v->post.at, v->post.n, "\"single\"", 8);
	if (single == NULL)
		return false;
	size_t left = v->post.n - (size_t)(single - v->post.at);
	const char *special = memmem(single, left, "\"SpecialToken\"", 14),
		   *text = memmem(single, left, "\"Sequence\"", 10);
	return special != NULL && (text == NULL || special < text);
}

static void put_ids(struct vocab *v)
{
	const json_t *bos = json_object_get(hf_config(v->folder), "bos_token_id");
	if (json_is_integer(bos) && json_integer_value(bos) >= 0 && json_integer_value(bos) < v->n)
		gguf_put_u32(v->w, "tokenizer.ggml.bos_token_id", (uint32_t)json_integer_value(bos));
	(void)hf_put_ends(v->folder, v->w);
	gguf_put_bool(v->w, "tokenizer.ggml.add_bos_token", begins_with_special(v));
}

/* ---- the tokenizer ---- */

int hf_count_tokens(const struct hf_folder *f)
{
	struct map_file map = {0};
	struct vocab v = {.folder = f};
	if (hf_has_spm(f))
		return hf_count_spm(f);
	if (hf_map(f, "tokenizer.json", &map, NULL) != 0)
		return 0;
	int rc = scan_file(&v, (struct proto_str){.at = (const char *)map.at, .n = map.bytes});
	map_file_close(&map);
	return rc == 0 ? v.n : 0;
}

int hf_write_tokenizer(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err)
{
	struct map_file map = {0};
	struct vocab v = {.folder = f, .w = w, .err = err, .n = n_vocab};
	if (hf_has_spm(f))
		return hf_write_spm(f, n_vocab, w, err);
	int rc = hf_map(f, "tokenizer.json", &map, err);
	if (rc != 0)
		return rc;
	v.tokens = sl_zalloc_n((size_t)n_vocab, sizeof *v.tokens);
	v.types = sl_zalloc_n((size_t)n_vocab, sizeof *v.types);
	v.scores = sl_zalloc_n((size_t)n_vocab, sizeof *v.scores);
	if (v.tokens == NULL || v.types == NULL || v.scores == NULL)
		rc = fault(&v, SL_ENOMEM, "no memory");
	if (rc == 0)
		rc = scan_file(&v, (struct proto_str){.at = (const char *)map.at, .n = map.bytes});
	if (rc == 0)
		rc = put_kind(&v);
	if (rc == 0) {
		put_ids(&v);
		hf_put_template(f, w);
	}
	sl_free(v.tokens);
	sl_free(v.types);
	sl_free(v.scores);
	sl_free(v.by_text);
	map_file_close(&map);
	return rc;
}
