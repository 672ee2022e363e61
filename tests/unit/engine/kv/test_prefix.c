/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix tree: single cases, and long random lives of sequences over few different texts, with one group of layers
 * and with several, some of them windowed. Each page is really written, so that a page handed out for other tokens than
 * it holds shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "engine/kv/prefix.h"

enum { PAGE = 4, MAX_TOKENS = 64, MAX_PAGES = MAX_TOKENS / PAGE, ROW = MAX_PAGES + 1, GROUPS = 4 };

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct kv_pool *pool;
	struct prefix_tree *t;
	struct kv_groups g;
};

static const struct kv_groups one = {.page_tokens = PAGE, .n_groups = 1, .n_full = 1, .n_layers = 1};

static void bench_open_as(struct bench *x, int n_pages, struct kv_groups g)
{
	struct sl_err err;
	x->ops = kn_select("cpu-ref", &err);
	assert_non_null(x->ops);
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	assert_int_equal(x->ops->open(&kc, &x->b, &err), 0);
	assert_int_equal(kv_pool_create(x->ops, x->b, KN_F32, n_pages, PAGE, 1, 1, 2, &x->pool, &err), 0);
	kv_pool_set_groups(x->pool, &g, NULL);
	assert_int_equal(prefix_create(x->pool, ROW, &x->t), 0);
	x->g = g;
}

static void bench_open(struct bench *x, int n_pages) { bench_open_as(x, n_pages, one); }

static void bench_close(struct bench *x)
{
	prefix_destroy(x->t);
	kv_pool_destroy(x->pool);
	x->ops->close(x->b);
}

struct life {
	struct prefix_path path;
	struct prefix_waiter waiter;
	int32_t tokens[MAX_TOKENS], pages[GROUPS * ROW];
	uint32_t n, n_past, n_pages, first;
	uint64_t salt;
	bool running, waiting;
};

static float *slot(const struct bench *x, int32_t page, uint32_t token)
{
	return (float *)kv_pool_layout(x->pool)->k + ((size_t)page * PAGE + token) * 2;
}

/* The first position of a group that the next row sees. */
static uint32_t seen_from(const struct bench *x, uint32_t group, uint32_t n_past)
{
	return group < x->g.n_full || n_past < x->g.window ? 0 : n_past - x->g.window + 1;
}

static void check_contents(const struct bench *x, const struct life *l)
{
	for (uint32_t g = 0; g < x->g.n_groups; g++)
		for (uint32_t i = seen_from(x, g, l->n_past); i < l->n_past; i++)
			assert_int_equal((int)*slot(x, l->pages[g * ROW + i / PAGE], i % PAGE), l->tokens[i] + 1);
}

/* Gives up the pages of windowed groups before index `to`. */
static void drop_windows(const struct bench *x, struct life *l, uint32_t to)
{
	for (uint32_t g = x->g.n_full; g < x->g.n_groups; g++)
		for (uint32_t i = l->first; i < to; i++) {
			kv_page_unref(x->pool, l->pages[g * ROW + i]);
			l->pages[g * ROW + i] = -1;
		}
	l->first = to > l->first ? to : l->first;
}

static void pass(struct bench *x, struct life *l)
{
	uint32_t first = kv_groups_first(&x->g, l->n_past);
	if (first <= l->first)
		return;
	prefix_pass(x->t, &l->path, l->tokens, first);
	drop_windows(x, l, first);
}

static void begin(struct bench *x, struct life *l)
{
	l->n_past = prefix_begin(x->t, l->salt, l->tokens, l->n, l->n, &l->path, l->pages, &l->n_pages);
	assert_true(l->n_past < l->n);
	assert_int_equal(l->n_pages, (l->n_past + PAGE - 1) / PAGE);
	l->first = l->path.n_passed;
	assert_true(l->first <= kv_groups_first(&x->g, l->n_past));
	for (uint32_t g = x->g.n_full; g < x->g.n_groups; g++)
		for (uint32_t i = 0; i < l->first; i++)
			assert_int_equal(l->pages[g * ROW + i], -1);
	l->running = true;
	check_contents(x, l);
}

