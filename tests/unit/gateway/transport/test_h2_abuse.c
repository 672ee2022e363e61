/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 with frames written by hand: abuse and its bounds, also with the nth allocation, read or write failing
 * meanwhile. Section numbers are RFC 9113's.
 */
#include "tests/support/h2_frames.h"

#include "gateway/transport/conn.h"

static void rapid_reset_is_stopped(void **state)
{
	(void)state;
	begin();
	bool open = true;
	for (uint32_t i = 0; i < 5000 && open; i++) {
		put_request(2 * i + 1, "GET", "/never", END_STREAM);
		put_u32(RST_STREAM, 0, 2 * i + 1, CANCEL);
		if (out.len > 4096)
			open = flush();
	}
	struct frame f;
	while (next_frame(&f))
		;
	assert_true(rig.n_requests <= 110);
	assert_int_equal(rig.n_closed, rig.n_requests);
}

/* Resets that we are made to send: a window that overflows each. */
static void made_resets_are_stopped(void **state)
{
	(void)state;
	rig.cfg.limits.resets_burst = 20;
	begin();
	for (uint32_t i = 0; i < 60; i++) {
		put_request(2 * i + 1, "GET", "/never", END_STREAM);
		put_u32(WINDOW_UPDATE, 0, 2 * i + 1, 0x7fffffff);
	}
	expect_goaway("made resets", ENHANCE_YOUR_CALM);
	assert_true(rig.n_requests <= 60);
}

static void control_floods_are_stopped(void **state)
{
	(void)state;
	rig.cfg.limits.control_frames_burst = 50;
	static const char *const what[] = {
	    "PING",          "PRIORITY",    "empty DATA", "unknown",         "SETTINGS",
	    "WINDOW_UPDATE", "PING answer", "GOAWAY",     "DATA of padding", "WINDOW_UPDATE of the stream"};
	for (size_t kind = 0; kind < sizeof what / sizeof *what; kind++) {
		begin();
		put_request(1, "POST", "/echo", 0);
		for (int i = 0; i < 200; i++) {
			if (kind == 0)
				put_frame(PING, 0, 0, "12345678", 8);
			else if (kind == 1)
				put_frame(PRIORITY, 0, 3, "\0\0\0\0\x10", 5);
			else if (kind == 2)
				put_frame(DATA, 0, 1, NULL, 0);
			else if (kind == 3)
				put_frame(0xee, 0, 0, NULL, 0);
			else if (kind == 4)
				put_setting(4, 65535);
			else if (kind == 5)
				put_u32(WINDOW_UPDATE, 0, 0, 1);
			else if (kind == 6)
				put_frame(PING, ACK, 0, "12345678", 8);
			else if (kind == 7)
				put_frame(GOAWAY, 0, 0, "\0\0\0\0\0\0\0", 8);
			else if (kind == 8)
				put_frame(DATA, PADDED, 1, "\x02\0", 3);
			else
				put_u32(WINDOW_UPDATE, 0, 1, 1);
		}
		expect_goaway(what[kind], ENHANCE_YOUR_CALM);
	}
	RIG_UNTIL(&rig, rig.n_closed == rig.n_requests);
}

/* As many WINDOW_UPDATE frames as there were DATA frames are no flood. */
static void a_reader_may_open_its_windows(void **state)
{
	(void)state;
	rig.cfg.limits.control_frames_burst = 10;
	struct frame f;
	begin();
	put_setting(4, 100);
	put_request(1, "GET", "/big?60000", END_STREAM);
	flush();
	for (size_t got = 0; got < 60000;) {
		assert_true(await(DATA, 1, &f));
		got += f.len;
		put_u32(WINDOW_UPDATE, 0, 0, f.len);
		if (got < 60000)
			put_u32(WINDOW_UPDATE, 0, 1, f.len);
		flush();
	}
	expect_alive("after 600 windows");
}

static void continuation_flood_is_stopped(void **state)
{
	(void)state;
	uint8_t block[512];
	begin();
	put_frame(HEADERS, END_STREAM, 1, block, hp_request(block, "GET", "/small"));
	for (int i = 0; i < 20; i++)
		put_frame(CONTINUATION, 0, 1, NULL, 0);
	expect_goaway("CONTINUATION", ENHANCE_YOUR_CALM);
	assert_int_equal(rig.n_requests, 0);
}

