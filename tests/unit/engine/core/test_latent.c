/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that attend to latent rows, with random weights. Every answer is, bit for bit, the one alone: in batches, in
 * other chunks and pages, after prefix hits, with drafts, pre-empted, on one thread and on two, in every type of keys
 * and values. Files with keys' and values' products in one tensor have the bits of those with two; wrong files are
 * refused in one line that names the key or the tensor.
 */
#include "crowd_run.h"

#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/source/model_file.h"
#include "kernels/kv_type.h"
#include "tests/support/random_file.h"

static const char first[] = "first.gguf", second[] = "second.gguf";
static char first_path[256], second_path[256];

/* ---- answers ---- */

static void as_alone(void **state)
{
	(void)state;
	static const struct {
		const char *shape, *kv_type, *type;
		int n_most, n_requests; /* most: with THOROUGH */
	} cases[] = {{"tiny-deepseek2", "f16", "q8_0", CROWD_MOST, 64},
		     {"tiny-deepseek3", "q8", "f16", 32, 24},
		     {"tiny-deepseek3", "f32", "f32", 32, 24}};
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	assert_non_null(expect);
	crowd_model[0].path = first_path;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_arch a = random_arch(cases[i].shape);
		random_file_of(first, &a, cases[i].type, 5, 2);
		crowd_kv_type = cases[i].kv_type;
		crowd_n = getenv("THOROUGH") != NULL ? cases[i].n_most : cases[i].n_requests;
		crowd_cached = 0;
		struct eng_config cfg = crowd_config();
		crowd_alone(&cfg, expect);
		const struct kn_kv layout =
		    model_kv_layout(&a, kn_kv_type_from_name(crowd_kv_type), CROWD_PAGE, a.n_layers);
		/* Pages that are halves of three. */
		struct proto_stats s = crowd_in_every_way(expect, 6, 30 * kv_layout_bytes(&layout), cfg.max_sequences);
		assert_true(s.spec_drafts > 0);
		crowd_assert_cached(cases[i].shape);
	}
	free(expect);
}

/* Another model drafts: one with latent rows, or with keys and values of heads, whose pages have another size and come
 * from the same memory. */
static void drafted(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-deepseek2", "tiny-llama"};
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	struct eng_model_config pair[2];
	assert_non_null(expect);
	crowd_kv_type = "f16";
	crowd_n = 40;
	random_file(first, shapes[0], "q8_0", 5, 2);
	crowd_model[0].path = first_path;
	struct eng_config plain = crowd_config();
	crowd_alone(&plain, expect);
	for (int i = 0; i < 2; i++) {
		struct eng_config cfg = crowd_config();
		random_file(second, shapes[i], "q8_0", 5, 2);
		pair[0] = (struct eng_model_config){.name = "large", .path = first_path, .role = PROTO_ROLE_LARGE};
		pair[1] = (struct eng_model_config){.name = "small", .path = second_path, .role = PROTO_ROLE_SMALL};
		cfg.models = pair;
		cfg.n_models = 2;
		cfg.kv_bytes = 32 << 20;
		cfg.spec_mode = ENG_SPEC_DRAFT;
		cfg.spec_max_draft = 6;
		cfg.spec_fixed = true;
		struct proto_stats s = crowd_together(&cfg, expect, 2);
		print_message("%s drafts: %llu, %llu of %llu tokens accepted\n", shapes[i],
			      (unsigned long long)s.spec_drafts, (unsigned long long)s.spec_accepted,
			      (unsigned long long)s.spec_drafted);
		assert_true(s.spec_drafts > 0 && (i == 1 || s.spec_accepted > 0));
	}
	free(expect);
}

/* Beams copy pages and share them. */
static void beams(void **state)
{
	(void)state;
	enum { N = 8 };
	struct run r;
	struct answer *expect = calloc(N, sizeof *expect);
	assert_non_null(expect);
	crowd_kv_type = "q8";
	random_file(first, "tiny-deepseek3", "f32", 5, 2);
	crowd_model[0].path = first_path;
	struct eng_config cfg = crowd_config();
	for (int round = 0; round < 2; round++) {
		cfg.page_tokens = round == 0 ? 16 : 4;
		run_start(&r, &cfg);
		for (int i = 0; i < N; i++) {
			struct proto_submit req = crowd_request(i);
			req.temperature = 0;
			req.n = 1;
			req.beam_width = 3;
			if (round == 0) {
				expect[i] = *run_one(&r, 1, &req);
				assert_true(expect[i].n_tokens > 0);
				continue;
			}
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, CROWD_TOKENS);
		}
		for (int i = 0; i < N && round == 1; i++)
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
		run_stop(&r);
	}
	free(expect);
}

/* ---- forms ---- */