static bool take_index(struct bench *x, struct life *l)
{
	for (uint32_t g = 0; g < x->g.n_groups; g++) {
		if (prefix_page_alloc(x->t, &l->pages[g * ROW + l->n_pages]) == 0)
			continue;
		while (g-- > 0)
			kv_page_unref(x->pool, l->pages[g * ROW + l->n_pages]);
		return false;
	}
	l->n_pages++;
	return true;
}

/* Computes up to n more tokens; false when there are no pages. */
static bool compute(struct bench *x, struct life *l, uint32_t n)
{
	for (; n > 0 && l->n_past < l->n; n--) {
		if (l->n_past == l->n_pages * PAGE && !take_index(x, l))
			return false;
		/* A shared page is never written. */
		for (uint32_t g = 0; g < x->g.n_groups; g++) {
			int32_t page = l->pages[g * ROW + l->n_past / PAGE];
			assert_int_equal(kv_page_refs(x->pool, page), 1);
			*slot(x, page, l->n_past % PAGE) = (float)(l->tokens[l->n_past] + 1);
		}
		l->n_past++;
	}
	prefix_computed(x->t, &l->path, l->tokens, l->n_past, l->pages);
	check_contents(x, l);
	pass(x, l);
	check_contents(x, l);
	return true;
}

static void end(struct bench *x, struct life *l)
{
	prefix_end(x->t, &l->path, l->tokens, l->n_past, l->pages);
	drop_windows(x, l, l->n_pages);
	for (uint32_t g = 0; g < x->g.n_full; g++)
		for (uint32_t i = 0; i < l->n_pages; i++)
			kv_page_unref(x->pool, l->pages[g * ROW + i]);
	l->n_pages = l->n_past = l->first = 0;
	l->running = false;
}

static struct life text(const char *s, uint64_t salt)
{
	struct life l = {.salt = salt};
	for (; *s != '\0'; s++)
		l.tokens[l.n++] = (unsigned char)*s;
	return l;
}

static uint32_t cached(struct bench *x, const struct life *l)
{
	struct prefix_match m;
	prefix_lookup(x->t, l->salt, l->tokens, l->n, &m);
	return m.n_tokens;
}

static void a_prompt_comes_again(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 32);
	struct life a = text("the quick brown fox", 1), b = a;
	struct prefix_match m;
	prefix_lookup(x.t, 1, a.tokens, a.n, &m);
	assert_int_equal(m.n_tokens, 0);
	assert_int_equal(m.miss, PREFIX_MISS_NEW);
	begin(&x, &a);
	assert_int_equal(a.n_past, 0);
	assert_true(compute(&x, &a, 100));
	/* While it runs, its whole pages are there already. */
	assert_int_equal(cached(&x, &b), 16);
	end(&x, &a);
	/* Then the rest too; the last token is always computed. */
	prefix_lookup(x.t, 1, b.tokens, b.n, &m);
	assert_int_equal(m.n_tokens, 18);
	assert_int_equal(m.n_pages, 4);
	assert_int_equal(m.n_unpinned, 4);
	assert_int_equal(m.miss, PREFIX_MISS_NONE);
	begin(&x, &b);
	assert_int_equal(b.n_past, 18);
	assert_int_equal(prefix_n_pages(x.t), 5);
	assert_int_equal(prefix_n_reclaimable(x.t), 1);
	assert_true(compute(&x, &b, 1));
	prefix_validate(x.t);
	end(&x, &b);
	/* A text that turns off in the middle of a page. */
	struct life c = text("the quick brick", 1);
	begin(&x, &c);
	assert_int_equal(c.n_past, 12);
	end(&x, &c);
	/* Nobody else's. */
	struct life d = text("the quick brown fox", 2);
	assert_int_equal(cached(&x, &d), 0);
	struct life e = text("the", 1);
	prefix_lookup(x.t, 1, e.tokens, e.n, &m);
	assert_int_equal(m.miss, PREFIX_MISS_SHORT);
	assert_int_equal(m.n_tokens, 2);
	prefix_validate(x.t);
	kv_pool_validate(x.pool);
	bench_close(&x);
}

