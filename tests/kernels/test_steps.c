/* SPDX-License-Identifier: Apache-2.0
 *
 * What the steps of a whole model cost beside arithmetic, in the emulation: launches, copies, allocations, captures,
 * comparisons. The model has the operations of an 8B one and is narrow: none of these figures depends on a width. It
 * has all of its layers with THOROUGH, else a few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "engine/adapter/adapter_make.h"
#include "engine/model/adapters.h"
#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"
#include "tests/standin/standin_api.h"

enum {
	LAYERS = 32, /* Llama 3.1 8B's */
	FEW_LAYERS = 4,
	NARROW = 64,
	BLOCK = 256, /* of a type that packs so many numbers */
	HEADS = 4,
	KV_HEADS = 2,
	DIM = 16,
	PAGE = 16,
	MOST = 16,
	MAX_PAGES = 264, /* beyond what attention's own blocks merge (attention.cu) */
	N_PAGES = MAX_PAGES + MOST,
	STEADY = 2,
	EXPERTS = 5,
	USED = 2,
};

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct model *m;
	struct kn_kv kv;
	int32_t token[MOST], pos[MOST], seq[MOST], from[MOST], table[MOST * MAX_PAGES], want[MOST], slot[MOST];
	bool adapted; /* slot counts */
	struct kn_draw draws[MOST];
	struct kn_drawn drawn[MOST];
	bool taken[MOST];
	float *logits;
};

static char path[PATH_MAX + 64];

static int layers_of(int whole) { return getenv("THOROUGH") != NULL ? whole : FEW_LAYERS; }

/* width: of the stream and the feed-forward half. */
static void write_shape(const char *shape, const char *plan, int width)
{
	struct random_model r = {.path = path, .name = "deep", .seed = 3};
	struct sl_err err = {0};
	assert_int_equal(random_shape_find(shape, &r.arch, &err), 0);
	assert_int_equal(weight_plan_parse(plan, &r.plan, &err), 0);
	r.arch.n_layers = layers_of(r.arch.n_layers);
	r.arch.n_embd = r.arch.n_ff = width;
	r.arch.n_heads = HEADS;
	r.arch.n_kv_heads = KV_HEADS;
	r.arch.head_dim = r.arch.rope.n_rot = DIM;
	r.arch.attn_scale = 0.2f;
	r.arch.n_vocab = RANDOM_LEAST_VOCAB + 20;
	if (r.arch.experts.n > 0) {
		r.arch.experts.n = EXPERTS;
		r.arch.experts.n_used = USED;
		r.arch.experts.n_ff = width;
	}
	if (random_model_write(&r, NULL, &err) != 0)
		fail_msg("%s", err.text);
}

static void write_model(const char *plan, int width) { write_shape("llama-3.1-8b", plan, width); }

static void open_rig(struct rig *r)
{
	struct kn_config cfg = {.max_rows = MOST, .max_width = 1024, .pad_rows = true};
	struct sl_err err = {0};
	*r = (struct rig){.o = open_cuda()};
	assert_int_equal(r->o->open(&cfg, &r->b, &err), 0);
	if (model_load(path, r->o, r->b, MOST, 0, &r->m, &err) != 0)
		fail_msg("%s", err.text);
	r->kv = (struct kn_kv){.type = KN_F16,
			       .n_pages = N_PAGES,
			       .page_tokens = PAGE,
			       .n_layers = model_info(r->m)->arch.n_layers,
			       .n_kv_heads = KV_HEADS,
			       .head_dim = DIM};
	size_t bytes = kn_kv_page_bytes(&r->kv) * N_PAGES;
	assert_int_equal(r->o->mem_alloc(r->b, bytes, &r->kv.k), 0);
	assert_int_equal(r->o->mem_alloc(r->b, bytes, &r->kv.v), 0);
	r->logits = calloc((size_t)MOST * (size_t)model_info(r->m)->arch.n_vocab, sizeof *r->logits);
	assert_non_null(r->logits);
	for (int i = 0; i < MOST; i++) {
		r->draws[i] = (struct kn_draw){.row = i, .temperature = 0.8f, .top_p = 0.9f, .key = (uint64_t)i};
		r->taken[i] = true;
		r->want[i] = i;
	}
}

static void close_rig(struct rig *r)
{
	r->o->mem_free(r->b, r->kv.k);
	r->o->mem_free(r->b, r->kv.v);
	model_free(r->m);
	r->o->close(r->b);
	free(r->logits);
}

