/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier on disk below a prefix tree, step by step: pages written behind, looked for, loaded, late, joined,
 * forgotten. Each page is really written, so one that comes back for other tokens shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/kv_disk.h"
#include "kernels/kv_type.h"

enum { PAGE = 4, TEXT = 40, ROW = 32, N_PAGES = 24 };

static struct rig {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct kv_pool *pool;
	struct prefix_tree *t;
	struct disk_tier *tier;
	struct kv_disk *d;
	struct cost cost;
	char folder[64];
	bool always;
} x;

static void nudge(void *ctx) { (void)ctx; }

static void open_disk(void)
{
	struct sl_err err = {0};
	const struct disk_tier_config tier = {.folder = x.folder, .max_bytes = 64 << 20};
	assert_int_equal(disk_tier_open(&tier, &x.tier, &err), 0);
	disk_tier_settle(x.tier);
	const struct kv_disk_config cfg = {.tier = x.tier,
					   .prefix = x.t,
					   .pool = x.pool,
					   .cost = &x.cost,
					   .step_tokens = 16,
					   .model = "m",
					   .n_model = 1,
					   .always = x.always,
					   .nudge = nudge};
	assert_int_equal(kv_disk_create(&cfg, &x.d), 0);
}

static void close_disk(void)
{
	kv_disk_destroy(x.d);
	disk_tier_close(x.tier);
	x.d = NULL;
	x.tier = NULL;
}

static int setup(void **state)
{
	struct sl_err err;
	(void)state;
	memset(&x, 0, sizeof x);
	strcpy(x.folder, "/tmp/sluice-kv-XXXXXX");
	assert_non_null(mkdtemp(x.folder));
	x.ops = kn_select("cpu-ref", &err);
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	assert_int_equal(x.ops->open(&kc, &x.b, &err), 0);
	assert_int_equal(kv_pool_create(x.ops, x.b, KN_F32, N_PAGES, PAGE, 1, 1, 2, &x.pool, &err), 0);
	assert_int_equal(prefix_create(x.pool, ROW, &x.t), 0);
	cost_init(&x.cost, 1e9, 1e8); /* computing takes long */
	open_disk();
	return 0;
}

static int teardown(void **state)
{
	char command[100];
	(void)state;
	close_disk();
	prefix_validate(x.t);
	prefix_destroy(x.t);
	kv_pool_destroy(x.pool);
	x.ops->close(x.b);
	snprintf(command, sizeof command, "rm -r %s", x.folder);
	return system(command);
}

/* ---- texts ---- */

static const int32_t *text_of(int32_t text)
{
	static int32_t tokens[TEXT];
	for (int32_t i = 0; i < TEXT; i++)
		tokens[i] = text * 100 + i;
	return tokens;
}

static uint8_t *bytes_of(int32_t page)
{
	const struct kn_kv *l = kv_pool_layout(x.pool);
	return (uint8_t *)l->k + (size_t)page * kn_kv_page_bytes(l);
}

/* Computes a text and ends: the tree has its whole pages. */
static void compute(int32_t text, uint64_t salt, uint64_t owner)
{
	struct prefix_path path = {0};
	const struct prefix_origin origin = {.owner = owner};
	int32_t pages[ROW];
	uint32_t n_pages, n_past;
	prefix_set_origin(x.t, &origin);
	n_past = prefix_begin(x.t, salt, text_of(text), TEXT, TEXT, &path, pages, &n_pages);
	for (uint32_t i = n_pages; i < TEXT / PAGE; i++) {
		assert_int_equal(prefix_page_alloc(x.t, &pages[i]), 0);
		memset(bytes_of(pages[i]), (int)(text * 16) + (int)i, kn_kv_page_bytes(kv_pool_layout(x.pool)));
	}
	assert_true(n_past < TEXT);
	prefix_computed(x.t, &path, text_of(text), TEXT, pages);
	prefix_end(x.t, &path, text_of(text), TEXT, pages);
	for (uint32_t i = 0; i < TEXT / PAGE; i++)
		kv_page_unref(x.pool, pages[i]);
}

static void evict_all(void)
{
	while (prefix_evict(x.t))
		;
	if (x.tier != NULL)
		disk_tier_settle(x.tier);
	assert_int_equal(prefix_n_pages(x.t), 0);
}

/* On disk and no longer in memory. */
static void put_away(int32_t text, uint64_t salt, uint64_t owner)
{
	compute(text, salt, owner);
	(void)kv_disk_tick(x.d, 1);
	evict_all();
}

struct seq {
	struct kv_disk_turn turn;
	struct prefix_waiter waiter;
};

static struct kv_disk_ask ask_of(struct seq *s, int32_t text, uint64_t salt)
{
	list_init(&s->waiter.link);
	return (struct kv_disk_ask){
	    .salt = salt, .tokens = text_of(text), .n = TEXT, .turn = &s->turn, .waiter = &s->waiter};
}