static void one_computes_the_others_wait(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 64);
	struct life a = text("a common beginning, then A", 7), b = text("a common beginning, then B", 7);
	struct prefix_match m;
	begin(&x, &a);
	prefix_lookup(x.t, 7, b.tokens, b.n, &m);
	assert_non_null(m.pending);
	assert_ptr_equal(prefix_claimant(m.pending), &a.path);
	prefix_await(m.pending, &b.waiter);
	compute(&x, &a, 20);
	assert_null(prefix_woken(x.t)); /* the deepest of the common pages is not there yet */
	compute(&x, &a, 4);
	assert_ptr_equal(prefix_woken(x.t), &b.waiter);
	assert_null(prefix_woken(x.t));
	begin(&x, &b);
	assert_int_equal(b.n_past, 24);
	compute(&x, &b, 100);
	end(&x, &b);
	compute(&x, &a, 100);
	end(&x, &a);

	/* Whoever was at it goes: those who wait are told, and another one can begin. */
	struct life c = text("something entirely different", 7), d = c;
	begin(&x, &c);
	compute(&x, &c, 9);
	prefix_lookup(x.t, 7, d.tokens, d.n, &m);
	prefix_await(m.pending, &d.waiter);
	end(&x, &c);
	assert_ptr_equal(prefix_woken(x.t), &d.waiter);
	prefix_validate(x.t);
	begin(&x, &d);
	assert_int_equal(d.n_past, 9);
	compute(&x, &d, 100);
	end(&x, &d);
	bench_close(&x);
}

static void the_longest_unused_goes_first(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 6);
	struct life a = text("aaaabbbbc", 1), b = text("ddddeeee!", 1), c = text("aaaabbbbf", 1);
	struct prefix_match m;
	begin(&x, &a);
	compute(&x, &a, 8);
	end(&x, &a);
	begin(&x, &b);
	compute(&x, &b, 8);
	end(&x, &b);
	begin(&x, &c); /* uses the pages of a again */
	assert_int_equal(c.n_past, 8);
	end(&x, &c);
	assert_int_equal(prefix_n_reclaimable(x.t), 4);
	assert_true(prefix_evict(x.t));
	assert_int_equal(cached(&x, &b), 4); /* the leaf before its parent */
	prefix_lookup(x.t, 1, b.tokens, b.n, &m);
	assert_int_equal(m.miss, PREFIX_MISS_EVICTED);
	assert_true(prefix_evict(x.t));
	assert_int_equal(cached(&x, &b), 0);
	assert_int_equal(cached(&x, &a), 8);
	begin(&x, &a);
	assert_false(prefix_evict(x.t)); /* all that is left is in use */
	assert_int_equal(prefix_n_reclaimable(x.t), 0);
	end(&x, &a);
	bench_close(&x);
}

