/* SPDX-License-Identifier: Apache-2.0
 *
 * The book of prefixes: what readers see of it, and that a digest enters with the pages of its text and leaves with
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/kv/prefix.h"
#include "engine/kv/prefix_book.h"

enum { PAGE = 4, ROW = 32, TOKENS = 64, PAGES = 14 };

/* ---- a reader that keeps what it was told ---- */

struct reader {
	uint64_t cursor, all[4096];
	size_t n, n_anew;
};

static void forget(struct reader *r, uint64_t digest)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->all[i] == digest) {
			r->all[i] = r->all[--r->n];
			return;
		}
	fail_msg("a digest left that had not entered");
}

static bool has(const struct reader *r, uint64_t digest)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->all[i] == digest)
			return true;
	return false;
}

static void read_book(struct reader *r, struct prefix_book *b)
{
	uint64_t *changes;
	size_t n;
	bool anew;
	assert_int_equal(prefix_book_read(b, &r->cursor, &anew, &changes, &n), 0);
	if (anew) {
		r->n = 0;
		r->n_anew++;
	}
	for (size_t i = 0; i < n; i++) {
		if ((changes[i] & 1) == 0) {
			forget(r, changes[i]);
		} else {
			assert_false(has(r, changes[i] - 1));
			r->all[r->n++] = changes[i] - 1;
		}
	}
	sl_free(changes);
}

static uint64_t digest(uint64_t i) { return prefix_digest_salted(i, 0, 1, 0); }

static void readers_follow_at_any_pace(void **state)
{
	(void)state;
	enum { DIGESTS = 500, CHANGES = 30000 };
	struct prefix_book *b = prefix_book_create();
	static struct reader often, rarely;
	static bool there[DIGESTS];
	size_t n = 0;
	srand(7);
	for (int i = 0; i < CHANGES; i++) {
		int k = rand() % DIGESTS;
		if (there[k])
			prefix_book_drop(b, digest((uint64_t)k));
		else
			assert_true(prefix_book_add(b, digest((uint64_t)k)));
		there[k] = !there[k];
		n = there[k] ? n + 1 : n - 1;
		if (rand() % 50 == 0)
			read_book(&often, b);
		if (rand() % 12000 == 0)
			read_book(&rarely, b);
	}
	read_book(&often, b);
	read_book(&rarely, b);
	assert_int_equal(often.n_anew, 0);
	assert_true(rarely.n_anew > 0);
	assert_int_equal(often.n, n);
	assert_int_equal(rarely.n, n);
	for (uint64_t k = 0; k < DIGESTS; k++) {
		assert_int_equal(has(&often, digest(k)), there[k]);
		assert_int_equal(has(&rarely, digest(k)), there[k]);
		if (there[k])
			prefix_book_drop(b, digest(k));
	}
	prefix_book_destroy(b);
}

static void it_is_bounded(void **state)
{
	(void)state;
	struct prefix_book *b = prefix_book_create();
	for (uint64_t i = 0; i < PROTO_PREFIXES_KEPT; i++)
		assert_true(prefix_book_add(b, digest(i)));
	assert_false(prefix_book_add(b, digest(PROTO_PREFIXES_KEPT)));
	prefix_book_drop(b, digest(5));
	assert_true(prefix_book_add(b, digest(PROTO_PREFIXES_KEPT)));
	assert_false(prefix_book_add(b, digest(6))); /* there already */
	prefix_book_drop(b, digest(PROTO_PREFIXES_KEPT));
	for (uint64_t i = 0; i < PROTO_PREFIXES_KEPT; i++)
		if (i != 5)
			prefix_book_drop(b, digest(i));
	prefix_book_destroy(b);
}

/* ---- with a tree ---- */

struct bench {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct kv_pool *pool;
	struct prefix_tree *t;
	struct prefix_book *book;
};