/* A decode of n sequences at a position: all but their last pages are common. */
static struct kn_step decode(struct rig *r, int n, int pos)
{
	for (int i = 0; i < n; i++) {
		r->token[i] = 7 + i;
		r->pos[i] = pos;
		r->seq[i] = i;
		for (int p = 0; p < MAX_PAGES; p++)
			r->table[i * MAX_PAGES + p] = p < pos / PAGE ? p : MAX_PAGES + i;
	}
	return (struct kn_step){.n_rows = n,
				.row_token = r->token,
				.row_pos = r->pos,
				.row_seq = r->seq,
				.n_seqs = n,
				.page_table = r->table,
				.max_pages = MAX_PAGES,
				.row_adapter = r->adapted ? r->slot : NULL};
}

static void run(struct rig *r, int n, int pos)
{
	struct kn_step s = decode(r, n, pos);
	struct model_draws draws = {.draws = r->draws, .n = n, .drawn = r->drawn, .taken = r->taken};
	assert_int_equal(model_forward_draw(r->m, &s, &r->kv, r->want, n, r->logits, &draws), 0);
}

static struct kn_stats stats_of(const struct rig *r)
{
	struct kn_stats s;
	r->o->stats(r->b, &s);
	return s;
}

/* Kernels that the stand-in for CUDA's runtime was given, alone and as nodes of graphs; 0 elsewhere. */
static uint64_t given(void)
{
	struct standin_counts c = {0};
	void (*count)(struct standin_counts *);
	void *symbol = backend_function(cuda_path(), "sluice_standin_counts");
	if (symbol != NULL) {
		memcpy(&count, &symbol, sizeof count);
		count(&c);
	}
	return c.launches + c.graph_nodes;
}

/* Steady decodes of n sequences from a position on; how many launches each has. */
static int steady(struct rig *r, int n, int pos)
{
	for (int i = 0; i < 3; i++)
		run(r, n, pos + i);
	struct kn_stats before = stats_of(r);
	uint64_t were_given = given();
	for (int i = 0; i < STEADY; i++)
		run(r, n, pos + 3 + i);
	struct kn_stats after = stats_of(r);
	int launches = (int)(after.launches - before.launches);
	assert_int_equal(launches % STEADY, 0);
	if (given() > 0)
		assert_int_equal(given() - were_given, launches);
	assert_int_equal(after.graph_hits - before.graph_hits, STEADY);
	assert_int_equal(after.graph_captures, before.graph_captures);
	assert_int_equal(after.graph_compares - before.graph_compares, STEADY);
	assert_int_equal(after.transfers, before.transfers);
	assert_int_equal(after.allocations, before.allocations);
	return launches / STEADY;
}

enum { ALONE = 13, TOGETHER = 12 }; /* outside of the layers */

/* One sequence, near its beginning, after several blocks of positions, whose parts attention merges itself, and far on,
 * where a kernel merges them (for float16 activations it always does); and several sequences, for which one block would
 * take too long over what follows a product. Half of the layers of q4_k_m have values in a type of their own, and so
 * three products instead of one. The sources name these figures (matvec.cu, attention.cu, rows.cu, device_cuda.cu). */
static void test_launches(void **arg)
{
	(void)arg;
	static const struct {
		const char *plan;
		int width, alone, far, together; /* in each layer */
	} cases[] = {{"bf16", NARROW, 5, 6, 7}, {"q4_k_m", BLOCK, 7, 7, 0}};
	const int layers = layers_of(LAYERS);
	for (int i = 0; i < N(cases); i++) {
		struct rig r;
		write_model(cases[i].plan, cases[i].width);
		open_rig(&r);
		int near = steady(&r, 1, 40), on = steady(&r, 1, 600), far = steady(&r, 1, 4200);
		print_message("%s, 8B: %d launches a step, %d further on, %d far on\n", cases[i].plan, near, on, far);
		assert_int_equal(near, ALONE + cases[i].alone * layers);
		assert_int_equal(on, near);
		assert_int_equal(far, ALONE + cases[i].far * layers);
		if (cases[i].together > 0)
			assert_int_equal(steady(&r, 8, 600), TOGETHER + cases[i].together * layers);
		close_rig(&r);
	}
	unlink(path);
}

/* ---- layers of other kinds ---- */

enum { KIND_LAYERS = 8, KIND_PAGES = 4, KIND_SLOTS = MOST, EVERYONE = 3 /* of whom one pads the step */ };

/* A narrow model of that shape: its layers and their heads. */
static void write_kind(const char *shape)
{
	struct random_model r = {.path = path, .name = "kind", .seed = 3};
	struct sl_err err = {0};
	struct model_arch *a = &r.arch;
	assert_int_equal(random_shape_find(shape, a, &err), 0);
	assert_int_equal(weight_plan_parse("bf16", &r.plan, &err), 0);
	assert_true(a->n_layers <= KIND_LAYERS);
	a->n_embd = a->n_ff = NARROW;
	a->experts.n = 0;
	if (random_model_write(&r, NULL, &err) != 0)
		fail_msg("%s", err.text);
}

