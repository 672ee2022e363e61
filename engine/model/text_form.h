/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model, or an adapter with a template of its own, writes calls and reasoning, and by which control tokens.
 */
#ifndef ENGINE_TEXT_FORM_H
#define ENGINE_TEXT_FORM_H

#include "base/parts/parts_format.h"
#include "base/proto/proto.h"
#include "engine/chat/chat_template.h"
#include "engine/token/tokenizer.h"

struct text_form {
	struct parts_detected parts;
	int n_markers;
	int32_t markers[PROTO_MAX_MARKERS]; /* of parts_format_literals: control tokens; -1: none */
};

/* template NULL: it has none. */
void text_form_make(const struct tokenizer *t, const struct chat_template *template, struct text_form *out);

#endif
