/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 with frames written by hand: conformance where a library leaves a choice, abuse and its
 * bounds, flow control, draining. Section numbers are RFC 9113's.
 */
#include "tests/support/h2_frames.h"

#include "base/fault.h"
#include "gateway/conn.h"

/* ---- requests ---- */

static void request_and_answer(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_int_equal(f.flags & END_STREAM, 0);
	assert_int_equal(f.payload[0], 0x88); /* :status 200 */
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 6);
	assert_true(f.flags & END_STREAM);
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 1);
	/* Without content the head ends the stream. */
	put_request(3, "HEAD", "/small", END_STREAM);
	put_request(5, "GET", "/empty", END_STREAM);
	flush();
	assert_true(await(HEADERS, 3, &f) && (f.flags & END_STREAM));
	assert_true(await(HEADERS, 5, &f) && (f.flags & END_STREAM));
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 3);
}

static void bodies_and_trailers(void **state)
{
	(void)state;
	struct frame f;
	uint8_t block[64];
	begin();
	put_request(1, "POST", "/echo", 0);
	put_frame(DATA, PADDED, 1,
		  "\x02"
		  "abc\0\0",
		  6);
	put_frame(DATA, 0, 1, "de", 2);
	put_frame(HEADERS, END_STREAM | END_HEADERS, 1, block, hp_field(block, "x-t", "1"));
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 5);
	assert_memory_equal(f.payload, "abcde", 5);
	assert_int_equal(rig.n_body_ends, 1);
}

static void expect_100_continue(void **state)
{
	(void)state;
	struct frame f;
	uint8_t block[512];
	begin();
	size_t m = hp_request(block, "POST", "/echo");
	m += hp_field(block + m, "expect", "100-continue");
	put_frame(HEADERS, END_HEADERS, 1, block, m);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_memory_equal(f.payload, "\x48\x82\x08\x01", 4); /* :status 100, Huffman-coded */
	put_frame(DATA, END_STREAM, 1, "ok", 2);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_int_equal(f.payload[0], 0x88);
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 2);
}

static void bytes_one_by_one(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "POST", "/echo", 0);
	put_frame(DATA, END_STREAM, 1, "xyz", 3);
	for (size_t i = 0; i < out.len; i++) {
		assert_true(rig_send(&rig, fd, buf_data(&out) + i, 1));
		rig_turn(&rig);
	}
	buf_clear(&out, SIZE_MAX);
	assert_true(await(DATA, 1, &f));
	assert_memory_equal(f.payload, "xyz", 3);
}

static void a_long_upload_gets_its_window_back(void **state)
{
	(void)state;
	static uint8_t chunk[16384];
	struct frame f;
	size_t window = 65535, left = 500000;
	begin();
	put_request(1, "POST", "/echo", 0);
	flush();
	while (left > 0) {
		size_t n = left < sizeof chunk ? left : sizeof chunk;
		while (window < n) {
			assert_true(await(WINDOW_UPDATE, 1, &f));
			window += u32(f.payload);
		}
		left -= n;
		window -= n;
		put_frame(DATA, left == 0 ? END_STREAM : 0, 1, chunk, n);
		flush();
	}
	RIG_UNTIL(&rig, rig.n_body_ends == 1);
	assert_int_equal(rig.body_bytes, 500000);
}

