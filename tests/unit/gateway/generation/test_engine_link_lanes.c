/* SPDX-License-Identifier: Apache-2.0
 *
 * The link tells frames that came together by lanes, and a lane's output goes out before the next lane's frames
 * are told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "gateway/generation/frame_order.h"
#include "tests/unit/gateway/generation/link_rig.h"

enum { LANES = 3, STORY_BYTES = 1 << 16 };

/* What happened, a word each: t3 (tokens of sequence 3), d3 (its end), c3 (a choice's end), q3, o1 (output of lane 1).
 */
static char story[STORY_BYTES];
static size_t story_at;

struct voice;

static struct lane {
	struct gw_deferred out;
	struct rig *rig;
	char number;
	struct voice *forgets; /* when its output goes out; NULL: nothing */
	int more;              /* so often its output is due again at once */
} lanes[LANES + 1];

static struct voice {
	struct rig *rig;
	uint64_t id;
	int number, lane, soon;
	int told_soon; /* how often soon had been called when it was told its last tokens */
	bool forgotten;
} voices[3 * FRAME_ORDER_MAX];

static void say_word(char what, int number)
{
	assert_true(story_at + 16 < sizeof story);
	story_at += (size_t)snprintf(story + story_at, sizeof story - story_at, "%s%c%d", story_at > 0 ? " " : "", what,
				     number);
}

/* From here on its context may be gone. */
static void forget(struct voice *v)
{
	engine_link_forget(v->rig->link, v->id);
	v->forgotten = true;
}

static void on_output(struct gw_deferred *d)
{
	struct lane *lane = list_entry(d, struct lane, out);
	say_word('o', lane->number);
	if (lane->forgets != NULL)
		forget(lane->forgets);
	lane->forgets = NULL;
	if (lane->more-- > 0)
		gw_defer_output(&lane->rig->t, d);
}

static void voice_says(struct voice *v, char what)
{
	say_word(what, v->number);
	if (v->lane > 0)
		gw_defer_output(&v->rig->t, &lanes[v->lane].out);
}

static void voice_tokens(void *ctx, const struct proto_tokens *m)
{
	struct voice *v = ctx;
	(void)m;
	v->told_soon = v->soon;
	voice_says(v, 't');
}

static void voice_queued(void *ctx, const struct proto_queued *m) { (void)m, voice_says(ctx, 'q'); }
static void voice_choice(void *ctx, const struct proto_choice *m) { (void)m, voice_says(ctx, 'c'); }
static void voice_done(void *ctx, const struct proto_done *m) { (void)m, voice_says(ctx, 'd'); }
static void voice_lost(void *ctx) { voice_says(ctx, 'l'); }
static void voice_soon(const void *ctx)
{
	struct voice *v = &voices[(const struct voice *)ctx - voices];
	assert_false(v->forgotten);
	v->soon++;
}

static const struct link_listener voice = {.on_queued = voice_queued,
					   .on_tokens = voice_tokens,
					   .on_choice = voice_choice,
					   .on_done = voice_done,
					   .on_lost = voice_lost,
					   .soon = voice_soon};

/* n sequences: number i of lane lane_of[i % n_lanes]. */
static void voices_up(struct rig *r, int n, const int *lane_of, int n_lanes)
{
	const struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT,
					 .temperature = 1, .top_p = 1,
					 .max_tokens = 9,  .prompt = {"x", 1}};
	for (int i = 1; i <= LANES; i++) {
		lanes[i] = (struct lane){.rig = r, .number = (char)i};
		gw_defer_init(&lanes[i].out, on_output);
	}
	come_up(r);
	for (int i = 0; i < n; i++) {
		struct voice *v = &voices[i];
		*v = (struct voice){.rig = r, .number = i, .lane = lane_of[i % n_lanes]};
		assert_int_equal(engine_link_submit(r->link, &req, &voice, v, &v->id), 0);
		engine_link_lane(r->link, v->id, (uint32_t)v->lane);
		if (i % 100 == 99 || i == n - 1)
			assert_int_equal(gw_thread_turn(&r->t), 0);
		take_input(r);
	}
	story_at = 0;
	story[0] = '\0';
}

/* One read of the link's. */
static void say_at_once(struct rig *r, struct sl_buf *b)
{
	say(r, b);
	assert_int_equal(gw_thread_turn(&r->t), 0);
}

static void each_lane_goes_out_before_the_next_is_told(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	voices_up(r, 6, (const int[]){2, 1, 0}, 3);
	buf_init(&b, 1 << 20);
	for (int i = 0; i < 6; i++)
		put_tokens(&b, voices[i].id, "x");
	say_at_once(r, &b);
	assert_string_equal(story, "t0 t3 o2 t1 t4 o1 t2 t5");
	for (int i = 0; i < 6; i++)
		assert_int_equal(voices[i].told_soon, 1);
}

