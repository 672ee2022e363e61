/* SPDX-License-Identifier: Apache-2.0
 *
 * What the types of keys and values do to a model's answers: the demonstration pair reads conversations of
 * the kind that it was trained on (etc/models/abilities.jsonl) in every type that a backend has. Shown and
 * bounded are the logits' error, as a part of their spread, and what the perplexity of the assistant's words
 * changes by. How an element's error grows through a model is no derivation: the bounds are what a type is
 * asked to cost at most. The same is asked of weights in four bits. Pages that were copied hold the same, and parts of
 * a text give the bits of the whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "kernels/kv_type.h"
#include "tests/kernels/eight_bits.h"

enum { PAGE = 16, MAX_PAGES = 96, MOST = 768, TALKS = 2 };

struct rig {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int32_t pages[MAX_PAGES];
	struct tok_ids ids;
	bool said[MOST]; /* by the assistant */
	int n, n_vocab;
};

/* Appends a turn; content may be said by the assistant. */
static void add_turn(struct rig *x, const char *role, const char *content)
{
	static const uint8_t trusted[4096] = {[0 ... 4095] = 1};
	const struct tokenizer *t = model_tokenizer(x->m);
	char text[4096];
	int n = snprintf(text, sizeof text, "<|im_start|>%s\n", role);
	assert_int_equal(tokenizer_encode(t, text, (size_t)n, trusted, &x->ids), 0);
	size_t begin = x->ids.n;
	n = snprintf(text, sizeof text, "%s<|im_end|>", content);
	assert_in_range(n, 1, sizeof text - 1);
	assert_int_equal(tokenizer_encode(t, text, (size_t)n, trusted, &x->ids), 0);
	assert_true(x->ids.n + 1 < MOST);
	for (size_t i = begin; i < x->ids.n; i++)
		x->said[i] = strcmp(role, "assistant") == 0;
	assert_int_equal(tokenizer_encode(t, "\n", 1, NULL, &x->ids), 0);
}

/* Conversations one after the other, as if they were one. */
static void read_talks(struct rig *x)
{
	FILE *f = fopen("etc/models/abilities.jsonl", "r");
	char line[8192];
	assert_non_null(f);
	for (int i = 0; i < TALKS; i++) {
		assert_non_null(fgets(line, sizeof line, f));
		json_t *talk = json_loads(line, 0, NULL), *turn;
		size_t k;
		assert_non_null(talk);
		json_array_foreach(json_object_get(talk, "messages"), k, turn)
		    add_turn(x, json_string_value(json_object_get(turn, "role")),
			     json_string_value(json_object_get(turn, "content")));
		add_turn(x, "assistant", json_string_value(json_array_get(json_object_get(talk, "answer"), 0)));
		json_decref(talk);
	}
	fclose(f);
	x->n = (int)x->ids.n;
	assert_true(x->n > KN_ATTN_BLOCK);
}

static void start(struct rig *x, const struct kn_ops *ops, const char *path, int quantize)
{
	struct model_quantize q = {.type = quantize, .n_threads = 1};
	struct model_how how = {.quantize = quantize >= 0 ? &q : NULL};
	struct kn_config cfg = {.n_threads = 1, .max_rows = MOST, .max_width = 1 << 16};
	struct sl_err err = {0};
	*x = (struct rig){.ops = ops};
	assert_int_equal(ops->open(&cfg, &x->b, &err), 0);
	if (model_load_as(path, &how, ops, x->b, MOST, 0, &x->m, &err) != 0)
		fail_msg("%s", err.text);
	x->n_vocab = model_info(x->m)->arch.n_vocab;
	read_talks(x);
}

static void stop(struct rig *x)
{
	tok_ids_dispose(&x->ids);
	model_free(x->m);
	x->ops->close(x->b);
}

static void open_pool(struct rig *x, int type)
{
	const struct model_arch *a = &model_info(x->m)->arch;
	struct sl_err err = {0};
	assert_int_equal(kv_pool_create(x->ops, x->b, type, MAX_PAGES, PAGE, a->n_layers, a->n_kv_heads, a->head_dim,
					&x->pool, &err),
			 0);
	for (int i = 0; i < MAX_PAGES / 2; i++)
		assert_int_equal(kv_page_alloc(x->pool, &x->pages[i]), 0);
}

