/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding of the engine protocol. A payload is written and read field by field in the
 * order of its struct, so that no padding and no compiler's layout ever crosses. The largest of the
 * types, SUBMIT, stands in proto_submit.c.
 */
#include "base/proto/proto_wire.h"

#include <math.h>

/* ---- types ---- */

enum { MAX_PIECES_BYTES = PROTO_MAX_TOKENS_PER_FRAME * (1 + PROTO_MAX_TOP_LOGPROBS) * (1 + PROTO_MAX_PIECE) };

uint32_t proto_type_max(uint8_t type)
{
	switch (type) {
	case PROTO_SUBMIT:
	case PROTO_COUNT: return PROTO_MAX_PAYLOAD;
	case PROTO_TOKENS:
		return 16 + PROTO_MAX_TOKENS_PER_FRAME * PROTO_TOKEN_BYTES(PROTO_MAX_TOP_LOGPROBS) +
		       PROTO_MAX_TEXT_PER_FRAME + MAX_PIECES_BYTES;
	case PROTO_PROMPT_LOGPROBS:
		return 16 + PROTO_MAX_TOKENS_PER_FRAME * PROTO_PROMPT_TOKEN_BYTES(PROTO_MAX_TOP_LOGPROBS) +
		       MAX_PIECES_BYTES;
	case PROTO_COUNTED: return 64 + PROTO_MAX_MESSAGE + PROTO_MAX_LISTED * 4 + PROTO_MAX_COUNTED_TEXT;
	case PROTO_EMBEDDING: return 2 + PROTO_MAX_EMBEDDING * sizeof(float);
	case PROTO_PREFIXES: return 3 + PROTO_MAX_PREFIXES * sizeof(uint64_t);
	case PROTO_HELLO:
	case PROTO_CREDIT:
	case PROTO_CANCEL:
	case PROTO_PING:
	case PROTO_KEEP:
	case PROTO_LEVELS:
	case PROTO_ERASE:
	case PROTO_ADAPTER:
	case PROTO_HAND:
	case PROTO_HANDED:
	case PROTO_MODEL:
	case PROTO_QUEUED:
	case PROTO_DONE:
	case PROTO_STATS:
	case PROTO_PONG:
	case PROTO_LEAVE:
	case PROTO_BYE:
	case PROTO_LOAD:
	case PROTO_VERIFIED:
	case PROTO_CHOICE: return 4096;
	default: return 0;
	}
}

const char *proto_type_name(uint8_t type)
{
	static const char *const to_engine[] = {"?",    "HELLO", "SUBMIT", "CREDIT", "CANCEL",  "COUNT",
						"PING", "KEEP",  "LEVELS", "ERASE",  "ADAPTER", "HAND"};
	static const char *const to_gateway[] = {
	    "MODEL",           "QUEUED", "TOKENS", "DONE",     "COUNTED",   "STATS",    "PONG",   "BYE",
	    "PROMPT_LOGPROBS", "CHOICE", "LOAD",   "VERIFIED", "EMBEDDING", "PREFIXES", "HANDED", "LEAVE"};
	if (type <= PROTO_HAND)
		return to_engine[type];
	if (type >= PROTO_MODEL && type <= PROTO_LEAVE)
		return to_gateway[type - PROTO_MODEL];
	return "?";
}

int proto_head_read(const uint8_t *bytes, struct proto_head *out, struct sl_err *err)
{
	struct proto_reader r = {.p = bytes, .left = PROTO_HEAD_BYTES};
	out->length = proto_r_u32(&r);
	out->type = proto_r_u8(&r);
	out->version = proto_r_u8(&r);
	uint16_t zero = proto_r_u16(&r);
	out->id = proto_r_u64(&r);
	if (out->version != PROTO_VERSION)
		return sl_errf(err, SL_EPROTO, "the peer speaks protocol version %u, this is %u", out->version,
			       PROTO_VERSION);
	uint32_t max = proto_type_max(out->type);
	if (max == 0 || zero != 0)
		return sl_errf(err, SL_EPROTO, "unknown frame type %u", out->type);
	if (out->length > max)
		return sl_errf(err, SL_EPROTO, "%s frame of %u bytes, the most is %u", proto_type_name(out->type),
			       out->length, max);
	return 0;
}

/* ---- scalar fields in the order of the wire ---- */

#define N(array) (sizeof(array) / sizeof *(array))

#define F(field) PROTO_FIELD(struct proto_hello, field)
static const struct proto_field hello_fields[] = {F(version), F(epoch), F(n_models)};
#undef F

#define F(field) PROTO_FIELD(struct proto_count, field)
static const struct proto_field count_fields[] = {F(model), F(prompt_kind), F(priority), F(wants), F(tenant)};
#undef F

#define F(field) PROTO_FIELD(struct proto_keep, field)
static const struct proto_field keep_fields[] = {F(model), F(tenant), F(keep_ms)};
#undef F

#define F(field) PROTO_FIELD(struct proto_model, field)
static const struct proto_field model_fields[] = {
    F(index),     F(state),  F(role),      F(does),      F(n_ctx),     F(n_vocab), F(n_embd),    F(n_params),
    F(tokenizer), F(format), F(reasoning), F(n_lengths), F(n_markers), F(percent), F(residence), F(parent)};
