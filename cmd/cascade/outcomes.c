/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line is a JSON object. Unknown keys are ignored, so logs may carry more. Known keys are checked for type and
 * range, because a wrong number would end up in weights or thresholds. Features are given, or computed from `messages`.
 */
#include "cmd/cascade/outcomes.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_TOKENS = 1 << 20, MOST_MESSAGES = 4096, LINE_MOST = 16 << 20 };

struct place {
	const char *path;
	size_t line;
	struct sl_err *err;
};

static int wrong(const struct place *p, const char *key, const char *want)
{
	return sl_errf(p->err, SL_EINVAL, "%.200s:%zu: %s: %s", p->path, p->line, key, want);
}

static int no_memory(const struct place *p)
{
	return sl_errf(p->err, SL_ENOMEM, "%.200s:%zu: no memory", p->path, p->line);
}

/* ---- numbers and names ---- */

static int get_count(const struct place *p, const json_t *o, const char *key, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);
	if (v == NULL)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT64_C(1) << 40)
		return wrong(p, key, "must be a count");
	*out = (uint64_t)json_integer_value(v);
	return 0;
}

static int get_verdict(const struct place *p, const json_t *o, const char *key, int8_t *out)
{
	const json_t *v = json_object_get(o, key);
	*out = VERDICT_NONE;
	if (v == NULL || json_is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return wrong(p, key, "must be true, false or null");
	*out = json_is_true(v) ? VERDICT_RIGHT : VERDICT_WRONG;
	return 0;
}

static int get_name(const struct place *p, const json_t *o, const char *key, const char *(*name)(int), int n,
		    int8_t *out)
{
	const json_t *v = json_object_get(o, key);
	*out = -1;
	if (v == NULL)
		return 0;
	for (int i = 0; i < n && json_is_string(v); i++)
		if (strcmp(json_string_value(v), name(i)) == 0)
			*out = (int8_t)i;
	return *out < 0 ? wrong(p, key, "unknown name") : 0;
}

static int get_costs(const struct place *p, const json_t *o, struct outcome *to)
{
	struct casc_cost *c = &to->cost;
	const json_t *small = json_object_get(o, "small"), *large = json_object_get(o, "large");
	uint64_t small_made = 0, large_made = 0;
	const struct {
		const json_t *in;
		const char *key;
		uint64_t *to;
	} counts[] = {{small, "prompt", &c->small_prompt}, {small, "made", &small_made},
		      {small, "shown", &c->small_shown},   {large, "prompt", &c->large_prompt},
		      {large, "made", &large_made},        {large, "shown", &c->large_shown},
		      {large, "given", &c->large_given},   {o, "offered", &c->offered},
		      {o, "accepted", &c->accepted},       {o, "always_large", &c->always_large}};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		int rc = get_count(p, counts[i].in, counts[i].key, counts[i].to);
		if (rc != 0)
			return rc;
	}
	if (small_made < c->small_shown)
		return wrong(p, "small.shown", "is above made");
	if (large_made < c->large_shown)
		return wrong(p, "large.shown", "is above made");
	if (c->accepted > c->offered)
		return wrong(p, "accepted", "is above offered");
	c->requests = 1;
	c->small_made = small_made;
	c->small_wasted = small_made - c->small_shown;
	c->large_made = large_made;
	c->large_wasted = large_made - c->large_shown;
	c->small_only = c->small_prompt + small_made > 0 && casc_cost_large(c) == 0;
	c->escalations = to->escalated > CASC_NOT_ESCALATED && to->escalated != CASC_FOR_RACE;
	c->races = to->plan == CASC_PLAN_RACE;
	c->refused = json_is_true(json_object_get(o, "refused"));
	return 0;
}

/* ---- lists ---- */

