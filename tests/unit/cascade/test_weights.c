/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "cascade/weights.h"

static struct casc_weights *some(uint32_t bits)
{
	struct casc_weights *w = casc_weights_create(bits);
	assert_non_null(w);
	w->bias = -0.5f;
	for (int i = 0; i < CASC_N_FEATURES; i++)
		w->dense[i] = (float)i / 7 - 1;
	for (size_t i = 0; i < (size_t)1 << bits; i++)
		w->grams[i] = (float)(i % 31) / 31 - 0.5f;
	w->ref = (struct casc_reference){.n = 77, .easy = 0.25f, .hard = 0.75f};
	for (int i = 0; i < CASC_DRIFT_BINS; i++)
		w->ref.share[i] = i < 2 ? 0.5f : 0;
	return w;
}

static void same(const struct casc_weights *a, const struct casc_weights *b)
{
	assert_int_equal(a->bits, b->bits);
	assert_true(a->bias == b->bias);
	assert_memory_equal(a->dense, b->dense, sizeof a->dense);
	assert_memory_equal(a->grams, b->grams, sizeof a->grams[0] << a->bits);
	assert_memory_equal(&a->ref, &b->ref, sizeof a->ref);
}

/* A copy at the end of its memory, so that a byte too far is seen. */
static int decode(const uint8_t *data, size_t n, struct casc_weights **out)
{
	struct sl_err err = {0};
	uint8_t *copy = malloc(n > 0 ? n : 1);
	assert_non_null(copy);
	if (n > 0)
		memcpy(copy, data, n);
	*out = NULL;
	int rc = casc_weights_decode(copy, n, "file", out, &err);
	assert_true((rc == 0) == (*out != NULL));
	assert_true(rc == 0 || strncmp(err.text, "file: ", 6) == 0);
	free(copy);
	return rc;
}

static void format(void **state)
{
	(void)state;
	struct casc_weights *w = some(8), *again;
	struct sl_buf b;
	buf_init(&b, SIZE_MAX);
	assert_int_equal(casc_weights_encode(w, &b), 0);
	uint8_t *data = buf_data(&b);
	assert_int_equal(b.len, 16 + 4 * (1 + CASC_N_FEATURES + 256) + 4 * (3 + CASC_DRIFT_BINS) + 8);
	assert_memory_equal(data, "SLCW\2\0\0\0\10\0\0\0\24\0\0\0\0\0\0\277", 20);
	assert_int_equal(decode(data, b.len, &again), 0);
	same(w, again);
	casc_weights_destroy(again);
	/* Every length but the right one, every byte damaged. */
	for (size_t n = 0; n < b.len; n++)
		assert_int_not_equal(decode(data, n, &again), 0);
	for (size_t i = 0; i < b.len; i++) {
		data[i] ^= 0x41;
		assert_int_not_equal(decode(data, b.len, &again), 0);
		data[i] ^= 0x41;
	}
	assert_int_equal(buf_append(&b, "", 1), 0);
	assert_int_equal(decode(buf_data(&b), b.len, &again), SL_EINVAL);
	casc_weights_destroy(w);
	buf_dispose(&b);
}

/* Heads with a right checksum that still can't be. */
static void bad_heads(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint32_t value;
		int rc;
	} cases[] = {{4, 3, SL_EUNSUPPORTED}, {4, 0, SL_EUNSUPPORTED},   {4, 1, SL_EINVAL},
		     {8, 7, SL_EINVAL},       {8, 21, SL_EINVAL},        {8, UINT32_MAX, SL_EINVAL},
		     {12, 0, SL_EINVAL},      {12, 21, SL_EUNSUPPORTED}, {12, UINT32_MAX, SL_EINVAL},
		     {12, 19, SL_EINVAL}};
	struct casc_weights *w = some(8), *again;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sl_buf b;
		buf_init(&b, SIZE_MAX);
		assert_int_equal(casc_weights_encode(w, &b), 0);
		memcpy(buf_data(&b) + cases[i].at, &cases[i].value, 4);
		assert_int_equal(decode(buf_data(&b), b.len, &again), cases[i].rc);
		buf_dispose(&b);
	}
	/* No number of a file that is otherwise right makes a score that is none. */
	static const float bad[] = {NAN, INFINITY, -INFINITY, 2e4f};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct sl_buf b;
		float *places[] = {&w->bias,       &w->dense[CASC_N_FEATURES - 1],
				   &w->grams[255], &w->ref.easy,
				   &w->ref.hard,   &w->ref.share[9]};
		for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
			float old = *places[k];
			*places[k] = bad[i];
			buf_init(&b, SIZE_MAX);
			assert_int_equal(casc_weights_encode(w, &b), 0);
			assert_int_equal(decode(buf_data(&b), b.len, &again), SL_EINVAL);
			buf_dispose(&b);
			*places[k] = old;
		}
	}
	casc_weights_destroy(w);
}