static void heads_are_bounded(void **state)
{
	(void)state;
	static uint8_t block[80000];
	struct frame f;
	begin();
	/* Too many fields: 431 and the connection lives. */
	size_t m = hp_request(block, "GET", "/small");
	for (int i = 0; i < 101; i++)
		m += hp_field(block + m, "a", "b");
	put_frame(HEADERS, END_STREAM | END_HEADERS, 1, block, m);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_memory_equal(f.payload + 1,
			    "\x03"
			    "431",
			    4);
	/* Too many bytes. */
	static char long_value[15000];
	memset(long_value, 'v', sizeof long_value - 1);
	m = hp_request(block, "GET", "/small");
	m += hp_field(block + m, "a", long_value);
	put_frame(HEADERS, END_STREAM, 3, block, m);
	m = hp_field(block, "b", long_value);
	put_frame(CONTINUATION, END_HEADERS, 3, block, m);
	flush();
	assert_true(await(HEADERS, 3, &f));
	expect_alive("after 431");
	/* One field that never becomes whole: ended before it is held. */
	int conn = fd;
	fd = -1;
	begin();
	m = hp_request(block, "GET", "/small");
	block[m++] = 0;
	m += hp_int(block + m, 1);
	block[m++] = 'b';
	m += hp_int(block + m, 60000);
	put_frame(HEADERS, END_STREAM, 1, block, m);
	memset(block, 'v', 16000);
	put_frame(CONTINUATION, 0, 1, block, 16000);
	put_frame(CONTINUATION, 0, 1, block, 16000);
	put_head(16000, CONTINUATION, 0, 1); /* only begun */
	expect_goaway("endless field", ENHANCE_YOUR_CALM);
	close(fd);
	fd = conn;
	buf_clear(&in, SIZE_MAX);
	/* A bomb: one big entry in the dynamic table, then one-byte references to it. */
	m = hp_request(block, "GET", "/small");
	block[m++] = 0x40;
	m += hp_int(block + m, 1);
	block[m++] = 'c';
	long_value[3000] = '\0';
	m += hp_int(block + m, 3000);
	memcpy(block + m, long_value, 3000);
	m += 3000;
	memset(block + m, 0xbe, 8000);
	put_frame(HEADERS, END_STREAM | END_HEADERS, 5, block, m + 8000);
	expect_goaway("header bomb", ENHANCE_YOUR_CALM);
	assert_int_equal(rig.n_requests, 0);
}

enum {
	REFUSED_HEAD,
	REFUSED_FIELDS,
	REFUSED_PATH,
	REFUSED_AUTHORITY,
	REFUSED_HOST,
	REFUSED_LENGTH,
	REFUSED_EXPECT,
	REFUSED_CONNECT,
	REFUSED_KINDS
};

/* A request that is well-formed HTTP/2 and gets an error from the transport. */
static void put_refused(int kind, uint32_t id)
{
	static uint8_t block[40000];
	static char value[16000];
	size_t m = 0;
	memset(value, 'v', sizeof value - 1);
	m += hp_field(block + m, ":method", kind == REFUSED_CONNECT ? "CONNECT" : "POST");
	m += hp_field(block + m, ":authority", kind == REFUSED_AUTHORITY ? "user@localhost" : "localhost");
	if (kind != REFUSED_CONNECT) {
		m += hp_field(block + m, ":scheme", "http");
		m += hp_field(block + m, ":path", kind == REFUSED_PATH ? "/a#b" : "/small");
	}
	if (kind == REFUSED_HEAD)
		m += hp_field(block + m, "a", value);
	for (int i = 0; kind == REFUSED_FIELDS && i < 101; i++)
		m += hp_field(block + m, "a", "b");
	if (kind == REFUSED_HOST)
		m += hp_field(block + m, "host", "elsewhere");
	if (kind == REFUSED_LENGTH)
		m += hp_field(block + m, "content-length", "1000000000");
	if (kind == REFUSED_EXPECT)
		m += hp_field(block + m, "expect", "tea");
	if (kind == REFUSED_HEAD) {
		m += hp_field(block + m, "b", "and so it is over the limit, though each frame is not");
		m += hp_field(
		    block + m, "c",
		    "16384 bytes of names, values and 32 for each field are the most; this is that last straw, "
		    "and a good many bytes beyond it, so that nothing hangs on one of them: 0123456789 0123456789 "
		    "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789");
		put_frame(HEADERS, 0, id, block, 8000);
		put_frame(CONTINUATION, END_HEADERS, id, block + 8000, m - 8000);
		return;
	}
	put_frame(HEADERS, END_HEADERS | (kind == REFUSED_LENGTH ? 0 : END_STREAM), id, block, m);
}

