/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the tokenizer section of a GGUF file into a tok_source. Strings stay in the file's mapping; the arrays that
 * point to them are freed once the tokenizer has copied them.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/token/tokenizer_source.h"

/* A vocabulary beyond this is a malformed file. */
enum { MAX_STRINGS = 1 << 24 };

static int get_list(const struct gguf *g, const char *key, struct gguf_array *out, struct sl_err *err)
{
	int rc = gguf_get_array(g, key, out, err);
	return rc == SL_ENOTFOUND ? sl_errf(err, SL_EINVAL, "%s: %s is missing", gguf_path(g), key) : rc;
}

static int get_strings(const struct gguf *g, const char *key, struct proto_str **out, size_t *n, struct sl_err *err)
{
	struct gguf_array a;
	int rc = get_list(g, key, &a, err);
	if (rc != 0)
		return rc;
	if (a.type != GGUF_STRING || a.n > MAX_STRINGS)
		return sl_errf(err, SL_EINVAL, "%s: %s is not a list of up to %d strings", gguf_path(g), key,
			       MAX_STRINGS);
	struct proto_str *list = sl_zalloc_n((size_t)a.n + 1, sizeof(*list));
	if (list == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %s", key);
	*n = 0;
	while (*n < a.n && gguf_next_string(&a, &list[*n]))
		(*n)++;
	*out = list;
	return 0;
}

/* A token id that may be absent (-1). */
static int get_id(const struct gguf *g, const char *key, int32_t *out, struct sl_err *err)
{
	uint32_t id;
	int rc = gguf_get_u32(g, key, &id, err);
	*out = -1;
	if (rc == SL_ENOTFOUND)
		return 0;
	if (rc == 0 && id > INT32_MAX)
		return sl_errf(err, SL_EINVAL, "%s: %s is %u", gguf_path(g), key, id);
	if (rc == 0)
		*out = (int32_t)id;
	return rc;
}

static int get_attrs(const struct gguf *g, size_t n_tokens, int32_t **out, struct sl_err *err)
{
	static const char key[] = "tokenizer.ggml.token_type";
	struct gguf_array a;
	int rc = gguf_get_array(g, key, &a, err);
	if (rc == SL_ENOTFOUND)
		return 0;
	if (rc != 0)
		return rc;
	if (a.type == GGUF_STRING || a.type == GGUF_F32 || a.type == GGUF_F64 || a.n != n_tokens)
		return sl_errf(err, SL_EINVAL, "%s: %s is not a list of %zu integers", gguf_path(g), key, n_tokens);
	int32_t *attrs = sl_zalloc_n(n_tokens + 1, sizeof(*attrs));
	if (attrs == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %s", key);
	for (size_t i = 0; i < n_tokens; i++) {
		int64_t v = gguf_array_int(&a, i);
		attrs[i] = v < 0 || v > TOK_BYTE ? 0 : (int32_t)v;
	}
	*out = attrs;
	return 0;
}

static int get_name(const struct gguf *g, const char *key, struct proto_str *out, struct sl_err *err)
{
	int rc = gguf_get_str(g, key, out, err);
	if (rc == SL_ENOTFOUND)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %s is missing, and a guess may be wrong", gguf_path(g), key);
	return rc;
}

static bool is_name(struct proto_str s, const char *name)
{
	return s.n == strlen(name) && memcmp(s.at, name, s.n) == 0;
}

static int get_scores(const struct gguf *g, size_t n_tokens, float **out, struct sl_err *err)
{
	static const char key[] = "tokenizer.ggml.scores";
	struct gguf_array a;
	int rc = get_list(g, key, &a, err);
	if (rc != 0)
		return rc;
	if (a.type != GGUF_F32 || a.n != n_tokens)
		return sl_errf(err, SL_EINVAL, "%s: %s is not a list of %zu F32", gguf_path(g), key, n_tokens);
	float *scores = sl_zalloc_n(n_tokens + 1, sizeof(*scores));
	if (scores == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %s", key);
	for (size_t i = 0; i < n_tokens; i++)
		scores[i] = gguf_array_f32(&a, i);
	*out = scores;
	return 0;
}

/* A flag that may be absent. */
static int get_flag(const struct gguf *g, const char *key, bool *out, struct sl_err *err)
{
	bool v;
	int rc = gguf_get_bool(g, key, &v, err);
	if (rc == 0)
		*out = v;
	return rc == SL_ENOTFOUND ? 0 : rc;
}

/* "left right" each: into halves. */
static int split_merges(const struct gguf *g, struct proto_str *merges, size_t n, struct proto_str **out,
			struct sl_err *err)
{
	struct proto_str *halves = sl_zalloc_n(n + 1, 2 * sizeof(*halves));
	if (halves == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the merges");
	*out = halves;
	for (size_t i = 0; i < n; i++)
		if (!tok_split_merge(merges[i], &halves[2 * i]))
			return sl_errf(err, SL_EINVAL, "%s: merge %zu is malformed", gguf_path(g), i);
	return 0;
}

/* The flags of SentencePiece's files as steps: a space before the text, spaces as U+2581. */
static int make_spaces(const struct gguf *g, struct tok_source *src, struct sl_err *err)
{
	struct tok_spaces spaces = {.charsmap = {"", 0}};
	bool prefix = true, collapse = false;
	int rc = get_flag(g, "tokenizer.ggml.add_space_prefix", &prefix, err);
	if (rc == 0)
		rc = get_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &collapse, err);
	if (rc == 0 && norm_create(&src->norm) != 0)
		rc = sl_errf(err, SL_ENOMEM, "no memory for the normalizer");
	struct gguf_array map;
	if (rc == 0 && gguf_get_array(g, "tokenizer.ggml.precompiled_charsmap", &map, err) == 0 && map.n > 0) {
		spaces.charsmap = (struct proto_str){(const char *)map.at, (size_t)map.n};
		if (map.type != GGUF_U8 && map.type != GGUF_I8)
			rc = sl_errf(err, SL_EINVAL, "tokenizer.ggml.precompiled_charsmap is not a list of bytes");
	}
	spaces.prefix = src->strips_space = prefix;
	spaces.collapse = collapse && src->kind == TOK_UNIGRAM;
	return rc == 0 ? tok_add_spaces(src->norm, &spaces, err) : rc;
}

/* BERT's normalizer and words. The file does not say whether case counts: it does where a token has a capital. */
static int make_words(struct tok_source *src, bool cased, struct sl_err *err)
{
	static const struct proto_str none = {"", 0}, white = {"\\p{White_Space}", 15},
				      marks = {"[\\p{P}$+<=>^`|~]", 16};
	const struct {
		bool has;
		enum norm_kind kind;
	} steps[] = {{true, NORM_CLEAN},
		     {true, NORM_SPACE_CJK},
		     {!cased, NORM_NFD},
		     {!cased, NORM_STRIP_ACCENTS},
		     {!cased, NORM_LOWERCASE}};
	int rc = norm_create(&src->norm) != 0 || pretok_create_empty(&src->pretok) != 0
		     ? sl_errf(err, SL_ENOMEM, "no memory for the normalizer")
		     : 0;
	for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == 0; i++)
		if (steps[i].has)
			rc = norm_add(src->norm, steps[i].kind, none, none, err);
	if (rc == 0)
		rc = pretok_add_split(src->pretok, white, false, false, PRETOK_REMOVED, err);
	return rc != 0 ? rc : pretok_add_split(src->pretok, marks, false, false, PRETOK_ISOLATED, err);
}

static bool has_bytes(const int32_t *attrs, size_t n)
{
	for (size_t i = 0; i < n && attrs != NULL; i++)
		if (attrs[i] == TOK_BYTE)
			return true;
	return false;
}

static bool has_capitals(const struct proto_str *tokens, const int32_t *attrs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0;
		     k < tokens[i].n && (attrs == NULL || attrs[i] == TOK_NORMAL) && tokens[i].at[0] != '['; k++)
			if (tokens[i].at[k] >= 'A' && tokens[i].at[k] <= 'Z')
				return true;
	return false;
}

static int read_kind(const struct gguf *g, struct tok_source *src, struct proto_str **merges, struct proto_str **halves,
		     struct sl_err *err)
{
	struct proto_str model, pre;
	int rc = get_name(g, "tokenizer.ggml.model", &model, err);
	if (rc != 0)
		return rc;
	if (is_name(model, "gpt2")) {
		src->kind = TOK_BPE_BYTES;
		rc = get_name(g, "tokenizer.ggml.pre", &pre, err);
		if (rc == 0)
			rc = pretok_create(pre, &src->pretok, err);
		if (rc == 0)
			rc = get_strings(g, "tokenizer.ggml.merges", merges, &src->n_merges, err);
		if (rc == 0)
			rc = split_merges(g, *merges, src->n_merges, halves, err);
		src->halves = *halves;
		return rc;
	}
	if (is_name(model, "bert")) {
		src->kind = TOK_WORDPIECE;
		src->word_prefix = (struct proto_str){"\xE2\x96\x81", 3};
		src->prefix_begins = true;
		src->max_word_chars = TOK_MAX_WORD_CHARS;
		return 0;
	}
	if (is_name(model, "llama"))
		src->kind = TOK_BPE_CHARS;
	else if (is_name(model, "t5"))
		src->kind = TOK_UNIGRAM;
	else
		return sl_errf(err, SL_EUNSUPPORTED, "tokenizer model \"%.*s\" is not supported",
			       model.n < 64 ? (int)model.n : 64, model.at);
	src->byte_fallback = src->kind == TOK_BPE_CHARS; /* Unigram: once the attributes are read */
	src->fuse_unknown = true;
	src->add_bos = src->kind == TOK_BPE_CHARS && src->bos >= 0;
	return make_spaces(g, src, err);
}

/* What is around a text that is embedded. BERT's files need not say it: they have [CLS] and [SEP] always. */
static int frame_input(const struct gguf *g, struct tok_source *src, int32_t cls, int32_t sep, struct sl_err *err)
{
	bool words = src->kind == TOK_WORDPIECE, eos = false, seps = words;
	int rc = get_flag(g, "tokenizer.ggml.add_eos_token", &eos, err);
	if (rc == 0)
		rc = get_flag(g, "tokenizer.ggml.add_sep_token", &seps, err);
	if (words) {
		src->before = src->add_bos == 0 ? -1 : cls >= 0 ? cls : src->bos;
		src->add_bos = 0;
	}
	if (seps)
		src->after = sep >= 0 ? sep : src->eos;
	else if (eos)
		src->after = src->eos;
	src->twice = src->kind == TOK_UNIGRAM;
	return rc;
}

int tokenizer_create(const struct gguf *g, struct tokenizer **out, struct sl_err *err)
{
	/* Keys that may be absent leave a message; the caller sees one only on failure. */
	struct sl_err why = {0}, reason = {0};
	struct tok_source src = {.add_bos = -1, .before = -1, .after = -1};
	struct proto_str *tokens = NULL, *merges = NULL, *halves = NULL;
	int32_t *attrs = NULL;
	float *scores = NULL;
	bool add_bos = false;
	int32_t cls = -1, sep = -1, separator = -1;
	const struct {
		const char *key;
		int32_t *id;
	} ids[] = {{"tokenizer.ggml.bos_token_id", &src.bos},
		   {"tokenizer.ggml.eos_token_id", &src.eos},
		   {"tokenizer.ggml.eot_token_id", &src.eot},
		   {"tokenizer.ggml.unknown_token_id", &src.unknown},
		   {"tokenizer.ggml.cls_token_id", &cls},
		   {"tokenizer.ggml.seperator_token_id", &sep}, /* as the files write it */
		   {"tokenizer.ggml.separator_token_id", &separator}};
	int rc = 0;
	for (size_t i = 0; i < sizeof ids / sizeof *ids && rc == 0; i++)
		rc = get_id(g, ids[i].key, ids[i].id, &why);
	if (rc == 0)
		rc = read_kind(g, &src, &merges, &halves, &why);
	if (rc == 0)
		rc = get_strings(g, "tokenizer.ggml.tokens", &tokens, &src.n_tokens, &why);
	if (rc == 0)
		rc = get_attrs(g, src.n_tokens, &attrs, &why);
	if (rc == 0 && src.kind == TOK_UNIGRAM)
		src.byte_fallback = has_bytes(attrs, src.n_tokens);
	if (rc == 0 && src.kind == TOK_WORDPIECE)
		rc = make_words(&src, has_capitals(tokens, attrs, src.n_tokens), &why);
	if (rc == 0 && src.kind != TOK_BPE_BYTES && src.kind != TOK_WORDPIECE)
		rc = get_scores(g, src.n_tokens, &scores, &why);
	if (rc == 0) {
		rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, &why);
		if (rc == 0)
			src.add_bos = add_bos;
		else if (rc == SL_ENOTFOUND)
			rc = 0;
	}
	if (rc == 0)
		rc = frame_input(g, &src, cls, sep >= 0 ? sep : separator, &why);
	if (rc == 0) {
		src.tokens = tokens;
		src.attrs = attrs;
		src.scores = scores;
		rc = tokenizer_create_from(&src, out, &reason);
		if (rc != 0)
			sl_errf(&why, rc, "%s: %s", gguf_path(g), reason.text);
	} else {
		norm_destroy(src.norm);
		pretok_destroy(src.pretok);
	}
	if (rc != 0 && err != NULL)
		*err = why;
	sl_free(tokens);
	sl_free(merges);
	sl_free(halves);
	sl_free(attrs);
	sl_free(scores);
	return rc;
}
