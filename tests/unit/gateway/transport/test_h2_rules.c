/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of RFC 9113 and RFC 7541 that a peer may break, one row each: the frames, and what must
 * come of them. And some that look like breaking a rule and are none. Sections without a name of
 * their document are RFC 9113's.
 */
#include "tests/support/h2_frames.h"

/* All lengths, identifiers and codes here fit a byte. */
#define FRAME(len, type, flags, id) "\0\0" len type flags "\0\0\0" id
#define T_DATA "\x00"
#define T_HEADERS "\x01"
#define T_PRIORITY "\x02"
#define T_RST "\x03"
#define T_SETTINGS "\x04"
#define T_PUSH "\x05"
#define T_PING "\x06"
#define T_GOAWAY "\x07"
#define T_WINDOW "\x08"
#define T_CONT "\x09"
#define NONE "\x00"
#define END "\x01"
#define ACKED "\x01"
#define HEAD_END "\x04"
#define BOTH_ENDS "\x05"
#define PAD "\x08"

/* Request heads, indexed as far as the static table goes. */
#define HOST "\x01\x01h"
#define GET_HEAD "\x82\x86\x04\x06/small" HOST  /* 13 bytes */
#define WAIT_HEAD "\x82\x86\x04\x06/never" HOST /* 13 bytes; never answered */
#define POST_HEAD "\x83\x86\x04\x05/echo" HOST  /* 12 bytes */
#define GET(id) FRAME("\x0d", T_HEADERS, BOTH_ENDS, id) GET_HEAD
#define GET_WAIT(id) FRAME("\x0d", T_HEADERS, BOTH_ENDS, id) WAIT_HEAD
#define POST(id) FRAME("\x0c", T_HEADERS, HEAD_END, id) POST_HEAD
#define RESET(id) FRAME("\x04", T_RST, NONE, id) "\0\0\0\x08"

#define CODE(c) (1u << (c))
#define PROTOCOL CODE(PROTOCOL_ERROR)
#define SIZE CODE(FRAME_SIZE_ERROR)
#define CLOSED CODE(STREAM_CLOSED)
#define FLOW CODE(FLOW_CONTROL_ERROR)
#define HPACK CODE(COMPRESSION_ERROR)

struct rule {
	const char *what, *bytes;
	size_t n;
	uint32_t goaway;   /* codes that a GOAWAY may say */
	uint32_t reset;    /* codes that an RST_STREAM may say; neither: the connection lives */
	uint32_t answered; /* a stream that must be answered all the same */
};
#define RULE(what, goaway, reset, answered, bytes)                      \
	{                                                               \
		what, bytes, sizeof(bytes) - 1, goaway, reset, answered \
	}