/* None of them reaches the application, and the hundredth is not answered. */
static void refused_requests_are_stopped(void **state)
{
	(void)state;
	rig.cfg.limits.refused_per_s = 1;
	for (int kind = 0; kind < REFUSED_KINDS; kind++) {
		struct frame f;
		int answered = 0;
		bool open = true, calm = false;
		begin();
		for (int i = 0; i < 40; i++) {
			put_refused(kind, (uint32_t)(2 * i + 1));
			flush();
			assert_true(await(HEADERS, (uint32_t)(2 * i + 1), &f));
		}
		expect_alive("after a few");
		for (int i = 40; i < 200 && open; i++) {
			put_refused(kind, (uint32_t)(2 * i + 1));
			open = flush();
		}
		while (!calm && next_frame(&f)) {
			answered += f.type == HEADERS;
			calm = f.type == GOAWAY && u32(f.payload + 4) == ENHANCE_YOUR_CALM;
		}
		if (!calm || answered >= 60)
			fail_msg("kind %d: %d answers, GOAWAY %d", kind, answered, calm);
		close(fd);
		fd = -1;
		buf_clear(&in, SIZE_MAX);
	}
	assert_int_equal(rig.n_requests, 0);
}

static void streams_are_capped(void **state)
{
	(void)state;
	rig.cfg.limits.streams_per_connection = 5;
	struct frame f;
	begin();
	put_frame(SETTINGS, ACK, 0, NULL, 0);
	for (uint32_t i = 0; i < 6; i++)
		put_request(2 * i + 1, "GET", "/never", END_STREAM);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 5);
	assert_true(await(RST_STREAM, 11, &f) || f.type == GOAWAY);
	assert_int_equal(rig.n_requests, 5);
}

/* A reset stream keeps its place until its work has stopped. */
static void held_places_count(void **state)
{
	(void)state;
	rig.cfg.limits.streams_per_connection = 4;
	struct frame f;
	begin();
	for (uint32_t i = 0; i < 4; i++) {
		put_request(2 * i + 1, "GET", "/hold", END_STREAM);
		put_u32(RST_STREAM, 0, 2 * i + 1, CANCEL);
	}
	flush();
	RIG_UNTIL(&rig, rig.n_closed == 4);
	put_request(9, "GET", "/small", END_STREAM);
	expect_reset("no place", 9, REFUSED_STREAM);
	http_release(rig.ex[2]->hold);
	rig.ex[2]->hold = NULL;
	put_request(11, "GET", "/hold", END_STREAM);
	put_request(13, "GET", "/small", END_STREAM);
	expect_reset("no place again", 13, REFUSED_STREAM);
	assert_int_equal(rig.n_requests, 5);
	/* Released while the stream is open: it keeps its own place only. */
	http_release(rig.ex[4]->hold);
	rig.ex[4]->hold = NULL;
	put_u32(RST_STREAM, 0, 11, CANCEL);
	put_request(15, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(DATA, 15, &f));
	/* Another connection is not concerned; holds outlive theirs. */
	begin();
	put_request(1, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(DATA, 1, &f));
	RIG_UNTIL(&rig, rig.tr->n_conns == 1);
}

/* PINGs from a client that never reads. Its limits are set out of the way, so that only the bound
 * on pending output is left: reading stops, or the library gives up; nothing grows. */
