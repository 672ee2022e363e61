/* SPDX-License-Identifier: Apache-2.0
 *
 * States and their snapshots in the prefix tree: when one is taken, which go first, and long random lives of sequences
 * with few slots. A state here is the sum of the tokens that it has passed, so one of another position or text shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "engine/kv/prefix.h"

enum { PAGE = 4, MAX_TOKENS = 600, ROW = MAX_TOKENS / PAGE + 1, ROWS = 6, FLOATS = 3 };

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct kv_pool *pool;
	struct kv_states *states;
	struct prefix_tree *t;
	struct kn_step step;
};

static void bench_open(struct bench *x, int n_pages, int n_snapshots)
{
	struct sl_err err;
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	*x = (struct bench){.ops = kn_select("cpu-ref", &err)};
	assert_int_equal(x->ops->open(&kc, &x->b, &err), 0);
	assert_int_equal(kv_pool_create(x->ops, x->b, KN_F32, n_pages, PAGE, 1, 1, 2, &x->pool, &err), 0);
	assert_int_equal(prefix_create(x->pool, ROW, &x->t), 0);
	assert_int_equal(kv_states_create(x->ops, x->b, FLOATS, ROWS, n_snapshots, &x->states, &err), 0);
	prefix_set_states(x->t, x->states);
	kv_states_in_step(x->states, &x->step);
}

static void bench_close(struct bench *x)
{
	prefix_destroy(x->t);
	kv_states_destroy(x->states); /* sees that no snapshot is held */
	kv_pool_destroy(x->pool);
	x->ops->close(x->b);
}

struct life {
	struct prefix_path path;
	struct prefix_waiter waiter;
	int32_t tokens[MAX_TOKENS], pages[ROW];
	uint32_t n, n_past, n_pages;
	int row;
	bool running;
};

static float *state_of(const struct bench *x, int row)
{
	return x->step.states + (size_t)x->step.state_of[row] * x->step.state_floats;
}

static void check_state(const struct bench *x, const struct life *l)
{
	float sum = 0;
	for (uint32_t i = 0; i < l->n_past; i++)
		sum += (float)l->tokens[i];
	if (l->n_past > 0)
		assert_true(state_of(x, l->row)[FLOATS - 1] == sum);
}

static void begin(struct bench *x, struct life *l)
{
	l->n_past = prefix_begin(x->t, 1, l->tokens, l->n, l->n, &l->path, l->pages, &l->n_pages);
	assert_int_equal(l->n_past % PAGE, 0); /* no part of a page */
	assert_int_equal(prefix_restore(x->t, &l->path, l->n_past, l->row), l->n_past);
	l->running = true;
	check_state(x, l);
}

/* As the engine does: up to n more tokens in steps that end where a snapshot is due. False: no pages. */
static bool compute(struct bench *x, struct life *l, uint32_t n)
{
	while (n > 0 && l->n_past < l->n) {
		uint32_t snapshot = prefix_next_snapshot(x->t, &l->path, l->n_past), past = l->n_past;
		uint32_t end = past + n < l->n ? past + n : l->n;
		end = snapshot < end ? snapshot : end;
		for (; l->n_past < end; l->n_past++, n--) {
			if (l->n_past == l->n_pages * PAGE && prefix_page_alloc(x->t, &l->pages[l->n_pages]) != 0)
				return false;
			l->n_pages += l->n_past == l->n_pages * PAGE;
			float *s = state_of(x, l->row) + FLOATS - 1;
			*s = (l->n_past > 0 ? *s : 0) + (float)l->tokens[l->n_past];
		}
		prefix_computed(x->t, &l->path, l->tokens, l->n_past, l->pages);
		prefix_snapshot(x->t, &l->path, l->n_past, l->row);
		prefix_validate(x->t);
	}
	check_state(x, l);
	return true;
}

