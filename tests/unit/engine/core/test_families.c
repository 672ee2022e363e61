/* SPDX-License-Identifier: Apache-2.0
 *
 * Every family against an independent forward pass in double precision (tests/support/oracle.h) at
 * random weights: the relative error of F32 logits, and the error of log-probabilities, stay under 1e-4
 * on every backend, at rows before and beyond the window and an attention block. What is specific to a family is
 * written down once more, by hand (families.h). And bit for bit the same logits whatever the chunks and the threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "families.h"
#include "engine/kv/kv.h"
#include "engine/kv/kv_states.h"
#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "tests/support/backends.h"
#include "tests/support/part.h"
#include "tests/support/short_spins.h"

enum { N = 264, PAGE = 16, N_PAGES = (N + PAGE - 1) / PAGE };
static const int want[] = {0, 63, 64, 130, 255, 256, 263};
enum { N_WANT = sizeof want / sizeof *want };
enum { SOME = 131, N_WANT_SOME = 4 }; /* of the rows, and what is wanted of them */
#define TOLERANCE 1e-4

static int tokens[N];
static char folder[] = "/tmp/sluice-families-XXXXXX", path[sizeof folder + 16];

/* ---- the cases ---- */

/* Families that only combine the operations of others differ in no instruction set: SOME_SETS runs them on what this
 * machine would choose and, with THOROUGH, on the reference. */
enum where { EVERYWHERE, SOME_SETS };

struct family {
	const char *name, *shape;
	struct oracle (*describe)(struct model_arch *a);
	enum where where;
};

static const struct family cases[] = {
    {"llama 3", "tiny-llama", llama3, EVERYWHERE},
    {"mistral", "tiny-mistral", mistral, EVERYWHERE},
    {"linear", "tiny-mistral", linear, EVERYWHERE},
    {"yarn", "tiny-mistral", yarn, EVERYWHERE},
    {"qwen 2", "tiny-qwen2", qwen2, EVERYWHERE},
    {"qwen 3", "tiny-qwen3", qwen3, EVERYWHERE},
    {"phi 3", "tiny-phi3", phi3, EVERYWHERE},
    {"gemma 2", "tiny-gemma2", gemma2, EVERYWHERE},
    {"gemma 3", "tiny-gemma3", gemma3, EVERYWHERE},
    {"gemma 3, capped", "tiny-gemma3", gemma3_capped, EVERYWHERE},
    {"qwen 3, experts", "tiny-qwen3moe", qwen3moe, EVERYWHERE},
    {"gpt-oss", "tiny-gpt-oss", gpt_oss, EVERYWHERE},
    {"mixtral", "tiny-mixtral", mixtral, SOME_SETS},
    {"olmoe", "tiny-olmoe", olmoe, SOME_SETS},
    {"qwen 2, experts", "tiny-qwen2moe", qwen2moe, SOME_SETS},
    {"smollm 3", "tiny-smollm3", smollm3, SOME_SETS},
    {"granite", "tiny-granite", granite, SOME_SETS},
    {"granite, experts", "tiny-granitemoe", granitemoe, SOME_SETS},
    {"seed", "tiny-seed-oss", seed_oss, SOME_SETS},
    {"ernie 4.5", "tiny-ernie", ernie, SOME_SETS},
    {"glm 4", "tiny-glm4", glm4, SOME_SETS},
    {"glm 4.5", "tiny-glm4moe", glm4moe, SOME_SETS},
    {"olmo 2", "tiny-olmo2", olmo2, SOME_SETS},
    {"olmo 3", "tiny-olmo3", olmo3, SOME_SETS},
    {"command-r", "tiny-command-r", command_r, EVERYWHERE},
    {"cohere 2", "tiny-cohere2", cohere2, SOME_SETS},
    {"minimax-m2", "tiny-minimax-m2", minimax_m2, SOME_SETS},
    {"ministral 3", "tiny-mistral3", ministral3, EVERYWHERE},
    {"phi 3.5, experts", "tiny-phimoe", phimoe, SOME_SETS},
    {"falcon", "tiny-falcon", falcon, SOME_SETS},
    {"falcon 40b", "tiny-falcon-40b", falcon_40b, SOME_SETS},
    {"gpt-neox", "tiny-gptneox", gptneox, EVERYWHERE},
    {"gpt-neox, in turn", "tiny-gptneox-2", gptneox_in_turn, SOME_SETS},
    {"deepseek 2", "tiny-deepseek2", deepseek2, EVERYWHERE},
    {"deepseek 2, grouped", "tiny-deepseek2", deepseek2_grouped, EVERYWHERE},
    {"deepseek 3", "tiny-deepseek3", deepseek3, EVERYWHERE},
    {"deepseek, one expert", "tiny-deepseek3", deepseek_one, SOME_SETS},
    {"deepseek, all experts", "tiny-deepseek2", deepseek_all, SOME_SETS},
    {"lfm 2", "tiny-lfm2", lfm2, EVERYWHERE},
    {"lfm 2, odd", "tiny-lfm2-2", lfm2_odd, SOME_SETS},
    {"lfm 2, two positions", "tiny-lfm2-2", lfm2_two, SOME_SETS},
    {"lfm 2, experts", "tiny-lfm2moe", lfm2moe, SOME_SETS},
    {"qwen 3.5", "tiny-qwen3.5", qwen35, EVERYWHERE},
    {"qwen 3.5, odd", "tiny-qwen3.5-2", qwen35_odd, SOME_SETS},
    {"qwen 3.5, experts", "tiny-qwen3.5moe", qwen35moe, SOME_SETS},
    {"qwen 3 next", "tiny-qwen3next", qwen3next, SOME_SETS},
    {"granite 4", "tiny-granite4", granite4, EVERYWHERE},
    {"granite 4, odd", "tiny-granite4-2", granite4_odd, SOME_SETS},
    {"granite 4, experts", "tiny-granite4moe", granite4moe, SOME_SETS},
    {"nemotron-h", "tiny-nemotron-h", nemotron_h, SOME_SETS},
    {"nemotron-h, odd", "tiny-nemotron-h-2", nemotron_h_odd, SOME_SETS},
    {"nemotron 3", "tiny-nemotron3", nemotron3, SOME_SETS},
    {"nemotron 3, latent experts", "tiny-nemotron3-2", nemotron3_latent, SOME_SETS},
    {"llama 4", "tiny-llama4", llama4, EVERYWHERE},
    {"one expert", "tiny-mixtral", one_expert, SOME_SETS},
    {"all experts", "tiny-olmoe", all_experts, SOME_SETS},
};
enum { N_FIRST = sizeof cases / sizeof *cases };

