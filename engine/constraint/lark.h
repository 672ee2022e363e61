/* SPDX-License-Identifier: Apache-2.0
 *
 * What the reader of Lark's EBNF and its library share.
 */
#ifndef ENGINE_CONSTRAINT_LARK_H
#define ENGINE_CONSTRAINT_LARK_H

#include "engine/constraint/ebnf.h"

struct lark {
	struct ebnf g;
	struct ebnf_node *ignored; /* EBNF_ALT */
};

/* The regular expression of a terminal of the library `common`; NULL: there is none of that name. */
const char *lark_common(struct proto_str name);

#endif
