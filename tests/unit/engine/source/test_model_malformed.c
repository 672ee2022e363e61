/* SPDX-License-Identifier: Apache-2.0
 *
 * Models on disk that are malformed cost a line and little memory: some hundred files, each changed in a few
 * places, the same at every run; heads that promise more than there is; and no memory, at every place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/source/quantize_model.h"
#include "tests/support/alloc_meter.h"
#include "tests/unit/engine/source/model_files.h"

static uint64_t rng;

static uint64_t next(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return rng >> 33;
}

/* Bytes that end or begin things in these formats, and ends of ranges. */
static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '}', '[', ']', ',', ':', '-', '9', '\\', 'e', ' '};

static size_t mutate(uint8_t *bytes, size_t n, size_t within)
{
	size_t head = n < within ? n : within, at = head > 0 ? next() % head : 0;
	switch (next() % 5) {
	case 0: bytes[at] ^= (uint8_t)(1u << next() % 8); break;
	case 1: bytes[at] = telling[next() % sizeof telling]; break;
	case 2: memset(bytes + at, 0xff, n - at < 8 ? n - at : 8); break;
	case 3: /* a piece goes */
		memmove(bytes + at, bytes + at + (n - at) / 7, n - at - (n - at) / 7);
		return n - (n - at) / 7;
	default: return next() % 4 == 0 ? at : n; /* the end goes */
	}
	return n;
}

