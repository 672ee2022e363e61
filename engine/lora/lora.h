/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: adapters by name, while the engine runs. They are loaded, unloaded and replaced at any time, and in memory
 * while requests use them.
 *
 *   entry      a name. Its number is part of the protocol's model index, so a name keeps its number, and a number gets
 *              another name only once LORA_REST_MS have passed since the last one went: requests on their way never
 *              reach another adapter than the one they name
 *   version    what files were at one time: a digest, a template, and while it is in memory a slot of its model. An
 *              entry's current version is that of new requests; requests keep theirs until they end
 *   memory     versions in memory take at most lora_config.memory bytes and .slots slots, of all models together;
 *              engine/sched/residency.h decides which, as it does for models: by use, in turns, fair to tenants
 *
 * A version ABSENT → COMING → HERE ⇄ LEAVING → ABSENT: lora_tick. It is freed once it is ABSENT and nobody refers to it.
 *
 * Files are read whole and checked when a name is loaded (adapter_open), and read again when the version comes into
 * memory; if they then have another digest, the version is BROKEN. Nothing of a file that fails a check is used, and
 * what served before goes on serving.
 *
 * Threads: one of this room's own reads files. The step thread puts versions into slots and takes them out. Entries and
 * the list of versions are under one lock; a version's digest, template and form are constant.
 */
#ifndef ENGINE_LORA_H
#define ENGINE_LORA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/proto/proto.h"
#include "engine/chat/chat_template.h"
#include "engine/model/adapters.h"
#include "engine/model/text_form.h"
#include "engine/sched/residency.h"

enum {
	LORA_ENTRIES = PROTO_MAX_MODELS,
	LORA_ASKS = 64,             /* loads and unloads that wait */
	LORA_REST_MS = 3600 * 1000, /* no gateway holds a request for longer (max_wait) */
};

/* A folder whose sub-folders and .gguf files may be loaded. */
struct lora_folder {
	const char *path, *base; /* base: its model's name */
	int model;
	bool watched; /* what is in it is loaded, replaced and unloaded as it changes */
};

struct lora_config {
	const struct lora_folder *folders; /* copied */
	int n_folders;
	uint64_t memory;   /* bytes */
	int slots;         /* 1 to MODEL_MAX_ADAPTERS */
	int type;          /* as model_pack_adapter takes it */
	int first;         /* the protocol's index of entry 0 */
	uint64_t turn_ns;  /* that a version stays in memory at least */
	uint64_t watch_ms; /* between two looks at watched folders */
	/* An entry has changed. Any of the engine's threads, without a lock of this room. */
	void (*changed)(void *ctx, int entry);
	/* The end of a lora_ask. error: enum proto_error. This room's thread. */
	void (*answered)(void *ctx, uint64_t id, uint8_t error, const char *message);
	/* A version came into memory, or could not: the step thread should tick. */
	void (*wake)(void *ctx);
	void *ctx;
};

enum lora_entry_state { LORA_FREE, LORA_LOADING, LORA_READY, LORA_FAILED };

struct lora_entry {
	enum lora_entry_state state;
	char name[PROTO_MAX_NAME + 1]; /* "": it never had one */
	char *path;
	int model;
	char reason[PROTO_MAX_MESSAGE + 1]; /* FAILED */
	struct lora_version *current;       /* FAILED: NULL, or what serves still */
	uint64_t freed_ns;                  /* 0: it never served */
	bool served;
	unsigned epoch; /* grows when the number gets another name */
	int folder;     /* the watched one that it is of; -1: of none */
	uint64_t print; /* of the folder's files that were loaded last, or failed; 0: none were */
	uint64_t seen;  /* of those that were last looked at */
};

enum lora_job { LORA_JOB_NONE, LORA_JOB_ASKED, LORA_JOB_DONE, LORA_JOB_FAILED };

struct lora_version {
	struct list in_all;
	int entry, model;
	unsigned epoch; /* of its entry */
	char *path;
	uint64_t digest;                /* of what it adds, and of its template */
	uint64_t bytes;                 /* in memory */
	int type;                       /* there, as model_pack_adapter takes it */
	struct chat_template *template; /* its own; NULL: its base's */
	struct text_form form;          /* with a template of its own */
	atomic_uint refs;               /* of requests */
	bool current;                   /* under the lock */
	atomic_int job;                 /* enum lora_job */
	struct model_adapter *packed;   /* JOB_DONE: in memory, in no slot yet */
	struct sl_err err;              /* JOB_FAILED */

	/* The step thread's. */
	enum residency_state state;
	int slot; /* -1: none */
	bool broken;
	uint64_t here_ns, used_ns, asked_ns;
	struct residency_model look; /* since the last tick */
};

struct lora;

/* 0, SL_ENOMEM, SL_EINVAL with *err. */
int lora_create(const struct lora_config *cfg, struct lora **out, struct sl_err *err);
/* Requests that still refer to versions must be gone. Models must still be there. */
void lora_destroy(struct lora *l);
/* Before any thread runs: an adapter of the configuration. SL_EINVAL: two have that name; SL_ELIMIT, SL_ENOMEM. */
int lora_add(struct lora *l, const char *name, const char *path, int model, struct sl_err *err);
/* Loader: model number i is in memory; its entries are READY or FAILED when this returns. NULL: it has gone again, and
 * so has all that was loaded for it. */
void lora_set_model(struct lora *l, int i, struct model *m);
/* Starts the room's thread: asks, files, watched folders. SL_EIO. */
int lora_start(struct lora *l);
void lora_stop(struct lora *l);

/* ---- any thread ---- */

/* Entries, used or not. */
int lora_n(struct lora *l);
struct lora_info {
	enum lora_entry_state state;
	int model;
	bool serves; /* it has a current version */
	bool own_form;
	struct text_form form; /* own_form */
	char name[PROTO_MAX_NAME + 1], reason[PROTO_MAX_MESSAGE + 1];
};
void lora_get(struct lora *l, int entry, struct lora_info *out);
/* The current version, with a reference of the caller's; NULL: there is none. */
struct lora_version *lora_take(struct lora *l, int entry);
void lora_ref(struct lora_version *v);
void lora_leave(struct lora_version *v);
/* Loads the adapter at path, in one of the folders, as `name` (or BASE:name), or unloads it; `answered` gets id once it
 * is done. SL_ELIMIT: too many wait. */
int lora_ask(struct lora *l, uint64_t id, const struct proto_adapter *ask);

/* ---- step thread ---- */

/* For each request with v that could get on, since when, of which tenant; and for each that has begun: v stays in
 * memory for it, as a file that is replaced may not have it any more. */
void lora_see(struct lora *l, struct lora_version *v, bool begun, uint64_t tenant, uint64_t since_ns, uint64_t now_ns);
/* Puts what came into slots, and decides what comes and goes next, by what was seen since the last tick. */
void lora_tick(struct lora *l, uint64_t now_ns);
/* Whether a request that has begun, or has not, may be in steps. */
bool lora_may_run(const struct lora_version *v, bool begun);
/* Whether v can't come into memory. *to: the version that new requests get, with a reference; NULL: there is none. */
bool lora_is_broken(struct lora *l, const struct lora_version *v, struct lora_version **to);
struct lora_counts {
	unsigned here, versions;
	uint64_t bytes, loads, drops;
};
void lora_count(struct lora *l, struct lora_counts *out);

#endif
