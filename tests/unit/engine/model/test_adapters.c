/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with adapters: log-probabilities are those of the merged model, for each target, rank pattern and form; and a
 * row has the same bits in any company of rows with other adapters, or with none, however many threads compute them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "engine/adapter/adapter_make.h"
#include "engine/adapter/adapter_merge.h"
#include "engine/kv/kv.h"
#include "engine/model/adapters.h"
#include "tests/support/part.h"
#include "tests/support/short_spins.h"
#include "tests/support/random_file.h"

enum { PAGE = 16, SEQS = 5, SEQ_PAGES = 3, LENGTH = PART_OF(40), MAX_ROWS = SEQS * LENGTH, VOCAB = 512, ADAPTERS = 3 };

static const char *in_dir(const char *name)
{
	static char paths[8][256];
	static int next;
	char *path = paths[next++ % 8];
	md_path(path, dir, name);
	return path;
}

static void write_base(const char *shape, const char *type) { random_file("base.gguf", shape, type, 11, 0); }

static void write_adapter(const char *name, const int ranks[ADAPTER_TARGETS], int type, uint64_t seed)
{
	struct sl_err err = {0};
	struct adapter_make m = {
	    .base = in_dir("base.gguf"), .out = in_dir(name), .type = type, .seed = seed, .replace = true};
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		m.ranks[t] = ranks[t];
		m.alphas[t] = 12;
	}
	if (adapter_make(&m, &err) != 0)
		fail_msg("%s", err.text);
}

static void drop_folder(const char *name)
{
	md_remove_file(in_dir(name), "adapter_model.safetensors");
	md_remove_file(in_dir(name), "adapter_config.json");
	rmdir(in_dir(name));
}

/* ---- a loaded model ---- */

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int32_t tables[SEQS * SEQ_PAGES];
	float *logits; /* [MAX_ROWS][VOCAB] */
};

