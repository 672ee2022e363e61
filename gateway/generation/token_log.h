/* SPDX-License-Identifier: Apache-2.0
 *
 * The token log of a generation: its tokens with their text, pieces and rivals, the ends of its choices, QUEUED and
 * DONE. Each token is appended once, by the generation that has the engine's sequence.
 *
 *   writer   the thread of that generation: the only one that changes a log; it reads without the lock
 *   shared   a log on the heap with counted references, which readers on any thread copy from, under its lock.
 *            A log that is not shared has no lock.
 *   whole    a shared log that has its first token: it may be joined. It stays whole up to TOKEN_LOG_BYTES, and, while
 *            nothing reads it, up to TOKEN_LOGS_BYTES in all logs. Beyond that, tokens that all readers and the writer's
 *            subscriber have taken are dropped, and a reader that is more than TOKEN_LOG_BYTES behind is lost.
 *   reader   another generation's cursor in a shared log. A message to its thread (gw_post) wakes it when there is
 *            more; a message wakes the writer when the fastest reader moves or the last one leaves.
 *
 * Indexes are absolute: token 0 is the answer's first.
 */
#ifndef GATEWAY_TOKEN_LOG_H
#define GATEWAY_TOKEN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "gateway/loop/thread.h"

enum { TOKEN_LOG_BYTES = 256 << 10, TOKEN_LOGS_BYTES = 64 << 20 };

enum { TOKEN_TEXT, TOKEN_PIECES, TOKEN_RECORDS, TOKEN_PARTS };

struct token_choice {
	uint64_t token_ns; /* the generation's: arrival of its last token; 0: none, or no gap to the next */
	uint64_t after;    /* ended behind so many tokens of the log */
	uint8_t finish;    /* enum proto_finish; 0: not yet */
	uint8_t why;       /* enum proto_length_why */
	uint8_t stop;      /* enum proto_stop */
	uint32_t stop_at;
};

/* Embedded, or shared (token_log_create). The first fields are those of each token. */
struct token_log {
	uint64_t first, end;          /* tokens first … end - 1 are here */
	struct token_share *share;    /* NULL: not shared */
	struct token_choice *choices; /* [n_choices]; &only for one */
	uint8_t n_choices, n_top;
	uint16_t record_bytes;
	bool is_queued, ended;
	uint32_t base[TOKEN_PARTS]; /* where each part begins, counted from token 0, modulo 2^32 */
	struct sl_buf parts[TOKEN_PARTS];
	struct token_choice only;
	uint64_t seed; /* of the sequence */
	struct proto_queued queued;
	struct proto_done done;
	char *message; /* owned */
};

/* A run of tokens of one choice. Borrowed until the next call on its generation. */
struct gen_chunk {
	uint64_t first_token;
	uint32_t n_tokens;
	uint8_t choice;
	const char *text;
	size_t n_bytes;
};

/* One token, with what was asked for: its log probability (NaN: not asked), its bytes and
 * then those of its n_top likeliest rivals (proto_piece_next takes them). */
struct gen_token {
	uint32_t id;
	float logprob;
	size_t n_bytes; /* of the text released with it */
	struct proto_str pieces;
	const struct proto_id_f32 *tops;
	uint8_t n_top;
};

/* ---- any log, on its writer's thread ---- */

/* A log that is not shared. SL_ENOMEM; dispose of it also then. */
int token_log_init(struct token_log *log, uint8_t n_choices, uint8_t n_top, uint64_t seed);
void token_log_dispose(struct token_log *log);
/* A later QUEUED changes position and prediction only. */
void token_log_queued(struct token_log *log, const struct proto_queued *m);
/* A decoded message, all of it or, without memory, nothing. */
int token_log_append(struct token_log *log, const struct proto_tokens *m);
void token_log_choice(struct token_log *log, const struct proto_choice *m);
/* Once; nothing follows. Ends the choices that have not ended. Borrows m's message for the life of the log. A shared
 * log with an error can't be joined. */
void token_log_end(struct token_log *log, const struct proto_done *m);
/* A copy that lives as long as the log; empty without memory. Once. */
struct proto_str token_log_keep(struct token_log *log, struct proto_str message);
/* The generation's own subscriber has tokens up to `to`. */
void token_log_take(struct token_log *log, uint64_t to);
/* At most `most` tokens from `at` on, at least first. False: none. */
bool token_log_run(const struct token_log *log, uint64_t at, uint32_t most, struct gen_chunk *out);
void token_log_token(const struct token_log *log, uint64_t index, struct gen_token *out);

/* ---- shared logs, on any thread ---- */

/* ended(ctx, log): once, on the writer's thread, outside the lock. The caller has one reference. NULL: no memory. */
struct token_log *token_log_create(void (*ended)(void *ctx, struct token_log *log), void *ctx);
struct token_log *token_log_ref(struct token_log *log);
void token_log_unref(struct token_log *log);
/* The directory's name for it; under the directory's lock, or before another thread has the log. */
struct coalesce_name;
void token_log_set_name(struct token_log *log, struct coalesce_name *name);
struct coalesce_name *token_log_name(const struct token_log *log);
/* It is whole and has not failed. */
bool token_log_joinable(struct token_log *log);
/* t is the writer from now on. Moves `from`, which is not shared, into log; from is empty afterwards. moved(ctx) is
 * called on t, not after token_log_end. */
void token_log_own(struct token_log *log, struct token_log *from, struct gw_thread *t, void (*moved)(void *ctx),
		   void *ctx);
/* How many readers it has (0 where it is not shared), and how many tokens the fastest of all so far has taken. */
unsigned token_log_readers(const struct token_log *log, uint64_t *most);

/* ---- readers, each on its thread ---- */

struct token_reader;

enum token_news {
	TOKEN_NOTHING,
	TOKEN_MORE,
	TOKEN_ALL,  /* and nothing follows */
	TOKEN_LOST, /* too far behind, or no memory; nothing follows */
};

/* ready(ctx) is called on t, from its loop, once soon and then when there is more. Takes a reference of its own.
 * SL_ERANGE: log can't be joined; SL_ENOMEM. */
int token_log_read(struct token_log *log, struct gw_thread *t, void (*ready)(void *ctx), void *ctx,
		   struct token_reader **out);
/* View, a log of the same shape that is not shared, becomes a copy: of the tokens from `at` on, which the reader wants
 * next, at most `most`; of QUEUED, the seed and the choices' ends; with TOKEN_ALL of DONE, whose message lives until
 * the reader closes. */
enum token_news token_reader_sync(struct token_reader *rd, uint64_t at, uint32_t most, struct token_log *view);
/* Paces the writer: the reader has n tokens. */
void token_reader_moved(struct token_reader *rd, uint64_t n);
void token_reader_close(struct token_reader *rd);

#endif
