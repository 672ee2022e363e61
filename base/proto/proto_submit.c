/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes SUBMIT, a request, and checks its bounds. Requests are untrusted until they pass this check; only
 * limits that depend on the model (token ids, context length) are left to the engine.
 */
#include "base/proto/proto_wire.h"

/* Its scalars, in wire order. Code is generated for each, where other frames use a table: SUBMIT is a request's longest
 * frame and is coded three times. */
#define SCALARS(X)            \
	X(model)              \
	X(prompt_kind)        \
	X(flags)              \
	X(priority)           \
	X(n_stops)            \
	X(tenant)             \
	X(seed)               \
	X(temperature)        \
	X(top_p)              \
	X(min_p)              \
	X(presence_penalty)   \
	X(frequency_penalty)  \
	X(top_k)              \
	X(max_tokens)         \
	X(deadline_ms)        \
	X(rate_tps)           \
	X(burst)              \
	X(typical_p)          \
	X(repetition_penalty) \
	X(length_penalty)     \
	X(min_tokens)         \
	X(n_top_logprobs)     \
	X(prompt_logprobs)    \
	X(n)                  \
	X(best_of)            \
	X(beam_width)         \
	X(n_stop_ids)         \
	X(n_logit_bias)       \
	X(constraint_kind)    \
	X(thinking_tokens)    \
	X(weight)             \
	X(cache_salt)         \
	X(n_bad_words)        \
	X(n_given)            \
	X(n_keep)
#define BYTES_OF(field) +sizeof(((struct proto_submit *)0)->field)
enum { SCALAR_BYTES = 0 SCALARS(BYTES_OF) };
#undef BYTES_OF

static void put_scalars(uint8_t *to, const struct proto_submit *m)
{
	size_t at = 0;
#define PUT(field)                                              \
	proto_copy_scalar(to + at, &m->field, sizeof m->field); \
	at += sizeof m->field;
	SCALARS(PUT)
#undef PUT
}

static void get_scalars(const uint8_t *from, struct proto_submit *out)
{
	size_t at = 0;
#define GET(field)                                                    \
	proto_copy_scalar(&out->field, from + at, sizeof out->field); \
	at += sizeof out->field;
	SCALARS(GET)
#undef GET
}

static void put_given(struct proto_writer *w, const struct proto_submit *m)
{
	for (uint16_t i = 0; i < m->n_given; i++)
		proto_w_u32(w, proto_given_at(m, i));
}

/* The frame again, with other scalars and another draft prefix. */
static void put_frame(struct proto_writer *w, const struct proto_submit *m)
{
	uint8_t scalars[SCALAR_BYTES];
	const char *rest = m->frame.at + PROTO_HEAD_BYTES + SCALAR_BYTES;
	size_t ids = 4 * (size_t)m->n_stop_ids + PROTO_PAIR_BYTES * (size_t)m->n_logit_bias;
	put_scalars(scalars, m);
	proto_w_bytes(w, scalars, SCALAR_BYTES);
	proto_w_bytes(w, rest, ids);
	put_given(w, m);
	proto_w_bytes(w, rest + ids, m->frame.n - PROTO_HEAD_BYTES - SCALAR_BYTES - ids);
}

int proto_put_submit(struct sl_buf *out, uint64_t id, const struct proto_submit *m)
{
	if (m->n_stops > PROTO_MAX_STOPS || m->n_stop_ids > PROTO_MAX_STOP_IDS ||
	    m->n_logit_bias > PROTO_MAX_LOGIT_BIAS || m->n_given > PROTO_MAX_GIVEN ||
	    m->n_bad_words > PROTO_MAX_BAD_WORDS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_SUBMIT, id);
	uint8_t scalars[SCALAR_BYTES];
	if (m->frame.n > 0) {
		put_frame(&w, m);
		return proto_w_end(&w);
	}
	put_scalars(scalars, m);
	proto_w_bytes(&w, scalars, SCALAR_BYTES);
	for (int i = 0; i < m->n_stop_ids; i++)
		proto_w_u32(&w, m->stop_ids[i]);
	for (uint16_t i = 0; i < m->n_logit_bias; i++)
		proto_w_pair(&w, proto_bias_at(m, i));
	put_given(&w, m);
	for (int i = 0; i < m->n_stops; i++)
		proto_w_str(&w, m->stops[i], PROTO_MAX_STOP_BYTES);
	proto_w_str(&w, m->constraint, PROTO_MAX_CONSTRAINT);
	for (int i = 0; i < m->n_bad_words; i++)
		proto_w_str(&w, proto_bad_word_at(m, i), PROTO_MAX_STOP_BYTES);
	proto_w_str(&w, m->prompt, PROTO_MAX_PAYLOAD);
	return proto_w_end(&w);
}