static void open_rig(struct rig *r, const struct kn_ops *o, int n_threads, const char *path)
{
	struct sl_err err = {0};
	struct kn_config cfg = {.n_threads = n_threads, .max_rows = MAX_ROWS, .max_width = 1024};
	*r = (struct rig){.o = o, .logits = malloc((size_t)MAX_ROWS * VOCAB * sizeof(float))};
	short_spins();
	assert_int_equal(o->open(&cfg, &r->b, &err), 0);
	if (model_load(path, o, r->b, MAX_ROWS, 0, &r->m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(r->m)->arch;
	assert_int_equal(kv_pool_create(o, r->b, KN_F32, SEQS * SEQ_PAGES, PAGE, a->n_layers, a->n_kv_heads,
					a->head_dim, &r->pool, &err),
			 0);
	for (int i = 0; i < SEQS * SEQ_PAGES; i++)
		r->tables[i] = i;
}

static void close_rig(struct rig *r)
{
	kv_pool_destroy(r->pool);
	model_free(r->m);
	r->o->close(r->b);
	free(r->logits);
}

static int add_adapter(struct rig *r, const char *name)
{
	struct sl_err err = {0};
	int slot = -1;
	if (model_load_adapter(r->m, in_dir(name), &slot, &err) != 0)
		fail_msg("%s", err.text);
	return slot;
}

static int32_t token_at(int seq, int pos) { return (int32_t)((seq * 131 + pos * 37 + pos * pos * 5) % 400 + 20); }

/* Rows of several sequences: take[s] of them from from[s] on, in turn; adapter[s]: its slot or -1. */
static void run(struct rig *r, const int from[SEQS], const int take[SEQS], const int adapter[SEQS], float *out[SEQS])
{
	int32_t token[MAX_ROWS], pos[MAX_ROWS], seq[MAX_ROWS], want[MAX_ROWS], slot[MAX_ROWS];
	int n = 0, done[SEQS] = {0};
	for (bool some = true; some;) {
		some = false;
		for (int s = 0; s < SEQS; s++)
			if (done[s] < take[s]) {
				int p = from[s] + done[s]++;
				token[n] = token_at(s, p), pos[n] = p, seq[n] = s, slot[n] = adapter[s], want[n] = n;
				n++;
				some = true;
			}
	}
	struct kn_step k = {.n_rows = n,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .row_adapter = slot,
			    .n_seqs = SEQS,
			    .page_table = r->tables,
			    .max_pages = SEQ_PAGES};
	if (n == 0)
		return;
	assert_int_equal(model_forward(r->m, &k, kv_pool_layout(r->pool), want, n, r->logits), 0);
	for (int i = 0; i < n; i++)
		memcpy(out[seq[i]] + (size_t)pos[i] * VOCAB, r->logits + (size_t)i * VOCAB, VOCAB * sizeof(float));
}

static float *room(void) { return malloc((size_t)LENGTH * VOCAB * sizeof(float)); }

/* ---- against the merged model ---- */

static double log_sum(const float *l)
{
	double max = (double)l[0], sum = 0;
	for (int i = 1; i < VOCAB; i++)
		max = (double)l[i] > max ? (double)l[i] : max;
	for (int i = 0; i < VOCAB; i++)
		sum += exp((double)l[i] - max);
	return max + log(sum);
}

static int largest(const float *l)
{
	int best = 0;
	for (int i = 1; i < VOCAB; i++)
		best = l[i] > l[best] ? i : best;
	return best;
}

/* The largest difference of a log-probability. */
static double apart(const float *x, const float *y, bool same_choice)
{
	double most = 0;
	for (int p = 0; p < LENGTH; p++, x += VOCAB, y += VOCAB) {
		double sx = log_sum(x), sy = log_sum(y);
		for (int i = 0; i < VOCAB; i++) {
			double d = fabs((double)x[i] - sx - ((double)y[i] - sy));
			most = d > most ? d : most;
		}
		if (same_choice)
			assert_int_equal(largest(x), largest(y));
	}
	return most;
}

static void answers(const struct kn_ops *o, const char *path, const char *adapter, float *out)
{
	static const int from[SEQS] = {0}, take[SEQS] = {LENGTH};
	struct rig r;
	float *outs[SEQS] = {out};
	open_rig(&r, o, 2, path);
	int slot = adapter != NULL ? add_adapter(&r, adapter) : -1;
	run(&r, from, take, (const int[SEQS]){slot, -1, -1, -1, -1}, outs);
	close_rig(&r);
}

static void check_case(const struct kn_ops *o, const char *name, const int ranks[ADAPTER_TARGETS], int type)
{
	struct sl_err err = {0};
	struct quantize_how how = {.replace = true, .n_threads = 2};
	float *plain = room(), *with = room(), *merged = room();
	write_adapter(name, ranks, type, 3);
	assert_int_equal(weight_plan_parse("f32", &how.plan, &err), 0);
	if (adapter_merge(in_dir("base.gguf"), in_dir(name), in_dir("merged.gguf"), &how, NULL, &err) != 0)
		fail_msg("%s", err.text);
	answers(o, in_dir("base.gguf"), NULL, plain);
	answers(o, in_dir("base.gguf"), name, with);
	answers(o, in_dir("merged.gguf"), NULL, merged);
	double off = apart(with, merged, true), changed = apart(plain, merged, false);
	if (!(off <= 1e-4) || !(changed > 0.1))
		fail_msg("%s: %s off by %g, where the adapter changes %g", o->name, name, off, changed);
	free(plain);
	free(with);
	free(merged);
	if (strstr(name, ".gguf") == NULL)
		drop_folder(name);
}

/* The reference, and the fastest with activations of 32 bits. */
static const struct kn_ops *floats(int i)
{
	static const char *const names[] = {"cpu-ref", "cpu-avx2", "cpu-avx512"};
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		if (strcmp((*o)->name, names[i]) == 0)
			return *o;
	return NULL;
}

/* Each alone; those of no layer also where both are one matrix, the embeddings are scaled and the logits capped. */
static void test_targets(void **arg)
{
	(void)arg;
	static const char *const shapes[] = {"tiny-llama", "tiny-gemma2", "tiny-qwen2moe"};
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		write_base(shapes[s], "f32");
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			int ranks[ADAPTER_TARGETS] = {0};
			bool layers = adapter_is_of_a_layer((enum adapter_target)t);
			if ((s == 1 && layers) || (layers && (t < ADAPTER_DENSE_TARGETS) != (s == 0)))
				continue;
			ranks[t] = 3 + 5 * t;
			const struct kn_ops *o = floats(1 + t % 2);
			check_case(o != NULL ? o : floats(0), (t + (int)s) % 2 == 0 ? "a.gguf" : "peft", ranks, KN_F32);
		}
	}
}

/* All at once, of each kind of mixture: shared experts, Mixtral's names, biases, weights of inputs, dense layers
 * before. */
