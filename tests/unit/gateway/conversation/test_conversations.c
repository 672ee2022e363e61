/* SPDX-License-Identifier: Apache-2.0
 *
 * The procedures that keep conversations: what each means, over memory and a real redis-server, and on
 * random traces that both answer alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "gateway/conversation/conversation.h"
#include "gateway/server/gateway_procs.h"
#include "tests/support/cache_rig.h"
#include "tests/support/redis_server.h"

enum { TRACES = 40, STEPS = 60, LEASE_MS = 1000, KEEP_MS = 3600000 };

static struct redis_server server;
static struct gw_config cfg = {
    .conversations = {.keep_ms = KEEP_MS, .per_tenant = 3, .bytes = 4096, .tenant_bytes = 600}};

/* One store of a kind, and what it said last. */
struct world {
	struct rig g;
	struct answer a;
	struct conversation_answer said;
	char text[4096]; /* of it all, to be compared */
};

static void open_world(struct world *w, bool redis)
{
	memset(w, 0, sizeof *w);
	rig_init(&w->g);
	if (redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w->g, gateway_procs, GATEWAY_PROCS);
	if (redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
}

static void close_world(struct world *w)
{
	answer_reset(&w->a);
	rig_close(&w->g);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The lines of a list come in any order. */
static void sort_lines(char *text)
{
	char copy[sizeof((struct world *)0)->text], *lines[64], *rest = copy;
	size_t n = 0;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *line; n < 64 && (line = strsep(&rest, "\n")) != NULL;)
		lines[n++] = line;
	qsort(lines, n, sizeof *lines, by_text);
	text[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		strcat(text, lines[i]);
		strcat(text, "\n");
	}
}

static int wait_for(struct world *w)
{
	const struct cache_result *r = rig_wait(&w->g, &w->a);
	conversation_answer_read(r, &w->said);
	int n = snprintf(w->text, sizeof w->text, "%d", r->code);
	for (size_t i = 0; i < r->n_values; i++)
		n += r->values[i].p == NULL
			 ? snprintf(w->text + n, sizeof w->text - (size_t)n, "|%lld", (long long)r->values[i].i)
			 : snprintf(w->text + n, sizeof w->text - (size_t)n, "|%.*s", (int)r->values[i].n,
				    (const char *)r->values[i].p);
	return w->said.what;
}

static struct conversation_ref ref_of(struct world *w, const char *id)
{
	answer_reset(&w->a);
	return (struct conversation_ref){w->g.cl, 7, id};
}

static int ask(struct world *w, const char *id)
{
	struct conversation_ref c = ref_of(w, id);
	conversation_ask(&c, &w->a.op, on_answer);
	return wait_for(w);
}

static int take(struct world *w, const char *id, const char *token, const char *name, bool quiet)
{
	struct conversation_ref c = ref_of(w, id);
	conversation_take(&c, &w->a.op, token, LEASE_MS, name, quiet, on_answer);
	return wait_for(w);
}

static int let(struct world *w, const char *id, const char *token, const char *name)
{
	struct conversation_ref c = ref_of(w, id);
	conversation_let(&c, &w->a.op, token, name, on_answer);
	return wait_for(w);
}

static int save(struct world *w, const char *id, const char *token, uint64_t rev, const char *text, bool bounded)
{
	struct conversation_ref c = ref_of(w, id);
	json_t *doc = json_pack("{s:s, s:i, s:{}, s:[s]}", "id", id, "created_at", 5, "metadata", "items", text);
	const struct conversation_change change = {.token = token, .rev = rev, .doc = doc, .bounded = bounded};
	assert_int_equal(conversation_save(&c, &cfg, &w->a.op, &change, on_answer), 0);
	json_decref(doc);
	return wait_for(w);
}

static int forget(struct world *w, const char *id)
{
	struct conversation_ref c = ref_of(w, id);
	conversation_forget(&c, &w->a.op, on_answer);
	return wait_for(w);
}

static int all(struct world *w)
{
	(void)ref_of(w, "");
	conversation_all(w->g.cl, &w->a.op, 7, on_answer);
	int what = wait_for(w);
	sort_lines(w->text);
	return what;
}

/* ---- what each means ---- */

static void a_turn(struct world *w)
{
	assert_int_equal(ask(w, "a"), CONVERSATION_GONE);
	assert_int_equal(save(w, "a", NULL, 0, "one", true), CONVERSATION_OK);
	assert_int_equal(w->said.rev, 1);
	assert_int_equal(save(w, "a", NULL, 0, "again", true), CONVERSATION_CHANGED);
	assert_int_equal(save(w, "a", NULL, 2, "wrong", true), CONVERSATION_CHANGED);
	assert_int_equal(take(w, "a", "t1", "resp_1", false), CONVERSATION_OK);
	assert_int_equal(w->said.rev, 1);
	assert_non_null(strstr(w->text, "\"one\""));
	/* Held: nobody else may take or change it; reading goes on. */
	assert_int_equal(take(w, "a", "t2", "resp_2", false), CONVERSATION_HELD);
	assert_int_equal(w->said.left_us, LEASE_MS * 1000);
	assert_int_equal(save(w, "a", NULL, 1, "two", true), CONVERSATION_HELD);
	assert_int_equal(ask(w, "a"), CONVERSATION_OK);
	assert_int_equal(w->said.n_made, 7);
	assert_memory_equal(w->said.made, "resp_1\n", 7);
	/* Renewed, then added: free, and the next revision. */
	w->g.now_us += LEASE_MS * 900;
	assert_int_equal(take(w, "a", "t1", NULL, true), CONVERSATION_OK);
	assert_int_equal(w->a.r.n_values, 2);
	w->g.now_us += LEASE_MS * 900;
	assert_int_equal(take(w, "a", "t2", "resp_2", false), CONVERSATION_HELD);
	assert_int_equal(save(w, "a", "t1", 1, "two", false), CONVERSATION_OK);
	assert_int_equal(w->said.rev, 2);
	assert_int_equal(save(w, "a", "t1", 2, "three", false), CONVERSATION_HELD);
	/* What came of nothing takes its name back, unless others came after it. */
	assert_int_equal(take(w, "a", "t3", "resp_3", false), CONVERSATION_OK);
	assert_int_equal(let(w, "a", "tx", "resp_3"), CONVERSATION_HELD);
	assert_int_equal(let(w, "a", "t3", "resp_3"), CONVERSATION_OK);
	assert_int_equal(ask(w, "a"), CONVERSATION_OK);
	assert_int_equal(w->said.n_made, 7);
	assert_int_equal(forget(w, "a"), CONVERSATION_OK);
	assert_string_equal(w->text, "0|0|resp_1\n");
	assert_int_equal(forget(w, "a"), CONVERSATION_GONE);
	assert_int_equal(take(w, "a", "t1", "r", false), CONVERSATION_GONE);
	assert_int_equal(let(w, "a", "t1", "r"), CONVERSATION_GONE);
	assert_int_equal(save(w, "a", "t1", 2, "late", false), CONVERSATION_GONE);
}

/* A holder that slept longer than its lease changes nothing once another one has come. */
static void a_lease_that_ended(struct world *w)
{
	assert_int_equal(save(w, "a", NULL, 0, "one", true), CONVERSATION_OK);
	assert_int_equal(take(w, "a", "t1", "resp_1", false), CONVERSATION_OK);
	w->g.now_us += LEASE_MS * 1000 + 1;
	assert_int_equal(take(w, "a", "t2", "resp_2", false), CONVERSATION_OK);
	assert_int_equal(save(w, "a", "t1", 1, "late", false), CONVERSATION_HELD);
	assert_int_equal(take(w, "a", "t1", NULL, true), CONVERSATION_HELD);
	assert_int_equal(save(w, "a", "t2", 1, "two", false), CONVERSATION_OK);
	assert_int_equal(ask(w, "a"), CONVERSATION_OK);
	assert_non_null(strstr(w->text, "\"two\""));
	assert_non_null(strstr(w->text, "resp_1\nresp_2\n"));
}

/* A clock that was half an hour ahead: who held it then keeps nobody out for longer than the longest lease. */
static void a_hold_of_a_clock_that_went_back(struct world *w)
{
	const uint64_t ahead_us = UINT64_C(1800000000);
	assert_int_equal(save(w, "a", NULL, 0, "one", true), CONVERSATION_OK);
	w->g.now_us += ahead_us;
	assert_int_equal(take(w, "a", "t1", "resp_1", false), CONVERSATION_OK);
	w->g.now_us -= ahead_us;
	for (int i = 0; i < 10; i++) { /* asking does not hold it up */
		assert_int_equal(take(w, "a", "t2", "resp_2", false), CONVERSATION_HELD);
		assert_int_equal(w->said.left_us, CONVERSATION_LEASE_US - i * 2000000);
		assert_int_equal(ask(w, "a"), CONVERSATION_OK);
		w->g.now_us += 2000000;
	}
	assert_int_equal(take(w, "a", "t2", "resp_2", false), CONVERSATION_OK);
	assert_int_equal(save(w, "a", "t1", 1, "late", false), CONVERSATION_HELD);
	/* Its holder goes on where it lives. */
	w->g.now_us -= ahead_us;
	assert_int_equal(save(w, "a", "t2", 1, "two", false), CONVERSATION_OK);
}

static void bounds(struct world *w)
{
	char id[2] = "a", long_text[700];
	memset(long_text, 'x', sizeof long_text);
	long_text[sizeof long_text - 1] = '\0';
	assert_int_equal(save(w, "a", NULL, 0, long_text, true), CONVERSATION_TOO_LARGE);
	assert_int_equal(all(w), CONVERSATION_OK);
	assert_int_equal(w->said.n_doc, 0);
	for (; id[0] < 'd'; id[0]++)
		assert_int_equal(save(w, id, NULL, 0, "x", true), CONVERSATION_OK);
	assert_int_equal(save(w, "d", NULL, 0, "x", true), CONVERSATION_TOO_MANY);
	assert_int_equal(save(w, "a", NULL, 1, "y", true), CONVERSATION_OK);
	/* The end of a turn is never lost to a bound of the tenant's. */
	assert_int_equal(save(w, "b", NULL, 1, long_text, true), CONVERSATION_TOO_LARGE);
	assert_int_equal(take(w, "b", "t", "r", true), CONVERSATION_OK);
	assert_int_equal(save(w, "b", "t", 1, long_text, false), CONVERSATION_OK);
	assert_int_equal(all(w), CONVERSATION_OK);
	assert_int_equal(forget(w, "b"), CONVERSATION_OK);
	assert_int_equal(save(w, "d", NULL, 0, "x", true), CONVERSATION_OK);
	for (id[0] = 'a'; id[0] <= 'd'; id[0]++)
		(void)forget(w, id);
	assert_int_equal(all(w), CONVERSATION_OK);
	assert_int_equal(w->said.n_doc, 0);
}

/* So many responses that their names find no room. */
static void full(struct world *w)
{
	char name[60];
	memset(name, 'r', sizeof name);
	name[sizeof name - 1] = '\0';
	assert_int_equal(save(w, "a", NULL, 0, "one", true), CONVERSATION_OK);
	int n = 0, what;
	while ((what = take(w, "a", "t", name, true)) == CONVERSATION_OK && n < CONVERSATION_MADE_BYTES / 60 + 2)
		n++;
	assert_int_equal(what, CONVERSATION_FULL);
	assert_int_equal(n, CONVERSATION_MADE_BYTES / 60);
	assert_int_equal(let(w, "a", "t", name), CONVERSATION_OK);
	assert_int_equal(take(w, "a", "t", name, true), CONVERSATION_OK);
}

static void in_memory(void (*test)(struct world *w))
{
	struct world w;
	open_world(&w, false);
	test(&w);
	close_world(&w);
}

static void in_redis(void (*test)(struct world *w))
{
	struct world w;
	if (server.pid == 0)
		skip();
	open_world(&w, true);
	test(&w);
	close_world(&w);
}

#define BOTH(name)                                 \
	static void name##_in_memory(void **state) \
	{                                          \
		(void)state;                       \
		in_memory(name);                   \
	}                                          \
	static void name##_in_redis(void **state)  \
	{                                          \
		(void)state;                       \
		in_redis(name);                    \
	}
BOTH(a_turn)
BOTH(a_lease_that_ended)
BOTH(a_hold_of_a_clock_that_went_back)
BOTH(bounds)
BOTH(full)

/* What has ended by time is no longer counted; only memory's clock is the test's. */
static void ended_ones_are_not_counted(void **state)
{
	(void)state;
	struct world w;
	open_world(&w, false);
	assert_int_equal(save(&w, "a", NULL, 0, "x", true), CONVERSATION_OK);
	w.g.now_us += (uint64_t)KEEP_MS * 500;
	assert_int_equal(save(&w, "b", NULL, 0, "x", true), CONVERSATION_OK);
	assert_int_equal(save(&w, "c", NULL, 0, "x", true), CONVERSATION_OK);
	w.g.now_us += (uint64_t)KEEP_MS * 500 + 1;
	assert_int_equal(ask(&w, "a"), CONVERSATION_GONE);
	assert_int_equal(save(&w, "d", NULL, 0, "x", true), CONVERSATION_OK);
	assert_int_equal(all(&w), CONVERSATION_OK);
	assert_null(strstr(w.text, "a 5 "));
	assert_non_null(strstr(w.text, "b 5 "));
	close_world(&w);
}

/* ---- traces ---- */

static unsigned long long dice;
static unsigned roll(unsigned n)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(dice >> 33) % n;
}

