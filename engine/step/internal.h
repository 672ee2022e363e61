/* SPDX-License-Identifier: Apache-2.0
 *
 * State shared by the files of engine/: the engine, its models, the text queue and the step thread's mailbox.
 * Private to engine/. Each field's comment names its thread or lock.
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/kv/kv.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_hand.h"
#include "engine/kv/kv_swap.h"
#include "engine/lora/lora.h"
#include "engine/model/model.h"
#include "engine/kv/prefix.h"
#include "engine/token/prompt_memo.h"
#include "engine/step/seq.h"
#include "engine/model/weight_cache.h"
#include "engine/sched/keep_alive.h"
#include "engine/sched/residency.h"

/* A model of the configuration. The loader fills it and mails it to the step thread. From then on `model` and its
 * content are constant until engine_destroy, even if the device fails. */
struct eng_model {
	struct step_mail mail; /* loaded, or not */
	struct engine *e;
	int index;
	char *name, *path;
	char *head_path; /* of the layer that drafts, if it has a file of its own; or NULL */
	int role;
	int quantize;       /* enum kn_type that the loader converts to, or -1 */
	bool fp8;           /* the backend converts matrices of floats to its own FP8 */
	char *pooling;      /* as configured; NULL: as its files say */
	int shortens;       /* as configured; -1: as its files say */
	int kv_type;        /* of its pages; -1: unknown name in the configuration */
	bool kv_auto;       /* its family decides, once that is known */
	atomic_int state;   /* enum proto_model_state; written by the step thread */
	atomic_int percent; /* of its loading; written by the loader */
	struct {
		uint32_t n_ctx, n_vocab, n_embd;
		uint8_t does, n_lengths;
		uint32_t lengths[PROTO_MAX_LENGTHS];
		uint64_t n_params, tokenizer;
		char reason[PROTO_MAX_MESSAGE + 1];
	} shown; /* to other threads, under the engine's info_lock */

	/* The loader's, then constant. */
	uint64_t file_bytes;
	struct model_info info;
	bool inspected, loaded; /* its metadata is known; it is loaded without failure */
	uint64_t load_began_ns;
	struct sl_err load_err; /* valid if it is not loaded */
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct model *model;
	char *bos, *eos;  /* text, for the template; NULL: none */
	int32_t *end_ids; /* of the tokens that end an answer */
	uint32_t n_end_ids;
	struct text_form form; /* how it writes calls and reasoning */

	/* Models on demand (engine/step/model_residency.h). */
	bool on_demand;
	struct keep_alive keep;        /* until when its weights stay without work; under the engine's info_lock */
	uint64_t weights_bytes;        /* that leave memory and come back; the loader's, then constant */
	atomic_int residence;          /* enum residency_state; written by the step thread once it is READY */
	uint64_t adapter_bytes;        /* that its adapters take at most, as far as that is known at the start */
	struct step_mail weights_mail; /* a job is done, with this result */
	int weights_rc;
	uint64_t here_ns, used_ns, asked_ns, retry_ns; /* the step thread's */
	unsigned n_failed;

	struct kv_groups kv_groups; /* of its layers */
	struct kn_place *places;    /* [n_layers] */

	/* The step thread's. */
	uint64_t kv_pages;                 /* that the loader planned for it; then its pool's initial size */
	int memory_index;                  /* of its pool in the engine's shared memory */
	bool rebalancing;                  /* it may exchange slabs */
	struct kv_pool *pool, *draft_pool; /* draft_pool: for its drafts; NULL: it drafts nothing */
	struct kv_states *states;          /* of its page tables' rows; NULL: no layer keeps a state */
	struct kv_states *draft_states;    /* with draft_pool: of the rows of the other model's slots; or NULL */
	uint64_t n_snapshots;              /* of states, that the loader planned for it */
	struct kv_swap *swap;              /* NULL: no swapping */
	struct prefix_tree *prefix;
	struct kv_disk *disk; /* NULL: no page of it is on disk */
	struct kv_hand *hand; /* NULL: none of its pages pass between engines */
	struct sched *sched;
	uint32_t n_ctx;     /* limit for one sequence, given its pool */
	uint32_t max_pages; /* page indices of one sequence */
	int step_tokens;    /* rows of prompts in one step; of an encoder at least n_ctx: it computes a text at once */
	int32_t *page_tables;              /* [max_sequences][groups][max_pages] */
	struct eng_model *drafter;         /* the model whose drafts it verifies; NULL: none */
	double draft_accept[SPEC_SOURCES]; /* recent acceptance of the drafters' tokens, over all requests */
	int32_t *draft_tables; /* [max_sequences][the drafter's max_pages], of its draft_pool, which has one group */
	struct kv_pool *head_pool;                        /* of its layer that drafts; NULL: there is none */
	int32_t *head_tables;                             /* [max_sequences][pages of a slot] */
	struct cost head_cost;                            /* of that layer's steps */
	bool no_head;                                     /* the loader's: its memory would be too much */
	struct eng_seq **slots;                           /* [max_sequences] */
	struct step_in_flight *in_flight[KN_STEPS_AHEAD]; /* oldest first (engine/step/in_flight.h) */
	int n_in_flight;
	bool settle;        /* the next step is planned only when none is in flight */
	uint64_t landed_ns; /* when the last step ended */
	uint64_t served_ns; /* when its tokens had been drawn */
	uint64_t vtime_ns;  /* device time divided by its share (engine/sched/model_sched.h) */
	struct cost cost;
	struct cost_bias ttft_bias[2]; /* [0]: of requests that find the model idle, [1]: busy */
	struct cost verify;            /* for steps without prompts, where every row has logits */
	struct spec_account spec;      /* what its drafts gain and lose */
	struct proto_load load;        /* LOAD; under the engine's info_lock */
	struct proto_figures figures;  /* what it has counted; the step thread's, published in load */
	/* Moving averages; 0: unknown. ns_per_answer[t] covers tier t and better ones, since worse ones delay none. */
	double ns_per_decode_step, ns_per_answer[SCHED_TIERS];
};

