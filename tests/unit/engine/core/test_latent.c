/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that attend to latent rows, with random weights. Every answer is, bit for bit, the one alone: in batches, in
 * other chunks and pages, after prefix hits, with drafts, pre-empted, on one thread and on two, in every type of keys
 * and values. Files with keys' and values' products in one tensor have the bits of those with two; wrong files are
 * refused in one line that names the key or the tensor.
 */
#include "engine_run.h"

#include <unistd.h>

#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/model_file.h"
#include "engine/source/random_model.h"
#include "kernels/kv_type.h"

enum { MOST = 200, TOKENS = 16 };

static struct eng_model_config model[] = {{.name = "latent"}};
static char prompts[MOST][700], path[] = "/tmp/sluice-latent-XXXXXX", other[] = "/tmp/sluice-latent-XXXXXX";
static int n_requests;
static uint64_t n_cached; /* tokens that came from the tree */
static const char *kv_type;
static uint8_t *file;
static size_t n_file;

static void write_model(const char *to, const char *shape, const char *type, void (*change)(struct model_arch *a))
{
	struct sl_err err = {0};
	struct random_model m = {.path = to, .name = "latent", .seed = 5, .n_threads = 2};
	assert_int_equal(random_shape_find(shape, &m.arch, &err), 0);
	if (change != NULL)
		change(&m.arch);
	assert_int_equal(weight_plan_parse(type, &m.plan, &err), 0);
	if (random_model_write(&m, NULL, &err) != 0)
		fail_msg("%s", err.text);
}

/* ---- answers ---- */

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .kv_type = kv_type,
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 64 << 20,
				   .max_sequences = 24,
				   .max_waiting = 2 * MOST,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* Some begin alike, for longer and shorter; every tenth is one of before. */
static struct proto_submit request(int i)
{
	int as = i % 10 == 9 ? i / 2 : i;
	char *at = prompts[i];
	run_say(at, sizeof prompts[i], 0, 10 + (size_t)(as * 97) % 450, (size_t)(as % 4) * 100, (size_t)as);
	struct proto_submit req = run_plain(at, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = as % 3 == 0 ? 0 : 0.8f;
	req.seed = 1000 + (uint64_t)as;
	req.tenant = (uint64_t)as % 2;
	return req;
}

static void each_alone(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config();
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	for (int i = 0; i < n_requests; i++) {
		struct proto_submit req = request(i);
		out[i] = *run_one(&r, 1, &req);
		assert_int_equal(out[i].n_tokens, TOKENS);
	}
	run_stop(&r);
}

/* All of them, n_rounds times; from the second round on much of each prompt is there. */
static struct proto_stats all_at_once(const struct eng_config *cfg, const struct answer *expect, int n_rounds)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	for (int round = 0; round < n_rounds; round++) {
		for (int i = 0; i < n_requests; i++) {
			struct proto_submit req = request(i);
			req.priority = (uint8_t)(i % 4); /* the better ones take from the worse */
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, i % 5 == 0 ? TOKENS / 2 : TOKENS);
		}
		for (int i = 0; i < n_requests; i += 5)
			run_credit(&r, (uint64_t)i + 1, TOKENS);
		for (int i = 0; i < n_requests; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
			n_cached += r.answers[i + 1].end.n_cached;
		}
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s;
}

static void check(struct answer *expect, const struct model_arch *a)
{
	struct eng_config cfg = config();
	each_alone(expect);
	(void)all_at_once(&cfg, expect, 2);
	cfg.max_sequences = 8;
	cfg.step_tokens = 17;
	cfg.n_threads = 2;
	(void)all_at_once(&cfg, expect, 1);
	cfg = config();
	cfg.page_tokens = 6; /* halves of three */
	cfg.spec_mode = ENG_SPEC_NGRAM;
	cfg.spec_max_draft = 8;
	cfg.spec_fixed = true;
	assert_true(all_at_once(&cfg, expect, 1).spec_drafts > 0);
	cfg = config();
	const struct kn_kv layout = model_kv_layout(a, kn_kv_type_from_name(kv_type), 16, a->n_layers);
	cfg.kv_bytes = 30 * kv_layout_bytes(&layout);
	assert_true(all_at_once(&cfg, expect, 1).preemptions > 0);
}

static void as_alone(void **state)
{
	(void)state;
	static const struct {
		const char *shape, *kv_type, *type;
		int n_requests;
	} cases[] = {{"tiny-deepseek2", "f16", "q8_0", MOST},
		     {"tiny-deepseek3", "q8", "f16", 32},
		     {"tiny-deepseek3", "f32", "f32", 32}};
	struct answer *expect = calloc(MOST, sizeof *expect);
	assert_non_null(expect);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_info info;
		struct sl_err err = {0};
		write_model(path, cases[i].shape, cases[i].type, NULL);
		assert_int_equal(model_inspect(path, &info, &err), 0);
		model[0].path = path;
		kv_type = cases[i].kv_type;
		n_requests = cases[i].n_requests;
		n_cached = 0;
		check(expect, &info.arch);
		print_message("%s, KV in %s: %d requests, %llu tokens from the tree\n", cases[i].shape, kv_type,
			      n_requests, (unsigned long long)n_cached);
		assert_true(n_cached > 40u * (unsigned)n_requests);
	}
	free(expect);
}

/* Another model drafts: one with latent rows, or with keys and values of heads, whose pages have another size and come
 * from the same memory. */
