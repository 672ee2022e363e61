/* SPDX-License-Identifier: Apache-2.0
 *
 *   NAME [ "{" NAME "=" QUOTED { "," NAME "=" QUOTED } "}" ] VALUE [ TIME ]
 *
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Lines of other names are not looked at.
 */
#include "engine/remote/remote_gauges.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum gauge { RUNNING, WAITING, KV, GAUGES };
enum { VALUE_BYTES = 40 };

static const struct {
	const char *name;
	enum gauge gauge;
} names[] = {
    {"vllm:num_requests_running", RUNNING},
    {"vllm:num_requests_waiting", WAITING},
    {"vllm:kv_cache_usage_perc", KV},
    {"vllm:gpu_cache_usage_perc", KV}, /* before 0.9 */
    {"sglang:num_running_reqs", RUNNING},
    {"sglang:num_queue_reqs", WAITING},
    {"sglang:token_usage", KV},
    {"llamacpp:requests_processing", RUNNING},
    {"llamacpp:requests_deferred", WAITING},
    {"llamacpp:kv_cache_usage_ratio", KV},
};

struct sums {
	double of[GAUGES];
	unsigned n[GAUGES];
};

static const char *end_of_name(const char *at, const char *end)
{
	while (at < end && *at != '{' && *at != ' ' && *at != '\t')
		at++;
	return at;
}

/* Behind the labels, if there are some; NULL: they don't end. */
static const char *end_of_labels(const char *at, const char *end)
{
	bool quoted = false;
	if (at == end || *at != '{')
		return at;
	for (at++; at < end; at++) {
		if (quoted && *at == '\\')
			at++;
		else if (*at == '"')
			quoted = !quoted;
		else if (*at == '}' && !quoted)
			return at + 1;
	}
	return NULL;
}

/* NAN: it is none. */
static double value_at(const char *at, const char *end)
{
	char text[VALUE_BYTES], *stop;
	size_t n = 0;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	while (at + n < end && at[n] != ' ' && at[n] != '\t' && at[n] != '\r' && n < sizeof text - 1) {
		text[n] = at[n];
		n++;
	}
	text[n] = '\0';
	double v = strtod(text, &stop);
	return n > 0 && *stop == '\0' ? v : NAN;
}

static int find(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0)
			return (int)i;
	return -1;
}

/* Requests that can be, or a share. */
static bool is_sound(enum gauge gauge, double v)
{
	return v >= 0 && v <= (gauge == KV ? 1.001 : (double)REMOTE_GAUGE_MOST);
}

static int take_line(struct sums *s, const char *at, const char *end, char *why, size_t room)
{
	const char *name_end = end_of_name(at, end), *value = end_of_labels(name_end, end);
	int i = find(at, (size_t)(name_end - at));
	if (i < 0)
		return 0;
	double v = value != NULL ? value_at(value, end) : NAN;
	s->of[names[i].gauge] += v;
	s->n[names[i].gauge]++;
	if (is_sound(names[i].gauge, v) && (names[i].gauge == KV || is_sound(RUNNING, s->of[names[i].gauge])))
		return 0;
	snprintf(why, room, "its %s can't be %.10g", names[i].name, v);
	return SL_EPROTO;
}

int remote_gauges_read(const char *text, size_t n, struct remote_gauges *out, char *why, size_t room)
{
	const char *end = text + n;
	struct sums s = {0};
	while (text < end) {
		const char *line = memchr(text, '\n', (size_t)(end - text));
		line = line != NULL ? line : end;
		if (*text != '#' && take_line(&s, text, line, why, room) != 0)
			return SL_EPROTO;
		text = line + 1;
	}
	if (s.n[RUNNING] == 0) {
		snprintf(why, room, "it has no number of running requests by a name of vLLM, SGLang or llama.cpp");
		return SL_EPROTO;
	}
	double kv = s.n[KV] > 0 ? s.of[KV] / s.n[KV] : 0;
	*out = (struct remote_gauges){.running = (uint32_t)s.of[RUNNING],
				      .waiting = (uint32_t)s.of[WAITING],
				      .kv_permille = (uint32_t)((kv < 1 ? kv : 1) * 1000)};
	return 0;
}