/* Requests for the text workers, then those whose constraint must be compiled, on a separate thread: better priorities
 * first, tenants in fair shares by bytes. */
struct text_queue {
	pthread_mutex_t lock;
	struct text_wait {
		pthread_cond_t filled;
		struct fair queued; /* eng_seq.in_text[line] */
		bool closed;
	} lines[TEXT_LINES];
};

enum { ENGINE_ERASES = 64 };

/* The figures of proto_stats that the step thread and the watches write. */
#define ENGINE_FIGURES(X)                                                                                        \
	X(pages_total), X(pages_free), X(prefix_pages), X(kv_used_permille), X(steps), X(prefill_tokens),        \
	    X(decode_tokens), X(prefix_queries), X(prefix_hits), X(preemptions), X(swapped_out), X(swapped_in),  \
	    X(swap_full), X(swap_places), X(swap_used), X(spec_drafts), X(spec_drafted), X(spec_accepted),       \
	    X(forced_tokens), X(us_per_prefill_token), X(us_per_decode_step), X(kv_bytes), X(kv_withheld),       \
	    X(kv_released), X(kv_restored), X(models_here), X(load_waiting), X(model_loads), X(model_drops),     \
	    X(model_load_ms), X(adapters_here), X(adapter_bytes), X(adapter_loads), X(adapter_drops), X(slowed), \
	    X(held), X(slowdowns)
#define ENGINE_FIGURE(name) name

struct engine {
	struct eng_config cfg;                   /* its models live in `models` */
	struct weight_cache_config weight_cache; /* folder NULL: no cache */
	char *weight_cache_folder;
	eng_on_event *on_event;
	void *on_event_ctx;
	struct kn_ops const *ops;

	struct eng_model *models;
	struct disk_tier *disk;          /* of the models' pages; NULL: there is none */
	struct hand_writer *hand_writer; /* NULL: it offers no pages to others */
	struct engine_erases {           /* under the index's lock */
		uint64_t tenants[ENGINE_ERASES];
		uint32_t n;
		bool all; /* there were too many */
	} erases;
	struct lora *lora;     /* adapters by name; indices follow those of the models */
	atomic_bool lora_news; /* one came into memory, or could not */
	uint64_t lora_look_ns;
	struct kv_memory *memory; /* of the models' pages; NULL: each model has its own */
	struct kn_backend *memory_backend;
	bool memory_in_use;      /* the step thread's: a model uses it, so the loader has made it */
	bool step_tokens_auto;   /* cfg.step_tokens follows from the backend */
	bool planned;            /* cfg.kv_bytes follows from the device (engine/core/device_memory.h) */
	bool kv_auto;            /* it follows from the host's memory (engine/core/host_memory.h) */
	uint64_t memory_reserve; /* of the latter: bytes that stay free */
	int n_models;
	pthread_mutex_t info_lock;
	pthread_mutex_t report_lock; /* a state is read and sent at once, so that the last one sent is the last */

	pthread_mutex_t index_lock;
	struct idmap index;   /* identifier → struct eng_seq, until DONE */
	struct list signaled; /* struct seq_signals */
	uint64_t next_order;
	struct wait_limits wait_limits, counts; /* of sequences and of COUNTs; under index_lock */

	struct eng_counters counters;
	atomic_uint n_live;     /* sequences, and followers not created yet */
	atomic_uint n_counting; /* unanswered COUNTs */
	atomic_ullong ENGINE_FIGURES(ENGINE_FIGURE);
	_Atomic(struct device_watch *) watch; /* NULL: no device, or no metrics of it */
	struct residency residency; /* the step thread's, once models load; its turn_ns 0: no model is on demand */
	uint64_t residency_look_ns;
	double bring_rate; /* of weights, bytes per ns; 0: unknown */
	struct weight_jobs {
		pthread_mutex_t lock;
		pthread_cond_t changed;
		struct eng_model *m; /* NULL: no job */
		bool drop;           /* else bring */
		bool closed;
	} weight_jobs;
	struct memory_watch *memory_watch; /* the loader's; NULL: the host's memory is not watched */
	struct slow_watch *slow_watch;     /* NULL: no tier has a target, or it is switched off */
	uint64_t ease_itl_ns[SCHED_TIERS]; /* the tiers' targets while it is slowed */
	atomic_llong kv_ask;               /* bytes of slabs to release, or if negative to restore */

