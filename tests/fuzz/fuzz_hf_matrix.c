/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/packed: the input is a length in two bytes, a quantization_config of that length, and a safetensors file. Each
 * quantized matrix becomes rows of its type, or is refused with one line; nothing beyond the file is read, nothing
 * beyond a row written.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_depth.h"
#include "engine/packed/hf_matrix.h"
#include "kernels/kernels.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_write.h"

#define TENSOR(name, dtype, shape, from, to) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"
#define CT(format, weights)                                                                                          \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{\"a\":{\"targets\":[" \
	"\"Linear\",\"re:.*m$\"],\"weights\":{" weights "}}},\"ignore\":[\"lm_head\",\"re:.*head\"]}"

static const struct seed {
	const char *config, *head;
	size_t data;
} seeds[] = {
    {"{\"quant_method\":\"fp8\",\"weight_block_size\":[2,32]}",
     "{" TENSOR("m.weight_scale_inv", "F32", "2,2", 0, 16) "," TENSOR("m.weight", "F8_E4M3", "3,64", 16, 208) "}", 208},
    {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}",
     "{" TENSOR("m.weight_scale", "BF16", "1", 0, 2) "," TENSOR("m.weight", "F8_E4M3", "2,40", 2, 82) "}", 82},
    {CT("int-quantized", "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\",\"symmetric\":false"),
     "{" TENSOR("m.weight_scale", "F16", "2,1", 0, 4) "," TENSOR("m.weight", "I8", "2,32", 4, 68) "," TENSOR(
	 "m.weight_zero_point", "I8", "2,1", 68, 70) "}",
     70},
    {CT("nvfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"group_size\":16"),
     "{" TENSOR("m.weight_global_scale", "F32", "1", 0, 4) "," TENSOR(
	 "m.weight_packed", "U8", "2,16", 4, 36) "," TENSOR("m.weight_scale", "F8_E4M3", "2,2", 36, 40) "}",
     40},
    {"{\"quantization\":{\"quant_algo\":\"NVFP4\",\"exclude_modules\":[\"*head\"]}}",
     "{" TENSOR("m.weight_scale_2", "F32", "", 0, 4) "," TENSOR("m.weight", "U8", "1,128", 4, 132) "," TENSOR(
	 "m.weight_scale", "F8_E4M3", "1,16", 132, 148) "}",
     148},
    {"{\"quant_method\":\"mxfp4\"}",
     "{" TENSOR("experts.gate_up_proj_blocks", "U8", "2,2,1,16", 0, 64) "," TENSOR("experts.gate_up_proj_scales", "U8",
										   "2,2,1", 64, 68) "}",
     68},
    {CT("pack-quantized",
	"\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32,\"symmetric\":false,"
	"\"actorder\":\"group\""),
     "{" TENSOR("m.weight_packed", "I32", "8,8", 0,
		256) "," TENSOR("m.weight_zero_point", "I32", "1,2", 256,
				264) "," TENSOR("m.weight_g_idx", "I32", "64", 264,
						520) "," TENSOR("m.weight_scale", "F16", "8,2", 520, 552) "}",
     552},
    {"{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":32,\"desc_act\":true}",
     "{" TENSOR("m.qweight", "I32", "8,4", 0, 128) "," TENSOR("m.qzeros", "I32", "1,1", 128, 132) "," TENSOR(
	 "m.g_idx", "I32", "32", 132, 260) "," TENSOR("m.scales", "F16", "1,4", 260, 268) "}",
     268},
    {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32}",
     "{" TENSOR("m.qweight", "I32", "32,1", 0, 128) "," TENSOR("m.qzeros", "I32", "1,1", 128,
							       132) "," TENSOR("m.scales", "F16", "1,8", 132, 148) "}",
     148},
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	if (i >= sizeof seeds / sizeof *seeds)
		return 0;
	const struct seed *s = &seeds[i];
	size_t config = strlen(s->config), head = strlen(s->head), padded = (head + 7) / 8 * 8;
	size_t n = 2 + config + 8 + padded + s->data;
	if (n > max)
		return 0;
	memset(out, 0, n);
	out[0] = (uint8_t)config, out[1] = (uint8_t)(config >> 8);
	memcpy(out + 2, s->config, config);
	uint8_t *file = out + 2 + config;
	file[0] = (uint8_t)padded, file[1] = (uint8_t)(padded >> 8);
	memset(file + 8, ' ', padded);
	memcpy(file + 8, s->head, head);
	for (size_t k = 0; k < s->data; k++)
		file[8 + padded + k] = (uint8_t)(k * 37 % 64);
	return n;
}