#undef F

#define F(field) PROTO_FIELD(struct proto_erase, field)
static const struct proto_field erase_fields[] = {F(tenant)};
#undef F

#define F(field) PROTO_FIELD(struct proto_queued, field)
static const struct proto_field queued_fields[] = {F(n_prompt), F(n_cached), F(miss_reason), F(position),
						   F(predicted_ttft_us)};
#undef F

#define F(field) PROTO_FIELD(struct proto_choice, field)
static const struct proto_field choice_fields[] = {F(choice),  F(finish),       F(length_why),        F(stop),
						   F(stop_at), F(n_completion), F(cumulative_logprob)};
#undef F

#define F(field) PROTO_FIELD(struct proto_done, field)
static const struct proto_field done_fields[] = {
    F(finish),       F(error),    F(length_why), F(stop),      F(stop_at),   F(n_prompt),   F(n_cached),
    F(n_completion), F(queue_us), F(prefill_us), F(decode_us), F(n_drafted), F(n_accepted), F(retry_after_s)};
#undef F

#define F(field) PROTO_FIELD(struct proto_stats, field)
static const struct proto_field stats_fields[] = {F(running),
						  F(waiting),
						  F(pages_total),
						  F(pages_free),
						  F(steps),
						  F(prefill_tokens),
						  F(decode_tokens),
						  F(submitted),
						  F(finished),
						  F(cancelled),
						  F(failed),
						  F(us_per_prefill_token),
						  F(us_per_decode_step),
						  F(prefix_queries),
						  F(prefix_hits),
						  F(preemptions),
						  F(prefix_pages),
						  F(kv_used_permille),
						  F(spec_drafts),
						  F(spec_drafted),
						  F(spec_accepted),
						  F(swapped_out),
						  F(swapped_in),
						  F(swap_full),
						  F(forced_tokens),
						  F(displaced),
						  F(swap_places),
						  F(swap_used),
						  F(device.known),
						  F(device.busy_percent),
						  F(device.memory_busy_percent),
						  F(device.celsius),
						  F(device.milliwatts),
						  F(device.limit_milliwatts),
						  F(device.sm_mhz),
						  F(device.memory_mhz),
						  F(device.slowed),
						  F(device.nvlinks),
						  F(device.memory_bytes),
						  F(device.memory_used_bytes),
						  F(device.ecc_uncorrected),
						  F(device.nvlink_replays),
						  F(device.nvlink_crc),
						  F(device.pcie_replays),
						  F(device.pcie_sent),
						  F(device.pcie_received),
						  F(device.xids),
						  F(device.last_xid),
						  F(kv_bytes),
						  F(kv_withheld),
						  F(kv_released),
						  F(kv_restored),
						  F(models_here),
						  F(load_waiting),
						  F(model_loads),
						  F(model_drops),
						  F(model_load_ms),
						  F(kv_disk_bytes),
						  F(kv_disk_pages),
						  F(kv_disk_hits[0]),
						  F(kv_disk_hits[1]),
						  F(kv_disk_hits[2]),
						  F(kv_disk_misses[0]),
						  F(kv_disk_misses[1]),
						  F(kv_disk_misses[2]),
						  F(kv_disk_misses[3]),
						  F(kv_disk_misses[4]),
						  F(kv_disk_written),
						  F(kv_disk_evicted),
						  F(kv_disk_erased),
						  F(kv_disk_dropped),
						  F(kv_disk_errors[0]),
						  F(kv_disk_errors[1]),
						  F(kv_disk_errors[2]),
						  F(kv_disk_read_bytes),
						  F(kv_disk_write_bytes),
						  F(kv_disk_read_us),
						  F(kv_disk_write_us),
						  F(upstream.known),
						  F(upstream.open),
						  F(upstream.retries),
						  F(upstream.openings),
						  F(upstream.false_usages),
						  F(upstream.faults[PROTO_FAULT_RESOLVE]),
						  F(upstream.faults[PROTO_FAULT_CONNECT]),
						  F(upstream.faults[PROTO_FAULT_TLS]),
						  F(upstream.faults[PROTO_FAULT_KEY]),
						  F(upstream.faults[PROTO_FAULT_NO_MODEL]),
						  F(upstream.faults[PROTO_FAULT_LIMITED]),
						  F(upstream.faults[PROTO_FAULT_REFUSED]),
						  F(upstream.faults[PROTO_FAULT_SERVER]),
						  F(upstream.faults[PROTO_FAULT_REDIRECT]),
						  F(upstream.faults[PROTO_FAULT_HEADERS]),
						  F(upstream.faults[PROTO_FAULT_NO_STREAM]),
						  F(upstream.faults[PROTO_FAULT_EVENT]),
						  F(upstream.faults[PROTO_FAULT_LONG]),
						  F(upstream.faults[PROTO_FAULT_CUT]),
						  F(upstream.faults[PROTO_FAULT_STALL]),
						  F(upstream.faults[PROTO_FAULT_SLOW]),
						  F(upstream.faults[PROTO_FAULT_AWAY]),
						  F(upstream.reports),
						  F(upstream.running),
						  F(upstream.waiting),
						  F(upstream.others),
						  F(upstream.kv_permille),
						  F(upstream.reads),
						  F(upstream.failed_reads),
						  F(adapters_here),
						  F(adapter_bytes),
						  F(adapter_loads),
						  F(adapter_drops),
						  F(slowed),
						  F(held),
						  F(slowdowns)};