static void test_mixtures(void **arg)
{
	(void)arg;
	static const char *const shapes[] = {"tiny-qwen2moe", "tiny-mixtral", "tiny-gpt-oss", "tiny-llama4",
					     "tiny-glm4moe"};
	static const int types[] = {KN_F32, KN_BF16, KN_F32, KN_F16, KN_F32};
	for (size_t s = 0; s < PART_OF(sizeof shapes / sizeof *shapes); s++) {
		struct model_arch a = random_arch(shapes[s]);
		int ranks[ADAPTER_TARGETS] = {
		    [ADAPTER_Q] = 8,           [ADAPTER_V] = 5,         [ADAPTER_O] = 3,
		    [ADAPTER_EXPERT_GATE] = 4, [ADAPTER_EXPERT_UP] = 7, [ADAPTER_EXPERT_DOWN] = 16,
		    [ADAPTER_EMBED] = 9,       [ADAPTER_HEAD] = 17};
		write_base(shapes[s], "f32");
		for (int t = ADAPTER_SHARED_GATE; t <= ADAPTER_SHARED_DOWN; t++)
			ranks[t] = a.experts.n_ff_shared > 0 ? ranks[t - ADAPTER_SHARED_GATE + ADAPTER_EXPERT_GATE] : 0;
		for (int i = 0; i < 3; i += i == 0 && s > 0 ? 2 : 1)
			if (floats(i) != NULL)
				check_case(floats(i), s % 2 == 0 ? "a.gguf" : "peft", ranks, types[s]);
	}
}

static void test_patterns(void **arg)
{
	(void)arg;
	static const int mixed[ADAPTER_TARGETS] = {1, 17, 4, 64, 8, 3, 256, [ADAPTER_EMBED] = 2, [ADAPTER_HEAD] = 33},
			 few[ADAPTER_TARGETS] = {16, 0, 16, 0, 0, 9, 0, [ADAPTER_EMBED] = 11};
	static const char *const shapes[] = {"tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma3"};
	static const int types[] = {KN_F32, KN_BF16, KN_F16, KN_F32};
	for (size_t s = 0; s < PART_OF(sizeof shapes / sizeof *shapes); s++) {
		write_base(shapes[s], "f32");
		for (int i = s == 0 ? 0 : 1; i < 3; i++) {
			if (floats(i) == NULL)
				continue;
			check_case(floats(i), "a.gguf", mixed, types[s]);
			check_case(floats(i), "peft", few, types[s]);
		}
	}
}

/* ---- in company ---- */

/* Sequences 0 and 3 have no adapter and an adapter each, 1 and 4 share one. */
static const char *const files[ADAPTERS] = {"x.gguf", "y.gguf", "z.gguf"};
static const int adapters[SEQS] = {-1, 1, 0, 2, 1};

static void in_company(const struct kn_ops *o, int n_threads, float *alone[SEQS])
{
	static const int chunks[][SEQS] = {{40, 40, 40, 40, 40}, {1, 7, 40, 3, 2}, {5, 1, 1, 1, 16}, {2, 40, 3, 40, 1}};
	struct rig r;
	float *got[SEQS];
	open_rig(&r, o, n_threads, in_dir("base.gguf"));
	for (int i = 0; i < ADAPTERS; i++)
		assert_int_equal(add_adapter(&r, files[i]), i);
	for (int s = 0; s < SEQS; s++)
		got[s] = room();
	for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
		int from[SEQS] = {0}, left = SEQS * LENGTH;
		while (left > 0) {
			int take[SEQS];
			for (int s = 0; s < SEQS; s++)
				take[s] = LENGTH - from[s] < chunks[c][s] ? LENGTH - from[s] : chunks[c][s];
			run(&r, from, take, adapters, got);
			for (int s = 0; s < SEQS; s++) {
				from[s] += take[s];
				left -= take[s];
			}
		}
		for (int s = 0; s < SEQS; s++)
			assert_memory_equal(got[s], alone[s], (size_t)LENGTH * VOCAB * sizeof(float));
	}
	for (int s = 0; s < SEQS; s++)
		free(got[s]);
	close_rig(&r);
}

