/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON library's memory through base/alloc.h, and parsing that survives want of it.
 */
#ifndef GATEWAY_JSON_MEM_H
#define GATEWAY_JSON_MEM_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/* For the whole process, before the first JSON value is made. */
void json_mem_install(void);

/* json_loadb. NULL with where->text: the text is bad; with an empty where->text: no memory. where may be
 * NULL. */
json_t *json_mem_load(const char *bytes, size_t n, size_t flags, json_error_t *where);

/* A document that is read and then freed as a whole, which is quicker than freeing each of its values. Nothing of it
 * may be changed, or kept beyond it by json_incref. Any thread may read and free it. */
struct json_doc {
	json_t *root;              /* NULL: empty */
	struct json_chunk *chunks; /* owned: what the values lie in; NULL: each lies by itself */
};

/* 0; SL_EINVAL: the text is bad, *where says how; SL_ENOMEM. Then *out is empty. */
int json_doc_load(const char *bytes, size_t n, size_t flags, struct json_doc *out, json_error_t *where);
/* Empty afterwards; an empty one is fine. */
void json_doc_dispose(struct json_doc *d);

#endif
