/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 requests, RFC 9112, read strictly: what two parsers could read differently is an error.
 * Pure functions over bytes; no connection, no clock, no allocation.
 */
#ifndef GATEWAY_H1_PARSE_H
#define GATEWAY_H1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { H1_MAX_FIELDS = 128, H1_MAX_METHOD = 32 };

struct h1_span {
	uint32_t off, len;
};

struct h1_field {
	struct h1_span name, value; /* value without surrounding blanks */
};

struct h1_head {
	struct h1_span method;
	struct h1_span target;    /* origin-form or "*"; of an absolute-form what follows the authority */
	bool target_is_root;      /* an absolute-form without path: "/" is meant (target may hold ?query)
				   */
	struct h1_span authority; /* of the absolute-form, else Host; len 0 when neither */
	int minor;                /* HTTP/1.minor: 0 or 1 */
	bool chunked;
	int64_t content_length; /* -1: none */
	bool close;             /* "Connection: close" */
	bool expect_continue;
	const char *why; /* with an error: which field and what is wrong with it; NULL: the status is all */
	bool alien;      /* with 400: neither the target nor the version is HTTP/1's */
	size_t n_fields;
	struct h1_field fields[H1_MAX_FIELDS];
};

/* Looks for the end of a head in bytes that arrive piecemeal; each byte is looked at once. Start
 * with {0}. */
struct h1_scan {
	size_t pos;      /* bytes seen; after H1_SCAN_DONE the head's length */
	size_t lines;    /* complete lines */
	size_t line_len; /* bytes of the current line, without CR */
	bool cr;
};
enum h1_scan_result { H1_SCAN_MORE, H1_SCAN_DONE, H1_SCAN_BAD };
/* data[0..n) from the head's first byte. Bad: NUL or another control character, a bare CR or LF. */
enum h1_scan_result h1_scan_head(struct h1_scan *sc, const uint8_t *data, size_t n);

/* A complete head (its last four bytes are CR LF CR LF). 0, or the status to answer: 400, 414, 417,
 * 431, 501, 505. Never reads outside data[0..n). */
int h1_parse_head(const uint8_t *data, size_t n, size_t max_fields, struct h1_head *out);

/* The value of Origin among the lines of a head that may be anything and may have no end; len 0: none, or more than
 * one. Only for saying to a browser that may read it what is wrong with the rest. */
struct h1_span h1_find_origin(const uint8_t *data, size_t n);

/* A chunked body. Start with {0}. */
struct h1_chunked {
	uint8_t state;
	uint8_t digits;
	uint64_t left;  /* bytes of the chunk still to come */
	uint32_t extra; /* bytes of extensions and trailers so far, bounded */
	uint32_t line;  /* bytes of the current trailer line */
	bool colon;
};
enum { H1_CHUNK_EXTRA_MAX = 8192 };
/* Takes bytes up to the next piece of data or the end. *used: bytes taken; *body, *n_body: a piece
 * of data inside data[0..n) (n_body 0: none). *done: the body is complete. 0 or SL_EPROTO. */
int h1_chunked_feed(struct h1_chunked *ch, const uint8_t *data, size_t n, size_t *used, const uint8_t **body,
		    size_t *n_body, bool *done);

#endif
