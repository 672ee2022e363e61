/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine protocol: frames between a gateway thread and an engine on a unix stream socket
 * (mode 0600, peer checked by SO_PEERCRED). Little endian, fixed layouts, every length bounded.
 *
 *   head    u32 length of the payload · u8 type · u8 version · u16 zero · u64 id      (16 bytes)
 *   payload by type, below
 *
 * id is the sequence's identifier, chosen by the gateway and unique on its link; 0 where a frame is
 * about the link. Identifiers cross, never pointers: a frame for a sequence that has gone is
 * ignored on either side.
 *
 *   gateway → engine                         engine → gateway
 *   HELLO      version, name                 HELLO   version, epoch, number of models
 *   SUBMIT     a request, with no credit     MODEL   a model's state, on HELLO and on each change
 *   CREDIT     n more tokens may be made     QUEUED  prompt counted, place and time predicted
 *   CANCEL     stop within one step          TOKENS  tokens with their text, whole UTF-8
 *   COUNT      tokens of a prompt            COUNTED the answer to COUNT
 *   PING                                     DONE    exactly one for every SUBMIT, the last frame
 *                                            STATS   gauges: on change (at most every 20 ms) and
 *                                                    every 250 ms;   PONG;   BYE reason, then close
 *
 * The order for one id is SUBMIT → QUEUED → CREDIT … TOKENS … → DONE; DONE may come at any time
 * after SUBMIT (refused, failed, cancelled). No prefill starts before the first CREDIT; one step
 * never makes more tokens for a sequence than its credit. A link that closes cancels its sequences.
 *
 * The same structs are the engine's own door (engine/engine.h): one vocabulary on both sides.
 */
#ifndef BASE_PROTO_H
#define BASE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
	PROTO_VERSION = 1,
	PROTO_HEAD_BYTES = 16,
	PROTO_MAX_PAYLOAD = 4 << 20, /* a SUBMIT; every other type is far below */
	PROTO_MAX_NAME = 128,
	PROTO_MAX_STOPS = 16,
	PROTO_MAX_STOP_BYTES = 256,
	PROTO_MAX_TOKENS_PER_FRAME = 256,
	PROTO_MAX_TEXT_PER_FRAME = 64 << 10,
	PROTO_MAX_MESSAGE = 512,
	PROTO_MAX_MODELS = 64,
};

enum proto_type {
	PROTO_HELLO = 1,
	PROTO_SUBMIT = 2,
	PROTO_CREDIT = 3,
	PROTO_CANCEL = 4,
	PROTO_COUNT = 5,
	PROTO_PING = 6,
	PROTO_MODEL = 33,
	PROTO_QUEUED = 34,
	PROTO_TOKENS = 35,
	PROTO_DONE = 36,
	PROTO_COUNTED = 37,
	PROTO_STATS = 38,
	PROTO_PONG = 39,
	PROTO_BYE = 40,
};

struct proto_head {
	uint32_t length;
	uint8_t type;
	uint8_t version;
	uint64_t id;
};

/* Text borrowed from the frame (decode) or from the caller (encode); not terminated. */
struct proto_str {
	const char *at;
	size_t n;
};

struct proto_hello {
	uint16_t version;
	uint64_t epoch;    /* engine: changes with every start; gateway: 0 */
	uint16_t n_models; /* engine only */
	struct proto_str name;
};

enum proto_model_state { PROTO_MODEL_LOADING, PROTO_MODEL_READY, PROTO_MODEL_FAILED };

struct proto_model {
	uint16_t index; /* stable within an epoch; SUBMIT names models by it */
	uint8_t state;
	uint8_t role; /* 0 none, 1 small, 2 large */
	uint32_t n_ctx;
	uint32_t n_vocab;
	uint64_t n_params;
	struct proto_str name;
	struct proto_str reason; /* why FAILED; else empty */
};

enum proto_prompt_kind {
	PROTO_PROMPT_CHAT = 1,   /* JSON: {"messages":[{"role":…,"content":…},…]} */
	PROTO_PROMPT_TEXT = 2,   /* plain text, no template; control tokens in it are text */
	PROTO_PROMPT_TOKENS = 3, /* u32 little endian ids */
};

enum { PROTO_SUBMIT_IGNORE_EOS = 1 };

struct proto_submit {
	uint16_t model;
	uint8_t prompt_kind;
	uint8_t flags;
	uint8_t priority;     /* 0 first; strict with ageing between values */
	uint8_t n_stops;
	uint64_t tenant;      /* digest; fairness and the salt of private prefixes */
	uint64_t seed;        /* always set: the gateway draws one when the client gave none */
	float temperature;    /* 0 greedy … 2 */
	float top_p;          /* (0, 1] */
	float min_p;          /* [0, 1] */
	float presence_penalty, frequency_penalty; /* -2 … 2 */
	uint32_t top_k;       /* 0: all */
	uint32_t max_tokens;  /* at least 1 */
	uint32_t deadline_ms; /* from arrival to the last token; 0: none. Ends with LENGTH */
	float rate_tps;       /* tokens per second the engine paces itself to; 0: unpaced */
	uint32_t burst;       /* tokens that may come at once before the pace begins */
	struct proto_str stops[PROTO_MAX_STOPS];
	struct proto_str prompt;
};

struct proto_credit {
	uint32_t n_tokens; /* added to what is left */
};

struct proto_queued {
	uint32_t n_prompt, n_cached;
	uint32_t position;          /* sequences ahead that have not started */
	uint32_t predicted_ttft_us; /* from now, given credit at once */
};

