/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol's SUBMIT: a request and its bounds. Nothing of a request is believed before it has
 * passed here; only what the model decides (ids below its vocabulary, its context) is left to the engine.
 */
#include "base/proto/proto_wire.h"

int proto_put_submit(struct sl_buf *out, uint64_t id, const struct proto_submit *m)
{
	if (m->n_stops > PROTO_MAX_STOPS || m->n_stop_ids > PROTO_MAX_STOP_IDS ||
	    m->n_logit_bias > PROTO_MAX_LOGIT_BIAS || m->n_given > PROTO_MAX_GIVEN)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_SUBMIT, id);
	proto_w_u16(&w, m->model);
	proto_w_u8(&w, m->prompt_kind);
	proto_w_u8(&w, m->flags);
	proto_w_u8(&w, m->priority);
	proto_w_u8(&w, m->n_stops);
	proto_w_u64(&w, m->tenant);
	proto_w_u64(&w, m->seed);
	proto_w_f32(&w, m->temperature);
	proto_w_f32(&w, m->top_p);
	proto_w_f32(&w, m->min_p);
	proto_w_f32(&w, m->presence_penalty);
	proto_w_f32(&w, m->frequency_penalty);
	proto_w_u32(&w, m->top_k);
	proto_w_u32(&w, m->max_tokens);
	proto_w_u32(&w, m->deadline_ms);
	proto_w_f32(&w, m->rate_tps);
	proto_w_u32(&w, m->burst);
	proto_w_f32(&w, m->typical_p);
	proto_w_f32(&w, m->repetition_penalty);
	proto_w_f32(&w, m->length_penalty);
	proto_w_u32(&w, m->min_tokens);
	proto_w_u8(&w, m->n_top_logprobs);
	proto_w_u8(&w, m->prompt_logprobs);
	proto_w_u8(&w, m->n);
	proto_w_u8(&w, m->best_of);
	proto_w_u8(&w, m->beam_width);
	proto_w_u8(&w, m->n_stop_ids);
	proto_w_u16(&w, m->n_logit_bias);
	proto_w_u32(&w, m->weight);
	proto_w_u16(&w, m->n_given);
	proto_w_u16(&w, m->n_keep);
	for (int i = 0; i < m->n_stop_ids; i++)
		proto_w_u32(&w, m->stop_ids[i]);
	for (uint16_t i = 0; i < m->n_logit_bias; i++)
		proto_w_pair(&w, proto_bias_at(m, i));
	for (uint16_t i = 0; i < m->n_given; i++)
		proto_w_u32(&w, proto_given_at(m, i));
	for (int i = 0; i < m->n_stops; i++)
		proto_w_str(&w, m->stops[i], PROTO_MAX_STOP_BYTES);
	proto_w_str(&w, m->prompt, PROTO_MAX_PAYLOAD);
	return proto_w_end(&w);
}

/* Written so that a NaN is out of bounds. */
static bool within(float v, float lo, float hi) { return v >= lo && v <= hi; }

/* The first field outside its bound, or NULL. */
static const char *submit_bad_field(const struct proto_submit *m)
{
	static const unsigned all_flags = PROTO_SUBMIT_IGNORE_EOS | PROTO_SUBMIT_SHARED_PREFIX |
					  PROTO_SUBMIT_WANT_LOGPROBS | PROTO_SUBMIT_PREFILL_ONLY;
	if (m->prompt_kind < PROTO_PROMPT_CHAT || m->prompt_kind > PROTO_PROMPT_TOKENS)
		return "prompt_kind";
	if ((m->flags & ~all_flags) != 0)
		return "flags";
	if ((m->flags & PROTO_SUBMIT_PREFILL_ONLY) != 0 &&
	    (m->n != 1 || m->best_of != 1 || m->beam_width != 0 || m->prompt_logprobs != 0))
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
			       (m->flags & PROTO_SUBMIT_PREFILL_ONLY) != 0))
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
	*out = (struct proto_submit){.model = proto_r_u16(&r)};
	out->prompt_kind = proto_r_u8(&r);
	out->flags = proto_r_u8(&r);
	out->priority = proto_r_u8(&r);
	out->n_stops = proto_r_u8(&r);
	out->tenant = proto_r_u64(&r);
	out->seed = proto_r_u64(&r);
	out->temperature = proto_r_f32(&r);
	out->top_p = proto_r_f32(&r);
	out->min_p = proto_r_f32(&r);
	out->presence_penalty = proto_r_f32(&r);
	out->frequency_penalty = proto_r_f32(&r);
	out->top_k = proto_r_u32(&r);
	out->max_tokens = proto_r_u32(&r);
	out->deadline_ms = proto_r_u32(&r);
	out->rate_tps = proto_r_f32(&r);
	out->burst = proto_r_u32(&r);
	out->typical_p = proto_r_f32(&r);
	out->repetition_penalty = proto_r_f32(&r);
	out->length_penalty = proto_r_f32(&r);
	out->min_tokens = proto_r_u32(&r);
	out->n_top_logprobs = proto_r_u8(&r);
	out->prompt_logprobs = proto_r_u8(&r);
	out->n = proto_r_u8(&r);
	out->best_of = proto_r_u8(&r);
	out->beam_width = proto_r_u8(&r);
	out->n_stop_ids = proto_r_u8(&r);
	out->n_logit_bias = proto_r_u16(&r);
	out->weight = proto_r_u32(&r);
	out->n_given = proto_r_u16(&r);
	out->n_keep = proto_r_u16(&r);
	if (out->n_stops > PROTO_MAX_STOPS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_stops");
	if (out->n_stop_ids > PROTO_MAX_STOP_IDS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_stop_ids");
	if (out->n_logit_bias > PROTO_MAX_LOGIT_BIAS)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_logit_bias");
	if (out->n_given > PROTO_MAX_GIVEN)
		return proto_out_of_bounds(err, PROTO_SUBMIT, "n_given");
	for (int i = 0; i < out->n_stop_ids; i++)
		out->stop_ids[i] = proto_r_u32(&r);
	out->logit_bias_records = proto_r_bytes(&r, out->n_logit_bias * (size_t)PROTO_PAIR_BYTES);
	out->given_records = proto_r_bytes(&r, out->n_given * sizeof(uint32_t));
	for (int i = 0; i < out->n_stops; i++) {
		out->stops[i] = proto_r_str(&r, PROTO_MAX_STOP_BYTES);
		if (out->stops[i].n == 0)
			r.bad = true;
	}
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
