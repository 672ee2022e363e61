/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `sluice model`. Sampling options fill the request that every line of a batch starts from. Their bounds
 * are those of base/proto/proto.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "kernels/kernels.h"
#include "kernels/kv_type.h"

/* text: all of it is a number in [lo, hi], or NULL. */
static bool read_number(const char *text, double lo, double hi, double *out)
{
	char *end;
	if (text == NULL)
		return false;
	errno = 0;
	*out = strtod(text, &end);
	return errno == 0 && end != text && *end == '\0' && *out >= lo && *out <= hi;
}

static bool read_whole(const char *text, uint64_t lo, uint64_t hi, uint64_t *out)
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
	if (!read_whole(id, 0, INT32_MAX, &n) || !read_number(eq + 1, -100, 100, &b))
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
	if (s->req.n_stop_ids == PROTO_MAX_STOP_IDS || !read_whole(value, 0, INT32_MAX, &n))
		return false;
	s->req.stop_ids[s->req.n_stop_ids++] = (uint32_t)n;
	return true;
}

/* ---- the table ---- */

/* value: not NULL. */
static bool take_value(const struct model_option *o, const char *value)
{
	double x;
	uint64_t n;
	switch (o->kind) {
	case OPTION_FLAG:
	case OPTION_COUNT: break;
	case OPTION_TEXT: *(const char **)o->to = value; return true;
	case OPTION_REAL:
	case OPTION_ABOVE:
		if (!read_number(value, o->lo, o->hi, &x) || (o->kind == OPTION_ABOVE && !((float)x > (float)o->lo)))
			return false;
		*(float *)o->to = (float)x;
		return true;
	case OPTION_U8:
	case OPTION_U32:
		if (!read_whole(value, (uint64_t)o->lo, (uint64_t)o->hi, &n))
			return false;
		if (o->kind == OPTION_U8)
			*(uint8_t *)o->to = (uint8_t)n;
		else
			*(uint32_t *)o->to = (uint32_t)n;
		return true;
	case OPTION_U64: return read_whole(value, 0, UINT64_MAX, o->to);
	case OPTION_BIAS: return take_bias(o->to, value);
	case OPTION_STOP: return take_stop(o->to, value);
	case OPTION_STOP_ID: return take_stop_id(o->to, value);
	}
	return false;
}

/* Returns how many of the following arguments the option consumes; -1: invalid value. */
static int take(const struct model_option *o, const char *value)
{
	uint64_t n = 0;
	if (o->kind != OPTION_FLAG && o->kind != OPTION_COUNT)
		return value != NULL && take_value(o, value) ? 1 : -1;
	*(bool *)o->to = true;
	bool is_count = o->kind == OPTION_COUNT && read_whole(value, (uint64_t)o->lo, (uint64_t)o->hi, &n);
	if (o->kind == OPTION_COUNT)
		*o->count = (uint8_t)n;
	return is_count;
}

int model_options(const struct model_option *options, size_t n, int argc, char **argv, int from, const char **files,
		  int n_files)
{
	int at = 0;
	for (int i = from; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		size_t k = 0;
		while (k < n && strcmp(options[k].name, name) != 0)
			k++;
		if (k == n && (name[0] == '-' || at == n_files))
			return model_complain(CMD_EXIT_USAGE, "%s: unexpected argument %s", argv[1], name);
		if (k == n) {
			files[at++] = name;
			continue;
		}
		int used = take(&options[k], value);
		if (used < 0)
			return model_complain(CMD_EXIT_USAGE, "%s: invalid value %s", name,
					      value != NULL ? value : "(none)");
		i += used;
	}
	return 0;
}

