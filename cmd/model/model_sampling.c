/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model generate`: the options that say how tokens are chosen, into the request that every
 * line of a batch begins with. Bounds are the protocol's (base/proto/proto.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/model/model.h"

bool model_number(const char *text, double lo, double hi, double *out)
{
	char *end;
	if (text == NULL)
		return false;
	errno = 0;
	*out = strtod(text, &end);
	return errno == 0 && end != text && *end == '\0' && *out >= lo && *out <= hi;
}

bool model_whole(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
{
	char *end;
	if (text == NULL || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *out >= lo && *out <= hi;
}

void model_sampling_init(struct sampling_options *s)
{
	*s = (struct sampling_options){.req = {PROTO_SUBMIT_OFF, .top_p = 1}};
	s->req.logit_bias = s->bias;
}

/* ID=B */
static bool take_bias(struct sampling_options *s, const char *value)
{
	char id[16];
	uint64_t n;
	double b;
	const char *eq = value != NULL ? strchr(value, '=') : NULL;
	if (eq == NULL || (size_t)(eq - value) >= sizeof id || s->req.n_logit_bias == PROTO_MAX_LOGIT_BIAS)
		return false;
	memcpy(id, value, (size_t)(eq - value));
	id[eq - value] = '\0';
	if (!model_whole(id, 0, INT32_MAX, &n) || !model_number(eq + 1, -100, 100, &b))
		return false;
	s->bias[s->req.n_logit_bias++] = (struct proto_id_f32){.id = (uint32_t)n, .v = (float)b};
	return true;
}

static bool take_stop(struct sampling_options *s, const char *value)
{
	size_t n = value != NULL ? strlen(value) : 0;
	if (n == 0 || n > PROTO_MAX_STOP_BYTES || s->req.n_stops == PROTO_MAX_STOPS)
		return false;
	s->req.stops[s->req.n_stops++] = (struct proto_str){.at = value, .n = n};
	return true;
}

static bool take_stop_id(struct sampling_options *s, const char *value)
{
	uint64_t n;
	if (s->req.n_stop_ids == PROTO_MAX_STOP_IDS || !model_whole(value, 0, INT32_MAX, &n))
		return false;
	s->req.stop_ids[s->req.n_stop_ids++] = (uint32_t)n;
	return true;
}

enum sampling_taken model_sampling_option(struct sampling_options *s, const char *name, const char *value)
{
	struct proto_submit *m = &s->req;
	const struct {
		const char *name;
		float *to;
		double lo, hi;
		bool open; /* lo itself is out */
	} floats[] = {
	    {"--top-p", &m->top_p, 0, 1, true},
	    {"--min-p", &m->min_p, 0, 1, false},
	    {"--typical", &m->typical_p, 0, 1, true},
	    {"--repetition-penalty", &m->repetition_penalty, 0, 2, true},
	    {"--presence-penalty", &m->presence_penalty, -2, 2, false},
	    {"--frequency-penalty", &m->frequency_penalty, -2, 2, false},
	    {"--length-penalty", &m->length_penalty, -8, 8, false},
	};
	for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
		double x;
		if (strcmp(name, floats[i].name) != 0)
			continue;
		if (!model_number(value, floats[i].lo, floats[i].hi, &x) ||
		    (floats[i].open && !((float)x > (float)floats[i].lo)))
			return SAMPLING_BAD;
		*floats[i].to = (float)x;
		return SAMPLING_TAKEN;
	}
	uint64_t n = 0;
	bool ok;
	if (strcmp(name, "--top-k") == 0) {
		ok = model_whole(value, 0, UINT32_MAX, &n);
		m->top_k = (uint32_t)n;
	} else if (strcmp(name, "--min-tokens") == 0) {
		ok = model_whole(value, 0, UINT32_MAX, &n);
		m->min_tokens = (uint32_t)n;
	} else if (strcmp(name, "--prompt-logprobs") == 0) {
		ok = model_whole(value, 0, PROTO_MAX_TOP_LOGPROBS, &n);
		m->prompt_logprobs = (uint8_t)(n + 1);
	} else if (strcmp(name, "--n") == 0) {
		ok = model_whole(value, 1, PROTO_MAX_CHOICES, &n);
		m->n = (uint8_t)n;
	} else if (strcmp(name, "--best-of") == 0) {
		ok = model_whole(value, 1, PROTO_MAX_CHOICES, &n);
		m->best_of = (uint8_t)n;
	} else if (strcmp(name, "--beam") == 0) {
		ok = model_whole(value, 1, PROTO_MAX_CHOICES, &n);
		m->beam_width = (uint8_t)n;
	} else if (strcmp(name, "--logit-bias") == 0) {
		ok = take_bias(s, value);
	} else if (strcmp(name, "--stop") == 0) {
		ok = take_stop(s, value);
	} else if (strcmp(name, "--stop-id") == 0) {
		ok = take_stop_id(s, value);
	} else {
		return SAMPLING_OTHER;
	}
	return ok ? SAMPLING_TAKEN : SAMPLING_BAD;
}

const char *model_sampling_finish(struct sampling_options *s, uint32_t n_tokens)
{
	struct proto_submit *m = &s->req;
	if (m->best_of < m->n)
		m->best_of = m->n;
	if (m->beam_width > 0 && m->beam_width < m->n)
		return "--beam must be at least --n";
	if (m->min_tokens > n_tokens)
		return "--min-tokens must be at most --tokens";
	return NULL;
}
