/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a small "llama" file with random weights for tests: byte tokens, two control tokens, a chat template. Its
 * output is noise, but reproducible by the seed.
 */
#ifndef TESTS_TINY_GGUF_H
#define TESTS_TINY_GGUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TINY_LAYERS = 2,
	TINY_EMBD = 32,
	TINY_HEADS = 4,
	TINY_KV_HEADS = 2,
	TINY_HEAD = 8,
	TINY_FF = 48,
	TINY_CTX = 512,
	TINY_BOS = 256,
	TINY_EOS = 257,
	TINY_VOCAB = 258,
	TINY_ALIGN = 32,
};

enum { TINY_U32 = 4, TINY_I32 = 5, TINY_F32 = 6, TINY_STR = 8, TINY_ARR = 9 };

struct tiny {
	FILE *f;
	uint64_t random;
	uint64_t data_bytes;
};

static inline void tiny_u32(struct tiny *t, uint32_t v) { fwrite(&v, 4, 1, t->f); }
static inline void tiny_u64(struct tiny *t, uint64_t v) { fwrite(&v, 8, 1, t->f); }

static inline void tiny_str(struct tiny *t, const char *s, size_t n)
{
	tiny_u64(t, n);
	fwrite(s, 1, n, t->f);
}

static inline void tiny_key(struct tiny *t, const char *key, uint32_t type)
{
	tiny_str(t, key, strlen(key));
	tiny_u32(t, type);
}

static inline void tiny_kv_u32(struct tiny *t, const char *key, uint32_t v)
{
	tiny_key(t, key, TINY_U32);
	tiny_u32(t, v);
}

static inline void tiny_kv_str(struct tiny *t, const char *key, const char *v)
{
	tiny_key(t, key, TINY_STR);
	tiny_str(t, v, strlen(v));
}

/* A byte as GPT-2's vocabulary spells it. */
static inline size_t tiny_byte_token(int byte, char out[4])
{
	static const int gaps[][2] = {{0, 33}, {127, 161}, {173, 174}};
	int cp = byte, shift = 256;
	for (size_t i = 0; i < 3; i++) {
		if (byte >= gaps[i][0] && byte < gaps[i][1]) {
			cp = shift + byte - gaps[i][0];
			break;
		}
		shift += gaps[i][1] - gaps[i][0];
	}
	if (cp < 128) {
		out[0] = (char)cp;
		return 1;
	}
	out[0] = (char)(0xc0 | cp >> 6);
	out[1] = (char)(0x80 | (cp & 0x3f));
	return 2;
}

static inline void tiny_vocabulary(struct tiny *t)
{
	tiny_key(t, "tokenizer.ggml.tokens", TINY_ARR);
	tiny_u32(t, TINY_STR);
	tiny_u64(t, TINY_VOCAB);
	for (int i = 0; i < 256; i++) {
		char s[4];
		size_t n = tiny_byte_token(i, s);
		tiny_str(t, s, n);
	}
	tiny_str(t, "<|start|>", 9);
	tiny_str(t, "<|end|>", 7);
	tiny_key(t, "tokenizer.ggml.token_type", TINY_ARR);
	tiny_u32(t, TINY_I32);
	tiny_u64(t, TINY_VOCAB);
	for (int i = 0; i < TINY_VOCAB; i++)
		tiny_u32(t, i < 256 ? 1 : 3);
	tiny_key(t, "tokenizer.ggml.merges", TINY_ARR);
	tiny_u32(t, TINY_STR);
	tiny_u64(t, 0);
}

static inline void tiny_tensor(struct tiny *t, const char *name, uint64_t n_in, uint64_t n_out)
{
	tiny_str(t, name, strlen(name));
	tiny_u32(t, n_out > 0 ? 2 : 1);
	tiny_u64(t, n_in);
	if (n_out > 0)
		tiny_u64(t, n_out);
	tiny_u32(t, 0); /* F32 */
	tiny_u64(t, t->data_bytes);
	uint64_t bytes = 4 * n_in * (n_out > 0 ? n_out : 1);
	t->data_bytes += (bytes + TINY_ALIGN - 1) / TINY_ALIGN * TINY_ALIGN;
}