/* Everything that a look at the model would touch. */
static void look(const char *path)
{
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_arch arch;
	struct tokenizer *t = NULL;
	struct proto_str template;
	int rc = model_file_open(path, &f, &err);
	if (rc == 0) {
		uint64_t sum = 0;
		for (size_t i = 0; i < model_file_n_tensors(f); i++) {
			const struct model_tensor *x = model_file_tensor_at(f, i);
			assert_ptr_equal(model_file_find(f, x->name), x);
			if (x->bytes > 0)
				sum += ((const uint8_t *)x->data)[0] + ((const uint8_t *)x->data)[x->bytes - 1];
		}
		assert_true(sum <= 510 * model_file_n_tensors(f));
		rc = model_file_arch(f, &arch, &err);
		if (rc == 0 && model_file_template(f, &template, &err) == 0)
			assert_true(template.n == 0 || template.at != NULL);
		if (rc == 0 && model_file_tokenizer(f, &t, &err) == 0)
			tokenizer_destroy(t);
		model_file_close(f);
	}
	if (rc != 0)
		assert_true(err.code == rc && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
}

static int n_malformed;

/* A file of the model at open changed n times, each time from the whole one. within: where its head
 * is, that is where a change says something. */
static void mutations(const char *file, const char *open, int n, size_t within)
{
	size_t bytes;
	char path[256];
	uint8_t *good = md_read(dir, file, &bytes), *bad = malloc(bytes);
	md_path(path, dir, open);
	for (int i = 0; i < n; i++) {
		size_t left = bytes;
		memcpy(bad, good, bytes);
		for (uint64_t k = 1 + next() % 4; k > 0; k--)
			left = mutate(bad, left, within);
		md_write(dir, file, bad, left);
		size_t before = meter_live;
		meter_reset();
		look(path);
		assert_int_equal(meter_live, before);
		if (meter_peak - before > (64u << 20))
			fail_msg("%s, change %d: %zu bytes of memory", file, i, (size_t)meter_peak - before);
		n_malformed++;
	}
	md_write(dir, file, good, bytes);
	free(good);
	free(bad);
}

static void test_malformed(void **arg)
{
	(void)arg;
	rng = 1;
	n_malformed = 0;
	md_llama_sharded(dir);
	mutations("config.json", "", 80, 1024);
	mutations("generation_config.json", "", 20, 1024);
	mutations("tokenizer_config.json", "", 30, 1024);
	mutations("tokenizer.json", "", 40, 1024);
	mutations("model.safetensors.index.json", "", 40, 2048);
	mutations("model-00001-of-00002.safetensors", "", 120, 1024);
	mutations("model-00002-of-00002.safetensors", "", 40, 1 << 16);
	write_parts();
	mutations("m-00001-of-00003.gguf", "m-00001-of-00003.gguf", 60, 256);
	mutations("m-00002-of-00003.gguf", "m-00001-of-00003.gguf", 40, 256);
	struct gw w;
	gw_good(&w, 3);
	md_write(dir, "good.gguf", w.at, w.n);
	mutations("good.gguf", "good.gguf", 60, 1024);
	random_file("r.gguf", "tiny-llama", "q4_0", 1, 0);
	mutations("r.gguf", "r.gguf", 60, 20000);
	assert_true(n_malformed >= 500);
}

/* Heads that promise more than the file has, or ask for much in few bytes. */
static void test_greedy_heads(void **arg)
{
	(void)arg;
	static const struct {
		const char *head;
		const char *words;
	} heads[] = {
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "has 4 bytes, but its shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}",
	     "impossible shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "impossible shape"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", "is at bytes 4 to 12"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "is at bytes 8 to 0"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "belong to no tensor"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "comes after bytes"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
	     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
	     "overlaps another"},
	    {"{\"a\":{\"dtype\":\"Q7\",\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype Q7"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", "too many dimensions"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "not a whole number"},
	    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets is missing"},
	    {"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "no proper name"},
	    {"{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "no proper name"},
	    {"{\"a\":[]}", "not an object"},
	    {"{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]}}",
	     "nested too deep"},
	    {"{}x", "more follows"},
	};
	md_llama_folder(dir);
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		uint8_t file[1024] = {0};
		size_t n = strlen(heads[i].head), padded = (n + 7) / 8 * 8;
		file[0] = (uint8_t)padded;
		file[1] = (uint8_t)(padded >> 8);
		memset(file + 8, ' ', padded);
		memcpy(file + 8, heads[i].head, n);
		md_write(dir, "model.safetensors", file, 8 + padded + 8);
		char path[256];
		struct sl_err err = {0};
		struct model_file *f;
		md_path(path, dir, "");
		if (model_file_open(path, &f, &err) == 0)
			fail_msg("opened: %s", heads[i].head);
		if (strstr(err.text, heads[i].words) == NULL)
			fail_msg("\"%s\", without \"%s\"", err.text, heads[i].words);
	}
	md_write(dir, "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
	refused("", SL_EINVAL, "not a safetensors file");
	md_write(dir, "model.safetensors", "{}", 2);
	refused("", SL_EINVAL, "it has 2 bytes");
	/* A million numbers in a file that is read into a tree. */
	size_t n = 1 << 20;
	char *text = malloc(n + 1);
	memset(text, '0', n);
	for (size_t i = 1; i < n; i += 2)
		text[i] = ',';
	memcpy(text, "{\"a\":[", 6);
	memcpy(text + n - 2, "]}", 2);
	md_write(dir, "config.json", text, n);
	meter_reset();
	size_t before = meter_live;
	refused("", SL_EINVAL, "");
	assert_true(meter_peak - before < (64u << 20));
	md_write(dir, "config.json", text, n);
	md_write(dir, "model.safetensors.index.json", text, n);
	free(text);
}

/* Every allocation fails once: a line, nothing left behind. */
static void no_memory(const char *open)
{
	char path[256], out[256];
	long n = 1;
	md_path(path, dir, open);
	md_path(out, dir, "never.gguf");
	for (bool failed = true; failed; n++) {
		struct sl_err err = {0};
		struct model_file *f = NULL;
		struct tokenizer *t;
		struct model_arch arch;
		size_t before = meter_live;
		atomic_store(&meter_fail_at, n);
		int rc = model_file_open(path, &f, &err);
		if (rc == 0) {
			rc = model_file_arch(f, &arch, &err);
			if (rc == 0 && (rc = model_file_tokenizer(f, &t, &err)) == 0)
				tokenizer_destroy(t);
			if (rc == 0)
				rc = model_file_quantize(f, KN_Q8_0, 1, NULL, &err);
			model_file_close(f);
		}
		failed = atomic_load(&meter_fail_at) <= 0;
		atomic_store(&meter_fail_at, 0);
		assert_int_equal(meter_live, before);
		assert_true(rc == 0 || err.text[0] != '\0');
		assert_true(n < 5000);
	}
	assert_true(n > 10);
	for (long k = 1; k < 40; k++) {
		struct sl_err err = {0};
		const struct quantize_how how = {.plan = {KN_F16, KN_F16}, .replace = true, .n_threads = 1};
		size_t before = meter_live;
		atomic_store(&meter_fail_at, k);
		int rc = quantize_model(path, out, &how, NULL, NULL, &err);
		atomic_store(&meter_fail_at, 0);
		assert_int_equal(meter_live, before);
		assert_true(rc == 0 || err.text[0] != '\0');
		assert_int_equal(access(out, F_OK) == 0, rc == 0);
		unlink(out);
	}
}

static void test_no_memory(void **arg)
{
	(void)arg;
	md_llama_sharded(dir);
	no_memory("");
	random_file("r.gguf", "tiny-llama", "f16", 1, 0);
	no_memory("r.gguf");
}

int main(void)
{
	meter_install();
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_malformed, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_greedy_heads, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