/* Second shapes, of odd sizes: the numbers that are 0 stay those of the first. */
struct odd_shape {
	int heads, kv;
	int window;
	int n, used; /* experts */
};

static const struct {
	struct family family;
	struct odd_shape odd;
} seconds[] = {
    {{"qwen 2, odd", "tiny-qwen2", qwen2, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"qwen 3, odd", "tiny-qwen3", qwen3, SOME_SETS}, {5, 5, 0, 0, 0}},
    {{"phi 3, odd", "tiny-phi3", phi3, SOME_SETS}, {2, 2, 11, 0, 0}},
    {{"gemma 2, odd", "tiny-gemma2", gemma2, SOME_SETS}, {3, 3, 7, 0, 0}},
    {{"gemma 3, odd", "tiny-gemma3", gemma3, SOME_SETS}, {2, 2, 5, 0, 0}},
    {{"qwen 3, one expert", "tiny-qwen3moe", qwen3moe, SOME_SETS}, {3, 1, 0, 1, 1}},
    {{"gpt-oss, all experts", "tiny-gpt-oss", gpt_oss, SOME_SETS}, {3, 1, 9, 5, 5}},
    {{"qwen 2, all experts", "tiny-qwen2moe", qwen2moe, SOME_SETS}, {6, 2, 0, 3, 3}},
    {{"smollm 3, odd", "tiny-smollm3", smollm3, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"granite, odd", "tiny-granite", granite, SOME_SETS}, {6, 3, 0, 0, 0}},
    {{"granite, all experts", "tiny-granitemoe", granitemoe, SOME_SETS}, {3, 3, 0, 3, 3}},
    {{"seed, odd", "tiny-seed-oss", seed_oss, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"ernie 4.5, odd", "tiny-ernie", ernie, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"glm 4, odd", "tiny-glm4", glm4, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"glm 4.5, odd", "tiny-glm4moe", glm4moe, SOME_SETS}, {3, 1, 0, 9, 1}},
    {{"command-r, odd", "tiny-command-r", command_r, SOME_SETS}, {3, 3, 0, 0, 0}},
    {{"cohere 2, odd", "tiny-cohere2", cohere2, SOME_SETS}, {3, 3, 40, 0, 0}},
    {{"minimax-m2, all experts", "tiny-minimax-m2", minimax_m2, SOME_SETS}, {3, 1, 0, 3, 3}},
    {{"ministral 3, odd", "tiny-mistral3", ministral3, SOME_SETS}, {3, 1, 0, 0, 0}},
    {{"phi 3.5, two experts", "tiny-phimoe", phimoe, SOME_SETS}, {3, 1, 0, 2, 2}},
};
enum { N_CASES = N_FIRST + sizeof seconds / sizeof *seconds };