/* Written so that a NaN is out of bounds. */
static bool within(float v, float lo, float hi) { return v >= lo && v <= hi; }

/* The first field outside its bound, or NULL. */
static const char *submit_bad_field(const struct proto_submit *m)
{
	static const unsigned all_flags = PROTO_SUBMIT_IGNORE_EOS | PROTO_SUBMIT_SHARED_PREFIX |
					  PROTO_SUBMIT_WANT_LOGPROBS | PROTO_SUBMIT_PREFILL_ONLY |
					  PROTO_SUBMIT_INCLUDE_STOP | PROTO_SUBMIT_ONLY_BIASED | PROTO_SUBMIT_EMBED |
					  PROTO_SUBMIT_WANT_IDS,
			      no_token = PROTO_SUBMIT_PREFILL_ONLY | PROTO_SUBMIT_EMBED;
	if (m->prompt_kind < PROTO_PROMPT_CHAT || m->prompt_kind > PROTO_PROMPT_LAST)
		return "prompt_kind";
	if ((m->flags & ~all_flags) != 0)
		return "flags";
	if ((m->flags & no_token) == no_token)
		return "flags";
	if (m->prompt_kind >= PROTO_PROMPT_INPUT && (m->flags & PROTO_SUBMIT_EMBED) == 0)
		return "prompt_kind";
	if ((m->flags & no_token) != 0 &&
	    (m->n != 1 || m->best_of != 1 || m->beam_width != 0 || m->prompt_logprobs != 0))
		return "flags";
	if ((m->flags & PROTO_SUBMIT_ONLY_BIASED) != 0 && m->n_logit_bias == 0)
		return "flags";
	if (!within(m->temperature, 0, 2))
		return "temperature";
	if (!within(m->top_p, 0, 1) || m->top_p == 0)
		return "top_p";
	if (!within(m->min_p, 0, 1))
		return "min_p";
	if (!within(m->typical_p, 0, 1) || m->typical_p == 0)
		return "typical_p";
	if (!within(m->presence_penalty, -2, 2))
		return "presence_penalty";
	if (!within(m->frequency_penalty, -2, 2))
		return "frequency_penalty";
	if (!within(m->repetition_penalty, 0, 2) || m->repetition_penalty == 0)
		return "repetition_penalty";
	if (!within(m->length_penalty, -8, 8))
		return "length_penalty";
	if (m->max_tokens == 0)
		return "max_tokens";
	if (m->min_tokens > (uint64_t)m->max_tokens + m->n_given)
		return "min_tokens";
	if (m->n_given > 0 && (m->n != 1 || m->best_of != 1 || m->beam_width != 0 || m->prompt_logprobs != 0 ||
			       (m->flags & no_token) != 0))
		return "n_given";
	if (m->n_keep > m->n_given)
		return "n_keep";
	if (!within(m->rate_tps, 0, 1e6f))
		return "rate_tps";
	if (m->n_top_logprobs > PROTO_MAX_TOP_LOGPROBS ||
	    (m->n_top_logprobs > 0 && (m->flags & PROTO_SUBMIT_WANT_LOGPROBS) == 0))
		return "n_top_logprobs";
	if (m->prompt_logprobs > 1 + PROTO_MAX_TOP_LOGPROBS)
		return "prompt_logprobs";
	if (m->n == 0 || m->n > PROTO_MAX_CHOICES)
		return "n";
	if (m->best_of < m->n || m->best_of > PROTO_MAX_CHOICES)
		return "best_of";
	if (m->beam_width > PROTO_MAX_CHOICES || (m->beam_width > 0 && m->beam_width < m->n))
		return "beam_width";
	if (m->weight == 0 || m->weight > PROTO_MAX_WEIGHT)
		return "weight";
	if (m->constraint_kind >= PROTO_CONSTRAINT_KINDS)
		return "constraint_kind";
	bool has_text =
	    m->constraint_kind != PROTO_CONSTRAINT_NONE && m->constraint_kind != PROTO_CONSTRAINT_JSON_OBJECT;
	if ((m->constraint.n > 0) != has_text)
		return "constraint";
	for (uint16_t i = 0; i < m->n_logit_bias; i++) {
		if (!within(proto_bias_at(m, i).v, -100, 100))
			return "logit_bias";
	}
	if (m->prompt_kind == PROTO_PROMPT_TOKENS && m->prompt.n % 4 != 0)
		return "prompt";
	return NULL;
}