/* Steady decodes of three sequences, each with a page and a state of its own; how many launches each has. */
static int launches_of_kind(void)
{
	struct kn_config cfg = {.max_rows = MOST, .max_width = 1024, .pad_rows = true};
	struct sl_err err = {0};
	struct rig r = {.o = open_cuda()};
	assert_int_equal(r.o->open(&cfg, &r.b, &err), 0);
	if (model_load(path, r.o, r.b, MOST, 0, &r.m, &err) != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(r.m)->arch;
	size_t floats = arch_state(a);
	int32_t slots[KIND_SLOTS];
	void *states;
	r.kv = model_kv_layout(a, KN_F16, PAGE, a->n_layers);
	r.kv.n_pages = KIND_PAGES;
	size_t bytes = kn_kv_page_bytes(&r.kv) * KIND_PAGES;
	assert_int_equal(r.o->mem_alloc(r.b, bytes, &r.kv.k), 0);
	assert_int_equal(r.o->mem_alloc(r.b, bytes, &r.kv.v), 0);
	assert_int_equal(r.o->mem_alloc(r.b, (floats + 1) * KIND_SLOTS * sizeof(float), &states), 0);
	r.logits = calloc((size_t)MOST * (size_t)a->n_vocab, sizeof *r.logits);
	struct kn_stats before = {0}, after = {0};
	for (int k = 0; k < 3 + STEADY; k++) {
		for (int i = 0; i < EVERYONE; i++) {
			r.token[i] = 7 + i;
			r.pos[i] = k;
			r.seq[i] = r.table[i] = r.want[i] = i;
			slots[i] = (i + k) % KIND_SLOTS; /* in device memory, like all that differs */
			r.draws[i] = (struct kn_draw){.row = i, .temperature = 0.8f, .top_p = 0.9f, .key = (uint64_t)i};
			r.taken[i] = true;
		}
		struct kn_step s = {.n_rows = EVERYONE,
				    .row_token = r.token,
				    .row_pos = r.pos,
				    .row_seq = r.seq,
				    .n_seqs = EVERYONE,
				    .page_table = r.table,
				    .max_pages = 1,
				    .states = states,
				    .state_floats = floats,
				    .state_of = slots};
		struct model_draws draws = {.draws = r.draws, .n = EVERYONE, .drawn = r.drawn, .taken = r.taken};
		if (k == 3)
			before = stats_of(&r);
		assert_int_equal(model_forward_draw(r.m, &s, &r.kv, r.want, EVERYONE, r.logits, &draws), 0);
	}
	after = stats_of(&r);
	assert_int_equal(after.graph_hits - before.graph_hits, STEADY);
	assert_int_equal(after.transfers, before.transfers);
	assert_int_equal(after.allocations, before.allocations);
	r.o->mem_free(r.b, states);
	close_rig(&r);
	return (int)(after.launches - before.launches) / STEADY;
}

/* A convolution, a rule or a state space is one launch each, and the products of all heads are two. */
static void test_kinds(void **arg)
{
	(void)arg;
	static const struct {
		const char *shape;
		int launches;
	} cases[] = {{"tiny-lfm2", 45}, {"tiny-qwen3.5", 70}, {"tiny-granite4", 68}, {"tiny-deepseek2", 40}};
	for (int i = 0; i < N(cases); i++) {
		write_kind(cases[i].shape);
		int n = launches_of_kind();
		print_message("%s: %d launches a step\n", cases[i].shape, n);
		assert_int_equal(n, cases[i].launches);
	}
}

/* Mixtures of experts: the same launches whatever experts the rows choose, so each step is a graph that was there. */
static void test_experts(void **arg)
{
	(void)arg;
	static const struct {
		const char *shape, *plan;
		int layers, width, other, alone, together; /* outside of the layers; in each */
	} cases[] = {{"olmoe-1b-7b", "bf16", 16, NARROW, 12, 15, 16}, {"gpt-oss-20b", "q8_0", 24, NARROW, 13, 16, 0}};
	for (int i = 0; i < N(cases); i++) {
		struct rig r;
		write_shape(cases[i].shape, cases[i].plan, cases[i].width);
		open_rig(&r);
		const int layers = layers_of(cases[i].layers);
		assert_int_equal(model_info(r.m)->arch.n_layers, layers);
		int alone = steady(&r, 1, 40);
		print_message("%s: %d launches a step\n", cases[i].shape, alone);
		assert_int_equal(alone, cases[i].other + cases[i].alone * layers);
		if (cases[i].together > 0)
			assert_int_equal(steady(&r, 3, 40), cases[i].other + cases[i].together * layers);
		close_rig(&r);
	}
}

/* ---- adapters ---- */

/* short_of: how many allocations on the device until one fails, of what an adapter needs; 0: none does. */
static void load_adapter(struct rig *r, int rank, int short_of, int *slot)
{
	char file[PATH_MAX + 96];
	struct sl_err err = {0};
	snprintf(file, sizeof file, "%s.adapter.gguf", path);
	struct adapter_make m = {.base = path, .out = file, .type = KN_BF16, .seed = (uint64_t)rank, .replace = true};
	for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
		m.ranks[t] = rank;
		m.alphas[t] = 2 * rank;
	}
	if (adapter_make(&m, &err) != 0)
		fail_msg("%s", err.text);
	for (int nth = 1; nth <= short_of; nth++) {
		assert_true(call_backend(cuda_path(), "sluice_emulation_no_memory", nth));
		assert_int_equal(model_load_adapter(r->m, file, slot, &err), SL_ENOMEM);
		assert_non_null(strstr(err.text, nth == 1 ? "adapters" : "bytes on the device"));
	}
	if (model_load_adapter(r->m, file, slot, &err) != 0)
		fail_msg("%s", err.text);
	unlink(file);
}

