/* SPDX-License-Identifier: Apache-2.0
 *
 * Which prompts end which: named, recognised, typed, and never a stranger's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "gateway/sharing/supersede.h"

enum { MOST = 8, TIME_MS = 3 };

struct rig {
	struct gw_config cfg;
	struct gw_thread t;
	struct inflight *ts;
	struct supersede_prompt *all[MOST];
	int n;
	int ended[MOST]; /* told so often */
};

static uint64_t fake_ns;

static int set_up(void **state)
{
	struct rig *r = calloc(1, sizeof *r);
	struct sl_err err = {0};
	assert_non_null(r);
	assert_int_equal(gw_thread_init(&r->t, 0, &r->cfg, &err), 0);
	assert_int_equal(inflight_create(&r->ts), 0);
	fake_ns = NS_PER_S;
	clock_fake(&fake_ns);
	*state = r;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *r = *state;
	clock_fake(NULL);
	fault_disarm_all();
	for (int i = 0; i < r->n; i++)
		supersede_end(r->all[i]);
	gw_thread_dispose(&r->t);
	inflight_destroy(r->ts);
	free(r);
	return 0;
}

static void deliver(struct rig *r)
{
	static const struct timeval none = {0};
	event_base_loopexit(r->t.base, &none);
	assert_int_equal(gw_thread_turn(&r->t), 0);
}

static void on_superseded(void *ctx) { ++*(int *)ctx; }

static struct request_digest digest(const struct rig *r, const char *s)
{
	struct request_digest d;
	inflight_digest(r->ts, &(struct iovec){(void *)(uintptr_t)s, strlen(s)}, 1, &d);
	return d;
}

/* messages: one a character, 'A' is an answer; the last is `last`. How many it ended. */
static size_t begin(struct rig *r, const char *who, const char *name, const char *request, const char *messages,
		    const char *last)
{
	struct message_digest at[16];
	struct supersede_request turn = {.user = digest(r, who),
					 .named = name != NULL,
					 .may_join = request != NULL,
					 .burst_ns = TIME_MS * NS_PER_MS};
	if (name != NULL)
		turn.name = digest(r, name);
	if (request != NULL)
		turn.request = digest(r, request);
	if (messages != NULL) {
		size_t n = strlen(messages);
		for (size_t i = 0; i < n; i++)
			supersede_digest(r->ts, i > 0 ? &at[i - 1] : NULL, messages + i, 1, &at[i]);
		supersede_digest(r->ts, n > 0 ? &at[n - 1] : NULL, last, strlen(last), &at[n]);
		turn.guess = true;
		turn.messages = (struct supersede_messages){.n = n + 1,
							    .at = at,
							    .answered = strchr(messages, 'A') != NULL,
							    .last = last,
							    .n_last = strlen(last)};
	}
	assert_true(r->n < MOST);
	size_t ended = supersede_begin(r->ts, &turn, &r->t, on_superseded, &r->ended[r->n], &r->all[r->n]);
	r->n++;
	deliver(r);
	return ended;
}

static void a_name_is_its_users(void **state)
{
	struct rig *r = *state;
	assert_int_equal(begin(r, "ann", "c", NULL, NULL, NULL), 0);
	assert_int_equal(begin(r, "bob", "c", NULL, NULL, NULL), 0);
	assert_int_equal(begin(r, "ann", "d", NULL, NULL, NULL), 0);
	assert_int_equal(begin(r, "ann", "c", NULL, NULL, NULL), 1);
	assert_int_equal(r->ended[0], 1);
	/* Told once, though it has not ended yet. */
	assert_int_equal(begin(r, "ann", "c", NULL, NULL, NULL), 1);
	assert_int_equal(r->ended[0], 1);
	assert_int_equal(r->ended[3], 1);
	assert_int_equal(r->ended[1] + r->ended[2] + r->ended[4], 0);
}