static void check_company(const char *shape, const int ranks[ADAPTERS][ADAPTER_TARGETS])
{
	static const int types[ADAPTERS] = {KN_BF16, KN_F32, KN_F16};
	write_base(shape, "q8_0");
	for (int i = 0; i < ADAPTERS; i++)
		write_adapter(files[i], ranks[i], types[i], (uint64_t)i + 1);
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		if ((*o)->lora_lookup == NULL || strcmp((*o)->name, "cpu-ref") == 0)
			continue;
		float *alone[SEQS];
		/* Each row by itself, in a model that has its adapter only. */
		for (int s = 0; s < SEQS; s++) {
			struct rig r;
			float *outs[SEQS] = {0};
			int slots[SEQS] = {-1, -1, -1, -1, -1};
			alone[s] = outs[s] = room();
			open_rig(&r, *o, 1, in_dir("base.gguf"));
			if (adapters[s] >= 0)
				slots[s] = add_adapter(&r, files[adapters[s]]);
			for (int p = 0; p < LENGTH; p++) {
				int from[SEQS] = {0}, take[SEQS] = {0};
				from[s] = p;
				take[s] = 1;
				run(&r, from, take, slots, outs);
			}
			close_rig(&r);
		}
		assert_true(apart(alone[0], alone[1], false) > 0.1);
		in_company(*o, 1, alone);
		in_company(*o, 2, alone);
		for (int s = 0; s < SEQS; s++)
			free(alone[s]);
	}
}

static void test_company(void **arg)
{
	(void)arg;
	static const int dense[ADAPTERS][ADAPTER_TARGETS] = {
	    {16, 16, 16, 16, 16, 16, 16}, {8, 0, 4, 0, 0, 32, 8, [ADAPTER_EMBED] = 5}, {0, 0, 0, 0, 5, 0, 1}};
	static const int mixture[ADAPTERS][ADAPTER_TARGETS] = {
	    {[ADAPTER_EXPERT_GATE] = 8, 16, 4, [ADAPTER_EMBED] = 16, [ADAPTER_HEAD] = 8},
	    {[ADAPTER_K] = 8, [ADAPTER_SHARED_GATE] = 4, 8, 3, [ADAPTER_HEAD] = 33},
	    {[ADAPTER_EXPERT_UP] = 5, 0, [ADAPTER_SHARED_DOWN] = 2, [ADAPTER_EMBED] = 1}};
	check_company("tiny-llama", dense);
	check_company("tiny-qwen2moe", mixture);
}

/* ---- refusals ---- */

static int add_as(struct rig *r, const char *name, int type)
{
	struct sl_err err = {0};
	struct adapter *a;
	struct chat_template *template;
	struct model_adapter *packed;
	uint64_t digest;
	int slot;
	assert_int_equal(model_open_adapter(r->m, in_dir(name), &a, &template, &digest, &err), 0);
	assert_null(template);
	assert_int_equal(model_pack_adapter(r->m, a, type, &packed, &err), 0);
	assert_int_equal(model_put_adapter(r->m, packed, &slot, &err), 0);
	assert_int_equal(model_adapter_bytes(r->m, slot), model_adapter_size(r->m, a, type));
	model_close_adapter(a);
	return slot;
}

/* As bytes: what the reference makes of the same bytes; by a twentieth at most other than what the adapter changes, as
 * each number is off by 1/254 of the largest in its row or column and such errors cancel out; with half of bf16's
 * bytes. Slots are taken again once they are free. */
static void test_bytes(void **arg)
{
	(void)arg;
	static const int from[SEQS] = {0}, take[SEQS] = {LENGTH};
	static const int ranks[ADAPTER_TARGETS] = {
	    16, 3, 16, 8, [ADAPTER_EXPERT_GATE] = 16, 5, 16, [ADAPTER_EMBED] = 8, [ADAPTER_HEAD] = 16};
	const struct kn_ops *tables[] = {floats(0), floats(2) != NULL ? floats(2) : floats(0)};
	float *plain = room(), *with = room(), *bytes[2] = {room(), room()};
	write_base("tiny-mixtral", "f32");
	write_adapter("a.gguf", ranks, KN_BF16, 3);
	write_adapter("other.gguf", ranks, KN_BF16, 4);
	answers(tables[1], in_dir("base.gguf"), NULL, plain);
	answers(tables[1], in_dir("base.gguf"), "a.gguf", with);
	for (int i = 0; i < 2; i++) {
		struct rig r;
		open_rig(&r, tables[i], 1, in_dir("base.gguf"));
		assert_int_equal(add_as(&r, "other.gguf", KN_LORA_I8), 0);
		assert_int_equal(add_as(&r, "a.gguf", -1), 1);
		uint64_t wide = model_adapter_bytes(r.m, 1);
		model_remove_adapter(r.m, 0);
		assert_int_equal(add_as(&r, "a.gguf", KN_LORA_I8), 0);
		assert_true(model_adapter_bytes(r.m, 0) < wide * 6 / 10);
		run(&r, from, take, (const int[SEQS]){0, -1, -1, -1, -1}, (float *[SEQS]){bytes[i]});
		close_rig(&r);
	}
	double off = apart(with, bytes[1], false), changed = apart(plain, with, false);
	if (!(apart(bytes[0], bytes[1], true) <= 1e-4) || !(off > 0 && off <= changed / 20))
		fail_msg("off by %g where the adapter changes %g; by %g from the reference", off, changed,
			 apart(bytes[0], bytes[1], false));
	free(plain);
	free(with);
	free(bytes[0]);
	free(bytes[1]);
}

