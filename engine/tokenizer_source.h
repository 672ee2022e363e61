/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model file says about its tokenizer, apart from where it stands: lets tests and fuzzers
 * make a tokenizer without a file.
 */
#ifndef ENGINE_TOKENIZER_SOURCE_H
#define ENGINE_TOKENIZER_SOURCE_H

#include "engine/tokenizer.h"

struct tok_source {
	struct proto_str model, pre;    /* tokenizer.ggml.model, .pre */
	const struct proto_str *tokens; /* as the file writes them: bytes as GPT-2's characters */
	const int32_t *attrs;           /* enum tok_attr; NULL: all normal */
	size_t n_tokens;
	const struct proto_str *merges; /* "left right" */
	size_t n_merges;
	int32_t bos, eos, eot, unknown; /* -1: none */
	int add_bos;                    /* 0, 1, or -1: as the pre-tokenizer's family does */
};

/* Copies what it needs. Errors as tokenizer_create. */
int tokenizer_create_from(const struct tok_source *src, struct tokenizer **out,
			  struct sl_err *err);

#endif
