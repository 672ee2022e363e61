/* SPDX-License-Identifier: Apache-2.0
 *
 * What a gateway knows of the prefixes that an engine has: digests of borders, and the table that follows an engine's
 * changes, against a plain list.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/generation/prefix_view.h"

enum { TEXT = 700 << 10, SECOND = 1000000000 };

static char text[TEXT];

static void fill_text(void)
{
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (char)('a' + i * i % 23);
}

static struct prefix_digests digests_of(size_t n)
{
	struct prefix_digests d;
	prefix_digests_make(PROTO_PROMPT_CHAT, (struct proto_str){text, n}, &d);
	return d;
}

static void borders_do_not_depend_on_what_follows(void **state)
{
	(void)state;
	fill_text();
	struct prefix_digests whole = digests_of(TEXT), part = digests_of(5000);
	assert_int_equal(digests_of(255).n, 0);
	assert_int_equal(digests_of(256).n, 1);
	assert_int_equal(part.n, 5000 / 256);
	assert_memory_equal(part.of, whole.of, part.n * sizeof *part.of);
	assert_int_equal(whole.n, PREFIX_DIGEST_MAX);
	assert_int_equal(prefix_digest_border(127), 32 << 10);
	assert_int_equal(prefix_digest_border(128), (32 << 10) + 4096);
	/* A change in a byte changes all borders behind it and none before. */
	text[1000] ^= 1;
	struct prefix_digests other = digests_of(5000);
	assert_memory_equal(part.of, other.of, 3 * sizeof *part.of);
	for (uint32_t i = 3; i < part.n; i++)
		assert_true(part.of[i] != other.of[i]);
	text[1000] ^= 1;
	struct prefix_digests plain;
	prefix_digests_make(PROTO_PROMPT_TEXT, (struct proto_str){text, 5000}, &plain);
	assert_true(plain.of[0] != part.of[0]);
}

/* Feeds changes as they come from an engine. */
static void take(struct prefix_view *v, bool anew, const uint64_t *changes, uint16_t n)
{
	struct sl_buf b;
	struct proto_prefixes m;
	struct sl_err err;
	buf_init(&b, 1 << 20);
	assert_int_equal(proto_put_prefixes(&b, &(struct proto_prefixes){.anew = anew, .n = n, .changes = changes}), 0);
	assert_int_equal(proto_get_prefixes(buf_data(&b) + PROTO_HEAD_BYTES, b.len - PROTO_HEAD_BYTES, &m, &err), 0);
	prefix_view_take(v, &m);
	buf_dispose(&b);
}

static void the_last_border_there_counts(void **state)
{
	(void)state;
	struct prefix_view v = {.n = 0};
	struct prefix_digests d = digests_of(1000);
	const struct prefix_whose mine = {.model = 2, .tenant = 7}, theirs = {.model = 2, .tenant = 8},
				  other = {.model = 3, .tenant = 7}, salted = {2, 7, 1};
	assert_true(prefix_view_cached(&v, &d, &mine) == 0);
	uint64_t first = prefix_digest_salted(d.of[0], 2, 7, 0), third = prefix_digest_salted(d.of[2], 2, 7, 0);
	take(&v, false, (const uint64_t[]){first | 1}, 1);
	assert_true(prefix_view_cached(&v, &d, &mine) == 0.256);
	take(&v, false, (const uint64_t[]){third | 1}, 1);
	assert_true(prefix_view_cached(&v, &d, &mine) == 0.768);
	assert_true(prefix_view_cached(&v, &d, &theirs) == 0);
	assert_true(prefix_view_cached(&v, &d, &other) == 0);
	assert_true(prefix_view_cached(&v, &d, &salted) == 0);
	take(&v, false, (const uint64_t[]){third}, 1);
	assert_true(prefix_view_cached(&v, &d, &mine) == 0.256);
	/* An engine that shares prefixes publishes without the tenant. */
	take(&v, true, (const uint64_t[]){prefix_digest_salted(d.of[1], 2, 0, 0) | 1}, 1);
	assert_true(prefix_view_cached(&v, &d, &mine) == 0.512 && prefix_view_cached(&v, &d, &theirs) == 0.512);
	prefix_view_clear(&v);
	assert_true(prefix_view_cached(&v, &d, &mine) == 0 && v.n == 0);
	prefix_view_dispose(&v);
}