/* Frames of one sequence stay in their order, also its end; what else the engine says stands where it stood. */
static void what_belongs_together_keeps_its_order(void **state)
{
	struct rig *r = *state;
	const struct proto_choice choice = {.choice = 0, .finish = PROTO_FINISH_STOP};
	const struct proto_queued queued = {.n_prompt = 3};
	struct sl_buf b;
	voices_up(r, 4, (const int[]){1, 2}, 2);
	buf_init(&b, 1 << 20);
	put_tokens(&b, voices[0].id, "a");
	put_tokens(&b, voices[1].id, "b");
	put_tokens(&b, voices[0].id, "c");
	assert_int_equal(proto_put_choice(&b, voices[0].id, &choice), 0);
	put_done(&b, voices[0].id);
	put_done(&b, voices[1].id);
	put_tokens(&b, voices[0].id, "late");
	assert_int_equal(proto_put_queued(&b, voices[2].id, &queued), 0);
	put_tokens(&b, voices[3].id, "d");
	assert_int_equal(proto_put_pong(&b, 1), 0);
	put_tokens(&b, voices[2].id, "e");
	say_at_once(r, &b);
	assert_string_equal(story, "t0 t0 c0 d0 o1 t1 d1 o2 q2 t3 o1 o2 t2 o1");
	assert_true(engine_link_up(r->link));
}

/* What goes out may end other sequences, whose frames are there already, and is not asked again and again. */
static void output_may_forget_what_was_to_be_told(void **state)
{
	enum { N = 12 };
	struct rig *r = *state;
	struct sl_buf b;
	voices_up(r, N, (const int[]){1, 2}, 2);
	lanes[1].forgets = &voices[N - 1];
	lanes[1].more = 1;
	buf_init(&b, 1 << 20);
	for (int i = 0; i < N; i++)
		put_tokens(&b, voices[i].id, "x");
	say_at_once(r, &b);
	assert_string_equal(story, "t0 t2 t4 t6 t8 t10 o1 t1 t3 t5 t7 t9 o1 o2");
	assert_int_equal(voices[N - 1].soon, 0);
	engine_link_forget(r->link, voices[0].id);
	engine_link_lane(r->link, voices[0].id, 2); /* nobody's any more */
}

/* More than are ordered at once: all are told, in order within each lane. */
static void more_frames_than_are_ordered_at_once(void **state)
{
	enum { N = 2 * FRAME_ORDER_MAX + 5 };
	struct rig *r = *state;
	int told[LANES + 1] = {0}, n = 0, turns = 0;
	struct sl_buf b;
	voices_up(r, N, (const int[]){1, 2, 3, 0}, 4);
	buf_init(&b, 4 << 20);
	for (int i = 0; i < N; i++)
		put_tokens(&b, voices[i].id, "x");
	put_done(&b, voices[N - 1].id);
	say(r, &b);
	do {
		assert_int_equal(gw_thread_turn(&r->t), 0);
	} while (strstr(story, "d") == NULL && ++turns < 100);
	for (char *word = strtok(story, " "); word != NULL; word = strtok(NULL, " ")) {
		int number = (int)strtol(word + 1, NULL, 10);
		if (word[0] != 't')
			continue;
		int lane = voices[number].lane;
		assert_true(told[lane] == 0 || number == told[lane] + 4);
		assert_int_equal(voices[number].told_soon, 1 + (number == N - 1)); /* whose end comes soon, too */
		told[lane] = number;
		n++;
	}
	assert_int_equal(n, N);
}

/* One that can't be read, in the middle of others: whoever has not had his end is told that the engine has gone. */
static void a_malformed_one_among_others(void **state)
{
	struct rig *r = *state;
	struct sl_buf b;
	voices_up(r, 4, (const int[]){1, 2}, 2);
	buf_init(&b, 1 << 20);
	put_tokens(&b, voices[0].id, "x");
	put_tokens(&b, voices[1].id, "x");
	size_t at = b.len;
	put_tokens(&b, voices[2].id, "x");
	buf_data(&b)[at + PROTO_HEAD_BYTES + 4 + 8] = 9; /* text beyond the frame's */
	put_done(&b, voices[3].id);
	say_at_once(r, &b);
	assert_false(engine_link_up(r->link));
	assert_memory_equal(story, "t0 l", 4);
	for (int i = 0; i < 4; i++) {
		char word[8];
		snprintf(word, sizeof word, "l%d", i);
		assert_non_null(strstr(story, word));
	}
	assert_null(strstr(story, "d3"));
	assert_null(strstr(story, "t1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(each_lane_goes_out_before_the_next_is_told),
	    TEST(what_belongs_together_keeps_its_order),
	    TEST(output_may_forget_what_was_to_be_told),
	    TEST(more_frames_than_are_ordered_at_once),
	    TEST(a_malformed_one_among_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