/* What a step's rows have changes from step to step; the commands don't. */
static void mixtures(struct rig *r, int n, int pos, const int *slots, int n_slots)
{
	struct kn_stats before = stats_of(r);
	enum { STEPS = 3 };
	for (int i = 0; i < STEPS; i++) {
		for (int k = 0; k < n; k++)
			r->slot[k] = (k + i) % (n_slots + 1) < n_slots ? slots[(k * (i + 1) + i) % n_slots] : -1;
		r->slot[0] = slots[i % n_slots];
		run(r, n, pos + i);
	}
	struct kn_stats after = stats_of(r);
	assert_int_equal(after.graph_hits - before.graph_hits, STEPS);
	assert_int_equal(after.graph_captures, before.graph_captures);
	assert_int_equal(after.transfers, before.transfers);
	assert_int_equal(after.allocations, before.allocations);
}

/* Adapters of all seven matrices of each layer. Up to eight rows they are one launch more for each of the four
 * products: what their products add, and what follows these, stays in theirs. More rows take two each. */
static void test_adapters(void **arg)
{
	(void)arg;
	struct rig r;
	int slots[3];
	write_model("bf16", NARROW);
	open_rig(&r);
	load_adapter(&r, 3, 0, &slots[0]);
	load_adapter(&r, 4, on_device() || on_standin() ? 0 : 2, &slots[1]); /* room for t, then its own memory */
	r.adapted = true;
	for (int i = 0; i < MOST; i++)
		r.slot[i] = slots[i % 2];
	int one = steady(&r, 1, 40), few = steady(&r, 8, 600);
	print_message("bf16, 8B, adapters: %d launches a step, %d of 8 rows\n", one, few);
	assert_int_equal(one, ALONE + (5 + 4) * layers_of(LAYERS));
	assert_int_equal(few, TOGETHER + (7 + 4) * layers_of(LAYERS));
	mixtures(&r, 8, 602, slots, 2);
	/* Another one in the place of one that was there: memory was freed, so graphs were dropped. */
	model_remove_adapter(r.m, slots[0]);
	load_adapter(&r, 2, 0, &slots[2]);
	assert_int_equal(slots[2], slots[0]);
	run(&r, 8, 601);
	run(&r, 8, 602);
	mixtures(&r, 8, 602, slots, 2);
	close_rig(&r);
	unlink(path);
}

/* A list that the device refuses to capture is not tried again. */
static void test_refused(void **arg)
{
	(void)arg;
	struct rig r;
	write_model("bf16", NARROW);
	open_rig(&r);
	run(&r, 2, 40); /* memory grows */
	assert_true(call_backend(cuda_path(), "sluice_device_no_graphs", 1));
	for (int i = 0; i < 4; i++)
		run(&r, 2, 41 + i);
	struct kn_stats s = stats_of(&r);
	assert_true(call_backend(cuda_path(), "sluice_device_no_graphs", 0));
	assert_int_equal(s.graph_refusals, 1);
	assert_int_equal(s.graph_captures + s.graph_hits, 0);
	run(&r, 2, 50);
	assert_int_equal(stats_of(&r).graph_captures, 0);
	close_rig(&r);
	unlink(path);
}

int main(void)
{
	snprintf(path, sizeof path, "%s", beside("test_steps.gguf"));
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_launches), cmocka_unit_test(test_kinds),   cmocka_unit_test(test_experts),
	    cmocka_unit_test(test_adapters), cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
