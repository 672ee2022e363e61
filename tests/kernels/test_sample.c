/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws on the device, in its emulation, beside the engine's own sampler. How they are compared: each device's
 * token must be one that the filters leave, computed here in double with every bound moved by 1e-5 in favour of it
 * (a weight's rounding), and in at least 99.9 % of random cases it must be the sampler's very token: weights have the
 * same bits, but the two add them up with different roundings, so that a draw within about 1e-8 of a boundary may
 * fall on either side. Log probabilities: rounding of the difference, and 2^-17 for the mass and its logarithm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/fault.h"
#include "engine/sample/sampler_device.h"
#include "tests/kernels/tables.h"
#include "tests/support/part.h"

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { WIDEST = 140001, FLAT = 6000, ROWS = 8, FORWARD = 0, BACKWARD = 1, SHUFFLED = 2 };

static uint64_t state = 1;

static uint32_t next_bits(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 32);
}

static double next_unit(void) { return next_bits() * 0x1p-32; }

static float normal(void)
{
	double u = next_unit() + 0x1p-33;
	return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * next_unit()));
}

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	float *logits; /* the device's [ROWS][n] */
	struct sampler_scratch scratch;
	struct sampler_adjusts adjusts;
};

static void open_rig(struct rig *r)
{
	struct kn_config cfg = {.max_rows = ROWS, .max_width = WIDEST, .pad_rows = true};
	struct sl_err err;
	void *p;
	*r = (struct rig){.o = open_cuda()};
	assert_int_equal(r->o->open(&cfg, &r->b, &err), 0);
	assert_int_equal(r->o->mem_alloc(r->b, (size_t)ROWS * WIDEST * sizeof(float), &p), 0);
	r->logits = p;
	assert_int_equal(sampler_scratch_reserve(&r->scratch, WIDEST), 0);
}

static void close_rig(struct rig *r)
{
	r->o->mem_free(r->b, r->logits);
	r->o->close(r->b);
	sampler_scratch_dispose(&r->scratch);
	sampler_adjusts_dispose(&r->adjusts);
}

/* A row and how it is drawn from. */
struct job {
	float logits[WIDEST];
	struct sampler_params p;
	struct sampler_state said;
	struct proto_id_f32 bias[8];
	int32_t stops[4];
	uint32_t mask[(WIDEST + 31) / 32];
	uint64_t index;
};

static const struct sampler_params plain = {
    .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .want_logprob = true, .seed = 1};
static const int32_t ends[] = {0};

/* Draws from all rows in one step. */
static void draw_all(struct rig *r, const struct job *jobs, int n, int n_vocab, struct sampler_choice *out)
{
	struct kn_draw draws[ROWS];
	struct kn_drawn drawn[ROWS];
	struct kn_step s = {.n_rows = n};
	r->adjusts.n = 0;
	for (int i = 0; i < n; i++) {
		const struct job *j = &jobs[i];
		assert_true(sampler_on_device(&j->p, &j->said, n_vocab));
		memcpy(r->logits + (size_t)i * (size_t)n_vocab, j->logits, (size_t)n_vocab * sizeof(float));
		assert_int_equal(sampler_device_draw(&j->p, &j->said, j->index, i, 0, &r->adjusts, &draws[i]), 0);
	}
	sampler_adjusts_point(&r->adjusts, draws, n);
	assert_int_equal(r->o->step_begin(r->b, &s), 0);
	assert_int_equal(r->o->sample(r->b, r->logits, n_vocab, draws, n, drawn), 0);
	memset(draws, 0xFF, sizeof draws); /* taken */
	assert_int_equal(r->o->step_end(r->b), 0);
	for (int i = 0; i < n; i++)
		sampler_device_choice(&drawn[i], &out[i]);
}

/* ---- what the filters leave, in double ---- */

struct item {
	double l;
	int32_t id;
};

