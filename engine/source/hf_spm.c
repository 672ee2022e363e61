/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/hf_spm.h"

#include <stdio.h>

#include "engine/source/hf_folder_priv.h"
#include "engine/token/spm_model.h"

struct writing {
	const struct hf_folder *folder;
	struct gguf_writer *w;
	int n; /* rows of the weights */
};

/* Rows of weights without a token are padded, as their converters do. */
static void put_tokens(const struct writing *x, const struct tok_source *src)
{
	gguf_put_array(x->w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)x->n);
	for (int i = 0; i < x->n; i++) {
		char unused[32];
		bool has = (size_t)i < src->n_tokens && src->tokens[i].n > 0;
		int n = snprintf(unused, sizeof unused, "[PAD%d]", i);
		gguf_item_str(x->w, has ? src->tokens[i].at : unused, has ? src->tokens[i].n : (size_t)n);
	}
	gguf_put_array(x->w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)x->n);
	for (int i = 0; i < x->n; i++) {
		int32_t attr = (size_t)i < src->n_tokens ? src->attrs[i] : TOK_UNUSED;
		gguf_item_bytes(x->w, &attr, sizeof attr);
	}
	gguf_put_array(x->w, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)x->n);
	for (int i = 0; i < x->n; i++) {
		float score = (size_t)i < src->n_tokens ? src->scores[i] : 0;
		gguf_item_bytes(x->w, &score, sizeof score);
	}
}

static void put_ids(const struct writing *x, const struct tok_source *src)
{
	gguf_put_u32(x->w, "tokenizer.ggml.unknown_token_id", (uint32_t)src->unknown);
	if (src->bos >= 0)
		gguf_put_u32(x->w, "tokenizer.ggml.bos_token_id", (uint32_t)src->bos);
	if (hf_put_ends(x->folder, x->w) == 0 && src->eos >= 0)
		gguf_put_u32(x->w, "tokenizer.ggml.eos_token_id", (uint32_t)src->eos);
	gguf_put_bool(x->w, "tokenizer.ggml.add_bos_token", src->add_bos == 1);
	gguf_put_bool(x->w, "tokenizer.ggml.add_eos_token", src->after >= 0);
}

static int write(void *ctx, struct tok_source *src, const struct spm_model *m, struct sl_err *err)
{
	struct writing *x = ctx;
	norm_destroy(src->norm);
	pretok_destroy(src->pretok);
	if (src->n_tokens > (size_t)x->n)
		return sl_errf(err, SL_EINVAL, "it has %zu tokens, but the weights have %d rows", src->n_tokens, x->n);
	/* Readers of GGUF do this for Unigram only. */
	if (!m->unigram && (m->collapse || m->charsmap.n > 0))
		return sl_errf(err, SL_EUNSUPPORTED, "GGUF has no key for %s of a bpe model",
			       m->collapse ? "remove_extra_whitespaces" : "precompiled_charsmap");
	gguf_put_str(x->w, "tokenizer.ggml.model", m->unigram ? "t5" : "llama", m->unigram ? 2 : 5);
	gguf_put_str(x->w, "tokenizer.ggml.pre", "default", 7);
	gguf_put_bool(x->w, "tokenizer.ggml.add_space_prefix", src->strips_space);
	gguf_put_bool(x->w, "tokenizer.ggml.remove_extra_whitespaces", m->collapse);
	if (m->charsmap.n > 0) {
		gguf_put_array(x->w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, m->charsmap.n);
		gguf_item_bytes(x->w, m->charsmap.at, m->charsmap.n);
	}
	put_tokens(x, src);
	put_ids(x, src);
	hf_put_template(x->folder, x->w);
	return 0;
}

int hf_write_spm(const struct hf_folder *f, int n_vocab, struct gguf_writer *w, struct sl_err *err)
{
	struct writing x = {.folder = f, .w = w, .n = n_vocab};
	return hf_spm_visit(f, write, &x, err);
}

static int count(void *n, struct tok_source *src, const struct spm_model *m, struct sl_err *err)
{
	(void)m;
	(void)err;
	norm_destroy(src->norm);
	pretok_destroy(src->pretok);
	*(int *)n = (int)src->n_tokens;
	return 0;
}

int hf_count_spm(const struct hf_folder *f)
{
	struct sl_err ignored;
	int n = 0;
	return hf_spm_visit(f, count, &n, &ignored) == 0 ? n : 0;
}
