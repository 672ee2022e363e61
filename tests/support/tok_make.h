/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte-level tokenizer from a pre-tokenizer's name and merges as files write them ("left right").
 */
#ifndef TESTS_TOK_MAKE_H
#define TESTS_TOK_MAKE_H

#include <string.h>

#include "base/alloc.h"
#include "engine/token/tokenizer_source.h"

static inline int tok_make(const struct tok_source *plain, const char *pre, const struct proto_str *merges,
			   struct tokenizer **out, struct sl_err *err)
{
	struct tok_source src = *plain;
	struct proto_str *halves = sl_zalloc_n(src.n_merges + 1, 2 * sizeof *halves);
	if (halves == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < src.n_merges; i++) {
		const struct proto_str *m = &merges[i];
		const char *space = m->n > 1 ? memchr(m->at + 1, ' ', m->n - 1) : NULL;
		size_t left = space != NULL ? (size_t)(space - m->at) : 0;
		halves[2 * i] = (struct proto_str){m->at, left};
		halves[2 * i + 1] = (struct proto_str){m->at + left + 1, space != NULL ? m->n - left - 1 : 0};
	}
	src.halves = halves;
	int rc = pretok_create((struct proto_str){pre, strlen(pre)}, &src.pretok, err);
	if (rc == 0)
		rc = tokenizer_create_from(&src, out, err);
	sl_free(halves);
	return rc;
}

#endif