static int by_rank(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	return x->l != y->l ? (x->l < y->l) - (x->l > y->l) : (x->id > y->id) - (x->id < y->id);
}

static void adjusted(const struct job *j, int n, double *l)
{
	for (int i = 0; i < n; i++)
		l[i] = isnan(j->logits[i]) ? -INFINITY : (double)j->logits[i];
	for (int i = 0; i < j->p.n_bias; i++)
		l[j->p.bias[i].id] += (double)j->p.bias[i].v;
	for (uint32_t i = 0; sampler_needs_state(&j->p) && i < j->said.n_slots; i++) {
		const struct sampler_count *c = &j->said.slots[i];
		uint32_t made = c->made & ~SAMPLER_IN_PROMPT;
		if (c->id < 0)
			continue;
		double r = (double)j->p.repetition_penalty;
		l[c->id] = l[c->id] > 0 ? l[c->id] / r : l[c->id] * r;
		if (made > 0)
			l[c->id] -= (double)j->p.presence_penalty + (double)j->p.frequency_penalty * made;
	}
	for (int i = 0; j->index < j->p.min_tokens && i < j->p.n_stop_ids; i++)
		l[j->p.stop_ids[i]] = -INFINITY;
	for (uint32_t i = 0; (j->p.ignore_eos || j->index < j->p.min_tokens) && i < j->p.n_end_ids; i++)
		l[j->p.end_ids[i]] = -INFINITY;
	for (int i = 0; i < n && j->p.mask != NULL; i++)
		if ((j->p.mask[i / 32] >> (i % 32) & 1) == 0)
			l[i] = -INFINITY;
}

static bool allowed(const struct job *j, int n, int32_t id)
{
	static double l[WIDEST];
	static struct item items[WIDEST];
	const double eps = 1e-5;
	int have = 0;
	adjusted(j, n, l);
	for (int i = 0; i < n; i++)
		if (l[i] > -INFINITY)
			items[have++] = (struct item){l[i], i};
	qsort(items, (size_t)have, sizeof *items, by_rank);
	double t = (double)j->p.temperature, mass = 0, so_far = 0, max = items[0].l;
	int k = j->p.top_k > 0 && (int)j->p.top_k < have ? (int)j->p.top_k : have;
	if (t == 0)
		return l[id] >= max - eps;
	for (int i = 0; i < k; i++)
		mass += exp((items[i].l - max) / t);
	/* Adjusted values may be equal in float and not here, and the other way. */
	double last = items[0].l - eps;
	for (int i = 0; i < k; i++) {
		if (so_far >= mass * ((double)j->p.top_p + eps))
			break;
		so_far += exp((items[i].l - max) / t);
		last = items[i].l - eps;
	}
	return l[id] >= last && exp((l[id] - max) / t) >= (double)j->p.min_p * (1 - eps) - eps * eps;
}

/* ---- random cases ---- */

static void make_row(struct job *j, int n)
{
	double kind = next_unit(), wide = 0.2 + 6 * next_unit();
	for (int i = 0; i < n; i++) {
		j->logits[i] = (float)(wide * (double)normal());
		if (kind < 0.15)
			j->logits[i] = rintf(j->logits[i]); /* ties */
		else if (kind < 0.25 && next_unit() < 0.3)
			j->logits[i] = next_unit() < 0.5 ? -INFINITY : NAN;
		else if (kind < 0.3)
			j->logits[i] = 1.5f;
	}
	if (kind < 0.25)
		j->logits[n / 2] = 3;
}

