/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's public interface, and the only header other folders include. A process has one engine.
 *
 * The engine owns models, KV pages, the device and three kinds of threads: text workers (templates, tokenizers), the
 * step thread (sequences, pages, scheduler, forward pass) and the loader. Requests and events are the structs of
 * base/proto/proto.h. Every function may be called from any thread unless its comment names one.
 *
 * Terms: a sequence is one accepted request; a slot is its row of the page tables while it runs; credit is the number
 * of tokens its client accepts.
 *
 * Life of a sequence: submit → (text worker) → QUEUED → credit → prefill → TOKENS … → DONE. Every accepted submit gets
 * exactly one DONE. No event for that id follows it.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"

struct engine;

struct eng_model_config {
	const char *name; /* the name that clients use */
	const char *path;
	const char *head; /* GGUF file of the layer that drafts for it (model.h); NULL: none of its own */
	int role;         /* enum proto_role */
	/* Weight type to which float matrices are converted on load ("int4": also Q8_0 ones; "fp8": if the backend has
	 * it). NULL or "": no conversion. */
	const char *quantize;
	/* Name of its KV type (kernels/kv_type.h); NULL or "": that of eng_config. */
	const char *kv_type;
	/* How it pools a text's rows: "mean", "cls", "last"; NULL, "", "auto": as its files say; "none": not at all. */
	const char *pooling;
	/* Its weights are in memory while it is used and there is room (engine/step/model_residency.h). keep_alive_ms:
	 * without work for so long they go; 0: they stay while there is room. */
	bool on_demand;
	uint64_t keep_alive_ms;
	/* Whether its vectors may be shortened: "on", "off"; NULL, "", "auto": as its files say. */
	const char *matryoshka;
};

/* A low-rank adapter of a model (engine/adapter): for clients a model of its own, which shares the weights of its base.
 * Its index follows those of the models, in the order of this list. */
struct eng_adapter_config {
	const char *name; /* the name that clients use */
	const char *path;
	int model; /* index of its base */
};

/* A folder whose adapters may be loaded while the engine runs (engine/lora). */
struct eng_adapter_folder {
	const char *path;
	int model;    /* index of their base */
	bool watched; /* what is in it is loaded, replaced and unloaded as it changes */
};

/* The source of drafts, which a step verifies besides making one token. */
enum eng_spec_mode {
	ENG_SPEC_OFF,
	ENG_SPEC_NGRAM, /* what followed the last few tokens earlier */
	ENG_SPEC_DRAFT, /* the model of role small, for those of role large with the same vocabulary */
	ENG_SPEC_AUTO,  /* all of these and of those below */
	ENG_SPEC_HEAD,  /* a layer of the model's own that drafts, for those that have one */
};