static void malformed_requests(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		const char *fields[10];
	} cases[] = {
	    {"no path", {":method", "GET", ":scheme", "http"}},
	    {"empty path", {":method", "GET", ":scheme", "http", ":path", ""}},
	    {"no method", {":scheme", "http", ":path", "/small"}},
	    {"two paths", {":method", "GET", ":scheme", "http", ":path", "/", ":path", "/"}},
	    {"unknown pseudo", {":method", "GET", ":scheme", "http", ":path", "/", ":x", "y"}},
	    {"pseudo late", {":method", "GET", ":scheme", "http", "a", "b", ":path", "/"}},
	    {"upper case", {":method", "GET", ":scheme", "http", ":path", "/", "X", "y"}},
	    {"connection",
	     {":method", "GET", ":scheme", "http", ":path", "/", "connection", "close"}},
	    {"te", {":method", "GET", ":scheme", "http", ":path", "/", "te", "gzip"}},
	    {"transfer-encoding",
	     {":method", "GET", ":scheme", "http", ":path", "/", "transfer-encoding", "chunked"}},
	};
	begin();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t block[512];
		size_t m = 0;
		for (int k = 0; k < 10 && cases[i].fields[k] != NULL; k += 2)
			m += hp_field(block + m, cases[i].fields[k], cases[i].fields[k + 1]);
		put_frame(HEADERS, END_STREAM | END_HEADERS, (uint32_t)(2 * i + 1), block, m);
		expect_reset(cases[i].what, (uint32_t)(2 * i + 1), PROTOCOL_ERROR);
	}
	/* 8.1.1: the sum of DATA against content-length. */
	uint8_t block[512];
	size_t m = hp_request(block, "POST", "/echo");
	m += hp_field(block + m, "content-length", "2");
	put_frame(HEADERS, END_HEADERS, 101, block, m);
	put_frame(DATA, END_STREAM, 101, "abc", 3);
	expect_reset("content-length", 101, PROTOCOL_ERROR);
	expect_alive("after malformed requests");
	assert_int_equal(rig.n_body_ends, 0);
}

static void paths_are_checked_like_in_http_1(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/a#b", END_STREAM);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_int_equal(f.payload[0], 0x8c); /* :status 400 */
	assert_int_equal(rig.n_requests, 0);
}

/* ---- frames that break the connection ---- */

