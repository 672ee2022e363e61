/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header. The room cleanses text that users paste: the same meaning in fewer tokens. It is pure: text
 * in, text out, no I/O, no clock. Any thread may call it; gateway/request does, for users' messages.
 *
 *   light  control and zero-width characters, line ends, Unicode NFC, blanks at the ends of lines,
 *          repeated blank lines and spaces
 *   full   also the tags of pasted HTML, the decoration of Markdown, typographic quotes, dashes, dots
 *          and spaces, repeated punctuation
 *
 * Code, URLs (except a trailing blank), JSON and diffs never change, and neither do characters that carry meaning:
 * joiners in scripts that join and in emoji, variation selectors, Chinese, Japanese and Korean punctuation, `a < b`,
 * `List<int>`.
 *
 * For every text: cleansing is idempotent; valid UTF-8 stays valid and other text is unchanged; the time is linear; the
 * result has at most CLEANSE_GROWTH times the bytes (some characters are longer in NFC; everything else only removes);
 * a text that is not empty does not become empty.
 */
#ifndef GATEWAY_CLEANSE_H
#define GATEWAY_CLEANSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum cleanse_level { CLEANSE_OFF, CLEANSE_LIGHT, CLEANSE_FULL };

enum { CLEANSE_GROWTH = 3 };

/* Totals over all calls with the struct. */
struct cleanse_stats {
	uint64_t bytes_in, bytes_out;
	uint32_t n_texts, n_changed;
};

/* Appends the cleansed text to out. stats may be NULL. 0, SL_ELIMIT (out's bound), SL_ENOMEM. */
int cleanse(enum cleanse_level level, const char *text, size_t n, struct sl_buf *out, struct cleanse_stats *stats);

/* The bytes that cleansing removed; 0 if the text became longer. */
uint64_t cleanse_saved(const struct cleanse_stats *stats);

/* Builds the tables once (some milliseconds), so that the first text does not wait for them. */
void cleanse_prepare(void);

#endif
