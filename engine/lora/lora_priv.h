/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of adapters by name. lora.c owns entries and versions, lora_files.c the thread that reads files,
 * lora_folder.c which paths it may read and what is in watched folders, lora_slots.c what is in memory.
 */
#ifndef ENGINE_LORA_PRIV_H
#define ENGINE_LORA_PRIV_H

#include "engine/lora/lora.h"

struct lora_folder_state {
	char *path, *base;
	char *real; /* its canonical path, once it exists */
	int model;
	bool watched;
};

struct lora_ask {
	uint64_t id;
	bool load;
	char name[PROTO_MAX_NAME + 1], path[PROTO_MAX_PATH + 1];
};

struct lora {
	struct lora_config cfg;
	struct lora_folder_state *folders;
	int n_folders;
	pthread_mutex_t lock;
	struct lora_entry entries[LORA_ENTRIES];
	int n_entries;
	struct list versions; /* struct lora_version.in_all */
	struct model *models[PROTO_MAX_MODELS];

	/* The room's thread; under job_lock. */
	pthread_mutex_t job_lock;
	pthread_cond_t changed;
	struct lora_ask asks[LORA_ASKS];
	unsigned first_ask, n_asks;
	struct lora_version *bring; /* one at a time; NULL: none */
	bool closed;
	pthread_t thread;
	bool running;

	/* The step thread's. */
	struct residency residency;
	struct lora_version *coming;   /* the one whose job is under way; NULL: none */
	struct residency_model *looks; /* [room] */
	struct lora_version **of_looks;
	size_t room;
	struct lora_counts counts;
};

/* ---- lora.c ---- */

/* NULL: it is not in memory. */
struct model *lora_model(struct lora *l, int i);

/* With the lock held. */

/* The entry of that name; -1: none. */
int lora_find(const struct lora *l, const char *name);
/* One for a new name, or that which had it: SL_ELIMIT. */
int lora_entry_for(struct lora *l, const char *name, uint64_t now_ns, int *out);
void lora_set_current(struct lora *l, int entry, struct lora_version *v);
void lora_version_free(struct lora *l, struct lora_version *v);

/* ---- lora_files.c ---- */

/* Checks the files at path as an adapter of model number i. Any thread but the step thread. */
int lora_inspect(struct lora *l, int model, const char *path, struct lora_version **out, struct sl_err *err);
/* The entry gets what its path has. Its name stays what it is. 0 or an error, which then is its reason. */
int lora_renew(struct lora *l, int entry, const char *path, struct sl_err *err);
/* Nobody may use the name any more. */
void lora_drop(struct lora *l, int entry);
/* The room's thread is to bring v into memory. */
void lora_bring(struct lora *l, struct lora_version *v);

/* ---- lora_folder.c ---- */

/* The folder that has the path, and the canonical path; path may begin with the folder's, or be below it. SL_EINVAL:
 * it is malformed or leads out; SL_EUNSUPPORTED: none has it; SL_ENOTFOUND: it does not exist. */
int lora_path(struct lora *l, const char *path, int *folder, char *out, size_t size, struct sl_err *err);
/* Whether all files of an adapter that this path names lie in the folder, links followed. */
int lora_check_inside(const struct lora *l, int folder, const char *path, struct sl_err *err);
bool lora_name_ok(const char *name);
/* Loads, replaces and unloads by what is in the watched folders. */
void lora_watch(struct lora *l);

#endif
