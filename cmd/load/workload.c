/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/workload.h"

#include <stdlib.h>

static const char *const words[] = {
    "the",    "small",  "river", "runs", "under", "an",    "old",  "stone", "bridge", "while", "many",
    "people", "walk",   "to",    "work", "in",    "cold",  "rain", "and",   "talk",   "about", "bread",
    "music",  "trains", "along", "road", "home",  "again", "with", "green", "quiet",  "light",
};
enum { N_WORDS = sizeof words / sizeof *words };

/* Reads a number of at least lo up to `stop`, which follows it. NULL: malformed. */
static const char *number(const char *at, double lo, double hi, const char *stops, double *out)
{
	char *end;
	*out = strtod(at, &end);
	if (end == at || !(*out >= lo && *out <= hi))
		return NULL;
	for (const char *s = stops;; s++) {
		if (*end == *s)
			return *end == '\0' ? end : end + 1;
		if (*s == '\0')
			return NULL;
	}
}

int workload_parse_mix(const char *text, struct workload *w)
{
	double weight, prompt, answer;
	w->n_kinds = 0;
	for (const char *at = text; *at != '\0' || w->n_kinds == 0;) {
		if (w->n_kinds == WORKLOAD_MAX_KINDS || (at = number(at, 1e-9, 1e9, ":", &weight)) == NULL ||
		    *at == '\0' || (at = number(at, 1, WORKLOAD_MAX_TOKENS, ":", &prompt)) == NULL || *at == '\0' ||
		    (at = number(at, 1, WORKLOAD_MAX_TOKENS, ",", &answer)) == NULL)
			return SL_EINVAL;
		w->kinds[w->n_kinds++] = (struct work_kind){weight, (uint32_t)prompt, (uint32_t)answer};
	}
	return 0;
}

struct work workload_draw(const struct workload *w, struct load_random *r)
{
	double sum = 0;
	int i = 0;
	for (int k = 0; k < w->n_kinds; k++)
		sum += w->kinds[k].weight;
	for (double at = load_uniform(r) * sum; i < w->n_kinds - 1 && (at -= w->kinds[i].weight) > 0; i++)
		;
	struct work one = {.n_prompt = w->kinds[i].n_prompt, .n_answer = w->kinds[i].n_answer};
	one.n_shared = w->n_shared < one.n_prompt ? w->n_shared : one.n_prompt;
	one.prefix = w->n_prefixes > 1 ? (uint64_t)((load_uniform(r) - 0x1p-53) * w->n_prefixes) : 0;
	return one;
}

static int write_words(struct load_random *r, uint32_t n, struct sl_buf *out)
{
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rc = buf_append_str(out, words[(unsigned)((load_uniform(r) - 0x1p-53) * N_WORDS)]);
		if (rc == 0)
			rc = buf_append_str(out, " ");
	}
	return rc;
}

int work_write(const struct work *w, struct load_random *r, struct sl_buf *out)
{
	struct load_random of_prefix = {.state = w->prefix * 0x9E3779B97F4A7C15u + 1};
	uint32_t shared = w->n_shared < w->n_prompt ? w->n_shared : w->n_prompt;
	int rc = write_words(&of_prefix, shared, out);
	return rc == 0 ? write_words(r, w->n_prompt - shared, out) : rc;
}