static const struct family *family_at(size_t c) { return c < N_FIRST ? &cases[c] : &seconds[c - N_FIRST].family; }

/* Widths that no block and hardly a vector divides. Heads keep theirs where a scaling of the rotary embedding was
 * computed for it. */
static struct oracle odd_sizes(const struct odd_shape *odd, struct oracle m, struct model_arch *a)
{
	enum { FF = 75, FF_EXPERT = 53, HEAD = 30, TURNED = 14 };
	bool scaled_scores = fabs(m.score_scale * sqrt(m.head_dim) - 1) > 1e-9;
	bool plain_rope = a->rope.scaling == ARCH_ROPE_PLAIN;
	a->n_heads = m.n_heads = odd->heads;
	a->n_kv_heads = m.n_kv = odd->kv;
	a->n_embd = m.n_embd = odd->heads * (plain_rope ? HEAD : m.head_dim);
	a->n_ff = m.n_ff = odd->n > 0 && m.n_dense == 0 ? FF_EXPERT : FF;
	if (m.gelu)
		a->embed_scale = (float)(m.embed_scale = sqrt(m.n_embd));
	if (odd->window > 0)
		a->window = m.window = odd->window;
	if (plain_rope) {
		a->head_dim = m.head_dim = HEAD;
		a->rope.n_rot = a->rope_windowed.n_rot = m.turned = m.turned > 0 ? TURNED : HEAD;
		plain(plain_freq, m.turned, a->rope.base);
		if (!scaled_scores)
			a->attn_scale = (float)(m.score_scale = 1 / sqrt(HEAD));
	}
	if (odd->n == 0)
		return m;
	a->experts.n = m.n_experts = odd->n;
	a->experts.n_used = m.n_used = odd->used;
	a->experts.n_ff = m.n_ff_expert = FF_EXPERT;
	if (m.n_ff_shared > 0) /* GLM's shared experts are as wide as the others */
		a->experts.n_ff_shared = m.n_ff_shared = m.sigmoid ? 2 * FF_EXPERT : FF;
	return m;
}

/* What these have of their own are products of weights that are not F32 (test_weight_types.c); the weights here are,
 * and go through the loops of cpu-avx2 and cpu-avx512. */
static bool repeats(const char *name)
{
	static const char *const others[] = {"cpu-avx2-int8", "cpu-vnni", "cpu-amx", "cpu-amx-int8"};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (strcmp(name, others[i]) == 0)
			return true;
	return false;
}

static bool runs_on(enum where where, const char *name)
{
	struct sl_err err;
	const struct kn_ops *chosen = kn_select("auto", &err);
	if (strcmp(name, chosen->name) == 0)
		return true;
	if (strcmp(name, "cpu-ref") == 0)
		return where == EVERYWHERE || getenv("THOROUGH") != NULL;
	return where == EVERYWHERE && !repeats(name);
}