static void end(struct bench *x, struct life *l)
{
	prefix_end(x->t, &l->path, l->tokens, l->n_past, l->pages);
	for (uint32_t i = 0; i < l->n_pages; i++)
		kv_page_unref(x->pool, l->pages[i]);
	l->n_pages = l->n_past = 0;
	l->running = false;
	prefix_validate(x->t);
}

/* n tokens: those up to `alike` are every text's. */
static struct life text(uint32_t n, uint32_t alike, int32_t other)
{
	struct life l = {.n = n};
	for (uint32_t i = 0; i < n; i++)
		l.tokens[i] = i < alike ? (int32_t)i + 1 : other + (int32_t)i;
	return l;
}

static uint32_t cached(struct bench *x, const struct life *l)
{
	struct prefix_match m;
	prefix_lookup(x->t, 1, l->tokens, l->n, &m);
	return m.n_tokens;
}

static int n_held(const struct bench *x) { return kv_states_n_snapshots(x->states) - kv_states_n_free(x->states); }

/* A prompt, then its answer: token by token. */
static void say(struct bench *x, struct life *l, uint32_t n_answer)
{
	begin(x, l);
	assert_true(compute(x, l, 1000));
	l->n += n_answer;
	for (uint32_t i = 0; i < n_answer; i++)
		assert_true(compute(x, l, 1));
	end(x, l);
}

static void a_prompt_and_its_answer(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 200, 10);
	struct life a = text(100, 100, 0), b = text(100, 100, 0);
	struct prefix_match m;
	a.n = 21;
	b.row = 1;
	assert_int_equal(prefix_next_snapshot(x.t, &(struct prefix_path){.cut = true}, 0), UINT32_MAX);
	begin(&x, &a);
	assert_int_equal(prefix_next_snapshot(x.t, &a.path, 0), 20);
	assert_true(compute(&x, &a, 1000));
	assert_int_equal(n_held(&x), 1);
	assert_int_equal(prefix_next_snapshot(x.t, &a.path, 21), 24);
	assert_int_equal(cached(&x, &b), 20);
	a.n = 50;
	assert_true(compute(&x, &a, 9)); /* 30: two borders of the answer, one snapshot */
	assert_int_equal(n_held(&x), 2);
	assert_int_equal(cached(&x, &b), 28);
	/* From there another goes on: it stays when the answer does. */
	begin(&x, &b);
	assert_int_equal(b.n_past, 28);
	assert_true(compute(&x, &a, 4));
	assert_int_equal(n_held(&x), 3);
	end(&x, &b);
	end(&x, &a);
	/* A border without a snapshot is none to go on from, although its pages are there. */
	b.n = 26;
	assert_int_equal(cached(&x, &b), 20);
	prefix_lookup(x.t, 1, b.tokens, b.n, &m);
	assert_int_equal(m.n_pages, 5);
	assert_int_equal(m.miss, PREFIX_MISS_EVICTED);
	bench_close(&x);
}

static void where_texts_part(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 200, 10);
	struct life texts[] = {text(60, 40, 1000), text(60, 40, 2000), text(60, 40, 3000)};
	say(&x, &texts[0], 0);
	assert_int_equal(cached(&x, &texts[1]), 0);
	begin(&x, &texts[1]);
	assert_int_equal(prefix_next_snapshot(x.t, &texts[1].path, 0), 40);
	assert_true(compute(&x, &texts[1], 1000));
	end(&x, &texts[1]);
	assert_int_equal(cached(&x, &texts[2]), 40);
	/* Whoever waits asks for a snapshot where the texts part. */
	struct life c = text(60, 0, 4000), d = text(60, 0, 4000);
	for (uint32_t i = 50; i < 60; i++)
		d.tokens[i]++;
	struct prefix_match m;
	begin(&x, &c);
	prefix_lookup(x.t, 1, d.tokens, d.n, &m);
	assert_non_null(m.pending);
	prefix_await(m.pending, &d.waiter);
	assert_true(compute(&x, &c, 1000));
	assert_ptr_equal(prefix_woken(x.t), &d.waiter);
	assert_int_equal(cached(&x, &d), 48);
	end(&x, &c);
	bench_close(&x);
}