static void make_job(struct job *j, int n)
{
	make_row(j, n);
	j->p = plain;
	j->p.seed = next_bits();
	j->p.choice = next_bits() % 3;
	j->index = next_bits() % 50;
	j->p.temperature = next_unit() < 0.15 ? 0 : (float)(0.1 + 1.9 * next_unit());
	j->p.want_logprob = next_unit() < 0.4;
	j->p.mask = NULL;
	if (next_unit() < 0.3) {
		double share = next_unit() < 0.5 ? 0.02 : 0.98;
		memset(j->mask, 0, sizeof j->mask);
		for (int i = 0; i < n; i++)
			j->mask[i / 32] |= (uint32_t)(next_unit() < share) << (i % 32);
		j->p.mask = j->mask;
	}
	j->p.n_top = next_unit() < 0.5 ? 0 : (uint8_t)(next_bits() % 21);
	if (next_unit() < 0.5)
		j->p.top_p = (float)(0.02 + 0.97 * next_unit());
	if (next_unit() < 0.5)
		j->p.top_k = next_bits() % (next_unit() < 0.7 ? 60 : FLAT);
	if (next_unit() < 0.3)
		j->p.min_p = (float)(0.3 * next_unit());
	if (next_unit() < 0.3) {
		j->p.repetition_penalty = (float)(0.7 + next_unit());
		j->p.presence_penalty = (float)next_unit();
		j->p.frequency_penalty = (float)next_unit();
		for (int i = 0; i < 30; i++) {
			int32_t id = (int32_t)(next_bits() % (uint32_t)n);
			assert_int_equal(
			    i % 2 ? sampler_state_add(&j->said, id) : sampler_state_add_prompt(&j->said, &id, 1), 0);
		}
	}
	if (next_unit() < 0.3) {
		j->p.n_bias = 8;
		for (int i = 0; i < 8; i++)
			j->bias[i] = (struct proto_id_f32){next_bits() % (uint32_t)n % 5, 10 * normal()};
		j->p.bias = j->bias;
	}
	if (next_unit() < 0.2) {
		j->p.min_tokens = 25;
		j->p.n_stop_ids = 4;
		for (int i = 0; i < 4; i++)
			j->stops[i] = (int32_t)(next_bits() % (uint32_t)n);
		j->p.stop_ids = j->stops;
		j->p.end_ids = ends;
		j->p.n_end_ids = 1;
		j->p.ignore_eos = next_unit() < 0.5;
	}
}

static void near(float got, float want)
{
	if (isnan(want) != isnan(got) || fabs((double)got - (double)want) > 0x1p-17 + 0x1p-22 * fabs((double)want))
		fail_msg("a log probability of %.9g, not %.9g", (double)got, (double)want);
}

/* Whether it is the sampler's token; what it tells of it must be right. */
static bool same(struct rig *r, struct job *j, int n, const struct sampler_choice *got)
{
	struct sampler_choice want;
	sampler_draw(&j->p, &j->said, j->logits, n, j->index, &r->scratch, &want);
	assert_int_equal(got->id < 0, want.id < 0);
	if (got->id < 0)
		return true;
	assert_in_range(got->id, 0, n - 1);
	if (!allowed(j, n, got->id))
		fail_msg("%d is drawn, which the filters leave out; the sampler says %d", (int)got->id, (int)want.id);
	assert_int_equal(got->n_top, want.n_top);
	for (int i = 0; i < want.n_top; i++) {
		assert_int_equal(got->top[i].id, want.top[i].id);
		near(got->top[i].v, want.top[i].v);
	}
	if (got->id == want.id)
		near(got->logprob, want.logprob);
	return got->id == want.id;
}

static void test_random(void **arg)
{
	(void)arg;
	static const int vocabs[] = {1, 5, 37, 600, 2500, 6000};
	static struct job jobs[ROWS];
	struct sampler_choice out[ROWS];
	struct rig r;
	int n_cases = 0, other = 0;
	open_rig(&r);
	for (int round = 0; round < some_of(130, 260); round++) {
		int n = vocabs[round % N(vocabs)], rows = round % 11 == 0 ? 3 : ROWS;
		for (int i = 0; i < rows; i++)
			make_job(&jobs[i], n);
		draw_all(&r, jobs, rows, n, out);
		for (int i = 0; i < rows; i++) {
			n_cases++;
			other += !same(&r, &jobs[i], n, &out[i]);
			sampler_state_dispose(&jobs[i].said);
		}
	}
	struct kn_stats s;
	r.o->stats(r.b, &s);
	print_message("%d draws, %d of another token, %d steps by a graph\n", n_cases, other, (int)s.graph_hits);
	assert_true(other * 1000 <= n_cases);
	assert_true(s.graph_hits > (uint64_t)some_of(40, 100));
	close_rig(&r);
}

