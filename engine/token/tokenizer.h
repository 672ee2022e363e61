/* SPDX-License-Identifier: Apache-2.0
 *
 * This room owns tokenizers: text to token ids and back, by byte-level BPE (GPT-2's scheme), SentencePiece's BPE and
 * Unigram, and BERT's WordPiece, as GGUF files, tokenizer.json and SentencePiece's tokenizer.model carry them.
 * Immutable after creation: any thread may use one.
 *
 *   text → added tokens (here) → normalizers (normalize.h) → pre-tokens (pretokenize.h) → bpe.h, unigram.h or wordpiece.h → ids
 *
 * Control tokens in a user's text are plain text. The caller marks trusted bytes: a control token is recognized only
 * where every byte of its text is trusted. Other added tokens (TOK_USER: white space, tags) are recognized in any text.
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/file/gguf.h"

struct tokenizer;

/* A growing list of ids; init to zero, free with tok_ids_dispose. */
struct tok_ids {
	int32_t *ids;
	size_t n, cap;
	size_t max; /* 0: no bound; else SL_ELIMIT beyond */
};
void tok_ids_dispose(struct tok_ids *l);

enum tok_attr { TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5, TOK_BYTE = 6 };

/* Reads the file's own vocabulary, merges and pre-tokenizer name. An unknown pre-tokenizer or model
 * is SL_EUNSUPPORTED with its name: never a guess. Copies what it needs. */
int tokenizer_create(const struct gguf *g, struct tokenizer **out, struct sl_err *err);
/* The same from a Hugging Face tokenizer.json and, when there is one, its tokenizer_config.json
 * (n_config 0: none). A part that this version does not know is SL_EUNSUPPORTED with its name. */
int tokenizer_create_json(const char *json, size_t n_json, const char *config, size_t n_config, struct tokenizer **out,
			  struct sl_err *err);
/* The same from a SentencePiece model and, where they are, the folder's added_tokens.json and tokenizer_config.json (n
 * 0: none). */
int tokenizer_create_spm(struct proto_str model, struct proto_str added, struct proto_str config,
			 struct tokenizer **out, struct sl_err *err);
void tokenizer_destroy(struct tokenizer *t);

/* Appends the ids of n bytes. trust has a byte for each byte of text (non-zero: trusted), or is
 * NULL when nothing is. Bytes need not be valid UTF-8. Linear in n but for the longest pre-token,
 * where it is n log n. SL_ELIMIT, SL_ENOMEM. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const uint8_t *trust, struct tok_ids *out);
/* Appends the tokens the file wants before every prompt (bos), if any. */
int tokenizer_add_bos(const struct tokenizer *t, struct tok_ids *out);
/* Appends the ids of one or two texts to be embedded or scored, with the tokens that the model was trained to have
 * around them. None of a text's bytes is trusted. *n_first: how many belong to the first text. As tokenizer_encode. */
int tokenizer_encode_input(const struct tokenizer *t, const struct proto_str *texts, int n_texts, struct tok_ids *out,
			   size_t *n_first);
/* Encoding puts a space before a text, which decoding a whole text removes again. Streamed answers keep theirs: it
 * belongs to the first word. */
bool tokenizer_strips_space(const struct tokenizer *t);

/* Grows the vocabulary to n tokens by unused ones: files often have more rows of weights than tokens. Before t is
 * shared. SL_ENOMEM. */
int tokenizer_pad(struct tokenizer *t, size_t n);
/* Makes a token end generations, for files beside the tokenizer that list such ids. Before t is shared; ids beyond the
 * vocabulary are ignored. */
void tokenizer_mark_end(struct tokenizer *t, int32_t id);
int tokenizer_n_vocab(const struct tokenizer *t);
/* A digest of what its ids mean: bytes, attributes, ends of answers. Tokenizers with equal digests read each other's
 * tokens. Never 0. */
uint64_t tokenizer_digest(const struct tokenizer *t);
/* The bytes of a token (control tokens: their text). id must be below n_vocab. */
struct proto_str tokenizer_bytes(const struct tokenizer *t, int32_t id);
enum tok_attr tokenizer_attr(const struct tokenizer *t, int32_t id);
/* Ends a generation: eos, eot and their like. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t); /* -1: none */

#endif