/* ---- running the engine's own ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	struct kv_states *states;
	int32_t pages[N_PAGES];
};

/* False: a named backend lacks what the family has. Those that are built in lack nothing. */
static bool bench_open(struct bench *x, const struct kn_ops *ops, int n_threads)
{
	struct sl_err err = {0};
	struct kn_config kc = {.n_threads = n_threads, .max_rows = N, .max_width = 1024};
	short_spins();
	x->ops = ops;
	assert_int_equal(ops->open(&kc, &x->b, &err), 0);
	int rc = model_load(path, ops, x->b, N, 0, &x->m, &err);
	if (rc == SL_EUNSUPPORTED && named_backend() != NULL) {
		print_message("%s\n", err.text);
		ops->close(x->b);
		return false;
	}
	if (rc != 0)
		fail_msg("%s", err.text);
	const struct model_arch *a = &model_info(x->m)->arch;
	struct kn_kv layout = model_kv_layout(a, KN_F32, PAGE, a->n_layers);
	layout.n_pages = 2 * N_PAGES;
	assert_int_equal(kv_pool_make(ops, x->b, &layout, &x->pool, &err), 0);
	/* What stands in pages that were not written must not matter. */
	const struct kn_kv *kv = kv_pool_layout(x->pool);
	size_t n = (size_t)(2 * N_PAGES) * kv_layout_bytes(kv) / 2 / sizeof(float);
	for (size_t i = 0; i < n; i++)
		((float *)kv->k)[i] = ((float *)kv->v)[i] = NAN;
	/* Nor what a state was before. */
	float *dirty = NULL;
	x->states = NULL;
	if (arch_is_recurrent(a)) {
		struct kn_step s = {0};
		assert_int_equal(kv_states_create(ops, x->b, arch_state(a), 1, 0, &x->states, &err), 0);
		kv_states_in_step(x->states, &s);
		dirty = s.states;
	}
	for (size_t i = 0; i < arch_state(a); i++)
		dirty[i] = NAN;
	for (int i = 0; i < N_PAGES; i++)
		x->pages[i] = (i * 7 + 3) % (2 * N_PAGES);
	return true;
}

static void bench_close(struct bench *x)
{
	kv_states_destroy(x->states);
	kv_pool_destroy(x->pool);
	model_free(x->m);
	x->ops->close(x->b);
}

/* The first `end` rows of the text, in chunks up to row `single` and then one by one; logits [N_WANT][VOCAB], of which
 * it writes the first: their number. */
static int forward(struct bench *x, int end, int chunk, int single, float *logits)
{
	int32_t token[N], pos[N], seq[N] = {0};
	int done = 0;
	for (int from = 0, n; from < end; from += n) {
		int most = from < single ? chunk : 1, n_want = 0;
		n = from + most < end ? most : end - from;
		int32_t rows[N_WANT];
		for (int i = 0; i < n; i++) {
			token[i] = tokens[from + i];
			pos[i] = from + i;
		}
		while (done + n_want < N_WANT && want[done + n_want] < from + n) {
			rows[n_want] = want[done + n_want] - from;
			n_want++;
		}
		struct kn_step s = {.n_rows = n,
				    .row_token = token,
				    .row_pos = pos,
				    .row_seq = seq,
				    .n_seqs = 1,
				    .page_table = x->pages,
				    .max_pages = N_PAGES};
		kv_states_in_step(x->states, &s);
		assert_int_equal(
		    model_forward(x->m, &s, kv_pool_layout(x->pool), rows, n_want, logits + (size_t)done * VOCAB), 0);
		done += n_want;
	}
	return done;
}

static double relative_error(const float *got, const double *expected)
{
	double diff = 0, size = 0;
	for (int i = 0; i < VOCAB; i++) {
		diff = fmax(diff, fabs((double)got[i] - expected[i]));
		size = fmax(size, fabs(expected[i]));
		assert_true(isfinite(got[i]));
	}
	return diff / size;
}

/* What becomes of logits: log-probabilities, in nats. */
static double log_sum(const double *logits)
{
	double sum = 0, most = logits[0];
	for (int i = 0; i < VOCAB; i++)
		most = fmax(most, logits[i]);
	for (int i = 0; i < VOCAB; i++)
		sum += exp(logits[i] - most);
	return most + log(sum);
}

static double logprob_error(const double *got, const double *expected)
{
	double diff = 0, off = log_sum(got) - log_sum(expected);
	for (int i = 0; i < VOCAB; i++)
		diff = fmax(diff, fabs(got[i] - expected[i] - off));
	return diff;
}

static double logprob_error_f32(const float *got, const double *expected)
{
	double wide[VOCAB];
	for (int i = 0; i < VOCAB; i++)
		wide[i] = (double)got[i];
	return logprob_error(wide, expected);
}

/* The case's file, written once, and its oracle. */
static void write_model(size_t c, struct oracle *m)
{
	struct sl_err err = {0};
	struct convert_progress p = {0};
	struct random_model r = {.path = path, .name = "random", .seed = 11, .n_threads = 2};
	snprintf(path, sizeof path, "%s/%zu", folder, c);
	assert_int_equal(random_shape_find(family_at(c)->shape, &r.arch, &err), 0);
	*m = family_at(c)->describe(&r.arch);
	if (c >= N_FIRST)
		*m = odd_sizes(&seconds[c - N_FIRST].odd, *m, &r.arch);
	if (access(path, F_OK) == 0)
		return;
	if (weight_plan_parse("f32", &r.plan, &err) != 0 || random_model_write(&r, &p, &err) != 0)
		fail_msg("%s", err.text);
}

