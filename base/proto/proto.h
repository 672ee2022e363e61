/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine protocol: frames between a gateway thread and an engine on a unix stream socket (mode 0600, peer checked
 * by SO_PEERCRED). Little endian, fixed layouts, every length bounded. Encoders and decoders are pure; any thread.
 *
 *   frame     a head of 16 bytes (u32 length of the payload, u8 type, u8 version, u16 zero, u64 id) and a payload
 *   id        the sequence's, chosen by the gateway and unique on its link; 0 where a frame concerns the link. A frame for
 *             a sequence that has gone is ignored on either side
 *   sequence  SUBMIT → QUEUED → CREDIT … PROMPT_LOGPROBS … VERIFIED … TOKENS … CHOICE … → DONE
 *   credit    tokens that may still be made; a SUBMIT has none
 *
 * proto_submit.c encodes and decodes SUBMIT, proto.c all other frames, proto_wire.h their fields.
 *
 * Callers: gateway/generation and gateway/cascade on one side, engine/core on the other. The same structs are the
 * engine's own interface (engine/engine.h).
 */
#ifndef BASE_PROTO_H
#define BASE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The frames:
 *
 *   gateway → engine                         engine → gateway
 *   HELLO      version, name                 HELLO   version, epoch, number of models
 *   SUBMIT     a request, with no credit     MODEL   a model's state, on HELLO and on each change; progress while it loads
 *   CREDIT     n more tokens may be made     QUEUED  prompt counted, position and time predicted
 *   CANCEL     stop within one step          PROMPT_LOGPROBS  of the prompt's tokens, on request
 *   COUNT      a prompt's tokens             TOKENS  tokens with their text, whole UTF-8
 *   KEEP       how long an unused model stays
 *   ERASE      what is stored of a tenant's texts
 *   LEVELS     of the log, by subsystem
 *   ADAPTER    an adapter is loaded or unloaded
 *   HAND       the prompt's pages pass between engines
 *   PING                                     CHOICE  the end of one of several choices
 *                                            VERIFIED  how far the given tokens agree
 *                                            EMBEDDING the result of a SUBMIT that asks for one
 *                                            HANDED  how a HAND that awaits pages has ended; once
 *                                            LOAD    how long a newcomer would wait, by priority;
 *                                                    with STATS, for each model that is READY, with
 *                                                    its figures
 *                                            DONE    exactly one for every SUBMIT, the last frame
 *                                            COUNTED the answer to COUNT, or, without tokens, to
 *                                                    ADAPTER
 *                                            STATS   gauges: on change (at most every 20 ms) and
 *                                                    every 250 ms;   PONG;   BYE reason, then close
 *                                            PREFIXES  with STATS: which beginnings of prompts have entered the prefix
 *                                                    tree or left it, by digest (prefix_digest.h)
 *                                            LEAVE   another process serves this engine's socket from now on
 *
 * QUEUED may be repeated while a sequence with credit waits: its position and prediction are newer. DONE may come at
 * any time after SUBMIT (refused, failed, cancelled). A gateway that would admit in any case may send CREDIT right
 * behind SUBMIT; it counts from QUEUED on. No prefill starts before the first CREDIT; one step never makes more tokens
 * for a sequence than its credit. A link that closes cancels its sequences. A SUBMIT for several choices (n, best_of,
 * beam_width) gets each one's TOKENS in order, a CHOICE when one ends, and DONE for the whole; with one choice there is
 * no CHOICE.
 *
 * After LEAVE an engine still serves its links, and ends once all are closed. A gateway connects to the engine's socket
 * again, where the new process listens, submits there once that is ready, and closes the link when the answers on it
 * have ended.
 *
 * Given tokens (n_given > 0): the draft of an answer by another model with the same tokenizer. The engine computes the
 * prompt and the given tokens, and at each position makes its own choice, with that position's random number and the
 * penalties of what precedes it. n_agreed is how many of them, from the first on, are its own choice. It continues
 * behind n_used = max(n_agreed, n_keep) of them; those are its output from then on (penalties, min_tokens, stop strings
 * and characters that begin before the seam), the rest is dropped. Used tokens are not sent again and cost no credit:
 * max_tokens, TOKENS and DONE's n_completion count new tokens only. Text of used tokens that can't be sent yet (an
 * unfinished character, the beginning of a stop string) comes with the first new token; the model that made them held
 * back the same, if it had the same stops and had not ended. VERIFIED comes once, before the first TOKENS; an end token
 * or a stop string among the used ones ends the answer there. */