/* ---- rows that end up in every way through the kernel ---- */

/* A device has its own. */
static void set_order(int order)
{
	if (on_device())
		return;
	void (*set)(int, uint32_t);
	void *symbol = cuda_function("sluice_emulation_order");
	memcpy(&set, &symbol, sizeof set);
	set(order, 99);
}

/* Flat rows, rows of ties, many kept: exactly the sampler's tokens, in every order of the threads. */
static void test_flat_and_tied(void **arg)
{
	(void)arg;
	static struct job jobs[ROWS];
	struct sampler_choice out[ROWS];
	struct rig r;
	open_rig(&r);
	for (int order = FORWARD; order <= SHUFFLED; order++) {
		state = 5;
		set_order(order);
		for (int round = 0; round < 4; round++) {
			for (int i = 0; i < ROWS; i++) {
				struct job *j = &jobs[i];
				for (int k = 0; k < FLAT; k++)
					j->logits[k] = i < 4 ? 2.0f
							     : (float)(next_bits() % 3) +
								   (i == 7 ? (float)(next_bits() % 1000) * 1e-3f : 0);
				j->p = plain;
				j->index = (uint64_t)(round * ROWS + i);
				j->p.top_k = i % 4 == 1 || i == 7 ? 3000 : i == 6 ? 700 : 0;
				j->p.top_p = i % 4 > 1 ? 0.6f : 1;
				j->p.n_top = 20;
			}
			draw_all(&r, jobs, ROWS, FLAT, out);
			for (int i = 0; i < ROWS; i++)
				assert_true(same(&r, &jobs[i], FLAT, &out[i]));
		}
	}
	set_order(FORWARD);
	close_rig(&r);
}

/* Rows of more chunks than a block has threads, and of a width that is not of whole 16 bytes. */
static void test_wide(void **arg)
{
	(void)arg;
	static struct job jobs[ROWS];
	struct sampler_choice out[ROWS];
	struct rig r;
	open_rig(&r);
	state = 21;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < ROWS; i++)
			make_job(&jobs[i], WIDEST);
		draw_all(&r, jobs, ROWS, WIDEST, out);
		for (int i = 0; i < ROWS; i++) {
			assert_true(same(&r, &jobs[i], WIDEST, &out[i]));
			sampler_state_dispose(&jobs[i].said);
		}
	}
	close_rig(&r);
}

/* No number, nothing left, too much: no token, as the sampler says. */
static void test_unusable(void **arg)
{
	(void)arg;
	static struct job jobs[ROWS];
	struct sampler_choice out[ROWS];
	struct rig r;
	const struct proto_id_f32 out_of_it = {.id = 4, .v = -INFINITY};
	open_rig(&r);
	for (int greedy = 0; greedy < 2; greedy++) {
		for (int i = 0; i < ROWS; i++) {
			struct job *j = &jobs[i];
			for (int k = 0; k < 40; k++)
				j->logits[k] = i == 0 ? NAN : i == 1 ? -INFINITY : (float)k;
			j->p = plain;
			j->p.temperature = greedy ? 0 : 1;
			j->p.want_logprob = i % 2;
			j->p.top_k = i == 5 ? 3 : 0;
			if (i == 2 || i == 3)
				j->logits[4] = INFINITY;
			if (i == 3 || i == 4) {
				j->p.bias = &out_of_it;
				j->p.n_bias = 1;
			}
		}
		draw_all(&r, jobs, ROWS, 40, out);
		for (int i = 0; i < ROWS; i++) {
			assert_true(same(&r, &jobs[i], 40, &out[i]));
			assert_int_equal(out[i].id < 0, i < 4);
		}
	}
	struct kn_step s = {.n_rows = 1};
	struct kn_draw d = {.temperature = 1, .top_p = 1};
	struct kn_drawn drawn;
	assert_int_equal(r.o->step_begin(r.b, &s), 0);
	assert_int_equal(r.o->sample(r.b, r.logits, KN_MAX_SAMPLED_VOCAB + 1, &d, 1, &drawn), SL_EUNSUPPORTED);
	assert_int_equal(r.o->step_end(r.b), 0);
	close_rig(&r);
}

