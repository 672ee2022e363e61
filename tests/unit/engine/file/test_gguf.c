/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of model files: good files, every truncation, wrong heads one by one, mutations, and
 * what a refusal costs. base/alloc is replaced here by one that counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "base/alloc.h"
#include "engine/file/gguf.h"
#include "tests/support/gguf_write.h"

/* ---- allocation that counts ---- */

static size_t asked;       /* bytes since the last reset */
static long fail_at, live; /* fail_at: 1 fails the next one, 0 none */

static void *counted(void *p, size_t bytes, bool keep)
{
	if (fail_at > 0 && --fail_at == 0)
		return NULL;
	asked += bytes;
	live += p == NULL;
	p = realloc(p, bytes ? bytes : 1);
	if (p != NULL && !keep)
		memset(p, 0, bytes);
	return p;
}

void *sl_alloc(size_t bytes) { return counted(NULL, bytes, true); }
void *sl_zalloc(size_t bytes) { return counted(NULL, bytes, false); }

void *sl_zalloc_n(size_t n, size_t each)
{
	size_t bytes;
	return __builtin_mul_overflow(n, each, &bytes) ? NULL : counted(NULL, bytes, false);
}

void *sl_realloc_n(void *p, size_t n, size_t each)
{
	size_t bytes;
	return __builtin_mul_overflow(n, each, &bytes) ? NULL : counted(p, bytes, true);
}

char *sl_strndup(const char *s, size_t n)
{
	char *p = sl_alloc(n + 1);
	if (p != NULL) {
		memcpy(p, s, n);
		p[n] = '\0';
	}
	return p;
}

char *sl_strdup(const char *s) { return sl_strndup(s, strlen(s)); }

void sl_free(void *p)
{
	live -= p != NULL;
	free(p);
}

/* ---- helpers ---- */

static struct gw file;

/* Reads all that an open file offers, so that a sanitizer sees a bound that was not checked. */
static unsigned walk(const struct gguf *g)
{
	unsigned sum = 0;
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		char value[64], name[300];
		struct proto_str key = gguf_key_at(g, i, value, sizeof value), s;
		struct gguf_array a;
		struct sl_err err;
		uint32_t u;
		float f;
		bool b;
		assert_null(strpbrk(value, "\n\r\033"));
		snprintf(name, sizeof name, "%.*s", (int)key.n, key.at);
		gguf_get_u32(g, name, &u, &err);
		gguf_get_f32(g, name, &f, &err);
		gguf_get_bool(g, name, &b, &err);
		if (gguf_get_str(g, name, &s, &err) == 0)
			for (size_t k = 0; k < s.n; k++)
				sum += (unsigned char)s.at[k];
		if (gguf_get_array(g, name, &a, &err) != 0)
			continue;
		if (a.type == GGUF_STRING)
			while (gguf_next_string(&a, &s))
				for (size_t k = 0; k < s.n; k++)
					sum += (unsigned char)s.at[k];
		else if (a.type == GGUF_F32)
			for (uint64_t k = 0; k < a.n; k++)
				sum += gguf_array_f32(&a, k) > 0;
		else if (a.type != GGUF_F64)
			for (uint64_t k = 0; k < a.n; k++)
				sum += (unsigned)gguf_array_int(&a, k);
	}
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		for (uint64_t k = 0; k < t->bytes; k++)
			sum += ((const uint8_t *)t->data)[k];
	}
	return sum;
}

/* Opens n bytes; a refusal has one line, leaks nothing and asks for little. */
static int try_open(const void *bytes, size_t n, struct sl_err *err)
{
	struct gguf *g = NULL;
	*err = (struct sl_err){0};
	asked = 0;
	live = 0;
	int rc = gguf_open(gw_file(bytes, n), &g, err);
	/* A key of 14 bytes costs some 80 bytes, a tensor of 37 some 340. */
	assert_true(asked <= 16 * n + 4096);
	if (rc == 0) {
		walk(g);
		gguf_close(g);
	} else {
		assert_null(g);
		assert_int_equal(err->code, rc);
		assert_true(err->text[0] != '\0' && strchr(err->text, '\n') == NULL);
	}
	assert_int_equal(live, 0);
	return rc;
}

static void refused(const char *words)
{
	struct sl_err err;
	if (try_open(file.at, file.n, &err) == 0)
		fail_msg("loaded, but should be refused: %s", words);
	if (strstr(err.text, words) == NULL)
		fail_msg("refused by \"%s\", without \"%s\"", err.text, words);
}

static const struct gguf_tensor *find_tensor(const struct gguf *g, const char *name)
{
	for (size_t i = 0; i < gguf_n_tensors(g); i++)
		if (strcmp(gguf_tensor_at(g, i)->name, name) == 0)
			return gguf_tensor_at(g, i);
	return NULL;
}

/* ---- tests ---- */