/* As tiny_tensor described it: gains about 1, matrices about 0. */
static inline void tiny_data(struct tiny *t, uint64_t n_in, uint64_t n_out)
{
	uint64_t n = n_in * (n_out > 0 ? n_out : 1);
	for (uint64_t i = 0; i < n; i++) {
		t->random = t->random * 6364136223846793005ull + 1442695040888963407ull;
		float v = ((float)(t->random >> 40) / 16777216.0f - 0.5f);
		v = n_out > 0 ? v * 0.8f : 1 + v * 0.2f;
		fwrite(&v, 4, 1, t->f);
	}
	for (uint64_t at = 4 * n; at % TINY_ALIGN != 0; at++)
		fputc(0, t->f);
}

static inline void tiny_each(struct tiny *t, void (*each)(struct tiny *, const char *, uint64_t, uint64_t))
{
	static const struct {
		const char *name;
		uint64_t n_in, n_out;
	} layer[] = {
	    {"attn_norm", TINY_EMBD, 0},
	    {"attn_q", TINY_EMBD, TINY_HEADS * TINY_HEAD},
	    {"attn_k", TINY_EMBD, TINY_KV_HEADS * TINY_HEAD},
	    {"attn_v", TINY_EMBD, TINY_KV_HEADS * TINY_HEAD},
	    {"attn_output", TINY_HEADS * TINY_HEAD, TINY_EMBD},
	    {"ffn_norm", TINY_EMBD, 0},
	    {"ffn_gate", TINY_EMBD, TINY_FF},
	    {"ffn_up", TINY_EMBD, TINY_FF},
	    {"ffn_down", TINY_FF, TINY_EMBD},
	};
	each(t, "token_embd.weight", TINY_EMBD, TINY_VOCAB);
	each(t, "output.weight", TINY_EMBD, TINY_VOCAB);
	each(t, "output_norm.weight", TINY_EMBD, 0);
	for (int l = 0; l < TINY_LAYERS; l++) {
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
			char name[64];
			snprintf(name, sizeof name, "blk.%d.%s.weight", l, layer[i].name);
			each(t, name, layer[i].n_in, layer[i].n_out);
		}
	}
}

static inline void tiny_each_data(struct tiny *t, const char *name, uint64_t n_in, uint64_t n_out)
{
	(void)name;
	tiny_data(t, n_in, n_out);
}

/* False when the file can't be written. */
static inline bool tiny_gguf_write(const char *path, uint64_t seed)
{
	struct tiny t = {.f = fopen(path, "wb"), .random = seed};
	if (t.f == NULL)
		return false;
	fwrite("GGUF", 1, 4, t.f);
	tiny_u32(&t, 3);
	tiny_u64(&t, 3 + 9 * TINY_LAYERS);
	tiny_u64(&t, 17);
	tiny_kv_str(&t, "general.architecture", "llama");
	tiny_kv_str(&t, "general.name", "tiny");
	tiny_kv_u32(&t, "llama.block_count", TINY_LAYERS);
	tiny_kv_u32(&t, "llama.embedding_length", TINY_EMBD);
	tiny_kv_u32(&t, "llama.attention.head_count", TINY_HEADS);
	tiny_kv_u32(&t, "llama.attention.head_count_kv", TINY_KV_HEADS);
	tiny_kv_u32(&t, "llama.feed_forward_length", TINY_FF);
	tiny_kv_u32(&t, "llama.context_length", TINY_CTX);
	tiny_key(&t, "llama.attention.layer_norm_rms_epsilon", TINY_F32);
	float eps = 1e-5f;
	fwrite(&eps, 4, 1, t.f);
	tiny_kv_str(&t, "tokenizer.ggml.model", "gpt2");
	tiny_kv_str(&t, "tokenizer.ggml.pre", "gpt-2");
	tiny_vocabulary(&t); /* three keys */
	tiny_kv_u32(&t, "tokenizer.ggml.bos_token_id", TINY_BOS);
	tiny_kv_u32(&t, "tokenizer.ggml.eos_token_id", TINY_EOS);
	tiny_kv_str(&t, "tokenizer.chat_template",
		    "{% for m in messages %}{{ '<|start|>' + m['role'] + ': ' + m['content'] + "
		    "'<|end|>' }}{% endfor %}{{ '<|start|>assistant: ' }}");
	tiny_each(&t, tiny_tensor);
	while (ftell(t.f) % TINY_ALIGN != 0)
		fputc(0, t.f);
	tiny_each(&t, tiny_each_data);
	bool good = !ferror(t.f);
	return fclose(t.f) == 0 && good;
}

#endif
