/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a Hugging Face tokenizer.json (the format of the tokenizers library) and what its tokenizer_config.json adds:
 * which tokens begin and end a text. Every part has a type by name; unknown types and unsupported settings that would
 * change ids are errors with their name. Strings are borrowed from the parsed JSON, which lives until the tokenizer has
 * copied them.
 */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_depth.h"
#include "engine/token/tokenizer_source.h"

enum { MAX_DEPTH = 64, MAX_IDS = 1 << 24, MAX_NESTED = 8 };

/* A zero byte, which the parser does not take in an object's key: U+10FFFF, which is no character. */
#define ZERO_STAND_IN "\xF4\x8F\xBF\xBF"

struct reading {
	struct tok_source src;
	char *zeros; /* owned: texts that have zero bytes */
	size_t n_zeros, cap_zeros;
	struct proto_str *tokens, *halves;
	int32_t *attrs;
	uint8_t *flags;
	float *scores;
	size_t cap, n_scores;
	bool byte_level;
	struct sl_err *err;
};

static const struct proto_str none = {"", 0};

static struct proto_str str_of(const json_t *v)
{
	return (struct proto_str){json_string_value(v), json_string_length(v)};
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s != NULL ? s : "";
}

static bool flag_of(const json_t *o, const char *key, bool otherwise)
{
	const json_t *v = json_object_get(o, key);
	return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static int unsupported(struct reading *r, const char *what, const char *name)
{
	return sl_errf(r->err, SL_EUNSUPPORTED, "tokenizer.json: %s \"%.60s\" is not supported", what, name);
}

static int malformed(struct reading *r, const char *what)
{
	return sl_errf(r->err, SL_EINVAL, "tokenizer.json: %s is malformed or missing", what);
}

static int no_memory(struct reading *r) { return sl_errf(r->err, SL_ENOMEM, "no memory for the tokenizer"); }

/* ---- normalizers ---- */

static int add_norm(struct reading *r, enum norm_kind kind, struct proto_str text, struct proto_str with)
{
	return norm_add(r->src.norm, kind, text, with, r->err);
}

/* RFC 4648, without line breaks; to be freed. */
static char *decode_base64(struct proto_str s, size_t *n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = sl_alloc(s.n / 4 * 3 + 4);
	uint32_t bits = 0;
	int n_bits = 0;
	*n = 0;
	for (size_t i = 0; i < s.n && out != NULL && s.at[i] != '='; i++) {
		const char *d = memchr(digits, s.at[i], 64);
		if (d == NULL) {
			sl_free(out);
			return NULL;
		}
		bits = bits << 6 | (uint32_t)(d - digits);
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			out[(*n)++] = (char)(bits >> n_bits);
		}
	}
	return out;
}

static int read_charsmap(struct reading *r, const json_t *o)
{
	struct proto_str text = str_of(json_object_get(o, "precompiled_charsmap"));
	if (text.at == NULL)
		return json_is_null(json_object_get(o, "precompiled_charsmap")) ? 0
										: malformed(r, "precompiled_charsmap");
	size_t n;
	char *table = decode_base64(text, &n);
	if (table == NULL)
		return malformed(r, "precompiled_charsmap");
	int rc = n > 0 ? add_norm(r, NORM_CHARSMAP_GRAPHEMES, (struct proto_str){table, n}, none) : 0;
	sl_free(table);
	return rc;
}

static int read_replace(struct reading *r, const json_t *o)
{
	const json_t *pattern = json_object_get(o, "pattern");
	struct proto_str with = str_of(json_object_get(o, "content"));
	struct proto_str text = str_of(json_object_get(pattern, "String"));
	struct proto_str regex = str_of(json_object_get(pattern, "Regex"));
	if (with.at == NULL || (text.at == NULL && regex.at == NULL))
		return malformed(r, "a Replace normalizer");
	if (text.at != NULL)
		return add_norm(r, NORM_REPLACE, text, with);
	return add_norm(r, NORM_REPLACE_REGEX, regex, with);
}

/* A Sequence: reads each part of o's list. */
static int read_parts(struct reading *r, const json_t *o, const char *list, const char *what, int depth,
		      int (*read)(struct reading *, const json_t *, int))
{
	const json_t *parts = json_object_get(o, list), *it;
	size_t i;
	int rc = json_is_array(parts) ? 0 : malformed(r, what);
	json_array_foreach(parts, i, it) rc = rc == 0 ? read(r, it, depth + 1) : rc;
	return rc;
}