static void connection_errors(void **state)
{
	(void)state;
	begin();
	put_request(2, "GET", "/small", END_STREAM);
	expect_goaway("even id", PROTOCOL_ERROR);
	begin();
	put_request(0, "GET", "/small", END_STREAM);
	expect_goaway("HEADERS on 0", PROTOCOL_ERROR);
	begin();
	put_frame(DATA, 0, 0, "x", 1);
	expect_goaway("DATA on 0", PROTOCOL_ERROR);
	begin();
	put_frame(DATA, 0, 1, "x", 1);
	expect_goaway("DATA on idle", PROTOCOL_ERROR);
	begin();
	put_u32(RST_STREAM, 0, 1, CANCEL);
	expect_goaway("RST_STREAM on idle", PROTOCOL_ERROR);
	begin();
	put_u32(WINDOW_UPDATE, 0, 1, 1);
	expect_goaway("WINDOW_UPDATE on idle", PROTOCOL_ERROR);
	begin();
	put_u32(WINDOW_UPDATE, 0, 0, 0);
	expect_goaway("WINDOW_UPDATE 0", PROTOCOL_ERROR);
	begin();
	put_u32(WINDOW_UPDATE, 0, 0, 0x7fffffff);
	expect_goaway("WINDOW_UPDATE over", FLOW_CONTROL_ERROR);
	begin();
	put_frame(PING, 0, 0, "short", 5);
	expect_goaway("PING length", FRAME_SIZE_ERROR);
	begin();
	put_frame(PING, 0, 1, "12345678", 8);
	expect_goaway("PING on 1", PROTOCOL_ERROR);
	begin();
	put_frame(SETTINGS, 0, 0, "12345", 5);
	expect_goaway("SETTINGS length", FRAME_SIZE_ERROR);
	begin();
	put_frame(SETTINGS, ACK, 0, "123456", 6);
	expect_goaway("SETTINGS ack with payload", FRAME_SIZE_ERROR);
	begin();
	put_setting(4, 0x80000000);
	expect_goaway("INITIAL_WINDOW_SIZE", FLOW_CONTROL_ERROR);
	begin();
	put_setting(5, 100);
	expect_goaway("MAX_FRAME_SIZE", PROTOCOL_ERROR);
	begin();
	put_setting(2, 2);
	expect_goaway("ENABLE_PUSH", PROTOCOL_ERROR);
	begin();
	put_frame(CONTINUATION, END_HEADERS, 1, "x", 1);
	expect_goaway("CONTINUATION alone", PROTOCOL_ERROR);
	begin();
	put_frame(HEADERS, END_STREAM, 1, "\x82", 1);
	put_frame(PING, 0, 0, "12345678", 8);
	expect_goaway("frame inside a head", PROTOCOL_ERROR);
	begin();
	put_frame(HEADERS, END_STREAM | END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff", 6);
	expect_goaway("HPACK", COMPRESSION_ERROR);
	begin();
	put_frame(PUSH_PROMISE, END_HEADERS, 1, "\0\0\0\2", 4);
	expect_goaway("PUSH_PROMISE", PROTOCOL_ERROR);
	begin();
	put_head(16385, DATA, 0, 1);
	expect_goaway("frame too long", FRAME_SIZE_ERROR);
	assert_int_equal(rig.n_requests, 0);
}

/* 5.1.1: "an endpoint that receives an unexpected stream identifier MUST respond with a connection
 * error"; nghttp2 alone ignores the frame. */
static void a_smaller_stream_id_is_an_error(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(5, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(DATA, 5, &f));
	put_request(3, "GET", "/small", END_STREAM);
	expect_goaway("smaller id", PROTOCOL_ERROR);
	assert_int_equal(rig.n_requests, 1);
	/* A trailer of a stream opened long ago is none, however many came after it. */
	begin();
	put_request(1, "POST", "/echo", 0);
	for (uint32_t i = 0; i < 300; i++) {
		put_request(3 + 2 * i, "GET", "/small", END_STREAM);
		flush();
		assert_true(await(DATA, 3 + 2 * i, &f));
	}
	uint8_t block[64];
	put_frame(DATA, 0, 1, "late", 4);
	put_frame(HEADERS, END_STREAM | END_HEADERS, 1, block, hp_field(block, "x-t", "1"));
	flush();
	assert_true(await(DATA, 1, &f));
	assert_memory_equal(f.payload, "late", 4);
}

static void frames_on_closed_streams(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/never", END_STREAM);
	put_frame(DATA, 0, 1, "x", 1);
	/* 5.1 asks for a stream error at least; the library ends the connection. */
	expect_goaway("DATA when half closed", STREAM_CLOSED);
	begin();
	put_request(3, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(DATA, 3, &f));
	put_u32(WINDOW_UPDATE, 0, 3, 1); /* 5.1: may be received for a while */
	put_u32(RST_STREAM, 0, 3, CANCEL);
	put_frame(PRIORITY, 0, 3, "\0\0\0\0\x10", 5);
	expect_alive("harmless frames on a closed stream");
	put_u32(WINDOW_UPDATE, 0, 5, 1);
	expect_goaway("WINDOW_UPDATE on idle", PROTOCOL_ERROR);
}

static void unknown_things_are_ignored(void **state)
{
	(void)state;
	begin();
	put_frame(0xbb, 0xff, 0, "whatever", 8);
	put_frame(0xbb, 0xff, 77, "whatever", 8);
	put_setting(0x99, 1);
	put_frame(PRIORITY, 0, 9, "\0\0\0\0\x10", 5);
	expect_alive("unknown frames");
}

/* 3.4: who began like HTTP/2 is answered in it. */
static void a_wrong_preface_is_an_error(void **state)
{
	(void)state;
	struct frame f;
	begin();
	buf_clear(&out, SIZE_MAX);
	put("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 24);
	flush();
	assert_true(await(SETTINGS, 0, &f));
	expect_goaway("preface", PROTOCOL_ERROR);
	assert_int_equal(rig.n_requests, 0);
}

static void unknown_expectations_are_refused(void **state)
{
	(void)state;
	struct frame f;
	uint8_t block[512];
	begin();
	size_t m = hp_request(block, "POST", "/echo");
	m += hp_field(block + m, "expect", "the-impossible");
	put_frame(HEADERS, END_HEADERS, 1, block, m);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_memory_equal(f.payload + 1,
			    "\x03"
			    "417",
			    4);
	assert_int_equal(rig.n_requests, 0);
}

static void cleartext_upgrade_is_ignored(void **state)
{
	(void)state;
	rig_start(&rig);
	fd = rig_connect(&rig);
	static const char q[] =
	    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
	    "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	assert_true(rig_read(&rig, fd, &in, 17));
	assert_int_equal(strncmp(buf_cstr(&in), "HTTP/1.1 200 OK\r\n", 17), 0);
}

/* ---- abuse ---- */

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
	static const char *const what[] = {"PING",
					   "PRIORITY",
					   "empty DATA",
					   "unknown",
					   "SETTINGS",
					   "WINDOW_UPDATE",
					   "PING answer",
					   "GOAWAY",
					   "DATA of padding",
					   "WINDOW_UPDATE of the stream"};
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
		ssize_t m =
		    send(fd, buf_data(&out) + at, out.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
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

/* ---- flow control ---- */

static void a_closed_window_holds_the_body_back(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_setting(4, 10);
	put_request(1, "GET", "/big?25", END_STREAM);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 10);
	assert_int_equal(rig.pulled, 10);
	expect_alive("closed window");
	put_u32(WINDOW_UPDATE, 0, 1, 5);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 5);
	put_setting(4, 20); /* 6.9.2: moves the windows of open streams */
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 10);
	assert_true(f.flags & END_STREAM);
}

