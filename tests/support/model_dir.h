/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders with small models for tests: a Hugging Face folder written by hand, and the tools to change
 * its files.
 */
#ifndef TESTS_MODEL_DIR_H
#define TESTS_MODEL_DIR_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static inline void md_make(char path[128])
{
	const char *base = getenv("TMPDIR");
	snprintf(path, 128, "%s/sluice-model-XXXXXX", base != NULL ? base : "/tmp");
	BUG_IF(mkdtemp(path) == NULL, "no folder for tests");
}

static inline void md_path(char out[256], const char *dir, const char *name)
{
	BUG_IF(snprintf(out, 256, "%s/%s", dir, name) >= 256, "a path too long");
}

static inline void md_write(const char *dir, const char *name, const void *bytes, size_t n)
{
	char path[256];
	md_path(path, dir, name);
	FILE *f = fopen(path, "wb");
	BUG_IF(f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0, "can't write %s", path);
}

static inline void md_text(const char *dir, const char *name, const char *text)
{
	md_write(dir, name, text, strlen(text));
}

/* The whole file; the caller frees it. */
static inline uint8_t *md_read(const char *dir, const char *name, size_t *n)
{
	char path[256];
	struct stat st;
	md_path(path, dir, name);
	FILE *f = fopen(path, "rb");
	BUG_IF(f == NULL || fstat(fileno(f), &st) != 0, "can't read %s", path);
	uint8_t *bytes = malloc((size_t)st.st_size + 1);
	*n = fread(bytes, 1, (size_t)st.st_size, f);
	fclose(f);
	return bytes;
}

static inline void md_remove_file(const char *dir, const char *name)
{
	char path[256];
	md_path(path, dir, name);
	unlink(path);
}

/* The folder and the files in it. */
static inline void md_remove(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			md_remove_file(dir, e->d_name);
	if (d != NULL)
		closedir(d);
	rmdir(dir);
}

/* ---- safetensors ---- */

struct md_tensor {
	const char *name, *dtype;
	int rows, width; /* rows 0: a vector */
};

static inline size_t md_element(const char *dtype) { return strcmp(dtype, "F32") == 0 ? 4 : 2; }

/* Value i of the tensor of that name: small, exact in every type. */
static inline float md_value(const char *name, size_t i)
{
	uint32_t h = 2166136261u;
	for (const char *c = name; *c != '\0'; c++)
		h = (h ^ (uint8_t)*c) * 16777619u;
	h = (h ^ (uint32_t)i) * 16777619u;
	h ^= h >> 15;
	return (float)((int)(h % 17) - 8) / 16;
}

/* As float32 bits, or the upper half of them (bfloat16), or as F16 of a few bits. */
static inline uint32_t md_bits(const char *dtype, float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	if (strcmp(dtype, "F32") == 0)
		return bits;
	if (strcmp(dtype, "BF16") == 0)
		return bits >> 16;
	if (v == 0)
		return 0;
	uint32_t exp = (bits >> 23 & 0xff) - 112;
	return (bits >> 16 & 0x8000u) | exp << 10 | (bits >> 13 & 0x3ff);
}

static inline void md_safetensors(const char *dir, const char *name, const struct md_tensor *tensors, size_t n)
{
	static char head[1 << 16];
	size_t at = 0, h;
	h = (size_t)snprintf(head, sizeof head, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = 0; i < n; i++) {
		const struct md_tensor *t = &tensors[i];
		size_t bytes = (size_t)(t->rows ? t->rows : 1) * (size_t)t->width * md_element(t->dtype);
		h += (size_t)snprintf(head + h, sizeof head - h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
				      t->dtype);
		if (t->rows > 0)
			h += (size_t)snprintf(head + h, sizeof head - h, "%d,", t->rows);
		h += (size_t)snprintf(head + h, sizeof head - h, "%d],\"data_offsets\":[%zu,%zu]}", t->width, at,
				      at + bytes);
		at += bytes;
	}
	h += (size_t)snprintf(head + h, sizeof head - h, "}");
	while (h % 8 != 0)
		head[h++] = ' ';
	uint8_t *file = malloc(8 + h + at), *p = file + 8 + h;
	for (int i = 0; i < 8; i++)
		file[i] = (uint8_t)((uint64_t)h >> (8 * i));
	memcpy(file + 8, head, h);
	for (size_t i = 0; i < n; i++) {
		const struct md_tensor *t = &tensors[i];
		size_t elements = (size_t)(t->rows ? t->rows : 1) * (size_t)t->width;
		for (size_t k = 0; k < elements; k++) {
			uint32_t bits = md_bits(t->dtype, md_value(t->name, k));
			memcpy(p, &bits, md_element(t->dtype));
			p += md_element(t->dtype);
		}
	}
	md_write(dir, name, file, (size_t)(p - file));
	free(file);
}

