/* SPDX-License-Identifier: Apache-2.0
 *
 * Logged answers of the cascade beside a real redis-server: a decision that the tokens don't tell (here: the budget
 * refuses the large model) is stored before what follows it is told; with the nth allocation failing, with a Redis that
 * hangs or has gone, nobody waits for it for long. And one whose gateway is dead is gone on with by what was stored.
 */
#include <string.h>

#include "base/log.h"
#include "cascade/cascade.h"
#include "gateway/answer/answer.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_store.h"

enum { MOST_PASSES = 2000, VALUE_BYTES = 8192, KEY_BYTES = 256 };

#define CHAT "POST /v1/chat/completions"
#define RESUMABLE "x-sluice-events: 1\r\n"
#define BODY "{\"model\":\"auto\",\"stream\":true,\"seed\":1,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define DEAD "00000000deadbeef"

/* Every request is watched, and no escalation is allowed. */
static struct casc_tier_setting tier = {
    .name = "t", .easy = 0, .race = 1, .hard = 1, .sure = 0.75, .low = 0.5, .drop = 0.4, .share = 0};
static struct casc_settings settings = {.weights = "",
					.hold_tokens = 16,
					.hold_min = 4,
					.hold_ms = 60000,
					.window = 6,
					.smooth = 0.25,
					.w_mean = 0.5,
					.w_min = 0.2,
					.takeover_ms = 60000,
					.floor = 0,
					.fallback = true};

static void prepare(struct chat_rig *c)
{
	struct proto_queued queued = {.n_prompt = 3};
	struct proto_done done = {
	    .finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = FAKE_TOKENS, .message = {"", 0}};
	const struct proto_token t[FAKE_TOKENS] = {{.id = 11, .n_bytes = 1, .logprob = -5},
						   {.id = 12, .n_bytes = 1, .logprob = -5},
						   {.id = 13, .n_bytes = 1, .logprob = -5}};
	struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"ABC", 3}};
	struct proto_verified verified = {.n_agreed = 1, .n_used = 1};
	engine_has_two(c, 7);
	buf_init(&c->queued_other, 4096);
	buf_init(&c->tokens_other, 4096);
	buf_init(&c->done_other, 4096);
	buf_init(&c->verified, 4096);
	assert_int_equal(proto_put_queued(&c->queued_other, 1, &queued), 0);
	assert_int_equal(proto_put_done(&c->done_other, 1, &done), 0);
	assert_int_equal(proto_put_tokens(&c->tokens_other, 1, &tokens), 0);
	assert_int_equal(proto_put_verified(&c->verified, 1, &verified), 0);
}

static int set_up(void **state)
{
	if (!redis_server_installed())
		return 0;
	tier.share = 0;
	settings.tiers = (struct conf_list){.items = &tier, .n = 1};
	chat_cascade = &settings;
	int rc = chat_store_set_up(state);
	prepare(*state);
	return rc;
}

static bool is_up(struct chat_rig *c)
{
	return app_ready(c->app) && engine_link_n_models(c->app->link) == 2 &&
	       cache_client_state(c->r.t.cache) == CACHE_IS_UP;
}

/* Without memory what the cascade did may stay untold. */
static void check_small_alone(struct chat_rig *c, bool is_told)
{
	static const char *const parts[] = {"HTTP/1.1 200",
					    "\"content\":\"A\"",
					    "\"content\":\"B\"",
					    "\"content\":\"C\"",
					    "\"parts\":[{\"model\":\"s\",\"tokens\":3}],\"escalated\":false",
					    "data: [DONE]"};
	const char *at = c->answer;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		const char *found = strstr(at, parts[i]);
		if (found == NULL && (is_told || strstr(parts[i], "parts") == NULL)) {
			fail_msg("no %s in %s", parts[i], c->answer);
			return;
		}
		at = found != NULL ? found : at;
	}
}

static void every_allocation(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	long n = 0, passes, whole = 0;
	json_mem_install();
	do {
		n++;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, is_up(c));
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, CHAT, RESUMABLE, BODY);
		CHAT_UNTIL(c, is_quiet(c));
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (strstr(c->answer, "[DONE]") != NULL) {
			check_small_alone(c, false);
			whole++;
		}
		assert_int_equal(n_running(c), 0);
		CHAT_UNTIL(c, n_generations() == 0);
	} while (passes >= n);
	json_set_alloc_funcs(malloc, free);
	print_message("%ld allocations, %ld times whole all the same\n", n, whole);
	assert_true(n > 50 && whole > 0);
}

/* The head that is stored last says what was decided. */
static void told_once_it_is_stored(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, is_up(c));
	struct sl_buf done = c->done_other;
	buf_init(&c->done_other, 4096); /* it is held: nothing is decided yet */
	int fd = send_request(c, CHAT, RESUMABLE, BODY);
	CHAT_UNTIL(c, c->credited_id != 0 && !list_empty(&c->app->answers));
	struct answer *a = list_entry(c->app->answers.next, struct answer, in_app);
	CHAT_UNTIL(c, a->out.spool != NULL && a->runs[0].cascade != NULL);
	assert_int_equal(cascade_run_past(a->runs[0].cascade)->facts, 0);
	assert_int_equal(gen_n_tokens(a->runs[0].gen), 0);
	/* Its end makes the budget refuse: stored, and then told. */
	buf_dispose(&c->done_other);
	c->done_other = done;
	kill(server.pid, SIGSTOP);
	engine_says(c, &c->done_other, c->other_id);
	CHAT_UNTIL(c, cascade_run_past(a->runs[0].cascade)->facts != 0);
	assert_int_equal(cascade_run_past(a->runs[0].cascade)->facts, CASC_PAST_REFUSED);
	assert_int_equal(gen_n_tokens(a->runs[0].gen), 0);
	kill(server.pid, SIGCONT);
	take_answer(c, fd);
	check_small_alone(c, true);
	CHAT_UNTIL(c, is_quiet(c));
}

static void a_redis_that_is_gone_or_hangs(void **state)
{
	NEEDS_REDIS();
	struct chat_rig *c = *state;
	for (int hangs = 0; hangs < 2; hangs++) {
		CHAT_UNTIL(c, is_up(c));
		if (hangs)
			kill(server.pid, SIGSTOP);
		else
			redis_server_kill(&server);
		ask(c, CHAT, RESUMABLE, BODY);
		check_small_alone(c, true);
		assert_int_equal(n_running(c), 0);
		if (hangs)
			kill(server.pid, SIGCONT);
		else
			redis_server_start(&server, NULL);
		CHAT_UNTIL(c, is_quiet(c));
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {T(told_once_it_is_stored), T(a_redis_that_is_gone_or_hangs),
					   T(every_allocation)};
	signal(SIGPIPE, SIG_IGN);
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
