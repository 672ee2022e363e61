/* SPDX-License-Identifier: Apache-2.0
 *
 * After a restart of the engine: which prompts are computed again, with what, when, and when not.
 */
#include <string.h>

#include "base/log.h"
#include "tests/support/chat_rig.h"

static uint8_t residence = PROTO_RESIDENCE_HERE;

static void says_hello_as(struct chat_rig *c, uint64_t epoch)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .epoch = epoch, .n_models = 1, .name = {"test", 4}};
	struct proto_model model = {.state = PROTO_MODEL_READY,
				    .role = 2,
				    .residence = residence,
				    .does = PROTO_DOES_GENERATE,
				    .n_ctx = 100,
				    .name = {"m", 1}};
	buf_clear(&c->hello, 0);
	assert_int_equal(proto_put_hello(&c->hello, &hello), 0);
	assert_int_equal(proto_put_model(&c->hello, &model), 0);
}

/* The engine ends, and another one is there. */
static void restart_engine(struct chat_rig *c, uint64_t epoch)
{
	says_hello_as(c, epoch);
	close(c->engine);
	c->engine = -1;
	CHAT_UNTIL(c, !engine_link_up(c->app->link));
	CHAT_UNTIL(c, app_ready(c->app));
}

static void says_stats(struct chat_rig *c, uint32_t running, uint32_t waiting)
{
	struct proto_stats stats = {.running = running, .waiting = waiting};
	struct sl_buf b;
	buf_init(&b, 4096);
	assert_int_equal(proto_put_stats(&b, &stats), 0);
	(void)!send(c->engine, buf_data(&b), b.len, MSG_NOSIGNAL);
	buf_dispose(&b);
	CHAT_UNTIL(c, engine_link_stats(c->app->link)->running == running &&
			  engine_link_stats(c->app->link)->waiting == waiting);
}

static void respond(struct chat_rig *c, const char *body, char id[64])
{
	ask(c, "POST /v1/responses", "", body);
	const char *at = strstr(c->answer, "\"id\":\"resp_");
	assert_non_null(at);
	snprintf(id, 64, "%.37s", at + 6);
	CHAT_UNTIL(c, at_rest(c) && n_generations() == 0);
	assert_int_equal(n_running(c), 0);
}

static long value_of(const char *name)
{
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	char line[128];
	snprintf(line, sizeof line, "\n%s ", name);
	const char *at = strstr(buf_cstr(&b), line);
	assert_non_null(at);
	long v = atol(at + strlen(line));
	buf_dispose(&b);
	return v;
}

static const char warmed[] = "sluice_prefixes_warmed_total", put_off[] = "sluice_prefixes_interrupted_total";

/* Turns for about so long: nothing is to happen meanwhile. */
static void idle_turns(struct chat_rig *c, uint64_t ms)
{
	uint64_t until = clock_now_ns() + ms * NS_PER_MS;
	while (clock_now_ns() < until)
		turn(c);
}

static void the_last_turns_are_computed_again(void **state)
{
	struct chat_rig *c = *state;
	char first[64], second[64], body[256];
	long before = value_of(warmed);
	CHAT_UNTIL(c, app_ready(c->app));
	respond(c, "{\"model\":\"m\",\"input\":\"one\",\"instructions\":\"be kind\"}", first);
	snprintf(body, sizeof body,
		 "{\"model\":\"m\",\"input\":\"two\",\"instructions\":\"be kind\",\"previous_response_id\":\"%s\"}",
		 first);
	respond(c, body, second);
	restart_engine(c, 2);
	CHAT_UNTIL(c, value_of(warmed) == before + 1);
	/* One of the chain, the last, with its answer: what the next turn begins with. */
	assert_string_equal(
	    buf_cstr(&c->prefilled),
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"be kind\"},{\"role\":\"user\",\"content\":\"one\"},"
	    "{\"role\":\"assistant\",\"content\":\"abc\"},{\"role\":\"user\",\"content\":\"two\"},"
	    "{\"role\":\"assistant\",\"content\":\"abc\"}]}");
	assert_int_equal(c->prefill_priority, 255);
	struct http_field f = {"authorization", "Bearer sk-test"};
	struct http_request r = {.fields = &f, .n_fields = 1};
	bool given;
	assert_int_equal(c->prefill_tenant, auth_check(c->app->auth, &r, &given)->tenant);
	/* The link breaks, the engine is the same: nothing is left to do. */
	restart_engine(c, 2);
	idle_turns(c, 1200);
	assert_int_equal(c->n_prefills, 1);
	/* Deleted: nothing of it is computed for a third one. */
	snprintf(body, sizeof body, "DELETE /v1/responses/%s", second);
	ask(c, body, "", "");
	CHAT_UNTIL(c, at_rest(c));
	restart_engine(c, 3);
	idle_turns(c, 1500);
	assert_int_equal(c->n_prefills, 1);
}