/* Against the oracle. */
static void compare(const struct family *c, const char *backend, int n_want, const float *logits,
		    const double *expected)
{
	double worst = 0, worst_nats = 0;
	for (int w = 0; w < n_want; w++) {
		worst = fmax(worst, relative_error(logits + w * VOCAB, expected + w * VOCAB));
		worst_nats = fmax(worst_nats, logprob_error_f32(logits + w * VOCAB, expected + w * VOCAB));
	}
	print_message("%s on %s: relative error %.2g, of log-probabilities %.2g\n", c->name, backend, worst,
		      worst_nats);
	if (!(worst < TOLERANCE && worst_nats < TOLERANCE))
		fail_msg("%s on %s: relative error %g, of log-probabilities %g", c->name, backend, worst, worst_nats);
}

/* n rows in chunks of another size and row by row: one way up to a row and then the other; with THOROUGH each all the
 * way. */
static void other_chunks(struct bench *x, int n, int n_want, const float *logits)
{
	const struct {
		int chunk, single;
	} some[] = {{37, n * 7 / 10}}, all[] = {{37, n}, {1, n}};
	static float again[N_WANT * VOCAB];
	bool thorough = getenv("THOROUGH") != NULL;
	for (size_t i = 0; i < (thorough ? sizeof all / sizeof *all : sizeof some / sizeof *some); i++) {
		assert_int_equal(
		    forward(x, n, (thorough ? all : some)[i].chunk, (thorough ? all : some)[i].single, again), n_want);
		assert_memory_equal(again, logits, (size_t)n_want * VOCAB * sizeof *again);
	}
}

/* The first n rows. */
static void family_on(const struct family *c, const struct kn_ops *ops, int n, const double *expected)
{
	static float logits[N_WANT * VOCAB], again[N_WANT * VOCAB];
	bool reference = strcmp(ops->name, "cpu-ref") == 0;
	struct bench x;
	if (!bench_open(&x, ops, 1))
		return;
	int n_want = forward(&x, n, N, N, logits);
	assert_int_equal(n_want, n == N ? N_WANT : N_WANT_SOME);
	compare(c, ops->name, n_want, logits, expected);
	if (!reference)
		other_chunks(&x, n, n_want, logits);
	bench_close(&x);
	if (reference || !bench_open(&x, ops, 2))
		return;
	assert_int_equal(forward(&x, n, 64, N, again), n_want);
	assert_memory_equal(again, logits, (size_t)n_want * VOCAB * sizeof *logits);
	bench_close(&x);
}

/* The reference, which is slow, computes the rows before an attention block's end, and so do families that only combine
 * the operations of others, in their first shapes; with THOROUGH all. */
static int rows_of(size_t c, const char *backend)
{
	bool combines = c < N_FIRST && family_at(c)->where == SOME_SETS;
	return combines || strcmp(backend, "cpu-ref") == 0 ? some_of(SOME, N) : N;
}

static void test_families(void **state)
{
	(void)state;
	static double expected[N_WANT * VOCAB];
	for (size_t c = 0; c < N_CASES; c++) {
		struct oracle m;
		struct model_file *f;
		struct sl_err err = {0};
		write_model(c, &m);
		assert_int_equal(model_file_open(path, &f, &err), 0);
		const int n = rows_of(c, "");
		oracle_logits(&m, f, tokens, n, want, n == N ? N_WANT : N_WANT_SOME, expected);
		model_file_close(f);
		for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++)
			if (runs_on(family_at(c)->where, (*o)->name))
				family_on(family_at(c), *o, rows_of(c, (*o)->name), expected);
	}
}

enum { N_NUMBERS = 29 };