static const struct rule frames[] = {
    RULE("4.1 undefined flags are ignored", 0, 0, 0, FRAME("\x08", T_PING, "\x16", "\x00") "12345678"),
    RULE("4.1 the reserved bit is ignored", 0, 0, 0,
	 "\0\0\x08\x06\x16\x80\0\0\0"
	 "12345678"),
    RULE("4.2 a HEADERS frame too long", SIZE, 0, 0, "\0\x40\x01\x01\x05\0\0\0\x01"),
    RULE("4.3 PRIORITY inside a head", PROTOCOL, 0, 0,
	 FRAME("\x0d", T_HEADERS, END, "\x01") GET_HEAD FRAME("\x05", T_PRIORITY, NONE, "\x01") "\0\0\0\0\x10"),
    RULE("4.3 another stream's HEADERS inside a head", PROTOCOL, 0, 0,
	 FRAME("\x0d", T_HEADERS, END, "\x01") GET_HEAD GET("\x03")),
    RULE("5.1 CONTINUATION on idle", PROTOCOL, 0, 0, FRAME("\x0d", T_CONT, HEAD_END, "\x01") GET_HEAD),
    RULE("5.1 half closed: HEADERS", CLOSED | PROTOCOL, CLOSED, 0, GET_WAIT("\x01") GET("\x01")),
    RULE("5.1 half closed: CONTINUATION", CLOSED | PROTOCOL, CLOSED, 0,
	 GET_WAIT("\x01") FRAME("\x0d", T_CONT, HEAD_END, "\x01") GET_HEAD),
    RULE("5.1 half closed: WINDOW_UPDATE, PRIORITY, RST_STREAM", 0, 0, 0,
	 GET_WAIT("\x01") FRAME("\x04", T_WINDOW, NONE, "\x01") "\0\0\0\x01" FRAME(
	     "\x05", T_PRIORITY, NONE, "\x01") "\0\0\0\0\x10" RESET("\x01")),
    RULE("5.1 closed by RST_STREAM: DATA", CLOSED, CLOSED, 0,
	 POST("\x01") RESET("\x01") FRAME("\x01", T_DATA, END, "\x01") "x"),
    RULE("5.1 closed by RST_STREAM: HEADERS", CLOSED | PROTOCOL, CLOSED, 0, POST("\x01") RESET("\x01") GET("\x01")),
    RULE("5.1 closed by RST_STREAM: CONTINUATION", CLOSED | PROTOCOL, CLOSED, 0,
	 POST("\x01") RESET("\x01") FRAME("\x0d", T_CONT, HEAD_END, "\x01") GET_HEAD),
    RULE("5.3 PRIORITY that depends on itself", PROTOCOL, PROTOCOL, 0,
	 GET_WAIT("\x01") FRAME("\x05", T_PRIORITY, NONE, "\x01") "\0\0\0\x01\x10"),
    RULE("5.3 HEADERS that depends on itself", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x12", T_HEADERS, "\x25", "\x01") "\0\0\0\x01\x10" GET_HEAD),
    RULE("5.3 PRIORITY of an idle stream, then a lower one opens", 0, 0, 1,
	 FRAME("\x05", T_PRIORITY, NONE, "\x05") "\0\0\0\0\x10" GET("\x01")),
    RULE("5.5 an unknown frame inside a head", PROTOCOL, 0, 0,
	 FRAME("\x0d", T_HEADERS, END, "\x01") GET_HEAD FRAME("\x01", "\xbb", NONE, "\x00") "x"),
    RULE("6.1 DATA padded beyond its end", PROTOCOL, 0, 0, POST("\x01") FRAME("\x02", T_DATA, "\x09", "\x01") "\x02x"),
    RULE("6.2 HEADERS padded beyond its end", PROTOCOL, 0, 0, FRAME("\x0e", T_HEADERS, "\x0d", "\x01") "\x0e" GET_HEAD),
    RULE("6.2 HEADERS padded, with priority", 0, 0, 1,
	 FRAME("\x15", T_HEADERS, "\x2d", "\x01") "\x02\0\0\0\0\x10" GET_HEAD "\0\0"),
    RULE("6.3 PRIORITY on 0", PROTOCOL, 0, 0, FRAME("\x05", T_PRIORITY, NONE, "\x00") "\0\0\0\0\x10"),
    RULE("6.3 PRIORITY's length", SIZE, SIZE, 0, GET_WAIT("\x01") FRAME("\x04", T_PRIORITY, NONE, "\x01") "\0\0\0\0"),
    RULE("6.4 RST_STREAM on 0", PROTOCOL, 0, 0, FRAME("\x04", T_RST, NONE, "\x00") "\0\0\0\x08"),
    RULE("6.4 RST_STREAM's length", SIZE, 0, 0, GET_WAIT("\x01") FRAME("\x03", T_RST, NONE, "\x01") "\0\0\x08"),
    RULE("6.5 SETTINGS on 1", PROTOCOL, 0, 0, FRAME("\x00", T_SETTINGS, NONE, "\x01")),
    RULE("6.5 SETTINGS acknowledged that were not sent", PROTOCOL, 0, 0,
	 FRAME("\x00", T_SETTINGS, ACKED, "\x00") FRAME("\x00", T_SETTINGS, ACKED, "\x00")),
    RULE("6.5.2 MAX_FRAME_SIZE above the most", PROTOCOL, 0, 0,
	 FRAME("\x06", T_SETTINGS, NONE, "\x00") "\0\x05\x01\0\0\0"),
    RULE("6.6 PUSH_PROMISE", PROTOCOL, 0, 0,
	 POST("\x01") FRAME("\x11", T_PUSH, HEAD_END, "\x01") "\0\0\0\x02" GET_HEAD),
    RULE("6.8 GOAWAY on 1", PROTOCOL, 0, 0, FRAME("\x08", T_GOAWAY, NONE, "\x01") "\0\0\0\0\0\0\0\0"),
    RULE("6.9 WINDOW_UPDATE of 0 on a stream", PROTOCOL, PROTOCOL, 0,
	 GET_WAIT("\x01") FRAME("\x04", T_WINDOW, NONE, "\x01") "\0\0\0\0"),
    RULE("6.9 WINDOW_UPDATE's length", SIZE, 0, 0, FRAME("\x03", T_WINDOW, NONE, "\x00") "\0\0\1"),
    RULE("6.9.1 a stream's window over 2^31-1", FLOW, FLOW, 0,
	 GET_WAIT("\x01") FRAME("\x04", T_WINDOW, NONE, "\x01") "\x7f\xff\xff\xff"),
    /* The library resets that stream only. */
    RULE("6.9.2 an initial window that overflows an open one", FLOW, FLOW, 0,
	 GET_WAIT("\x01") FRAME("\x04", T_WINDOW, NONE, "\x01") "\x7f\0\0\0" FRAME("\x06", T_SETTINGS, NONE,
										   "\x00") "\0\x04\x7f\xff\xff\xff"),
    RULE("6.10 CONTINUATION on 0", PROTOCOL, 0, 0,
	 FRAME("\x0d", T_HEADERS, END, "\x01") GET_HEAD FRAME("\x00", T_CONT, HEAD_END, "\x00")),
    RULE("6.10 CONTINUATION behind a whole head", PROTOCOL | CLOSED, CLOSED, 0,
	 POST("\x01") FRAME("\x0d", T_CONT, HEAD_END, "\x01") GET_HEAD),
    RULE("6.10 CONTINUATION behind the last one", PROTOCOL | CLOSED, CLOSED, 0,
	 FRAME("\x0c", T_HEADERS, NONE, "\x01") POST_HEAD FRAME("\x00", T_CONT, HEAD_END, "\x01")
	     FRAME("\x00", T_CONT, HEAD_END, "\x01")),
    RULE("6.10 CONTINUATION behind DATA", PROTOCOL, 0, 0,
	 POST("\x01") FRAME("\x01", T_DATA, NONE, "\x01") "x" FRAME("\x0d", T_CONT, HEAD_END, "\x01") GET_HEAD),
    RULE("6.10 a head in four frames", 0, 0, 1,
	 FRAME("\x01", T_HEADERS, END, "\x01") "\x82" FRAME("\x01", T_CONT, NONE, "\x01") "\x86" FRAME(
	     "\x07", T_CONT, NONE, "\x01") "\x04\x06/smal" FRAME("\x04", T_CONT, HEAD_END, "\x01") "l" HOST),
    RULE("7 an unknown error code", 0, 0, 0, GET_WAIT("\x01") FRAME("\x04", T_RST, NONE, "\x01") "\0\0\0\xff"),
};

static const struct rule messages[] = {
    RULE("8.1 trailers that do not end the stream", PROTOCOL, PROTOCOL, 0,
	 POST("\x01") FRAME("\x05", T_HEADERS, HEAD_END, "\x01") "\0\1a\1b"),
    RULE("8.1 a pseudo-field among trailers", PROTOCOL, PROTOCOL, 0,
	 POST("\x01") FRAME("\x01", T_HEADERS, BOTH_ENDS, "\x01") "\x82"),
    RULE("8.2 a space at a value's end", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x13", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\2b "),
    RULE("8.2 a line's end in a value", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x14", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\3b\nc"),
    RULE("8.2 NUL in a value", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x14", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\3b\0c"),
    RULE("8.2 an empty name", PROTOCOL, PROTOCOL, 0, FRAME("\x11", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\0\1b"),
    RULE("8.3 an answer's pseudo-field", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x88"),
    RULE("8.3.1 two methods", PROTOCOL, PROTOCOL, 0, FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") "\x82" GET_HEAD),
    RULE("8.3.1 two schemes", PROTOCOL, PROTOCOL, 0, FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") "\x86" GET_HEAD),
    RULE("8.3.1 no scheme", PROTOCOL, PROTOCOL, 0, FRAME("\x05", T_HEADERS, BOTH_ENDS, "\x01") "\x82\x84" HOST),
    RULE("8.3.1 a path of no form", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x0a", T_HEADERS, BOTH_ENDS, "\x01") "\x82\x86\x04\x03"
						     "abc" HOST),
    RULE("8.1.1 content-length above the sum of DATA", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x10", T_HEADERS, HEAD_END, "\x01") POST_HEAD
	 "\x0f\x0d\x01"
	 "3" FRAME("\x01", T_DATA, NONE, "\x01") "a" FRAME("\x01", T_DATA, END, "\x01") "b"),
    RULE("8.1.1 two content-lengths", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x14", T_HEADERS, HEAD_END, "\x01") POST_HEAD "\x0f\x0d\x01"
							      "1"
							      "\x0f\x0d\x01"
							      "2"),
    RULE("8.1.1 a signed content-length", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x11", T_HEADERS, HEAD_END, "\x01") POST_HEAD "\x0f\x0d\x02"
							      "+1"),
    RULE("8.2.3 cookies in pieces are no error", 0, 0, 1,
	 FRAME("\x1b", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x0f\x11\x03"
							      "a=b"
							      "\x0f\x11\x05"
							      "c=d;e"),
    RULE("8.5 CONNECT has no path", PROTOCOL, PROTOCOL, 0,
	 FRAME("\x11", T_HEADERS, BOTH_ENDS, "\x01") "\x02\x07"
						     "CONNECT"
						     "\x86\x84\x01\x04"
						     "a:80"),
};

/* "/small" in Huffman code is 60 a4 a9 28 28 7f… ; here only what can't be decoded matters. */
static const struct rule hpack[] = {
    RULE("RFC 7541 2.3.3 an index beyond the tables", HPACK, 0, 0,
	 FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\xc6"),
    RULE("RFC 7541 2.3.3 a name's index beyond the tables", HPACK, 0, 0,
	 FRAME("\x10", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x7e\x01x"),
    RULE("RFC 7541 6.1 index 0", HPACK, 0, 0, FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x80"),
    RULE("RFC 7541 4.2 a table's size behind a field", HPACK, 0, 0,
	 FRAME("\x0e", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x20"),
    RULE("RFC 7541 6.3 a table larger than allowed", HPACK, 0, 0,
	 FRAME("\x11", T_HEADERS, BOTH_ENDS, "\x01") "\x3f\xe2\x1f\x20" GET_HEAD),
    RULE("RFC 7541 4.2 two sizes before the first field", 0, 0, 1,
	 FRAME("\x10", T_HEADERS, BOTH_ENDS, "\x01") "\x20\x3f\x61" GET_HEAD),
    RULE("RFC 7541 5.1 an integer without end", HPACK, 0, 0,
	 FRAME("\x14", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\xff\xff\xff\xff\xff\xff\x0f"),
    RULE("RFC 7541 5.2 a string longer than its head", HPACK, 0, 0,
	 FRAME("\x11", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\x7f"),
    RULE("RFC 7541 5.2 padding of eight bits", HPACK, 0, 0,
	 FRAME("\x13", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\x82\x1f\xff"),
    RULE("RFC 7541 5.2 padding of zeros", HPACK, 0, 0,
	 FRAME("\x12", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\x81\x18"),
    RULE("RFC 7541 5.2 the end symbol in a string", HPACK, 0, 0,
	 FRAME("\x15", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\x84\xff\xff\xff\xff"),
    RULE("RFC 7541 5.2 a good Huffman string", 0, 0, 1,
	 FRAME("\x12", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\0\1a\x81\x1f"),
    RULE("RFC 7541 6.2 every representation", 0, 0, 1,
	 FRAME("\x20", T_HEADERS, BOTH_ENDS, "\x01") GET_HEAD "\x40\1a\1b"
							      "\xbe"
							      "\x10\1c\1d"
							      "\x0f\x2f\1e"
							      "\x1f\x2f\1f"),
};

static bool says(uint32_t codes, uint32_t code) { return code < 32 && (codes & CODE(code)) != 0; }

static int n_broken;

__attribute__((format(printf, 1, 2))) static void broken(const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	print_message("%s\n", text);
	n_broken++;
}

static void follow(const struct rule *r)
{
	struct frame f;
	bool answered = r->answered == 0, reset = false;
	int pings = 0;
	begin();
	put(r->bytes, r->n);
	put_frame(PING, 0, 0, "the rule", 8);
	flush();
	while (pings < 2) {
		if (!next_frame(&f)) {
			broken("%s: closed without a word", r->what);
			return;
		}
		if (f.type == GOAWAY) {
			if (!says(r->goaway, u32(f.payload + 4)))
				broken("%s: GOAWAY %u", r->what, u32(f.payload + 4));
			while (next_frame(&f))
				;
			return;
		}
		if (f.type == RST_STREAM) {
			if (!says(r->reset, u32(f.payload)))
				broken("%s: reset %u", r->what, u32(f.payload));
			reset = true;
		}
		answered = answered || (f.type == HEADERS && f.id == r->answered);
		/* Answers to PING overtake the rest of a turn, not of the turn before. */
		if (f.type == PING && ++pings == 1) {
			put_frame(PING, 0, 0, "and now?", 8);
			flush();
		}
	}
	if (!answered)
		broken("%s: not answered", r->what);
	if (!reset && (r->goaway | r->reset) != 0)
		broken("%s: accepted", r->what);
}

/* All of a table, so that one run shows everything that is broken. */
static void follow_all(const struct rule *rules, size_t n)
{
	n_broken = 0;
	for (size_t i = 0; i < n; i++)
		follow(&rules[i]);
	assert_int_equal(n_broken, 0);
}

static void frames_follow_the_rules(void **state)
{
	(void)state;
	follow_all(frames, sizeof frames / sizeof *frames);
}

static void messages_follow_the_rules(void **state)
{
	(void)state;
	follow_all(messages, sizeof messages / sizeof *messages);
	assert_int_equal(rig.n_body_ends, 0);
}

static void head_compression_follows_the_rules(void **state)
{
	(void)state;
	follow_all(hpack, sizeof hpack / sizeof *hpack);
	assert_int_equal(rig.n_requests, 3);
}

/* 6.5.3 and 6.9.2: several values in one frame, the last counts, at once. */
static void settings_apply_in_order(void **state)
{
	(void)state;
	struct frame f;
	begin();
	put_frame(SETTINGS, 0, 0, "\0\4\0\0\0\x64\0\4\0\0\0\1", 12);
	put_request(1, "GET", "/small", END_STREAM);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 1);
	/* 6.9.2: down to a negative window, and up again. */
	put_frame(SETTINGS, 0, 0, "\0\4\0\0\0\0", 6);
	put_u32(WINDOW_UPDATE, 0, 1, 1);
	expect_alive("window of 0");
	put_u32(WINDOW_UPDATE, 0, 1, 2);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(f.len, 2);
}

/* 5.1.2: over the number of streams, known to the peer or not. */
static void streams_over_the_number(void **state)
{
	(void)state;
	rig.cfg.limits.streams_per_connection = 3;
	for (int knows = 0; knows < 2; knows++) {
		struct frame f;
		begin();
		flush();
		assert_true(await(SETTINGS, 0, &f));
		if (knows)
			put_frame(SETTINGS, ACK, 0, NULL, 0);
		for (uint32_t i = 0; i < 4; i++)
			put_request(2 * i + 1, "GET", "/never", END_STREAM);
		flush();
		bool told = false;
		while (!told && next_frame(&f))
			told = (f.type == RST_STREAM && f.id == 7) ||
			       (f.type == GOAWAY && u32(f.payload + 4) == PROTOCOL_ERROR);
		assert_true(told);
	}
	assert_int_equal(rig.n_requests, 6);
}

/* 4.2: the largest frame that is allowed. */
static void the_largest_frame_is_taken(void **state)
{
	(void)state;
	static uint8_t data[16384];
	struct frame f;
	begin();
	put_request(1, "POST", "/echo", 0);
	put_frame(DATA, END_STREAM, 1, data, sizeof data);
	flush();
	assert_true(await(DATA, 1, &f));
	assert_int_equal(rig.body_bytes, sizeof data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(frames_follow_the_rules), T(messages_follow_the_rules), T(head_compression_follows_the_rules),
	    T(settings_apply_in_order), T(streams_over_the_number),   T(the_largest_frame_is_taken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
