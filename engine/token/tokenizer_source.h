/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer's data from a model file of any format; tests and fuzzers make tokenizers from it without a file.
 */
#ifndef ENGINE_TOKENIZER_SOURCE_H
#define ENGINE_TOKENIZER_SOURCE_H

#include "engine/token/normalize.h"
#include "engine/token/pretokenize.h"
#include "engine/token/tokenizer.h"

enum tok_kind {
	TOK_BPE_BYTES, /* GPT-2: merges from bytes, which the file writes as characters */
	TOK_BPE_CHARS, /* SentencePiece: merges from characters, U+2581 is a space */
	TOK_UNIGRAM,
	TOK_WORDPIECE, /* BERT */
};

enum { TOK_MAX_WORD_CHARS = 100 }; /* of WordPiece, unless a file says otherwise */

/* How a control or user-defined token is found in text. */
enum tok_flag {
	TOK_LSTRIP = 1,
	TOK_RSTRIP = 2,
	TOK_SINGLE_WORD = 4,
	TOK_INNER = 8, /* of TOK_USER: found in what is to be merged, not in the text before it is normalized */
};

struct tok_source {
	enum tok_kind kind;
	struct norm *norm;              /* NULL: none. With pretok: taken over by tokenizer_create_from, */
	struct pretok *pretok;          /* also when it fails */
	const struct proto_str *tokens; /* as the file writes them */
	const int32_t *attrs;           /* enum tok_attr; NULL: all normal */
	size_t n_tokens;
	const uint8_t *flags;           /* [n_tokens] of enum tok_flag; NULL: none */
	const struct proto_str *halves; /* [2 · n_merges]: left, right, as the file writes them; NULL
					   with TOK_BPE_CHARS: whatever makes a token, by score */
	size_t n_merges;
	const float *scores; /* [n_tokens]; of TOK_BPE_CHARS without merges, and TOK_UNIGRAM */
	bool as_library;     /* TOK_UNIGRAM: scores as SentencePiece itself computes them (unigram.h) */
	bool byte_fallback, fuse_unknown;
	bool strips_space;              /* a text's first space was put there by encoding it */
	int32_t bos, eos, eot, unknown; /* -1: none */
	int add_bos;                    /* 0, 1, or -1: as the pre-tokenizer's family does */
	/* Around a text that is embedded: tokens before and behind it, -1: none; `twice`: in a pair the second text
	 * follows two of those behind the first. */
	int32_t before, after;
	bool twice;
	/* TOK_WORDPIECE. */
	struct proto_str word_prefix;
	bool prefix_begins;
	size_t max_word_chars;
};

/* SentencePiece's settings as steps of a normalizer: its table, spaces dropped, one before the text, U+2581 for each.
 */
struct tok_spaces {
	bool prefix, collapse, cut_tail; /* cut_tail: with collapse, U+2581 at the end of the text goes too */
	struct proto_str charsmap;
	const struct proto_str *kept; /* words that the table leaves as they are */
	size_t n_kept;
};
int tok_add_spaces(struct norm *m, const struct tok_spaces *s, struct sl_err *err);
/* Calls fn, which takes over src's norm and pretok, with what tokenizer_create_spm makes a tokenizer from; all else is
 * borrowed until it returns. Errors as tokenizer_create_spm, or fn's. */
struct spm_model;
typedef int (*tok_spm_fn)(void *ctx, struct tok_source *src, const struct spm_model *m, struct sl_err *err);
int tok_spm_visit(struct proto_str model, struct proto_str added, struct proto_str config, tok_spm_fn fn, void *ctx,
		  struct sl_err *err);
/* "<0x0A>", as SentencePiece names a byte: the byte; -1: not in that notation. */
int tok_byte_written(struct proto_str text);
/* "left right": its two halves, borrowed from it; false: it is none. */
bool tok_split_merge(struct proto_str merge, struct proto_str half[2]);
/* Copies what it needs. Errors as tokenizer_create. */
int tokenizer_create_from(const struct tok_source *src, struct tokenizer **out, struct sl_err *err);

#endif