int proto_get_submit(const uint8_t *p, size_t n, struct proto_submit *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	*out = (struct proto_submit){0};
	const uint8_t *scalars = proto_r_bytes(&r, SCALAR_BYTES);
	if (scalars != NULL)
		get_scalars(scalars, out);
	if (out->n_stops > PROTO_MAX_STOPS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_stops");
	if (out->n_stop_ids > PROTO_MAX_STOP_IDS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_stop_ids");
	if (out->n_logit_bias > PROTO_MAX_LOGIT_BIAS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_logit_bias");
	if (out->n_given > PROTO_MAX_GIVEN)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_given");
	if (out->n_bad_words > PROTO_MAX_BAD_WORDS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_bad_words");
	for (int i = 0; i < out->n_stop_ids; i++)
		out->stop_ids[i] = proto_r_u32(&r);
	out->logit_bias_records = proto_r_bytes(&r, out->n_logit_bias * (size_t)PROTO_PAIR_BYTES);
	out->given_records = proto_r_bytes(&r, out->n_given * sizeof(uint32_t));
	for (int i = 0; i < out->n_stops; i++) {
		out->stops[i] = proto_r_str(&r, PROTO_MAX_STOP_BYTES);
		if (out->stops[i].n == 0)
			r.bad = true;
	}
	out->constraint = proto_r_str(&r, PROTO_MAX_CONSTRAINT);
	const uint8_t *words = r.p;
	for (int i = 0; i < out->n_bad_words; i++) {
		if (proto_r_str(&r, PROTO_MAX_STOP_BYTES).n == 0)
			r.bad = true;
	}
	out->bad_word_records = (struct proto_str){(const char *)words, (size_t)(r.p - words)};
	out->prompt = proto_r_str(&r, PROTO_MAX_PAYLOAD);
	int rc = proto_r_end(&r, PROTO_SUBMIT, err);
	if (rc != 0)
		return rc;

	const char *field = submit_bad_field(out);
	return field ? proto_out_of_bounds(err, PROTO_SUBMIT, field) : 0;
}

struct proto_id_f32 proto_bias_at(const struct proto_submit *m, uint16_t i)
{
	return m->logit_bias != NULL ? m->logit_bias[i]
				     : proto_pair_at(m->logit_bias_records + (size_t)i * PROTO_PAIR_BYTES);
}

uint32_t proto_given_at(const struct proto_submit *m, uint16_t i)
{
	struct proto_reader r = {.p = m->given_records, .left = (size_t)m->n_given * sizeof(uint32_t)};
	if (m->given != NULL)
		return m->given[i];
	proto_r_bytes(&r, (size_t)i * sizeof(uint32_t));
	return proto_r_u32(&r);
}

struct proto_str proto_bad_word_at(const struct proto_submit *m, int i)
{
	struct proto_reader r = {.p = (const uint8_t *)m->bad_word_records.at, .left = m->bad_word_records.n};
	if (m->bad_words != NULL)
		return m->bad_words[i];
	for (int k = 0; k < i; k++)
		proto_r_str(&r, PROTO_MAX_STOP_BYTES);
	return proto_r_str(&r, PROTO_MAX_STOP_BYTES);
}