static void test_refused(void **arg)
{
	(void)arg;
	static const int ranks[ADAPTER_TARGETS] = {1};
	struct rig r;
	struct sl_err err = {0};
	int slot = -1;
	write_base("tiny-llama", "f32");
	write_adapter("a.gguf", ranks, KN_F32, 1);
	const struct kn_ops *best = floats(2) != NULL ? floats(2) : floats(0);
	struct kn_ops without = *best;
	without.lora_shrink = NULL;
	open_rig(&r, &without, 1, in_dir("base.gguf"));
	assert_int_equal(model_load_adapter(r.m, in_dir("a.gguf"), &slot, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, best->name));
	close_rig(&r);
	/* A backend for the step's own rows only. */
	without = *best;
	without.lora_lookup = NULL;
	open_rig(&r, &without, 1, in_dir("base.gguf"));
	assert_int_equal(add_adapter(&r, "a.gguf"), 0);
	for (int i = 0; i < 2; i++) {
		int others[ADAPTER_TARGETS] = {1, [ADAPTER_EMBED] = i, [ADAPTER_HEAD] = 1 - i};
		write_adapter("b.gguf", others, KN_F32, 1);
		assert_int_equal(model_load_adapter(r.m, in_dir("b.gguf"), &slot, &err), SL_EUNSUPPORTED);
		assert_non_null(
		    strstr(err.text, i == 1 ? "no adapters of token_embd.weight" : "no adapters of output.weight"));
	}
	close_rig(&r);
	open_rig(&r, best, 1, in_dir("base.gguf"));
	assert_int_equal(model_load_adapter(r.m, in_dir("none.gguf"), &slot, &err), SL_EIO);
	write_adapter("peft", ranks, KN_F32, 1);
	md_text(in_dir("peft"), "added_tokens.json", "{\"<tool>\":511}");
	assert_int_equal(model_load_adapter(r.m, in_dir("peft"), &slot, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "added token \"<tool>\""));
	md_remove_file(in_dir("peft"), "added_tokens.json");
	md_text(in_dir("peft"), "chat_template.jinja", "its own"); /* is not used */
	assert_int_equal(add_adapter(&r, "peft"), 0);
	md_remove_file(in_dir("peft"), "chat_template.jinja");
	drop_folder("peft");
	for (int i = 1; i < MODEL_MAX_ADAPTERS; i++)
		assert_int_equal(add_adapter(&r, "a.gguf"), i);
	assert_true(model_adapter_bytes(r.m, 7) > 0);
	assert_int_equal(model_load_adapter(r.m, in_dir("a.gguf"), &slot, &err), SL_ELIMIT);
	close_rig(&r);
}

/* Whatever allocation fails: it is no memory, nothing is lost, and the next try has the adapter. */
static void test_no_memory(void **arg)
{
	(void)arg;
	static const int ranks[ADAPTER_TARGETS] = {
	    4, 0, 2, 0, [ADAPTER_EXPERT_UP] = 8, 1, [ADAPTER_EMBED] = 3, [ADAPTER_HEAD] = 1};
	const struct kn_ops *best = floats(2) != NULL ? floats(2) : floats(0);
	write_base("tiny-mixtral", "q8_0");
	for (int form = 0; form < 2; form++) {
		const char *name = form == 0 ? "a.gguf" : "peft";
		struct rig r;
		int rc = SL_ENOMEM, slot = -1, n_failed = 0;
		write_adapter(name, ranks, KN_BF16, 1);
		open_rig(&r, best, 1, in_dir("base.gguf"));
		for (long nth = 1; rc != 0; nth++) {
			struct sl_err err = {0};
			fault_arm(FAULT_ALLOC, nth, 1);
			rc = model_load_adapter(r.m, in_dir(name), &slot, &err);
			fault_disarm_all();
			if (rc != 0 && (rc != SL_ENOMEM || err.text[0] == '\0'))
				fail_msg("%d: %s", rc, err.text);
			n_failed += rc != 0;
		}
		assert_true(n_failed > 10);
		assert_int_equal(slot, 0);
		close_rig(&r);
	}
	drop_folder("peft");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_targets, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_mixtures, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_patterns, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_company, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