static void test_good(void **arg)
{
	(void)arg;
	for (uint32_t version = 2; version <= 3; version++) {
		struct gguf *g;
		struct sl_err err;
		struct proto_str s;
		struct gguf_array a;
		uint32_t u;
		float f;
		bool b;
		gw_good(&file, version);
		assert_int_equal(gguf_open(gw_file(file.at, file.n), &g, &err), 0);
		assert_int_equal(gguf_file_bytes(g), file.n);
		assert_int_equal(gguf_n_keys(g), 17);
		assert_int_equal(gguf_n_tensors(g), 3);
		static const struct {
			const char *key;
			uint32_t want;
		} ints[] = {{"t.u8", 200}, {"t.u16", 60000}, {"t.u32", 4000000000u}};
		for (size_t i = 0; i < 3; i++) {
			assert_int_equal(gguf_get_u32(g, ints[i].key, &u, &err), 0);
			assert_int_equal(u, ints[i].want);
		}
		static const char *const no_u32[] = {"t.i8",  "t.i16",  "t.i32",    "t.u64", "t.i64",
						     "t.f32", "t.bool", "t.string", "t.ints"};
		for (size_t i = 0; i < sizeof no_u32 / sizeof *no_u32; i++) {
			assert_int_equal(gguf_get_u32(g, no_u32[i], &u, &err), SL_EINVAL);
			assert_non_null(strstr(err.text, no_u32[i]));
		}
		assert_int_equal(gguf_get_u32(g, "t.absent", &u, &err), SL_ENOTFOUND);
		assert_int_equal(gguf_get_f32(g, "t.f32", &f, &err), 0);
		assert_true(f == 0.5f);
		assert_int_equal(gguf_get_f32(g, "t.f64", &f, &err), 0);
		assert_true(f == 0.25f);
		assert_int_equal(gguf_get_bool(g, "t.bool", &b, &err), 0);
		assert_true(b);
		assert_int_equal(gguf_get_str(g, "t.string", &s, &err), 0);
		assert_int_equal(s.n, 3);
		assert_memory_equal(s.at, "a\nb", 3);
		assert_int_equal(gguf_get_array(g, "t.strings", &a, &err), 0);
		assert_int_equal(a.n, 3);
		static const char *const strings[] = {"one", "", "three"};
		for (int i = 0; i < 3; i++) {
			assert_true(gguf_next_string(&a, &s));
			assert_int_equal(s.n, strlen(strings[i]));
			assert_memory_equal(s.at, strings[i], s.n);
		}
		assert_false(gguf_next_string(&a, &s));
		assert_int_equal(gguf_get_array(g, "t.ints", &a, &err), 0);
		assert_int_equal(gguf_array_int(&a, 1), -8);
		assert_int_equal(gguf_get_array(g, "t.floats", &a, &err), 0);
		assert_true(gguf_array_f32(&a, 1) == -2);

		const struct gguf_tensor *t = find_tensor(g, "matrix");
		assert_non_null(t);
		assert_int_equal(t->type, 8);
		assert_int_equal(t->n_dims, 2);
		assert_int_equal(t->dims[0], 32);
		assert_int_equal(t->dims[1], 3);
		assert_int_equal(t->dims[2], 1);
		assert_int_equal(t->bytes, 102);
		assert_int_equal(*(const uint8_t *)t->data, 32);
		assert_null(find_tensor(g, "matri"));
		/* Names from the mapping are not terminated: the next byte is the type. */
		char value[32];
		s = gguf_key_at(g, 9, value, sizeof value);
		assert_int_equal(s.n, strlen("t.string"));
		assert_memory_equal(s.at, "t.string", s.n);
		assert_string_equal(value, "a b");
		gguf_key_at(g, 10, value, sizeof value);
		assert_string_equal(value, "3 × string");
		walk(g);
		gguf_close(g);
	}
	file.n = 0;
	gw_head(&file, 3, 0, 0);
	struct sl_err err;
	assert_int_equal(try_open(file.at, file.n, &err), 0);
}

static void test_truncated(void **arg)
{
	(void)arg;
	struct sl_err err;
	gw_good(&file, 3);
	for (size_t n = 0; n < file.n; n++)
		if (try_open(file.at, n, &err) == 0)
			fail_msg("loaded with %zu of %zu bytes", n, file.n);
	assert_int_equal(try_open(file.at, file.n, &err), 0);
	assert_int_equal(gguf_open("/nonexistent.gguf", &(struct gguf *){NULL}, &err), SL_EIO);
	assert_int_equal(gguf_open("/", &(struct gguf *){NULL}, &err), SL_EIO);
}

static void begin(uint64_t n_tensors, uint64_t n_keys)
{
	file.n = 0;
	gw_head(&file, 3, n_tensors, n_keys);
}

/* Room behind, so that it is not the file's end that refuses. */
static void end_with(const char *words)
{
	gw_pad(&file, 64);
	for (int i = 0; i < 1024; i++)
		gw_int(&file, 0, 1);
	refused(words);
}

static void one_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset, const char *words)
{
	begin(1, 0);
	gw_tensor(&file, "odd", n_dims, dims, type, offset);
	end_with(words);
}