struct eng_config {
	const struct eng_model_config *models;
	int n_models;
	const struct eng_adapter_config *adapters;
	int n_adapters; /* with n_models at most PROTO_MAX_MODELS */
	const struct eng_adapter_folder *adapter_folders;
	int n_adapter_folders;
	uint64_t adapter_memory;   /* that adapters take together; 0: no bound */
	int adapter_slots;         /* adapters in memory at once; 0: MODEL_MAX_ADAPTERS */
	uint64_t adapter_turn_ms;  /* that one stays at least once it is in memory */
	uint64_t adapter_wait_ms;  /* that a request waits for one at most; 0: no bound */
	uint64_t adapter_watch_ms; /* between two looks at watched folders; 0: 500 */
	const char *adapter_type;  /* "int8", "bf16", "f32"; NULL, "", "auto": as its file has its numbers */
	const char *backend;       /* kernels: "auto", or a name of kernels/kernels.h */
	int n_threads;             /* 0: all */
	int pin;                   /* of kn_config */
	int n_text_workers;        /* at least 1 */
	int page_tokens;           /* 16 */
	uint64_t kv_bytes; /* for all pools together; 0: what the host's memory allows (engine/core/host_memory.h) */
	uint64_t memory_bytes; /* with kv_bytes 0: the most that weights, work and pages take; 0: no bound but memory */
	uint64_t weights_bytes; /* of models on demand together; 0: what memory_bytes and the host's memory leave */
	uint64_t turn_ms;       /* that weights stay at least once they are in memory */
	uint64_t load_wait_ms;  /* that a request waits for them at most; 0: no bound */
	int memory_watch_ms;    /* between two looks at it; 0: 500 */
	bool beside; /* another engine runs until this one is READY: models fail if memory is short for both */
	const char *memory_root; /* before the paths from which the host's memory is read: for tests; NULL: none */
	double device_memory;    /* fraction of the device memory that all processes may use; pages get what weights and
				  * steps leave. 0, or the device does not report its memory: kv_bytes applies */
	uint64_t swap_bytes;     /* host memory for pages of sequences pre-empted on a device; 0: none */
	bool swap_fixed;         /* swap whenever there is room, even if it does not pay: for tests */
	const char *kv_type;     /* of models that name none; NULL, "", "auto": model_kv_type (model.h) */
	int kv_rotation;         /* enum model_kv_rotation (model.h): 0 auto, 1 on, 2 off */
	uint64_t max_model_bytes; /* larger model files fail to load; 0: no limit but memory */
	int max_sequences;        /* in the batch or paused with pages */
	int max_waiting;          /* queued; beyond it, PROTO_ERR_OVERLOADED */
	int step_tokens; /* token budget of a step: prefill is chunked to it. 0: few on a processor, many on a device */
	int most_chunk;  /* of them of one prompt, so that others share the step; 0: no such bound */
	uint32_t max_prompt_bytes;
	/* By priority, while the device or the processor is slowed: the longest time between an answer's tokens that
	 * steps may take (engine/sched/sched_ease.h); 0: no target. Without any nothing is watched. */
	uint64_t ease_itl_ms[PROTO_PRIORITIES];
	/* By priority: the longest step beside an answer that worse priorities' sequences may cause by starting
	 * (engine/sched/sched_floor.h); 0: none. */
	uint64_t floor_us[PROTO_PRIORITIES];
	int slow_watch_ms;        /* between two looks; 0: 500 */
	const char *nvml_library; /* NULL: the driver's; another for tests, of the device nvml_pci */
	const char *nvml_pci;
	int itl_target_ms; /* the most that prefill may add to the time between tokens; 0: no target */
	bool no_prefix_cache;
	bool kv_one_group;           /* layers with a window keep all positions, as others do: for tests */
	bool share_prefixes;         /* between tenants */
	bool no_launch_ahead;        /* launch a device's next step only after the last one's tokens arrived */
	int spec_mode;               /* enum eng_spec_mode */
	int spec_max_draft;          /* tokens; at most SPEC_MAX_DRAFT */
	bool spec_fixed;             /* drafts always have the full length, even if that does not pay */
	bool loose_products;         /* of kn_config: no batch invariance where a library is faster */
	const char *choices_path;    /* of kn_config; NULL: none */
	const char *weight_cache;    /* folder for weights in the backend's layout; NULL: no cache */
	uint64_t weight_cache_bytes; /* the limit for all its files */
	/* Pages of keys and values on disk (engine/kv/kv_disk.h). */
	const char *kv_disk;      /* folder; NULL: none */
	uint64_t kv_disk_bytes;   /* the limit for all its files; 0: none */
	uint64_t kv_disk_age_s;   /* older pages go; 0: no limit */
	int kv_disk_policy;       /* enum disk_policy */
	bool kv_disk_always;      /* read and write even if it does not pay: for tests */
	uint64_t kv_disk_segment; /* bytes of a file; 0: by the limit */
	/* The area in which prompts' pages pass between engines, and this engine's number in it; NULL: there is none.
	 * Borrowed. */
	struct hand_area *hand_area;
	uint32_t hand_number;
	/* Called on the step thread when a model's device has failed in a step and its streams have ended. A device
	 * does not recover within a process. May be NULL. */
	void (*on_fault)(void *ctx);
	void *on_fault_ctx;
};

enum eng_event_kind {
	ENG_MODEL,
	ENG_QUEUED,
	ENG_PROMPT_LOGPROBS,
	ENG_VERIFIED,
	ENG_TOKENS,
	ENG_CHOICE,
	ENG_EMBEDDING,
	ENG_HANDED,
	ENG_DONE,
	ENG_COUNTED,
};

struct eng_event {
	enum eng_event_kind kind;
	uint64_t id; /* the sequence's; 0 for MODEL */
	union {
		struct proto_model model;
		struct proto_queued queued;
		struct proto_prompt_logprobs prompt_logprobs; /* `entries` set, `records` not */
		struct proto_tokens tokens;                   /* `tokens` and `tops` set, `records` not */
		struct proto_verified verified;
		struct proto_choice choice;
		struct proto_embedding embedding; /* `values` set, `records` not */
		struct proto_handed handed;
		struct proto_done done;
		struct proto_counted counted;
	} u;
};

/* Called on the engine's own threads, one call at a time per sequence and in its order; everything
 * in the event is borrowed for the call. Must not block and must not call back into the engine. */
typedef void eng_on_event(void *ctx, const struct eng_event *ev);

/* Copies cfg; models load in the background, the smallest file first, each announced by ENG_MODEL. */
int engine_create(const struct eng_config *cfg, eng_on_event *on_event, void *ctx, struct engine **out,
		  struct sl_err *err);
/* Cancels all sequences (each gets its DONE), joins the threads, frees. Asserts that no page or sequence is left. */
void engine_destroy(struct engine *e);

/* All of these are thread-safe and return at once. The request is copied. An id may be reused only after its DONE.
 * submit and count return 0 or SL_ELIMIT, SL_ENOMEM (then no event follows). */
