/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/adapter: the input begins with its form: 0, then a GGUF adapter; 1, then the length of an adapter_config.json
 * in two bytes, the latter, and a safetensors file. It opens, without a base, with a dense one and a mixture, or is
 * refused with one line; every row of an open one is finite and lies inside of the file.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/adapter/adapter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_write.h"

#define Q "base_model.model.model.layers.0.self_attn.q_proj"
#define E "base_model.model.model.embed_tokens"

/* Both halves, of a_dims and b_dims, of one matrix. */
static size_t seed_gguf(uint8_t *out, const char *matrix, const uint64_t a[3], const uint64_t b[3], size_t max)
{
	static struct gw w;
	char name[64];
	uint64_t n_a = a[0] * a[1] * a[2], n_b = b[0] * b[1] * b[2];
	w.n = 0;
	gw_head(&w, 3, 2, 4);
	gw_key(&w, "general.type", 8), gw_str(&w, "adapter");
	gw_key(&w, "adapter.type", 8), gw_str(&w, "lora");
	gw_key(&w, "general.architecture", 8), gw_str(&w, "llama");
	gw_key(&w, "adapter.lora.alpha", 6), gw_f32(&w, 2);
	snprintf(name, sizeof name, "%s.lora_a", matrix);
	gw_tensor(&w, name, a[2] > 1 ? 3 : 2, a, 1, 0);
	snprintf(name, sizeof name, "%s.lora_b", matrix);
	gw_tensor(&w, name, b[2] > 1 ? 3 : 2, b, 1, (2 * n_a + 31) / 32 * 32);
	gw_pad(&w, 32);
	for (uint64_t i = 0; i < (n_a + 15) / 16 * 16 + n_b; i++)
		gw_int(&w, 0x3c00, 2);
	if (w.n + 1 > max)
		return 0;
	out[0] = 0;
	memcpy(out + 1, w.at, w.n);
	return w.n + 1;
}

static size_t seed_peft(uint8_t *out, const char *config, const char *head, size_t data, size_t max)
{
	size_t c = strlen(config), h = strlen(head), padded = (h + 7) / 8 * 8, n = 3 + c + 8 + padded + data;
	if (n > max)
		return 0;
	memset(out, 0, n);
	out[0] = 1, out[1] = (uint8_t)c, out[2] = (uint8_t)(c >> 8);
	memcpy(out + 3, config, c);
	uint8_t *file = out + 3 + c;
	file[0] = (uint8_t)padded, file[1] = (uint8_t)(padded >> 8);
	memset(file + 8, ' ', padded);
	memcpy(file + 8, head, h);
	for (size_t i = 0; i < data; i++)
		file[8 + padded + i] = (uint8_t)(i * 37 % 64);
	return n;
}

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char head[] =
	    "{\"" Q ".lora_A.weight\":{\"dtype\":\"BF16\",\"shape\":[1,256],\"data_offsets\":[0,512]},"
	    "\"" Q ".lora_B.weight\":{\"dtype\":\"F16\",\"shape\":[256,1],\"data_offsets\":[512,1024]}}";
	static const char small[] =
	    "{\"" Q ".lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	    "\"" Q ".lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[24,56]}}";
	static const char embeds[] =
	    "{\"" E ".lora_embedding_A\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	    "\"" E ".lora_embedding_B\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[24,56]}}";
	switch (i) {
	case 0: return seed_gguf(out, "blk.0.attn_q.weight", (uint64_t[3]){256, 1, 1}, (uint64_t[3]){1, 256, 1}, max);
	case 1: return seed_gguf(out, "blk.0.attn_q.weight", (uint64_t[3]){8, 1, 1}, (uint64_t[3]){1, 8, 1}, max);
	case 4: return seed_gguf(out, "token_embd.weight", (uint64_t[3]){1, 512, 1}, (uint64_t[3]){1, 256, 1}, max);
	case 5: return seed_gguf(out, "output.weight", (uint64_t[3]){256, 1, 1}, (uint64_t[3]){1, 512, 1}, max);
	case 6: /* all experts; of a base with as many inputs the file would be too long */
		return seed_gguf(out, "blk.1.ffn_up_exps.weight", (uint64_t[3]){32, 1, 4}, (uint64_t[3]){1, 64, 4},
				 max);
	case 7:
		return seed_gguf(out, "blk.0.ffn_down.3.weight", (uint64_t[3]){512, 1, 1}, (uint64_t[3]){1, 256, 1},
				 max);
	case 8: return seed_peft(out, "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":2}", embeds, 56, max);
	case 2:
		return seed_peft(out,
				 "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":2,\"target_modules\":[\"q_proj\"]}",
				 head, 1024, max);
	case 3:
		return seed_peft(
		    out,
		    "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":2.5,\"use_rslora\":true,\"rank_pattern\":"
		    "{\"q_proj\":2},\"alpha_pattern\":{\"^model.layers.0.self_attn.q_proj$\":3}}",
		    small, 56, max);
	default: return 0;
	}
}