/* m with another value in one of its numbers; false: it has no such one. */
static bool off_by(int what, const struct oracle *m, struct oracle *off)
{
	static double faster[64];
	*off = *m;
	for (int i = 0; i < 64; i++)
		faster[i] = plain_freq[i] * 1.1;
	if (what == 0 && !m->ssm)
		off->freq = faster;
	else if (what == 1 && m->window > 0)
		off->window = m->window / 2;
	else if (what == 2 && m->score_cap > 0)
		off->score_cap = 1;
	else if (what == 3 && m->logit_cap > 0)
		off->logit_cap = 0;
	else if (what == 4 && m->magnitude != 1)
		off->magnitude = 1;
	else if (what == 5 && !m->ssm)
		off->halves = !m->halves;
	else if (what == 6 && m->n_used < m->n_experts)
		off->n_used = m->n_used + 1;
	else if (what == 7 && m->n_used < m->n_experts && m->close <= 0 && !m->weighs_input)
		off->normed_weights = !m->normed_weights;
	else if (what == 8 && m->n_ff_shared > 0)
		off->n_ff_shared = 0;
	else if (what == 9 && m->still_every > 0)
		off->still_every = 0;
	else if (what == 10 && m->half_scale > 0)
		off->half_scale = 1;
	else if (what == 11 && m->logit_scale > 0)
		off->logit_scale = 1;
	else if (what == 12 && m->sigmoid && m->weight_scale != 1)
		off->weight_scale = 1;
	else if (what == 13 && m->grow > 0)
		off->grow = 0;
	else if (what == 14 && m->still_full)
		off->still_full = false;
	else if (what == 15 && m->mean)
		off->mean = false;
	else if (what == 16 && m->norm_bias)
		off->norm_bias = false;
	else if (what == 17 && m->head_bias)
		off->head_bias = false;
	else if (what == 18 && m->ff_bias)
		off->ff_bias = false;
	else if (what == 19 && m->close > 0)
		off->close = 0;
	else if (what == 20 && m->ungated && !m->square)
		off->gelu = true;
	else if (what == 21 && m->recurrent > 0)
		off->conv = m->conv - 1;
	else if (what == 27 && m->ssm)
		off->most = 0.3;
	else if (what == 28 && m->square)
		off->square = false;
	else if (what == 22 && m->v_heads > m->k_heads && !m->ssm)
		off->tiled = !m->tiled;
	else if (what == 23 && m->chunked)
		off->chunked = false;
	else if (what == 24 && m->plain_norms)
		off->plain_norms = false;
	else if (what == 25 && m->weighs_input)
		off->weighs_input = false;
	else if (what == 26 && m->still_grow > 0)
		off->still_grow_every = 16;
	else
		return false;
	return true;
}

/* The weights are such that what is special about a family shows: an oracle that is off in one of its
 * numbers is far off in the logits. Of the families that have it the first and every third one; with THOROUGH all. */
static void every_number_counts(void **state)
{
	(void)state;
	int n_have[N_NUMBERS] = {0};
	static double expected[VOCAB], other[VOCAB];
	enum { FEW = 24, BEYOND = 72 }; /* beyond half of every window, a chunk, and where queries first grow */
	for (size_t c = 0; c < N_FIRST; c++) {
		struct oracle m, off;
		struct model_file *f;
		struct sl_err err = {0};
		write_model(c, &m);
		assert_int_equal(model_file_open(path, &f, &err), 0);
		const int n = m.window > 0 || m.grow > 0 ? BEYOND : FEW, last = n - 1;
		oracle_logits(&m, f, tokens, n, &last, 1, expected);
		for (int what = 0; what < N_NUMBERS; what++) {
			if (!off_by(what, &m, &off) || n_have[what]++ % some_of(3, 1) != 0)
				continue;
			oracle_logits(&off, f, tokens, n, &last, 1, other);
			double diff = 0, size = 0;
			for (int i = 0; i < VOCAB; i++) {
				diff = fmax(diff, fabs(other[i] - expected[i]));
				size = fmax(size, fabs(expected[i]));
			}
			/* The two forms of GELU are closer than any other two numbers here. */
			if (what == 20 ? logprob_error(other, expected) < 2 * TOLERANCE : diff / size < 2 * TOLERANCE)
				fail_msg("%s: number %d changes the logits by %g only", cases[c].name, what,
					 diff / size);
		}
		model_file_close(f);
	}
}

static int setup(void **state)
{
	(void)state;
	uint64_t x = 5;
	for (int i = 0; i < N; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		tokens[i] = (int)((x >> 33) % VOCAB);
	}
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t c = 0; c < N_CASES; c++) {
		snprintf(path, sizeof path, "%s/%zu", folder, c);
		unlink(path);
	}
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(every_number_counts)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
