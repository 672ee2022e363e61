/* SPDX-License-Identifier: Apache-2.0
 *
 * Flow control of what the gateway sends, seen by a peer that counts every byte (RFC 9113 5.2 and 6.9): small pieces,
 * many of them between two words of the peer, since that is when the gateway's count and its library's differ.
 */
#include "tests/support/h2_frames.h"

#include "tests/support/part.h"

enum { MOST = 0x7fffffff, STREAMS = 6, REQUESTS = 300, STEPS = 4000, SEEDS = 8 };

static uint64_t dice;

static uint32_t draw(uint32_t n)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)(dice >> 33) % n;
}

/* What the peer knows of a stream. */
struct seen {
	uint32_t id;
	struct rig_exchange *x;
	int64_t window;    /* what it may still be sent */
	size_t given, got; /* bytes */
	bool end_given, ended, reset;
};

static struct {
	struct seen s[STREAMS];
	int64_t window, initial;
	int64_t new_initial[64]; /* of SETTINGS that are not acknowledged yet */
	int n_settings;
	uint32_t next_id;
	bool generous; /* opens a window all the way now and then */
} peer;

static char letter(uint32_t id, size_t at) { return (char)('a' + (id * 7 + at) % 26); }

static struct seen *stream_of(uint32_t id)
{
	for (int i = 0; i < STREAMS; i++)
		if (peer.s[i].id == id)
			return &peer.s[i];
	return NULL;
}

static void on_data(const struct frame *f)
{
	struct seen *s = stream_of(f->id);
	/* Also content of a stream that has been reset counts. */
	peer.window -= f->len;
	if (peer.window < 0)
		fail_msg("stream %u: %u bytes, %lld more than the connection's window", f->id, f->len,
			 (long long)-peer.window);
	if (s == NULL)
		return;
	s->window -= f->len;
	if (f->len > 0 && s->window < 0)
		fail_msg("stream %u: %u bytes, %lld more than its window", f->id, f->len, (long long)-s->window);
	if (s->ended)
		fail_msg("stream %u: DATA behind its end", f->id);
	for (uint32_t i = 0; i < f->len; i++)
		if (f->payload[i] != (uint8_t)letter(f->id, s->got + i))
			fail_msg("stream %u: another byte at %zu", f->id, s->got + i);
	s->got += f->len;
	assert_true(s->got <= s->given);
	s->ended = f->flags & END_STREAM;
	if (s->ended)
		assert_true(s->end_given && s->got == s->given);
}

static void on_settings_ack(void)
{
	assert_true(peer.n_settings > 0);
	int64_t by = peer.new_initial[0] - peer.initial;
	peer.initial = peer.new_initial[0];
	memmove(peer.new_initial, peer.new_initial + 1, sizeof peer.new_initial - sizeof *peer.new_initial);
	peer.n_settings--;
	for (int i = 0; i < STREAMS; i++)
		if (peer.s[i].id != 0 && !peer.s[i].ended)
			peer.s[i].window += by; /* one that was reset may still have sent by it */
}

/* Everything that the gateway has to say for now. */
static void hear(void)
{
	struct frame f;
	put_frame(PING, 0, 0, "whatnow?", 8);
	flush();
	for (;;) {
		if (!next_frame(&f))
			fail_msg("the connection ended");
		if (f.type == DATA)
			on_data(&f);
		else if (f.type == SETTINGS && (f.flags & ACK))
			on_settings_ack();
		else if (f.type == GOAWAY)
			fail_msg("GOAWAY %u", u32(f.payload + 4));
		else if (f.type == RST_STREAM && stream_of(f.id) != NULL && !stream_of(f.id)->reset)
			fail_msg("stream %u was reset", f.id);
		else if (f.type == PING)
			return;
	}
}