static void bench_open(struct bench *x)
{
	static const struct kv_groups one = {.page_tokens = PAGE, .n_groups = 1, .n_full = 1, .n_layers = 1};
	struct sl_err err;
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 8};
	x->ops = kn_select("cpu-ref", &err);
	assert_int_equal(x->ops->open(&kc, &x->b, &err), 0);
	assert_int_equal(kv_pool_create(x->ops, x->b, KN_F32, PAGES, PAGE, 1, 1, 2, &x->pool, &err), 0);
	kv_pool_set_groups(x->pool, &one, NULL);
	assert_int_equal(prefix_create(x->pool, ROW, &x->t), 0);
	x->book = prefix_book_create();
	prefix_set_book(x->t, x->book);
}

static void bench_close(struct bench *x)
{
	prefix_destroy(x->t);
	prefix_book_destroy(x->book); /* all has left it with its pages */
	kv_pool_destroy(x->pool);
	x->ops->close(x->b);
}

/* A prompt of n_bytes, 64 of which are a token, whose first n_alike bytes are those of all; computed and ended. */
static void run_prompt(struct bench *x, size_t n_bytes, size_t n_alike, uint64_t tenant, char mine)
{
	static char text[64 * TOKENS];
	struct prefix_path path = {.n_pages = 0};
	int32_t tokens[TOKENS], pages[ROW];
	uint32_t n = (uint32_t)(n_bytes / 64), n_pages;
	memset(text, 'a', sizeof text);
	memset(text + n_alike, mine, sizeof text - n_alike);
	for (uint32_t i = 0; i < n; i++)
		tokens[i] = (unsigned char)text[64 * i];
	struct proto_submit s = {.tenant = tenant, .prompt = {text, n_bytes}};
	struct prefix_text *borders = prefix_text_create(&s, false);
	uint32_t done = prefix_begin(x->t, tenant, tokens, n, n, &path, pages, &n_pages);
	for (uint32_t i = done / PAGE; i < (n + PAGE - 1) / PAGE; i++)
		if (i >= n_pages) {
			assert_int_equal(prefix_page_alloc(x->t, &pages[i]), 0);
			n_pages++;
		}
	prefix_computed(x->t, &path, tokens, n, pages);
	if (borders != NULL)
		prefix_mark(x->t, &path, n, borders);
	prefix_end(x->t, &path, tokens, n, pages);
	for (uint32_t i = 0; i < n_pages; i++)
		kv_page_unref(x->pool, pages[i]);
	sl_free(borders);
}

static uint64_t border(size_t n_bytes, size_t n_alike, uint64_t tenant, char mine, uint32_t i)
{
	static char text[64 * TOKENS];
	struct prefix_digests d;
	memset(text, 'a', sizeof text);
	memset(text + n_alike, mine, sizeof text - n_alike);
	prefix_digests_make(0, (struct proto_str){text, n_bytes}, &d);
	return prefix_digest_salted(d.of[i], 0, tenant, 0);
}

static void a_digest_lives_as_long_as_its_page(void **state)
{
	(void)state;
	struct bench x;
	struct reader r = {.n = 0};
	bench_open(&x);
	run_prompt(&x, 1024, 1024, 1, 'a'); /* 16 tokens: 4 pages, a border in each */
	read_book(&r, x.book);
	assert_int_equal(r.n, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(has(&r, border(1024, 1024, 1, 'a', i)));
	/* One that begins alike adds what is its own; another tenant's is another one. */
	run_prompt(&x, 1024, 512, 1, 'b');
	read_book(&r, x.book);
	assert_int_equal(r.n, 6);
	assert_true(has(&r, border(1024, 512, 1, 'b', 3)));
	run_prompt(&x, 1024, 1024, 2, 'a');
	read_book(&r, x.book);
	assert_int_equal(r.n, 10);
	/* Under pressure those that were used longest ago leave with their pages. */
	run_prompt(&x, 64 * 40, 0, 3, 'c');
	read_book(&r, x.book);
	assert_false(has(&r, border(1024, 1024, 1, 'a', 3)));
	assert_true(has(&r, border(64 * 40, 0, 3, 'c', 9)));
	while (prefix_evict(x.t))
		;
	read_book(&r, x.book);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.n_anew, 0);
	bench_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(readers_follow_at_any_pace),
	    cmocka_unit_test(it_is_bounded),
	    cmocka_unit_test(a_digest_lives_as_long_as_its_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