static void it_follows_any_changes(void **state)
{
	(void)state;
	enum { DIGESTS = 3000, CHANGES = 20000 };
	struct prefix_view v = {.n = 0};
	struct prefix_digests d = digests_of(300);
	static bool there[DIGESTS];
	static uint64_t digest[DIGESTS];
	size_t n = 0;
	srand(27);
	for (uint64_t i = 0; i < DIGESTS; i++)
		digest[i] = prefix_digest_salted(d.of[0], 1, i + 1, 0);
	for (int i = 0; i < CHANGES; i++) {
		int k = rand() % DIGESTS;
		bool comes = rand() % 3 > 0;
		take(&v, false, (const uint64_t[]){digest[k] | comes}, 1);
		n += comes && !there[k];
		n -= !comes && there[k];
		there[k] = comes;
		assert_int_equal(v.n, n);
	}
	for (uint64_t i = 0; i < DIGESTS; i++) {
		const struct prefix_whose whose = {.model = 1, .tenant = i + 1};
		assert_int_equal(prefix_view_cached(&v, &d, &whose) > 0, there[i]);
	}
	prefix_view_dispose(&v);
}

static void it_is_bounded(void **state)
{
	(void)state;
	struct prefix_view v = {.n = 0};
	static uint64_t changes[PROTO_MAX_PREFIXES];
	for (uint64_t at = 2; at < 3 * (uint64_t)PROTO_PREFIXES_KEPT;) {
		for (int i = 0; i < PROTO_MAX_PREFIXES; i++, at += 2)
			changes[i] = (at * 0x9E3779B97F4A7C15u) | 1;
		take(&v, false, changes, PROTO_MAX_PREFIXES);
	}
	assert_int_equal(v.n, PROTO_PREFIXES_KEPT);
	take(&v, false, (const uint64_t[]){1, 0}, 2); /* no digest */
	assert_int_equal(v.n, PROTO_PREFIXES_KEPT);
	take(&v, true, NULL, 0);
	assert_int_equal(v.n, 0);
	prefix_view_dispose(&v);
}

static void what_was_sent_lately_fades(void **state)
{
	(void)state;
	struct prefix_view v = {.n = 0};
	struct prefix_digests d = digests_of(1024), longer = digests_of(2048);
	const struct prefix_whose mine = {.tenant = 7}, theirs = {.tenant = 8};
	const uint64_t now = 100 * (uint64_t)SECOND, window = 10 * (uint64_t)SECOND;
	assert_true(prefix_view_recent(&v, &d, &mine, now, window) == 0);
	prefix_view_send(&v, &d, &mine, now);
	assert_true(prefix_view_recent(&v, &d, &mine, now, window) == 1);
	assert_true(prefix_view_recent(&v, &d, &theirs, now, window) == 0);
	assert_true(prefix_view_recent(&v, &longer, &mine, now, window) == 0.5);
	assert_true(prefix_view_recent(&v, &longer, &mine, now + 5 * (uint64_t)SECOND, window) == 0.25);
	assert_true(prefix_view_recent(&v, &d, &mine, now + window, window) == 0);
	/* It came and has gone: it is not being computed. */
	uint64_t last = prefix_digest_salted(d.of[3], 0, 7, 0);
	take(&v, false, (const uint64_t[]){last | 1, last}, 2);
	assert_true(prefix_view_recent(&v, &d, &mine, now, window) == 0.75);
	prefix_view_dispose(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(borders_do_not_depend_on_what_follows),
	    cmocka_unit_test(the_last_border_there_counts),
	    cmocka_unit_test(it_follows_any_changes),
	    cmocka_unit_test(it_is_bounded),
	    cmocka_unit_test(what_was_sent_lately_fades),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
