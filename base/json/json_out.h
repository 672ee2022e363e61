/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON text by hand where speed matters (the event path). Reading is jansson's.
 */
#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

#include <stddef.h>

#include "base/buf.h"

/* The most bytes n bytes of text can become. */
#define JSON_ESCAPED_MAX(n) ((n)*6)

/* Writes n bytes of valid UTF-8 as the inside of a JSON string (no quotes): `"`, `\` and control
 * characters are escaped, everything else is copied (RFC 8259, 7). dst must have room for
 * JSON_ESCAPED_MAX(n). Returns the end. */
char *json_escape(char *dst, const char *text, size_t n);

/* Appends "text" with the quotes. 0, SL_ELIMIT, SL_ENOMEM. */
int json_out_string(struct sl_buf *out, const char *text, size_t n);

#endif