static void a_stalled_stream_is_reset_and_others_live(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	struct frame f;
	rig_start(&rig);
	clock_fake(&now);
	begin();
	put_setting(4, 0);
	put_request(1, "GET", "/big?5", END_STREAM);
	put_request(3, "GET", "/wait", END_STREAM);
	put_u32(WINDOW_UPDATE, 0, 3, 1000);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_true(await(HEADERS, 3, &f));
	now += 31 * NS_PER_S;
	expect_reset("stalled", 1, CANCEL);
	assert_int_equal(rig.closed[HTTP_CLOSE_TIMEOUT], 1);
	rig_give(rig.ex[1], "on", true);
	assert_true(await(DATA, 3, &f));
	assert_int_equal(f.len, 2);
}

static void a_source_wakes_its_stream(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/wait", END_STREAM);
	put_request(3, "GET", "/wait", END_STREAM);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 2);
	rig_give(rig.ex[1], "b", false);
	rig_give(rig.ex[0], "a", false);
	rig_give(rig.ex[0], "A", false);
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 2); /* gathered */
	rig_give(rig.ex[0], "", true);
	assert_true(await(DATA, 1, &f));
	assert_true(f.flags & END_STREAM);
	put_u32(RST_STREAM, 0, 3, CANCEL);
	flush();
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_PEER] == 1);
}

/* Whatever became ready in one turn goes out in one send. */
static void a_turn_is_one_send(void **state)
{
	(void)state;
	struct frame f;
	begin();
	for (uint32_t i = 0; i < 20; i++)
		put_request(2 * i + 1, "GET", "/wait", END_STREAM);
	flush();
	for (uint32_t i = 0; i < 20; i++)
		assert_true(await(HEADERS, 2 * i + 1, &f));
	expect_alive("before");
	fault_arm(FAULT_WRITE, 1000000, 1); /* counts the sends */
	long before = fault_passes(FAULT_WRITE);
	for (int i = 0; i < 20; i++)
		rig_give(rig.ex[i], "event", false);
	for (uint32_t i = 0; i < 20; i++)
		assert_true(await(DATA, 0, &f));
	assert_int_equal(fault_passes(FAULT_WRITE) - before, 1);
}

static void reset_and_failing_source(void **state)
{
	(void)state;
	begin();
	put_request(1, "GET", "/reset", END_STREAM);
	expect_reset("http_reset", 1, INTERNAL_ERROR);
	put_request(3, "GET", "/fail", END_STREAM);
	expect_reset("source", 3, INTERNAL_ERROR);
	put_request(5, "GET", "/split", END_STREAM);
	expect_reset("split", 5, INTERNAL_ERROR);
	expect_alive("resets");
	assert_int_equal(rig.closed[HTTP_CLOSE_ERROR], 3);
}

