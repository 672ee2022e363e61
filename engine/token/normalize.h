/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalizers: what a tokenizer does to text before it cuts it. A list of steps, named as in tokenizer.json. Bytes that
 * are not valid UTF-8 pass unchanged. Immutable once built.
 */
#ifndef ENGINE_NORMALIZE_H
#define ENGINE_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"

enum norm_kind {
	NORM_PREPEND,       /* text, unless the input is empty */
	NORM_REPLACE,       /* text by with */
	NORM_REPLACE_REGEX, /* what the pattern text matches by with */
	NORM_NFC,
	NORM_NFD,
	NORM_NFKC,
	NORM_NFKD,
	NORM_LOWERCASE,
	NORM_STRIP_LEFT,
	NORM_STRIP_RIGHT,        /* white space */
	NORM_STRIP_SPACES,       /* U+0020, at both ends */
	NORM_CUT_TAIL,           /* text, however often it stands at the end */
	NORM_STRIP_ACCENTS,      /* non-spacing marks */
	NORM_CLEAN,              /* BERT: drops control characters, white space becomes a space */
	NORM_SPACE_CJK,          /* BERT: spaces around ideographs */
	NORM_NMT,                /* SentencePiece's nmt: drops control characters, odd spaces become a space */
	NORM_CHARSMAP,           /* SentencePiece's precompiled table: text is its binary */
	NORM_CHARSMAP_GRAPHEMES, /* the same as the tokenizers library reads it */
};

struct norm;

int norm_create(struct norm **out);
void norm_destroy(struct norm *m);
/* Copies text and with. SL_EINVAL for a pattern or a table that is malformed. */
int norm_add(struct norm *m, enum norm_kind kind, struct proto_str text, struct proto_str with, struct sl_err *err);
/* Words that m's last step, of NORM_CHARSMAP, passes unchanged; the longest counts. Copied. SL_ENOMEM. */
int norm_keep(struct norm *m, const struct proto_str *words, size_t n, struct sl_err *err);
/* Replaces what out holds. SL_ENOMEM, SL_ELIMIT (out's bound, or a pattern's match limit). */
int norm_apply(const struct norm *m, const char *text, size_t n, struct sl_buf *out);
bool norm_is_empty(const struct norm *m);

#endif