#undef F

#define F(field) PROTO_FIELD(struct proto_figures, field)
static const struct proto_field figures_fields[] = {
    F(running),        F(waiting),     F(pages_total), F(pages_free),  F(prefill_tokens), F(decode_tokens),
    F(prefix_queries), F(prefix_hits), F(preemptions), F(spec_drafts), F(spec_drafted),   F(spec_accepted)};
#undef F

#define F(field) PROTO_FIELD(struct proto_line, field)
static const struct proto_field line_fields[] = {F(waiting), F(wait_us), F(places_free), F(us_per_place)};
#undef F

/* ---- errors ---- */

const char *proto_error_field(uint8_t error)
{
	static const char *const names[PROTO_FIELDS] = {
	    [PROTO_FIELD_TOP_K] = "top_k",
	    [PROTO_FIELD_MIN_P] = "min_p",
	    [PROTO_FIELD_TYPICAL_P] = "typical_p",
	    [PROTO_FIELD_REPETITION_PENALTY] = "repetition_penalty",
	    [PROTO_FIELD_LENGTH_PENALTY] = "length_penalty",
	    [PROTO_FIELD_MIN_TOKENS] = "min_tokens",
	    [PROTO_FIELD_IGNORE_EOS] = "ignore_eos",
	    [PROTO_FIELD_INCLUDE_STOP] = "include_stop_str_in_output",
	    [PROTO_FIELD_PROMPT_LOGPROBS] = "prompt_logprobs",
	    [PROTO_FIELD_BEST_OF] = "best_of",
	    [PROTO_FIELD_BEAM_SEARCH] = "use_beam_search",
	    [PROTO_FIELD_THINKING] = "thinking_token_budget",
	    [PROTO_FIELD_ALLOWED_IDS] = "allowed_token_ids",
	    [PROTO_FIELD_CONTINUE] = "continue_final_message",
	    [PROTO_FIELD_LOGPROBS] = "logprobs",
	    [PROTO_FIELD_CACHE_SALT] = "cache_salt",
	};
	return error >= PROTO_ERR_FIELD && error - PROTO_ERR_FIELD < PROTO_FIELDS ? names[error - PROTO_ERR_FIELD]
										  : NULL;
}

static bool is_error(uint8_t error) { return error <= PROTO_ERR_LAST || proto_error_field(error) != NULL; }

/* ---- one pair a type ---- */

int proto_put_hello(struct sl_buf *out, const struct proto_hello *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_HELLO, 0);
	proto_w_fields(&w, m, hello_fields, N(hello_fields));
	proto_w_str(&w, m->name, PROTO_MAX_NAME);
	return proto_w_end(&w);
}

int proto_get_hello(const uint8_t *p, size_t n, struct proto_hello *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, hello_fields, N(hello_fields));
	out->name = proto_r_str(&r, PROTO_MAX_NAME);
	if (out->n_models > PROTO_MAX_MODELS)
		return proto_out_of_bounds(err, PROTO_HELLO, "n_models");
	return proto_r_end(&r, PROTO_HELLO, err);
}

int proto_put_credit(struct sl_buf *out, uint64_t id, const struct proto_credit *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_CREDIT, id);
	proto_w_u32(&w, m->n_tokens);
	return proto_w_end(&w);
}

int proto_get_credit(const uint8_t *p, size_t n, struct proto_credit *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->n_tokens = proto_r_u32(&r);
	return proto_r_end(&r, PROTO_CREDIT, err);
}

static int put_empty(struct sl_buf *out, uint8_t type, uint64_t id)
{
	struct proto_writer w = proto_w_begin(out, type, id);
	return proto_w_end(&w);
}

int proto_put_cancel(struct sl_buf *out, uint64_t id) { return put_empty(out, PROTO_CANCEL, id); }
int proto_put_leave(struct sl_buf *out) { return put_empty(out, PROTO_LEAVE, 0); }
int proto_put_ping(struct sl_buf *out, uint64_t nonce) { return put_empty(out, PROTO_PING, nonce); }
int proto_put_pong(struct sl_buf *out, uint64_t nonce) { return put_empty(out, PROTO_PONG, nonce); }

int proto_put_count(struct sl_buf *out, uint64_t id, const struct proto_count *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_COUNT, id);
	proto_w_fields(&w, m, count_fields, N(count_fields));
	proto_w_str(&w, m->prompt, PROTO_MAX_PAYLOAD);
	return proto_w_end(&w);
}

