/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleansing of what users paste: the same meaning in fewer tokens. Pure: text in, text out, no I/O, no
 * clock.
 *
 *   light  control and zero-width characters, line ends, Unicode NFC, blanks at the ends of lines,
 *          repeated blank lines and spaces
 *   full   and the tags of pasted HTML, the decoration of Markdown, typographic quotes, dashes, dots
 *          and spaces, repeated punctuation
 *
 * Nothing changes within fenced and inline code, URLs (but for a trailing blank), JSON and diffs, nor
 * where a character carries meaning: joiners between letters of scripts that join and within emoji,
 * variation selectors, Chinese, Japanese and Korean punctuation, `a < b`, `List<int>`.
 *
 * For every text: cleansing it twice is cleansing it once; valid UTF-8 stays valid (and what is not
 * valid is not touched); the time is linear; the result has at most CLEANSE_GROWTH times the bytes
 * (some characters are longer in NFC; all else only removes); what is not empty does not become so.
 */
#ifndef GATEWAY_CLEANSE_H
#define GATEWAY_CLEANSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum cleanse_level { CLEANSE_OFF, CLEANSE_LIGHT, CLEANSE_FULL };

enum { CLEANSE_GROWTH = 3 };

/* Summed up over calls. */
struct cleanse_stats {
	uint64_t bytes_in, bytes_out;
	uint32_t n_texts, n_changed;
};

/* Appends the cleansed text to out. stats may be NULL. 0, SL_ELIMIT (out's bound), SL_ENOMEM. */
int cleanse(enum cleanse_level level, const char *text, size_t n, struct sl_buf *out, struct cleanse_stats *stats);

/* The bytes that cleansing has removed; 0 where it made the text longer. */
uint64_t cleanse_saved(const struct cleanse_stats *stats);

/* Builds the tables (some milliseconds, once), so that the first text need not wait for them. */
void cleanse_prepare(void);

#endif