static void no_memory_costs_reuse_only(void **state)
{
	(void)state;
	for (long nth = 1; nth < 12; nth++) {
		struct bench x;
		bench_open(&x, 32);
		fault_arm(FAULT_ALLOC, nth, 1);
		struct life a = text("the quick brown fox", 1), b = a;
		begin(&x, &a);
		compute(&x, &a, 100);
		end(&x, &a);
		begin(&x, &b);
		compute(&x, &b, 100);
		end(&x, &b);
		fault_disarm_all();
		prefix_validate(x.t);
		kv_pool_validate(x.pool);
		bench_close(&x);
	}
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

/* Every reference of every page is somebody's. */
static void check_references(const struct bench *x, const struct life *lives, int n, int n_pages)
{
	static uint32_t held[256];
	uint32_t all = 0, mine = 0;
	memset(held, 0, sizeof held);
	for (int i = 0; i < n; i++)
		for (uint32_t k = 0; k < kv_groups_held(&x->g, lives[i].first, lives[i].n_pages); k++, mine++) {
			uint32_t group, index;
			kv_groups_at(&x->g, lives[i].first, lives[i].n_pages, k, &group, &index);
			held[lives[i].pages[group * ROW + index]]++;
		}
	for (int i = 0; i < n_pages; i++) {
		uint32_t refs = kv_page_refs(x->pool, i);
		assert_true(refs == held[i] || refs == held[i] + 1);
		all += refs;
	}
	assert_int_equal(all, mine + prefix_n_pages(x->t));
}

static void live(struct kv_groups g, int n_pages)
{
	enum { N = 12, STEPS = 60000 };
	static struct life lives[N];
	struct bench x;
	uint64_t random = 11, reused = 0, waited = 0;
	memset(lives, 0, sizeof lives);
	bench_open_as(&x, n_pages, g);
	for (int step = 0; step < STEPS; step++) {
		struct life *l = &lives[draw(&random, N)];
		if (!l->running && !l->waiting) {
			/* Few texts: the next token mostly follows from the one before. */
			l->n = 1 + draw(&random, 40);
			l->salt = draw(&random, 2);
			int32_t token = (int32_t)draw(&random, 3);
			for (uint32_t i = 0; i < MAX_TOKENS; i++) {
				l->tokens[i] = token;
				token = draw(&random, 12) == 0 ? (int32_t)draw(&random, 5) : (token * 3 + 1) % 5;
			}
		}
		if (!l->running && !l->waiting) {
			struct prefix_match m;
			prefix_lookup(x.t, l->salt, l->tokens, l->n, &m);
			if (m.pending != NULL && draw(&random, 8) > 0) {
				prefix_await(m.pending, &l->waiter);
				l->waiting = true;
				waited++;
			} else {
				begin(&x, l);
				assert_true(l->n_past <= m.n_tokens);
				reused += l->n_past;
			}
		} else if (l->running) {
			uint32_t what = draw(&random, 10);
			if (what == 0 || !compute(&x, l, 1 + draw(&random, 9))) {
				end(&x, l);
			} else if (l->n_past == l->n) {
				if (l->n < MAX_TOKENS && what < 8)
					l->n++; /* another token of the answer */
				else
					end(&x, l);
			}
		}
		struct prefix_waiter *w;
		while ((w = prefix_woken(x.t)) != NULL)
			((struct life *)(void *)((char *)w - offsetof(struct life, waiter)))->waiting = false;
		if (step % 64 == 0) {
			prefix_validate(x.t);
			kv_pool_validate(x.pool);
			check_references(&x, lives, N, n_pages);
		}
	}
	assert_true(reused > 10000);
	assert_true(waited > 100);
	for (int i = 0; i < N; i++)
		if (lives[i].running)
			end(&x, &lives[i]);
	while (prefix_woken(x.t) != NULL)
		;
	assert_int_equal(prefix_n_reclaimable(x.t), prefix_n_pages(x.t));
	print_message("%u full of %u groups, window %u, %d pages: %llu tokens reused, %llu waits\n", g.n_full,
		      g.n_groups, g.window, n_pages, (unsigned long long)reused, (unsigned long long)waited);
	bench_close(&x);
}

static struct kv_groups mixed(uint32_t n_full, uint32_t n_windowed, uint32_t window)
{
	return (struct kv_groups){
	    .page_tokens = PAGE, .n_groups = n_full + n_windowed, .n_full = n_full, .n_layers = 1, .window = window};
}

static void random_lives(void **state)
{
	(void)state;
	live(one, 48);
	live(mixed(1, 1, 3), 96); /* smaller than a page */
	live(mixed(1, 3, 10), 150);
	live(mixed(2, 1, 9), 130);
	live(mixed(1, 1, 1), 80);
	live(mixed(0, 1, 7), 36); /* no layer sees all */
	live(mixed(0, 2, 12), 90);
}

/* A page is wanted: it goes with all that hangs on it, and nothing else does. */
static void one_page_goes(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 24);
	struct life a = text("the quick brown fox jumps", 1), b = text("the quick red", 1), c = text("other", 2);
	struct life *all[] = {&a, &b, &c};
	for (int i = 0; i < 3; i++) {
		begin(&x, all[i]);
		assert_true(compute(&x, all[i], all[i]->n));
		end(&x, all[i]);
	}
	struct life again = a;
	uint32_t pages = prefix_n_pages(x.t), n_cached = cached(&x, &a);
	assert_true(n_cached > 2 * PAGE);
	/* Its second page: the first one stays, and other texts do. */
	begin(&x, &again);
	int32_t page = again.pages[1], first = again.pages[0];
	end(&x, &again);
	prefix_evict_page(x.t, page);
	prefix_validate(x.t);
	assert_int_equal(kv_page_refs(x.pool, page), 0);
	assert_int_equal(kv_page_refs(x.pool, first), 1);
	assert_true(prefix_n_pages(x.t) < pages - 1);
	assert_true(cached(&x, &a) >= PAGE && cached(&x, &a) < 2 * PAGE);
	assert_int_equal(cached(&x, &c), c.n - 1);
	uint32_t left = prefix_n_pages(x.t);
	prefix_evict_page(x.t, page); /* it is not there any more */
	assert_int_equal(prefix_n_pages(x.t), left);
	bench_close(&x);
}