int proto_get_count(const uint8_t *p, size_t n, struct proto_count *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, count_fields, N(count_fields));
	out->prompt = proto_r_str(&r, PROTO_MAX_PAYLOAD);
	static const unsigned all = PROTO_COUNT_IDS | PROTO_COUNT_TEXT | PROTO_COUNT_PLAIN;
	if (out->prompt_kind < PROTO_PROMPT_CHAT || out->prompt_kind > PROTO_PROMPT_LAST)
		return proto_out_of_bounds(err, PROTO_COUNT, "prompt_kind");
	if ((out->wants & ~all) != 0)
		return proto_out_of_bounds(err, PROTO_COUNT, "wants");
	return proto_r_end(&r, PROTO_COUNT, err);
}

int proto_put_keep(struct sl_buf *out, const struct proto_keep *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_KEEP, 0);
	proto_w_fields(&w, m, keep_fields, N(keep_fields));
	return proto_w_end(&w);
}

int proto_get_keep(const uint8_t *p, size_t n, struct proto_keep *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, keep_fields, N(keep_fields));
	if (out->model >= PROTO_MAX_MODELS)
		return proto_out_of_bounds(err, PROTO_KEEP, "model");
	return proto_r_end(&r, PROTO_KEEP, err);
}

int proto_put_levels(struct sl_buf *out, const struct proto_levels *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_LEVELS, 0);
	proto_w_u8(&w, m->n);
	for (unsigned i = 0; i < m->n; i++)
		proto_w_u8(&w, m->least[i]);
	return proto_w_end(&w);
}

int proto_get_levels(const uint8_t *p, size_t n, struct proto_levels *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->n = proto_r_u8(&r);
	if (out->n > PROTO_MAX_LEVELS)
		return proto_out_of_bounds(err, PROTO_LEVELS, "n");
	for (unsigned i = 0; i < out->n; i++)
		if ((out->least[i] = proto_r_u8(&r)) > PROTO_LAST_LEVEL)
			return proto_out_of_bounds(err, PROTO_LEVELS, "least");
	return proto_r_end(&r, PROTO_LEVELS, err);
}

int proto_put_erase(struct sl_buf *out, const struct proto_erase *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_ERASE, 0);
	proto_w_fields(&w, m, erase_fields, N(erase_fields));
	return proto_w_end(&w);
}

int proto_get_erase(const uint8_t *p, size_t n, struct proto_erase *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, erase_fields, N(erase_fields));
	return proto_r_end(&r, PROTO_ERASE, err);
}

int proto_put_adapter(struct sl_buf *out, uint64_t id, const struct proto_adapter *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_ADAPTER, id);
	proto_w_u8(&w, m->load);
	proto_w_str(&w, m->name, PROTO_MAX_NAME);
	proto_w_str(&w, m->path, PROTO_MAX_PATH);
	return proto_w_end(&w);
}

/* Text that names something: without a NUL. */
static bool is_text(struct proto_str s) { return s.n > 0 && memchr(s.at, '\0', s.n) == NULL; }

int proto_get_adapter(const uint8_t *p, size_t n, struct proto_adapter *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	uint8_t load = proto_r_u8(&r);
	out->load = load == 1;
	out->name = proto_r_str(&r, PROTO_MAX_NAME);
	out->path = proto_r_str(&r, PROTO_MAX_PATH);
	int rc = proto_r_end(&r, PROTO_ADAPTER, err);
	if (rc == 0 && (load > 1 || !is_text(out->name) || (out->load ? !is_text(out->path) : out->path.n > 0)))
		return proto_out_of_bounds(err, PROTO_ADAPTER, "load, name or path");
	return rc;
}

int proto_put_model(struct sl_buf *out, const struct proto_model *m)
{
	if (m->n_markers > PROTO_MAX_MARKERS || m->n_lengths > PROTO_MAX_LENGTHS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_MODEL, 0);
	proto_w_fields(&w, m, model_fields, N(model_fields));
	proto_w_str(&w, m->name, PROTO_MAX_NAME);
	proto_w_str(&w, m->reason, PROTO_MAX_MESSAGE);
	for (int i = 0; i < m->n_lengths; i++)
		proto_w_u32(&w, m->lengths[i]);
	for (int i = 0; i < m->n_markers; i++)
		proto_w_u32(&w, (uint32_t)m->markers[i]);
	return proto_w_end(&w);
}

int proto_get_model(const uint8_t *p, size_t n, struct proto_model *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	*out = (struct proto_model){0};
	proto_r_fields(&r, out, model_fields, N(model_fields));
	out->name = proto_r_str(&r, PROTO_MAX_NAME);
	out->reason = proto_r_str(&r, PROTO_MAX_MESSAGE);
	if (out->index >= PROTO_MAX_MODELS || out->state > PROTO_MODEL_GONE || out->role > 2 ||
	    out->does > PROTO_DOES_ALL || out->percent > 100 || out->residence > PROTO_RESIDENCE_COMING ||
	    out->n_lengths > PROTO_MAX_LENGTHS || out->n_markers > PROTO_MAX_MARKERS || out->parent > PROTO_MAX_MODELS)
		return proto_out_of_bounds(
		    err, PROTO_MODEL, "index, state, role, does, percent, residence, n_lengths, n_markers or parent");
	for (int i = 0; i < out->n_lengths; i++)
		out->lengths[i] = proto_r_u32(&r);
	for (int i = 0; i < out->n_markers; i++)
		out->markers[i] = (int32_t)proto_r_u32(&r);
	return proto_r_end(&r, PROTO_MODEL, err);
}