static void close_pool(struct rig *x)
{
	for (int i = 0; i < MAX_PAGES / 2; i++)
		kv_page_unref(x->pool, x->pages[i]);
	kv_pool_destroy(x->pool);
}

/* Tokens from at on, n of them; logits of every row. */
static void read_text(struct rig *x, int at, int n, float *logits)
{
	int32_t pos[MOST], seq[MOST] = {0}, want[MOST];
	for (int i = 0; i < n; i++) {
		pos[i] = at + i;
		want[i] = i;
	}
	struct kn_step s = {.n_rows = n,
			    .row_token = x->ids.ids + at,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = x->pages,
			    .max_pages = MAX_PAGES / 2};
	assert_int_equal(model_forward(x->m, &s, kv_pool_layout(x->pool), want, n, logits), 0);
}

static double perplexity(const struct rig *x, const float *logits)
{
	double nats = 0;
	int n = 0;
	for (int i = 0; i + 1 < x->n; i++) {
		if (!x->said[i + 1])
			continue;
		n++;
		const float *l = logits + (size_t)i * (size_t)x->n_vocab;
		double max = -INFINITY, sum = 0;
		for (int v = 0; v < x->n_vocab; v++)
			max = fmax(max, (double)l[v]);
		for (int v = 0; v < x->n_vocab; v++)
			sum += exp((double)l[v] - max);
		nats += max + log(sum) - (double)l[x->ids.ids[i + 1]];
	}
	return exp(nats / n);
}

/* Root of the mean square of the differences, over that of the logits' spread. */
static double logit_error(const struct rig *x, const float *got, const float *want)
{
	double diff = 0, sum = 0, squares = 0;
	size_t n = (size_t)x->n * (size_t)x->n_vocab;
	for (size_t i = 0; i < n; i++) {
		double d = (double)got[i] - (double)want[i];
		diff += d * d;
		sum += (double)want[i];
		squares += (double)want[i] * (double)want[i];
	}
	return sqrt(diff / (squares - sum * sum / (double)n));
}

/* In parts, with every page of the past copied before the second: the same bits. */
static void copied(struct rig *x, const float *whole)
{
	int first = 21;
	float *rest = calloc((size_t)x->n * (size_t)x->n_vocab, sizeof *rest);
	read_text(x, 0, first, rest);
	assert_memory_equal(rest, whole, (size_t)first * (size_t)x->n_vocab * sizeof *rest);
	for (int i = 0; i < MAX_PAGES / 2; i++) {
		kv_page_ref(x->pool, x->pages[i]);
		int32_t old = x->pages[i];
		assert_int_equal(kv_page_make_own(x->pool, &x->pages[i]), 0);
		assert_int_not_equal(x->pages[i], old);
		kv_page_unref(x->pool, old);
	}
	read_text(x, first, x->n - first, rest);
	assert_memory_equal(rest, whole + (size_t)first * (size_t)x->n_vocab,
			    (size_t)(x->n - first) * (size_t)x->n_vocab * sizeof *rest);
	free(rest);
}

/* The reference is slow: it reads what others can't, and once in float32. */
static bool too_slow(const struct kn_ops *o, int type)
{
	return strcmp(o->name, "cpu-ref") == 0 && (type == KN_F16 || type == KN_KV_Q8);
}

static void quality(const char *path, bool with_reference)
{
	static const struct {
		int type;
		double error, perplexity; /* at most: relative */
	} bounds[] = {{KN_F32, 1e-5, 1e-5},
		      {KN_F16, 2e-3, 1e-3},
		      {KN_BF16, 2e-2, 1e-2},
		      {KN_KV_Q8, 4e-2, 1e-2},
		      {KN_FP8, 1.6e-1, 5e-2}};
	struct rig x;
	float *exact = NULL;
	double exact_perplexity = 0;
	for (const struct kn_ops *const *o = kn_available() + !with_reference; *o != NULL; o++) {
		/* Activations of eight bits come on top: about a percent of a product's length for each. */
		bool rounds = eight_bits(*o, KN_Q8_0);
		double more_error = rounds ? 4e-2 : 0, more_perplexity = rounds ? 1e-2 : 0;
		start(&x, *o, path, -1);
		float *logits = calloc((size_t)x.n * (size_t)x.n_vocab, sizeof *logits);
		for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
			if (!(*o)->kv_type(bounds[i].type) || too_slow(*o, bounds[i].type))
				continue;
			open_pool(&x, bounds[i].type);
			read_text(&x, 0, x.n, logits);
			if (exact == NULL) { /* the first one, in float32 */
				exact = calloc((size_t)x.n * (size_t)x.n_vocab, sizeof *exact);
				memcpy(exact, logits, (size_t)x.n * (size_t)x.n_vocab * sizeof *exact);
				exact_perplexity = perplexity(&x, exact);
			}
			double error = logit_error(&x, logits, exact), p = perplexity(&x, logits);
			print_message("%s on %s, %s: logits off by %.2e, perplexity %.4f (%+.3f %%)\n",
				      strrchr(path, '/') + 1, (*o)->name, kn_kv_type_name(bounds[i].type), error, p,
				      100 * (p / exact_perplexity - 1));
			assert_true(error <= bounds[i].error + more_error);
			assert_true(fabs(p / exact_perplexity - 1) <= bounds[i].perplexity + more_perplexity);
			if (*o != kn_available()[0])
				copied(&x, logits);
			close_pool(&x);
		}
		free(logits);
		stop(&x);
	}
	free(exact);
}