static void every_so_often(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 600, 3);
	struct life a = text(590, 600, 0), b = a;
	say(&x, &a, 0); /* 32, 64, 96, 128 and, as the last one, 147 pages */
	assert_int_equal(n_held(&x), 3);
	b.n = 500;
	assert_int_equal(cached(&x, &b), 384); /* those in case have the room that is left, the last ones */
	/* Points take their slots, and the longest unused goes. */
	struct life c[] = {text(30, 0, 5000), text(30, 0, 6000), text(30, 0, 7000), text(30, 0, 8000)};
	for (int i = 0; i < 2; i++)
		say(&x, &c[i], 0);
	assert_int_equal(cached(&x, &a), 588);
	assert_int_equal(cached(&x, &b), 0);
	say(&x, &c[2], 0);
	assert_int_equal(cached(&x, &a), 0);
	say(&x, &c[0], 0);
	say(&x, &c[3], 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(cached(&x, &c[i]), i == 1 ? 0 : 28);
	/* A long prompt's snapshots in case do not take those of points. */
	b.n = 590;
	say(&x, &b, 0);
	assert_int_equal(n_held(&x), 3);
	assert_int_equal(cached(&x, &b), 588);
	assert_int_equal(cached(&x, &c[0]), 28);
	bench_close(&x);
}

/* Back from unverified tokens: to the last snapshot of the path, or to nothing. */
static void rewinding(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 100, 1);
	struct life a = text(30, 100, 0), b = text(30, 0, 500);
	b.row = 1;
	begin(&x, &a);
	assert_true(compute(&x, &a, 1000));
	a.n_past = prefix_restore(x.t, &a.path, 29, a.row);
	assert_int_equal(a.n_past, 28);
	check_state(&x, &a);
	assert_int_equal(prefix_restore(x.t, &a.path, 27, a.row), 0);
	begin(&x, &b);
	assert_true(compute(&x, &b, 1000)); /* takes the only slot */
	assert_int_equal(prefix_restore(x.t, &a.path, 29, a.row), 0);
	a.n_past = 30;
	end(&x, &a);
	end(&x, &b);
	bench_close(&x);
}

/* Copies of states beside snapshots, and none where there is no slot at all. */
static void slots(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 100, 2);
	struct life a = text(30, 100, 0);
	say(&x, &a, 10);
	assert_int_equal(n_held(&x), 2);
	int32_t one = prefix_state_slot(x.t), two = prefix_state_slot(x.t);
	assert_true(one >= 0 && two >= 0 && one != two);
	assert_int_equal(prefix_state_slot(x.t), -1);
	assert_int_equal(cached(&x, &a), 0);
	kv_states_give(x.states, one);
	kv_states_give(x.states, two);
	bench_close(&x);
	bench_open(&x, 100, 0);
	say(&x, &a, 10);
	assert_int_equal(cached(&x, &a), 0);
	assert_int_equal(prefix_state_slot(x.t), -1);
	bench_close(&x);
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

/* Children at once: whatever is inherited from where, nothing is overwritten before it is read. */
static void inheriting(void **state)
{
	(void)state;
	struct bench x;
	uint64_t random = 3;
	bench_open(&x, 10, 0);
	float now[ROWS], next[ROWS];
	for (int i = 0; i < ROWS; i++)
		state_of(&x, i)[0] = now[i] = (float)i;
	for (int round = 0; round < 2000; round++) {
		int rows[ROWS];
		uint8_t parents[ROWS];
		uint32_t n = 1 + draw(&random, ROWS), children = draw(&random, n + 1);
		for (uint32_t i = 0; i < n; i++)
			rows[i] = (int)((i * 5 + (uint32_t)round) % ROWS); /* n different ones */
		for (uint32_t i = 0; i < children; i++)
			parents[i] = (uint8_t)draw(&random, n);
		memcpy(next, now, sizeof next);
		for (uint32_t i = 0; i < children; i++)
			next[rows[i]] = now[rows[parents[i]]];
		assert_int_equal(kv_states_inherit(x.states, rows, n, parents, children), 0);
		for (uint32_t i = 0; i < children; i++)
			assert_true(state_of(&x, rows[i])[0] == next[rows[i]]);
		for (int i = 0; i < ROWS; i++) {
			now[i] = (float)(round * ROWS + i);
			state_of(&x, i)[0] = now[i];
		}
	}
	bench_close(&x);
}