static void unread_pings_do_not_grow(void **state)
{
	(void)state;
	rig.cfg.limits.control_frames_burst = 1 << 30;
	rig.cfg.limits.control_frames_per_s = 1 << 30;
	begin();
	close(fd);
	fd = rig_connect_to(&rig, false, 4096);
	flush();
	for (int i = 0; i < 4000; i++)
		put_frame(PING, 0, 0, "12345678", 8);
	size_t at = 0, sent = 0;
	for (int idle = 0; sent < 64u << 20 && idle < 5;) {
		ssize_t m = send(fd, buf_data(&out) + at, out.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (m < 0 && errno != EAGAIN)
			break; /* ended */
		idle = m < 0 ? idle + 1 : 0;
		sent += m > 0 ? (size_t)m : 0;
		at = m > 0 ? (at + (size_t)m) % out.len : at;
		rig_turn(&rig);
		if (transport_empty(rig.tr))
			break;
		struct conn *c = list_entry(rig.tr->conns.next, struct conn, node);
		size_t queued = c->state == CONN_OPEN ? c->proto->queued(c) : 0;
		/* One read more than the bound. */
		assert_true(c->pending.len + queued <=
			    rig.cfg.limits.output_bytes + 2 * TRANSPORT_READ_BYTES / 17 * 192);
	}
	buf_clear(&out, SIZE_MAX);
	assert_true(sent < 64u << 20);
}

static void put_flood(int kind)
{
	static uint8_t block[20000], data[16384];
	size_t m;
	switch (kind) {
	case 0: /* a head in pieces with many fields, an upload, trailers */
		m = hp_request(block, "POST", "/echo");
		for (int i = 0; i < 50; i++)
			m += hp_field(block + m, "some-field", "with a value of its own");
		put_frame(HEADERS, 0, 1, block, m / 2);
		put_frame(CONTINUATION, END_HEADERS, 1, block + m / 2, m - m / 2);
		for (int i = 0; i < 3; i++)
			put_frame(DATA, 0, 1, data, sizeof data);
		put_frame(HEADERS, END_STREAM | END_HEADERS, 1, block, hp_field(block, "t", "u"));
		break;
	case 1: /* an upload over the limit, announced and not */
		m = hp_request(block, "POST", "/echo");
		m += hp_field(block + m, "content-length", "100000");
		put_frame(HEADERS, END_HEADERS, 1, block, m);
		put_request(3, "POST", "/echo", 0);
		for (int i = 0; i < 4; i++)
			put_frame(DATA, 0, 3, data, 15000);
		break;
	case 2: /* rapid reset */
		for (uint32_t i = 0; i < 40; i++) {
			put_request(2 * i + 1, "GET", i % 2 ? "/wait" : "/hold", END_STREAM);
			put_u32(RST_STREAM, 0, 2 * i + 1, CANCEL);
		}
		break;
	case 3: /* resets that we are made to send */
		for (uint32_t i = 0; i < 40; i++) {
			put_request(2 * i + 1, "GET", "/never", END_STREAM);
			put_u32(WINDOW_UPDATE, 0, 2 * i + 1, 0x7fffffff);
		}
		break;
	case 4: /* control frames */
		for (int i = 0; i < 60; i++) {
			put_frame(PING, 0, 0, "12345678", 8);
			put_setting(4, 65535);
			put_frame(0xee, 0, 0, NULL, 0);
			put_frame(PRIORITY, 0, (uint32_t)(2 * i + 1), "\0\0\0\0\x10", 5);
		}
		break;
	default: /* a head without end */
		put_frame(HEADERS, END_STREAM, 1, block, hp_request(block, "GET", "/small"));
		for (int i = 0; i < 10; i++)
			put_frame(CONTINUATION, 0, 1, NULL, 0);
		break;
	}
	put_frame(PING, 0, 0, "the end!", 8);
}

/* Reads until the answer to the last PING or the end. */
static void drink(void)
{
	static uint8_t sink[1 << 18];
	static const uint8_t last[] = "\0\0\x08\6\1\0\0\0\0the end!";
	size_t n = 0;
	time_t end = rig_now() + RIG_PATIENCE_S;
	for (;;) {
		assert_true(rig_now() < end);
		ssize_t m = recv(fd, sink + n, sizeof sink - n, MSG_DONTWAIT);
		if (m == 0 || (m < 0 && errno != EAGAIN))
			return;
		if (m < 0)
			rig_turn(&rig);
		n += m > 0 ? (size_t)m : 0;
		if (memmem(sink, n, last, sizeof last - 1) != NULL)
			return;
	}
}

static void every_fault_of_every_flood(void **state)
{
	(void)state;
	rig.cfg.limits.control_frames_burst = 50;
	rig.cfg.limits.resets_burst = 20;
	rig.cfg.limits.body_bytes = 50000;
	static const enum fault_point points[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE};
	rig_start(&rig);
	for (int kind = 0; kind < 6; kind++)
		for (size_t p = 0; p < 3; p++) {
			bool hit = true;
			long nth = 1;
			for (; nth < 600 && hit; nth++) {
				begin();
				put_flood(kind);
				fault_arm(points[p], nth, 1);
				long before = fault_passes(points[p]);
				flush();
				drink();
				hit = fault_passes(points[p]) - before >= nth;
				fault_disarm_all();
				close(fd);
				fd = -1;
				RIG_UNTIL(&rig, transport_empty(rig.tr));
				assert_int_equal(rig.n_closed, rig.n_requests);
				for (int i = 0; i < rig.n_requests; i++) {
					http_release(rig.ex[i]->hold);
					buf_dispose(&rig.ex[i]->body);
					buf_dispose(&rig.ex[i]->give);
					free(rig.ex[i]);
				}
				rig.n_requests = rig.n_closed = 0;
			}
			assert_true(nth < 600);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(rapid_reset_is_stopped),
	    T(made_resets_are_stopped),
	    T(refused_requests_are_stopped),
	    T(control_floods_are_stopped),
	    T(a_reader_may_open_its_windows),
	    T(continuation_flood_is_stopped),
	    T(heads_are_bounded),
	    T(streams_are_capped),
	    T(held_places_count),
	    T(unread_pings_do_not_grow),
	    T(every_fault_of_every_flood),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