static void an_absent_model_stays_absent(void **state)
{
	struct chat_rig *c = *state;
	char id[64];
	long before = value_of(warmed);
	CHAT_UNTIL(c, app_ready(c->app));
	respond(c, "{\"model\":\"m\",\"input\":\"one\"}", id);
	residence = PROTO_RESIDENCE_ABSENT;
	restart_engine(c, 2);
	idle_turns(c, 1500);
	assert_int_equal(c->n_prefills, 0);
	residence = PROTO_RESIDENCE_HERE;
	restart_engine(c, 3);
	CHAT_UNTIL(c, value_of(warmed) == before + 1);
}

static void other_work_goes_first(void **state)
{
	struct chat_rig *c = *state;
	char id[64];
	long before = value_of(warmed), off = value_of(put_off);
	CHAT_UNTIL(c, app_ready(c->app));
	respond(c, "{\"model\":\"m\",\"input\":\"one\"}", id);
	c->keeps_prefills = true;
	restart_engine(c, 2);
	says_stats(c, 0, 1);
	idle_turns(c, 1500);
	assert_int_equal(c->n_prefills, 0); /* busy */
	says_stats(c, 0, 0);
	CHAT_UNTIL(c, c->n_prefills == 1);
	says_stats(c, 1, 0); /* that is itself */
	idle_turns(c, 300);
	assert_int_equal(c->n_cancelled, 0);
	says_stats(c, 1, 1);
	CHAT_UNTIL(c, c->n_cancelled == 1);
	assert_int_equal(value_of(put_off), off + 1);
	idle_turns(c, 800);
	assert_int_equal(c->n_prefills, 1);
	c->keeps_prefills = false;
	says_stats(c, 0, 0);
	CHAT_UNTIL(c, value_of(warmed) == before + 1);
	assert_int_equal(c->n_prefills, 2);
}

/* It goes in the middle of one: begun anew with the next. */
static void the_engine_goes_again(void **state)
{
	struct chat_rig *c = *state;
	char id[64];
	long before = value_of(warmed);
	CHAT_UNTIL(c, app_ready(c->app));
	respond(c, "{\"model\":\"m\",\"input\":\"one\"}", id);
	c->keeps_prefills = true;
	restart_engine(c, 2);
	CHAT_UNTIL(c, c->n_prefills == 1);
	c->keeps_prefills = false;
	restart_engine(c, 3);
	CHAT_UNTIL(c, value_of(warmed) == before + 1);
	assert_int_equal(c->n_prefills, 2);
}

/* What ends with one under way leaves nothing (the rig's end looks). */
static void the_gateway_ends_meanwhile(void **state)
{
	struct chat_rig *c = *state;
	char id[64];
	CHAT_UNTIL(c, app_ready(c->app));
	respond(c, "{\"model\":\"m\",\"input\":\"one\"}", id);
	c->keeps_prefills = true;
	restart_engine(c, 2);
	CHAT_UNTIL(c, c->n_prefills == 1);
}

static int set_up(void **state)
{
	int rc = chat_set_up(state);
	((struct chat_rig *)*state)->r.cfg.warm = 4;
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(the_last_turns_are_computed_again, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(an_absent_model_stays_absent, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(other_work_goes_first, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(the_engine_goes_again, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(the_gateway_ends_meanwhile, set_up, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
