/* SPDX-License-Identifier: Apache-2.0
 *
 * How difficult a prompt looks, and the prompt with which a model continues another model's text.
 */
#ifndef GATEWAY_CASCADE_PROMPT_H
#define GATEWAY_CASCADE_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "cascade/cascade.h"

/* features may be NULL. A prompt that can't be read (no memory, tokens) looks like an empty one. */
void cascade_prompt_score(const struct casc_scorer *scorer, uint8_t kind, struct proto_str prompt,
			  uint32_t asked_tokens, struct casc_score *out, struct casc_features *features);
/* Appends the prompt with text as the beginning of the answer. 0, SL_ENOMEM, SL_ELIMIT; SL_EUNSUPPORTED: a prompt
 * of tokens has no text. */
int cascade_prompt_continue(struct sl_buf *out, uint8_t kind, struct proto_str prompt, const char *text, size_t n);

#endif
