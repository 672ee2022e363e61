/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer section of a GGUF file, read into a tok_source. Strings stay in the file's mapping;
 * only the arrays of their places are made here, and freed when the tokenizer has copied them.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/tokenizer_source.h"

/* A vocabulary beyond this is a malformed file. */
enum { MAX_STRINGS = 1 << 24 };

static int get_strings(const struct gguf *g, const char *key, struct proto_str **out, size_t *n,
		       struct sl_err *err)
{
	struct gguf_array a;
	int rc = gguf_get_array(g, key, &a, err);
	if (rc == SL_ENOTFOUND)
		return sl_errf(err, SL_EINVAL, "%s: %s is missing", gguf_path(g), key);
	if (rc != 0)
		return rc;
	if (a.type != GGUF_STRING || a.n > MAX_STRINGS)
		return sl_errf(err, SL_EINVAL, "%s: %s is not a list of up to %d strings",
			       gguf_path(g), key, MAX_STRINGS);
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
		return sl_errf(err, SL_EINVAL, "%s: %s is not a list of %zu integers", gguf_path(g),
			       key, n_tokens);
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

static int get_name(const struct gguf *g, const char *key, struct proto_str *out,
		    struct sl_err *err)
{
	int rc = gguf_get_str(g, key, out, err);
	if (rc == SL_ENOTFOUND)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %s is missing, and a guess may be wrong",
			       gguf_path(g), key);
	return rc;
}

int tokenizer_create(const struct gguf *g, struct tokenizer **out, struct sl_err *err)
{
	/* Keys that may be absent leave a message; the caller sees one only on failure. */
	struct sl_err why = {0}, reason = {0};
	struct tok_source src = {.add_bos = -1};
	struct proto_str *tokens = NULL, *merges = NULL;
	int32_t *attrs = NULL;
	bool add_bos = false;
	int rc = get_name(g, "tokenizer.ggml.model", &src.model, &why);
	if (rc == 0 && src.model.n == 4 && memcmp(src.model.at, "gpt2", 4) == 0) {
		rc = get_name(g, "tokenizer.ggml.pre", &src.pre, &why);
		if (rc == 0)
			rc = get_strings(g, "tokenizer.ggml.merges", &merges, &src.n_merges, &why);
	}
	if (rc == 0)
		rc = get_strings(g, "tokenizer.ggml.tokens", &tokens, &src.n_tokens, &why);
	if (rc == 0)
		rc = get_attrs(g, src.n_tokens, &attrs, &why);
	if (rc == 0)
		rc = get_id(g, "tokenizer.ggml.bos_token_id", &src.bos, &why);
	if (rc == 0)
		rc = get_id(g, "tokenizer.ggml.eos_token_id", &src.eos, &why);
	if (rc == 0)
		rc = get_id(g, "tokenizer.ggml.eot_token_id", &src.eot, &why);
	if (rc == 0)
		rc = get_id(g, "tokenizer.ggml.unknown_token_id", &src.unknown, &why);
	if (rc == 0) {
		rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, &why);
		if (rc == 0)
			src.add_bos = add_bos;
		else if (rc == SL_ENOTFOUND)
			rc = 0;
	}
	if (rc == 0) {
		src.tokens = tokens;
		src.merges = merges;
		src.attrs = attrs;
		rc = tokenizer_create_from(&src, out, &reason);
		if (rc != 0)
			sl_errf(&why, rc, "%s: %s", gguf_path(g), reason.text);
	}
	if (rc != 0 && err != NULL)
		*err = why;
	sl_free(tokens);
	sl_free(merges);
	sl_free(attrs);
	return rc;
}
