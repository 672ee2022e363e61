/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding of the engine protocol. A payload is written and read field by field in the
 * order of its struct, so that no padding and no compiler's layout ever crosses. The reader keeps
 * one sticky failure: a decoder reads everything, then asks once.
 */
#include "base/proto.h"

#include <string.h>

/* ---- writing ---- */

struct writer {
	struct sl_buf *out;
	size_t start; /* length of out before the frame */
	int rc;
};

static void w_bytes(struct writer *w, const void *p, size_t n)
{
	if (w->rc == 0)
		w->rc = buf_append(w->out, p, n);
}

static void w_uint(struct writer *w, uint64_t v, int n_bytes)
{
	uint8_t b[8];
	for (int i = 0; i < n_bytes; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	w_bytes(w, b, (size_t)n_bytes);
}

static void w_u8(struct writer *w, uint8_t v) { w_uint(w, v, 1); }
static void w_u16(struct writer *w, uint16_t v) { w_uint(w, v, 2); }
static void w_u32(struct writer *w, uint32_t v) { w_uint(w, v, 4); }
static void w_u64(struct writer *w, uint64_t v) { w_uint(w, v, 8); }

static void w_f32(struct writer *w, float f)
{
	uint32_t v;
	memcpy(&v, &f, sizeof v);
	w_u32(w, v);
}

static void w_str(struct writer *w, struct proto_str s, size_t max)
{
	if (s.n > max) {
		w->rc = w->rc ? w->rc : SL_EINVAL;
		return;
	}
	w_u32(w, (uint32_t)s.n);
	w_bytes(w, s.at, s.n);
}

static void w_pair(struct writer *w, struct proto_id_f32 v)
{
	w_u32(w, v.id);
	w_f32(w, v.v);
}

static struct writer w_begin(struct sl_buf *out, uint8_t type, uint64_t id)
{
	struct writer w = {.out = out, .start = out->len};
	w_u32(&w, 0); /* patched by w_end */
	w_u8(&w, type);
	w_u8(&w, PROTO_VERSION);
	w_u16(&w, 0);
	w_u64(&w, id);
	return w;
}

/* Patches the length, or takes the whole frame back on failure. */
static int w_end(struct writer *w)
{
	if (w->rc == 0) {
		uint8_t *head = buf_data(w->out) + w->start;
		size_t n = w->out->len - w->start - PROTO_HEAD_BYTES;
		if (n > proto_type_max(head[4])) {
			w->rc = SL_EINVAL;
		} else {
			for (int i = 0; i < 4; i++)
				head[i] = (uint8_t)(n >> (8 * i));
			return 0;
		}
	}
	w->out->len = w->start;
	return w->rc;
}

/* ---- reading ---- */

struct reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static const uint8_t *r_bytes(struct reader *r, size_t n)
{
	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	const uint8_t *at = r->p;
	r->p += n;
	r->left -= n;
	return at;
}

static uint64_t r_uint(struct reader *r, int n_bytes)
{
	const uint8_t *b = r_bytes(r, (size_t)n_bytes);
	uint64_t v = 0;
	for (int i = 0; b != NULL && i < n_bytes; i++)
		v |= (uint64_t)b[i] << (8 * i);
	return v;
}

static uint8_t r_u8(struct reader *r) { return (uint8_t)r_uint(r, 1); }
static uint16_t r_u16(struct reader *r) { return (uint16_t)r_uint(r, 2); }
static uint32_t r_u32(struct reader *r) { return (uint32_t)r_uint(r, 4); }
static uint64_t r_u64(struct reader *r) { return r_uint(r, 8); }

static float r_f32(struct reader *r)
{
	uint32_t v = r_u32(r);
	float f;
	memcpy(&f, &v, sizeof f);
	return f;
}

static struct proto_str r_str(struct reader *r, size_t max)
{
	size_t n = r_u32(r);
	if (n > max)
		r->bad = true;
	const uint8_t *at = r_bytes(r, n);
	return (struct proto_str){.at = at ? (const char *)at : "", .n = at ? n : 0};
}

static struct proto_id_f32 pair_at(const uint8_t *at)
{
	struct reader r = {.p = at, .left = 8};
	struct proto_id_f32 v = {.id = r_u32(&r)};
	v.v = r_f32(&r);
	return v;
}

static int r_end(const struct reader *r, uint8_t type, struct sl_err *err)
{
	if (r->bad)
		return sl_errf(err, SL_EPROTO, "%s frame: truncated or a length out of bounds",
			       proto_type_name(type));
	if (r->left != 0)
		return sl_errf(err, SL_EPROTO, "%s frame: %zu bytes too many",
			       proto_type_name(type), r->left);
	return 0;
}

static int out_of_bounds(struct sl_err *err, uint8_t type, const char *field)
{
	return sl_errf(err, SL_EPROTO, "%s frame: %s out of bounds", proto_type_name(type), field);
}

/* ---- types ---- */

/* Records of one frame are all of one size. */
#define PAIR_BYTES 8u
#define TOKEN_BYTES(n_top) (12u + PAIR_BYTES * (n_top))
#define PROMPT_TOKEN_BYTES(n_top) (PAIR_BYTES * (1u + (n_top)))

uint32_t proto_type_max(uint8_t type)
{
	switch (type) {
	case PROTO_SUBMIT:
	case PROTO_COUNT: return PROTO_MAX_PAYLOAD;
	case PROTO_TOKENS:
		return 16 + PROTO_MAX_TOKENS_PER_FRAME * TOKEN_BYTES(PROTO_MAX_TOP_LOGPROBS) +
		       PROTO_MAX_TEXT_PER_FRAME;
	case PROTO_PROMPT_LOGPROBS:
		return 16 + PROTO_MAX_TOKENS_PER_FRAME * PROMPT_TOKEN_BYTES(PROTO_MAX_TOP_LOGPROBS);
	case PROTO_HELLO:
	case PROTO_CREDIT:
	case PROTO_CANCEL:
	case PROTO_PING:
	case PROTO_MODEL:
	case PROTO_QUEUED:
	case PROTO_DONE:
	case PROTO_COUNTED:
	case PROTO_STATS:
	case PROTO_PONG:
	case PROTO_BYE:
	case PROTO_CHOICE: return 4096;
	default: return 0;
	}
}

const char *proto_type_name(uint8_t type)
{
	static const char *const to_engine[] = {"?", "HELLO", "SUBMIT", "CREDIT", "CANCEL", "COUNT", "PING"};
	static const char *const to_gateway[] = {"MODEL", "QUEUED", "TOKENS", "DONE", "COUNTED", "STATS",
						 "PONG", "BYE", "PROMPT_LOGPROBS", "CHOICE"};
	if (type <= PROTO_PING)
		return to_engine[type];
	if (type >= PROTO_MODEL && type <= PROTO_CHOICE)
		return to_gateway[type - PROTO_MODEL];
	return "?";
}

int proto_head_read(const uint8_t *bytes, struct proto_head *out, struct sl_err *err)
{
	struct reader r = {.p = bytes, .left = PROTO_HEAD_BYTES};
	out->length = r_u32(&r);
	out->type = r_u8(&r);
	out->version = r_u8(&r);
	uint16_t zero = r_u16(&r);
	out->id = r_u64(&r);
	if (out->version != PROTO_VERSION)
		return sl_errf(err, SL_EPROTO, "the peer speaks protocol version %u, this is %u",
			       out->version, PROTO_VERSION);
	uint32_t max = proto_type_max(out->type);
	if (max == 0 || zero != 0)
		return sl_errf(err, SL_EPROTO, "unknown frame type %u", out->type);
	if (out->length > max)
		return sl_errf(err, SL_EPROTO, "%s frame of %u bytes, the most is %u",
			       proto_type_name(out->type), out->length, max);
	return 0;
}

/* ---- one pair a type ---- */

int proto_put_hello(struct sl_buf *out, const struct proto_hello *m)
{
	struct writer w = w_begin(out, PROTO_HELLO, 0);
	w_u16(&w, m->version);
	w_u64(&w, m->epoch);
	w_u16(&w, m->n_models);
	w_str(&w, m->name, PROTO_MAX_NAME);
	return w_end(&w);
}

int proto_get_hello(const uint8_t *p, size_t n, struct proto_hello *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->version = r_u16(&r);
	out->epoch = r_u64(&r);
	out->n_models = r_u16(&r);
	out->name = r_str(&r, PROTO_MAX_NAME);
	if (out->n_models > PROTO_MAX_MODELS)
		return out_of_bounds(err, PROTO_HELLO, "n_models");
	return r_end(&r, PROTO_HELLO, err);
}

int proto_put_submit(struct sl_buf *out, uint64_t id, const struct proto_submit *m)
{
	if (m->n_stops > PROTO_MAX_STOPS || m->n_stop_ids > PROTO_MAX_STOP_IDS ||
	    m->n_logit_bias > PROTO_MAX_LOGIT_BIAS)
		return SL_EINVAL;
	struct writer w = w_begin(out, PROTO_SUBMIT, id);
	w_u16(&w, m->model);
	w_u8(&w, m->prompt_kind);
	w_u8(&w, m->flags);
	w_u8(&w, m->priority);
	w_u8(&w, m->n_stops);
	w_u64(&w, m->tenant);
	w_u64(&w, m->seed);
	w_f32(&w, m->temperature);
	w_f32(&w, m->top_p);
	w_f32(&w, m->min_p);
	w_f32(&w, m->presence_penalty);
	w_f32(&w, m->frequency_penalty);
	w_u32(&w, m->top_k);
	w_u32(&w, m->max_tokens);
	w_u32(&w, m->deadline_ms);
	w_f32(&w, m->rate_tps);
	w_u32(&w, m->burst);
	w_f32(&w, m->typical_p);
	w_f32(&w, m->repetition_penalty);
	w_f32(&w, m->length_penalty);
	w_u32(&w, m->min_tokens);
	w_u8(&w, m->n_top_logprobs);
	w_u8(&w, m->prompt_logprobs);
	w_u8(&w, m->n);
	w_u8(&w, m->best_of);
	w_u8(&w, m->beam_width);
	w_u8(&w, m->n_stop_ids);
	w_u16(&w, m->n_logit_bias);
	w_u32(&w, m->weight);
	for (int i = 0; i < m->n_stop_ids; i++)
		w_u32(&w, m->stop_ids[i]);
	for (uint16_t i = 0; i < m->n_logit_bias; i++)
		w_pair(&w, proto_bias_at(m, i));
	for (int i = 0; i < m->n_stops; i++)
		w_str(&w, m->stops[i], PROTO_MAX_STOP_BYTES);
	w_str(&w, m->prompt, PROTO_MAX_PAYLOAD);
	return w_end(&w);
}

/* Written so that a NaN is out of bounds. */
static bool within(float v, float lo, float hi)
{
	return v >= lo && v <= hi;
}

/* The first field outside its bound, or NULL. */
static const char *submit_bad_field(const struct proto_submit *m)
{
	static const unsigned all_flags = PROTO_SUBMIT_IGNORE_EOS | PROTO_SUBMIT_SHARED_PREFIX |
					  PROTO_SUBMIT_WANT_LOGPROBS;
	if (m->prompt_kind < PROTO_PROMPT_CHAT || m->prompt_kind > PROTO_PROMPT_TOKENS)
		return "prompt_kind";
	if ((m->flags & ~all_flags) != 0)
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
	if (m->min_tokens > m->max_tokens)
		return "min_tokens";
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
	struct reader r = {.p = p, .left = n};
	*out = (struct proto_submit){.model = r_u16(&r)};
	out->prompt_kind = r_u8(&r);
	out->flags = r_u8(&r);
	out->priority = r_u8(&r);
	out->n_stops = r_u8(&r);
	out->tenant = r_u64(&r);
	out->seed = r_u64(&r);
	out->temperature = r_f32(&r);
	out->top_p = r_f32(&r);
	out->min_p = r_f32(&r);
	out->presence_penalty = r_f32(&r);
	out->frequency_penalty = r_f32(&r);
	out->top_k = r_u32(&r);
	out->max_tokens = r_u32(&r);
	out->deadline_ms = r_u32(&r);
	out->rate_tps = r_f32(&r);
	out->burst = r_u32(&r);
	out->typical_p = r_f32(&r);
	out->repetition_penalty = r_f32(&r);
	out->length_penalty = r_f32(&r);
	out->min_tokens = r_u32(&r);
	out->n_top_logprobs = r_u8(&r);
	out->prompt_logprobs = r_u8(&r);
	out->n = r_u8(&r);
	out->best_of = r_u8(&r);
	out->beam_width = r_u8(&r);
	out->n_stop_ids = r_u8(&r);
	out->n_logit_bias = r_u16(&r);
	out->weight = r_u32(&r);
	if (out->n_stops > PROTO_MAX_STOPS)
		return out_of_bounds(err, PROTO_SUBMIT, "n_stops");
	if (out->n_stop_ids > PROTO_MAX_STOP_IDS)
		return out_of_bounds(err, PROTO_SUBMIT, "n_stop_ids");
	if (out->n_logit_bias > PROTO_MAX_LOGIT_BIAS)
		return out_of_bounds(err, PROTO_SUBMIT, "n_logit_bias");
	for (int i = 0; i < out->n_stop_ids; i++)
		out->stop_ids[i] = r_u32(&r);
	out->logit_bias_records = r_bytes(&r, out->n_logit_bias * (size_t)PAIR_BYTES);
	for (int i = 0; i < out->n_stops; i++) {
		out->stops[i] = r_str(&r, PROTO_MAX_STOP_BYTES);
		if (out->stops[i].n == 0)
			r.bad = true;
	}
	out->prompt = r_str(&r, PROTO_MAX_PAYLOAD);
	int rc = r_end(&r, PROTO_SUBMIT, err);
	if (rc != 0)
		return rc;

	const char *field = submit_bad_field(out);
	return field ? out_of_bounds(err, PROTO_SUBMIT, field) : 0;
}

struct proto_id_f32 proto_bias_at(const struct proto_submit *m, uint16_t i)
{
	return m->logit_bias != NULL ? m->logit_bias[i]
				     : pair_at(m->logit_bias_records + (size_t)i * PAIR_BYTES);
}

int proto_put_credit(struct sl_buf *out, uint64_t id, const struct proto_credit *m)
{
	struct writer w = w_begin(out, PROTO_CREDIT, id);
	w_u32(&w, m->n_tokens);
	return w_end(&w);
}

int proto_get_credit(const uint8_t *p, size_t n, struct proto_credit *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->n_tokens = r_u32(&r);
	return r_end(&r, PROTO_CREDIT, err);
}

static int put_empty(struct sl_buf *out, uint8_t type, uint64_t id)
{
	struct writer w = w_begin(out, type, id);
	return w_end(&w);
}

int proto_put_cancel(struct sl_buf *out, uint64_t id) { return put_empty(out, PROTO_CANCEL, id); }
int proto_put_ping(struct sl_buf *out, uint64_t nonce) { return put_empty(out, PROTO_PING, nonce); }
int proto_put_pong(struct sl_buf *out, uint64_t nonce) { return put_empty(out, PROTO_PONG, nonce); }

int proto_put_count(struct sl_buf *out, uint64_t id, const struct proto_count *m)
{
	struct writer w = w_begin(out, PROTO_COUNT, id);
	w_u16(&w, m->model);
	w_u8(&w, m->prompt_kind);
	w_str(&w, m->prompt, PROTO_MAX_PAYLOAD);
	return w_end(&w);
}

int proto_get_count(const uint8_t *p, size_t n, struct proto_count *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->model = r_u16(&r);
	out->prompt_kind = r_u8(&r);
	out->prompt = r_str(&r, PROTO_MAX_PAYLOAD);
	if (out->prompt_kind < PROTO_PROMPT_CHAT || out->prompt_kind > PROTO_PROMPT_TOKENS)
		return out_of_bounds(err, PROTO_COUNT, "prompt_kind");
	return r_end(&r, PROTO_COUNT, err);
}

int proto_put_model(struct sl_buf *out, const struct proto_model *m)
{
	struct writer w = w_begin(out, PROTO_MODEL, 0);
	w_u16(&w, m->index);
	w_u8(&w, m->state);
	w_u8(&w, m->role);
	w_u32(&w, m->n_ctx);
	w_u32(&w, m->n_vocab);
	w_u64(&w, m->n_params);
	w_str(&w, m->name, PROTO_MAX_NAME);
	w_str(&w, m->reason, PROTO_MAX_MESSAGE);
	return w_end(&w);
}

int proto_get_model(const uint8_t *p, size_t n, struct proto_model *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->index = r_u16(&r);
	out->state = r_u8(&r);
	out->role = r_u8(&r);
	out->n_ctx = r_u32(&r);
	out->n_vocab = r_u32(&r);
	out->n_params = r_u64(&r);
	out->name = r_str(&r, PROTO_MAX_NAME);
	out->reason = r_str(&r, PROTO_MAX_MESSAGE);
	if (out->index >= PROTO_MAX_MODELS || out->state > PROTO_MODEL_FAILED || out->role > 2)
		return out_of_bounds(err, PROTO_MODEL, "index, state or role");
	return r_end(&r, PROTO_MODEL, err);
}

int proto_put_queued(struct sl_buf *out, uint64_t id, const struct proto_queued *m)
{
	struct writer w = w_begin(out, PROTO_QUEUED, id);
	w_u32(&w, m->n_prompt);
	w_u32(&w, m->n_cached);
	w_u8(&w, m->miss_reason);
	w_u32(&w, m->position);
	w_u32(&w, m->predicted_ttft_us);
	return w_end(&w);
}

int proto_get_queued(const uint8_t *p, size_t n, struct proto_queued *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->n_prompt = r_u32(&r);
	out->n_cached = r_u32(&r);
	out->miss_reason = r_u8(&r);
	out->position = r_u32(&r);
	out->predicted_ttft_us = r_u32(&r);
	if (out->miss_reason > PROTO_MISS_SHORT)
		return out_of_bounds(err, PROTO_QUEUED, "miss_reason");
	return r_end(&r, PROTO_QUEUED, err);
}

int proto_put_tokens(struct sl_buf *out, uint64_t id, const struct proto_tokens *m)
{
	if (m->n == 0 || m->n > PROTO_MAX_TOKENS_PER_FRAME || m->choice >= PROTO_MAX_CHOICES ||
	    m->n_top > PROTO_MAX_TOP_LOGPROBS)
		return SL_EINVAL;
	struct writer w = w_begin(out, PROTO_TOKENS, id);
	w_u16(&w, m->n);
	w_u8(&w, m->choice);
	w_u8(&w, m->n_top);
	for (int i = 0; i < m->n; i++) {
		w_u32(&w, m->tokens[i].id);
		w_f32(&w, m->tokens[i].logprob);
		w_u16(&w, m->tokens[i].n_bytes);
		w_u16(&w, 0);
		for (int k = 0; k < m->n_top; k++)
			w_pair(&w, m->tops[i * m->n_top + k]);
	}
	w_str(&w, m->text, PROTO_MAX_TEXT_PER_FRAME);
	return w_end(&w);
}

int proto_get_tokens(const uint8_t *p, size_t n, struct proto_tokens *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	*out = (struct proto_tokens){.n = r_u16(&r)};
	out->choice = r_u8(&r);
	out->n_top = r_u8(&r);
	if (out->n == 0 || out->n > PROTO_MAX_TOKENS_PER_FRAME)
		return out_of_bounds(err, PROTO_TOKENS, "n");
	if (out->choice >= PROTO_MAX_CHOICES)
		return out_of_bounds(err, PROTO_TOKENS, "choice");
	if (out->n_top > PROTO_MAX_TOP_LOGPROBS)
		return out_of_bounds(err, PROTO_TOKENS, "n_top");
	size_t each = TOKEN_BYTES(out->n_top);
	out->records = r_bytes(&r, out->n * each);
	out->text = r_str(&r, PROTO_MAX_TEXT_PER_FRAME);
	int rc = r_end(&r, PROTO_TOKENS, err);
	if (rc != 0)
		return rc;
	size_t sum = 0;
	for (uint16_t i = 0; i < out->n; i++) {
		const uint8_t *record = out->records + i * each;
		if (record[10] != 0 || record[11] != 0)
			return out_of_bounds(err, PROTO_TOKENS, "padding");
		sum += proto_token_at(out, i).n_bytes;
	}
	return sum == out->text.n ? 0 : out_of_bounds(err, PROTO_TOKENS, "n_bytes");
}

struct proto_token proto_token_at(const struct proto_tokens *m, uint16_t i)
{
	struct reader r = {.p = m->records + i * (size_t)TOKEN_BYTES(m->n_top), .left = 12};
	struct proto_token t = {.id = r_u32(&r)};
	t.logprob = r_f32(&r);
	t.n_bytes = r_u16(&r);
	return t;
}

struct proto_id_f32 proto_top_at(const struct proto_tokens *m, uint16_t i, uint8_t k)
{
	return pair_at(m->records + i * (size_t)TOKEN_BYTES(m->n_top) + TOKEN_BYTES(k));
}

int proto_put_prompt_logprobs(struct sl_buf *out, uint64_t id, const struct proto_prompt_logprobs *m)
{
	if (m->n == 0 || m->n > PROTO_MAX_TOKENS_PER_FRAME || m->n_top > PROTO_MAX_TOP_LOGPROBS)
		return SL_EINVAL;
	struct writer w = w_begin(out, PROTO_PROMPT_LOGPROBS, id);
	w_u32(&w, m->first);
	w_u16(&w, m->n);
	w_u8(&w, m->n_top);
	for (int i = 0; i < m->n * (1 + m->n_top); i++)
		w_pair(&w, m->entries[i]);
	return w_end(&w);
}

int proto_get_prompt_logprobs(const uint8_t *p, size_t n, struct proto_prompt_logprobs *out,
			      struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	*out = (struct proto_prompt_logprobs){.first = r_u32(&r)};
	out->n = r_u16(&r);
	out->n_top = r_u8(&r);
	if (out->n == 0 || out->n > PROTO_MAX_TOKENS_PER_FRAME || out->first > UINT32_MAX - out->n)
		return out_of_bounds(err, PROTO_PROMPT_LOGPROBS, "n");
	if (out->n_top > PROTO_MAX_TOP_LOGPROBS)
		return out_of_bounds(err, PROTO_PROMPT_LOGPROBS, "n_top");
	out->records = r_bytes(&r, out->n * (size_t)PROMPT_TOKEN_BYTES(out->n_top));
	return r_end(&r, PROTO_PROMPT_LOGPROBS, err);
}

struct proto_id_f32 proto_prompt_logprob_at(const struct proto_prompt_logprobs *m, uint16_t i,
					    uint8_t k)
{
	return pair_at(m->records + i * (size_t)PROMPT_TOKEN_BYTES(m->n_top) +
		       k * (size_t)PAIR_BYTES);
}

int proto_put_choice(struct sl_buf *out, uint64_t id, const struct proto_choice *m)
{
	struct writer w = w_begin(out, PROTO_CHOICE, id);
	w_u8(&w, m->choice);
	w_u8(&w, m->finish);
	w_u8(&w, m->length_why);
	w_u32(&w, m->n_completion);
	w_f32(&w, m->cumulative_logprob);
	return w_end(&w);
}

int proto_get_choice(const uint8_t *p, size_t n, struct proto_choice *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->choice = r_u8(&r);
	out->finish = r_u8(&r);
	out->length_why = r_u8(&r);
	out->n_completion = r_u32(&r);
	out->cumulative_logprob = r_f32(&r);
	if (out->choice >= PROTO_MAX_CHOICES)
		return out_of_bounds(err, PROTO_CHOICE, "choice");
	if (out->finish < PROTO_FINISH_STOP || out->finish > PROTO_FINISH_ERROR)
		return out_of_bounds(err, PROTO_CHOICE, "finish");
	return r_end(&r, PROTO_CHOICE, err);
}

int proto_put_done(struct sl_buf *out, uint64_t id, const struct proto_done *m)
{
	struct writer w = w_begin(out, PROTO_DONE, id);
	w_u8(&w, m->finish);
	w_u8(&w, m->error);
	w_u8(&w, m->length_why);
	w_u32(&w, m->n_prompt);
	w_u32(&w, m->n_cached);
	w_u32(&w, m->n_completion);
	w_u32(&w, m->queue_us);
	w_u32(&w, m->prefill_us);
	w_u32(&w, m->decode_us);
	w_str(&w, m->message, PROTO_MAX_MESSAGE);
	return w_end(&w);
}

int proto_get_done(const uint8_t *p, size_t n, struct proto_done *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->finish = r_u8(&r);
	out->error = r_u8(&r);
	out->length_why = r_u8(&r);
	out->n_prompt = r_u32(&r);
	out->n_cached = r_u32(&r);
	out->n_completion = r_u32(&r);
	out->queue_us = r_u32(&r);
	out->prefill_us = r_u32(&r);
	out->decode_us = r_u32(&r);
	out->message = r_str(&r, PROTO_MAX_MESSAGE);
	if (out->finish < PROTO_FINISH_STOP || out->finish > PROTO_FINISH_ERROR)
		return out_of_bounds(err, PROTO_DONE, "finish");
	if (out->error > PROTO_ERR_INTERNAL)
		return out_of_bounds(err, PROTO_DONE, "error");
	return r_end(&r, PROTO_DONE, err);
}

int proto_put_counted(struct sl_buf *out, uint64_t id, const struct proto_counted *m)
{
	struct writer w = w_begin(out, PROTO_COUNTED, id);
	w_u8(&w, m->error);
	w_u32(&w, m->n_tokens);
	w_str(&w, m->message, PROTO_MAX_MESSAGE);
	return w_end(&w);
}

int proto_get_counted(const uint8_t *p, size_t n, struct proto_counted *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->error = r_u8(&r);
	out->n_tokens = r_u32(&r);
	out->message = r_str(&r, PROTO_MAX_MESSAGE);
	if (out->error > PROTO_ERR_INTERNAL)
		return out_of_bounds(err, PROTO_COUNTED, "error");
	return r_end(&r, PROTO_COUNTED, err);
}

int proto_put_stats(struct sl_buf *out, const struct proto_stats *m)
{
	struct writer w = w_begin(out, PROTO_STATS, 0);
	w_u32(&w, m->running);
	w_u32(&w, m->waiting);
	w_u32(&w, m->pages_total);
	w_u32(&w, m->pages_free);
	w_u64(&w, m->steps);
	w_u64(&w, m->prefill_tokens);
	w_u64(&w, m->decode_tokens);
	w_u64(&w, m->submitted);
	w_u64(&w, m->finished);
	w_u64(&w, m->cancelled);
	w_u64(&w, m->failed);
	w_u32(&w, m->us_per_prefill_token);
	w_u32(&w, m->us_per_decode_step);
	w_u64(&w, m->prefix_queries);
	w_u64(&w, m->prefix_hits);
	w_u64(&w, m->preemptions);
	w_u32(&w, m->prefix_pages);
	w_u32(&w, m->kv_used_permille);
	return w_end(&w);
}

int proto_get_stats(const uint8_t *p, size_t n, struct proto_stats *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->running = r_u32(&r);
	out->waiting = r_u32(&r);
	out->pages_total = r_u32(&r);
	out->pages_free = r_u32(&r);
	out->steps = r_u64(&r);
	out->prefill_tokens = r_u64(&r);
	out->decode_tokens = r_u64(&r);
	out->submitted = r_u64(&r);
	out->finished = r_u64(&r);
	out->cancelled = r_u64(&r);
	out->failed = r_u64(&r);
	out->us_per_prefill_token = r_u32(&r);
	out->us_per_decode_step = r_u32(&r);
	out->prefix_queries = r_u64(&r);
	out->prefix_hits = r_u64(&r);
	out->preemptions = r_u64(&r);
	out->prefix_pages = r_u32(&r);
	out->kv_used_permille = r_u32(&r);
	return r_end(&r, PROTO_STATS, err);
}

int proto_put_bye(struct sl_buf *out, const struct proto_bye *m)
{
	struct writer w = w_begin(out, PROTO_BYE, 0);
	w_str(&w, m->reason, PROTO_MAX_MESSAGE);
	return w_end(&w);
}

int proto_get_bye(const uint8_t *p, size_t n, struct proto_bye *out, struct sl_err *err)
{
	struct reader r = {.p = p, .left = n};
	out->reason = r_str(&r, PROTO_MAX_MESSAGE);
	return r_end(&r, PROTO_BYE, err);
}