enum {
	PROTO_VERSION = 18,
	PROTO_HEAD_BYTES = 16,
	PROTO_SUBMIT_SEED_AT = PROTO_HEAD_BYTES + 14, /* where a SUBMIT frame has its 8 bytes of seed */
	PROTO_MAX_PAYLOAD = 4 << 20,                  /* a SUBMIT; every other type is far below */
	PROTO_MAX_NAME = 128,
	PROTO_MAX_PATH = 1024, /* of an adapter to load */
	PROTO_MAX_STOPS = 16,
	PROTO_MAX_STOP_BYTES = 256,
	PROTO_MAX_TOKENS_PER_FRAME = 256,
	PROTO_MAX_TEXT_PER_FRAME = 64 << 10,
	PROTO_MAX_MESSAGE = 512,
	PROTO_MAX_MODELS = 256, /* with adapters */
	PROTO_MAX_STOP_IDS = 16,
	PROTO_MAX_LOGIT_BIAS = 1024,
	PROTO_MAX_TOP_LOGPROBS = 20,
	PROTO_MAX_CHOICES = 16, /* n, best_of and beam_width */
	PROTO_MAX_PIECE = 255,  /* bytes of one token's text; what is longer is cut */
	PROTO_MAX_WEIGHT = 10000,
	PROTO_DEFAULT_WEIGHT = 100,
	PROTO_PRIORITIES = 8,           /* those beyond are the last one */
	PROTO_MAX_GIVEN = 1024,         /* tokens of an answer that another model began */
	PROTO_MAX_LENGTHS = 16,         /* that a model declares for its vectors */
	PROTO_MAX_MARKERS = 48,         /* control tokens that a model's format of calls and reasoning uses */
	PROTO_MAX_CONSTRAINT = 1 << 20, /* bytes of a schema or grammar */
	PROTO_MAX_BAD_WORDS = 64,
	PROTO_MAX_LISTED = 1 << 19,       /* ids that a COUNTED lists */
	PROTO_MAX_COUNTED_TEXT = 1 << 20, /* bytes of text that it has */
	PROTO_MAX_EMBEDDING = 16384,      /* numbers of one */
	PROTO_MAX_LEVELS = 32,            /* subsystems of the log */
	PROTO_LAST_LEVEL = 3,             /* enum log_level */
	PROTO_MAX_PREFIXES = 2048,        /* changes in one frame */
	PROTO_PREFIXES_KEPT = 32768,      /* digests that are published at a time */
	PROTO_NO_ID = 1 << 29,            /* ids from here on name no token of a vocabulary */
};