int proto_put_queued(struct sl_buf *out, uint64_t id, const struct proto_queued *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_QUEUED, id);
	proto_w_fields(&w, m, queued_fields, N(queued_fields));
	proto_w_u8(&w, m->guess);
	proto_w_u8(&w, m->reasoning);
	return proto_w_end(&w);
}

int proto_get_queued(const uint8_t *p, size_t n, struct proto_queued *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, queued_fields, N(queued_fields));
	uint8_t guess = proto_r_u8(&r), reasoning = proto_r_u8(&r);
	out->guess = guess != 0;
	out->reasoning = reasoning != 0;
	if (out->miss_reason > PROTO_MISS_SHORT || guess > 1 || reasoning > 1)
		return proto_out_of_bounds(err, PROTO_QUEUED, "miss_reason, guess or reasoning");
	return proto_r_end(&r, PROTO_QUEUED, err);
}

static void put_piece(struct proto_writer *w, const struct proto_pieces *pieces, uint32_t id)
{
	struct proto_str p = pieces->of(pieces->ctx, id);
	size_t n = p.n < PROTO_MAX_PIECE ? p.n : PROTO_MAX_PIECE;
	proto_w_u8(w, (uint8_t)n);
	proto_w_bytes(w, p.at, n);
}

/* The rest of a payload: a flag, then `count` pieces if it is set. */
static int get_pieces(struct proto_reader *r, size_t count, uint8_t type, struct proto_pieces *out, struct sl_err *err)
{
	uint8_t told = proto_r_u8(r);
	const uint8_t *from = r->p;
	if (told > 1)
		return proto_out_of_bounds(err, type, "pieces");
	for (size_t i = 0; told && i < count; i++)
		proto_r_bytes(r, proto_r_u8(r));
	int rc = proto_r_end(r, type, err);
	if (rc == 0 && told)
		out->all = (struct proto_str){(const char *)from, (size_t)(r->p - from)};
	return rc;
}

struct proto_str proto_piece_next(struct proto_str *all)
{
	if (all->n == 0)
		return (struct proto_str){"", 0};
	struct proto_str p = {all->at + 1, (uint8_t)all->at[0]};
	all->at += 1 + p.n;
	all->n -= 1 + p.n;
	return p;
}

int proto_put_tokens(struct sl_buf *out, uint64_t id, const struct proto_tokens *m)
{
	if (m->n == 0 || m->n > PROTO_MAX_TOKENS_PER_FRAME || m->choice >= PROTO_MAX_CHOICES ||
	    m->n_top > PROTO_MAX_TOP_LOGPROBS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_TOKENS, id);
	proto_w_u16(&w, m->n);
	proto_w_u8(&w, m->choice);
	proto_w_u8(&w, m->n_top);
	for (int i = 0; i < m->n; i++) {
		proto_w_u32(&w, m->tokens[i].id);
		proto_w_f32(&w, m->tokens[i].logprob);
		proto_w_u16(&w, m->tokens[i].n_bytes);
		proto_w_u16(&w, 0);
		for (int k = 0; k < m->n_top; k++)
			proto_w_pair(&w, m->tops[i * m->n_top + k]);
	}
	proto_w_str(&w, m->text, PROTO_MAX_TEXT_PER_FRAME);
	proto_w_u8(&w, m->pieces.of != NULL);
	for (int i = 0; i < m->n && m->pieces.of != NULL; i++) {
		put_piece(&w, &m->pieces, m->tokens[i].id);
		for (int k = 0; k < m->n_top; k++)
			put_piece(&w, &m->pieces, m->tops[i * m->n_top + k].id);
	}
	return proto_w_end(&w);
}

int proto_get_tokens(const uint8_t *p, size_t n, struct proto_tokens *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	*out = (struct proto_tokens){.n = proto_r_u16(&r)};
	out->choice = proto_r_u8(&r);
	out->n_top = proto_r_u8(&r);
	if (out->n == 0 || out->n > PROTO_MAX_TOKENS_PER_FRAME)
		return proto_out_of_bounds(err, PROTO_TOKENS, "n");
	if (out->choice >= PROTO_MAX_CHOICES)
		return proto_out_of_bounds(err, PROTO_TOKENS, "choice");
	if (out->n_top > PROTO_MAX_TOP_LOGPROBS)
		return proto_out_of_bounds(err, PROTO_TOKENS, "n_top");
	size_t each = PROTO_TOKEN_BYTES(out->n_top);
	out->records = proto_r_bytes(&r, out->n * each);
	out->text = proto_r_str(&r, PROTO_MAX_TEXT_PER_FRAME);
	int rc = get_pieces(&r, out->n * (1u + out->n_top), PROTO_TOKENS, &out->pieces, err);
	if (rc != 0)
		return rc;
	size_t sum = 0;
	for (uint16_t i = 0; i < out->n; i++) {
		const uint8_t *record = out->records + i * each;
		if (record[10] != 0 || record[11] != 0)
			return proto_out_of_bounds(err, PROTO_TOKENS, "padding");
		sum += proto_token_at(out, i).n_bytes;
	}
	return sum == out->text.n ? 0 : proto_out_of_bounds(err, PROTO_TOKENS, "n_bytes");
}

