/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks a JSON text (RFC 8259) without building anything: for documents from outside that are large
 * and of a known shape, where a tree of them would cost many times their size. The walker never
 * passes the end, never recurses, and after the first fault everything returns false.
 *
 *   json_scan_init(&s, text, n);
 *   json_scan_object(&s);
 *   while (json_scan_key(&s, &key))
 *           … exactly one of json_scan_object, _array, _string, _uint, _skip …
 *   if (!json_scan_end(&s)) … s.bad: what is wrong …
 */
#ifndef BASE_JSON_SCAN_H
#define BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/proto/proto.h"

struct json_scan {
	const char *text, *at, *end;
	const char *bad; /* the first fault, or NULL; it is at `at` */
	bool fresh;      /* just after { or [ */
};

void json_scan_init(struct json_scan *s, const char *text, size_t n);

/* The next value is an object; then its keys, one by one, each followed by its value. Keys are raw:
 * the bytes between the quotes. json_scan_key is false after the last, or after a fault. */
bool json_scan_object(struct json_scan *s);
bool json_scan_key(struct json_scan *s, struct proto_str *raw);
/* The same for arrays: json_scan_item returns whether a value follows. */
bool json_scan_array(struct json_scan *s);
bool json_scan_item(struct json_scan *s);

bool json_scan_string(struct json_scan *s, struct proto_str *raw);
bool json_scan_uint(struct json_scan *s, uint64_t *out); /* digits only, up to 2^64-1 */
/* Any value, nested at most 64 deep. */
bool json_scan_skip(struct json_scan *s);
/* What kind the next value is: its first byte ('{', '[', '"', a digit, 't' …), or 0 at the end. */
char json_scan_peek(struct json_scan *s);
/* True when nothing but blanks follows and nothing was wrong. */
bool json_scan_end(struct json_scan *s);

/* Whether a raw string is this word, which needs no escapes. */
static inline bool json_is(struct proto_str raw, const char *word)
{
	return raw.n == strlen(word) && memcmp(raw.at, word, raw.n) == 0;
}

/* The text of a raw string into out, which has room for raw.n bytes: its length, or SIZE_MAX when an
 * escape is malformed. Lone surrogates become U+FFFD. */
size_t json_unescape(struct proto_str raw, char *out);

#endif
