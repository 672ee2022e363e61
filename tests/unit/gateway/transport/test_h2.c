/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 with frames written by hand: conformance where a library leaves a choice, flow control, draining. Section
 * numbers are RFC 9113's. Abuse: test_h2_abuse.c.
 */
#include "tests/support/h2_frames.h"

#include "base/fault.h"
#include "gateway/transport/conn.h"

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
	    {"connection", {":method", "GET", ":scheme", "http", ":path", "/", "connection", "close"}},
	    {"two authorities",
	     {":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a", ":authority", "a"}},
	    {"two hosts", {":method", "GET", ":scheme", "http", ":path", "/", "host", "a", "host", "a"}},
	    {"te", {":method", "GET", ":scheme", "http", ":path", "/", "te", "gzip"}},
	    {"transfer-encoding", {":method", "GET", ":scheme", "http", ":path", "/", "transfer-encoding", "chunked"}},
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

/* RFC 9113 8.3.1: no userinfo; in Host neither, where that takes the place of :authority. */
static void authorities_are_checked(void **state)
{
	(void)state;
	static const char *const bad[] = {
	    "user@localhost", "user:pw@localhost:80", "", "localhost:x", "local host", "[::1", ":80"};
	struct frame f;
	begin();
	for (size_t i = 0; i < 2 * (sizeof bad / sizeof *bad); i++) {
		uint8_t block[512];
		uint32_t id = (uint32_t)(2 * i + 1);
		size_t m = hp_field(block, ":method", "GET");
		m += hp_field(block + m, ":scheme", "http");
		m += hp_field(block + m, ":path", "/small");
		m += hp_field(block + m, i % 2 ? "host" : ":authority", bad[i / 2]);
		put_frame(HEADERS, END_STREAM | END_HEADERS, id, block, m);
		flush();
		if (bad[i / 2][0] == '\0' || strchr(bad[i / 2], ' ') != NULL) {
			/* The library's own checks may be first. */
			while (next_frame(&f) && f.id != id)
				;
			assert_true(f.type == RST_STREAM || (f.type == HEADERS && f.payload[0] == 0x8c));
			continue;
		}
		assert_true(await(HEADERS, id, &f));
		assert_int_equal(f.payload[0], 0x8c); /* :status 400 */
	}
	expect_alive("after authorities that are none");
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
	static const char q[] = "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
				"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	assert_true(rig_read(&rig, fd, &in, 17));
	assert_int_equal(strncmp(buf_cstr(&in), "HTTP/1.1 200 OK\r\n", 17), 0);
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

/* Where an event says so it goes out at once, also in one send, and is not sent again at the end of the turn. */
static void output_may_go_out_before_the_turn_ends(void **state)
{
	(void)state;
	struct frame f;
	begin();
	for (uint32_t i = 0; i < 3; i++)
		put_request(2 * i + 1, "GET", "/wait", END_STREAM);
	flush();
	for (uint32_t i = 0; i < 3; i++)
		assert_true(await(HEADERS, 2 * i + 1, &f));
	expect_alive("before");
	fault_arm(FAULT_WRITE, 1000000, 1); /* counts the sends */
	long before = fault_passes(FAULT_WRITE);
	for (int i = 0; i < 3; i++)
		rig_give(rig.ex[i], "event", false);
	gw_run_output(&rig.t);
	assert_int_equal(fault_passes(FAULT_WRITE) - before, 1);
	assert_int_equal(rig.pulled, 3 * 5);
	gw_run_output(&rig.t);
	rig_turn(&rig);
	assert_int_equal(fault_passes(FAULT_WRITE) - before, 1);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(await(DATA, 0, &f));
	/* A connection that ends while it goes out is gone only at the end of the turn. */
	fault_arm(FAULT_WRITE, 1, 1);
	rig_give(rig.ex[0], "event", false);
	gw_run_output(&rig.t);
	assert_int_equal(rig.n_closed, 3);
	assert_null(rig.ex[2]->s);
	rig_turn(&rig);
	assert_true(transport_empty(rig.tr));
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
		put_request(2 * i + 1, i % 2 ? "GET" : "POST", i % 3 ? "/wait" : "/never", i % 2 ? END_STREAM : 0);
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
				if (rig.n_requests > 0 && rig.n_closed == rig.n_requests && rig.tr->n_streams == 0)
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
	    T(authorities_are_checked),
	    T(connection_errors),
	    T(a_smaller_stream_id_is_an_error),
	    T(frames_on_closed_streams),
	    T(unknown_things_are_ignored),
	    T(a_wrong_preface_is_an_error),
	    T(unknown_expectations_are_refused),
	    T(cleartext_upgrade_is_ignored),
	    T(a_closed_window_holds_the_body_back),
	    T(a_stalled_stream_is_reset_and_others_live),
	    T(a_source_wakes_its_stream),
	    T(a_turn_is_one_send),
	    T(output_may_go_out_before_the_turn_ends),
	    T(reset_and_failing_source),
	    T(uploads_over_the_limit),
	    T(an_error_ends_running_streams_too),
	    T(deadlines),
	    T(drain_in_two_steps),
	    T(every_stream_is_told_when_the_connection_goes),
	    T(every_fault_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