enum proto_type {
	PROTO_HELLO = 1,
	PROTO_SUBMIT = 2,
	PROTO_CREDIT = 3,
	PROTO_CANCEL = 4,
	PROTO_COUNT = 5,
	PROTO_PING = 6,
	PROTO_KEEP = 7,
	PROTO_LEVELS = 8,
	PROTO_ERASE = 9,
	PROTO_ADAPTER = 10,
	PROTO_HAND = 11,
	PROTO_MODEL = 33,
	PROTO_QUEUED = 34,
	PROTO_TOKENS = 35,
	PROTO_DONE = 36,
	PROTO_COUNTED = 37,
	PROTO_STATS = 38,
	PROTO_PONG = 39,
	PROTO_BYE = 40,
	PROTO_PROMPT_LOGPROBS = 41,
	PROTO_CHOICE = 42,
	PROTO_LOAD = 43,
	PROTO_VERIFIED = 44,
	PROTO_EMBEDDING = 45,
	PROTO_PREFIXES = 46,
	PROTO_HANDED = 47,
	PROTO_LEAVE = 48,
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

enum proto_role { PROTO_ROLE_NONE, PROTO_ROLE_SMALL, PROTO_ROLE_LARGE };

/* What a model can do, as bits. */
enum proto_does {
	PROTO_DOES_GENERATE = 1,
	PROTO_DOES_EMBED = 2, /* a vector for a text */
	PROTO_DOES_RANK = 4,  /* a score for a pair of texts */
	/* The first numbers of a vector are a vector (Kusupati et al., "Matryoshka Representation Learning", 2022). */
	PROTO_DOES_SHORTEN = 8,
	PROTO_DOES_HAND_OVER = 16, /* pages of its prompts can pass between engines */
	PROTO_DOES_GIVE_IDS =
	    32, /* with WANT_IDS its tokens have the ids of its vocabulary; with a tokenizer they always do */
	PROTO_DOES_REFUSE_LATE = 64, /* it may refuse a request when that has credit: another server decides */
	PROTO_DOES_ALL = 127,
};

/* Where the weights of a model that is READY are: in memory; not, since no request needs them; on their way. */
enum proto_residence { PROTO_RESIDENCE_HERE, PROTO_RESIDENCE_ABSENT, PROTO_RESIDENCE_COMING };

/* GONE: its index names nothing any more, and may name another model later. */
enum proto_model_state { PROTO_MODEL_LOADING, PROTO_MODEL_READY, PROTO_MODEL_FAILED, PROTO_MODEL_GONE };

struct proto_model {
	uint16_t index; /* stable within an epoch; SUBMIT names models by it */
	uint8_t state;
	uint8_t role;      /* enum proto_role */
	uint16_t parent;   /* of an adapter: 1 + the index of its base, whose weights it shares; 0: it is none */
	uint8_t does;      /* of enum proto_does; READY only */
	uint8_t percent;   /* of its weights that are loaded; while it is LOADING or they are COMING */
	uint8_t residence; /* enum proto_residence */
	uint32_t n_ctx;
	uint32_t n_vocab;
	uint32_t n_embd; /* numbers of its embeddings */
	uint64_t n_params;
	struct proto_str name;
	struct proto_str reason; /* why FAILED; else empty */
	uint64_t tokenizer;      /* a digest: equal ones mean the same by a token's id; 0: unknown */
	uint8_t format,
	    reasoning; /* how it writes calls and reasoning: enum parts_format, parts_reasoning (base/parts) */
	uint8_t n_lengths;
	uint32_t lengths[PROTO_MAX_LENGTHS]; /* of SHORTEN: those that vectors may have; none: any */
	uint8_t n_markers;
	int32_t markers[PROTO_MAX_MARKERS]; /* of each literal of these (parts_format_literals): its control token; -1:
					       none */
};

enum proto_prompt_kind {
	PROTO_PROMPT_CHAT = 1,   /* JSON: {"messages":[{"role":…,"content":…},…]} */
	PROTO_PROMPT_TEXT = 2,   /* plain text, no template; control tokens in it are text */
	PROTO_PROMPT_TOKENS = 3, /* u32 little endian ids */
	/* For results that are embeddings or scores: with the tokens around it that the model's tokenizer puts there.
	 */
	PROTO_PROMPT_INPUT = 4, /* plain text */
	PROTO_PROMPT_PAIR = 5,  /* two: u32 little endian bytes of the first, the first, the second */
	PROTO_PROMPT_LAST = PROTO_PROMPT_PAIR,
};

enum {
	PROTO_SUBMIT_IGNORE_EOS = 1,    /* end tokens are never chosen; stop strings and ids still end it */
	PROTO_SUBMIT_SHARED_PREFIX = 2, /* the prefix is not salted by tenant */
	PROTO_SUBMIT_WANT_LOGPROBS = 4, /* of the chosen tokens; else they are NaN */
	/* The prompt is computed and stays in the prefix tree; no token is made: DONE with LENGTH and none. One
	 * choice, no beams, no prompt_logprobs. Needs a credit like any other. */
	PROTO_SUBMIT_PREFILL_ONLY = 8,
	PROTO_SUBMIT_INCLUDE_STOP = 16, /* the stop string, or a stop id's text, is the answer's end */
	PROTO_SUBMIT_ONLY_BIASED = 32,  /* only tokens with a bias are chosen */
	/* The result is an EMBEDDING, by the model's own pooling, then DONE with STOP: of a PAIR its score, of all
	 * others a vector. No token is made. As PREFILL_ONLY otherwise. */
	PROTO_SUBMIT_EMBED = 64,
	/* Each token by itself, with its own text and id, however they come together: for clients that want ids, for
	 * answers that another gateway may repeat, for the cascade. With a tokenizer they always are. */
	PROTO_SUBMIT_WANT_IDS = 128,
};

/* What an answer is constrained to; engine/constraint reads the text. */
enum proto_constraint {
	PROTO_CONSTRAINT_NONE = 0,
	PROTO_CONSTRAINT_JSON_SCHEMA = 1, /* a JSON Schema */
	PROTO_CONSTRAINT_JSON_OBJECT = 2, /* any JSON object; no text */
	PROTO_CONSTRAINT_REGEX = 3,       /* an ECMA-262 regular expression that the whole answer matches */
	PROTO_CONSTRAINT_GBNF = 4,        /* a grammar in llama.cpp's form */
	PROTO_CONSTRAINT_LARK = 5,        /* a grammar in Lark's form */
	PROTO_CONSTRAINT_CHOICE = 6,      /* a JSON array of strings */
	PROTO_CONSTRAINT_CALLS = 7,       /* calls of tools, as engine/constraint/constraint.c has them */
	PROTO_CONSTRAINT_KINDS,
};

/* A token and a number about it: its bias, or its logarithm of probability. */
struct proto_id_f32 {
	uint32_t id;
	float v;
};

struct proto_submit {
	uint16_t model;
	uint8_t prompt_kind;
	uint8_t flags;
	uint8_t priority; /* 0 first; strict with ageing between values */
	uint8_t n_stops;
	uint64_t tenant;                           /* digest; fairness and the salt of private prefixes */
	uint64_t seed;                             /* always set: the gateway draws one when the client gave none */
	float temperature;                         /* 0 greedy … 2 */
	float top_p;                               /* (0, 1] */
	float min_p;                               /* [0, 1] */
	float presence_penalty, frequency_penalty; /* -2 … 2 */
	uint32_t top_k;                            /* 0: all */
	uint32_t max_tokens;                       /* at least 1 */
	uint32_t deadline_ms;                      /* from arrival to the last token; 0: none. Ends with LENGTH */
	float rate_tps;                            /* tokens per second the engine paces itself to; 0: unpaced */
	uint32_t burst;                            /* tokens that may come at once before the pace begins */
	float typical_p;                           /* (0, 1]; 1: off */
	float repetition_penalty;                  /* (0, 2]; 1: off */
	float length_penalty;                      /* -8 … 8: beams are ranked by logprob / length^this */
	uint32_t min_tokens;     /* nothing but max_tokens and the deadline ends it before; used ones count; at
				  * most max_tokens + n_given */
	uint8_t n_top_logprobs;  /* with WANT_LOGPROBS: so many of the likeliest beside the chosen */
	uint8_t prompt_logprobs; /* 0: none; 1 + k: of every prompt token, with its k likeliest rivals */
	uint8_t n;               /* choices sent, 1 … PROTO_MAX_CHOICES */
	uint8_t best_of;         /* choices generated, of which the n best are sent; at least n */
	uint8_t beam_width;      /* 0: no beam search; else at least n */
	uint8_t n_stop_ids;
	uint16_t n_logit_bias;
	uint8_t constraint_kind;  /* enum proto_constraint; it begins after the reasoning, where there is some */
	uint32_t thinking_tokens; /* after so many tokens of reasoning it is closed; 0: no bound */
	uint32_t weight;          /* the tenant's share beside others, 1 … PROTO_MAX_WEIGHT */
	uint64_t cache_salt;      /* only prefixes with the same one are shared; 0: none */
	uint8_t n_bad_words;
	uint16_t n_given,
	    n_keep; /* n_keep of n_given are kept, agreed or not; one choice, no beams, no prompt_logprobs */
	uint32_t stop_ids[PROTO_MAX_STOP_IDS];
	const struct proto_id_f32 *logit_bias; /* encode; read by proto_bias_at. Each -100 … 100 */
	const uint8_t *logit_bias_records;     /* decode: n_logit_bias × 8 bytes */
	const uint32_t *given;                 /* encode; read by proto_given_at */
	const uint8_t *given_records;          /* decode: n_given × 4 bytes */
	struct proto_str stops[PROTO_MAX_STOPS];
	struct proto_str constraint; /* ≤ PROTO_MAX_CONSTRAINT */
	/* Texts of 1 … PROTO_MAX_STOP_BYTES whose token is never chosen, at the beginning of a text or after a space. */
	const struct proto_str *bad_words; /* encode; read by proto_bad_word_at */
	struct proto_str bad_word_records; /* decode: a length and a text for each of n_bad_words */
	struct proto_str prompt;
	/* encode: the same with other scalars and no given tokens, encoded before; its stop ids, biases, stops,
	 * constraint, bad words and prompt are copied from there. Empty: it was not. */
	struct proto_str frame;
};

/* For initialisers: what a plain request leaves off but must not leave zero. */
#define PROTO_SUBMIT_OFF                                                                    \
	.typical_p = 1, .repetition_penalty = 1, .length_penalty = 1, .n = 1, .best_of = 1, \
	.weight = PROTO_DEFAULT_WEIGHT

struct proto_credit {
	uint32_t n_tokens; /* added to what is left */
};

/* Why no more of the prompt came from the prefix tree. */
enum proto_miss {
	PROTO_MISS_NONE = 0,    /* all that could be reused was */
	PROTO_MISS_NEW = 1,     /* never seen, or long forgotten */
	PROTO_MISS_EVICTED = 2, /* it had been there; memory was short */
	PROTO_MISS_PRIVATE = 3, /* it is there, but for another tenant */
	PROTO_MISS_SHORT = 4,   /* what is alike is shorter than a page */
};

enum { PROTO_QUEUED_BYTES = 19 }; /* its payload */

struct proto_queued {
	uint32_t n_prompt, n_cached;
	uint8_t miss_reason;        /* enum proto_miss */
	uint32_t position;          /* sequences ahead that have not started */
	uint32_t predicted_ttft_us; /* from now, given credit at once */
	bool reasoning;             /* the prompt leaves the answer inside reasoning */
	bool guess; /* nothing else runs or waits, or no step was measured of late: nothing may be refused by it */
};

/* The bytes of tokens, which need not be whole characters; sent with log probabilities, for clients that don't know
 * the ids. */
struct proto_pieces {
	struct proto_str (*of)(const void *ctx, uint32_t id); /* encode; NULL: none are sent */
	const void *ctx;
	struct proto_str all; /* decode: a length byte and so many bytes for each; empty: none were sent */
};

struct proto_token {
	uint32_t id;
	float logprob;    /* natural logarithm, of the raw logits' softmax; NaN: not asked for */
	uint16_t n_bytes; /* of the frame's text released with this token; may be 0 */
};

struct proto_tokens {
	uint16_t n;
	uint8_t choice;                   /* below PROTO_MAX_CHOICES; 0 where there is one only */
	uint8_t n_top;                    /* likeliest tokens sent with each, at most PROTO_MAX_TOP_LOGPROBS */
	const uint8_t *records;           /* decode: n × (12 + 8 · n_top) bytes, by proto_token_at, proto_top_at */
	const struct proto_token *tokens; /* encode only */
	const struct proto_id_f32 *tops;  /* encode only: n × n_top, likeliest first */
	struct proto_str text;
	struct proto_pieces pieces; /* of each token, then of its n_top likeliest */
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
	PROTO_ERR_NOT_READY = 4,  /* model loading or failed */
	PROTO_ERR_OVERLOADED = 5, /* a queue is full */
	PROTO_ERR_INTERNAL = 6,   /* device fault and the like */
	/* BAD_REQUEST, of another field than the prompt */
	PROTO_ERR_BAD_STOP_IDS = 7,
	PROTO_ERR_BAD_LOGIT_BIAS = 8,
	PROTO_ERR_BAD_DOCUMENTS = 9,
	PROTO_ERR_BAD_KWARGS = 10, /* chat_template_kwargs */
	PROTO_ERR_NO_CHAT = 11,    /* a chat for a model without a chat template */
	PROTO_ERR_BAD_CONSTRAINT = 12,
	PROTO_ERR_BAD_WORDS = 13,
	PROTO_ERR_BAD_ADAPTER_NAME = 14, /* of an ADAPTER; BAD_REQUEST: its path, or its files */
	PROTO_ERR_NO_FOLDER = 15,        /* of an ADAPTER: its path is in none of this engine's folders of adapters */
	PROTO_ERR_LAST = PROTO_ERR_NO_FOLDER,
	/* PROTO_ERR_FIELD + an enum proto_refused: this engine can't do what that field asks for. */
	PROTO_ERR_FIELD = 32,
};

/* Fields of requests that an engine may have to refuse. */
enum proto_refused {
	PROTO_FIELD_TOP_K,
	PROTO_FIELD_MIN_P,
	PROTO_FIELD_TYPICAL_P,
	PROTO_FIELD_REPETITION_PENALTY,
	PROTO_FIELD_LENGTH_PENALTY,
	PROTO_FIELD_MIN_TOKENS,
	PROTO_FIELD_IGNORE_EOS,
	PROTO_FIELD_INCLUDE_STOP,
	PROTO_FIELD_PROMPT_LOGPROBS,
	PROTO_FIELD_BEST_OF,
	PROTO_FIELD_BEAM_SEARCH,
	PROTO_FIELD_THINKING,
	PROTO_FIELD_ALLOWED_IDS,
	PROTO_FIELD_CONTINUE,
	PROTO_FIELD_LOGPROBS,
	PROTO_FIELD_CACHE_SALT,
	PROTO_FIELDS,
};

/* The field's name in requests, of an error from PROTO_ERR_FIELD on; NULL: there is none. */
const char *proto_error_field(uint8_t error);

enum proto_length_why {
	PROTO_LENGTH_MAX_TOKENS = 0,
	PROTO_LENGTH_CONTEXT = 1,
	PROTO_LENGTH_DEADLINE = 2,
	PROTO_LENGTH_STOPPED = 3, /* a stop string or id ended a constrained answer before it was complete */
};

/* What of the request ended a choice with STOP. */
enum proto_stop {
	PROTO_STOP_NONE = 0,   /* nothing: the model did, or it did not stop */
	PROTO_STOP_STRING = 1, /* stops[stop_at] */
	PROTO_STOP_ID = 2,     /* the token stop_at of stop_ids */
	PROTO_STOP_LAST = PROTO_STOP_ID,
};

/* A part of the prompt's logprobs; the parts of one SUBMIT follow one another without a gap. */
struct proto_prompt_logprobs {
	uint32_t first; /* position of the first token in this frame */
	uint16_t n;     /* 1 … PROTO_MAX_TOKENS_PER_FRAME */
	uint8_t n_top;
	const uint8_t *records;             /* decode: n × (1 + n_top) × 8 bytes */
	const struct proto_id_f32 *entries; /* encode: n × (the token itself, then n_top rivals) */
	struct proto_pieces pieces;         /* of the same */
};

struct proto_choice {
	uint8_t choice;
	uint8_t finish; /* enum proto_finish: STOP, LENGTH */
	uint8_t length_why;
	uint8_t stop; /* enum proto_stop */
	uint32_t stop_at;
	uint32_t n_completion;
	float cumulative_logprob;
};

struct proto_done {
	uint8_t finish; /* of several choices: of choice 0 */
	uint8_t error;
	uint8_t length_why;
	uint8_t stop; /* enum proto_stop; of several choices: of choice 0 */
	uint32_t stop_at;
	uint32_t n_prompt, n_cached;
	uint32_t n_completion; /* of several choices: of all that were made; without given ones */
	uint32_t queue_us, prefill_us, decode_us;
	uint32_t n_drafted, n_accepted; /* tokens in verified drafts, of all choices; those accepted */
	uint32_t retry_after_s;         /* with OVERLOADED: what a server that this engine uses asks for; 0: nothing */
	struct proto_str message;       /* for errors: one sentence for the client */
};

enum proto_count_wants {
	PROTO_COUNT_IDS = 1,   /* the tokens' ids, PROTO_MAX_LISTED at most */
	PROTO_COUNT_TEXT = 2,  /* of a prompt of tokens: their text, control tokens and all */
	PROTO_COUNT_PLAIN = 4, /* of a prompt of text: without the tokens that the model's prompts begin with */
};

struct proto_count {
	uint16_t model;
	uint8_t prompt_kind;
	uint8_t priority; /* as in SUBMIT, as is tenant */
	uint8_t wants;    /* enum proto_count_wants, bits */
	uint64_t tenant;
	struct proto_str prompt;
};

/* How long a tenant wants the weights of a model on demand to stay in memory without work, until they leave it. */
struct proto_keep {
	uint16_t model;
	uint64_t tenant;  /* as in SUBMIT */
	uint32_t keep_ms; /* after the tenant's last use */
};

/* Loads the adapter at path, which is below one of the engine's folders of adapters, under this name, in place of what
 * had it; or unloads the one of that name. Its answer is a COUNTED without tokens. */
struct proto_adapter {
	bool load;
	struct proto_str name, path; /* path: to load */
};

/* The least level of each subsystem of the log (base/log.h), in its order. An engine that knows fewer subsystems
 * ignores the rest, one that knows more keeps theirs. */
struct proto_levels {
	uint8_t n;
	uint8_t least[PROTO_MAX_LEVELS];
};

/* What an engine has stored of this tenant's texts on disk is erased. */
struct proto_erase {
	uint64_t tenant; /* as in SUBMIT */
};

struct proto_counted {
	uint8_t error; /* enum proto_error */
	uint32_t n_tokens;
	struct proto_str message;
	struct proto_str ids;  /* n_tokens × u32, little endian; or empty */
	struct proto_str text; /* whole UTF-8 */
};

/* State of the engine's device; values that it does not report are 0. */
struct proto_device {
	uint32_t known; /* 0: nothing is, there may be no device; otherwise 1 */
	uint32_t busy_percent, memory_busy_percent;
	uint32_t celsius, milliwatts, limit_milliwatts, sm_mhz, memory_mhz;
	uint32_t slowed; /* bits of enum proto_slowed */
	uint32_t nvlinks;
	uint64_t memory_bytes, memory_used_bytes, ecc_uncorrected;
	uint64_t nvlink_replays, nvlink_crc, pcie_replays; /* so far */
	uint64_t pcie_sent, pcie_received;                 /* bytes a second */
	uint64_t xids;                                     /* critical errors since the engine's start */
	uint32_t last_xid;
};

/* Why its clocks are low. */
enum proto_slowed {
	PROTO_SLOWED_POWER = 1,
	PROTO_SLOWED_THERMAL = 2,
	PROTO_SLOWED_HARDWARE = 4,
	PROTO_SLOWED_OTHER = 8,
};

/* What went wrong with another server that runs the models (engine/remote). */
enum proto_fault {
	PROTO_FAULT_RESOLVE,   /* its name has no address */
	PROTO_FAULT_CONNECT,   /* no connection */
	PROTO_FAULT_TLS,       /* no TLS, or a certificate that is not trusted */
	PROTO_FAULT_KEY,       /* 401, 403 */
	PROTO_FAULT_NO_MODEL,  /* 404 */
	PROTO_FAULT_LIMITED,   /* 429 */
	PROTO_FAULT_REFUSED,   /* other statuses from 400 to 499 */
	PROTO_FAULT_SERVER,    /* 500 and above, or an error within a stream */
	PROTO_FAULT_REDIRECT,  /* 300 to 399 */
	PROTO_FAULT_HEADERS,   /* a head that is too long */
	PROTO_FAULT_NO_STREAM, /* a body of another type */
	PROTO_FAULT_EVENT,     /* an event that is no JSON, or not of the expected form */
	PROTO_FAULT_LONG,      /* an event or a line that is too long */
	PROTO_FAULT_CUT,       /* the stream ended before the answer */
	PROTO_FAULT_STALL,     /* silence */
	PROTO_FAULT_SLOW,      /* over the bound on the whole answer */
	PROTO_FAULT_AWAY,      /* 503, or an error within a stream that says that its engine is not there */
	PROTO_FAULTS,
};

/* A server that runs the models; counters so far. */
struct proto_upstream {
	uint32_t known; /* 0: there is none; otherwise 1 */
	uint32_t open;  /* 1: it failed, and nothing is sent to it for now */
	uint64_t retries, openings, false_usages;
	uint64_t faults[PROTO_FAULTS];
	/* Its own metrics, while `reports` is 1: all requests there; those that this engine did not send; KV in use. */
	uint32_t reports, running, waiting, others, kv_permille;
	uint64_t reads, failed_reads; /* of its metrics, so far; failed: for whatever reason */
};

struct proto_stats {
	uint32_t running; /* sequences in the batch, or paused with pages */
	uint32_t waiting; /* queued, not started */
	uint32_t pages_total, pages_free;
	uint64_t steps, prefill_tokens, decode_tokens;
	uint64_t submitted, finished, cancelled, failed;   /* failed: displaced ones, too */
	uint64_t displaced;                                /* from the queue, by a newcomer */
	uint32_t us_per_prefill_token, us_per_decode_step; /* moving averages */
	uint64_t prefix_queries, prefix_hits;              /* prompt tokens looked up in the prefix tree; found */
	uint64_t preemptions;
	uint32_t prefix_pages;     /* held by the prefix tree */
	uint32_t kv_used_permille; /* of all pages: those of running sequences and of the tree */
	uint64_t spec_drafts, spec_drafted, spec_accepted; /* drafts, tokens in them, and those accepted */
	uint64_t swapped_out, swapped_in; /* pages of pre-empted sequences, to the host's memory and back */
	uint64_t swap_full;               /* pre-emptions that found no room there */
	uint64_t forced_tokens;           /* tokens of constrained answers that were taken without a draw */
	uint32_t swap_places, swap_used;  /* pages that find room there, and those that do */
	struct proto_device device;
	uint64_t kv_bytes, kv_withheld;    /* memory for keys and values; of that, given back to the system for now */
	uint64_t kv_released, kv_restored; /* bytes given back so far; that may be used again */
	uint32_t models_here,
	    load_waiting; /* on demand: models whose weights are in memory; requests that wait for some */
	uint64_t model_loads, model_drops; /* of weights, so far */
	uint64_t model_load_ms;            /* that they took together */
	/* Pages of keys and values on disk. */
	uint64_t kv_disk_bytes, kv_disk_pages;                     /* stored now */
	uint64_t kv_disk_hits[3];                                  /* read so far, by policy: lru, lfu, ttl */
	uint64_t kv_disk_misses[5];                                /* by reason: absent, slow, busy, late, failed */
	uint64_t kv_disk_written, kv_disk_evicted, kv_disk_erased; /* pages */
	uint64_t kv_disk_dropped;                                  /* not written */
	uint64_t kv_disk_errors[3];                                /* of reading, of writing; damaged pages */
	uint64_t kv_disk_read_bytes, kv_disk_write_bytes, kv_disk_read_us, kv_disk_write_us;
	struct proto_upstream upstream;
	uint32_t adapters_here;                /* in memory */
	uint64_t adapter_bytes;                /* that they take */
	uint64_t adapter_loads, adapter_drops; /* into memory and out of it, so far */
	/* 1: the device or the processor is slowed, and steps keep the tiers' targets; sequences that wait for it,
	 * started; how often it came to that. */
	uint32_t slowed, held;
	uint64_t slowdowns;
};

/* What STATS has for the whole engine, of one model. */
struct proto_figures {
	uint32_t running, waiting; /* waiting: its text is tokens already */
	uint32_t pages_total, pages_free;
	uint64_t prefill_tokens, decode_tokens;
	uint64_t prefix_queries, prefix_hits, preemptions;
	uint64_t spec_drafts, spec_drafted, spec_accepted;
};

/* What a request with a short prompt would meet now, of a tenant without others. */
struct proto_load {
	uint16_t model;
	bool idle; /* nothing runs or waits, of any model: no reason to refuse anything */
	struct proto_figures figures;
	struct proto_line {
		uint32_t waiting;      /* of this priority, not started */
		uint32_t wait_us;      /* until its first token; 0 also while no step was measured of late */
		uint32_t places_free;  /* so many could start at once: those of worse ones count as free */
		uint32_t us_per_place; /* while none is free: in so long one becomes free, on the average */
	} of[PROTO_PRIORITIES];
};

/* A prompt's pages pass through the area that engines share (engine/handover/hand_area.h). Before the first CREDIT of
 * its sequence, except OVER. An engine that can't ignores OFFER, and answers AWAIT at once. */
enum proto_hand_what {
	PROTO_HAND_OFFER = 1, /* of a PREFILL_ONLY: its pages are offered to another engine */
	PROTO_HAND_AWAIT = 2, /* it waits for the pages that another engine offers, as far as it lacks them */
	PROTO_HAND_OVER = 3,  /* it awaits pages: no more come than are offered now */
};

enum {
	PROTO_HAND_WRITERS = 8,       /* engines by number */
	PROTO_HAND_WAIT_MS = 3600000, /* the longest */
};

struct proto_hand {
	uint8_t what;     /* enum proto_hand_what */
	uint8_t writer;   /* the number of the engine that offers */
	uint64_t handle;  /* unique; not 0 */
	uint32_t from;    /* tokens that the awaiting engine has */
	uint32_t wait_ms; /* that it waits at most, from now */
};

/* Why it waits no longer. Whatever has come is used, the rest is computed. */
enum proto_handed_why {
	PROTO_HANDED_ALL,     /* all pages have come */
	PROTO_HANDED_LATE,    /* the time is over */
	PROTO_HANDED_ENDED,   /* the other engine has ended, or has given up */
	PROTO_HANDED_FULL,    /* the shared area had no room for more */
	PROTO_HANDED_FOREIGN, /* a page was damaged, or not the one that its name says */
	PROTO_HANDED_ROOM,    /* the pool had no pages for them */
	PROTO_HANDED_GONE,    /* pages before them were evicted meanwhile, or all of them came otherwise */
	PROTO_HANDED_UNFIT,   /* the request or the model can't await pages */
	PROTO_HANDED_WHYS,
};

struct proto_handed {
	uint8_t why;      /* enum proto_handed_why */
	uint32_t n_pages; /* that have come */
	uint64_t bytes;   /* of them */
	uint32_t waited_us;
	uint32_t steps; /* that the engine ran from when it saw the last page offered until the sequence's first one */
};

struct proto_verified {
	uint32_t n_agreed, n_used; /* n_agreed ≤ n_used ≤ PROTO_MAX_GIVEN */
};

/* A vector as it was pooled, not normalized; of a PAIR one number, the logit of its relevance. All are finite. */
struct proto_embedding {
	uint16_t n;             /* 1 … PROTO_MAX_EMBEDDING */
	const float *values;    /* encode */
	const uint8_t *records; /* decode: n × 4 bytes, for proto_embedding_read */
};

/* Changes in their order. A digest is even; with its lowest bit set it has entered, otherwise it has left. */
struct proto_prefixes {
	bool anew;               /* all that were published before have left */
	uint16_t n;              /* 0 … PROTO_MAX_PREFIXES */
	const uint64_t *changes; /* encode */
	const uint8_t *records;  /* decode: n × 8 bytes, for proto_prefix_at */
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
int proto_put_keep(struct sl_buf *out, const struct proto_keep *m);
int proto_put_levels(struct sl_buf *out, const struct proto_levels *m);
int proto_put_erase(struct sl_buf *out, const struct proto_erase *m);
int proto_put_adapter(struct sl_buf *out, uint64_t id, const struct proto_adapter *m);
int proto_put_hand(struct sl_buf *out, uint64_t id, const struct proto_hand *m);
int proto_put_count(struct sl_buf *out, uint64_t id, const struct proto_count *m);
int proto_put_ping(struct sl_buf *out, uint64_t nonce);
int proto_put_model(struct sl_buf *out, const struct proto_model *m);
int proto_put_queued(struct sl_buf *out, uint64_t id, const struct proto_queued *m);
int proto_put_tokens(struct sl_buf *out, uint64_t id, const struct proto_tokens *m);
int proto_put_prompt_logprobs(struct sl_buf *out, uint64_t id, const struct proto_prompt_logprobs *m);
int proto_put_choice(struct sl_buf *out, uint64_t id, const struct proto_choice *m);
int proto_put_done(struct sl_buf *out, uint64_t id, const struct proto_done *m);
int proto_put_counted(struct sl_buf *out, uint64_t id, const struct proto_counted *m);
int proto_put_stats(struct sl_buf *out, const struct proto_stats *m);
int proto_put_pong(struct sl_buf *out, uint64_t nonce);
int proto_put_leave(struct sl_buf *out);
int proto_put_load(struct sl_buf *out, const struct proto_load *m);
int proto_put_verified(struct sl_buf *out, uint64_t id, const struct proto_verified *m);
int proto_put_handed(struct sl_buf *out, uint64_t id, const struct proto_handed *m);
int proto_put_embedding(struct sl_buf *out, uint64_t id, const struct proto_embedding *m);
int proto_put_prefixes(struct sl_buf *out, const struct proto_prefixes *m);
int proto_put_bye(struct sl_buf *out, const struct proto_bye *m);

/* ---- decoders: read a whole payload; strings borrow from it. 0 or SL_EPROTO: too short, too
 *      long, or a field outside its bound ---- */
int proto_get_hello(const uint8_t *p, size_t n, struct proto_hello *out, struct sl_err *err);
int proto_get_submit(const uint8_t *p, size_t n, struct proto_submit *out, struct sl_err *err);
int proto_get_credit(const uint8_t *p, size_t n, struct proto_credit *out, struct sl_err *err);
int proto_get_keep(const uint8_t *p, size_t n, struct proto_keep *out, struct sl_err *err);
int proto_get_levels(const uint8_t *p, size_t n, struct proto_levels *out, struct sl_err *err);
int proto_get_erase(const uint8_t *p, size_t n, struct proto_erase *out, struct sl_err *err);
int proto_get_adapter(const uint8_t *p, size_t n, struct proto_adapter *out, struct sl_err *err);
int proto_get_hand(const uint8_t *p, size_t n, struct proto_hand *out, struct sl_err *err);
int proto_get_count(const uint8_t *p, size_t n, struct proto_count *out, struct sl_err *err);
int proto_get_model(const uint8_t *p, size_t n, struct proto_model *out, struct sl_err *err);
int proto_get_queued(const uint8_t *p, size_t n, struct proto_queued *out, struct sl_err *err);
int proto_get_tokens(const uint8_t *p, size_t n, struct proto_tokens *out, struct sl_err *err);
int proto_get_prompt_logprobs(const uint8_t *p, size_t n, struct proto_prompt_logprobs *out, struct sl_err *err);
int proto_get_choice(const uint8_t *p, size_t n, struct proto_choice *out, struct sl_err *err);
int proto_get_done(const uint8_t *p, size_t n, struct proto_done *out, struct sl_err *err);
int proto_get_counted(const uint8_t *p, size_t n, struct proto_counted *out, struct sl_err *err);
int proto_get_stats(const uint8_t *p, size_t n, struct proto_stats *out, struct sl_err *err);
int proto_get_load(const uint8_t *p, size_t n, struct proto_load *out, struct sl_err *err);
int proto_get_verified(const uint8_t *p, size_t n, struct proto_verified *out, struct sl_err *err);
int proto_get_handed(const uint8_t *p, size_t n, struct proto_handed *out, struct sl_err *err);
int proto_get_embedding(const uint8_t *p, size_t n, struct proto_embedding *out, struct sl_err *err);
int proto_get_prefixes(const uint8_t *p, size_t n, struct proto_prefixes *out, struct sl_err *err);
int proto_get_bye(const uint8_t *p, size_t n, struct proto_bye *out, struct sl_err *err);

/* The i-th record of a decoded TOKENS frame, i < m->n, and the k-th likeliest token beside it,
 * k < m->n_top. */
struct proto_token proto_token_at(const struct proto_tokens *m, uint16_t i);
struct proto_id_f32 proto_top_at(const struct proto_tokens *m, uint16_t i, uint8_t k);
/* A decoded TOKENS frame without its first k tokens, k ≤ m->n, and what came with them. */
void proto_tokens_skip(const struct proto_tokens *m, uint16_t k, struct proto_tokens *rest);
/* Takes the next piece of decoded ones from the front of *all. */
struct proto_str proto_piece_next(struct proto_str *all);
/* Of a decoded PROMPT_LOGPROBS frame: k = 0 is the i-th token itself (NaN for the prompt's first,
 * which nothing predicts), k = 1 … n_top the likeliest at its place. */
struct proto_id_f32 proto_prompt_logprob_at(const struct proto_prompt_logprobs *m, uint16_t i, uint8_t k);
/* The i-th bias of a SUBMIT, encoded or decoded. */
struct proto_id_f32 proto_bias_at(const struct proto_submit *m, uint16_t i);
/* All numbers of a decoded EMBEDDING frame. */
void proto_embedding_read(const struct proto_embedding *m, float *out);
/* The i-th change of a decoded PREFIXES frame, i < m->n. */
uint64_t proto_prefix_at(const struct proto_prefixes *m, uint16_t i);
/* The i-th given token of a SUBMIT, encoded or decoded. */
uint32_t proto_given_at(const struct proto_submit *m, uint16_t i);
/* The i-th bad word of a SUBMIT, encoded or decoded. */
struct proto_str proto_bad_word_at(const struct proto_submit *m, int i);

#endif
