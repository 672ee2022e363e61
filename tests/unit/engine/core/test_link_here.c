/* SPDX-License-Identifier: Apache-2.0
 *
 * Events that the I/O thread itself posts: tokens are in their link's output at once, unless something was kept before
 * them; then they follow it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "engine/core/link.h"

static struct link_hub hub;
static struct eng_link *gateway;
static uint64_t ids[4]; /* the hub's, of the sequences submitted, in order */
static int n_ids, n_cancelled;

static int be_submit(void *be, uint64_t id, const struct proto_submit *req)
{
	(void)be, (void)req;
	ids[n_ids++] = id;
	return 0;
}

static void post(enum eng_event_kind kind, uint64_t id, const char *text)
{
	const struct proto_token token = {.id = 7, .n_bytes = (uint16_t)strlen(text)};
	const struct proto_tokens tokens = {.n = 1, .tokens = &token, .text = {text, strlen(text)}};
	struct eng_event ev = {.kind = kind, .id = id};
	if (kind == ENG_TOKENS) {
		hub_post_tokens_here(&hub, hub_seq(&hub, id), &tokens);
		return;
	}
	if (kind == ENG_DONE)
		ev.u.done = (struct proto_done){.finish = PROTO_FINISH_STOP};
	else
		ev.u.queued = (struct proto_queued){.n_prompt = 1};
	hub_post_here(&hub, &ev);
}

static void be_cancel(void *be, uint64_t id)
{
	(void)be;
	n_cancelled++;
	post(ENG_DONE, id, "");
}

static void be_credit(void *be, uint64_t id, uint32_t n) { (void)be, (void)id, (void)n; }
static void be_stats(void *be, struct proto_stats *out) { (void)be, *out = (struct proto_stats){0}; }
static bool be_load(void *be, int index, struct proto_load *out) { return (void)be, (void)index, (void)out, false; }
static int be_n_models(void *be) { return (void)be, 1; }

static void be_model_info(void *be, int index, struct proto_model *out)
{
	(void)be;
	*out = (struct proto_model){.index = (uint16_t)index, .name = {"m", 1}};
}

static const struct eng_backend backend = {.submit = be_submit,
					   .cancel = be_cancel,
					   .credit = be_credit,
					   .stats = be_stats,
					   .load = be_load,
					   .n_models = be_n_models,
					   .model_info = be_model_info};

static void feed(struct sl_buf *b)
{
	link_feed(gateway, buf_data(b), b->len);
	buf_dispose(b);
}

/* Two sequences, 11 and 22 of the gateway. */
static int set_up(void **state)
{
	const struct proto_hello hello = {.version = PROTO_VERSION, .name = {"g", 1}};
	const struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .top_p = 1,
					 .max_tokens = 9, .prompt = {"x", 1}};
	struct sl_buf b;
	(void)state;
	n_ids = n_cancelled = 0;
	assert_int_equal(hub_init(&hub, 1), 0);
	hub_attach(&hub, &backend, NULL);
	hub.calm = true;
	assert_int_equal(link_create(&hub, &gateway), 0);
	buf_init(&b, 1 << 20);
	assert_int_equal(proto_put_hello(&b, &hello), 0);
	assert_int_equal(proto_put_submit(&b, 11, &req), 0);
	assert_int_equal(proto_put_submit(&b, 22, &req), 0);
	feed(&b);
	assert_int_equal(n_ids, 2);
	assert_null(hub_seq(&hub, ids[1] + 1));
	buf_clear(&gateway->out, SIZE_MAX);
	hub.changed = false;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (gateway != NULL)
		link_destroy(gateway);
	gateway = NULL;
	hub_deliver(&hub);
	assert_int_equal(hub_n_live(&hub), 0);
	hub_dispose(&hub);
	return 0;
}

/* The next frame of the output is of this type and sequence; it is removed. */
static void expect(uint8_t type, uint64_t id)
{
	struct proto_head h;
	assert_true(gateway->out.len >= PROTO_HEAD_BYTES);
	assert_int_equal(proto_head_read(buf_data(&gateway->out), &h, NULL), 0);
	assert_int_equal(h.type, type);
	assert_int_equal(h.id, id);
	buf_consume(&gateway->out, PROTO_HEAD_BYTES + h.length);
}

static void tokens_are_there_at_once(void **state)
{
	(void)state;
	post(ENG_TOKENS, ids[1], "b");
	post(ENG_TOKENS, ids[0], "a");
	assert_false(hub.posted_here);
	expect(PROTO_TOKENS, 22);
	expect(PROTO_TOKENS, 11);
	assert_int_equal(gateway->out.len, 0);
	assert_false(hub.changed); /* tokens alone change nothing here */
	hub.calm = false;
	post(ENG_TOKENS, ids[0], "a");
	assert_true(hub.changed);
}

static void nothing_overtakes_what_was_kept(void **state)
{
	(void)state;
	post(ENG_QUEUED, ids[0], "");
	post(ENG_TOKENS, ids[0], "a");
	post(ENG_TOKENS, ids[1], "b");
	post(ENG_DONE, ids[0], "");
	assert_int_equal(gateway->out.len, 0);
	assert_true(hub.posted_here);
	hub_deliver(&hub);
	expect(PROTO_QUEUED, 11);
	expect(PROTO_TOKENS, 11);
	expect(PROTO_TOKENS, 22);
	expect(PROTO_DONE, 11);
	post(ENG_TOKENS, ids[1], "c");
	expect(PROTO_TOKENS, 22);
	assert_int_equal(gateway->out.len, 0);
}

/* A gateway that reads nothing loses its link, and no other event is written to it. */
static void what_is_unread_is_bounded(void **state)
{
	(void)state;
	static char text[60000];
	memset(text, 'x', sizeof text - 1);
	for (int i = 0; i < 2 * LINK_MAX_OUT / (int)sizeof text && !gateway->finished; i++)
		post(ENG_TOKENS, ids[0], text);
	assert_true(gateway->overflow && gateway->finished);
	assert_true(gateway->out.len <= LINK_MAX_OUT);
	uint32_t before = gateway->out.len;
	post(ENG_TOKENS, ids[1], "b");
	assert_int_equal(gateway->out.len, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(tokens_are_there_at_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(nothing_overtakes_what_was_kept, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_unread_is_bounded, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