static void the_same_request_is_coalesced(void **state)
{
	struct rig *r = *state;
	assert_int_equal(begin(r, "ann", "c", "what", NULL, NULL), 0);
	assert_int_equal(begin(r, "ann", "c", "what", NULL, NULL), 0);
	assert_int_equal(begin(r, "ann", "c", "other", NULL, NULL), 2);
}

static void an_ended_prompt_is_not_superseded(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", "c", NULL, NULL, NULL);
	supersede_end(r->all[0]);
	r->all[0] = NULL;
	assert_int_equal(begin(r, "ann", "c", NULL, NULL, NULL), 0);
	/* And one whose message is on its way when it ends. */
	struct supersede_request turn = {.user = digest(r, "ann"), .named = true, .name = digest(r, "c")};
	struct supersede_prompt *newer;
	assert_int_equal(supersede_begin(r->ts, &turn, &r->t, on_superseded, &r->ended[7], &newer), 1);
	supersede_end(r->all[1]);
	r->all[1] = NULL;
	deliver(r);
	assert_int_equal(r->ended[1], 0);
	supersede_end(newer);
}

static void messages_tell_what_goes_on_and_what_is_edited(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", NULL, NULL, "s", "question");
	fake_ns += NS_PER_S;
	assert_int_equal(begin(r, "ann", NULL, NULL, "s", "another question"),
			 0); /* only the system's message in common */
	r->n--;
	supersede_end(r->all[r->n]);
	begin(r, "ann", NULL, NULL, "suA", "first try");
	fake_ns += NS_PER_S;
	assert_int_equal(begin(r, "bob", NULL, NULL, "suA", "second try"), 0);
	assert_int_equal(begin(r, "ann", NULL, NULL, "suA", "second try"), 1);
	assert_int_equal(r->ended[1], 1);
	assert_int_equal(begin(r, "ann", NULL, NULL, "suAuA", "later"), 1); /* the edited one, and on from there */
}

static void a_newer_prompt_that_begins_with_all_of_the_older(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", NULL, NULL, "s", "u");
	fake_ns += NS_PER_S;
	assert_int_equal(begin(r, "ann", NULL, NULL, "su", "and more"), 1);
	assert_int_equal(r->ended[0], 1);
}

static void who_types_ends_but_for_the_last(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", NULL, NULL, "", "what is");
	fake_ns += TIME_MS * NS_PER_MS;
	assert_int_equal(begin(r, "ann", NULL, NULL, "", "what is the"), 1);
	assert_int_equal(begin(r, "ann", NULL, NULL, "", "what is teh"), 1); /* mended */
	assert_int_equal(begin(r, "ann", NULL, NULL, "", "where do I find water"), 0);
	fake_ns += TIME_MS * NS_PER_MS + 1;
	assert_int_equal(begin(r, "ann", NULL, NULL, "", "what is teh c"), 0); /* too late */
}

static void a_name_says_more_than_messages(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", "c", NULL, "suA", "x");
	assert_int_equal(begin(r, "ann", "d", NULL, "suA", "y"), 0);
	assert_int_equal(begin(r, "ann", NULL, NULL, "suA", "z"), 0);
}

static void without_memory_nothing_newer_ends_it_and_it_ends_the_older(void **state)
{
	struct rig *r = *state;
	begin(r, "ann", "c", NULL, NULL, NULL);
	struct supersede_request turn = {.user = digest(r, "ann"), .named = true, .name = digest(r, "c")};
	struct supersede_prompt *talk;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(supersede_begin(r->ts, &turn, &r->t, on_superseded, &r->ended[1], &talk), 1);
	fault_disarm_all();
	assert_null(talk);
	supersede_end(talk);
	deliver(r);
	assert_int_equal(r->ended[0], 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(a_name_is_its_users),
	    T(the_same_request_is_coalesced),
	    T(an_ended_prompt_is_not_superseded),
	    T(messages_tell_what_goes_on_and_what_is_edited),
	    T(a_newer_prompt_that_begins_with_all_of_the_older),
	    T(who_types_ends_but_for_the_last),
	    T(a_name_says_more_than_messages),
	    T(without_memory_nothing_newer_ends_it_and_it_ends_the_older),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
