/* SPDX-License-Identifier: Apache-2.0
 *
 * An HTTP/2 client that writes frames by hand, on the transport rig; it answers nothing automatically. One connection
 * at a time, in fd; output is collected in out until flush.
 */
#ifndef TESTS_SUPPORT_H2_FRAMES_H
#define TESTS_SUPPORT_H2_FRAMES_H

#include "tests/support/transport_rig.h"

#include "base/fault.h"

enum { DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };
enum {
	NO_ERROR,
	PROTOCOL_ERROR,
	INTERNAL_ERROR,
	FLOW_CONTROL_ERROR,
	SETTINGS_TIMEOUT,
	STREAM_CLOSED,
	FRAME_SIZE_ERROR,
	REFUSED_STREAM,
	CANCEL,
	COMPRESSION_ERROR,
	CONNECT_ERROR,
	ENHANCE_YOUR_CALM
};

struct frame {
	uint32_t len;
	uint8_t type, flags;
	uint32_t id;
	const uint8_t *payload;
};

static struct rig rig;
static struct sl_buf in, out;
static int fd;

/* ---- the fixture ---- */

static int setup(void **state)
{
	(void)state;
	rig_config(&rig);
	buf_init(&in, 64 << 20);
	buf_init(&out, 64 << 20);
	fd = -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fault_disarm_all();
	if (fd >= 0)
		close(fd);
	rig_stop(&rig);
	buf_dispose(&in);
	buf_dispose(&out);
	return 0;
}

/* ---- writing ---- */

static void put(const void *p, size_t n) { assert_int_equal(buf_append(&out, p, n), 0); }

static void put_head(size_t len, int type, int flags, uint32_t id)
{
	uint8_t h[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,       (uint8_t)type, (uint8_t)flags,
			(uint8_t)(id >> 24),  (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
	put(h, 9);
}

RIG_UNUSED static void put_frame(int type, int flags, uint32_t id, const void *payload, size_t n)
{
	put_head(n, type, flags, id);
	put(payload, n);
}

RIG_UNUSED static void put_u32(int type, int flags, uint32_t id, uint32_t v)
{
	uint8_t p[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
	put_frame(type, flags, id, p, 4);
}

RIG_UNUSED static void put_setting(uint16_t key, uint32_t v)
{
	uint8_t p[6] = {(uint8_t)(key >> 8), (uint8_t)key,      (uint8_t)(v >> 24),
			(uint8_t)(v >> 16),  (uint8_t)(v >> 8), (uint8_t)v};
	put_frame(SETTINGS, 0, 0, p, 6);
}

/* HPACK: a literal that is not indexed, with a new name; lengths up to 16 KiB. */
RIG_UNUSED static size_t hp_int(uint8_t *at, size_t n)
{
	size_t m = 0;
	if (n < 127) {
		at[m++] = (uint8_t)n;
		return m;
	}
	at[m++] = 127;
	n -= 127;
	while (n >= 128) {
		at[m++] = (uint8_t)(128 | (n & 127));
		n >>= 7;
	}
	at[m++] = (uint8_t)n;
	return m;
}

RIG_UNUSED static size_t hp_field(uint8_t *at, const char *name, const char *value)
{
	size_t m = 0;
	at[m++] = 0;
	m += hp_int(at + m, strlen(name));
	memcpy(at + m, name, strlen(name));
	m += strlen(name);
	m += hp_int(at + m, strlen(value));
	memcpy(at + m, value, strlen(value));
	return m + strlen(value);
}

RIG_UNUSED static size_t hp_request(uint8_t *at, const char *method, const char *path)
{
	size_t m = hp_field(at, ":method", method);
	m += hp_field(at + m, ":scheme", "http");
	m += hp_field(at + m, ":path", path);
	return m + hp_field(at + m, ":authority", "localhost");
}

RIG_UNUSED static void put_request(uint32_t id, const char *method, const char *path, int flags)
{
	uint8_t block[512];
	put_frame(HEADERS, flags | END_HEADERS, id, block, hp_request(block, method, path));
}

static bool flush(void)
{
	bool ok = rig_send(&rig, fd, buf_data(&out), out.len);
	buf_clear(&out, SIZE_MAX);
	return ok;
}

static void begin(void)
{
	if (rig.tr == NULL)
		rig_start(&rig);
	if (fd >= 0)
		close(fd);
	fd = rig_connect(&rig);
	buf_clear(&in, SIZE_MAX);
	put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	put_frame(SETTINGS, 0, 0, NULL, 0);
}

/* ---- reading ---- */

/* The next whole frame; false: the connection ended. */
static bool next_frame(struct frame *f)
{
	if (!rig_read(&rig, fd, &in, 9))
		return false;
	const uint8_t *h = buf_data(&in);
	size_t len = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
	if (!rig_read(&rig, fd, &in, 9 + len))
		return false;
	h = buf_data(&in);
	*f = (struct frame){(uint32_t)len, h[3], h[4],
			    ((uint32_t)h[5] << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 | h[8]) & 0x7fffffff,
			    h + 9};
	buf_consume(&in, 9 + len);
	return true;
}

RIG_UNUSED static uint32_t u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Skips to a frame of that type (and stream, unless 0). */
RIG_UNUSED static bool await(int type, uint32_t id, struct frame *f)
{
	while (next_frame(f))
		if (f->type == type && (id == 0 || f->id == id) && !(type == SETTINGS && (f->flags & ACK)))
			return true;
	return false;
}

RIG_UNUSED static void expect_goaway(const char *what, uint32_t code)
{
	struct frame f;
	flush();
	if (!await(GOAWAY, 0, &f))
		fail_msg("%s: no GOAWAY", what);
	if (u32(f.payload + 4) != code)
		fail_msg("%s: GOAWAY %u, not %u", what, u32(f.payload + 4), code);
	while (next_frame(&f))
		;
}

RIG_UNUSED static void expect_reset(const char *what, uint32_t id, uint32_t code)
{
	struct frame f;
	flush();
	while (next_frame(&f)) {
		if (f.type == GOAWAY)
			fail_msg("%s: GOAWAY %u", what, u32(f.payload + 4));
		if (f.type == RST_STREAM && f.id == id) {
			if (u32(f.payload) != code)
				fail_msg("%s: reset %u, not %u", what, u32(f.payload), code);
			return;
		}
	}
	fail_msg("%s: closed", what);
}

/* Checks that the connection still works. */
RIG_UNUSED static void expect_alive(const char *what)
{
	struct frame f;
	put_frame(PING, 0, 0, "alive?!!", 8);
	flush();
	if (!await(PING, 0, &f) || !(f.flags & ACK))
		fail_msg("%s: dead", what);
}

#endif