struct proto_token proto_token_at(const struct proto_tokens *m, uint16_t i)
{
	struct proto_reader r = {.p = m->records + i * (size_t)PROTO_TOKEN_BYTES(m->n_top), .left = 12};
	struct proto_token t = {.id = proto_r_u32(&r)};
	t.logprob = proto_r_f32(&r);
	t.n_bytes = proto_r_u16(&r);
	return t;
}

void proto_tokens_skip(const struct proto_tokens *m, uint16_t k, struct proto_tokens *rest)
{
	size_t n_bytes = 0;
	*rest = *m;
	for (uint16_t i = 0; i < k; i++)
		n_bytes += proto_token_at(m, i).n_bytes;
	rest->records = m->records + k * (size_t)PROTO_TOKEN_BYTES(m->n_top);
	rest->text = (struct proto_str){m->text.at + n_bytes, m->text.n - n_bytes};
	for (uint32_t i = 0; rest->pieces.all.n > 0 && i < k * (1u + m->n_top); i++)
		(void)proto_piece_next(&rest->pieces.all);
	rest->n = (uint16_t)(m->n - k);
}

struct proto_id_f32 proto_top_at(const struct proto_tokens *m, uint16_t i, uint8_t k)
{
	return proto_pair_at(m->records + i * (size_t)PROTO_TOKEN_BYTES(m->n_top) + PROTO_TOKEN_BYTES(k));
}

int proto_put_prompt_logprobs(struct sl_buf *out, uint64_t id, const struct proto_prompt_logprobs *m)
{
	if (m->n == 0 || m->n > PROTO_MAX_TOKENS_PER_FRAME || m->n_top > PROTO_MAX_TOP_LOGPROBS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_PROMPT_LOGPROBS, id);
	proto_w_u32(&w, m->first);
	proto_w_u16(&w, m->n);
	proto_w_u8(&w, m->n_top);
	for (int i = 0; i < m->n * (1 + m->n_top); i++)
		proto_w_pair(&w, m->entries[i]);
	proto_w_u8(&w, m->pieces.of != NULL);
	for (int i = 0; i < m->n * (1 + m->n_top) && m->pieces.of != NULL; i++)
		put_piece(&w, &m->pieces, m->entries[i].id);
	return proto_w_end(&w);
}

int proto_get_prompt_logprobs(const uint8_t *p, size_t n, struct proto_prompt_logprobs *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	*out = (struct proto_prompt_logprobs){.first = proto_r_u32(&r)};
	out->n = proto_r_u16(&r);
	out->n_top = proto_r_u8(&r);
	if (out->n == 0 || out->n > PROTO_MAX_TOKENS_PER_FRAME || out->first > UINT32_MAX - out->n)
		return proto_out_of_bounds(err, PROTO_PROMPT_LOGPROBS, "n");
	if (out->n_top > PROTO_MAX_TOP_LOGPROBS)
		return proto_out_of_bounds(err, PROTO_PROMPT_LOGPROBS, "n_top");
	out->records = proto_r_bytes(&r, out->n * (size_t)PROTO_PROMPT_TOKEN_BYTES(out->n_top));
	return get_pieces(&r, out->n * (1u + out->n_top), PROTO_PROMPT_LOGPROBS, &out->pieces, err);
}

struct proto_id_f32 proto_prompt_logprob_at(const struct proto_prompt_logprobs *m, uint16_t i, uint8_t k)
{
	return proto_pair_at(m->records + i * (size_t)PROTO_PROMPT_TOKEN_BYTES(m->n_top) +
			     k * (size_t)PROTO_PAIR_BYTES);
}

int proto_put_choice(struct sl_buf *out, uint64_t id, const struct proto_choice *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_CHOICE, id);
	proto_w_fields(&w, m, choice_fields, N(choice_fields));
	return proto_w_end(&w);
}

int proto_get_choice(const uint8_t *p, size_t n, struct proto_choice *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, choice_fields, N(choice_fields));
	if (out->choice >= PROTO_MAX_CHOICES)
		return proto_out_of_bounds(err, PROTO_CHOICE, "choice");
	if (out->finish < PROTO_FINISH_STOP || out->finish > PROTO_FINISH_ERROR)
		return proto_out_of_bounds(err, PROTO_CHOICE, "finish");
	if (out->stop > PROTO_STOP_LAST)
		return proto_out_of_bounds(err, PROTO_CHOICE, "stop");
	return proto_r_end(&r, PROTO_CHOICE, err);
}

int proto_put_done(struct sl_buf *out, uint64_t id, const struct proto_done *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_DONE, id);
	proto_w_fields(&w, m, done_fields, N(done_fields));
	proto_w_str(&w, m->message, PROTO_MAX_MESSAGE);
	return proto_w_end(&w);
}