/* Twice in one step: the second draws do not disturb the first. */
static void test_twice(void **arg)
{
	(void)arg;
	struct rig r;
	struct kn_step s = {.n_rows = 2};
	struct kn_drawn drawn[2];
	open_rig(&r);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 20; i++)
			r.logits[i] = (float)(i == 3 + round || i == 15);
		assert_int_equal(r.o->step_begin(r.b, &s), 0);
		for (int32_t i = 0; i < 2; i++) {
			struct kn_draw d = {.row = i, .top_p = 1};
			assert_int_equal(r.o->sample(r.b, r.logits, 10, &d, 1, &drawn[i]), 0);
		}
		assert_int_equal(r.o->step_end(r.b), 0);
		assert_int_equal(drawn[0].id, 3 + round);
		assert_int_equal(drawn[1].id, 5);
	}
	close_rig(&r);
}

/* A token that the host does not know of yet when it asks for the draw: the same draw, bit for bit, as when it does. */
static void test_said_on_the_device(void **arg)
{
	(void)arg;
	static struct job jobs[ROWS];
	struct sampler_choice known[ROWS];
	struct rig r;
	int differs = 0;
	open_rig(&r);
	state = 11;
	for (int round = 0; round < 60; round++) {
		struct kn_draw draws[ROWS];
		struct kn_drawn drawn[ROWS];
		int32_t tokens[ROWS], n_vocab = round % 3 == 0 ? 40 : 1500;
		set_order(round % 3);
		memset(jobs, 0, sizeof jobs);
		r.adjusts.n = 0;
		for (int i = 0; i < ROWS; i++) {
			struct job *j = &jobs[i];
			make_row(j, n_vocab);
			j->p = plain;
			j->p.want_logprob = i % 2 == 0;
			j->p.n_top = i % 4 == 0 ? 3 : 0;
			j->p.temperature = i == 1 ? 0 : 0.9f;
			j->p.seed = next_bits();
			j->index = (uint64_t)round;
			j->p.repetition_penalty = i % 3 == 0 ? 1.3f : 1;
			j->p.presence_penalty = i % 3 != 0 || i > 5 ? 1.7f : 0;
			j->p.frequency_penalty = i % 4 > 1 ? 0.9f : 0;
			j->p.ignore_eos = i % 2 == 1;
			j->p.end_ids = ends;
			j->p.n_end_ids = 1;
			for (int k = 0; k < i * 3; k++)
				assert_int_equal(sampler_state_add(&j->said, (int32_t)next_bits() & 31), 0);
			const int32_t prompt[2] = {33, 34};
			assert_int_equal(sampler_state_add_prompt(&j->said, prompt, 2), 0);
			/* One that was said, one of the prompt alone, or a new one. */
			tokens[i] = round % 4 == 0 ? 33 : (int32_t)next_bits() & 39;
			tokens[i] = tokens[i] < n_vocab ? tokens[i] : 1;
			j->logits[tokens[i]] = 4; /* it would come again */
			memcpy(r.logits + (size_t)i * (size_t)n_vocab, j->logits, (size_t)n_vocab * sizeof(float));
			assert_int_equal(
			    sampler_device_draw(&j->p, &j->said, j->index, i, i + 1, &r.adjusts, &draws[i]), 0);
			assert_int_equal(draws[i].said, i + 1);
		}
		struct kn_step s = {.n_rows = ROWS, .row_token = tokens};
		sampler_adjusts_point(&r.adjusts, draws, ROWS);
		assert_int_equal(r.o->step_begin(r.b, &s), 0);
		assert_int_equal(r.o->sample(r.b, r.logits, n_vocab, draws, ROWS, drawn), 0);
		assert_int_equal(r.o->step_end(r.b), 0);
		draw_all(&r, jobs, ROWS, n_vocab, known); /* without it */
		for (int i = 0; i < ROWS; i++)
			differs += known[i].id != drawn[i].id;
		for (int i = 0; i < ROWS; i++)
			assert_int_equal(sampler_state_add(&jobs[i].said, tokens[i]), 0);
		draw_all(&r, jobs, ROWS, n_vocab, known);
		for (int i = 0; i < ROWS; i++) {
			struct sampler_choice told;
			sampler_device_choice(&drawn[i], &told);
			assert_int_equal(told.id, known[i].id);
			assert_memory_equal(&told.logprob, &known[i].logprob, sizeof(float));
			assert_int_equal(told.n_top, known[i].n_top);
			assert_memory_equal(told.top, known[i].top, told.n_top * sizeof *told.top);
			sampler_state_dispose(&jobs[i].said);
		}
	}
	if (differs <= 20)
		fail_msg("the token changes only %d draws", differs);
	/* Rows that the step has not, and no room for the token. */
	struct kn_step s = {.n_rows = 1};
	struct kn_draw d = {.temperature = 1, .top_p = 1, .said = 2, .n_penalties = 1};
	struct kn_drawn one;
	assert_int_equal(r.o->step_begin(r.b, &s), 0);
	assert_int_equal(r.o->sample(r.b, r.logits, 40, &d, 1, &one), SL_EUNSUPPORTED);
	d = (struct kn_draw){.temperature = 1, .top_p = 1, .said = 1};
	assert_int_equal(r.o->sample(r.b, r.logits, 40, &d, 1, &one), SL_EUNSUPPORTED);
	assert_int_equal(r.o->step_end(r.b), 0);
	set_order(FORWARD);
	close_rig(&r);
}

