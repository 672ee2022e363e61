/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence: one accepted request from submit to DONE, or one further choice (a follower) of such a request. Private
 * to engine/.
 *
 * Thread: the submitting thread until the sequence is in the engine's index, then the step thread. Exceptions: `text`
 * belongs to a text worker until its mail returns; `signals` is guarded by the index's lock.
 *
 * eng_seq_set_state is the only function that changes the state:
 *   NEW → TEXT                  engine_submit; a follower passes through TEXT at once
 *   TEXT → WAITING              step.c on the worker's mail; make_follower in choices.c (NEW → TEXT → WAITING)
 *   WAITING → PREFILL → DECODE  batch.c: the step that starts it, and its last prompt row
 *   PREFILL, DECODE → WAITING   batch_preempt
 *   WAITING, PREFILL, DECODE → ENDED   step_rest: a lead that waits for its followers
 *   any but NEW → DONE          step_finish; for a follower step_leave
 */
#ifndef ENGINE_SEQ_H
#define ENGINE_SEQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "base/proto/proto.h"
#include "engine/sched/idmap.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_hand.h"
#include "engine/kv/kv_swap.h"
#include "engine/sched/wait_limits.h"
#include "engine/sched/ngram.h"
#include "engine/kv/prefix.h"
#include "engine/kv/prefix_book.h"
#include "engine/sample/sampler.h"
#include "engine/sched/sched.h"
#include "engine/sched/spec.h"
#include "engine/step/constrain.h"
#include "engine/step/text_stream.h"
#include "engine/token/tokenizer.h"

/* What a request waits for before it reaches the step thread. */
enum text_line { TEXT_PROMPTS, TEXT_CONSTRAINTS, TEXT_LINES };

enum eng_seq_state {
	SEQ_NEW,     /* not counted anywhere */
	SEQ_TEXT,    /* a text worker has it */
	SEQ_WAITING, /* tokens known; not started, or pre-empted: no slot, no pages */
	SEQ_PREFILL, /* has a slot */
	SEQ_DECODE,  /* all but the last token are in its pages */
	SEQ_ENDED,   /* a lead whose own choice has ended before others */
	SEQ_DONE,    /* DONE is reported; freed once no worker holds it */
	SEQ_N_STATES,
};

/* Sequences per state, and totals for the metrics. */
struct eng_counters {
	atomic_uint in_state[SEQ_N_STATES];
	atomic_ullong submitted, finished, cancelled, failed, displaced;
};

struct eng_model;
struct lora_version;
struct choices;

/* Mail to the step thread begins with its kind. */
enum step_mail_kind { STEP_TEXT, STEP_MODEL, STEP_WEIGHTS };
struct step_mail {
	struct mail mail;
	enum step_mail_kind kind;
};

/* Input and result of a text worker. */
struct seq_text {
	uint16_t model;
	uint8_t prompt_kind;
	struct proto_str prompt; /* in the sequence's own memory, as is constraint */
	uint8_t constraint_kind; /* enum proto_constraint */
	struct proto_str constraint;
	bool counting;
	uint8_t no_adapter;               /* enum proto_error: its adapter has failed, or has gone */
	bool searching;                   /* a beam search with options that it does not support */
	atomic_bool unwanted;             /* cancelled: the worker skips the work */
	struct tok_ids ids;               /* the result */
	struct grammar *grammar;          /* the constraint, compiled; owned; NULL: none */
	enum constrain_phase phase;       /* that its answer begins with */
	uint8_t n_bad_words, count_wants; /* the latter: of a COUNT, enum proto_count_wants */
	struct proto_str *bad_words;      /* owned, with their texts behind them */
	struct tok_ids bad_ids;           /* the result: their tokens */
	uint32_t n_first;                 /* of a pair: tokens of the first text, with those around it; otherwise all */
	uint8_t error;                    /* enum proto_error */
	struct sl_err err;                /* why, for the client */
};

/* Requests of other threads since the step thread last took them; under the index's lock. */
struct seq_signals {
	struct list in_signaled;
	uint32_t credit;
	bool cancel, fresh;
	bool displaced; /* by a new request, unless it has begun */
	bool hand_over;
	struct proto_hand hand; /* what 0: none */
};

