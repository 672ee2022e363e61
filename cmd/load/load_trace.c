/* SPDX-License-Identifier: Apache-2.0
 *
 * Recorded traffic (workload.h): a line has one of two forms, both without text.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cmd/load/workload.h"

enum { MOST_BYTES = 512 << 20 };

struct reading {
	const char *path;
	size_t line, room;
	struct load_trace *out;
	struct sl_err *err;
};

static int bad(const struct reading *r, const char *what)
{
	return sl_errf(r->err, SL_EINVAL, "%.200s: line %zu: %s", r->path, r->line, what);
}

/* *out stays if there is no such member. False: it is no number of tokens. */
static bool tokens(const json_t *o, const char *name, uint32_t *out)
{
	const json_t *v = json_object_get(o, name);
	if (v == NULL)
		return true;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > WORKLOAD_MAX_TOKENS)
		return false;
	*out = (uint32_t)json_integer_value(v);
	return true;
}

static uint64_t hash_of(const json_t *v)
{
	if (json_is_integer(v))
		return (uint64_t)json_integer_value(v);
	return json_is_string(v) ? XXH3_64bits(json_string_value(v), json_string_length(v)) : 0;
}

/* "2026-01-31T10:20:30.123Z" as seconds; text may be NULL. */
static bool read_time(const char *text, double *out)
{
	struct tm tm = {0};
	char *end;
	const char *seconds = text != NULL ? strptime(text, "%Y-%m-%dT%H:%M:", &tm) : NULL;
	if (seconds == NULL || seconds[0] < '0' || seconds[0] > '6')
		return false;
	double s = strtod(seconds, &end);
	*out = (double)timegm(&tm) + s;
	return s < 61 && end[0] == 'Z' && end[1] == '\0';
}

static double time_of(const json_t *o, const char *name)
{
	const json_t *v = json_object_get(o, name);
	return json_is_number(v) && json_number_value(v) > 0 ? json_number_value(v) : 0;
}

/* A record of log.requests. */
static int read_record(const struct reading *r, const json_t *o, struct trace_item *out, bool *is_one)
{
	const json_t *e2e = json_object_get(o, "e2e_ms");
	*is_one = json_object_get(o, "tokens_in") != NULL && json_object_get(o, "tokens_out") != NULL;
	if (!*is_one)
		return 0;
	if (!read_time(json_string_value(json_object_get(o, "time")), &out->at))
		return bad(r, "time is not such as 2026-01-31T10:20:30.123Z");
	if (!tokens(o, "tokens_in", &out->work.n_prompt) || !tokens(o, "tokens_out", &out->work.n_answer) ||
	    !tokens(o, "tokens_cached", &out->work.n_shared))
		return bad(r, "tokens_in, tokens_out or tokens_cached is no number of tokens");
	out->at -= json_is_number(e2e) ? json_number_value(e2e) / 1000 : 0;
	out->work.prefix = hash_of(json_object_get(o, "tenant"));
	out->work.n_left = out->work.n_prompt + out->work.n_answer;
	out->ttft_ms = time_of(o, "ttft_ms");
	out->itl_ms = time_of(o, "itl_ms");
	out->itl_max_ms = time_of(o, "itl_max_ms");
	return 0;
}

static int read_plain(const struct reading *r, const json_t *o, struct trace_item *out)
{
	const json_t *at = json_object_get(o, "at");
	if (!json_is_number(at) || !(json_number_value(at) >= 0 && json_number_value(at) <= 1e9))
		return bad(r, "at is no number of seconds");
	if (!tokens(o, "prompt_tokens", &out->work.n_prompt) || out->work.n_prompt == 0)
		return bad(r, "prompt_tokens is no number of tokens");
	if (!tokens(o, "answer_tokens", &out->work.n_answer) || out->work.n_answer == 0)
		return bad(r, "answer_tokens is no number of tokens");
	if (!tokens(o, "prefix_tokens", &out->work.n_shared))
		return bad(r, "prefix_tokens is no number of tokens");
	out->at = json_number_value(at);
	out->work.prefix = hash_of(json_object_get(o, "prefix"));
	return 0;
}

static int add(struct reading *r, struct trace_item item)
{
	struct load_trace *t = r->out;
	if (t->n == TRACE_MAX_ITEMS)
		return sl_errf(r->err, SL_ELIMIT, "%.200s: more than %d requests", r->path, TRACE_MAX_ITEMS);
	if (t->n == r->room) {
		size_t room = r->room == 0 ? 1024 : 2 * r->room;
		struct trace_item *more = sl_realloc_n(t->items, room, sizeof *more);
		if (more == NULL)
			return sl_errf(r->err, SL_ENOMEM, "out of memory");
		t->items = more;
		r->room = room;
	}
	item.work.n_prompt = item.work.n_prompt > 0 ? item.work.n_prompt : 1;
	item.work.n_answer = item.work.n_answer > 0 ? item.work.n_answer : 1;
	t->items[t->n++] = item;
	return 0;
}

static int read_line(struct reading *r, const char *text, size_t n)
{
	json_error_t e;
	struct trace_item item = {0};
	bool is_record = false;
	json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	int rc = 0;
	if (!json_is_object(o))
		rc = bad(r, "not a JSON object");
	else if (json_is_string(json_object_get(o, "time")))
		rc = read_record(r, o, &item, &is_record);
	else
		rc = read_plain(r, o, &item);
	if (rc == 0 && (is_record || json_object_get(o, "at") != NULL))
		rc = add(r, item);
	json_decref(o);
	return rc;
}

static int by_time(const void *a, const void *b)
{
	double x = ((const struct trace_item *)a)->at, y = ((const struct trace_item *)b)->at;
	return x < y ? -1 : x > y;
}

int load_trace_read(const char *path, struct load_trace *out, struct sl_err *err)
{
	struct sl_buf text;
	struct sl_err why = {0};
	struct reading r = {.path = path, .out = out, .err = err};
	*out = (struct load_trace){0};
	int rc = file_read(path, MOST_BYTES, &text, &why);
	if (rc != 0)
		sl_errf(err, rc, "%.200s: %s", path, why.text);
	const char *at = (const char *)buf_data(&text), *end = rc == 0 && at != NULL ? at + text.len : at;
	while (rc == 0 && at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline != NULL ? newline : end;
		r.line++;
		if (stop > at)
			rc = read_line(&r, at, (size_t)(stop - at));
		at = newline != NULL ? newline + 1 : end;
	}
	buf_dispose(&text);
	if (rc == 0 && out->n == 0)
		rc = sl_errf(err, SL_EINVAL, "%.200s: no requests", path);
	if (rc != 0) {
		load_trace_free(out);
		return rc;
	}
	qsort(out->items, out->n, sizeof *out->items, by_time);
	for (size_t i = out->n; i-- > 0;)
		out->items[i].at -= out->items[0].at;
	return 0;
}

void load_trace_free(struct load_trace *t)
{
	sl_free(t->items);
	*t = (struct load_trace){0};
}