/* Two that did not wait compute the same: what one fills stays pinned for the other, which does not hold it yet. */
static void another_was_first(void **state)
{
	(void)state;
	struct bench x;
	bench_open(&x, 64);
	struct life a = text("a common beginning, then A", 7), b = text("a common beginning, then B", 7);
	struct prefix_pinned at = {0};
	begin(&x, &a);
	begin(&x, &b);
	compute(&x, &a, PAGE);
	compute(&x, &b, 100);
	end(&x, &b);
	int n = 0;
	for (int32_t page; (page = prefix_pinned_page(x.t, &a.path, &at)) >= 0; n++) {
		assert_int_equal(kv_page_refs(x.pool, page), 1);
		assert_true(page != a.pages[0]);
	}
	assert_int_equal(n, 24 / PAGE - 1);
	compute(&x, &a, 100);
	at = (struct prefix_pinned){0};
	assert_int_equal(prefix_pinned_page(x.t, &a.path, &at), -1);
	prefix_validate(x.t);
	end(&x, &a);
	bench_close(&x);
}

/* Without pressure nothing is lost: whatever one group would find, several do, from every position of a text on. */
static void nothing_is_lost_without_pressure(void **state)
{
	(void)state;
	struct bench x, y;
	uint64_t random = 5;
	bench_open_as(&x, 4000, mixed(1, 2, 9));
	bench_open(&y, 2000);
	for (int i = 0; i < 40; i++) {
		struct life a = {.salt = 1, .n = 1 + draw(&random, MAX_TOKENS)}, b;
		for (uint32_t k = 0; k < MAX_TOKENS; k++)
			a.tokens[k] = draw(&random, 10) == 0 ? (int32_t)draw(&random, 4) : (int32_t)(k % 5);
		b = a;
		for (uint32_t n = 1; n <= a.n; n++) {
			struct prefix_match of_x, of_y;
			prefix_lookup(x.t, 1, a.tokens, n, &of_x);
			prefix_lookup(y.t, 1, b.tokens, n, &of_y);
			assert_int_equal(of_x.n_tokens, of_y.n_tokens);
			assert_int_equal(of_x.miss, of_y.miss);
		}
		struct bench *benches[] = {&x, &y};
		struct life *lives[] = {&a, &b};
		for (int k = 0; k < 2; k++) {
			begin(benches[k], lives[k]);
			while (lives[k]->n_past < lives[k]->n)
				assert_true(compute(benches[k], lives[k], 1 + draw(&random, 20)));
			end(benches[k], lives[k]);
		}
	}
	bench_close(&x);
	bench_close(&y);
}