/* The file becomes a model with keys' and values' products in one tensor. */
static void joined_file(const char *name, const char *shape, const char *type)
{
	struct model_arch a = random_arch(shape);
	a.latent.joined = true;
	random_file_of(name, &a, type, 5, 2);
}

static const struct model_tensor *tensor(const struct model_file *f, int layer, const char *what)
{
	char name[64];
	snprintf(name, sizeof name, "blk.%d.%s", layer, what);
	const struct model_tensor *t = model_file_find(f, name);
	assert_non_null(t);
	return t;
}

/* What a layer's attn_kv_b is of the split tensors: of each head its keys' rows, which are columns there, then its
 * values'. */
static void join_layer(const struct model_file *from, const struct model_arch *a, int layer, uint8_t *to)
{
	const struct arch_latent *d = &a->latent;
	const struct model_tensor *k = tensor(from, layer, "attn_k_b.weight"),
				  *v = tensor(from, layer, "attn_v_b.weight");
	size_t each = kn_type_block_bytes(k->type), n = (size_t)d->n, plain = (size_t)d->plain;
	size_t value = (size_t)d->n_value;
	for (size_t h = 0; h < (size_t)a->n_heads; h++) {
		for (size_t i = 0; i < plain; i++)
			for (size_t j = 0; j < n; j++, to += each)
				memcpy(to, (const uint8_t *)k->data + ((h * n + j) * plain + i) * each, each);
		memcpy(to, (const uint8_t *)v->data + h * value * n * each, value * n * each);
		to += value * n * each;
	}
}

/* The second file, written with joined tensors, gets the numbers of the first. */
static void copy_numbers(void)
{
	size_t n_file;
	struct sl_err err = {0};
	struct model_file *source, *target;
	struct model_arch a;
	assert_int_equal(model_file_open(first_path, &source, &err), 0);
	assert_int_equal(model_file_open(second_path, &target, &err), 0);
	assert_int_equal(model_file_arch(source, &a, &err), 0);
	uint8_t *file = md_read(dir, second, &n_file);
	const struct model_tensor *begins = model_file_tensor_at(target, 0);
	uint8_t *begin = memmem(file, n_file, begins->data, (size_t)begins->bytes);
	assert_non_null(begin);
	for (size_t i = 0; i < model_file_n_tensors(target); i++) {
		const struct model_tensor *t = model_file_tensor_at(target, i);
		const struct model_tensor *s = model_file_find(source, t->name);
		uint8_t *at = begin + ((const uint8_t *)t->data - (const uint8_t *)begins->data);
		int layer;
		if (s != NULL)
			memcpy(at, s->data, (size_t)s->bytes);
		else if (sscanf(t->name, "blk.%d.attn_kv_b.weight", &layer) == 1)
			join_layer(source, &a, layer, at);
		else
			fail_msg("no tensor %s", t->name);
	}
	model_file_close(source);
	model_file_close(target);
	md_write(dir, second, file, n_file);
	free(file);
}

static void one_answer(const char *path, struct answer *out)
{
	struct run r;
	struct eng_config cfg = crowd_config();
	crowd_model[0].path = path;
	run_start(&r, &cfg);
	struct proto_submit req = crowd_request(5);
	out[0] = *run_one(&r, 1, &req);
	run_stop(&r);
}

static void forms_agree(void **state)
{
	(void)state;
	static const char *const types[] = {"f32", "bf16"}, *const shapes[] = {"tiny-deepseek2", "tiny-deepseek3"};
	static struct answer split, joined;
	crowd_kv_type = "f16";
	for (int i = 0; i < 2; i++) {
		random_file(first, shapes[i], types[i], 5, 2);
		joined_file(second, shapes[i], types[i]);
		copy_numbers();
		one_answer(first_path, &split);
		one_answer(second_path, &joined);
		assert_int_equal(split.n_tokens, CROWD_TOKENS);
		run_assert_same(&joined, &split);
	}
}

/* ---- files that are wrong ---- */

/* tiny-deepseek3 with that byte in place of the one so far behind the text. */
static void refused_with(const struct kn_ops *o, bool joined, const char *text, int behind, uint8_t byte,
			 const char *said)
{
	size_t n;
	if (joined)
		joined_file(first, "tiny-deepseek3", "f32");
	else
		random_file(first, "tiny-deepseek3", "f32", 5, 2);
	uint8_t *file = md_read(dir, first, &n);
	random_file_after(file, n, text)[behind] = byte;
	md_write(dir, first, file, n);
	free(file);
	random_file_refused(first, o, said);
}

