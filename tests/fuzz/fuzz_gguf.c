/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/gguf: the input is a model file. It opens, or is refused with one line; what an open file
 * offers lies inside of it.
 */
#include "engine/file/gguf.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_write.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static struct gw w;
	if (i > 2)
		return 0;
	if (i < 2) {
		gw_good(&w, 2 + (uint32_t)i);
	} else {
		w.n = 0;
		gw_head(&w, 3, 0, 1);
		gw_key(&w, "general.architecture", GGUF_STRING);
		gw_str(&w, "llama");
	}
	size_t n = w.n < max ? w.n : max;
	memcpy(out, w.at, n);
	return n;
}

static void check_array(struct gguf_array a, const struct gguf *g)
{
	struct proto_str s;
	uint64_t n = 0;
	FUZZ_REQUIRE((uint64_t)(a.end - a.at) <= gguf_file_bytes(g));
	if (a.type == GGUF_STRING) {
		while (gguf_next_string(&a, &s)) {
			FUZZ_REQUIRE((const uint8_t *)s.at + s.n <= a.end);
			n++;
		}
		FUZZ_REQUIRE(n == a.n);
	} else if (a.type == GGUF_F32) {
		for (uint64_t i = 0; i < a.n; i++)
			gguf_array_f32(&a, i);
	} else if (a.type != GGUF_F64) {
		for (uint64_t i = 0; i < a.n; i++)
			gguf_array_int(&a, i);
	}
}

static void check_keys(const struct gguf *g)
{
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		char value[160], name[8192];
		struct proto_str key = gguf_key_at(g, i, value, sizeof value);
		struct gguf_array a;
		FUZZ_REQUIRE(key.n > 0 && key.n < sizeof name && strchr(value, '\n') == NULL);
		snprintf(name, sizeof name, "%.*s", (int)key.n, key.at);
		if (gguf_get_array(g, name, &a, NULL) == 0)
			check_array(a, g);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct gguf *g = NULL;
	struct sl_err err = {0};
	int rc = gguf_open(gw_file(data, n), &g, &err);
	if (rc != 0) {
		FUZZ_REQUIRE(g == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return 0;
	}
	check_keys(g);
	uint64_t sum = 0;
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		FUZZ_REQUIRE(t->bytes <= n);
		for (uint64_t k = 0; k < t->bytes; k++)
			sum += ((const uint8_t *)t->data)[k];
	}
	FUZZ_REQUIRE(sum <= 255 * (uint64_t)n * (gguf_n_tensors(g) + 1));
	gguf_close(g);
	return 0;
}