static bool look(struct seq *s, int32_t text, uint64_t salt)
{
	const struct kv_disk_ask ask = ask_of(s, text, salt);
	struct prefix_match match;
	prefix_lookup(x.t, salt, ask.tokens, TEXT, &match);
	return kv_disk_look(x.d, &ask, &match, 1);
}

static uint32_t in_memory(int32_t text, uint64_t salt)
{
	struct prefix_match match;
	prefix_lookup(x.t, salt, text_of(text), TEXT, &match);
	return match.n_pages;
}

static uint64_t misses(enum disk_miss why) { return atomic_load(&disk_tier_stats(x.tier)->misses[why]); }

static void tick_until_woken(void)
{
	while (!kv_disk_tick(x.d, 2))
		usleep(100);
}

/* Whole pages that a prompt of TEXT tokens can reuse: its last token is computed. */
enum { REUSED = (TEXT - 1) / PAGE };

static void loads(void **state)
{
	struct seq s = {0};
	(void)state;
	put_away(1, 7, 3);
	assert_int_equal(in_memory(1, 7), 0);
	assert_true(look(&s, 1, 7));
	assert_true(kv_disk_loading(x.d));
	tick_until_woken();
	assert_ptr_equal(prefix_woken(x.t), &s.waiter);
	assert_false(kv_disk_loading(x.d));
	assert_int_equal(in_memory(1, 7), REUSED);
	assert_false(look(&s, 1, 7)); /* it found what it could */
	/* What came is what was computed. */
	struct prefix_path path = {0};
	int32_t pages[ROW];
	uint32_t n_pages;
	(void)prefix_begin(x.t, 7, text_of(1), TEXT, 0, &path, pages, &n_pages);
	assert_int_equal(n_pages, REUSED);
	for (uint32_t i = 0; i < n_pages; i++)
		assert_int_equal(*bytes_of(pages[i]), 16 + i);
	prefix_end(x.t, &path, text_of(1), REUSED * PAGE, pages);
	for (uint32_t i = 0; i < n_pages; i++)
		kv_page_unref(x.pool, pages[i]);
	assert_int_equal(misses(DISK_MISS_ABSENT) + misses(DISK_MISS_FAILED), 0);
}

/* Another salt, another text, another variant: nothing of the first is theirs. */
static void keys(void **state)
{
	struct seq s[3] = {0};
	(void)state;
	put_away(1, 7, 3);
	assert_false(look(&s[0], 1, 8));
	assert_false(look(&s[1], 2, 7));
	struct kv_disk_ask ask = ask_of(&s[2], 1, 7);
	struct prefix_match none = {0};
	ask.origin.variant.lo = 1;
	assert_false(kv_disk_look(x.d, &ask, &none, 1));
	assert_int_equal(misses(DISK_MISS_ABSENT), 3);
	s[2].turn.tries = 0;
	ask.origin = (struct prefix_origin){.nameless = true};
	assert_false(kv_disk_look(x.d, &ask, &none, 1));
	assert_int_equal(misses(DISK_MISS_ABSENT), 3);
}

/* Computing is faster than any disk: neither written nor read. */
static void not_worth_it(void **state)
{
	struct seq s = {0};
	(void)state;
	put_away(1, 7, 3);
	cost_init(&x.cost, 1, 1);
	assert_false(look(&s, 1, 7));
	assert_int_equal(misses(DISK_MISS_SLOW), 1);
	put_away(2, 7, 3);
	assert_int_equal(atomic_load(&disk_tier_stats(x.tier)->written), TEXT / PAGE);
}

/* A reader that is busy with something else until the test lets it go. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static struct disk_read blocker;
static atomic_bool blocking;

static void block(struct disk_read *r)
{
	(void)r;
	atomic_store(&blocking, true);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

static void block_reader(void)
{
	pthread_mutex_lock(&gate);
	atomic_store(&blocking, false);
	blocker = (struct disk_read){.done = block};
	assert_int_equal(disk_tier_read(x.tier, &blocker), 0);
	while (!atomic_load(&blocking))
		usleep(100);
}

static void late(void **state)
{
	struct seq s[2] = {0};
	(void)state;
	put_away(1, 7, 3);
	/* Before it has begun. */
	assert_true(look(&s[0], 1, 7));
	assert_true(kv_disk_tick(x.d, UINT64_MAX - 1));
	assert_ptr_equal(prefix_woken(x.t), &s[0].waiter);
	assert_int_equal(misses(DISK_MISS_LATE), 1);
	assert_false(kv_disk_loading(x.d));
	/* While the disk is slow. */
	s[0] = (struct seq){0};
	block_reader();
	assert_true(look(&s[0], 1, 7));
	assert_false(kv_disk_tick(x.d, 2));
	assert_int_equal(kv_pool_n_free(x.pool), N_PAGES - REUSED);
	assert_true(kv_disk_holds(x.d, 0));
	assert_true(kv_disk_tick(x.d, UINT64_MAX - 1));
	assert_ptr_equal(prefix_woken(x.t), &s[0].waiter);
	assert_int_equal(misses(DISK_MISS_LATE), 2);
	/* Nobody waits for it any more. */
	assert_false(look(&s[0], 1, 7));
	assert_false(look(&s[1], 1, 7));
	compute(1, 7, 3);
	pthread_mutex_unlock(&gate);
	while (kv_disk_loading(x.d)) {
		(void)kv_disk_tick(x.d, 3);
		usleep(100);
	}
	prefix_validate(x.t);
	assert_int_equal(kv_pool_n_free(x.pool), N_PAGES - TEXT / PAGE);
}