int proto_get_done(const uint8_t *p, size_t n, struct proto_done *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, done_fields, N(done_fields));
	out->message = proto_r_str(&r, PROTO_MAX_MESSAGE);
	if (out->finish < PROTO_FINISH_STOP || out->finish > PROTO_FINISH_ERROR)
		return proto_out_of_bounds(err, PROTO_DONE, "finish");
	if (!is_error(out->error))
		return proto_out_of_bounds(err, PROTO_DONE, "error");
	if (out->stop > PROTO_STOP_LAST)
		return proto_out_of_bounds(err, PROTO_DONE, "stop");
	return proto_r_end(&r, PROTO_DONE, err);
}

int proto_put_counted(struct sl_buf *out, uint64_t id, const struct proto_counted *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_COUNTED, id);
	proto_w_u8(&w, m->error);
	proto_w_u32(&w, m->n_tokens);
	proto_w_str(&w, m->message, PROTO_MAX_MESSAGE);
	proto_w_str(&w, m->ids, PROTO_MAX_LISTED * 4);
	proto_w_str(&w, m->text, PROTO_MAX_COUNTED_TEXT);
	return proto_w_end(&w);
}

int proto_get_counted(const uint8_t *p, size_t n, struct proto_counted *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->error = proto_r_u8(&r);
	out->n_tokens = proto_r_u32(&r);
	out->message = proto_r_str(&r, PROTO_MAX_MESSAGE);
	out->ids = proto_r_str(&r, PROTO_MAX_LISTED * 4);
	out->text = proto_r_str(&r, PROTO_MAX_COUNTED_TEXT);
	if (!is_error(out->error))
		return proto_out_of_bounds(err, PROTO_COUNTED, "error");
	if (out->ids.n > 0 && (out->ids.n % 4 != 0 || out->ids.n / 4 != out->n_tokens))
		return proto_out_of_bounds(err, PROTO_COUNTED, "ids");
	return proto_r_end(&r, PROTO_COUNTED, err);
}

int proto_put_stats(struct sl_buf *out, const struct proto_stats *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_STATS, 0);
	proto_w_fields(&w, m, stats_fields, N(stats_fields));
	return proto_w_end(&w);
}

int proto_get_stats(const uint8_t *p, size_t n, struct proto_stats *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, stats_fields, N(stats_fields));
	return proto_r_end(&r, PROTO_STATS, err);
}

int proto_put_load(struct sl_buf *out, const struct proto_load *m)
{
	if (m->model >= PROTO_MAX_MODELS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_LOAD, 0);
	proto_w_u16(&w, m->model);
	proto_w_u8(&w, m->idle);
	proto_w_fields(&w, &m->figures, figures_fields, N(figures_fields));
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		proto_w_fields(&w, &m->of[i], line_fields, N(line_fields));
	return proto_w_end(&w);
}

int proto_get_load(const uint8_t *p, size_t n, struct proto_load *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->model = proto_r_u16(&r);
	uint8_t idle = proto_r_u8(&r);
	out->idle = idle != 0;
	proto_r_fields(&r, &out->figures, figures_fields, N(figures_fields));
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		proto_r_fields(&r, &out->of[i], line_fields, N(line_fields));
	if (out->model >= PROTO_MAX_MODELS || idle > 1)
		return proto_out_of_bounds(err, PROTO_LOAD, "model or idle");
	return proto_r_end(&r, PROTO_LOAD, err);
}

int proto_put_verified(struct sl_buf *out, uint64_t id, const struct proto_verified *m)
{
	if (m->n_agreed > m->n_used || m->n_used > PROTO_MAX_GIVEN)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_VERIFIED, id);
	proto_w_u32(&w, m->n_agreed);
	proto_w_u32(&w, m->n_used);
	return proto_w_end(&w);
}

int proto_get_verified(const uint8_t *p, size_t n, struct proto_verified *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->n_agreed = proto_r_u32(&r);
	out->n_used = proto_r_u32(&r);
	if (out->n_used > PROTO_MAX_GIVEN)
		return proto_out_of_bounds(err, PROTO_VERIFIED, "n_used");
	if (out->n_agreed > out->n_used)
		return proto_out_of_bounds(err, PROTO_VERIFIED, "n_agreed");
	return proto_r_end(&r, PROTO_VERIFIED, err);
}

static const struct proto_field hand_fields[] = {
    PROTO_FIELD(struct proto_hand, what),    PROTO_FIELD(struct proto_hand, writer),
    PROTO_FIELD(struct proto_hand, handle),  PROTO_FIELD(struct proto_hand, from),
    PROTO_FIELD(struct proto_hand, wait_ms),
};

static const char *hand_bad_field(const struct proto_hand *m)
{
	if (m->what < PROTO_HAND_OFFER || m->what > PROTO_HAND_OVER)
		return "what";
	if (m->writer >= PROTO_HAND_WRITERS)
		return "writer";
	if (m->handle == 0)
		return "handle";
	return m->wait_ms > PROTO_HAND_WAIT_MS ? "wait_ms" : NULL;
}

