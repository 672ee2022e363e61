/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer from SentencePiece's tokenizer.model and what a Hugging Face folder has beside it: added_tokens.json
 * and tokenizer_config.json name further tokens, the first and the last one of a text, and whether each stretch of
 * text between added tokens begins with a space ("legacy") or only the whole text does.
 *
 * Tokens of the folder are found in the text as it is, the model's own user-defined pieces in the normalized text:
 * they are part of it, so a space before them is kept and none is put behind them; the normalizer's table leaves them
 * as they are.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_depth.h"
#include "base/text.h"
#include "engine/token/spm_model.h"
#include "engine/token/tokenizer_source.h"

enum { MAX_DEPTH = 64, MAX_BESIDE = 4096 };

static const struct proto_str none = {"", 0}, space = {" ", 1}, mark = {"\xE2\x96\x81", 3};

struct reading {
	struct tok_source src;
	struct spm_model m;
	struct proto_str *tokens;
	int32_t *attrs;
	uint8_t *flags;
	struct proto_str *user; /* the model's own user-defined pieces */
	size_t n_user;
	float *scores;
	size_t cap;
	struct sl_err *err;
};

int tok_add_spaces(struct norm *m, const struct tok_spaces *s, struct sl_err *err)
{
	static const struct proto_str runs = {" {2,}", 5};
	int rc = s->charsmap.n > 0 ? norm_add(m, NORM_CHARSMAP, s->charsmap, none, err) : 0;
	if (rc == 0 && s->charsmap.n > 0 && s->n_kept > 0)
		rc = norm_keep(m, s->kept, s->n_kept, err);
	if (rc == 0 && s->collapse)
		rc = norm_add(m, NORM_STRIP_SPACES, none, none, err);
	if (rc == 0 && s->collapse)
		rc = norm_add(m, NORM_REPLACE_REGEX, runs, space, err);
	if (rc == 0 && s->prefix)
		rc = norm_add(m, NORM_PREPEND, mark, none, err);
	if (rc == 0)
		rc = norm_add(m, NORM_REPLACE, space, mark, err);
	if (rc == 0 && s->collapse && s->cut_tail)
		rc = norm_add(m, NORM_CUT_TAIL, mark, none, err);
	return rc;
}

static bool same(struct proto_str a, struct proto_str b) { return a.n == b.n && memcmp(a.at, b.at, a.n) == 0; }

static struct proto_str str_of(const json_t *v)
{
	return (struct proto_str){json_string_value(v), json_string_length(v)};
}