struct step {
	unsigned what, id, token, name, rev, text, quiet;
	uint64_t pass_us;
};

static void do_step(struct world *w, const struct step *s)
{
	static const char *const ids[] = {"a", "b", "c", "d"}, *const tokens[] = {"t0", "t1", "t2"},
				 *const names[] = {"", "r0", "r1", "r22"};
	char text[200];
	memset(text, 'x', s->text);
	text[s->text] = '\0';
	w->g.now_us += s->pass_us;
	switch (s->what) {
	case 0: ask(w, ids[s->id]); break;
	case 1:
	case 2: take(w, ids[s->id], tokens[s->token], names[s->name], s->quiet); break;
	case 3: let(w, ids[s->id], tokens[s->token], names[s->name]); break;
	case 4: save(w, ids[s->id], NULL, s->rev, text, true); break;
	case 5: save(w, ids[s->id], tokens[s->token], s->rev + 1, text, s->quiet); break;
	case 6: all(w); break;
	default: s->quiet && s->token == 0 ? forget(w, ids[s->id]) : ask(w, ids[s->id]); break;
	}
}

static void both_answer_alike(void **state)
{
	(void)state;
	struct world memory, redis;
	if (server.pid == 0)
		skip();
	for (unsigned trace = 0; trace < TRACES; trace++) {
		dice = trace;
		open_world(&memory, false);
		open_world(&redis, true);
		for (unsigned i = 0; i < STEPS; i++) {
			const struct step s = {roll(8), roll(4),   roll(3), roll(4),
					       roll(4), roll(200), roll(2), roll(4) == 0 ? LEASE_MS * 600 : 0};
			do_step(&memory, &s);
			do_step(&redis, &s);
			if (strcmp(memory.text, redis.text) != 0)
				fail_msg("trace %u, step %u (%u): memory says %s, redis says %s", trace, i, s.what,
					 memory.text, redis.text);
		}
		close_world(&memory);
		close_world(&redis);
	}
}

static int start(void **state)
{
	(void)state;
	if (redis_server_installed())
		redis_server_start(&server, NULL);
	if (server.pid != 0)
		snprintf(server.address, sizeof server.address, "unix:%s", server.socket);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_turn_in_memory),
	    cmocka_unit_test(a_turn_in_redis),
	    cmocka_unit_test(a_lease_that_ended_in_memory),
	    cmocka_unit_test(a_lease_that_ended_in_redis),
	    cmocka_unit_test(a_hold_of_a_clock_that_went_back_in_memory),
	    cmocka_unit_test(a_hold_of_a_clock_that_went_back_in_redis),
	    cmocka_unit_test(bounds_in_memory),
	    cmocka_unit_test(bounds_in_redis),
	    cmocka_unit_test(full_in_memory),
	    cmocka_unit_test(full_in_redis),
	    cmocka_unit_test(ended_ones_are_not_counted),
	    cmocka_unit_test(both_answer_alike),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, start, stop);
}