static uint64_t fnv(const uint8_t *s, size_t n)
{
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 1099511628211u;
	return h;
}

/* Files of the first version have no reference; shares that are none are refused. */
static void references(void **state)
{
	(void)state;
	struct casc_weights *w = some(8), *again;
	struct sl_buf b;
	buf_init(&b, SIZE_MAX);
	assert_int_equal(casc_weights_encode(w, &b), 0);
	uint8_t *data = buf_data(&b);
	size_t n = b.len - 8 - 4 * (3 + CASC_DRIFT_BINS);
	data[4] = 1;
	uint64_t sum = fnv(data, n);
	for (int i = 0; i < 8; i++)
		data[n + (size_t)i] = (uint8_t)(sum >> 8 * i);
	assert_int_equal(decode(data, n + 8, &again), 0);
	assert_int_equal(again->ref.n, 0);
	w->ref = (struct casc_reference){0};
	same(w, again);
	casc_weights_destroy(again);
	buf_dispose(&b);
	const struct casc_reference wrong[] = {{.n = 1, .hard = 1},
					       {.n = 1, .share = {1}, .easy = 0.5f, .hard = 0.4f},
					       {.n = 1, .share = {1}, .hard = 1.5f},
					       {.n = 1, .share = {2, -1}, .hard = 1}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		w->ref = wrong[i];
		buf_init(&b, SIZE_MAX);
		assert_int_equal(casc_weights_encode(w, &b), 0);
		assert_int_equal(decode(buf_data(&b), b.len, &again), SL_EINVAL);
		buf_dispose(&b);
	}
	casc_weights_destroy(w);
}

static void files(void **state)
{
	(void)state;
	char folder[] = "/tmp/sluice-test-XXXXXX", path[64], part[80];
	struct sl_err err = {0};
	struct casc_weights *w = some(10), *again;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/w", folder);
	snprintf(part, sizeof part, "%s.part", path);
	assert_int_equal(casc_weights_read(path, &again, &err), SL_EIO);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(casc_weights_write(w, path, true, &err), 0);
	assert_int_equal(casc_weights_write(w, path, true, &err), 0);
	assert_int_equal(casc_weights_write(w, path, false, &err), SL_EINVAL);
	assert_int_equal(access(part, F_OK), -1);
	assert_int_equal(casc_weights_read(path, &again, &err), 0);
	same(w, again);
	casc_weights_destroy(again);
	for (long nth = 1; nth <= 2; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(casc_weights_read(path, &again, &err), SL_ENOMEM);
		fault_disarm_all();
	}
	assert_int_equal(casc_weights_read(folder, &again, &err), SL_EINVAL);
	assert_int_equal(casc_weights_write(w, "/nowhere/at/all", true, &err), SL_EIO);
	/* As a scorer has it. */
	struct casc_settings c = {.weights = path};
	struct casc_scorer *s;
	struct casc_score out;
	const struct casc_message m = {CASC_USER, "hello", 5};
	const struct casc_ask ask = {&m, 1, 0, 0};
	static struct casc_features f;
	assert_int_equal(casc_scorer_create(&c, &s, &err), 0);
	casc_score(s, &ask, &out);
	casc_features(&ask, &f);
	assert_true(out.score == casc_sigmoid(casc_weights_logit(w, f.dense, f.grams, f.n_grams)));
	casc_scorer_destroy(s);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(casc_scorer_create(&c, &s, &err), SL_EINVAL);
	casc_weights_destroy(w);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(format), cmocka_unit_test(bad_heads),
					   cmocka_unit_test(references), cmocka_unit_test(files)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