int proto_put_hand(struct sl_buf *out, uint64_t id, const struct proto_hand *m)
{
	if (hand_bad_field(m) != NULL)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_HAND, id);
	proto_w_fields(&w, m, hand_fields, N(hand_fields));
	return proto_w_end(&w);
}

int proto_get_hand(const uint8_t *p, size_t n, struct proto_hand *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, hand_fields, N(hand_fields));
	int rc = proto_r_end(&r, PROTO_HAND, err);
	const char *bad = rc == 0 ? hand_bad_field(out) : NULL;
	return bad != NULL ? proto_out_of_bounds(err, PROTO_HAND, bad) : rc;
}

static const struct proto_field handed_fields[] = {
    PROTO_FIELD(struct proto_handed, why),   PROTO_FIELD(struct proto_handed, n_pages),
    PROTO_FIELD(struct proto_handed, bytes), PROTO_FIELD(struct proto_handed, waited_us),
    PROTO_FIELD(struct proto_handed, steps),
};

int proto_put_handed(struct sl_buf *out, uint64_t id, const struct proto_handed *m)
{
	if (m->why >= PROTO_HANDED_WHYS)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_HANDED, id);
	proto_w_fields(&w, m, handed_fields, N(handed_fields));
	return proto_w_end(&w);
}

int proto_get_handed(const uint8_t *p, size_t n, struct proto_handed *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	proto_r_fields(&r, out, handed_fields, N(handed_fields));
	int rc = proto_r_end(&r, PROTO_HANDED, err);
	return rc == 0 && out->why >= PROTO_HANDED_WHYS ? proto_out_of_bounds(err, PROTO_HANDED, "why") : rc;
}

int proto_put_embedding(struct sl_buf *out, uint64_t id, const struct proto_embedding *m)
{
	if (m->n == 0 || m->n > PROTO_MAX_EMBEDDING)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_EMBEDDING, id);
	proto_w_u16(&w, m->n);
	for (uint16_t i = 0; i < m->n; i++) {
		if (!isfinite(m->values[i]))
			w.rc = w.rc == 0 ? SL_EINVAL : w.rc;
		proto_w_f32(&w, m->values[i]);
	}
	return proto_w_end(&w);
}

void proto_embedding_read(const struct proto_embedding *m, float *out)
{
	struct proto_reader r = {.p = m->records, .left = m->n * sizeof(float)};
	for (uint16_t i = 0; i < m->n; i++)
		out[i] = proto_r_f32(&r);
}

int proto_get_embedding(const uint8_t *p, size_t n, struct proto_embedding *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	*out = (struct proto_embedding){.n = proto_r_u16(&r)};
	if (out->n == 0 || out->n > PROTO_MAX_EMBEDDING)
		return proto_out_of_bounds(err, PROTO_EMBEDDING, "n");
	out->records = proto_r_bytes(&r, out->n * sizeof(float));
	int rc = proto_r_end(&r, PROTO_EMBEDDING, err);
	for (uint16_t i = 0; rc == 0 && i < out->n; i++) {
		struct proto_reader one = {.p = out->records + i * sizeof(float), .left = sizeof(float)};
		if (!isfinite(proto_r_f32(&one)))
			rc = proto_out_of_bounds(err, PROTO_EMBEDDING, "a number");
	}
	return rc;
}

int proto_put_prefixes(struct sl_buf *out, const struct proto_prefixes *m)
{
	if (m->n > PROTO_MAX_PREFIXES)
		return SL_EINVAL;
	struct proto_writer w = proto_w_begin(out, PROTO_PREFIXES, 0);
	proto_w_u8(&w, m->anew);
	proto_w_u16(&w, m->n);
	for (uint16_t i = 0; i < m->n; i++)
		proto_w_u64(&w, m->changes[i]);
	return proto_w_end(&w);
}

uint64_t proto_prefix_at(const struct proto_prefixes *m, uint16_t i)
{
	struct proto_reader r = {.p = m->records + i * sizeof(uint64_t), .left = sizeof(uint64_t)};
	return proto_r_u64(&r);
}

int proto_get_prefixes(const uint8_t *p, size_t n, struct proto_prefixes *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	uint8_t anew = proto_r_u8(&r);
	*out = (struct proto_prefixes){.anew = anew != 0, .n = proto_r_u16(&r)};
	if (anew > 1 || out->n > PROTO_MAX_PREFIXES)
		return proto_out_of_bounds(err, PROTO_PREFIXES, anew > 1 ? "anew" : "n");
	out->records = proto_r_bytes(&r, out->n * sizeof(uint64_t));
	return proto_r_end(&r, PROTO_PREFIXES, err);
}

int proto_put_bye(struct sl_buf *out, const struct proto_bye *m)
{
	struct proto_writer w = proto_w_begin(out, PROTO_BYE, 0);
	proto_w_str(&w, m->reason, PROTO_MAX_MESSAGE);
	return proto_w_end(&w);
}

int proto_get_bye(const uint8_t *p, size_t n, struct proto_bye *out, struct sl_err *err)
{
	struct proto_reader r = {.p = p, .left = n};
	out->reason = proto_r_str(&r, PROTO_MAX_MESSAGE);
	return proto_r_end(&r, PROTO_BYE, err);
}