/* ---- a Llama of one layer: width 8, 2 heads of 4, one for keys, 12 rows of vocabulary ---- */

static const struct md_tensor md_llama[] = {
    {"model.embed_tokens.weight", "BF16", 12, 8},
    {"model.layers.0.input_layernorm.weight", "BF16", 0, 8},
    {"model.layers.0.self_attn.q_proj.weight", "F16", 8, 8},
    {"model.layers.0.self_attn.k_proj.weight", "F32", 4, 8},
    {"model.layers.0.self_attn.v_proj.weight", "BF16", 4, 8},
    {"model.layers.0.self_attn.o_proj.weight", "BF16", 8, 8},
    {"model.layers.0.post_attention_layernorm.weight", "F16", 0, 8},
    {"model.layers.0.mlp.gate_proj.weight", "BF16", 16, 8},
    {"model.layers.0.mlp.up_proj.weight", "BF16", 16, 8},
    {"model.layers.0.mlp.down_proj.weight", "BF16", 8, 16},
    {"model.norm.weight", "F32", 0, 8},
    {"lm_head.weight", "BF16", 12, 8},
};
enum { MD_N_LLAMA = sizeof md_llama / sizeof *md_llama };

#define MD_LLAMA_CONFIG                                                                                  \
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2," \
	"\"num_key_value_heads\":1,\"intermediate_size\":16,\"max_position_embeddings\":64,"             \
	"\"rms_norm_eps\":1e-5,\"rope_theta\":20000,\"hidden_act\":\"silu\",\"vocab_size\":12,"          \
	"\"tie_word_embeddings\":false,\"bos_token_id\":0,\"eos_token_id\":[1,2]"

static const char md_tokenizer[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,\"content\":\"</s>\","
    "\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":true},"
    "\"post_processor\":{\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2,\"b\":3,\"\\u0120\":4,\"ab\":5,\"\\\"\":6},"
    "\"merges\":[\"a b\",[\"ab\",\"a\"]]}}";

static inline void md_llama_folder(const char *dir)
{
	md_text(dir, "config.json", MD_LLAMA_CONFIG "}");
	md_text(dir, "generation_config.json", "{\"eos_token_id\":[1,5]}");
	md_text(dir, "tokenizer.json", md_tokenizer);
	md_text(dir, "tokenizer_config.json",
		"{\"add_bos_token\":true,\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"no\"},"
		"{\"name\":\"default\",\"template\":\"{{ \\\"h\\u00e9\\\" }}\\n\"}]}");
	md_safetensors(dir, "model.safetensors", md_llama, MD_N_LLAMA);
}

/* The same in two parts with an index. */
static inline void md_llama_sharded(const char *dir)
{
	static char index[8192];
	size_t n = (size_t)snprintf(index, sizeof index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
	md_llama_folder(dir);
	md_remove_file(dir, "model.safetensors");
	md_safetensors(dir, "model-00001-of-00002.safetensors", md_llama, 6);
	md_safetensors(dir, "model-00002-of-00002.safetensors", md_llama + 6, MD_N_LLAMA - 6);
	for (size_t i = 0; i < MD_N_LLAMA; i++)
		n += (size_t)snprintf(index + n, sizeof index - n, "%s\"%s\":\"model-0000%d-of-00002.safetensors\"",
				      i > 0 ? "," : "", md_llama[i].name, i < 6 ? 1 : 2);
	snprintf(index + n, sizeof index - n, "}}");
	md_text(dir, "model.safetensors.index.json", index);
}

#endif
