/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of gateway/parts for tests: the tools that all of them declare, tokens made from a text, and the events as
 * lines that do not depend on how text was cut into events:
 *
 *   content «text»
 *   reasoning «text»
 *   call NAME «arguments»      or «arguments» cut
 */
#ifndef TESTS_SUPPORT_PARTS_RIG_H
#define TESTS_SUPPORT_PARTS_RIG_H

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/parts/parts.h"

struct parts_log {
	struct sl_buf text;
	enum parts_event_kind last;
	int open; /* a line is not closed yet */
	int n_begun, n_ended;
	bool newlines; /* are written as they are, not as a sign */
};

static inline void parts_log_add(struct parts_log *l, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = text[i] == '\n' && !l->newlines ? buf_append_str(&l->text, "\xe2\x8f\x8e")
							 : buf_append(&l->text, text + i, 1);
		BUG_IF(rc != 0, "no memory");
	}
}

static inline void parts_log_close(struct parts_log *l, const char *how)
{
	int rc = l->open ? buf_append_str(&l->text, how) : 0;
	BUG_IF(rc != 0, "no memory");
	l->open = 0;
}

static inline void parts_log_begin(struct parts_log *l, const char *what, const char *name, size_t n)
{
	parts_log_close(l, "\xc2\xbb\n");
	int rc = buf_append_str(&l->text, what);
	rc = rc != 0 ? rc : buf_append(&l->text, name, n);
	rc = rc != 0 ? rc : buf_append_str(&l->text, n > 0 ? " \xc2\xab" : "\xc2\xab");
	BUG_IF(rc != 0, "no memory");
	l->open = 1;
}

/* What holds of every sequence of events is checked here. */
static inline int parts_log_event(void *ctx, const struct parts_event *e)
{
	struct parts_log *l = ctx;
	bool in_call = l->n_begun > l->n_ended;
	switch (e->kind) {
	case PARTS_CONTENT:
	case PARTS_REASONING:
		BUG_IF(in_call || e->n == 0, "text within a call, or none");
		if (!l->open || l->last != e->kind)
			parts_log_begin(l, e->kind == PARTS_CONTENT ? "content " : "reasoning ", "", 0);
		parts_log_add(l, e->text, e->n);
		break;
	case PARTS_CALL_BEGIN:
		BUG_IF(in_call || e->index != l->n_begun, "a call within a call");
		l->n_begun++;
		parts_log_begin(l, "call ", e->text, e->n);
		break;
	case PARTS_CALL_ARGUMENTS:
		BUG_IF(!in_call || e->index != l->n_begun - 1 || e->n == 0, "arguments outside of their call");
		parts_log_add(l, e->text, e->n);
		break;
	case PARTS_CALL_END:
		BUG_IF(!in_call || e->index != l->n_begun - 1, "an end outside of its call");
		l->n_ended++;
		parts_log_close(l, e->cut ? "\xc2\xbb cut\n" : "\xc2\xbb\n");
		break;
	}
	l->last = e->kind;
	return 0;
}

static inline void parts_log_init(struct parts_log *l)
{
	*l = (struct parts_log){0};
	buf_init(&l->text, SIZE_MAX);
}

static inline struct parts_tools *parts_rig_tools(void)
{
	static const char weather[] =
	    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"unit\": "
	    "{\"enum\": [\"c\", \"f\"]}, \"days\": {\"type\": \"integer\"}, \"wind\": {\"type\": "
	    "[\"string\", \"null\"]}}}";
	static const char search[] =
	    "{\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\"}, \"limit\": {\"type\": "
	    "\"integer\"}, \"score\": {\"type\": \"number\"}, \"exact\": {\"type\": \"boolean\"}, \"tags\": {\"type\": "
	    "\"array\"}, \"options\": {\"anyOf\": [{\"type\": \"object\"}, {\"type\": \"null\"}]}}}";
	static const char write[] =
	    "{\"properties\": {\"path\": {\"type\": \"string\"}, \"text\": {\"type\": \"string\"}}}";
	const struct parts_tool tools[] = {{"get_weather", weather, sizeof weather - 1},
					   {"search", search, sizeof search - 1},
					   {"write_file", write, sizeof write - 1},
					   {"noop", NULL, 0},
					   {"get", NULL, 0},
					   {"a.b-c", NULL, 0}};
	struct parts_tools *t;
	int rc = parts_tools_create(tools, sizeof tools / sizeof *tools, &t);
	BUG_IF(rc != 0, "tools: %d", rc);
	return t;
}

/* The format's literals as control tokens, and one that it does not know. Their ids are 1000 and up. Returns how many.
 */
enum { PARTS_RIG_MARKERS = PARTS_MAX_LITERALS + 1, PARTS_RIG_FIRST_ID = 1000 };
static inline size_t parts_rig_markers(enum parts_format f, enum parts_reasoning r, struct parts_marker *out)
{
	const char *all[PARTS_MAX_LITERALS];
	size_t n = parts_format_literals(f, r, all, PARTS_MAX_LITERALS);
	BUG_IF(n > PARTS_MAX_LITERALS, "too many literals");
	for (size_t i = 0; i < n; i++)
		out[i] = (struct parts_marker){.id = PARTS_RIG_FIRST_ID + (int32_t)i, .text = all[i]};
	out[n] = (struct parts_marker){.id = PARTS_RIG_FIRST_ID + (int32_t)n, .text = "<|other|>"};
	return n + 1;
}

#endif
