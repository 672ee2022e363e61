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
#include "engine/kv/kv_swap.h"
#include "engine/model/model.h"
#include "engine/kv/prefix.h"
#include "engine/step/prompt_memo.h"
#include "engine/step/seq.h"
#include "engine/model/weight_cache.h"

/* A model of the configuration. The loader fills it and mails it to the step thread; from then on
 * `model` and what it holds do not change until the engine goes, even when the device fails. */
struct eng_model {
	struct step_mail mail; /* loaded, or not */
	struct engine *e;
	int index;
	char *name, *path;
	int role;
	int quantize;     /* enum kn_type that the loader converts to, or -1 */
	bool fp8;         /* the backend is to make its own FP8 of matrices of floats */
	int kv_type;      /* of its pages; -1: no type has the name that was asked for */
	atomic_int state; /* enum proto_model_state; the step thread's to change */
	struct {
		uint32_t n_ctx, n_vocab;
		uint64_t n_params, tokenizer;
		char reason[PROTO_MAX_MESSAGE + 1];
	} shown; /* to other threads, under the engine's info_lock */

	/* The loader's, then constant. */
	uint64_t file_bytes;
	int told;         /* quarters of the conversion that were logged */
	uint64_t told_ns; /* when something of the rearranging last was; 0: it has not begun */
	struct model_info info;
	bool inspected, loaded; /* its head is known, and it has not failed */
	uint64_t load_began_ns;
	struct sl_err load_err; /* why not; may hold anything when it was loaded */
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct model *model;
	char *bos, *eos;  /* text, for the template; NULL: none */
	int32_t *end_ids; /* of the tokens that end an answer */
	uint32_t n_end_ids;

	/* The step thread's. */
	int memory_index;                  /* its pool's among those that share the engine's memory */
	bool rebalancing;                  /* slabs may be taken from it, and given to it */
	struct kv_pool *pool, *draft_pool; /* the latter for what it drafts for another; NULL: nothing */
	struct kv_swap *swap;              /* NULL: nothing is swapped */
	struct prefix_tree *prefix;
	struct sched *sched;
	uint32_t n_ctx;            /* what the pool allows one sequence */
	uint32_t max_pages;        /* of one sequence */
	int32_t *page_tables;      /* [max_sequences][max_pages] */
	struct eng_model *drafter; /* whose drafts it verifies; NULL: none */
	double draft_accept;       /* of the drafter's tokens, of late, whoever asked */
	int32_t *draft_tables;     /* [max_sequences][the drafter's max_pages], of its draft_pool */
	struct eng_seq **slots;    /* [max_sequences] */
	struct step_in_flight
	    *in_flight[KN_STEPS_AHEAD]; /* steps on their way, the oldest first (engine/step/in_flight.h) */
	int n_in_flight;
	bool settle;        /* the next step is planned when nothing is on its way any more */
	uint64_t landed_ns; /* when the last one had come */
	uint64_t vtime_ns;  /* of the device, spent on this model, by its part (engine/step/model_sched.h) */
	struct cost cost;
	struct cost_bias ttft_bias[2]; /* of those who find the model idle, and busy */
	struct cost verify;            /* of steps without prompts, where every row has logits */
	uint32_t n_drafting;           /* steps with drafts since the last one without */
	struct proto_load load;        /* what a newcomer would meet; under the engine's info_lock */
	/* Moving averages; 0: not known yet. Of an answer: by tier, of that and better ones, for worse ones keep nobody
	 * waiting. */
	double ns_per_decode_step, ns_per_answer[SCHED_TIERS];
};

/* Requests for the text workers, with several takers: the better priority first, fair by bytes between tenants. */
struct text_queue {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct fair queued; /* eng_seq.in_text */
	bool closed;
};

struct engine {
	struct eng_config cfg;                   /* its models live in `models` */
	struct weight_cache_config weight_cache; /* folder NULL: nothing is kept */
	char *weight_cache_folder;
	eng_on_event *on_event;
	void *on_event_ctx;
	struct kn_ops const *ops;

	struct eng_model *models;
	struct kv_memory *memory; /* of the models' pages; NULL: each has its own */
	struct kn_backend *memory_backend;
	bool planned; /* cfg.kv_bytes is what the device has left (engine/core/device_memory.h) */
	int n_models;
	pthread_mutex_t info_lock;

	pthread_mutex_t index_lock;
	struct idmap index;   /* identifier → struct eng_seq, until DONE */
	struct list signaled; /* struct seq_signals: sequences to look at */
	uint64_t next_order;
	struct wait_limits wait_limits, counts; /* what sequences and COUNTs wait; under index_lock */

	struct eng_counters counters;
	atomic_uint n_live;     /* sequences that exist, and followers to come */
	atomic_uint n_counting; /* COUNTs on their way */
	atomic_uint pages_total, pages_free, prefix_pages, kv_used_permille;
	atomic_ullong steps, prefill_tokens, decode_tokens;
	atomic_ullong prompt_tokens, cached_tokens, preempted; /* of prompts that started */
	_Atomic(struct device_watch *) watch;                  /* NULL: no device, or none that tells how it is */
	atomic_ullong swapped_out, swapped_in, swap_full;      /* pages; and how often there was no slot for them */
	atomic_uint swap_places, swap_used;
	atomic_ullong spec_drafts, spec_drafted, spec_accepted;
	atomic_uint us_per_prefill_token, us_per_decode_step;

	struct mailbox box; /* of the step thread: text results, loaded models */
	atomic_bool stopping;
	pthread_t step_thread, loader_thread, *text_threads;
	int n_text_threads;
	bool step_running, loader_running;
	struct text_queue text_queue;
	struct prompt_memo memo; /* the text workers' */
	struct step *step;       /* the step thread's own */
};

/* ---- text_queue.c ---- */
void text_queue_init(struct text_queue *q);
void text_queue_dispose(struct text_queue *q);
/* SL_ENOMEM: it is not in it. */
int text_queue_put(struct text_queue *q, struct eng_seq *s);
/* Nobody wants it any more: a worker lets go of it next. */
void text_queue_expedite(struct text_queue *q, struct eng_seq *s);
/* The takers return when the queue is empty. */
void text_queue_close(struct text_queue *q);
/* Waits for one; NULL once it is closed and empty. */
struct eng_seq *text_queue_take(struct text_queue *q);

/* ---- worker.c ---- */
void *text_worker_main(void *engine);

/* ---- load.c ---- */
void *loader_main(void *engine);
/* Frees what the loader made of a model. */
void model_unload(struct eng_model *m);

/* ---- model_state.c ---- */
/* On the step thread: m is READY, or FAILED for that reason; logged, and announced by ENG_MODEL. */
void model_state_set(struct engine *e, struct eng_model *m, enum proto_model_state state, const char *reason);

/* ---- step.c ---- */
int step_create(struct engine *e, struct step **out);
void *step_main(void *engine);
/* After the thread has ended: frees what is still in the mailbox. */
void step_destroy(struct step *st);

#endif
