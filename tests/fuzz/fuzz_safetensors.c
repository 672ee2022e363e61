/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/safetensors and the walk over JSON below it: the input is a file. It opens, or is refused
 * with one line; what an open file offers lies inside of it, and no byte belongs to two tensors.
 * Read as JSON text, it is walked to an end.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_scan.h"
#include "engine/file/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_write.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const heads[] = {
	    "{\"__metadata__\":{\"format\":\"pt\"},\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,"
	    "8]},"
	    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]}}",
	    "{\"\\u0061\\n\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]},\"x\":{\"data_offsets\":[2,16],"
	    "\"extra\":[{\"y\":[true,null,-1.5e3]}],\"shape\":[14],\"dtype\":\"U8\"}}",
	    "{}",
	};
	if (i >= sizeof heads / sizeof *heads)
		return 0;
	size_t n = strlen(heads[i]), padded = (n + 7) / 8 * 8, data = i < 2 ? 16 : 0;
	if (8 + padded + data > max)
		return 0;
	memset(out, 0, 8 + padded + data);
	out[0] = (uint8_t)padded;
	memset(out + 8, ' ', padded);
	memcpy(out + 8, heads[i], n);
	return 8 + padded + data;
}

static void walk_text(const uint8_t *data, size_t n)
{
	struct json_scan j;
	struct proto_str key;
	json_scan_init(&j, (const char *)data, n);
	json_scan_object(&j);
	while (json_scan_key(&j, &key)) {
		char *text = sl_alloc(key.n + 1);
		FUZZ_REQUIRE(text != NULL);
		size_t bytes = json_unescape(key, text);
		FUZZ_REQUIRE(bytes == SIZE_MAX || bytes <= key.n);
		sl_free(text);
		json_scan_skip(&j);
	}
	bool good = json_scan_end(&j);
	FUZZ_REQUIRE(good == (j.bad == NULL) && j.at <= j.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct safetensors *s = NULL;
	struct sl_err err = {0};
	walk_text(data, n);
	if (n > 8)
		walk_text(data + 8, n - 8);
	int rc = safetensors_open(gw_file(data, n), &s, &err);
	if (rc != 0) {
		FUZZ_REQUIRE(s == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return 0;
	}
	uint64_t bytes = 0, sum = 0;
	for (size_t i = 0; i < safetensors_n(s); i++) {
		const struct st_tensor *t = safetensors_at(s, i);
		FUZZ_REQUIRE(t->name[0] != '\0' && t->n_dims >= 1 && t->n_dims <= ST_MAX_DIMS);
		bytes += t->bytes;
		for (uint64_t k = 0; k < t->bytes; k++)
			sum += ((const uint8_t *)t->data)[k];
	}
	FUZZ_REQUIRE(bytes <= n && sum <= 255 * (uint64_t)n);
	safetensors_close(s);
	return 0;
}