struct proto_token {
	uint32_t id;
	float logprob;    /* natural logarithm, of the chosen token, before temperature */
	uint16_t n_bytes; /* of the frame's text released with this token; may be 0 */
};

struct proto_tokens {
	uint16_t n;
	const uint8_t *records; /* decode: n × 12 bytes, read by proto_token_at */
	const struct proto_token *tokens; /* encode only */
	struct proto_str text;
};

enum proto_finish {
	PROTO_FINISH_STOP = 1,   /* end-of-text token or stop string */
	PROTO_FINISH_LENGTH = 2, /* max_tokens, context or deadline */
	PROTO_FINISH_CANCELLED = 3,
	PROTO_FINISH_ERROR = 4,
};

enum proto_error {
	PROTO_ERR_NONE = 0,
	PROTO_ERR_BAD_REQUEST = 1,    /* the request can't be served as it is */
	PROTO_ERR_CONTEXT_LENGTH = 2, /* prompt + 1 > context */
	PROTO_ERR_NO_MODEL = 3,
	PROTO_ERR_NOT_READY = 4,      /* model loading or failed */
	PROTO_ERR_OVERLOADED = 5,     /* a queue is full */
	PROTO_ERR_INTERNAL = 6,       /* device fault and the like */
};

enum proto_length_why {
	PROTO_LENGTH_MAX_TOKENS = 0,
	PROTO_LENGTH_CONTEXT = 1,
	PROTO_LENGTH_DEADLINE = 2,
};

struct proto_done {
	uint8_t finish;
	uint8_t error;
	uint8_t length_why;
	uint32_t n_prompt, n_cached, n_completion;
	uint32_t queue_us, prefill_us, decode_us;
	struct proto_str message; /* for errors: one sentence for the client */
};

struct proto_count {
	uint16_t model;
	uint8_t prompt_kind;
	struct proto_str prompt;
};

struct proto_counted {
	uint8_t error; /* enum proto_error */
	uint32_t n_tokens;
	struct proto_str message;
};

struct proto_stats {
	uint32_t running;   /* sequences in the batch, or paused with pages */
	uint32_t waiting;   /* queued, not started */
	uint32_t pages_total, pages_free;
	uint64_t steps, prefill_tokens, decode_tokens;
	uint64_t submitted, finished, cancelled, failed;
	uint32_t us_per_prefill_token, us_per_decode_step; /* moving averages */
};

struct proto_bye {
	struct proto_str reason;
};

/* ---- heads ---- */

/* Reads a head from at least PROTO_HEAD_BYTES bytes. SL_EPROTO for an unknown type, another
 * version or a length above what the type allows. */
int proto_head_read(const uint8_t *bytes, struct proto_head *out, struct sl_err *err);
/* The most payload bytes a type may have; 0 for an unknown type. */
uint32_t proto_type_max(uint8_t type);
const char *proto_type_name(uint8_t type);

/* ---- encoders: append one whole frame to out. 0, SL_ELIMIT, SL_ENOMEM; SL_EINVAL when a field
 *      is outside its bound ---- */
int proto_put_hello(struct sl_buf *out, const struct proto_hello *m);
int proto_put_submit(struct sl_buf *out, uint64_t id, const struct proto_submit *m);
int proto_put_credit(struct sl_buf *out, uint64_t id, const struct proto_credit *m);
int proto_put_cancel(struct sl_buf *out, uint64_t id);
int proto_put_count(struct sl_buf *out, uint64_t id, const struct proto_count *m);
int proto_put_ping(struct sl_buf *out, uint64_t nonce);
int proto_put_model(struct sl_buf *out, const struct proto_model *m);
int proto_put_queued(struct sl_buf *out, uint64_t id, const struct proto_queued *m);
int proto_put_tokens(struct sl_buf *out, uint64_t id, const struct proto_tokens *m);
int proto_put_done(struct sl_buf *out, uint64_t id, const struct proto_done *m);
int proto_put_counted(struct sl_buf *out, uint64_t id, const struct proto_counted *m);
int proto_put_stats(struct sl_buf *out, const struct proto_stats *m);
int proto_put_pong(struct sl_buf *out, uint64_t nonce);
int proto_put_bye(struct sl_buf *out, const struct proto_bye *m);

/* ---- decoders: read a whole payload; strings borrow from it. 0 or SL_EPROTO: too short, too
 *      long, or a field outside its bound ---- */
int proto_get_hello(const uint8_t *p, size_t n, struct proto_hello *out, struct sl_err *err);
int proto_get_submit(const uint8_t *p, size_t n, struct proto_submit *out, struct sl_err *err);
int proto_get_credit(const uint8_t *p, size_t n, struct proto_credit *out, struct sl_err *err);
int proto_get_count(const uint8_t *p, size_t n, struct proto_count *out, struct sl_err *err);
int proto_get_model(const uint8_t *p, size_t n, struct proto_model *out, struct sl_err *err);
int proto_get_queued(const uint8_t *p, size_t n, struct proto_queued *out, struct sl_err *err);
int proto_get_tokens(const uint8_t *p, size_t n, struct proto_tokens *out, struct sl_err *err);
int proto_get_done(const uint8_t *p, size_t n, struct proto_done *out, struct sl_err *err);
int proto_get_counted(const uint8_t *p, size_t n, struct proto_counted *out, struct sl_err *err);
int proto_get_stats(const uint8_t *p, size_t n, struct proto_stats *out, struct sl_err *err);
int proto_get_bye(const uint8_t *p, size_t n, struct proto_bye *out, struct sl_err *err);

/* The i-th record of a decoded TOKENS frame, i < m->n. */
struct proto_token proto_token_at(const struct proto_tokens *m, uint16_t i);

#endif