static void open_stream(struct seen *s)
{
	int before = rig.n_requests;
	*s = (struct seen){.id = peer.next_id, .window = peer.initial};
	peer.next_id += 2;
	put_request(s->id, "GET", "/wait", END_STREAM);
	hear();
	assert_int_equal(rig.n_requests, before + 1);
	s->x = rig.ex[before];
}

static void give(struct seen *s, size_t n, bool end)
{
	char text[5001];
	for (size_t i = 0; i < n; i++)
		text[i] = letter(s->id, s->given + i);
	text[n] = '\0';
	s->given += n;
	s->end_given = end;
	rig_give(s->x, text, end);
}

static void open_window(struct seen *s, int64_t by)
{
	int64_t *w = s != NULL ? &s->window : &peer.window;
	/* Never over the most, also not with SETTINGS that are on their way. */
	int64_t over = *w;
	for (int i = 0; s != NULL && i < peer.n_settings; i++)
		if (peer.new_initial[i] > peer.initial)
			over += peer.new_initial[i] - peer.initial;
	if (by > MOST - over)
		by = MOST - over;
	if (by <= 0)
		return;
	*w += by;
	put_u32(WINDOW_UPDATE, 0, s != NULL ? s->id : 0, (uint32_t)by);
}

static void change_initial(uint32_t to)
{
	if (peer.n_settings == 4)
		return;
	/* 6.9.2: a window over the most is an error of the peer. */
	for (int i = 0; i < STREAMS; i++)
		if (peer.s[i].window + to > MOST)
			return;
	peer.new_initial[peer.n_settings++] = to;
	put_setting(4, to);
}

static size_t piece(void) { return draw(8) == 0 ? draw(5000) : draw(200); }

static void one_step(void)
{
	struct seen *s = &peer.s[draw(STREAMS)];
	bool live = !s->end_given && !s->reset;
	switch (draw(16)) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
	case 5:
		if (live)
			give(s, piece(), draw(30) == 0);
		break;
	case 6: /* many small ones of one stream, each written by itself */
		for (int i = 0; live && i < 20; i++) {
			give(s, draw(100), false);
			gw_run_output(&rig.t);
		}
		break;
	case 7: hear(); break;
	case 8:
	case 9:
		if (!s->ended && !s->reset)
			open_window(s, draw(3000));
		break;
	case 10: open_window(NULL, draw(peer.generous ? 9000 : 1000)); break;
	case 11:
		if (peer.generous && draw(6) == 0)
			open_window(draw(2) == 0 && !s->ended && !s->reset ? s : NULL, MOST);
		break;
	case 12: change_initial(draw(3) == 0 ? draw(70000) : draw(3000)); break;
	case 13:
		if (live && draw(4) == 0) {
			s->reset = true;
			put_u32(RST_STREAM, 0, s->id, CANCEL);
		}
		break;
	case 14:
		if (live && draw(4) == 0) {
			give(s, draw(300), false);
			if (draw(2) == 0)
				gw_run_output(&rig.t);
			s->reset = true;
			http_reset(s->x->s);
		}
		break;
	default:
		if ((s->ended || s->reset) && rig.n_requests < REQUESTS) {
			hear();
			open_stream(s);
		}
		break;
	}
	if (draw(4) == 0)
		flush();
	if (draw(3) == 0)
		gw_run_output(&rig.t);
}