static void test_refused(void **arg)
{
	(void)arg;
	static const uint64_t four[] = {4}, none[] = {0}, flat[] = {4, 0}, many[] = {1, 1, 1, 1, 1}, half[] = {33},
			      huge[] = {1ull << 32, 1ull << 32}, wrap[] = {1ull << 62}, most[] = {UINT64_MAX};
	gw_good(&file, 3);
	file.at[0] = 'g';
	refused("not a GGUF file");
	static const uint32_t versions[] = {0, 1, 4, 0x03000000};
	for (int i = 0; i < 4; i++) {
		gw_good(&file, versions[i]);
		refused("version");
	}
	static const uint64_t counts[] = {65537, 1ull << 32, 1ull << 63, UINT64_MAX};
	for (int i = 0; i < 4; i++) {
		begin(0, counts[i]);
		end_with("keys");
		begin(counts[i], 0);
		end_with("tensors");
	}
	static const uint64_t lengths[] = {0, 1u << 16, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
	for (int i = 0; i < 6; i++) {
		begin(0, 1);
		gw_u64(&file, lengths[i]);
		end_with("no proper name");
		begin(1, 0);
		gw_u64(&file, lengths[i]);
		end_with("no proper name");
		if (i == 0)
			continue;
		begin(0, 1);
		gw_key(&file, "k.long", 8);
		gw_u64(&file, lengths[i]);
		end_with("k.long");
		for (uint32_t type = 0; type <= 12; type++)
			if (type != 9) {
				begin(0, 1);
				gw_array(&file, "k.array", type, lengths[i]);
				end_with("k.array");
			}
	}
	begin(0, 1);
	gw_key(&file, "k.odd", 13);
	end_with("k.odd");
	begin(0, 1);
	gw_array(&file, "k.nested", 9, 1);
	end_with("k.nested");
	begin(0, 1);
	gw_key(&file, "new\nline", 0);
	gw_int(&file, 0, 1);
	end_with("no proper name");

	begin(0, 2);
	for (int i = 0; i < 2; i++)
		gw_key(&file, "k.twice", 0), gw_int(&file, 1, 1);
	end_with("duplicate key \"k.twice\"");
	begin(2, 0);
	for (uint64_t i = 0; i < 2; i++)
		gw_tensor(&file, "t.twice", 1, four, 0, i * 32);
	end_with("duplicate tensor \"t.twice\"");

	one_tensor(0, four, 0, 0, "number of dimensions");
	one_tensor(5, many, 0, 0, "number of dimensions");
	one_tensor(1, none, 0, 0, "dimensions of tensor \"odd\"");
	one_tensor(2, flat, 0, 0, "dimensions of tensor \"odd\"");
	one_tensor(2, huge, 0, 0, "dimensions of tensor \"odd\"");
	one_tensor(1, wrap, 0, 0, "dimensions of tensor \"odd\"");
	one_tensor(1, most, 0, 0, "dimensions of tensor \"odd\"");
	one_tensor(1, half, 8, 0, "no multiple of the block");
	one_tensor(1, four, 0, 8, "misaligned");
	one_tensor(1, four, 0, 1 << 20, "too short for tensor \"odd\"");
	one_tensor(1, four, 0, 1ull << 63, "too short for tensor \"odd\"");
	one_tensor(1, four, 0, UINT64_MAX - 31, "too short for tensor \"odd\"");

	static const uint32_t alignments[] = {0, 1, 4, 7, 24, 33, 65535, 1 << 17, 0x80000000u, UINT32_MAX};
	for (int i = 0; i < 10; i++) {
		begin(1, 1);
		gw_key(&file, "general.alignment", 4), gw_u32(&file, alignments[i]);
		gw_tensor(&file, "t", 1, four, 0, 0);
		end_with("general.alignment");
	}
}

static uint64_t state = 20260101;

static uint32_t pick(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % n;
}

static void test_mutations(void **arg)
{
	(void)arg;
	struct sl_err err;
	int loaded = 0, runs = 20000;
	for (int i = 0; i < runs; i++) {
		gw_good(&file, 2 + (uint32_t)i % 2);
		for (uint32_t n = 1 + pick(i % 3 ? 1 : 6); n > 0; n--) {
			/* Most in the head, where they matter. */
			uint32_t at = pick((uint32_t)(pick(4) ? file.n - 184 : file.n));
			static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff};
			file.at[at] = pick(2) ? (uint8_t)pick(256) : telling[pick(5)];
		}
		loaded += try_open(file.at, file.n, &err) == 0;
	}
	/* Both happen: letters of names and numbers may change, counts may not. */
	assert_in_range(loaded, runs / 20, runs - runs / 20);
}

static void test_no_memory(void **arg)
{
	(void)arg;
	struct sl_err err;
	int rc = SL_ENOMEM;
	gw_good(&file, 3);
	for (long nth = 1; rc != 0; nth++) {
		fail_at = nth;
		rc = try_open(file.at, file.n, &err);
		assert_true(rc == SL_ENOMEM || (rc == 0 && nth > 7));
	}
	fail_at = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_good),      cmocka_unit_test(test_truncated), cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_mutations), cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