static void uploads_over_the_limit(void **state)
{
	(void)state;
	rig.cfg.limits.body_bytes = 1000;
	uint64_t now = clock_now_ns();
	struct frame f;
	uint8_t block[512], body[1001] = {0};
	rig_start(&rig);
	clock_fake(&now);
	begin();
	size_t m = hp_request(block, "POST", "/echo");
	m += hp_field(block + m, "content-length", "1001");
	put_frame(HEADERS, END_HEADERS, 1, block, m);
	flush();
	assert_true(await(HEADERS, 1, &f));
	assert_memory_equal(f.payload + 1,
			    "\x03"
			    "413",
			    4);
	assert_true(await(DATA, 1, &f));
	/* The rest of the upload is waited for only a moment. */
	now += 2 * NS_PER_S;
	expect_reset("announced", 1, NO_ERROR);
	assert_int_equal(rig.n_requests, 0);
	/* Not announced. */
	put_request(3, "POST", "/echo", 0);
	put_frame(DATA, END_STREAM, 3, body, sizeof body);
	flush();
	assert_true(await(HEADERS, 3, &f));
	assert_int_equal(rig.closed[HTTP_CLOSE_ERROR], 1);
	assert_int_equal(rig.n_body_ends, 0);
	expect_alive("uploads");
}

/* After an error nothing but the GOAWAY goes out, however much the streams still have. */
static void an_error_ends_running_streams_too(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_setting(4, 0x7fffffff);
	put_u32(WINDOW_UPDATE, 0, 0, 0x7fff0000 - 65535);
	put_request(1, "GET", "/big?500000000", END_STREAM);
	flush();
	assert_true(await(DATA, 1, &f));
	put_frame(PING, 0, 0, "short", 5);
	expect_goaway("PING length", FRAME_SIZE_ERROR);
	assert_true(rig.pulled < 100 << 20);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_ERROR] == 1);
}

/* ---- ends ---- */

static void deadlines(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	struct frame f;
	rig_start(&rig);
	clock_fake(&now);
	/* A head that is never finished. */
	begin();
	put_frame(HEADERS, END_STREAM, 1, "\x82", 1);
	flush();
	RIG_UNTIL(&rig, rig.tr->n_streams == 1);
	now += 11 * NS_PER_S;
	while (next_frame(&f))
		;
	/* A body that is never finished. */
	begin();
	put_request(1, "POST", "/echo", 0);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 1);
	now += 31 * NS_PER_S;
	assert_true(await(HEADERS, 1, &f));
	assert_memory_equal(f.payload + 1,
			    "\x03"
			    "408",
			    4);
	assert_int_equal(rig.closed[HTTP_CLOSE_TIMEOUT], 1);
	assert_true(await(DATA, 1, &f) && (f.flags & END_STREAM));
	now += 2 * NS_PER_S;
	expect_reset("body", 1, NO_ERROR);
	/* Idle. */
	now += 61 * NS_PER_S;
	expect_goaway("idle", NO_ERROR);
	/* No SETTINGS after the preface. */
	buf_clear(&out, SIZE_MAX);
	close(fd);
	fd = rig_connect(&rig);
	buf_clear(&in, SIZE_MAX);
	put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	flush();
	assert_true(await(SETTINGS, 0, &f));
	now += 11 * NS_PER_S;
	while (next_frame(&f))
		;
}

static void drain_in_two_steps(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_request(1, "GET", "/wait", END_STREAM);
	flush();
	assert_true(await(HEADERS, 1, &f));
	transport_drain(rig.tr, false);
	assert_true(await(GOAWAY, 0, &f));
	assert_int_equal(u32(f.payload), 0x7fffffff);
	assert_int_equal(u32(f.payload + 4), NO_ERROR);
	assert_true(await(PING, 0, &f));
	uint8_t ping[8];
	memcpy(ping, f.payload, 8);
	/* Sent before the peer could know: still served. */
	put_request(3, "GET", "/small", END_STREAM);
	put_frame(PING, ACK, 0, ping, 8);
	flush();
	assert_true(await(GOAWAY, 0, &f));
	assert_int_equal(u32(f.payload), 3);
	/* Too late: not processed. */
	put_request(5, "GET", "/small", END_STREAM);
	flush();
	rig_give(rig.ex[0], "end", true);
	assert_true(await(DATA, 1, &f));
	assert_true(f.flags & END_STREAM || (await(DATA, 1, &f) && (f.flags & END_STREAM)));
	while (next_frame(&f))
		;
	assert_int_equal(rig.n_requests, 2);
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 2);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
}

