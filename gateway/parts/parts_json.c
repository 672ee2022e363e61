/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that are JSON objects: {"name": …, "arguments": …}, also within {"function": {…}}, in a list, or in
 * {"tool_calls": […]}. The head ends with the name or, if the JSON might not be a call, with the arguments.
 */
#include <string.h>

#include "base/json/json_scan.h"
#include "gateway/parts/parts_priv.h"

static bool is_one_of(const struct parts *p, size_t from, size_t to, const char *const *words)
{
	const char *key = (const char *)buf_data(&p->queue) + from;
	for (; *words != NULL; words++)
		if (strlen(*words) == to - from && memcmp(*words, key, to - from) == 0)
			return true;
	return false;
}

static const char *const name_keys[] = {"name", "function", "tool_name", "tool", NULL};
static const char *const args_keys[] = {"arguments", "parameters", "args", NULL};
static const char *const list_keys[] = {"tool_calls", NULL};
static const char *const wrap_keys[] = {"function", NULL};
static const char *const other_keys[] = {"type", "id", "index", "call_id", "tool_call_id", NULL};

/* A key and the colon after it. */
static enum verdict key_at(const struct parts *p, size_t at, size_t *from, size_t *to, size_t *value)
{
	size_t end, n;
	enum verdict v = lex_json_string(p, at, from, to, &end);
	if (v != YES)
		return v;
	at = lex_skip_blanks(p, end);
	int sym = lex_at(p, at, &n);
	if (sym != ':')
		return sym == SYM_END ? lex_wait(p) : NO;
	*value = lex_skip_blanks(p, at + n);
	return lex_at(p, *value, &n) == SYM_END ? lex_wait(p) : YES;
}

/* The name may contain escapes. */
static bool find_name(const struct parts *p, size_t from, size_t to, size_t *tool)
{
	char name[PARTS_MAX_NAME];
	struct proto_str raw = {.at = (const char *)buf_data(&p->queue) + from, .n = to - from};
	if (head_tool(p, from, to, tool))
		return true;
	if (raw.n > sizeof name || raw.n == 0 || p->tools == NULL || memchr(raw.at, '\\', raw.n) == NULL)
		return false;
	size_t n = json_unescape(raw, name);
	return n != SIZE_MAX && tools_find(p->tools, name, n, tool);
}

/* Reads heads member by member. */
struct reader {
	const struct parts *p;
	const struct parts_form *f;
	struct head *h;
	size_t at;
	bool done; /* the verdict is YES */
};

static enum verdict open_object(struct reader *r)
{
	size_t n;
	int sym = lex_at(r->p, r->at, &n);
	if (sym == '[' && !r->h->list) {
		r->h->list = true;
		r->at = lex_skip_blanks(r->p, r->at + n);
		sym = lex_at(r->p, r->at, &n);
	}
	if (sym != '{')
		return sym == SYM_END ? lex_wait(r->p) : NO;
	r->at = lex_skip_blanks(r->p, r->at + n);
	return YES;
}

static enum verdict take_name(struct reader *r, size_t value)
{
	size_t from, to, end;
	bool careful = r->f->bare || r->f->careful;
	enum verdict v = lex_json_string(r->p, value, &from, &to, &end);
	if (v != YES)
		return v;
	if (!find_name(r->p, from, to, &r->h->tool))
		return NO;
	r->h->found = true;
	r->at = end;
	if (r->h->args != 0 || !careful) {
		r->h->body = r->h->args != 0 ? ST_ARGS : ST_MEMBERS;
		r->h->end = end;
		r->done = true;
	}
	return YES;
}

static enum verdict take_args(struct reader *r, size_t value)
{
	if (r->h->found) {
		r->h->body = ST_ARGS;
		r->h->end = value;
		r->done = true;
		return YES;
	}
	r->h->args = value;
	enum verdict v = lex_json_skip(r->p, value, &r->at);
	r->h->args_end = r->at;
	return v;
}

/* {"tool_calls": [{ */
static enum verdict enter_list(struct reader *r, size_t value)
{
	r->h->wrapped = true;
	r->at = value;
	return open_object(r);
}

/* "function": { */
static enum verdict enter_function(struct reader *r, size_t value)
{
	r->h->objects = 2;
	r->at = lex_skip_blanks(r->p, value + 1);
	return YES;
}

/* One member, or the brackets before the next ones (*entered: no comma follows). */
static enum verdict take_member(struct reader *r, bool *entered)
{
	size_t from, to, value, n;
	enum verdict v = key_at(r->p, r->at, &from, &to, &value);
	if (v != YES)
		return v;
	int sym = lex_at(r->p, value, &n);
	*entered = true;
	if (sym == '[' && !r->h->list && !r->h->found && is_one_of(r->p, from, to, list_keys))
		return enter_list(r, value);
	if (sym == '{' && r->h->objects == 1 && !r->h->found && is_one_of(r->p, from, to, wrap_keys))
		return enter_function(r, value);
	*entered = false;
	if (sym == '"' && !r->h->found && is_one_of(r->p, from, to, name_keys))
		return take_name(r, value);
	if (is_one_of(r->p, from, to, args_keys))
		return take_args(r, value);
	if ((r->f->bare || r->f->careful) && !is_one_of(r->p, from, to, other_keys))
		return NO;
	return lex_json_skip(r->p, value, &r->at);
}

static enum verdict take_comma(struct reader *r)
{
	size_t n;
	r->at = lex_skip_blanks(r->p, r->at);
	int sym = lex_at(r->p, r->at, &n);
	if (sym != ',')
		return sym == SYM_END ? lex_wait(r->p) : NO;
	r->at = lex_skip_blanks(r->p, r->at + n);
	return YES;
}

enum verdict json_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	struct reader r = {.p = p, .f = f, .h = h, .at = at};
	enum verdict v = open_object(&r);
	while (v == YES && !r.done) {
		bool entered = false;
		v = take_member(&r, &entered);
		if (v == YES && !r.done && !entered)
			v = take_comma(&r);
	}
	return v;
}

/* ---- the rest of the object ---- */

static bool close_object(struct parts *p, size_t end)
{
	lex_consume(p, end);
	if (--p->objects == 0)
		out_call_end(p, false);
	return true;
}

static enum verdict member(struct parts *p, size_t at)
{
	size_t from, to, value, end;
	enum verdict v = key_at(p, lex_skip_blanks(p, at), &from, &to, &value);
	if (v != YES)
		return v;
	if (!p->has_args && is_one_of(p, from, to, args_keys)) {
		p->has_args = true;
		p->state = ST_ARGS;
		lex_consume(p, value);
		return YES;
	}
	v = lex_json_skip(p, value, &end);
	if (v == YES)
		lex_consume(p, end);
	return v;
}

bool members_step(struct parts *p)
{
	size_t n, at = lex_skip_blanks(p, 0);
	int sym = lex_at(p, at, &n);
	enum verdict v = sym == ',' ? member(p, at + n) : sym == SYM_END ? lex_wait(p) : NO;
	if (sym == '}')
		return close_object(p, at + n);
	if (v == MORE && !lex_full(p))
		return false;
	if (v != YES)
		out_call_end(p, !p->has_args);
	return true;
}
