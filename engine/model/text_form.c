/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/text_form.h"

#include <string.h>

_Static_assert((int)PARTS_MAX_LITERALS <= (int)PROTO_MAX_MARKERS, "MODEL has room for all");

void text_form_make(const struct tokenizer *t, const struct chat_template *template, struct text_form *out)
{
	const char *literals[PROTO_MAX_MARKERS];
	*out = (struct text_form){.n_markers = 0};
	if (template == NULL)
		return;
	out->parts = chat_template_parts(template);
	out->n_markers =
	    (int)parts_format_literals(out->parts.format, out->parts.reasoning, literals, PROTO_MAX_MARKERS);
	for (int i = 0; i < out->n_markers; i++)
		out->markers[i] = -1;
	for (int32_t id = 0; id < tokenizer_n_vocab(t); id++) {
		struct proto_str s = tokenizer_bytes(t, id);
		for (int i = 0; i < out->n_markers && tokenizer_attr(t, id) == TOK_CONTROL; i++)
			if (strlen(literals[i]) == s.n && memcmp(literals[i], s.at, s.n) == 0)
				out->markers[i] = id;
	}
}