static void every_stream_is_told_when_the_connection_goes(void **state)
{
	(void)state;
	begin();
	for (uint32_t i = 0; i < 50; i++)
		put_request(2 * i + 1, i % 2 ? "GET" : "POST", i % 3 ? "/wait" : "/never",
			    i % 2 ? END_STREAM : 0);
	flush();
	RIG_UNTIL(&rig, rig.n_requests == 50);
	close(fd);
	fd = -1;
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_PEER] == 50);
}

static void every_fault_is_survived(void **state)
{
	(void)state;
	static const enum fault_point points[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE};
	begin();
	for (size_t p = 0; p < 3; p++) {
		bool whole = false;
		for (long nth = 1; nth < 300 && !whole; nth++) {
			if (nth > 1 || p > 0)
				begin();
			put_request(1, "POST", "/echo", 0);
			put_frame(DATA, END_STREAM, 1, "abc", 3);
			put_request(3, "GET", "/big?30000", END_STREAM);
			put_request(5, "GET", "/small", END_STREAM);
			flush();
			int done = rig.closed[HTTP_CLOSE_DONE];
			static uint8_t sink[65536];
			ssize_t n;
			fault_arm(points[p], nth, 1);
			time_t end = rig_now() + RIG_PATIENCE_S;
			while (rig_now() < end) {
				n = recv(fd, sink, sizeof sink, MSG_DONTWAIT);
				if (n == 0 || (n < 0 && errno != EAGAIN))
					break;
				if (n < 0)
					rig_turn(&rig);
				if (rig.n_requests > 0 && rig.n_closed == rig.n_requests &&
				    rig.tr->n_streams == 0)
					break;
			}
			fault_disarm_all();
			assert_true(rig_now() < end);
			whole = rig.closed[HTTP_CLOSE_DONE] == done + 3;
			close(fd);
			fd = -1;
			RIG_UNTIL(&rig, transport_empty(rig.tr));
			assert_int_equal(rig.n_closed, rig.n_requests);
			for (int i = 0; i < rig.n_requests; i++) {
				buf_dispose(&rig.ex[i]->body);
				buf_dispose(&rig.ex[i]->give);
				free(rig.ex[i]);
			}
			rig.n_requests = rig.n_closed = 0;
		}
		assert_true(whole);
	}
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
	    T(request_and_answer),
	    T(bodies_and_trailers),
	    T(expect_100_continue),
	    T(bytes_one_by_one),
	    T(a_long_upload_gets_its_window_back),
	    T(malformed_requests),
	    T(paths_are_checked_like_in_http_1),
	    T(connection_errors),
	    T(a_smaller_stream_id_is_an_error),
	    T(frames_on_closed_streams),
	    T(unknown_things_are_ignored),
	    T(a_wrong_preface_is_an_error),
	    T(unknown_expectations_are_refused),
	    T(cleartext_upgrade_is_ignored),
	    T(rapid_reset_is_stopped),
	    T(made_resets_are_stopped),
	    T(control_floods_are_stopped),
	    T(a_reader_may_open_its_windows),
	    T(continuation_flood_is_stopped),
	    T(heads_are_bounded),
	    T(streams_are_capped),
	    T(held_places_count),
	    T(unread_pings_do_not_grow),
	    T(a_closed_window_holds_the_body_back),
	    T(a_stalled_stream_is_reset_and_others_live),
	    T(a_source_wakes_its_stream),
	    T(a_turn_is_one_send),
	    T(reset_and_failing_source),
	    T(uploads_over_the_limit),
	    T(an_error_ends_running_streams_too),
	    T(deadlines),
	    T(drain_in_two_steps),
	    T(every_stream_is_told_when_the_connection_goes),
	    T(every_fault_is_survived),
	    T(every_fault_of_every_flood),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