/* Computes a text and ends it. */
static void say(struct bench *x, const char *words)
{
	struct life l = text(words, 1);
	begin(x, &l);
	while (l.n_past < l.n)
		assert_true(compute(x, &l, 5));
	end(x, &l);
}

static uint32_t would_have(struct bench *x, const char *words, enum prefix_miss *miss)
{
	struct life l = text(words, 1);
	struct prefix_match m;
	prefix_lookup(x->t, 1, l.tokens, l.n, &m);
	*miss = m.miss;
	return m.n_tokens;
}

/* Under pressure, window parts that serve no point go first, and with them only hits elsewhere. */
static void windows_go_first(void **state)
{
	(void)state;
	struct bench x;
	enum prefix_miss miss;
	bench_open_as(&x, 200, mixed(1, 1, 6));
	say(&x, "the quick brown fox jumps over the lazy dog.");
	uint32_t all = prefix_n_pages(x.t);
	assert_int_equal(all, 2 * 44 / PAGE);
	assert_int_equal(would_have(&x, "the quick brown fox sleeps", &miss), 20);
	assert_int_equal(miss, PREFIX_MISS_NEW);
	/* The last row sees two pages before its own, and one may go on from within that. */
	for (uint32_t i = 0; i < 44 / PAGE - 3; i++) {
		assert_int_equal(prefix_oldest(x.t), 0);
		assert_true(prefix_evict(x.t));
		prefix_validate(x.t);
		assert_int_equal(would_have(&x, "the quick brown fox jumps over the lazy dog. And", &miss), 44);
		assert_int_equal(miss, PREFIX_MISS_NONE);
	}
	assert_true(prefix_oldest(x.t) > 0 && prefix_oldest(x.t) < UINT64_MAX);
	assert_int_equal(would_have(&x, "the quick brown fox sleeps", &miss), 0);
	assert_int_equal(miss, PREFIX_MISS_EVICTED);
	/* Once it is computed again, texts part there, and the next one finds it. */
	say(&x, "the quick brown fox sleeps");
	while (prefix_oldest(x.t) == 0)
		assert_true(prefix_evict(x.t));
	assert_int_equal(would_have(&x, "the quick brown fox wakes", &miss), 20);
	/* Then the text that was unused for longer. */
	do {
		assert_true(prefix_evict(x.t));
		prefix_validate(x.t);
	} while (would_have(&x, "the quick brown fox jumps over the lazy dog. And", &miss) == 44);
	assert_int_equal(would_have(&x, "the quick brown fox sleeps well", &miss), 26);
	while (prefix_evict(x.t))
		prefix_validate(x.t);
	assert_int_equal(prefix_n_pages(x.t), 0);
	bench_close(&x);
}

/* One tenant floods with texts that nobody asks for again: what their own windows hold beyond their ends goes before
 * the text of another tenant, also when they make a point of every page. */