static int check(struct generate_options *o)
{
	struct proto_submit *m = &o->sampling.req;
	if (!o->batch && o->prompt == NULL)
		return model_complain(CMD_EXIT_USAGE, "generate needs --prompt or --batch");
	if (o->quantize != NULL && kn_type_from_name(o->quantize) < 0)
		return model_complain(CMD_EXIT_USAGE, "--quantize: no type is named %s", o->quantize);
	if (o->kv_type != NULL && strcmp(o->kv_type, "auto") != 0 && kn_kv_type_from_name(o->kv_type) < 0)
		return model_complain(CMD_EXIT_USAGE, "--kv-type: no KV cache type is named %s", o->kv_type);
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
	uint8_t prompt_logprobs = UINT8_MAX; /* not requested; the protocol adds 1 */
	const struct model_option options[] = {
	    {"--raw", OPTION_FLAG, &o.raw, 0, 0, NULL},
	    {"--ids", OPTION_FLAG, &o.json, 0, 0, NULL},
	    {"--json", OPTION_FLAG, &o.json, 0, 0, NULL},
	    {"--batch", OPTION_FLAG, &o.batch, 0, 0, NULL},
	    {"--logprobs", OPTION_COUNT, &o.logprobs, 0, PROTO_MAX_TOP_LOGPROBS, &m->n_top_logprobs},
	    {"--prompt", OPTION_TEXT, &o.prompt, 0, 0, NULL},
	    {"--system", OPTION_TEXT, &o.system, 0, 0, NULL},
	    {"--quantize", OPTION_TEXT, &o.quantize, 0, 0, NULL},
	    {"--adapter", OPTION_TEXT, &o.adapter, 0, 0, NULL},
	    {"--kv-type", OPTION_TEXT, &o.kv_type, 0, 0, NULL},
	    {"--backend", OPTION_TEXT, &o.backend, 0, 0, NULL},
	    {"--tokens", OPTION_U32, &o.n_tokens, 1, UINT32_MAX, NULL},
	    {"--threads", OPTION_U32, &o.n_threads, 0, 1024, NULL},
	    {"--seed", OPTION_U64, &o.seed, 0, 0, NULL},
	    {"--temperature", OPTION_REAL, &o.temperature, 0, 2, NULL},
	    {"--top-p", OPTION_ABOVE, &m->top_p, 0, 1, NULL},
	    {"--min-p", OPTION_REAL, &m->min_p, 0, 1, NULL},
	    {"--typical", OPTION_ABOVE, &m->typical_p, 0, 1, NULL},
	    {"--repetition-penalty", OPTION_ABOVE, &m->repetition_penalty, 0, 2, NULL},
	    {"--presence-penalty", OPTION_REAL, &m->presence_penalty, -2, 2, NULL},
	    {"--frequency-penalty", OPTION_REAL, &m->frequency_penalty, -2, 2, NULL},
	    {"--length-penalty", OPTION_REAL, &m->length_penalty, -8, 8, NULL},
	    {"--top-k", OPTION_U32, &m->top_k, 0, UINT32_MAX, NULL},
	    {"--min-tokens", OPTION_U32, &m->min_tokens, 0, UINT32_MAX, NULL},
	    {"--prompt-logprobs", OPTION_U8, &prompt_logprobs, 0, PROTO_MAX_TOP_LOGPROBS, NULL},
	    {"--n", OPTION_U8, &m->n, 1, PROTO_MAX_CHOICES, NULL},
	    {"--best-of", OPTION_U8, &m->best_of, 1, PROTO_MAX_CHOICES, NULL},
	    {"--beam", OPTION_U8, &m->beam_width, 1, PROTO_MAX_CHOICES, NULL},
	    {"--logit-bias", OPTION_BIAS, &o.sampling, 0, 0, NULL},
	    {"--stop", OPTION_STOP, &o.sampling, 0, 0, NULL},
	    {"--stop-id", OPTION_STOP_ID, &o.sampling, 0, 0, NULL},
	};
	*m = (struct proto_submit){PROTO_SUBMIT_OFF, .top_p = 1};
	m->logit_bias = o.sampling.bias;
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 3, NULL, 0);
	m->prompt_logprobs = (uint8_t)(prompt_logprobs + 1);
	if (rc == 0)
		rc = check(&o);
	return rc != 0 ? rc : model_generate(&o);
}