static int get_floats(const struct place *p, const json_t *v, const char *key, size_t least, size_t most, double top,
		      float **out, uint32_t *n)
{
	size_t len = json_array_size(v);
	if (!json_is_array(v) || len < least || len > most)
		return wrong(p, key, "must be a list of the right length");
	if ((*out = sl_zalloc_n(len > 0 ? len : 1, sizeof **out)) == NULL)
		return no_memory(p);
	for (size_t i = 0; i < len; i++) {
		const json_t *x = json_array_get(v, i);
		if (!json_is_number(x) || !(json_number_value(x) >= 0 && json_number_value(x) <= top))
			return wrong(p, key, "a number is out of range");
		(*out)[i] = (float)json_number_value(x);
	}
	*n = (uint32_t)len;
	return 0;
}

static int set_grams(const struct place *p, struct outcome *to, size_t n)
{
	to->grams = sl_zalloc_n(n > 0 ? n : 1, sizeof *to->grams);
	to->n_grams = (uint32_t)n;
	return to->grams == NULL ? no_memory(p) : 0;
}

static int get_features(const struct place *p, const json_t *f, struct outcome *to)
{
	uint32_t n;
	int rc = get_floats(p, json_object_get(f, "dense"), "features.dense", CASC_N_FEATURES, CASC_N_FEATURES, 100,
			    &to->dense, &n);
	const json_t *grams = json_object_get(f, "grams");
	if (rc != 0)
		return rc;
	if (!json_is_array(grams) || json_array_size(grams) > CASC_MAX_GRAMS)
		return wrong(p, "features.grams", "must be a list of hashes");
	if ((rc = set_grams(p, to, json_array_size(grams))) != 0)
		return rc;
	for (size_t i = 0; i < json_array_size(grams); i++) {
		const json_t *x = json_array_get(grams, i);
		if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > UINT32_MAX)
			return wrong(p, "features.grams", "a hash must be from 0 to 4294967295");
		to->grams[i] = (uint32_t)json_integer_value(x);
	}
	return 0;
}

static bool role_of(const char *role, enum casc_role *out)
{
	static const char *const names[] = {"system", "developer", "user", "assistant", "tool"};
	static const enum casc_role roles[] = {CASC_SYSTEM, CASC_SYSTEM, CASC_USER, CASC_ASSISTANT, CASC_TOOL};
	for (size_t i = 0; i < sizeof names / sizeof *names && role != NULL; i++)
		if (strcmp(names[i], role) == 0) {
			*out = roles[i];
			return true;
		}
	return false;
}

static int features_of(const struct place *p, const json_t *o, const json_t *messages, struct outcome *to)
{
	static struct casc_message m[MOST_MESSAGES];
	static struct casc_features f;
	uint64_t tools = 0, asked = 0;
	size_t n = json_array_size(messages);
	int rc = get_count(p, o, "tools", &tools);
	if (rc != 0 || (rc = get_count(p, o, "max_tokens", &asked)) != 0)
		return rc;
	if (!json_is_array(messages) || n > MOST_MESSAGES)
		return wrong(p, "messages", "must be a list of at most 4096");
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(messages, i), *text = json_object_get(x, "content");
		if (!role_of(json_string_value(json_object_get(x, "role")), &m[i].role) || !json_is_string(text))
			return wrong(p, "messages", "each needs a role and a string content");
		m[i].text = json_string_value(text);
		m[i].n = json_string_length(text);
	}
	struct casc_ask ask = {m, n, (uint32_t)(tools < 1000 ? tools : 1000),
			       (uint32_t)(asked < INT32_MAX ? asked : INT32_MAX)};
	casc_features(&ask, &f);
	if ((to->dense = sl_zalloc_n(CASC_N_FEATURES, sizeof *to->dense)) == NULL)
		return no_memory(p);
	memcpy(to->dense, f.dense, sizeof f.dense);
	if ((rc = set_grams(p, to, f.n_grams)) == 0)
		memcpy(to->grams, f.grams, f.n_grams * sizeof *f.grams);
	return rc;
}

/* ---- a line, a file ---- */