static bool flag_of(const json_t *o, const char *key, bool otherwise)
{
	const json_t *v = json_object_get(o, key);
	return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static int no_memory(struct reading *r) { return sl_errf(r->err, SL_ENOMEM, "no memory for the tokenizer"); }

/* ---- pieces ---- */

static int take_pieces(struct reading *r)
{
	size_t n = r->m.n;
	r->cap = n + MAX_BESIDE;
	r->tokens = sl_zalloc_n(r->cap, sizeof *r->tokens);
	r->attrs = sl_zalloc_n(r->cap, sizeof *r->attrs);
	r->flags = sl_zalloc_n(r->cap, sizeof *r->flags);
	r->scores = sl_zalloc_n(r->cap, sizeof *r->scores);
	if (r->tokens == NULL || r->attrs == NULL || r->flags == NULL || r->scores == NULL)
		return no_memory(r);
	for (size_t i = 0; i < r->cap; i++) {
		r->tokens[i] = none;
		r->attrs[i] = TOK_UNUSED;
	}
	memcpy(r->tokens, r->m.pieces, n * sizeof *r->tokens);
	memcpy(r->attrs, r->m.attrs, n * sizeof *r->attrs);
	memcpy(r->scores, r->m.scores, n * sizeof *r->scores);
	r->user = sl_zalloc_n(n + 1, sizeof *r->user);
	if (r->user == NULL)
		return no_memory(r);
	for (size_t i = 0; i < n; i++)
		if (r->attrs[i] == TOK_USER) {
			r->flags[i] = TOK_INNER;
			r->user[r->n_user++] = r->tokens[i];
		}
	r->src.n_tokens = n;
	return 0;
}

/* ---- tokens beside the model ---- */

/* where, key: what the file names the token by, for a message. */
static int put_token(struct reading *r, const char *where, const char *key, uint64_t id, struct proto_str text,
		     int32_t attr, uint8_t flags)
{
	if (text.at == NULL || text.n == 0 || id >= r->cap)
		return sl_errf(r->err, SL_EINVAL,
			       "%s: the added token \"%.60s\" is malformed, or its id is not below %zu", where,
			       text_has_control(key, strlen(key)) ? "?" : key, r->cap);
	r->tokens[id] = text;
	r->attrs[id] = attr;
	r->flags[id] = flags;
	if (id >= r->src.n_tokens)
		r->src.n_tokens = (size_t)id + 1;
	return 0;
}

/* {"32000": {"content": "<t>", "special": true, …}, …} */
static int read_decoder(struct reading *r, json_t *decoder)
{
	const char *key;
	json_t *it;
	int rc = 0;
	json_object_foreach(decoder, key, it)
	{
		char *end;
		unsigned long id = strtoul(key, &end, 10);
		uint8_t flags = (uint8_t)((flag_of(it, "lstrip", false) ? TOK_LSTRIP : 0) |
					  (flag_of(it, "rstrip", false) ? TOK_RSTRIP : 0) |
					  (flag_of(it, "single_word", false) ? TOK_SINGLE_WORD : 0));
		if (key[0] < '0' || key[0] > '9' || *end != '\0')
			id = SIZE_MAX;
		if (rc == 0 && id == (unsigned long)r->m.unknown) /* stays what text without a piece becomes */
			continue;
		rc = rc != 0 ? rc
			     : put_token(r, "tokenizer_config.json", key, id, str_of(json_object_get(it, "content")),
					 flag_of(it, "special", false) ? TOK_CONTROL : TOK_USER, flags);
	}
	return rc;
}

/* {"<t>": 32000, …}; what tokenizer_config.json says of the same token comes after it. */
static int read_added(struct reading *r, json_t *added)
{
	const char *key;
	size_t n;
	json_t *it;
	json_object_keylen_foreach(added, key, n, it)
	{
		uint64_t id =
		    json_is_integer(it) && json_integer_value(it) >= 0 ? (uint64_t)json_integer_value(it) : UINT64_MAX;
		int rc = id < r->m.n
			     ? 0
			     : put_token(r, "added_tokens.json", key, id, (struct proto_str){key, n}, TOK_USER, 0);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int32_t find_token(const struct reading *r, struct proto_str text)
{
	for (size_t i = 0; text.at != NULL && i < r->src.n_tokens; i++)
		if (same(r->tokens[i], text))
			return (int32_t)i;
	return -1;
}

/* What the configuration says, a string or an object that has it; null: none; without it the model's own. */
static int32_t special_id(const struct reading *r, const json_t *config, const char *key, struct proto_str own)
{
	const json_t *v = json_object_get(config, key);
	if (v == NULL)
		return find_token(r, own);
	return find_token(r, str_of(json_is_object(v) ? json_object_get(v, "content") : v));
}

/* ---- all of it ---- */

static int make_steps(struct reading *r, bool prefix, bool legacy)
{
	struct tok_spaces spaces = {.prefix = prefix && legacy,
				    .collapse = r->m.collapse,
				    .cut_tail = true,
				    .charsmap = r->m.charsmap,
				    .kept = r->user,
				    .n_kept = r->n_user};
	if (norm_create(&r->src.norm) != 0 || pretok_create_empty(&r->src.pretok) != 0)
		return no_memory(r);
	int rc = tok_add_spaces(r->src.norm, &spaces, r->err);
	if (rc == 0 && prefix && !legacy)
		rc = pretok_add_metaspace(r->src.pretok, mark, PRETOK_FIRST, false, r->err);
	r->src.strips_space = prefix;
	return rc;
}

static int read_all(struct reading *r, json_t *added, json_t *config)
{
	bool prefix = r->m.prefix && flag_of(config, "add_prefix_space", true);
	int rc = take_pieces(r);
	if (rc != 0)
		return rc;
	rc = make_steps(r, prefix, flag_of(config, "legacy", true));
	if (rc == 0)
		rc = read_added(r, added);
	if (rc == 0)
		rc = read_decoder(r, json_object_get(config, "added_tokens_decoder"));
	struct tok_source *s = &r->src;
	s->kind = r->m.unigram ? TOK_UNIGRAM : TOK_BPE_CHARS;
	s->tokens = r->tokens;
	s->attrs = r->attrs;
	s->flags = r->flags;
	s->scores = r->scores;
	s->byte_fallback = r->m.byte_fallback;
	s->fuse_unknown = s->as_library = true;
	s->unknown = r->m.unknown;
	s->bos = special_id(r, config, "bos_token", r->m.bos);
	s->eos = special_id(r, config, "eos_token", r->m.eos);
	s->add_bos = s->bos >= 0 && flag_of(config, "add_bos_token", !r->m.unigram);
	s->after = flag_of(config, "add_eos_token", false) ? s->eos : -1;
	return rc;
}

/* *out stays NULL where there is nothing. */
static int parse(struct reading *r, struct proto_str text, const char *name, size_t flags, json_t **out)
{
	json_error_t e;
	if (text.n == 0)
		return 0;
	if (json_deeper_than(text.at, text.n, MAX_DEPTH))
		return sl_errf(r->err, SL_EINVAL, "%s is nested too deeply", name);
	*out = json_loadb(text.at, text.n, JSON_ALLOW_NUL | flags, &e);
	return *out != NULL ? 0 : sl_errf(r->err, SL_EINVAL, "%s, line %d: %.200s", name, e.line, e.text);
}

int tok_spm_visit(struct proto_str model, struct proto_str added, struct proto_str config, tok_spm_fn fn, void *ctx,
		  struct sl_err *err)
{
	struct sl_err reason = {0};
	struct reading r = {.src = {.eot = -1, .before = -1, .after = -1}, .err = &reason};
	json_t *more = NULL, *settings = NULL;
	int rc = spm_read(model.at, model.n, &r.m, &reason);
	if (rc == 0)
		rc = parse(&r, added, "added_tokens.json", 0, &more);
	/* Numbers that mean "no limit" there exceed every integer. */
	if (rc == 0)
		rc = parse(&r, config, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &settings);
	if (rc == 0)
		rc = read_all(&r, more, settings);
	if (rc == 0) {
		rc = fn(ctx, &r.src, &r.m, &reason);
	} else {
		norm_destroy(r.src.norm);
		pretok_destroy(r.src.pretok);
	}
	if (rc != 0)
		sl_errf(err, rc, "%s", reason.text);
	spm_dispose(&r.m);
	sl_free(r.tokens);
	sl_free(r.attrs);
	sl_free(r.flags);
	sl_free(r.user);
	sl_free(r.scores);
	json_decref(more);
	json_decref(settings);
	return rc;
}

static int create(void *out, struct tok_source *src, const struct spm_model *m, struct sl_err *err)
{
	(void)m;
	return tokenizer_create_from(src, out, err);
}

int tokenizer_create_spm(struct proto_str model, struct proto_str added, struct proto_str config,
			 struct tokenizer **out, struct sl_err *err)
{
	return tok_spm_visit(model, added, config, create, out, err);
}