/* Each step that its flag turns on. */
struct flagged {
	bool on;
	enum norm_kind kind;
};

static int add_flagged(struct reading *r, const struct flagged *steps, size_t n)
{
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = steps[i].on ? add_norm(r, steps[i].kind, none, none) : 0;
	return rc;
}

static int read_bert_normalizer(struct reading *r, const json_t *o)
{
	bool lower = flag_of(o, "lowercase", true), strip = flag_of(o, "strip_accents", lower);
	const struct flagged steps[] = {{flag_of(o, "clean_text", true), NORM_CLEAN},
					{flag_of(o, "handle_chinese_chars", true), NORM_SPACE_CJK},
					{strip, NORM_NFD},
					{strip, NORM_STRIP_ACCENTS},
					{lower, NORM_LOWERCASE}};
	return add_flagged(r, steps, sizeof steps / sizeof *steps);
}

static int read_normalizer(struct reading *r, const json_t *o, int depth)
{
	static const struct {
		const char *name;
		enum norm_kind kind;
	} plain[] = {{"NFC", NORM_NFC},
		     {"NFD", NORM_NFD},
		     {"NFKC", NORM_NFKC},
		     {"NFKD", NORM_NFKD},
		     {"Lowercase", NORM_LOWERCASE},
		     {"StripAccents", NORM_STRIP_ACCENTS},
		     {"Nmt", NORM_NMT}};
	if (o == NULL || json_is_null(o))
		return 0;
	const char *type = text_of(o, "type");
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (strcmp(type, plain[i].name) == 0)
			return add_norm(r, plain[i].kind, none, none);
	if (strcmp(type, "Sequence") == 0 && depth < MAX_NESTED)
		return read_parts(r, o, "normalizers", "a Sequence of normalizers", depth, read_normalizer);
	if (strcmp(type, "Prepend") == 0) {
		struct proto_str text = str_of(json_object_get(o, "prepend"));
		return text.at == NULL ? malformed(r, "a Prepend normalizer") : add_norm(r, NORM_PREPEND, text, none);
	}
	if (strcmp(type, "Replace") == 0)
		return read_replace(r, o);
	if (strcmp(type, "Strip") == 0) {
		const struct flagged steps[] = {{flag_of(o, "strip_left", true), NORM_STRIP_LEFT},
						{flag_of(o, "strip_right", true), NORM_STRIP_RIGHT}};
		return add_flagged(r, steps, 2);
	}
	if (strcmp(type, "Precompiled") == 0)
		return read_charsmap(r, o);
	if (strcmp(type, "BertNormalizer") == 0)
		return read_bert_normalizer(r, o);
	return unsupported(r, "normalizer", type);
}

/* ---- pre-tokenizers ---- */

/* -1: it is none of them. */
static int index_of(const char *word, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	return -1;
}

static int read_behavior(struct reading *r, const json_t *o, enum pretok_behavior *out)
{
	static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
					    "MergedWithNext"};
	const char *name = text_of(o, "behavior");
	int i = index_of(name, names, 5);
	*out = i < 0 ? PRETOK_ISOLATED : (enum pretok_behavior)i;
	return i < 0 ? unsupported(r, "behavior", name) : 0;
}

static int add_pattern(struct reading *r, const char *pattern, enum pretok_behavior behavior)
{
	struct proto_str p = {pattern, strlen(pattern)};
	return pretok_add_split(r->src.pretok, p, false, false, behavior, r->err);
}

static int read_split(struct reading *r, const json_t *o)
{
	const json_t *pattern = json_object_get(o, "pattern");
	struct proto_str text = str_of(json_object_get(pattern, "String"));
	struct proto_str regex = str_of(json_object_get(pattern, "Regex"));
	bool invert = flag_of(o, "invert", false);
	enum pretok_behavior behavior;
	int rc = read_behavior(r, o, &behavior);
	if (rc != 0)
		return rc;
	if (text.at != NULL)
		return pretok_add_split(r->src.pretok, text, true, invert, behavior, r->err);
	if (regex.at == NULL)
		return malformed(r, "a Split pre-tokenizer");
	return pretok_add_split(r->src.pretok, regex, false, invert, behavior, r->err);
}