static void joined(void **state)
{
	struct seq s[3] = {0};
	(void)state;
	put_away(1, 7, 3);
	block_reader();
	assert_true(look(&s[0], 1, 7));
	assert_false(kv_disk_tick(x.d, 2));
	assert_true(look(&s[1], 1, 7));
	assert_true(look(&s[2], 1, 7));
	list_remove(&s[1].waiter.link); /* it was cancelled */
	pthread_mutex_unlock(&gate);
	tick_until_woken();
	assert_ptr_equal(prefix_woken(x.t), &s[0].waiter);
	assert_ptr_equal(prefix_woken(x.t), &s[2].waiter);
	assert_null(prefix_woken(x.t));
	assert_int_equal(atomic_load(&disk_tier_stats(x.tier)->hits), REUSED);
}

/* No page is free: those of other texts make room, but not those of the text itself. */
static void scarce(void **state)
{
	struct seq s = {0};
	(void)state;
	put_away(1, 7, 3);
	compute(2, 7, 3);
	compute(3, 7, 3);
	assert_true(look(&s, 1, 7));
	tick_until_woken();
	assert_int_equal(in_memory(1, 7), REUSED);
	assert_true(in_memory(2, 7) < REUSED);
	(void)prefix_woken(x.t);
	/* All are held. */
	evict_all();
	int32_t held[N_PAGES];
	for (int i = 0; i < N_PAGES; i++)
		assert_int_equal(kv_page_alloc(x.pool, &held[i]), 0);
	s = (struct seq){0};
	assert_false(look(&s, 1, 7));
	assert_int_equal(misses(DISK_MISS_BUSY), 1);
	for (int i = 0; i < N_PAGES; i++)
		kv_page_unref(x.pool, held[i]);
}

static void forgotten(void **state)
{
	struct seq s = {0};
	(void)state;
	compute(1, 7, 3);
	compute(2, 8, 4);
	kv_disk_forget(x.d, 3, false);
	assert_int_equal(in_memory(1, 7), 0);
	assert_int_equal(in_memory(2, 8), REUSED);
	(void)kv_disk_tick(x.d, 1);
	evict_all();
	assert_int_equal(atomic_load(&disk_tier_stats(x.tier)->written), TEXT / PAGE);
	/* A load for it is dropped. */
	put_away(1, 7, 3);
	assert_true(look(&s, 1, 7));
	kv_disk_forget(x.d, 0, true);
	tick_until_woken();
	assert_int_equal(in_memory(1, 7), 0);
	(void)prefix_woken(x.t);
}

/* A path that began before is not written when it ends; one that began later is. */
static void forgotten_in_use(void **state)
{
	struct prefix_path before = {0};
	int32_t pages[ROW];
	uint32_t n_pages;
	(void)state;
	compute(1, 7, 3);
	(void)prefix_begin(x.t, 7, text_of(1), TEXT, 0, &before, pages, &n_pages);
	kv_disk_forget(x.d, 3, false);
	prefix_end(x.t, &before, text_of(1), REUSED * PAGE, pages);
	for (uint32_t i = 0; i < n_pages; i++)
		kv_page_unref(x.pool, pages[i]);
	(void)kv_disk_tick(x.d, 1);
	disk_tier_settle(x.tier);
	assert_int_equal(atomic_load(&disk_tier_stats(x.tier)->written), 0);
	compute(1, 7, 3);
	(void)kv_disk_tick(x.d, 1);
	evict_all();
	assert_int_equal(atomic_load(&disk_tier_stats(x.tier)->written), TEXT / PAGE);
}

/* What was not written when the engine ends is, as far as the queue takes it. */
static void written_at_the_end(void **state)
{
	struct seq s = {0};
	(void)state;
	compute(1, 7, 3);
	close_disk();
	evict_all();
	open_disk();
	assert_true(look(&s, 1, 7));
	tick_until_woken();
	assert_int_equal(in_memory(1, 7), REUSED);
	(void)prefix_woken(x.t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(loads),
					   TEST(keys),
					   TEST(not_worth_it),
					   TEST(late),
					   TEST(joined),
					   TEST(scarce),
					   TEST(forgotten),
					   TEST(forgotten_in_use),
					   TEST(written_at_the_end)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