static void a_flood_pays_with_its_windows(void **state)
{
	(void)state;
	enum { LENGTH = 60, FLOOD = 5, WINDOW_PAGES = 3 };
	static const char *const kept = "the quick brown fox jumps over the lazy dog. And";
	struct bench x;
	enum prefix_miss miss;
	/* Pages for all of them without what goes, and for less than half of their windows. */
	uint32_t each = LENGTH / PAGE, n_pages = 2 * 44 / PAGE + FLOOD * (each + WINDOW_PAGES) + each;
	bench_open_as(&x, (int)n_pages, mixed(1, 1, 6));
	say(&x, "the quick brown fox jumps over the lazy dog.");
	for (int i = 0; i < FLOOD; i++) {
		struct life l = {.salt = 2, .n = LENGTH};
		for (int32_t k = 0; k < LENGTH; k++)
			l.tokens[k] = 1000 * i + k;
		begin(&x, &l);
		while (l.n_past < l.n)
			assert_true(compute(&x, &l, 5));
		end(&x, &l);
		prefix_validate(x.t);
		assert_int_equal(would_have(&x, kept, &miss), 44);
	}
	/* One text, asked for up to each of its pages: no more than itself, whole. */
	for (uint32_t n = PAGE; n < LENGTH; n += PAGE) {
		struct life l = {.salt = 2, .n = n};
		for (uint32_t k = 0; k < n; k++)
			l.tokens[k] = 1000 * (FLOOD - 1) + (int32_t)k;
		begin(&x, &l);
		while (l.n_past < l.n)
			assert_true(compute(&x, &l, 5));
		end(&x, &l);
		prefix_validate(x.t);
		say(&x, kept); /* in use, however much the other one asks */
		assert_int_equal(would_have(&x, kept, &miss), 47);
	}
	bench_close(&x);
}

/* A running sequence holds the window before its next row, and nothing behind that. */
static void a_running_one_holds_its_window(void **state)
{
	(void)state;
	struct bench x;
	bench_open_as(&x, 200, mixed(1, 3, 6));
	struct life a = text("the quick brown fox jumps over the lazy dog.", 1), b = a;
	begin(&x, &a);
	assert_true(compute(&x, &a, 40));
	/* Of three windowed groups, those of indices 0 … 7: the row at 40 sees positions from 35 on. */
	assert_int_equal(prefix_n_reclaimable(x.t), 3 * 8);
	assert_int_equal(prefix_n_exclusive(x.t, &a.path), 10 + 3 * 2);
	for (int i = 0; i < 8; i++)
		assert_true(prefix_evict(x.t));
	assert_false(prefix_evict(x.t));
	/* Another one may go on from there, but not from before. */
	begin(&x, &b);
	assert_int_equal(b.n_past, 40);
	assert_int_equal(prefix_n_exclusive(x.t, &a.path), 0);
	end(&x, &b);
	assert_true(compute(&x, &a, 4));
	end(&x, &a);
	prefix_validate(x.t);
	bench_close(&x);
}

/* One page of a window is wanted: the window part goes, the node stays. */
static void a_page_of_a_window_goes(void **state)
{
	(void)state;
	struct bench x;
	enum prefix_miss miss;
	bench_open_as(&x, 100, mixed(1, 2, 8));
	struct life a = text("the quick brown fox", 1);
	begin(&x, &a);
	assert_true(compute(&x, &a, 19));
	int32_t page = a.pages[2 * ROW + 3];
	end(&x, &a);
	uint32_t before = prefix_n_pages(x.t);
	prefix_evict_page(x.t, page);
	assert_int_equal(prefix_n_pages(x.t), before - 2);
	assert_int_equal(kv_page_refs(x.pool, page), 0);
	prefix_validate(x.t);
	kv_pool_validate(x.pool);
	assert_int_equal(would_have(&x, "the quick brown fox", &miss), 12);
	assert_int_equal(miss, PREFIX_MISS_EVICTED);
	bench_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_prompt_comes_again),
	    cmocka_unit_test(one_computes_the_others_wait),
	    cmocka_unit_test(the_longest_unused_goes_first),
	    cmocka_unit_test(no_memory_costs_reuse_only),
	    cmocka_unit_test(random_lives),
	    cmocka_unit_test(one_page_goes),
	    cmocka_unit_test(another_was_first),
	    cmocka_unit_test(nothing_is_lost_without_pressure),
	    cmocka_unit_test(windows_go_first),
	    cmocka_unit_test(a_flood_pays_with_its_windows),
	    cmocka_unit_test(a_running_one_holds_its_window),
	    cmocka_unit_test(a_page_of_a_window_goes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
