/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model generate`: the options. The sampling options form the request that every line of a
 * batch starts from; their bounds are the protocol's (base/proto/proto.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "kernels/kernels.h"
#include "kernels/kv_type.h"

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

/* ID=B */
static bool take_bias(struct sampling_options *s, const char *value)
{
	char id[16];
	uint64_t n;
	double b;
	const char *eq = strchr(value, '=');
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
	size_t n = strlen(value);
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

/* ---- the table ---- */

/* A real: lo included, or not (ABOVE). BIAS, STOP and STOP_ID may be repeated. */
enum kind { FLAG, TEXT, REAL, ABOVE, U8, U32, U64, BIAS, STOP, STOP_ID };

struct option {
	const char *name;
	enum kind kind;
	void *to;
	double lo, hi; /* of a number but U64 */
};

static bool take(struct sampling_options *s, const struct option *o, const char *value)
{
	double x;
	uint64_t n;
	switch (o->kind) {
	case FLAG: *(bool *)o->to = true; return true;
	case TEXT: *(const char **)o->to = value; return true;
	case REAL:
	case ABOVE:
		if (!model_number(value, o->lo, o->hi, &x) || (o->kind == ABOVE && !((float)x > (float)o->lo)))
			return false;
		*(float *)o->to = (float)x;
		return true;
	case U8:
	case U32:
		if (!model_whole(value, (uint64_t)o->lo, (uint64_t)o->hi, &n))
			return false;
		if (o->kind == U8)
			*(uint8_t *)o->to = (uint8_t)n;
		else
			*(uint32_t *)o->to = (uint32_t)n;
		return true;
	case U64: return model_whole(value, 0, UINT64_MAX, o->to);
	case BIAS: return take_bias(s, value);
	case STOP: return take_stop(s, value);
	case STOP_ID: return take_stop_id(s, value);
	}
	return false;
}

static int check(struct generate_options *o)
{
	struct proto_submit *m = &o->sampling.req;
	if (!o->batch && o->prompt == NULL)
		return model_complain(CMD_EXIT_USAGE, "generate needs --prompt or --batch");
	if (o->quantize != NULL && kn_type_from_name(o->quantize) < 0)
		return model_complain(CMD_EXIT_USAGE, "--quantize: no type is named %s", o->quantize);
	if (o->kv_type != NULL && strcmp(o->kv_type, "auto") != 0 && kn_kv_type_from_name(o->kv_type) < 0)
		return model_complain(CMD_EXIT_USAGE, "--kv-type: no type of keys and values is named %s", o->kv_type);
	if (m->best_of < m->n)
		m->best_of = m->n;
	if (m->beam_width > 0 && m->beam_width < m->n)
		return model_complain(CMD_EXIT_USAGE, "--beam must be at least --n");
	if (m->min_tokens > o->n_tokens)
		return model_complain(CMD_EXIT_USAGE, "--min-tokens must be at most --tokens");
	return 0;
}

int model_generate_command(int argc, char **argv)
{
	struct generate_options o = {.path = argv[2], .backend = "auto", .n_tokens = 256};
	struct proto_submit *m = &o.sampling.req;
	uint8_t prompt_logprobs = UINT8_MAX; /* not asked for; the protocol adds 1 */
	const struct option options[] = {
	    {"--raw", FLAG, &o.raw, 0, 0},
	    {"--ids", FLAG, &o.json, 0, 0},
	    {"--json", FLAG, &o.json, 0, 0},
	    {"--batch", FLAG, &o.batch, 0, 0},
	    {"--logprobs", FLAG, &o.logprobs, 0, 0},
	    {"--prompt", TEXT, &o.prompt, 0, 0},
	    {"--system", TEXT, &o.system, 0, 0},
	    {"--quantize", TEXT, &o.quantize, 0, 0},
	    {"--kv-type", TEXT, &o.kv_type, 0, 0},
	    {"--backend", TEXT, &o.backend, 0, 0},
	    {"--tokens", U32, &o.n_tokens, 1, UINT32_MAX},
	    {"--threads", U32, &o.n_threads, 0, 1024},
	    {"--seed", U64, &o.seed, 0, 0},
	    {"--temperature", REAL, &o.temperature, 0, 2},
	    {"--top-p", ABOVE, &m->top_p, 0, 1},
	    {"--min-p", REAL, &m->min_p, 0, 1},
	    {"--typical", ABOVE, &m->typical_p, 0, 1},
	    {"--repetition-penalty", ABOVE, &m->repetition_penalty, 0, 2},
	    {"--presence-penalty", REAL, &m->presence_penalty, -2, 2},
	    {"--frequency-penalty", REAL, &m->frequency_penalty, -2, 2},
	    {"--length-penalty", REAL, &m->length_penalty, -8, 8},
	    {"--top-k", U32, &m->top_k, 0, UINT32_MAX},
	    {"--min-tokens", U32, &m->min_tokens, 0, UINT32_MAX},
	    {"--prompt-logprobs", U8, &prompt_logprobs, 0, PROTO_MAX_TOP_LOGPROBS},
	    {"--n", U8, &m->n, 1, PROTO_MAX_CHOICES},
	    {"--best-of", U8, &m->best_of, 1, PROTO_MAX_CHOICES},
	    {"--beam", U8, &m->beam_width, 1, PROTO_MAX_CHOICES},
	    {"--logit-bias", BIAS, NULL, 0, 0},
	    {"--stop", STOP, NULL, 0, 0},
	    {"--stop-id", STOP_ID, NULL, 0, 0},
	};
	*m = (struct proto_submit){PROTO_SUBMIT_OFF, .top_p = 1};
	m->logit_bias = o.sampling.bias;
	for (int i = 3; i < argc && argv[i] != NULL; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		size_t k = 0;
		uint64_t n;
		while (k < sizeof options / sizeof *options && strcmp(options[k].name, name) != 0)
			k++;
		if (k == sizeof options / sizeof *options)
			return model_complain(CMD_EXIT_USAGE, "unknown option %s", name);
		bool flag = options[k].kind == FLAG;
		if ((value == NULL && !flag) || !take(&o.sampling, &options[k], value))
			return model_complain(CMD_EXIT_USAGE, "%s: %s is not possible", name,
					      value != NULL ? value : "nothing");
		/* --logprobs may be followed by a number. */
		bool is_count = options[k].to == &o.logprobs && model_whole(value, 0, PROTO_MAX_TOP_LOGPROBS, &n);
		if (options[k].to == &o.logprobs)
			m->n_top_logprobs = is_count ? (uint8_t)n : 0;
		i += !flag || is_count;
	}
	m->prompt_logprobs = (uint8_t)(prompt_logprobs + 1);
	int rc = check(&o);
	return rc != 0 ? rc : model_generate(&o);
}