static void refused_files(void **state)
{
	(void)state;
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	/* A number after a key: its type in four bytes, then the value. */
	static const struct {
		const char *key;
		bool joined;
		uint8_t value;
		const char *said;
	} keys[] = {
	    {"deepseek2.attention.kv_lora_rank", false, 0, "deepseek2.attention.kv_lora_rank is 0, not from 1 to"},
	    {"deepseek2.attention.kv_lora_rank", false, 40, "attention.kv_lora_rank 40"},
	    {"deepseek2.attention.kv_lora_rank", true, 40, "tensor blk.0.attn_kv_a_mqa.weight is"},
	    {"deepseek2.rope.dimension_count", false, 9, "rope.dimension_count 9"},
	    {"deepseek2.rope.dimension_count", true, 9, "deepseek2.rope.dimension_count 9 is odd"},
	    {"deepseek2.rope.dimension_count", true, 32, "leaves nothing of a key of 32 that does not turn"},
	    {"deepseek2.attention.key_length_mla", false, 10, "leaves nothing of a key of 10"},
	    {"deepseek2.attention.value_length_mla", false, 24, "tensor blk.0.attn_v_b.weight is 36 × 20 × 3"},
	    {"deepseek2.attention.q_lora_rank", false, 0, "tensor blk.0.attn_q.weight is missing"},
	    {"deepseek2.attention.q_lora_rank", false, 41, "tensor blk.0.attn_q_a.weight is"},
	    {"deepseek2.expert_group_count", false, 5, "deepseek2.expert_group_count 5 does not divide"},
	    {"deepseek2.expert_group_count", false, 13, "deepseek2.expert_group_count is 13, not from 1 to 12"},
	    {"deepseek2.expert_group_used_count", false, 5, "expert_group_used_count is 5, not from 1 to 4"},
	    {"deepseek2.expert_used_count", false, 7, "the groups used have fewer experts than a row uses"},
	    {"deepseek2.expert_gating_func", false, 3, "deepseek2.expert_gating_func is 3, not from 1 to 2"},
	    {"deepseek2.leading_dense_block_count", false, 4, "leading_dense_block_count is 4, not from 0 to 3"},
	};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		refused_with(o, keys[i].joined, keys[i].key, 4, keys[i].value, keys[i].said);
	static const struct {
		const char *name, *said;
		bool joined;
	} tensors[] = {
	    {"blk.0.attn_kv_b.weight", "tensor blk.0.attn_k_b.weight is missing", true},
	    {"blk.1.attn_kv_b.weight", "tensor blk.1.attn_kv_b.weight is missing", true},
	    {"blk.1.attn_v_b.weight", "tensor blk.1.attn_v_b.weight is missing", false},
	    {"blk.2.attn_kv_a_norm.weight", "tensor blk.2.attn_kv_a_norm.weight is missing", false},
	    {"blk.1.exp_probs_b.bias", "tensor blk.1.exp_probs_b.bias is missing", false},
	};
	for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
		refused_with(o, tensors[i].joined, tensors[i].name, -1, 'x', tensors[i].said);
	struct kn_ops without = *o;
	without.latent_write = NULL;
	random_file(first, "tiny-deepseek3", "f32", 5, 2);
	random_file_refused(first, &without, "has no latent attention");
}

/* Pages of an odd number of tokens have no halves: the model fails, the engine says why. */
static void odd_pages(void **state)
{
	(void)state;
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 64};
	struct kn_kv layout = {.type = KN_F32,
			       .n_pages = 4,
			       .page_tokens = 5,
			       .n_layers = 2,
			       .n_kv_heads = 1,
			       .head_dim = 46,
			       .latent = 36};
	struct kn_backend *b;
	struct kv_pool *pool;
	assert_int_equal(o->open(&kc, &b, &err), 0);
	assert_int_equal(kv_pool_make(o, b, &layout, &pool, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "engine.page_tokens is 5"));
	layout.page_tokens = 6;
	assert_int_equal(kv_layout_bytes(&layout), 2 * 6 * 46 * sizeof(float));
	assert_int_equal(kv_pool_make(o, b, &layout, &pool, &err), 0);
	assert_int_equal(2 * kn_kv_page_bytes(kv_pool_layout(pool)), kv_layout_bytes(&layout));
	kv_pool_destroy(pool);
	struct kn_ops without = *o;
	without.latent_write = NULL;
	assert_int_equal(kv_pool_make(&without, b, &layout, &pool, &err), SL_EUNSUPPORTED);
	o->close(b);
}

static int set_up(void **state)
{
	int rc = setup(state);
	md_path(first_path, dir, first);
	md_path(second_path, dir, second);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_alone),      cmocka_unit_test(drafted),
					   cmocka_unit_test(beams),         cmocka_unit_test(forms_agree),
					   cmocka_unit_test(refused_files), cmocka_unit_test(odd_pages)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, set_up, teardown);
}