/* faulty: now and then an allocation fails, which costs reuse only. */
static uint64_t live(int pages, int snapshots, uint64_t random, bool faulty)
{
	struct bench x;
	static struct life lives[ROWS];
	uint64_t n_found = 0;
	memset(lives, 0, sizeof lives);
	bench_open(&x, pages, snapshots);
	for (int round = 0; round < 4000; round++) {
		struct life *l = &lives[draw(&random, ROWS)];
		if (faulty && draw(&random, 3) == 0)
			fault_arm(FAULT_ALLOC, 1 + (long)draw(&random, 6), 1 + (long)draw(&random, 3));
		if (!l->running) {
			*l = text(2 + draw(&random, 60), 4 * draw(&random, 12), 100 * (1 + (int32_t)draw(&random, 3)));
			l->row = (int)(l - lives);
			begin(&x, l);
			n_found += l->n_past;
			if (draw(&random, 3) == 0)
				l->n += draw(&random, 30); /* and an answer */
		} else if (draw(&random, 4) == 0 || l->n_past == l->n || !compute(&x, l, 1 + draw(&random, 20))) {
			end(&x, l);
		}
		fault_disarm_all();
	}
	for (int i = 0; i < ROWS; i++)
		if (lives[i].running)
			end(&x, &lives[i]);
	bench_close(&x);
	return n_found;
}

static void random_lives(void **state)
{
	(void)state;
	static const struct {
		int pages, snapshots;
	} sizes[] = {{60, 3}, {200, 1}, {200, 8}, {1000, 40}, {80, 0}};
	uint64_t n_found = 0;
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
		n_found += live(sizes[k].pages, sizes[k].snapshots, k + 1, false);
	assert_true(n_found > 10000);
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
		live(sizes[k].pages, sizes[k].snapshots, k + 1, true);
}

/* Whatever allocation fails: it is no memory, and nothing is lost. */
static void no_memory(void **state)
{
	(void)state;
	struct bench x;
	int rc = SL_ENOMEM, n_failed = 0;
	bench_open(&x, 10, 0);
	for (long nth = 1; rc != 0; nth++) {
		struct kv_states *states = NULL;
		struct sl_err err = {0};
		fault_arm(FAULT_ALLOC, nth, 1);
		rc = kv_states_create(x.ops, x.b, FLOATS, ROWS, 4, &states, &err);
		fault_disarm_all();
		assert_true(rc == 0 || (rc == SL_ENOMEM && err.text[0] != '\0' && states == NULL));
		n_failed += rc != 0;
		kv_states_destroy(states);
	}
	assert_true(n_failed >= 3);
	/* Of a size that no machine has. */
	struct kv_states *states = NULL;
	struct sl_err err = {0};
	assert_int_equal(kv_states_create(x.ops, x.b, UINT64_MAX / 8, ROWS, 4, &states, &err), SL_ENOMEM);
	assert_int_equal(kv_states_create(x.ops, x.b, UINT64_MAX / 64, ROWS, 4, &states, &err), SL_ENOMEM);
	assert_null(states);
	bench_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_prompt_and_its_answer),
	    cmocka_unit_test(where_texts_part),
	    cmocka_unit_test(every_so_often),
	    cmocka_unit_test(rewinding),
	    cmocka_unit_test(slots),
	    cmocka_unit_test(inheriting),
	    cmocka_unit_test(random_lives),
	    cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