static void test_pair(void **state)
{
	(void)state;
	quality("etc/models/demo-small.gguf", true);
	quality("etc/models/demo-large.gguf", false);
}

/* The pair, whose Q8_0 becomes INT4 on load but for the embedding and, in the large one, matrices whose rows no block
 * of 128 fits, on the first table with vectors. Models so small have little to spare: a tenth of each weight is lost.
 */
static void test_int4(void **state)
{
	static const struct {
		const char *path;
		double error, perplexity; /* at most: relative */
	} cases[] = {{"etc/models/demo-small.gguf", 0.3, 5e-2}, {"etc/models/demo-large.gguf", 0.3, 5e-2}};
	const struct kn_ops *o = kn_available()[1] != NULL ? kn_available()[1] : kn_available()[0];
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rig x;
		float *logits[2];
		double p[2];
		for (int k = 0; k < 2; k++) {
			start(&x, o, cases[i].path, k == 0 ? -1 : KN_INT4);
			assert_true((strstr(model_info(x.m)->weight_types, "INT4") != NULL) == (k == 1));
			logits[k] = calloc((size_t)x.n * (size_t)x.n_vocab, sizeof(float));
			open_pool(&x, KN_F32);
			read_text(&x, 0, x.n, logits[k]);
			p[k] = perplexity(&x, logits[k]);
			close_pool(&x);
			if (k == 0)
				stop(&x);
		}
		double error = logit_error(&x, logits[1], logits[0]);
		print_message("%s on %s, int4 (%s): logits off by %.2e, perplexity %.4f (%+.2f %%)\n",
			      strrchr(cases[i].path, '/') + 1, o->name, model_info(x.m)->weight_types, error, p[1],
			      100 * (p[1] / p[0] - 1));
		assert_true(error <= cases[i].error && error > 1e-3);
		assert_true(p[1] / p[0] - 1 <= cases[i].perplexity);
		stop(&x);
		free(logits[0]);
		free(logits[1]);
	}
}

/* A type that a backend does not have is no pool. */
static bool only_f32(int type) { return type == KN_F32; }

static void test_refused(void **state)
{
	(void)state;
	struct kn_ops ops = *kn_available()[0];
	struct kn_config cfg = {.n_threads = 1, .max_rows = 1, .max_width = 64};
	struct kn_backend *b;
	struct kv_pool *pool = NULL;
	struct sl_err err = {0};
	ops.kv_type = only_f32;
	assert_int_equal(ops.open(&cfg, &b, &err), 0);
	assert_int_equal(kv_pool_create(&ops, b, KN_F16, 2, 16, 1, 1, 8, &pool, &err), SL_EUNSUPPORTED);
	assert_null(pool);
	assert_non_null(strstr(err.text, "f16"));
	assert_int_equal(kv_pool_create(&ops, b, -1, 2, 16, 1, 1, 8, &pool, &err), SL_EUNSUPPORTED);
	assert_int_equal(kv_page_bytes(KN_KV_Q8, 16, 2, 3, 64), 2 * 2 * 3 * (16 * 64 + 64));
	assert_int_equal(kv_page_bytes(KN_F16, 16, 2, 3, 64), 2 * 2 * 3 * 16 * 64 * 2);
	ops.close(b);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_int4), cmocka_unit_test(test_refused),
					   cmocka_unit_test(test_pair)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
