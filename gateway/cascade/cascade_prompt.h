/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores a prompt's difficulty, and builds the prompt with which one model continues another model's text.
 */
#ifndef GATEWAY_CASCADE_PROMPT_H
#define GATEWAY_CASCADE_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "cascade/cascade.h"

/* features: may be NULL. A prompt of tokens, or one that memory does not suffice for, scores as an empty prompt. */
void cascade_prompt_score(const struct casc_scorer *scorer, uint8_t kind, struct proto_str prompt,
			  uint32_t asked_tokens, struct casc_score *out, struct casc_features *features);
/* Appends the prompt, with text as the beginning of the answer. 0, SL_ENOMEM, SL_ELIMIT; SL_EUNSUPPORTED: the prompt
 * is tokens, or continues a message that is not a string. */
int cascade_prompt_continue(struct sl_buf *out, uint8_t kind, struct proto_str prompt, const char *text, size_t n);

#endif