/* What only the sampler can do, and memory that ends. */
static void test_left_to_the_host(void **arg)
{
	(void)arg;
	struct sampler_params p = plain;
	struct sampler_state said = {0};
	struct sampler_adjusts a = {0};
	struct kn_draw d;
	assert_true(sampler_on_device(&p, &said, 1000));
	assert_false(sampler_on_device(&p, &said, KN_MAX_SAMPLED_VOCAB + 1));
	p.typical_p = 0.5f;
	assert_false(sampler_on_device(&p, &said, 1000));
	p = plain;
	p.frequency_penalty = 1;
	for (int32_t i = 0; i < SAMPLER_MAX_ADJUSTS; i++)
		assert_int_equal(sampler_state_add(&said, i), 0);
	assert_true(sampler_on_device(&p, &said, 100000));
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(sampler_device_draw(&p, &said, 0, 0, 0, &a, &d), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(sampler_device_draw(&p, &said, 0, 0, 0, &a, &d), 0);
	assert_int_equal(sampler_state_add(&said, SAMPLER_MAX_ADJUSTS), 0);
	assert_false(sampler_on_device(&p, &said, 100000));
	sampler_state_dispose(&said);
	sampler_adjusts_dispose(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random),
	    cmocka_unit_test(test_flat_and_tied),
	    cmocka_unit_test(test_wide),
	    cmocka_unit_test(test_unusable),
	    cmocka_unit_test(test_twice),
	    cmocka_unit_test(test_said_on_the_device),
	    cmocka_unit_test(test_left_to_the_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
