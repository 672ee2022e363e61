/* SPDX-License-Identifier: Apache-2.0
 *
 * Source: "The PROXY protocol, versions 1 & 2" (HAProxy, doc/proxy-protocol.txt). This parser rejects what the
 * specification leaves to the receiver: repeated blanks, leading zeros, addresses of another family, datagrams,
 * extensions that do not fill the header exactly, a wrong checksum.
 *
 * When more bytes arrive, the parser starts again with all of them. A header is a few dozen bytes that usually arrive
 * together, so no state is kept.
 */
#include "gateway/transport/proxy_header.h"

#include <string.h>

static const uint8_t v1_start[6] = "PROXY ";
static const uint8_t v2_start[12] = "\r\n\r\n\0\r\nQUIT\n";

enum { CMD_LOCAL = 0x20, CMD_PROXY = 0x21 };
enum { FAM_UNSPEC = 0x00, FAM_TCP4 = 0x11, FAM_TCP6 = 0x21, FAM_UNIX = 0x31 };
enum { TCP4_BYTES = 12, TCP6_BYTES = 36, UNIX_BYTES = 216 };
enum { TLV_HEAD = 3, TLV_CRC32C = 0x03, CRC_BYTES = 4 };

/* Is data a prefix of start, or the reverse? The two versions differ in their first byte. */
static bool begins(const uint8_t *data, size_t n, const uint8_t *start, size_t n_start)
{
	return memcmp(data, start, n < n_start ? n : n_start) == 0;
}

/* ---- version 1 ---- */

struct words {
	const char *at[6];
	size_t len[6];
	size_t n;
};

/* Splits a line at single blanks. */
static bool split(const char *line, size_t n, struct words *w)
{
	size_t from = 0;
	w->n = 0;
	for (size_t i = 0; i <= n; i++) {
		if (i < n && line[i] != ' ')
			continue;
		if (i == from || w->n == sizeof w->at / sizeof *w->at)
			return false;
		w->at[w->n] = line + from;
		w->len[w->n++] = i - from;
		from = i + 1;
	}
	return true;
}

static bool is_word(const struct words *w, size_t i, const char *text)
{
	return w->len[i] == strlen(text) && memcmp(w->at[i], text, w->len[i]) == 0;
}

static bool read_port(const struct words *w, size_t i, uint16_t *out)
{
	unsigned v = 0;
	if (w->len[i] > 5 || (w->at[i][0] == '0' && w->len[i] > 1))
		return false;
	for (size_t k = 0; k < w->len[i]; k++) {
		if (w->at[i][k] < '0' || w->at[i][k] > '9')
			return false;
		v = v * 10 + (unsigned)(w->at[i][k] - '0');
	}
	*out = (uint16_t)v;
	return v <= 65535;
}

static bool read_address(const struct words *w, size_t i, bool v4, struct net_addr *out)
{
	bool has_colon = memchr(w->at[i], ':', w->len[i]) != NULL;
	return has_colon != v4 && net_addr_parse(w->at[i], w->len[i], out);
}

static enum proxy_result read_line(const char *line, size_t n, struct proxy_header *out)
{
	static const char unknown[] = "PROXY UNKNOWN";
	struct words w;
	struct net_addr to;
	uint16_t to_port;
	/* The specification ignores the rest of the line. */
	if (n >= sizeof unknown - 1 && memcmp(line, unknown, sizeof unknown - 1) == 0 &&
	    (n == sizeof unknown - 1 || line[sizeof unknown - 1] == ' '))
		return PROXY_DONE;
	if (!split(line, n, &w) || w.n != 6)
		return PROXY_BAD;
	bool v4 = is_word(&w, 1, "TCP4");
	if ((!v4 && !is_word(&w, 1, "TCP6")) || !read_address(&w, 2, v4, &out->client) ||
	    !read_address(&w, 3, v4, &to) || !read_port(&w, 4, &out->port) || !read_port(&w, 5, &to_port))
		return PROXY_BAD;
	out->known = true;
	return PROXY_DONE;
}