int engine_submit(struct engine *e, uint64_t id, const struct proto_submit *req);
int engine_count(struct engine *e, uint64_t id, const struct proto_count *req);
void engine_credit(struct engine *e, uint64_t id, uint32_t n_tokens);
void engine_cancel(struct engine *e, uint64_t id);
/* Its prompt's pages pass between engines (engine/kv/kv_hand.h). */
void engine_hand(struct engine *e, uint64_t id, const struct proto_hand *m);
/* For models on demand only (engine/sched/keep_alive.h); others, and unknown ones, ignore it. */
void engine_keep(struct engine *e, const struct proto_keep *k);
/* What is stored of this tenant's texts on disk is erased, and no page of them that is in memory now is stored. */
void engine_erase(struct engine *e, const struct proto_erase *m);
void engine_stats(struct engine *e, struct proto_stats *out);
/* What has entered the prefix trees or left them since *cursor (engine/kv/prefix_book.h). */
int engine_prefixes(struct engine *e, uint64_t *cursor, bool *anew, uint64_t **changes, size_t *n);
/* Loads or unloads an adapter; its COUNTED has the result. 0 or SL_ELIMIT: too many wait (then no event follows). */
int engine_adapter(struct engine *e, uint64_t id, const struct proto_adapter *ask);
/* False: the model is not READY, or it is an adapter, which waits as its base does. */
bool engine_load(struct engine *e, int index, struct proto_load *out);
/* The current state of every model, adapters included, which may be GONE; strings borrowed until the next call on the
 * same thread. */
int engine_n_models(struct engine *e);
void engine_model_info(struct engine *e, int index, struct proto_model *out);

/* ---- the process around it (engine/core/server.c): the protocol on a unix socket ---- */

struct eng_server_config {
	const char *socket_path; /* made with mode 0600; a stale one is removed, a live one is an error */
	int beat_fd;             /* to the supervisor, or -1 */
	/* Another process serves there and continues until every model is READY here: only then does this one take its
	 * socket. If one fails, this process ends with status 1. */
	bool takeover;
	bool coarse_timers; /* of a few milliseconds: a turn of the loop then costs one system call less */
	unsigned beat_ms, stale_ms;
};

/* Runs until SIGTERM or SIGINT; removes the socket. Returns the process's exit status. */
int engine_serve(const struct eng_config *cfg, const struct eng_server_config *srv);

/* ---- the echo engine (engine/echo/echo.c): the same protocol, no models, programmable ---- */

struct eng_echo_config {
	double rate_tps;      /* tokens per second per sequence; 0: as credit allows */
	int tokens_per_burst; /* sent together */
	int ttft_ms;          /* before the first token */
	int fail_after;       /* tokens, then DONE with an internal error; 0: never */
	int hang_after;       /* tokens, then silence; 0: never */
	int die_after;        /* tokens in all, then the process exits; 0: never */
	int n_ctx;
	bool stamp;      /* every token's text is the time at which it was made, as with "clock" */
	int step_ms;     /* tokens of all sequences come in common steps this far apart; 0: independently */
	int step_active; /* sequences with tokens in one step; 0: all */
	int slots;       /* running sequences per model, the others wait; 0: no limit */
	int waiting;     /* sequences that may wait; 0: no limit */
};

int engine_serve_echo(const struct eng_echo_config *cfg, const struct eng_server_config *srv);

/* ---- the remote engine (engine/remote): the same protocol, models that another server runs ---- */

/* Which fields beyond OpenAI's the upstream's API has. */
enum eng_remote_dialect {
	ENG_REMOTE_OPENAI,
	ENG_REMOTE_VLLM, /* vLLM, SGLang, Sluice */
	ENG_REMOTE_LLAMA /* llama.cpp's server */
};

struct eng_remote_model {
	const char *name;  /* that clients use */
	const char *model; /* the upstream's; "": the same */
	int role;          /* enum proto_role */
	uint32_t n_ctx;    /* 0: as the upstream reports */
	uint32_t n_embd;   /* numbers of its embeddings; 0: it generates text */
	bool shorten;      /* their first numbers are a vector, too */
	bool scores;       /* it scores pairs of texts, and does nothing else */
};

/* Strings are borrowed and outlive the engine. */
struct eng_remote_config {
	const char *url;      /* http://HOST[:PORT][/PATH] or https://… */
	const char *key_file; /* its first line is the bearer token; "": none */
	const char *ca_file;  /* PEM; "": the system's authorities */
	bool verify;          /* the certificate */
	int dialect;          /* enum eng_remote_dialect */
	uint64_t connect_ms;
	uint64_t idle_ms;    /* longest silence within a stream */
	uint64_t total_ms;   /* longest answer */
	uint64_t health_ms;  /* between looks at its list of models */
	const char *metrics; /* a path of its own metrics, from the host on; "": none */
	uint64_t metrics_ms; /* between looks at them */
	uint64_t cool_down_ms;
	int failures;    /* in a row, until it counts as failed */
	int connections; /* requests at once; others wait */
	int max_waiting;
	const struct eng_remote_model *models;
	int n_models; /* 0: all that it lists */
};

int engine_serve_remote(const struct eng_remote_config *cfg, const struct eng_server_config *srv);

#endif
