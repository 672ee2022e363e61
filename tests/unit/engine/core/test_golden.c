/* SPDX-License-Identifier: Apache-2.0
 *
 * The demonstration models against what their trainer's own forward pass computed from the same
 * files (etc/models/golden-logits.json, written by golden.py there): on every backend, each stored
 * logit within 1e-3, the same greedy continuation, the same ids for the same text, and the same text for
 * the same chat, with tools or without. A missing file is a failure. Run from the repository's root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat/chat_template.h"
#include "engine/core/prompt.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "tests/kernels/eight_bits.h"
#include "tests/support/backends.h"

#define DIR "etc/models/"
#define TOLERANCE 1e-3

enum { PAGE_TOKENS = 16, PAGES = 48, MAX_ROWS = 64 };

static json_t *golden;

static int load_golden(void **arg)
{
	(void)arg;
	json_error_t e;
	golden = json_load_file(DIR "golden-logits.json", JSON_ALLOW_NUL, &e);
	if (golden == NULL)
		print_error("%s: %s\n", DIR "golden-logits.json", e.text);
	return golden == NULL ? -1 : 0;
}

static int drop_golden(void **arg)
{
	(void)arg;
	json_decref(golden);
	return 0;
}

static json_t *member(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);
	if (v == NULL)
		fail_msg("golden-logits.json lacks \"%s\"", key);
	return v;
}

/* Base64 of little-endian float32; exactly n of them. */
static float *floats(json_t *text, size_t n)
{
	size_t chars = json_string_length(text), padding = (3 - n * 4 % 3) % 3;
	unsigned char *bytes = malloc(chars / 4 * 3 + 4);
	assert_non_null(bytes);
	assert_int_equal(chars, (n * 4 + 2) / 3 * 4);
	int got = EVP_DecodeBlock(bytes, (const unsigned char *)json_string_value(text), (int)chars);
	assert_int_equal(got - (int)padding, n * 4);
	return (float *)(void *)bytes;
}

static int32_t *ids_of(json_t *list, size_t *n)
{
	*n = json_array_size(list);
	int32_t *ids = calloc(*n + 1, sizeof *ids);
	assert_non_null(ids);
	for (size_t i = 0; i < *n; i++) {
		assert_true(json_is_integer(json_array_get(list, i)));
		ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
	}
	return ids;
}

/* ---- running a model ---- */

struct running {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct model *model;
	struct kv_pool *pool;
	int32_t pages[PAGES];
	int n_vocab;
	float *logits; /* [MAX_ROWS][n_vocab] */
	double worst;
	double errors, values; /* sums of squares, where products are with rounded activations */
};

/* Products that are made one after the other in a layer: of attention its inputs and its output, of the
 * rest the same; and the head. */
static int n_products(const struct model *m) { return 4 * model_info(m)->arch.n_layers + 1; }

static double share_allowed(const struct running *r) { return rounding_share(r->ops, KN_Q8_0, n_products(r->model)); }