/* Speculation (engine/step/spec_step.c). */
struct seq_spec {
	struct ngram said;
	struct spec_rate rates[SPEC_SOURCES]; /* accept 0: not begun */
	uint8_t source;                       /* enum spec_source: of the draft in this step */
	uint8_t n_draft;
	int32_t draft[SPEC_MAX_DRAFT];
	int32_t state;                    /* of its layers before the draft, a slot; -1: none */
	uint32_t small_past, small_pages; /* of the drafter's own pages: tokens in them, and how many */
	/* Where the drafter's layers keep a state: a slot with that of small_kept tokens, the text when it began its
	 * last draft, or -1; and how many tokens of that draft, which nothing has settled yet, are in the state. */
	int32_t small_state;
	uint32_t small_kept, small_fed;
	/* Of a layer that drafts (head_drafts.c): the positions whose hidden rows were kept, those of a draft included,
	 * until the oldest were overwritten; the first position that it has, and how many. */
	uint32_t kept_from, kept_end, head_base, head_past;
	uint32_t n_drafted, n_accepted; /* for DONE; of all choices in the lead */
};

/* The beginning of an answer that another model made (engine/step/draft_prefix.c). */
struct seq_draft_prefix {
	int32_t *ids; /* owned; moved behind the prompt's tokens once they are known */
	uint32_t n, n_keep, max_new;
	uint32_t n_left; /* unverified tokens, after its own */
	uint32_t n_agreed, n_used;
	bool open; /* VERIFIED is not sent yet */
};

struct eng_seq {
	struct step_mail mail;  /* to the text workers and from there to the step thread */
	struct idmap_node node; /* in the index; key: the identifier */
	struct seq_signals signals;
	struct seq_text text;
	struct fair_item in_text[TEXT_LINES]; /* under the text queue's lock */
	struct wait_entry wait_entry;         /* of a request, in its lead; under the index's lock */
	char *mem;                            /* owned: the prompt and the constraint */

	enum eng_seq_state state; /* by eng_seq_set_state only */
	struct list in_all;
	bool with_worker;       /* its text mail is still to come */
	struct sched_seq sched; /* what the scheduler needs: order, priority, tenant, credit, tokens in pages */

	/* The request. */
	struct lora_version *lora; /* with a reference; NULL: no adapter */
	uint64_t tenant_digest;
	struct sampler_params sampling; /* its lists: bias and stop_ids here, end_ids the model's */
	struct proto_id_f32 *bias;      /* owned; with room for bad_ids */
	int32_t stop_ids[PROTO_MAX_STOP_IDS];
	uint32_t weight;             /* of the tenant */
	uint8_t prompt_logprobs;     /* as in SUBMIT */
	uint32_t prompt_reported;    /* prompt tokens whose log probability was reported */
	bool prefill_only;           /* PROTO_SUBMIT_PREFILL_ONLY */
	bool embed;                  /* PROTO_SUBMIT_EMBED: its result is an embedding or a score */
	bool shares;                 /* PROTO_SUBMIT_SHARED_PREFIX */
	bool unshared;               /* neither reuses pages of the prefix tree nor adds pages to it */
	uint64_t salt;               /* of the prefixes that it may share */
	uint64_t cache_salt;         /* as in SUBMIT, and part of salt */
	uint64_t owner;              /* of its prefixes: the tenant, or 0 if tenants share them */
	struct prefix_text *borders; /* of its prompt, until that is computed; owned; NULL: not published */
	uint32_t max_tokens, credit;
	uint32_t thinking_tokens; /* as in SUBMIT */
	uint64_t deadline_ns;     /* UINT64_MAX: none */
	struct heap_node by_deadline;
	uint64_t pace_each_ns, pace_early_ns, pace_next_ns;
	struct text_stream stream;

