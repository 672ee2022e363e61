/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/adapter: the input begins with its form: 0, then a GGUF adapter; 1, then the length of an adapter_config.json
 * in two bytes, the latter, and a safetensors file. It opens, with and without a base, or is refused with one line;
 * every row of an open one is finite and lies inside of the file.
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

static size_t seed_gguf(uint8_t *out, uint64_t n_in, size_t max)
{
	static struct gw w;
	const uint64_t a[] = {n_in, 1}, b[] = {1, n_in};
	w.n = 0;
	gw_head(&w, 3, 2, 4);
	gw_key(&w, "general.type", 8), gw_str(&w, "adapter");
	gw_key(&w, "adapter.type", 8), gw_str(&w, "lora");
	gw_key(&w, "general.architecture", 8), gw_str(&w, "llama");
	gw_key(&w, "adapter.lora.alpha", 6), gw_f32(&w, 2);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_a", 2, a, 1, 0);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_b", 2, b, 1, 2 * n_in);
	gw_pad(&w, 32);
	for (uint64_t i = 0; i < 2 * n_in; i++)
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
	switch (i) {
	case 0: return seed_gguf(out, 256, max);
	case 1: return seed_gguf(out, 8, max);
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
		}
	adapter_close(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct model_file *base;
	static struct model_arch arch;
	struct sl_err err = {0};
	if (base == NULL)
		FUZZ_REQUIRE(model_file_open("random:tiny-llama:f32", &base, &err) == 0 &&
			     model_file_arch(base, &arch, &err) == 0);
	if (n == 0)
		return 0;
	bool folder = data[0] % 2 == 1;
	const char *path = folder ? folder_with(data + 1, n - 1) : gw_file(data + 1, n - 1);
	open_one(path, NULL, NULL);
	open_one(path, base, &arch);
	if (folder)
		leave(path);
	return 0;
}