static int take(const struct place *p, const json_t *o, struct outcome *to)
{
	const json_t *version = json_object_get(o, "v"), *features = json_object_get(o, "features"),
		     *messages = json_object_get(o, "messages"), *trace = json_object_get(o, "trace"),
		     *ttft = json_object_get(o, "ttft_ms");
	if (!json_is_object(o))
		return wrong(p, "line", "must be an object");
	if (version != NULL && (!json_is_integer(version) || json_integer_value(version) != 1))
		return wrong(p, "v", "must be 1");
	if (ttft != NULL && (!json_is_number(ttft) || !(json_number_value(ttft) >= 0)))
		return wrong(p, "ttft_ms", "must be a time");
	to->ttft_ms = ttft != NULL ? json_number_value(ttft) : -1;
	int rc = get_name(p, o, "plan", casc_plan_name, CASC_PLAN_RACE + 1, &to->plan);
	if (rc != 0 || (rc = get_name(p, o, "why", casc_why_name, CASC_N_WHYS, &to->why)) != 0 ||
	    (rc = get_name(p, o, "escalated", casc_reason_name, CASC_FOR_FAILURE + 1, &to->escalated)) != 0 ||
	    (rc = get_verdict(p, o, "small_right", &to->small_right)) != 0 ||
	    (rc = get_verdict(p, o, "large_right", &to->large_right)) != 0 ||
	    (rc = get_verdict(p, o, "right", &to->right)) != 0 || (rc = get_costs(p, o, to)) != 0)
		return rc;
	if (features != NULL)
		rc = get_features(p, features, to);
	else if (messages != NULL)
		rc = features_of(p, o, messages, to);
	return rc == 0 && trace != NULL ? get_floats(p, trace, "trace", 0, MOST_TOKENS, 1, &to->trace, &to->n_trace)
					: rc;
}

static int add_line(const struct place *p, const char *text, size_t n, struct outcomes *to)
{
	json_error_t where;
	json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
	if (o == NULL)
		return sl_errf(p->err, SL_EINVAL, "%.200s:%zu: %.200s", p->path, p->line, where.text);
	int rc;
	if (to->n == to->cap) {
		size_t cap = to->cap > 0 ? to->cap * 2 : 256;
		struct outcome *more = sl_realloc_n(to->at, cap, sizeof *more);
		if (more == NULL) {
			rc = no_memory(p);
			goto out;
		}
		to->at = more;
		to->cap = cap;
	}
	/* Counted first, so that an invalid outcome is disposed of too. */
	to->at[to->n] = (struct outcome){0};
	rc = take(p, o, &to->at[to->n++]);
out:
	json_decref(o);
	return rc;
}

int outcomes_read(const char *path, struct outcomes *out, struct sl_err *err)
{
	*out = (struct outcomes){0};
	return outcomes_add(path, out, err);
}

int outcomes_add(const char *path, struct outcomes *out, struct sl_err *err)
{
	bool own = strcmp(path, "-") != 0;
	FILE *f = own ? fopen(path, "re") : stdin;
	struct place p = {.path = path, .err = err};
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int rc = 0;
	if (f == NULL)
		rc = sl_errf(err, SL_EIO, "%.200s: %s", path, strerror(errno));
	while (rc == 0 && (n = getline(&line, &cap, f)) >= 0) {
		p.line++;
		if (n > LINE_MOST)
			rc = wrong(&p, "line", "longer than 16 MiB");
		else if (strspn(line, " \t\r\n") < (size_t)n)
			rc = add_line(&p, line, (size_t)n, out);
	}
	if (rc == 0 && ferror(f) != 0)
		rc = sl_errf(err, SL_EIO, "%.200s: %s", path, strerror(errno));
	free(line);
	if (own && f != NULL)
		fclose(f);
	if (rc != 0)
		outcomes_dispose(out);
	return rc;
}

void outcomes_dispose(struct outcomes *o)
{
	for (size_t i = 0; i < o->n; i++) {
		sl_free(o->at[i].dense);
		sl_free(o->at[i].grams);
		sl_free(o->at[i].trace);
	}
	sl_free(o->at);
	*o = (struct outcomes){0};
}
