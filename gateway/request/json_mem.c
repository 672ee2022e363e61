/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson's lexer (2.14, load.c) does not look at whether its buffer could grow: it loses the byte
 * and goes on. When a later attempt succeeds, a string has a hole, or has lost its closing quote and
 * is copied beyond its end. So while a text is parsed the first allocation that fails is followed by
 * nothing but failures: the copy of the string then fails too, and the parser gives up.
 *
 * A document (json_doc_load) is parsed into chunks that only grow: what the library gives back while it parses
 * stays in them, mostly smaller predecessors of what grew, so no more than as much again. Long texts are not worth
 * that, and their values are allocated one by one as ever.
 *
 * Thread: any; the state of a parse is its thread's.
 */
#include "gateway/request/json_mem.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

enum {
	DOC_TEXT_MOST = 16 << 10, /* bytes of text that is parsed into chunks */
	/* A small chat takes one or two. Just within what malloc hands out and takes back without a search. */
	CHUNK_BYTES = 1008,
	ALIGN = alignof(max_align_t),
};

struct json_chunk {
	struct json_chunk *before;
	alignas(max_align_t) uint8_t bytes[];
};

static _Thread_local bool parsing, failed;
/* The document that is being parsed, and the room in its newest chunk. */
static _Thread_local struct {
	bool on;
	struct json_chunk *newest;
	uint8_t *at;
	size_t room;
} doc;

static void *take_chunk(size_t bytes)
{
	size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
	struct json_chunk *c = sl_alloc(sizeof *c + room);
	if (c == NULL)
		return NULL;
	c->before = doc.newest;
	doc.newest = c;
	doc.at = c->bytes + bytes;
	doc.room = room - bytes;
	return c->bytes;
}

static void *doc_alloc(size_t bytes)
{
	size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	if (whole < bytes)
		return NULL;
	if (whole > doc.room)
		return take_chunk(whole);
	uint8_t *p = doc.at;
	doc.at += whole;
	doc.room -= whole;
	return p;
}

static void *json_mem_alloc(size_t bytes)
{
	void *p = NULL;
	if (!(parsing && failed))
		p = doc.on ? doc_alloc(bytes) : sl_alloc(bytes);
	failed = failed || p == NULL;
	return p;
}

static void json_mem_free(void *p)
{
	if (!doc.on)
		sl_free(p);
}

void json_mem_install(void) { json_set_alloc_funcs(json_mem_alloc, json_mem_free); }

json_t *json_mem_load(const char *bytes, size_t n, size_t flags, json_error_t *where)
{
	parsing = true;
	failed = false;
	json_t *v = json_loadb(bytes, n, flags, where);
	parsing = false;
	if (failed) {
		json_decref(v);
		if (where != NULL)
			where->text[0] = '\0';
		return NULL;
	}
	return v;
}

int json_doc_load(const char *bytes, size_t n, size_t flags, struct json_doc *out, json_error_t *where)
{
	doc.on = n <= DOC_TEXT_MOST;
	doc.newest = NULL;
	doc.room = 0;
	*out = (struct json_doc){.root = json_mem_load(bytes, n, flags, where)};
	out->chunks = doc.newest;
	doc.on = false;
	if (out->root != NULL)
		return 0;
	json_doc_dispose(out);
	return where->text[0] == '\0' ? SL_ENOMEM : SL_EINVAL;
}

void json_doc_dispose(struct json_doc *d)
{
	struct json_chunk *before;
	if (d->chunks == NULL)
		json_decref(d->root);
	for (struct json_chunk *c = d->chunks; c != NULL; c = before) {
		before = c->before;
		sl_free(c);
	}
	*d = (struct json_doc){0};
}