static enum proxy_result parse_v1(const uint8_t *data, size_t n, struct proxy_header *out)
{
	size_t most = n < PROXY_V1_MAX ? n : PROXY_V1_MAX;
	for (size_t i = 0; i < most; i++) {
		if (data[i] == '\r') {
			if (i + 1 == most)
				return n < PROXY_V1_MAX ? PROXY_MORE : PROXY_BAD;
			if (data[i + 1] != '\n')
				return PROXY_BAD;
			out->used = i + 2;
			return read_line((const char *)data, i, out);
		}
		if (data[i] < 0x20 || data[i] > 0x7e)
			return PROXY_BAD;
	}
	return n < PROXY_V1_MAX ? PROXY_MORE : PROXY_BAD;
}

/* ---- version 2 ---- */

static unsigned u16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

/* CRC-32C (Castagnoli), bit by bit: a header is short and occurs once per connection. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

/* The checksum covers the whole header, with zeros for its own four bytes. */
static bool crc_is_right(const uint8_t *data, size_t n, size_t at)
{
	static const uint8_t zeros[CRC_BYTES];
	uint32_t crc = crc32c(0xffffffffu, data, at);
	crc = crc32c(crc, zeros, CRC_BYTES);
	crc = ~crc32c(crc, data + at + CRC_BYTES, n - at - CRC_BYTES);
	return crc == ((uint32_t)u16(data + at) << 16 | u16(data + at + 2));
}

/* Do the extensions fill data[at..n) exactly, and is a checksum among them right? */
static bool extensions_are_right(const uint8_t *data, size_t n, size_t at)
{
	while (at < n) {
		if (n - at < TLV_HEAD)
			return false;
		size_t len = u16(data + at + 1);
		uint8_t type = data[at];
		at += TLV_HEAD;
		if (len > n - at)
			return false;
		if (type == TLV_CRC32C && (len != CRC_BYTES || !crc_is_right(data, n, at)))
			return false;
		at += len;
	}
	return true;
}

static size_t address_bytes(uint8_t family)
{
	switch (family) {
	case FAM_UNSPEC: return 0;
	case FAM_TCP4: return TCP4_BYTES;
	case FAM_TCP6: return TCP6_BYTES;
	case FAM_UNIX: return UNIX_BYTES;
	default: return SIZE_MAX;
	}
}

static enum proxy_result parse_v2(const uint8_t *data, size_t n, struct proxy_header *out)
{
	if (n > 12 && data[12] != CMD_LOCAL && data[12] != CMD_PROXY)
		return PROXY_BAD;
	if (n < PROXY_V2_HEAD)
		return PROXY_MORE;
	uint8_t family = data[13];
	size_t len = u16(data + 14), n_addr = address_bytes(family);
	if (len > PROXY_HEADER_MAX - PROXY_V2_HEAD)
		return PROXY_BAD;
	if (data[12] == CMD_PROXY && n_addr > len)
		return PROXY_BAD;
	if (n < PROXY_V2_HEAD + len)
		return PROXY_MORE;
	out->used = PROXY_V2_HEAD + len;
	/* "LOCAL": the receiver must use the connection's own addresses and skip the rest. */
	if (data[12] == CMD_LOCAL)
		return PROXY_DONE;
	/* Without a family the start of the extensions is unknown. */
	if (family != FAM_UNSPEC && !extensions_are_right(data, out->used, PROXY_V2_HEAD + n_addr))
		return PROXY_BAD;
	const uint8_t *a = data + PROXY_V2_HEAD;
	if (family == FAM_TCP4) {
		struct net_addr v4 = {.b = {[10] = 0xff, [11] = 0xff}};
		memcpy(v4.b + 12, a, 4);
		out->client = v4;
		out->port = (uint16_t)u16(a + 8);
		out->known = true;
	} else if (family == FAM_TCP6) {
		memcpy(out->client.b, a, 16);
		out->port = (uint16_t)u16(a + 32);
		out->known = true;
	}
	return PROXY_DONE;
}

enum proxy_result proxy_header_parse(const uint8_t *data, size_t n, struct proxy_header *out)
{
	*out = (struct proxy_header){0};
	if (n == 0)
		return PROXY_MORE;
	enum proxy_result r = PROXY_BAD;
	if (begins(data, n, v1_start, sizeof v1_start))
		r = parse_v1(data, n, out);
	else if (begins(data, n, v2_start, sizeof v2_start))
		r = parse_v2(data, n, out);
	if (r != PROXY_DONE)
		*out = (struct proxy_header){0};
	return r;
}
