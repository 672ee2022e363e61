/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict parser of HTTP/1.1 requests (RFC 9112). Input that two parsers could read differently is an error. Pure: no
 * connection, no clock, no allocation.
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
	struct h1_span target;    /* origin-form or "*"; of an absolute-form the part after the authority */
	bool target_is_root;      /* absolute-form without a path: the path is "/" (target may hold ?query) */
	struct h1_span authority; /* of the absolute-form, otherwise Host; len 0: neither */
	int minor;                /* HTTP/1.minor: 0 or 1 */
	bool chunked;
	int64_t content_length; /* -1: none */
	bool close;             /* "Connection: close" */
	bool expect_continue;
	const char *why; /* with an error: the message about a field; NULL: none */
	bool alien;      /* with 400: neither the target nor the version looks like HTTP/1 */
	size_t n_fields;
	struct h1_field fields[H1_MAX_FIELDS];
};

/* Finds the end of a head in bytes that arrive in pieces; examines each byte once. Start with {0}. */
struct h1_scan {
	size_t pos;      /* bytes examined; after H1_SCAN_DONE the length of the head */
	size_t lines;    /* complete lines */
	size_t line_len; /* bytes of the current line, without CR */
	bool cr;
};
enum h1_scan_result { H1_SCAN_MORE, H1_SCAN_DONE, H1_SCAN_BAD };
/* data[0..n) starts with the first byte of the head. H1_SCAN_BAD: a control character, or a bare CR or LF. */
enum h1_scan_result h1_scan_head(struct h1_scan *sc, const uint8_t *data, size_t n);

/* Parses a complete head, which ends with CR LF CR LF. 0, or the status of the error response: 400, 414, 417, 431, 501,
 * 505. */
int h1_parse_head(const uint8_t *data, size_t n, size_t max_fields, struct h1_head *out);

/* The value of Origin in a malformed or incomplete head; len 0: none, or more than one. Only for the CORS fields of an
 * error response, without which a browser hides the error from the page. */
struct h1_span h1_find_origin(const uint8_t *data, size_t n);

/* The state of a chunked body. Start with {0}. */
struct h1_chunked {
	uint8_t state;
	uint8_t digits;
	uint64_t left;  /* bytes of the chunk still to come */
	uint32_t extra; /* bytes of extensions and trailers so far, bounded */
	uint32_t line;  /* bytes of the current trailer line */
	bool colon;
};
enum { H1_CHUNK_EXTRA_MAX = 8192 };
/* Takes bytes up to the end of the next piece of data or of the body. *used: bytes taken; *body, *n_body: the piece,
 * inside data[0..n) (n_body 0: none); *done: the body is complete. 0 or SL_EPROTO. */
int h1_chunked_feed(struct h1_chunked *ch, const uint8_t *data, size_t n, size_t *used, const uint8_t **body,
		    size_t *n_body, bool *done);

#endif
