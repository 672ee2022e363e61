/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one code point. Returns its length in bytes (1 to 4); 0 when the n bytes are a correct
 * but unfinished beginning; -1 when the first byte can't begin a character (skip one byte). */
int utf8_decode(const uint8_t *s, size_t n, uint32_t *out);
/* Writes 1 to 4 bytes, returns how many; cp must be a scalar value. */
int utf8_encode(uint32_t cp, uint8_t out[4]);
bool utf8_valid(const void *s, size_t n);
/* Length of the longest prefix that ends at a character boundary: what may be sent now. The rest
 * (at most 3 bytes) is a correct but unfinished character. Invalid bytes count as finished. */
size_t utf8_whole_prefix(const uint8_t *s, size_t n);
/* Of valid text. */
size_t utf8_characters(const char *s, size_t n);

#endif