	/* The work. */
	struct eng_model *model; /* set when its text is ready */
	int32_t *tokens;         /* prompt, answer and unverified draft prefix; owned */
	size_t tokens_cap;
	uint32_t n_prompt, n_made;
	uint32_t n_first;            /* of n_prompt: tokens of the first text; those behind have the second type */
	uint32_t n_cached;           /* of the prompt, when it first started */
	uint8_t miss;                /* enum proto_miss: why the rest was not cached */
	int slot;                    /* row of the model's page tables; -1: none */
	uint8_t n_coming;            /* tokens that steps in flight draw for it (engine/step/in_flight.h) */
	uint32_t n_flying;           /* of n_past: tokens whose rows are in flight */
	uint32_t n_rows;             /* of n_past: its rows in the step being built */
	int32_t coming_from;         /* the last of n_coming: index of its draw; -1: on the host */
	struct kv_swapped swapped;   /* its pages in host memory while it has no slot */
	bool arriving;               /* their copies to the device may be in flight */
	struct kv_disk_turn on_disk; /* whether it looked for its pages there */
	struct kv_hand_turn hand;    /* its prompt's pages pass between engines */
	struct prefix_path path;
	struct prefix_waiter waiter;
	struct sampler_state said; /* for the penalties; empty when there are none */
	uint8_t length_why;
	uint8_t stop; /* enum proto_stop, as stop_at is for DONE and CHOICE */
	uint32_t stop_at;
	struct seq_spec spec;
	int32_t coming_state; /* a slot with its state after the step in flight (in_flight_keep_state); -1: none */
	struct seq_draft_prefix draft_prefix;
	struct seq_constraint constraint;

	/* Several choices. */
	struct choices *choices; /* owned by the lead, borrowed by followers; NULL: one choice */
	uint8_t choice, n_choices, best_of, beam_width;
	float length_penalty;
	uint32_t n_reserved; /* followers admitted with this sequence and not created yet */

	/* Clocks. */
	uint64_t arrived_ns, queued_ns, credited_ns, started_ns, first_ns;
	double predicted_ns; /* from queued_ns to the first token */
	bool found_busy;     /* other sequences ran or waited when it was predicted */
};

/* The salt of its prefixes, which are of what its adapter adds; shared: across tenants. */
uint64_t eng_seq_salt(const struct eng_seq *s, bool shared);
/* The same for an adapter of this digest, of what it is without one. */
uint64_t eng_seq_salt_of(uint64_t salt, uint64_t digest);
/* Gives it an adapter, whose reference it takes, in place of what it had. It must not have begun. */
void eng_seq_set_lora(struct eng_seq *s, struct lora_version *v);
/* Looks up the bytes of its tokens, if wanted (for log probabilities). */
struct proto_pieces eng_seq_pieces(const struct eng_seq *s, bool wanted);
/* Copies the request. 0 or SL_ENOMEM. */
int eng_seq_create(uint64_t id, const struct proto_submit *req, struct eng_seq **out);
/* Another choice of the same request, NEW. Borrows the lists of lead, which must outlive it. */
int eng_seq_follow(const struct eng_seq *lead, uint8_t choice, struct eng_seq **out);
/* s must be NEW or DONE, without slot and worker. */
void eng_seq_free(struct eng_seq *s);

/* BUG on a transition that the table above lacks. Counts in c. */
void eng_seq_set_state(struct eng_counters *c, struct eng_seq *s, enum eng_seq_state to);

/* Saturates. */
static inline void eng_add_credit(uint32_t *credit, uint32_t n)
{
	if (__builtin_add_overflow(*credit, n, credit))
		*credit = UINT32_MAX;
}

/* Its prompt and its answer so far. */
static inline uint32_t eng_seq_n_own(const struct eng_seq *s) { return s->n_prompt + s->n_made; }

/* All tokens to compute. */
static inline uint32_t eng_seq_n_tokens(const struct eng_seq *s) { return eng_seq_n_own(s) + s->draft_prefix.n_left; }

/* Advances the pace: a token was made at now_ns. */
void eng_seq_pace(struct eng_seq *s, uint64_t now_ns);
/* When the pace allows the next token, rounded up to a grid of the clock so that tokens of several paced sequences
 * share steps: a row costs more in a step with few rows. */
uint64_t eng_seq_due(const struct eng_seq *s);

#endif
