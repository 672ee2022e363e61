/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON library's memory through base/alloc.h, and parsing that survives want of it.
 */
#ifndef GATEWAY_JSON_MEM_H
#define GATEWAY_JSON_MEM_H

#include <jansson.h>
#include <stddef.h>

/* For the whole process, before the first JSON value is made. */
void json_mem_install(void);

/* json_loadb. NULL with where->text: the text is bad; with an empty where->text: no memory. where may be
 * NULL. */
json_t *json_mem_load(const char *bytes, size_t n, size_t flags, json_error_t *where);

#endif
