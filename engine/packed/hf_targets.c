/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/packed/hf_targets.h"

#include <fnmatch.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* A list may come from anywhere, and each module is compared with all of it: both have a bounded cost. More targets of
 * a real module's length would not fit into a config.json. */
enum { MOST_TARGETS = 16384, MOST_PATTERNS = 64, MOST_PATTERN_BYTES = 4096, MOST_STARS = 6, MATCH_LIMIT = 100000 };

struct hf_targets {
	const json_t *list;
	char what[160];
	pcre2_code *patterns[MOST_PATTERNS]; /* of the list's "re:" entries, in order */
	size_t n_patterns;
	pcre2_match_data *match;
	pcre2_match_context *limits;
};

static bool is_pattern(const char *s) { return strncmp(s, "re:", 3) == 0; }

static int count_stars(const char *s)
{
	int n = 0;
	for (; *s != '\0'; s++)
		n += *s == '*' || *s == '?' || *s == '[';
	return n;
}

static int compile(struct hf_targets *t, const char *text, struct sl_err *err)
{
	int code;
	PCRE2_SIZE at;
	if (t->n_patterns == MOST_PATTERNS || strlen(text) > MOST_PATTERN_BYTES)
		return sl_errf(err, SL_ELIMIT, "%s: more than %d patterns, or one of more than %d bytes", t->what,
			       MOST_PATTERNS, MOST_PATTERN_BYTES);
	pcre2_code *c = pcre2_compile((PCRE2_SPTR)text, strlen(text), PCRE2_UTF, &code, &at, NULL);
	if (c == NULL)
		return sl_errf(err, SL_EINVAL, "%s: a pattern is malformed at its byte %zu", t->what, (size_t)at);
	t->patterns[t->n_patterns++] = c;
	return 0;
}

static int read_target(struct hf_targets *t, const json_t *v, struct sl_err *err)
{
	const char *s = json_string_value(v);
	if (s == NULL)
		return sl_errf(err, SL_EINVAL, "%s is not a list of strings", t->what);
	if (is_pattern(s))
		return compile(t, s + 3, err);
	return count_stars(s) <= MOST_STARS
		   ? 0
		   : sl_errf(err, SL_ELIMIT, "%s: a name has more than %d wildcards", t->what, MOST_STARS);
}

int hf_targets_read(const json_t *list, const char *what, struct hf_targets **out, struct sl_err *err)
{
	struct hf_targets *t = sl_zalloc(sizeof *t);
	if (t == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", what);
	t->list = list;
	snprintf(t->what, sizeof t->what, "%s", what);
	t->match = pcre2_match_data_create(1, NULL);
	t->limits = pcre2_match_context_create(NULL);
	int rc = 0;
	if (t->match == NULL || t->limits == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", what);
	else if (list != NULL && !json_is_null(list) && !json_is_array(list))
		rc = sl_errf(err, SL_EINVAL, "%s is not a list of strings", what);
	else if (json_array_size(list) > MOST_TARGETS)
		rc = sl_errf(err, SL_ELIMIT, "%s: more than %d names", what, MOST_TARGETS);
	else
		pcre2_set_match_limit(t->limits, MATCH_LIMIT);
	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++)
		rc = read_target(t, json_array_get(list, i), err);
	if (rc != 0) {
		hf_targets_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

void hf_targets_free(struct hf_targets *t)
{
	if (t == NULL)
		return;
	for (size_t i = 0; i < t->n_patterns; i++)
		pcre2_code_free(t->patterns[i]);
	pcre2_match_data_free(t->match);
	pcre2_match_context_free(t->limits);
	sl_free(t);
}

/* A module with a matrix is an embedding or, for this purpose, linear. */
static bool is_class_of(const char *target, const char *module)
{
	size_t n = strlen(module);
	bool table = n >= 12 && strcmp(module + n - 12, "embed_tokens") == 0;
	return strcmp(target, table ? "Embedding" : "Linear") == 0;
}

static int match_pattern(const struct hf_targets *t, const pcre2_code *code, const char *module, bool *out,
			 struct sl_err *err)
{
	int got = pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, PCRE2_ANCHORED, t->match, t->limits);
	*out = got >= 0;
	return got >= 0 || got == PCRE2_ERROR_NOMATCH
		   ? 0
		   : sl_errf(err, SL_ELIMIT, "%s: a pattern cannot be matched with %.200s", t->what, module);
}

int hf_targets_match(const struct hf_targets *t, const char *module, enum hf_match *out, struct sl_err *err)
{
	size_t next = 0;
	*out = HF_NO_MATCH;
	for (size_t i = 0; i < json_array_size(t->list); i++) {
		const char *s = json_string_value(json_array_get(t->list, i));
		enum hf_match how = HF_NO_MATCH;
		bool fits = false;
		if (is_pattern(s)) {
			int rc = match_pattern(t, t->patterns[next++], module, &fits, err);
			if (rc != 0)
				return rc;
			how = fits ? HF_BY_PATTERN : HF_NO_MATCH;
		} else if (strcmp(s, module) == 0) {
			how = HF_BY_NAME;
		} else if (strpbrk(s, "*?[") != NULL && fnmatch(s, module, 0) == 0) {
			how = HF_BY_PATTERN;
		} else if (is_class_of(s, module)) {
			how = HF_BY_CLASS;
		}
		*out = how > *out ? how : *out;
	}
	return 0;
}