static void drafted(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-deepseek2", "tiny-llama"};
	struct answer *expect = calloc(MOST, sizeof *expect);
	struct eng_model_config pair[2];
	assert_non_null(expect);
	kv_type = "f16";
	n_requests = 40;
	write_model(path, shapes[0], "q8_0", NULL);
	model[0].path = path;
	each_alone(expect);
	for (int i = 0; i < 2; i++) {
		struct eng_config cfg = config();
		write_model(other, shapes[i], "q8_0", NULL);
		pair[0] = (struct eng_model_config){.name = "large", .path = path, .role = PROTO_ROLE_LARGE};
		pair[1] = (struct eng_model_config){.name = "small", .path = other, .role = PROTO_ROLE_SMALL};
		cfg.models = pair;
		cfg.n_models = 2;
		cfg.kv_bytes = 32 << 20;
		cfg.spec_mode = ENG_SPEC_DRAFT;
		cfg.spec_max_draft = 6;
		cfg.spec_fixed = true;
		struct proto_stats s = all_at_once(&cfg, expect, 2);
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
	kv_type = "q8";
	write_model(path, "tiny-deepseek3", "f32", NULL);
	model[0].path = path;
	struct eng_config cfg = config();
	for (int round = 0; round < 2; round++) {
		cfg.page_tokens = round == 0 ? 16 : 4;
		run_start(&r, &cfg);
		for (int i = 0; i < N; i++) {
			struct proto_submit req = request(i);
			req.temperature = 0;
			req.n = 1;
			req.beam_width = 3;
			if (round == 0) {
				expect[i] = *run_one(&r, 1, &req);
				assert_true(expect[i].n_tokens > 0);
				continue;
			}
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, TOKENS);
		}
		for (int i = 0; i < N && round == 1; i++)
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
		run_stop(&r);
	}
	free(expect);
}

/* ---- forms ---- */

static void read_file(const char *from)
{
	FILE *f = fopen(from, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	n_file = (size_t)ftell(f);
	rewind(f);
	free(file);
	file = malloc(n_file);
	assert_true(file != NULL && fread(file, 1, n_file, f) == n_file);
	fclose(f);
}

static void write_file(const char *to)
{
	FILE *f = fopen(to, "wb");
	assert_true(f != NULL && fwrite(file, 1, n_file, f) == n_file);
	assert_int_equal(fclose(f), 0);
}

static void join(struct model_arch *a) { a->latent.joined = true; }

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

/* The file at `to`, written with joined tensors, gets the numbers of the one at `from`. */
static void copy_numbers(const char *from, const char *to)
{
	struct sl_err err = {0};
	struct model_file *source, *target;
	struct model_arch a;
	assert_int_equal(model_file_open(from, &source, &err), 0);
	assert_int_equal(model_file_open(to, &target, &err), 0);
	assert_int_equal(model_file_arch(source, &a, &err), 0);
	read_file(to);
	const struct model_tensor *first = model_file_tensor_at(target, 0);
	uint8_t *begin = memmem(file, n_file, first->data, (size_t)first->bytes);
	assert_non_null(begin);
	for (size_t i = 0; i < model_file_n_tensors(target); i++) {
		const struct model_tensor *t = model_file_tensor_at(target, i);
		const struct model_tensor *s = model_file_find(source, t->name);
		uint8_t *at = begin + ((const uint8_t *)t->data - (const uint8_t *)first->data);
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
	write_file(to);
}

static void one_answer(const char *of, struct answer *out)
{
	struct run r;
	struct eng_config cfg = config();
	model[0].path = of;
	run_start(&r, &cfg);
	struct proto_submit req = request(5);
	out[0] = *run_one(&r, 1, &req);
	run_stop(&r);
}

static void forms_agree(void **state)
{
	(void)state;
	static const char *const types[] = {"f32", "bf16"}, *const shapes[] = {"tiny-deepseek2", "tiny-deepseek3"};
	static struct answer split, joined;
	kv_type = "f16";
	for (int i = 0; i < 2; i++) {
		write_model(path, shapes[i], types[i], NULL);
		write_model(other, shapes[i], types[i], join);
		copy_numbers(path, other);
		one_answer(path, &split);
		one_answer(other, &joined);
		assert_int_equal(split.n_tokens, TOKENS);
		run_assert_same(&joined, &split);
	}
}

/* ---- files that are wrong ---- */

/* The bytes after the first occurrence of `text` in the file. */
static uint8_t *after(const char *text)
{
	uint8_t *at = memmem(file, n_file, text, strlen(text));
	assert_non_null(at);
	return at + strlen(text);
}

static void refused_by(const struct kn_ops *o, const char *said)
{
	struct sl_err err = {0};
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	assert_int_equal(o->open(&kc, &b, &err), 0);
	int rc = model_load(path, o, b, 4, 0, &m, &err);
	o->close(b);
	if (rc == 0 || strstr(err.text, said) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not \"%s\"", rc, err.text, said);
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
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		write_model(path, "tiny-deepseek3", "f32", keys[i].joined ? join : NULL);
		read_file(path);
		after(keys[i].key)[4] = keys[i].value;
		write_file(path);
		refused_by(o, keys[i].said);
	}
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
	for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
		write_model(path, "tiny-deepseek3", "f32", tensors[i].joined ? join : NULL);
		read_file(path);
		after(tensors[i].name)[-1] = 'x';
		write_file(path);
		refused_by(o, tensors[i].said);
	}
	struct kn_ops without = *o;
	without.latent_write = NULL;
	write_model(path, "tiny-deepseek3", "f32", NULL);
	refused_by(&without, "has no latent attention");
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

static int setup(void **state)
{
	(void)state;
	int one = mkstemp(path), two = mkstemp(other);
	if (one >= 0)
		close(one);
	if (two >= 0)
		close(two);
	return one >= 0 && two >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(file);
	unlink(other);
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_alone),      cmocka_unit_test(drafted),
					   cmocka_unit_test(beams),         cmocka_unit_test(forms_agree),
					   cmocka_unit_test(refused_files), cmocka_unit_test(odd_pages)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, setup, teardown);
}