static void write_file(const char *path, const uint8_t *data, size_t n)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	FUZZ_REQUIRE(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	close(fd);
}

/* A folder with both files; leave removes it. */
static const char *folder_with(const uint8_t *data, size_t n)
{
	static char folder[128], config[192], tensors[192];
	size_t c = n >= 2 ? (size_t)(data[0] | data[1] << 8) : 0;
	if (folder[0] == '\0') {
		const char *base = getenv("TMPDIR");
		snprintf(folder, sizeof folder, "%.60s/sluice-fuzz-adapter-%d", base != NULL ? base : "/tmp", getpid());
		snprintf(config, sizeof config, "%s/adapter_config.json", folder);
		snprintf(tensors, sizeof tensors, "%s/adapter_model.safetensors", folder);
	}
	FUZZ_REQUIRE(mkdir(folder, 0700) == 0);
	data += n >= 2 ? 2 : n;
	n -= n >= 2 ? 2 : n;
	c = c < n ? c : n;
	write_file(config, data, c);
	write_file(tensors, data + c, n - c);
	return folder;
}

static void leave(const char *folder)
{
	char path[192];
	snprintf(path, sizeof path, "%s/adapter_config.json", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
	unlink(path);
	rmdir(folder);
}

static void read_rows(const struct adapter_matrix *m)
{
	float b[ADAPTER_MAX_RANK], *x = sl_alloc((size_t)m->n_in * sizeof *x);
	FUZZ_REQUIRE(x != NULL && m->rank <= ADAPTER_MAX_RANK && isfinite(m->scale) && m->scale != 0);
	for (int j = 0; j < m->rank; j++) {
		adapter_a_row(m, j, x);
		for (int i = 0; i < m->n_in; i++)
			FUZZ_REQUIRE(isfinite(x[i]));
	}
	for (int i = 0; i < m->n_out; i++) {
		adapter_b_row(m, i, b);
		for (int j = 0; j < m->rank; j++)
			FUZZ_REQUIRE(isfinite(b[j]));
	}
	sl_free(x);
}

static void open_one(const char *path, const struct model_file *base, const struct model_arch *arch)
{
	struct adapter *a = NULL;
	struct sl_err err = {0};
	int rc = adapter_open(path, base, arch, &a, &err);
	if (rc != 0) {
		FUZZ_REQUIRE(a == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return;
	}
	for (int i = 0; i < adapter_n_layers(a); i++)
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			const struct adapter_matrix *m = adapter_at(a, i, (enum adapter_target)t);
			if (m->rank > 0)
				read_rows(m);
			for (int e = 0; e < adapter_n_experts(a, i, (enum adapter_target)t); e++) {
				m = adapter_expert(a, i, (enum adapter_target)t, e);
				if (m->rank > 0)
					read_rows(m);
			}
		}
	adapter_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const paths[] = {"random:tiny-llama:f32", "random:tiny-mixtral:f32"};
	static struct model_file *bases[2];
	static struct model_arch archs[2];
	struct sl_err err = {0};
	for (int i = 0; i < 2 && bases[i] == NULL; i++)
		FUZZ_REQUIRE(model_file_open(paths[i], &bases[i], &err) == 0 &&
			     model_file_arch(bases[i], &archs[i], &err) == 0);
	if (n == 0)
		return 0;
	bool folder = data[0] % 2 == 1;
	const char *path = folder ? folder_with(data + 1, n - 1) : gw_file(data + 1, n - 1);
	open_one(path, NULL, NULL);
	for (int i = 0; i < 2; i++)
		open_one(path, bases[i], &archs[i]);
	if (folder)
		leave(path);
	return 0;
}