	struct mailbox box; /* of the step thread: text results, loaded models */
	atomic_bool stopping;
	pthread_t step_thread, loader_thread, compiler_thread, *text_threads;
	int n_text_threads;
	bool step_running, loader_running, compiler_running;
	struct text_queue text_queue;
	struct prompt_memo memo;        /* the text workers' */
	struct prefix_book *book;       /* of the models' prefix trees */
	struct grammar_cache *grammars; /* the text workers' and the compiler's */
	struct step *step;              /* the step thread's own */
};

/* ---- text_queue.c ---- */
void text_queue_init(struct text_queue *q);
void text_queue_dispose(struct text_queue *q);
/* 0 or SL_ENOMEM. */
int text_queue_put(struct text_queue *q, enum text_line line, struct eng_seq *s);
/* s is no longer wanted: a worker takes it next. */
void text_queue_expedite(struct text_queue *q, struct eng_seq *s);
/* Whether s was queued; it no longer is. False: a thread has taken it, or its put is still to come. */
bool text_queue_withdraw(struct text_queue *q, struct eng_seq *s);
/* Its threads return once the line is empty. */
void text_queue_close(struct text_queue *q, enum text_line line);
/* Waits for a sequence; NULL once the line is closed and empty. */
struct eng_seq *text_queue_take(struct text_queue *q, enum text_line line);

/* ---- weight_jobs.c ---- */
/* Step thread: the loader brings m's weights in, or drops them, and mails m; there is no other job. */
void weight_job_put(struct engine *e, struct eng_model *m, bool drop);

/* ---- worker.c ---- */
void *text_worker_main(void *engine);
void *compiler_main(void *engine);

/* ---- adapter_load.c ---- */
/* 0, SL_EINVAL or SL_ENOMEM. */
int adapters_create(struct engine *e, const struct eng_config *cfg, struct sl_err *err);
/* s, whose request may name an adapter, is of its model from now on. */
void adapters_resolve(const struct engine *e, struct eng_seq *s);
/* Bytes to plan for m's adapters, before it is loaded. */
uint64_t adapters_memory(const struct engine *e, const struct eng_config *cfg, int model);

/* ---- adapter_turns.c ---- */
/* Step thread: which adapters are in memory, and so which sequences may be in steps. When it is to be called again, if
 * nothing happens before. */
uint64_t adapter_turns_tick(struct step *st, uint64_t now_ns);
/* Whether credit is all that s needs. */
bool adapter_is_here(const struct eng_seq *s);

/* ---- kv_tier.c ---- */
/* Opens the tier on disk, if one is configured. Without it the engine serves, too: a fault is a line in the log. */
void kv_tier_open(struct engine *e, const struct eng_config *cfg);
void kv_tier_close(struct engine *e);
/* Loader: m's pages may be on disk from now on, if they can be. SL_ENOMEM. */
int kv_tier_join(struct eng_model *m);
/* Any thread: the tier's figures, for engine_stats. */
void kv_tier_stats(const struct engine *e, struct proto_stats *out);

/* Opens this engine's section of the hand-over area, if it has one. SL_ENOMEM. */
int hand_open(struct engine *e);
void hand_close(struct engine *e);
/* Loader: m's pages may pass between engines from now on, if they can. SL_ENOMEM. */
int hand_join(struct eng_model *m);

/* ---- load.c ---- */
void *loader_main(void *engine);
/* Frees what the loader made of m. */
void model_unload(struct eng_model *m);

enum { ENGINE_DRAFT_PART = 4 }; /* a draft pool has this fraction (1/4) of its model's pages */

/* ---- kv_rebalance.c ---- */
size_t model_page_bytes(const struct eng_model *m);
/* The pages of a sequence of n_tokens, at their most. */
uint64_t model_context_pages(const struct eng_model *m, uint64_t n_tokens);
/* As many pages as max_sequences full contexts take. */
uint64_t model_useful_pages(const struct eng_model *m);

/* ---- model_state.c ---- */
/* Step thread: sets m READY, or FAILED with a reason; logs it and sends ENG_MODEL. */
void model_state_set(struct engine *e, struct eng_model *m, enum proto_model_state state, const char *reason);
/* Any thread: sends ENG_MODEL. */
void model_state_report(struct engine *e, const struct eng_model *m);

/* ---- step.c ---- */
int step_create(struct engine *e, struct step **out);
void *step_main(void *engine);
/* After the thread has ended: frees st and unread mail. */
void step_destroy(struct step *st);

#endif
