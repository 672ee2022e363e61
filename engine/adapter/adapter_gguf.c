/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF adapters, as llama.cpp's convert_lora_to_gguf.py writes them: NAME.lora_a [rank][n_in] and NAME.lora_b
 * [n_out][rank] for the base's tensor NAME, whose rows of queries and keys lie as GGUF's do. For all experts of a layer
 * both have a dimension more, in front. For the embeddings lora_a is [n_vocab][rank] and lora_b [n_embd][rank].
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_scan.h"
#include "base/text.h"
#include "engine/adapter/adapter_priv.h"

/* The value of a key of text; "" where it is absent or no text. */
static void text_of(const struct gguf *g, const char *key, char *out, size_t bytes)
{
	struct proto_str s;
	struct sl_err ignored;
	out[0] = '\0';
	if (gguf_get_str(g, key, &s, &ignored) == 0)
		snprintf(out, bytes, "%.*s", (int)(s.n < bytes ? s.n : bytes - 1), s.at);
	text_one_line(out, ' ');
}

/* Keys that change what it computes, but for those that are read. */
static int check_keys(const struct adapter *a, struct sl_err *err)
{
	static const char *const known[] = {"adapter.type", "adapter.lora.alpha", "adapter.lora.task_name",
					    "adapter.lora.prompt_prefix"};
	for (size_t i = 0; i < gguf_n_keys(a->gguf); i++) {
		enum gguf_value type;
		struct proto_str value, key = gguf_raw_key(a->gguf, i, &type, &value);
		bool ours = key.n < 8 || memcmp(key.at, "adapter.", 8) != 0;
		for (size_t k = 0; k < sizeof known / sizeof *known; k++)
			ours = ours || json_is(key, known[k]);
		if (!ours)
			return sl_errf(err, SL_EUNSUPPORTED, "%s: key %.*s is not supported by this version", a->path,
				       (int)(key.n < 100 ? key.n : 100), key.at);
	}
	return 0;
}

static int read_head(struct adapter *a, double *alpha, struct sl_err *err)
{
	char kind[32], type[32], family[32];
	float v = 0;
	text_of(a->gguf, "general.type", kind, sizeof kind);
	text_of(a->gguf, "adapter.type", type, sizeof type);
	text_of(a->gguf, "general.architecture", family, sizeof family);
	text_of(a->gguf, "general.base_model.0.name", a->base_name, sizeof a->base_name);
	if (strcmp(kind, "adapter") != 0)
		return sl_errf(err, SL_EINVAL, "%s: general.type is \"%s\", not \"adapter\"", a->path, kind);
	if (strcmp(type, "lora") != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: adapter.type is \"%s\"; only \"lora\" is supported", a->path,
			       type);
	if (a->arch != NULL && strcmp(family, a->family) != 0)
		return sl_errf(err, SL_EINVAL, "%s: general.architecture is \"%s\", but the base is of \"%s\"", a->path,
			       family, a->family);
	int rc = gguf_get_f32(a->gguf, "adapter.lora.alpha", &v, err);
	if (rc == SL_ENOTFOUND)
		return sl_errf(err, SL_EINVAL, "%s: key adapter.lora.alpha is missing", a->path);
	if (rc == 0 && (!isfinite(v) || v == 0))
		return sl_errf(err, SL_EINVAL, "%s: adapter.lora.alpha is %g", a->path, (double)v);
	*alpha = (double)v;
	return rc != 0 ? rc : check_keys(a, err);
}

static int put_tensor(struct adapter *a, const struct gguf_tensor *t, double alpha, struct sl_err *err)
{
	char matrix[ST_MAX_NAME + 1];
	bool is_b = text_ends(t->name, ".lora_b");
	size_t n = strlen(t->name);
	if ((!is_b && !text_ends(t->name, ".lora_a")) || n > ST_MAX_NAME)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %.200s is neither .lora_a nor .lora_b of a matrix",
			       a->path, t->name);
	snprintf(matrix, sizeof matrix, "%.*s", (int)(n - 7), t->name);
	if (t->n_dims > 3)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has %d dimensions", a->path, t->name, t->n_dims);
	struct adapter_part p = {
	    .name = t->name,
	    .matrix = matrix,
	    .is_b = is_b,
	    .half = {.data = t->data, .type = t->type, .width = t->dims[0], .n_rows = t->dims[1]},
	    .n = t->dims[2],
	    .bytes = t->bytes,
	    .alpha = alpha,
	};
	if (strcmp(matrix, adapter_target_tensor(ADAPTER_EMBED)) == 0) {
		p.is_b = !is_b;
		if (is_b)
			p.half = (struct adapter_half){.data = t->data,
						       .type = t->type,
						       .width = t->dims[1],
						       .n_rows = t->dims[0],
						       .turned = true};
	}
	return adapter_put(a, &p, err);
}

int adapter_read_gguf(struct adapter *a, struct sl_err *err)
{
	double alpha = 0;
	a->form = "GGUF";
	int rc = gguf_read(a->path, ADAPTER_MAX_BYTES, &a->gguf, err);
	if (rc == 0)
		rc = read_head(a, &alpha, err);
	for (size_t i = 0; rc == 0 && i < gguf_n_tensors(a->gguf); i++)
		rc = put_tensor(a, gguf_tensor_at(a->gguf, i), alpha, err);
	return rc;
}