static void start(struct running *r, const struct kn_ops *ops, const char *file)
{
	struct kn_config cfg = {.n_threads = 2, .max_rows = MAX_ROWS, .max_width = 1 << 16};
	struct sl_err err = {0};
	char path[256];
	snprintf(path, sizeof path, DIR "%s", file);
	*r = (struct running){.ops = ops};
	assert_int_equal(ops->open(&cfg, &r->backend, &err), 0);
	if (model_load(path, ops, r->backend, MAX_ROWS, 0, &r->model, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(r->model)->arch;
	r->n_vocab = a->n_vocab;
	assert_int_equal(kv_pool_create(ops, r->backend, KN_F32, PAGES, PAGE_TOKENS, a->n_layers, a->n_kv_heads,
					a->head_dim, &r->pool, &err),
			 0);
	for (int i = 0; i < PAGES; i++)
		assert_int_equal(kv_page_alloc(r->pool, &r->pages[i]), 0);
	r->logits = calloc((size_t)MAX_ROWS * (size_t)r->n_vocab, sizeof *r->logits);
	assert_non_null(r->logits);
}

static void stop(struct running *r)
{
	for (int i = 0; i < PAGES; i++)
		kv_page_unref(r->pool, r->pages[i]);
	kv_pool_destroy(r->pool);
	model_free(r->model);
	r->ops->close(r->backend);
	free(r->logits);
}

/* Rows at, at+1, … of one sequence; logits of every row. */
static void forward(struct running *r, const int32_t *ids, int at, int n)
{
	int32_t pos[MAX_ROWS], seq[MAX_ROWS] = {0}, want[MAX_ROWS];
	assert_true(n <= MAX_ROWS && at + n <= PAGES * PAGE_TOKENS);
	for (int i = 0; i < n; i++) {
		pos[i] = at + i;
		want[i] = i;
	}
	struct kn_step s = {.n_rows = n,
			    .row_token = ids,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = r->pages,
			    .max_pages = PAGES};
	assert_int_equal(model_forward(r->model, &s, kv_pool_layout(r->pool), want, n, r->logits), 0);
}

static void compare(struct running *r, const char *what, float got, float want)
{
	double d = fabs((double)got - (double)want);
	r->errors += d * d;
	r->values += (double)want * (double)want;
	if (share_allowed(r) > 0 ? !isfinite(got) : !(d <= TOLERANCE))
		fail_msg("%s on %s: %.7g, not %.7g", what, r->ops->name, (double)got, (double)want);
	r->worst = fmax(r->worst, d);
}

static void check_sequence(struct running *r, json_t *sequence)
{
	size_t n;
	int32_t *ids = ids_of(member(sequence, "ids"), &n);
	const char *name = json_string_value(member(sequence, "name"));
	float *last = floats(member(sequence, "last_logits"), (size_t)r->n_vocab);
	json_t *tops = member(sequence, "top"), *top;
	size_t i, seen = 0;
	for (size_t at = 0; at < n; at += MAX_ROWS) {
		size_t rows = n - at < MAX_ROWS ? n - at : MAX_ROWS;
		forward(r, ids + at, (int)at, (int)rows);
		json_array_foreach(tops, i, top)
		{
			size_t position = (size_t)json_integer_value(member(top, "position")), k;
			if (position < at || position >= at + rows)
				continue;
			int32_t *best = ids_of(member(top, "ids"), &k);
			float *want = floats(member(top, "logits"), k);
			assert_true(k > 0);
			for (size_t j = 0; j < k; j++) {
				assert_in_range(best[j], 0, r->n_vocab - 1);
				compare(r, name, r->logits[(position - at) * (size_t)r->n_vocab + (size_t)best[j]],
					want[j]);
			}
			free(best);
			free(want);
			seen++;
		}
		if (at + rows == n)
			for (int v = 0; v < r->n_vocab; v++)
				compare(r, name, r->logits[(rows - 1) * (size_t)r->n_vocab + (size_t)v], last[v]);
	}
	assert_int_equal(seen, json_array_size(tops));
	free(ids);
	free(last);
}

/* Prefill, then one row at a time, the arg max each time. */
static void check_greedy(struct running *r, json_t *greedy)
{
	size_t n_prompt, n;
	int32_t *prompt = ids_of(member(greedy, "prompt_ids"), &n_prompt), *ids = ids_of(member(greedy, "ids"), &n);
	float *logprobs = floats(member(greedy, "logprobs"), n);
	assert_true(n > 0);
	forward(r, prompt, 0, (int)n_prompt);
	const float *l = r->logits + (n_prompt - 1) * (size_t)r->n_vocab;
	for (size_t i = 0; i < n; i++) {
		int best = 0;
		double sum = 0;
		for (int v = 1; v < r->n_vocab; v++)
			best = l[v] > l[best] ? v : best;
		for (int v = 0; v < r->n_vocab; v++)
			sum += exp((double)(l[v] - l[best]));
		assert_int_equal(best, ids[i]);
		compare(r, "greedy", (float)-log(sum), logprobs[i]);
		forward(r, &ids[i], (int)(n_prompt + i), 1);
		l = r->logits;
	}
	free(prompt);
	free(ids);
	free(logprobs);
}

static void test_logits(void **arg)
{
	(void)arg;
	const char *name;
	json_t *models = member(golden, "models"), *m, *sequence;
	assert_int_equal(json_object_size(models), 2);
	for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++)
		json_object_foreach(models, name, m)
		{
			struct running r;
			size_t i;
			start(&r, *o, json_string_value(member(m, "file")));
			assert_true(json_array_size(member(m, "sequences")) > 0);
			json_array_foreach(member(m, "sequences"), i, sequence) check_sequence(&r, sequence);
			if (share_allowed(&r) > 0) {
				double share = sqrt(r.errors / r.values);
				print_message("%s on %s: logits off by %.2f %%, at most %.2f %%\n", name, (*o)->name,
					      100 * share, 100 * share_allowed(&r));
				if (!(share <= share_allowed(&r)) || share < 1e-6)
					fail_msg("%s on %s: logits are off by %.3g of their size", name, (*o)->name,
						 share);
				if (!eight_bits(r.ops, KN_Q8_0))
					check_greedy(&r, member(m, "greedy"));
				stop(&r);
				continue;
			}
			check_greedy(&r, member(m, "greedy"));
			print_message("%s on %s: largest difference %.2e\n", name, (*o)->name, r.worst);
			stop(&r);
		}
}

/* ---- tokenizer ---- */

static void check_ids(const struct tokenizer *t, json_t *text, bool special, json_t *list)
{
	size_t n_text = json_string_length(text), n;
	int32_t *want = ids_of(list, &n);
	uint8_t *trust = malloc(n_text + 1);
	struct tok_ids got = {0};
	memset(trust, 1, n_text + 1);
	assert_int_equal(tokenizer_encode(t, json_string_value(text), n_text, special ? trust : NULL, &got), 0);
	if (got.n != n || (n > 0 && memcmp(got.ids, want, n * sizeof *want) != 0))
		fail_msg("\"%s\": %zu ids, not the %zu of the trainer", json_string_value(text), got.n, n);
	tok_ids_dispose(&got);
	free(trust);
	free(want);
}

/* The template in the file gives the text that the model was trained on. */
static void check_rendered(const struct chat_template *t, json_t *golden_chat)
{
	struct sl_err err = {0};
	struct prompt_chat chat;
	struct sl_buf text, trust;
	json_t *body = json_pack("{s:O, s:O*}", "messages", member(golden_chat, "messages"), "tools",
				 json_object_get(golden_chat, "tools"));
	char *request = json_dumps(body, JSON_COMPACT);
	assert_non_null(request);
	if (prompt_parse_chat(request, strlen(request), &chat, &err) != 0)
		fail_msg("%s", err.text);
	buf_init(&text, 1 << 16);
	buf_init(&trust, 1 << 16);
	struct chat_vars vars = {.messages = chat.messages, .tools = chat.tools, .add_generation_prompt = true};
	if (chat_template_render(t, &vars, &text, &trust, &err) != 0)
		fail_msg("%s", err.text);
	json_t *want = member(golden_chat, "text");
	assert_int_equal(text.len, json_string_length(want));
	assert_memory_equal(buf_data(&text), json_string_value(want), text.len);
	buf_dispose(&text);
	buf_dispose(&trust);
	prompt_chat_dispose(&chat);
	free(request);
	json_decref(body);
}

static void test_template(void **arg)
{
	(void)arg;
	const char *name;
	json_t *m, *chat;
	size_t i, with_tools = 0;
	json_object_foreach(member(golden, "models"), name, m)
	{
		char path[256];
		struct sl_err err = {0};
		struct gguf *g;
		struct proto_str source;
		struct chat_template *t;
		snprintf(path, sizeof path, DIR "%s", json_string_value(member(m, "file")));
		if (gguf_open(path, &g, &err) != 0 || gguf_get_str(g, "tokenizer.chat_template", &source, &err) != 0 ||
		    chat_template_compile(source.at, source.n, &t, &err) != 0)
			fail_msg("%s", err.text);
		assert_int_equal(chat_template_parts(t).format, PARTS_HERMES);
		json_array_foreach(member(golden, "chats"), i, chat)
		{
			check_rendered(t, chat);
			with_tools += json_object_get(chat, "tools") != NULL;
		}
		chat_template_free(t);
		gguf_close(g);
	}
	assert_true(with_tools > 0);
}

static void test_tokenizer(void **arg)
{
	(void)arg;
	const char *name;
	json_t *m, *item;
	json_object_foreach(member(golden, "models"), name, m)
	{
		char path[256];
		struct sl_err err = {0};
		struct gguf *g;
		struct tokenizer *t;
		size_t i;
		snprintf(path, sizeof path, DIR "%s", json_string_value(member(m, "file")));
		if (gguf_open(path, &g, &err) != 0 || tokenizer_create(g, &t, &err) != 0)
			fail_msg("%s", err.text);
		gguf_close(g);
		assert_true(json_array_size(member(golden, "tokenizations")) > 0);
		assert_true(json_array_size(member(golden, "chats")) > 0);
		json_array_foreach(member(golden, "tokenizations"), i, item)
		    check_ids(t, member(item, "text"), json_is_true(member(item, "special")), member(item, "ids"));
		json_array_foreach(member(golden, "chats"), i, item)
		    check_ids(t, member(item, "text"), true, member(item, "ids"));
		tokenizer_destroy(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_logits),
	    cmocka_unit_test(test_tokenizer),
	    cmocka_unit_test(test_template),
	};
	return cmocka_run_group_tests(tests, load_golden, drop_golden);
}