static const struct st_tensor *find(const void *file, const char *name)
{
	for (size_t i = 0; i < safetensors_n(file); i++)
		if (strcmp(safetensors_at(file, i)->name, name) == 0)
			return safetensors_at(file, i);
	return NULL;
}

static void require_line(const struct sl_err *err)
{
	FUZZ_REQUIRE(err->text[0] != '\0' && strchr(err->text, '\n') == NULL);
}

/* Every row into memory of its size. */
static void make_rows(struct hf_matrix *m)
{
	struct hf_rows rows = hf_matrix_rows(m);
	size_t bytes = rows.raw != NULL ? kn_row_bytes(m->type, m->n_in) : m->n_in * sizeof(float);
	void *row = sl_alloc(bytes);
	FUZZ_REQUIRE(row != NULL && (rows.raw == NULL) != (rows.floats == NULL));
	for (uint64_t r = 0; r < (uint64_t)m->n * m->n_out; r++) {
		if (rows.raw != NULL)
			rows.raw(m, r, row);
		else
			rows.floats(m, r, row);
	}
	sl_free(row);
}

static void read_matrix(const struct hf_quant *q, const struct safetensors *file, const struct st_tensor *t)
{
	struct sl_err err = {0};
	struct hf_matrix m;
	int rc = hf_matrix_open(q, t, find, file, "f", &m, &err);
	if (rc == 0) {
		FUZZ_REQUIRE(kn_type_block(m.type) > 0 && m.n_in % (uint32_t)kn_type_block(m.type) == 0);
		FUZZ_REQUIRE(hf_matrix_bits(&m) == 4 || hf_matrix_bits(&m) == 8);
		rc = hf_matrix_check(&m, "f", &err);
	}
	if (rc != 0) {
		require_line(&err);
		return;
	}
	make_rows(&m);
	if (m.n_out % 2 == 0)
		for (int second = 0; second < 2; second++) {
			struct hf_matrix half = m;
			hf_matrix_halve(&half, second);
			make_rows(&half);
		}
}

static void read_file(const struct hf_quant *q, const struct safetensors *file)
{
	char name[ST_MAX_NAME + 16];
	for (size_t i = 0; i < safetensors_n(file); i++) {
		const struct st_tensor *t = safetensors_at(file, i);
		enum hf_role role = hf_matrix_role(t, name, sizeof name);
		if (role == HF_COMPONENT)
			(void)hf_matrix_has_main(t, find, file);
		else if (role == HF_MAIN)
			read_matrix(q, file, t);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t config = n >= 2 ? (size_t)(data[0] | data[1] << 8) : 0;
	struct hf_quant *q = NULL;
	struct safetensors *file = NULL;
	struct sl_err err = {0};
	if (n < 2 || config > n - 2 || json_deeper_than((const char *)data + 2, config, 32))
		return 0;
	json_t *j = json_loadb((const char *)data + 2, config, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	if (j != NULL && hf_quant_read(j, "f/config.json", &q, &err) != 0)
		require_line(&err);
	json_decref(j);
	if (q == NULL)
		return 0;
	FUZZ_REQUIRE(strchr(hf_quant_note(q), '\n') == NULL);
	if (safetensors_open(gw_file(data + 2 + config, n - 2 - config), &file, &err) == 0)
		read_file(q, file);
	safetensors_close(file);
	hf_quant_free(q);
	return 0;
}