static void a_peer_that_counts(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= PART_OF(SEEDS); seed++) {
		if (seed > 1) {
			teardown(NULL);
			setup(NULL);
		}
		dice = seed * 0x9e3779b97f4a7c15u;
		memset(&peer, 0, sizeof peer);
		peer.window = peer.initial = 65535;
		peer.next_id = 1;
		peer.generous = seed % 2 == 0;
		peer.new_initial[peer.n_settings++] = 65535; /* of begin() */
		rig.cfg.limits.control_frames_burst = rig.cfg.limits.resets_burst = 1000000;
		begin();
		for (int i = 0; i < STREAMS; i++)
			open_stream(&peer.s[i]);
		for (int i = 0; i < STEPS; i++)
			one_step();
		/* With all windows open everything comes. */
		hear();
		for (int i = 0; i < STREAMS; i++) {
			struct seen *s = &peer.s[i];
			if (s->reset || s->ended)
				continue;
			if (!s->end_given)
				give(s, 10, true);
			open_window(s, 10000000);
		}
		hear();
		open_window(NULL, 10000000);
		for (int i = 0; i < 3; i++)
			hear();
		for (int i = 0; i < STREAMS; i++)
			if (!peer.s[i].reset && !peer.s[i].ended)
				fail_msg("seed %d: stream %u has %zu of %zu bytes", (int)seed, peer.s[i].id,
					 peer.s[i].got, peer.s[i].given);
		assert_int_equal(rig.n_closed, rig.n_requests);
	}
}

/* 6.9.1: a window may be at most 2^31 - 1, and that it may be, whatever was sent since the peer was last heard. */
static void a_window_may_be_filled_to_the_brim(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/wait", END_STREAM);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 1);
	for (uint32_t sent = 0; sent < 1000; sent += 100) {
		static const char hundred[] = "0123456789012345678901234567890123456789012345678901234567890123456789"
					      "012345678901234567890123456789";
		rig_give(rig.ex[0], hundred, false);
		assert_true(await(DATA, 1, &f));
		assert_int_equal(f.len, 100);
	}
	put_u32(WINDOW_UPDATE, 0, 0, MOST - 65535 + 1000);
	put_u32(WINDOW_UPDATE, 0, 1, MOST - 65535 + 1000);
	expect_alive("windows to the brim");
	put_u32(WINDOW_UPDATE, 0, 1, 1);
	expect_reset("one over", 1, FLOW_CONTROL_ERROR);
	put_u32(WINDOW_UPDATE, 0, 0, 1);
	expect_goaway("one over", FLOW_CONTROL_ERROR);
}

/* An end without content needs no window (6.9.1 speaks of content), but waits for one here; it comes when there is one.
 */
static void an_end_behind_a_used_up_window(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_setting(4, 5);
	put_request(1, "GET", "/wait", END_STREAM);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 1);
	rig_give(rig.ex[0], "12345", false);
	assert_true(await(DATA, 1, &f));
	rig_give(rig.ex[0], "", true);
	expect_alive("used up");
	put_u32(WINDOW_UPDATE, 0, 1, 1);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 0);
	assert_true(f.flags & END_STREAM);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_DONE] == 1);
}

/* What a reset stream has sent stays counted on the connection. */
static void a_reset_keeps_the_connections_window(void **state)
{
	(void)state;
	struct frame f;
	size_t got = 0;
	begin();
	put_request(1, "GET", "/wait", END_STREAM);
	put_request(3, "GET", "/wait", END_STREAM);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 2);
	rig_give(rig.ex[0], "0123456789", false);
	assert_true(await(DATA, 1, &f));
	http_reset(rig.ex[0]->s);
	assert_true(await(RST_STREAM, 1, &f));
	assert_int_equal(u32(f.payload), INTERNAL_ERROR);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_ERROR] == 1);
	put_u32(WINDOW_UPDATE, 0, 3, 100000);
	expect_alive("reset");
	char *text = calloc(1, 70000);
	assert_non_null(text);
	memset(text, 'x', 69999);
	rig_give(rig.ex[1], text, true);
	free(text);
	while (got < 65535 - 10) {
		assert_true(await(DATA, 3, &f));
		got += f.len;
	}
	assert_int_equal(got, 65535 - 10);
	put_u32(WINDOW_UPDATE, 0, 0, 5000);
	flush();
	assert_true(await(DATA, 3, &f));
	assert_int_equal(got + f.len, 69999);
	assert_true(f.flags & END_STREAM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(a_peer_that_counts),
	    T(a_window_may_be_filled_to_the_brim),
	    T(an_end_behind_a_used_up_window),
	    T(a_reset_keeps_the_connections_window),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