static int read_metaspace(struct reading *r, const json_t *o)
{
	struct proto_str mark = str_of(json_object_get(o, "replacement"));
	static const char *const schemes[] = {"never", "first", "always"}; /* in the order of enum pretok_prepend */
	const char *scheme = text_of(o, "prepend_scheme");
	int prepend = flag_of(o, "add_prefix_space", true) ? PRETOK_ALWAYS : PRETOK_NEVER;
	if (scheme[0] != '\0' && (prepend = index_of(scheme, schemes, 3)) < 0)
		return unsupported(r, "prepend_scheme", scheme);
	if (mark.at == NULL)
		return malformed(r, "a Metaspace pre-tokenizer");
	return pretok_add_metaspace(r->src.pretok, mark, (enum pretok_prepend)prepend, flag_of(o, "split", true),
				    r->err);
}

static int read_pretok(struct reading *r, const json_t *o, int depth)
{
	if (o == NULL || json_is_null(o))
		return 0;
	const char *type = text_of(o, "type");
	if (strcmp(type, "Sequence") == 0 && depth < MAX_NESTED)
		return read_parts(r, o, "pretokenizers", "a Sequence of pre-tokenizers", depth, read_pretok);
	if (strcmp(type, "ByteLevel") == 0) {
		r->byte_level = true;
		return pretok_add_byte_level(r->src.pretok, flag_of(o, "add_prefix_space", true),
					     flag_of(o, "use_regex", true), r->err);
	}
	if (strcmp(type, "Split") == 0)
		return read_split(r, o);
	if (strcmp(type, "Metaspace") == 0)
		return read_metaspace(r, o);
	if (strcmp(type, "Digits") == 0)
		return add_pattern(r, flag_of(o, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", PRETOK_ISOLATED);
	if (strcmp(type, "Whitespace") == 0)
		return pretok_add_split(r->src.pretok, (struct proto_str){"\\w+|[^\\w\\s]+", 12}, false, true,
					PRETOK_REMOVED, r->err);
	if (strcmp(type, "WhitespaceSplit") == 0)
		return add_pattern(r, "\\p{White_Space}", PRETOK_REMOVED);
	if (strcmp(type, "Punctuation") == 0 || strcmp(type, "BertPreTokenizer") == 0) {
		enum pretok_behavior behavior = PRETOK_ISOLATED;
		int rc = 0;
		if (type[0] == 'B')
			rc = add_pattern(r, "\\p{White_Space}", PRETOK_REMOVED);
		else if (json_object_get(o, "behavior") != NULL)
			rc = read_behavior(r, o, &behavior);
		return rc != 0 ? rc : add_pattern(r, "[\\p{P}$+<=>^`|~]", behavior);
	}
	if (strcmp(type, "CharDelimiterSplit") == 0) {
		struct proto_str text = str_of(json_object_get(o, "delimiter"));
		return text.at == NULL ? malformed(r, "a CharDelimiterSplit pre-tokenizer")
				       : pretok_add_split(r->src.pretok, text, true, false, PRETOK_REMOVED, r->err);
	}
	return unsupported(r, "pre-tokenizer", type);
}

/* ---- vocabulary ---- */

static int reserve_ids(struct reading *r, size_t n)
{
	if (n > MAX_IDS)
		return malformed(r, "a token's id");
	if (n <= r->cap)
		return 0;
	size_t cap = r->cap * 2 > n ? r->cap * 2 : n;
	struct proto_str *tokens = sl_realloc_n(r->tokens, cap, sizeof *tokens);
	if (tokens != NULL)
		r->tokens = tokens;
	int32_t *attrs = tokens != NULL ? sl_realloc_n(r->attrs, cap, sizeof *attrs) : NULL;
	if (attrs != NULL)
		r->attrs = attrs;
	uint8_t *flags = attrs != NULL ? sl_realloc_n(r->flags, cap, sizeof *flags) : NULL;
	if (flags == NULL)
		return no_memory(r);
	r->flags = flags;
	for (size_t i = r->cap; i < cap; i++) {
		r->tokens[i] = none;
		r->attrs[i] = TOK_UNUSED;
		r->flags[i] = 0;
	}
	r->cap = cap;
	return 0;
}

/* Puts zero bytes back where they stood; the room for it was counted from the file. */
static struct proto_str put_zeros_back(struct reading *r, struct proto_str text)
{
	if (r->zeros == NULL || memmem(text.at, text.n, ZERO_STAND_IN, 4) == NULL || text.n > r->cap_zeros - r->n_zeros)
		return text;
	char *to = r->zeros + r->n_zeros;
	size_t n = 0;
	for (size_t i = 0; i < text.n;) {
		bool zero = text.n - i >= 4 && memcmp(text.at + i, ZERO_STAND_IN, 4) == 0;
		to[n++] = zero ? '\0' : text.at[i];
		i += zero ? 4 : 1;
	}
	r->n_zeros += n;
	return (struct proto_str){to, n};
}

static int put_token(struct reading *r, json_int_t id, struct proto_str text, int32_t attr, uint8_t flags)
{
	if (text.at != NULL)
		text = put_zeros_back(r, text);
	if (id < 0 || id >= MAX_IDS || text.at == NULL)
		return malformed(r, "a token");
	int rc = reserve_ids(r, (size_t)id + 1);
	if (rc != 0)
		return rc;
	r->tokens[id] = text;
	r->attrs[id] = attr;
	r->flags[id] = flags;
	if ((size_t)id >= r->src.n_tokens)
		r->src.n_tokens = (size_t)id + 1;
	return 0;
}

/* {"token": id, …}. Ids are dense but for holes; one far beyond the count is malformed. */
static int read_vocab(struct reading *r, json_t *vocab)
{
	const char *key;
	size_t key_n;
	json_t *value;
	if (!json_is_object(vocab))
		return malformed(r, "model.vocab");
	json_int_t most = (json_int_t)json_object_size(vocab) * 4 + 4096;
	int rc = 0;
	json_object_keylen_foreach(vocab, key, key_n, value)
	{
		if (!json_is_integer(value) || json_integer_value(value) > most)
			return malformed(r, "a token's id");
		rc = put_token(r, json_integer_value(value), (struct proto_str){key, key_n}, TOK_NORMAL, 0);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int read_merge(struct reading *r, const json_t *it, struct proto_str half[2])
{
	if (json_is_array(it) && json_array_size(it) == 2) {
		half[0] = str_of(json_array_get(it, 0));
		half[1] = str_of(json_array_get(it, 1));
		return half[0].at != NULL && half[1].at != NULL ? 0 : malformed(r, "a merge");
	}
	return tok_split_merge(str_of(it), half) ? 0 : malformed(r, "a merge");
}

static int find_token(const struct reading *r, const char *text)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < r->src.n_tokens; i++)
		if (r->tokens[i].n == n && memcmp(r->tokens[i].at, text, n) == 0)
			return (int)i;
	return -1;
}

static int read_bpe(struct reading *r, const json_t *model)
{
	const json_t *merges = json_object_get(model, "merges"), *it;
	size_t i;
	int rc = read_vocab(r, json_object_get(model, "vocab"));
	if (rc != 0)
		return rc;
	if (!json_is_array(merges))
		return malformed(r, "model.merges");
	if (text_of(model, "continuing_subword_prefix")[0] != '\0' || text_of(model, "end_of_word_suffix")[0] != '\0')
		return unsupported(r, "BPE with", "continuing_subword_prefix or end_of_word_suffix");
	r->src.n_merges = json_array_size(merges);
	r->halves = sl_zalloc_n(r->src.n_merges + 1, 2 * sizeof *r->halves);
	if (r->halves == NULL)
		return no_memory(r);
	json_array_foreach(merges, i, it) if ((rc = read_merge(r, it, &r->halves[2 * i])) != 0) return rc;
	r->src.halves = r->halves;
	r->src.byte_fallback = flag_of(model, "byte_fallback", false);
	r->src.fuse_unknown = flag_of(model, "fuse_unk", false);
	r->src.unknown = find_token(r, text_of(model, "unk_token"));
	if (flag_of(model, "ignore_merges", false))
		pretok_set_whole_words(r->src.pretok, true);
	r->src.kind = r->byte_level ? TOK_BPE_BYTES : TOK_BPE_CHARS;
	return 0;
}

static int read_unigram(struct reading *r, const json_t *model)
{
	const json_t *vocab = json_object_get(model, "vocab"), *it;
	size_t i, n = json_array_size(vocab);
	if (n == 0 || n > MAX_IDS)
		return malformed(r, "model.vocab");
	r->scores = sl_zalloc_n(n + 1, sizeof *r->scores);
	if (r->scores == NULL)
		return no_memory(r);
	r->n_scores = n;
	json_array_foreach(vocab, i, it)
	{
		const json_t *score = json_array_get(it, 1);
		if (!json_is_number(score))
			return malformed(r, "a token's score");
		r->scores[i] = (float)json_number_value(score);
		int rc = put_token(r, (json_int_t)i, str_of(json_array_get(it, 0)), TOK_NORMAL, 0);
		if (rc != 0)
			return rc;
	}
	const json_t *unk = json_object_get(model, "unk_id");
	r->src.unknown = json_is_integer(unk) && json_integer_value(unk) >= 0 && (size_t)json_integer_value(unk) < n
			     ? (int32_t)json_integer_value(unk)
			     : -1;
	r->src.byte_fallback = flag_of(model, "byte_fallback", false);
	r->src.kind = TOK_UNIGRAM;
	return 0;
}

static int read_wordpiece(struct reading *r, const json_t *model)
{
	const json_t *most = json_object_get(model, "max_input_chars_per_word"),
		     *prefix = json_object_get(model, "continuing_subword_prefix");
	int rc = read_vocab(r, json_object_get(model, "vocab"));
	if (rc != 0)
		return rc;
	r->src.kind = TOK_WORDPIECE;
	r->src.word_prefix = prefix != NULL ? str_of(prefix) : (struct proto_str){"##", 2};
	if (r->src.word_prefix.n == 0)
		return malformed(r, "continuing_subword_prefix");
	r->src.max_word_chars = json_is_integer(most) && json_integer_value(most) > 0 ? (size_t)json_integer_value(most)
										      : TOK_MAX_WORD_CHARS;
	r->src.unknown = find_token(r, text_of(model, "unk_token"));
	return 0;
}

static int read_model(struct reading *r, const json_t *model)
{
	const char *type = text_of(model, "type");
	/* Old files have no type of model; only one kind has merges. */
	if (strcmp(type, "BPE") == 0 || (type[0] == '\0' && json_object_get(model, "merges") != NULL))
		return read_bpe(r, model);
	if (strcmp(type, "Unigram") == 0 || (type[0] == '\0' && json_is_array(json_object_get(model, "vocab"))))
		return read_unigram(r, model);
	if (strcmp(type, "WordPiece") == 0)
		return read_wordpiece(r, model);
	return unsupported(r, "model", type);
}

static int read_added(struct reading *r, const json_t *list)
{
	const json_t *it;
	size_t i, most = r->src.n_tokens + 2 * json_array_size(list) + 4096;
	json_array_foreach(list, i, it)
	{
		json_int_t id =
		    json_is_integer(json_object_get(it, "id")) ? json_integer_value(json_object_get(it, "id")) : -1;
		bool special = flag_of(it, "special", false);
		uint8_t flags = (uint8_t)((flag_of(it, "lstrip", false) ? TOK_LSTRIP : 0) |
					  (flag_of(it, "rstrip", false) ? TOK_RSTRIP : 0) |
					  (flag_of(it, "single_word", false) ? TOK_SINGLE_WORD : 0));
		if (id > (json_int_t)most)
			return malformed(r, "an added token's id");
		int rc =
		    put_token(r, id, str_of(json_object_get(it, "content")), special ? TOK_CONTROL : TOK_USER, flags);
		if (rc != 0)
			return rc;
	}
	if (r->scores == NULL)
		return 0;
	/* Added tokens have no scores of their own. */
	float *grown = sl_realloc_n(r->scores, r->src.n_tokens + 1, sizeof *grown);
	if (grown == NULL)
		return no_memory(r);
	r->scores = grown;
	for (size_t k = r->n_scores; k < r->src.n_tokens; k++)
		grown[k] = 0;
	return 0;
}

/* ---- what begins and ends a text ---- */

/* A special token's text: a string, or an object that has it. */
static struct proto_str special_text(const json_t *v)
{
	return str_of(json_is_object(v) ? json_object_get(v, "content") : v);
}

static int special_id(const struct reading *r, const json_t *v)
{
	struct proto_str s = special_text(v);
	return s.at != NULL ? find_token(r, s.at) : -1;
}

/* The token that a template puts before a single text; -1: none, -2: there is no template. */
static int template_bos(const struct reading *r, const json_t *post, int depth)
{
	const char *type = text_of(post, "type");
	if (strcmp(type, "Sequence") == 0 && depth < MAX_NESTED) {
		const json_t *it;
		size_t i;
		int found = -2;
		json_array_foreach(json_object_get(post, "processors"), i, it)
		{
			int id = template_bos(r, it, depth + 1);
			found = id != -2 ? id : found;
		}
		return found;
	}
	if (strcmp(type, "TemplateProcessing") != 0)
		return -2;
	const json_t *first = json_array_get(json_object_get(post, "single"), 0);
	const json_t *special = json_object_get(first, "SpecialToken");
	return special != NULL ? find_token(r, text_of(special, "id")) : -1;
}

static int32_t special_of(const struct reading *r, const json_t *item)
{
	const json_t *special = json_object_get(item, "SpecialToken");
	return special != NULL ? find_token(r, text_of(special, "id")) : -1;
}

/* Special tokens between the two texts of a pair. */
static size_t n_between(const json_t *pair)
{
	const json_t *it;
	size_t i, n = 0, texts = 0;
	json_array_foreach(pair, i, it)
	{
		texts += json_object_get(it, "Sequence") != NULL;
		n += texts == 1 && json_object_get(it, "SpecialToken") != NULL;
	}
	return n;
}

/* ["[SEP]", 102] */
static int32_t named_id(const json_t *pair)
{
	json_int_t id = json_is_integer(json_array_get(pair, 1)) ? json_integer_value(json_array_get(pair, 1)) : -1;
	return id >= 0 && id < MAX_IDS ? (int32_t)id : -1;
}

/* What is around a text that is embedded. */
static void read_frame(struct reading *r, const json_t *post, int depth)
{
	const char *type = text_of(post, "type");
	const json_t *single = json_object_get(post, "single");
	size_t n = json_array_size(single);
	if (strcmp(type, "Sequence") == 0 && depth < MAX_NESTED) {
		const json_t *parts = json_object_get(post, "processors");
		for (size_t i = 0; i < json_array_size(parts); i++)
			read_frame(r, json_array_get(parts, i), depth + 1);
	} else if (strcmp(type, "TemplateProcessing") == 0 && n > 1) {
		r->src.before = special_of(r, json_array_get(single, 0));
		r->src.after = special_of(r, json_array_get(single, n - 1));
		r->src.twice = n_between(json_object_get(post, "pair")) > 1;
	} else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
		r->src.before = named_id(json_object_get(post, "cls"));
		r->src.after = named_id(json_object_get(post, "sep"));
		r->src.twice = type[0] == 'R';
	}
}

static bool strips_space(const json_t *decoder, int depth)
{
	const char *type = text_of(decoder, "type");
	if (strcmp(type, "Sequence") == 0 && depth < MAX_NESTED) {
		const json_t *it;
		size_t i;
		json_array_foreach(json_object_get(decoder, "decoders"), i,
				   it) if (strips_space(it, depth + 1)) return true;
		return false;
	}
	if (strcmp(type, "Strip") == 0)
		return strcmp(text_of(decoder, "content"), " ") == 0 &&
		       json_integer_value(json_object_get(decoder, "start")) > 0;
	return strcmp(type, "Metaspace") == 0 && strcmp(text_of(decoder, "prepend_scheme"), "never") != 0 &&
	       flag_of(decoder, "add_prefix_space", true);
}

static int read_all(struct reading *r, const json_t *root, const json_t *config)
{
	r->src = (struct tok_source){
	    .bos = -1, .eos = -1, .eot = -1, .unknown = -1, .add_bos = 0, .before = -1, .after = -1};
	if (!json_is_object(root))
		return malformed(r, "the file");
	if (norm_create(&r->src.norm) != 0 || pretok_create_empty(&r->src.pretok) != 0)
		return no_memory(r);
	int rc = read_normalizer(r, json_object_get(root, "normalizer"), 0);
	if (rc == 0)
		rc = read_pretok(r, json_object_get(root, "pre_tokenizer"), 0);
	if (rc == 0)
		rc = read_model(r, json_object_get(root, "model"));
	if (rc == 0)
		rc = read_added(r, json_object_get(root, "added_tokens"));
	if (rc != 0)
		return rc;
	r->src.bos = special_id(r, json_object_get(config, "bos_token"));
	r->src.eos = special_id(r, json_object_get(config, "eos_token"));
	int bos = template_bos(r, json_object_get(root, "post_processor"), 0);
	if (bos >= 0) {
		r->src.bos = bos;
		r->src.add_bos = 1;
	} else if (bos == -2) {
		r->src.add_bos = r->src.bos >= 0 && flag_of(config, "add_bos_token", false);
	}
	read_frame(r, json_object_get(root, "post_processor"), 0);
	if (r->src.after < 0 && flag_of(config, "add_eos_token", false))
		r->src.after = r->src.eos;
	r->src.strips_space = strips_space(json_object_get(root, "decoder"), 0);
	r->src.tokens = r->tokens;
	r->src.attrs = r->attrs;
	r->src.flags = r->flags;
	r->src.scores = r->scores;
	return 0;
}

static json_t *parse(const char *text, size_t n, const char *name, size_t flags, struct sl_err *err)
{
	json_error_t e;
	if (json_deeper_than(text, n, MAX_DEPTH)) {
		sl_errf(err, SL_EINVAL, "%s is nested too deeply", name);
		return NULL;
	}
	json_t *root = json_loadb(text, n, JSON_ALLOW_NUL | flags, &e);
	if (root == NULL)
		sl_errf(err, SL_EINVAL, "%s, line %d: %.200s", name, e.line, e.text);
	return root;
}

/* tokenizer.json with its escaped zero bytes written otherwise; NULL: it has none, or no memory. */
static char *without_zeros(struct reading *r, const char *json, size_t n, size_t *n_out)
{
	static const char zero[] = "\\u0000";
	size_t n_found = 0;
	for (const char *at = json; (at = memmem(at, n - (size_t)(at - json), zero, 6)) != NULL; at += 6)
		n_found++;
	if (n_found == 0)
		return NULL;
	/* The longest text around each of them is far below this. */
	r->cap_zeros = n_found * 256;
	r->zeros = sl_alloc(r->cap_zeros);
	char *out = r->zeros != NULL ? sl_alloc(n) : NULL, *to = out;
	for (size_t i = 0; i < n && out != NULL;) {
		/* An escaped backslash is two bytes and takes the next one with it. */
		if (json[i] == '\\' && n - i >= 6 && memcmp(json + i, zero, 6) == 0) {
			memcpy(to, ZERO_STAND_IN, 4);
			to += 4;
			i += 6;
		} else {
			size_t step = json[i] == '\\' && i + 1 < n ? 2 : 1;
			memcpy(to, json + i, step);
			to += step;
			i += step;
		}
	}
	*n_out = (size_t)(to - out);
	return out;
}

int tokenizer_create_json(const char *json, size_t n_json, const char *config, size_t n_config, struct tokenizer **out,
			  struct sl_err *err)
{
	struct sl_err reason = {0};
	struct reading r = {.err = &reason};
	size_t n_clean = 0;
	char *clean = without_zeros(&r, json, n_json, &n_clean);
	json_t *settings = NULL, *root = clean != NULL ? parse(clean, n_clean, "tokenizer.json", 0, &reason)
						       : parse(json, n_json, "tokenizer.json", 0, &reason);
	int rc = root != NULL ? 0 : SL_EINVAL;
	sl_free(clean);
	if (rc == 0 && n_config > 0) {
		/* Numbers that mean "no limit" there exceed every integer. */
		settings = parse(config, n_config, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &reason);
		rc = settings != NULL ? 0 : SL_EINVAL;
	}
	if (rc == 0)
		rc = read_all(&r, root, settings);
	if (rc == 0) {
		rc = tokenizer_create_from(&r.src, out, &reason);
	} else {
		norm_destroy(r.src.norm);
		pretok_destroy(r.src.pretok);
	}
	if (rc != 0)
		sl_errf(err, rc, "%s", reason.text);
	sl_free(r.tokens);
	sl_free(r.halves);
	sl_free(r.attrs);
	sl_free(r.flags);
	sl_free(r.scores);
	sl_free(r.zeros);
	json_decref(root);
	json_decref(settings);
	return rc;
}
