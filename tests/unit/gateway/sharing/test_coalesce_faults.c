/* SPDX-License-Identifier: Apache-2.0
 *
 * Two requests that share one generation, a newer prompt that ends an older one, and a request that is
 * repeated with its Idempotency-Key, with the nth allocation failing, for every n: each is answered, is
 * refused or breaks off, and afterwards nothing goes on, nothing is counted and nothing is shared.
 */
#include <string.h>

#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "gateway/sharing/coalesce.h"
#include "tests/support/chat_rig.h"

enum { MOST_PASSES = 2000, KEY_BYTES = 64 };

#define CHAT "POST /v1/chat/completions"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const char plain[] = "{\"model\":\"m\"," MESSAGES ",\"user\":\"ann\"}";
static const char streamed[] = "{\"model\":\"m\"," MESSAGES ",\"user\":\"ann\",\"stream\":true}";
static const char other[] = "{\"model\":\"m\"," MESSAGES ",\"user\":\"ann\",\"stream\":true,\"max_tokens\":9}";

static long counter(const char *name)
{
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	const char *p = strstr(buf_cstr(&b), name);
	while (p != NULL && p[-1] != '\n')
		p = strstr(p + 1, name);
	long n = p != NULL ? atol(strchr(p, ' ') + 1) : -1;
	buf_dispose(&b);
	return n;
}

static int set_up(void **state)
{
	assert_int_equal(chat_set_up(state), 0);
	struct chat_rig *c = *state;
	c->tier.concurrency = 4;
	c->tier.coalesce = GW_COALESCE_USER;
	c->tier.supersede = GW_SUPERSEDE_NAMED;
	c->r.cfg.coalescing = (struct gw_coalescing){.window_ms = 0, .idempotency_ms = 60000};
	return 0;
}

static bool quiet(const struct chat_rig *c) { return at_rest(c) && list_empty(&c->app->idempotents); }

static void check_quiet(struct chat_rig *c)
{
	CHAT_UNTIL(c, quiet(c) && n_generations() == 0);
	assert_int_equal(n_running(c), 0);
	assert_int_equal(coalesce_count(c->app->inflight), 0);
}

/* Both at once; what they got, one after the other. */
static void ask_both(struct chat_rig *c, const char *fields, const char *first, const char *second, char got[2][4096])
{
	int a = send_request(c, CHAT, fields, first), b = send_request(c, CHAT, fields, second);
	const int fds[] = {a, b};
	for (int i = 0; i < 2; i++) {
		c->n_answer = 0;
		take_answer(c, fds[i]);
		snprintf(got[i], 4096, "%.4000s", c->answer);
	}
}

static bool is_good(const char *answer)
{
	/* A logged one tells each token by itself. */
	return strstr(answer, "HTTP/1.1 200") == answer &&
	       (strstr(answer, "abc") != NULL || strstr(answer, "\"content\":\"c\"") != NULL ||
		strstr(answer, "superseded") != NULL);
}

static void check_piece(const char *answer)
{
	if (answer[0] == '\0')
		return;
	int status = atoi(answer + 9);
	assert_true(status == 200 || status == 409 || status == 503 || status == 500);
}

/* numbered: with an Idempotency-Key that no request had. */
static void next_fields(char line[KEY_BYTES], const char *fields, bool numbered)
{
	static int keys;
	if (numbered)
		snprintf(line, KEY_BYTES, "%sidempotency-key: k%d\r\n", fields, keys++);
	else
		snprintf(line, KEY_BYTES, "%s", fields);
}

static void sweep(struct chat_rig *c, const char *fields, const char *first, const char *second, bool numbered)
{
	char got[2][4096], line[KEY_BYTES];
	long n = 0, passes;
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app));
		next_fields(line, fields, numbered);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask_both(c, line, first, second, got);
		CHAT_UNTIL(c, quiet(c));
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		check_piece(got[0]);
		check_piece(got[1]);
		check_quiet(c);
	} while (passes >= n);
	CHAT_UNTIL(c, app_ready(c->app));
	next_fields(line, fields, numbered);
	ask_both(c, line, first, second, got);
	if (!is_good(got[0]) || !is_good(got[1]))
		fail_msg("without a fault: %s\n%s", got[0], got[1]);
	check_quiet(c);
	assert_true(n > 20);
	ask(c, CHAT, "", plain);
	assert_true(is_good(c->answer));
	check_quiet(c);
}

static void coalesce_whole(void **state)
{
	long before = counter("sluice_twins_joined_total");
	sweep(*state, "", plain, plain, false);
	assert_true(counter("sluice_twins_joined_total") > before);
}

static void coalesce_streamed(void **state) { sweep(*state, "", streamed, streamed, false); }
static void coalesce_logged(void **state) { sweep(*state, "x-sluice-events: 1\r\n", streamed, streamed, false); }

static void superseded(void **state)
{
	long before = counter("sluice_superseded_total");
	sweep(*state, "x-sluice-conversation: c\r\n", streamed, other, false);
	assert_true(counter("sluice_superseded_total") > before);
}

static void superseded_whole(void **state) { sweep(*state, "x-sluice-conversation: c\r\n", plain, other, false); }

static void repeated(void **state)
{
	long before = counter("sluice_idempotent_replays_total");
	struct chat_rig *c = *state;
	c->tier.coalesce = GW_COALESCE_OFF;
	sweep(c, "", streamed, streamed, true);
	sweep(c, "", plain, plain, true);
	assert_true(counter("sluice_idempotent_replays_total") > before);
}

static void with_the_parser(void **state)
{
	json_mem_install();
	coalesce_streamed(state);
	repeated(state);
	json_set_alloc_funcs(malloc, free);
}

/* The first one's client leaves before anything was told: the second gets all. */
static void a_leader_leaves_before_it_is_admitted(void **state)
{
	struct chat_rig *c = *state;
	for (int turns = 0; turns < 12; turns++) {
		CHAT_UNTIL(c, app_ready(c->app));
		int a = send_request(c, CHAT, "", plain), b = send_request(c, CHAT, "", plain);
		for (int i = 0; i < turns; i++)
			rig_turn(&c->r); /* the engine says nothing meanwhile */
		close(a);
		c->n_answer = 0;
		take_answer(c, b);
		if (!is_good(c->answer))
			fail_msg("after %d turns: %s", turns, c->answer);
		check_quiet(c);
	}
}

/* All leave, at any time. */
static void both_leave(void **state)
{
	struct chat_rig *c = *state;
	for (int turns = 0; turns < 20; turns++) {
		CHAT_UNTIL(c, app_ready(c->app));
		c->silent = turns % 2 == 0;
		int a = send_request(c, CHAT, "", streamed), b = send_request(c, CHAT, "", streamed);
		for (int i = 0; i < turns; i++)
			turn(c);
		close(turns % 4 < 2 ? a : b);
		for (int i = 0; i < turns % 3; i++)
			turn(c);
		close(turns % 4 < 2 ? b : a);
		check_quiet(c);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, chat_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(coalesce_whole),   T(coalesce_streamed), T(coalesce_logged), T(superseded),
	    T(superseded_whole), T(repeated),          T(with_the_parser), T(a_leader_leaves_before_it_is_admitted),
	    T(both_leave),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
