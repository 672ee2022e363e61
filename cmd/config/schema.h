/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration of all of Sluice: one struct, one table of keys with types, ranges and defaults
 * (schema.c), and the checks between keys (schema_check.c).
 */
#ifndef CMD_SCHEMA_H
#define CMD_SCHEMA_H

#include "base/conf/conf.h"
#include "base/log.h"
#include "cascade/cascade.h"
#include "engine/engine.h"
#include "gateway/config/gw_config.h"

struct supervisor_settings {
	uint64_t heartbeat_ms; /* interval of the children's heartbeats */
	uint64_t hang_ms;      /* silence after which a child is killed */
	uint64_t backoff_min_ms, backoff_max_ms;
	uint64_t drain_ms; /* of one child, before it is killed */
	bool core_dumps;
	bool sandbox;         /* seccomp and Landlock, for the engine and the gateway */
	char *user;           /* they run as this user when started as root; "": cmd/state/privileges.h chooses */
	uint64_t takeover_ms; /* the longest time until a new gateway is ready, in an upgrade */
};

/* One entry of engine.models: as in struct eng_model_config, but owned by the conf. */
struct model_settings {
	char *name;
	char *path;
	char *head; /* "": none of its own file */
	int role;
	char *quantize;
	int kv_type; /* 0: the engine's */
	int pooling; /* 0: as its files say */
	int matryoshka;
	int start; /* 1: on demand */
	uint64_t keep_alive_ms;
};

/* One entry of engine.adapters. */
struct adapter_settings {
	char *name, *path, *model;          /* model: its base's name */
	struct conf_strings tiers, tenants; /* that may use it; empty: all */
};

/* One entry of engine.adapter_folders. */
struct adapter_folder_settings {
	char *name, *path, *model;
	bool watch;
	struct conf_strings tiers, tenants;
};

enum { MOST_ADAPTER_FOLDERS = 16 };

struct engine_settings {
	char *socket; /* never empty after loading */
	int backend;
	int64_t threads, text_workers, page_tokens;
	uint64_t kv_memory, memory;                                      /* 0: auto */
	uint64_t on_demand_memory, on_demand_turn_ms, on_demand_wait_ms; /* the first: 0: auto */
	uint64_t max_model_memory;
	int kv_type, kv_rotation;
	int64_t max_sequences, max_waiting, step_tokens, most_chunk;
	uint64_t max_prompt, itl_target_ms;
	int ease, pin; /* indexes of their names */
	bool prefix_cache, share_prefixes;
	int launch_ahead; /* index of its name */
	int spec_mode;    /* enum eng_spec_mode */
	int64_t spec_max_draft;
	bool spec_fixed;
	bool cuda_batch_invariant;
	double cuda_memory;
	uint64_t cuda_swap;
	char *weight_cache; /* never empty after loading */
	uint64_t weight_cache_size;
	char *kv_disk; /* never empty after loading */
	uint64_t kv_disk_bytes, kv_disk_age_ms;
	int kv_disk_policy;
	bool kv_disk_always;
	int role;                         /* of the first engine; enum gw_engine_role */
	struct conf_strings serves;       /* names of models; empty: all */
	char *cores;                      /* processors that it is pinned to; "": any */
	struct conf_list models;          /* struct model_settings */
	struct conf_list adapters;        /* struct adapter_settings */
	struct conf_list adapter_folders; /* struct adapter_folder_settings */
	uint64_t adapter_memory, adapter_wait_ms, adapter_turn_ms;
	int64_t adapter_slots;
	int adapter_type; /* index of its name */
};

struct echo_settings {
	bool enabled;
	double rate;
	int64_t burst;
	uint64_t ttft_ms;
	int64_t fail_after, hang_after, die_after, context;
	bool stamp;
	uint64_t step_ms;
	int64_t step_active, slots, waiting;
};

/* One entry of engine.upstream.models: as in struct eng_remote_model. */
struct upstream_model_settings {
	char *name, *model;
	int role;
	int64_t context, embeddings;
	bool shorten, scores;
};

/* Another server that runs the models; url "": none. */
struct upstream_settings {
	char *url, *key_file, *ca_file, *metrics;
	bool verify;
	int dialect; /* enum eng_remote_dialect */
	uint64_t connect_ms, idle_ms, total_ms, health_ms, metrics_ms, cool_down_ms;
	int64_t failures, connections;
	struct conf_list models; /* struct upstream_model_settings */
};

/* Where `sluice pull` gets models, and how. */
struct hub_settings {
	char *endpoint, *token_file, *ca_file;
	char *folder; /* "": STATE/models */
	uint64_t connect_ms, stall_ms, least_rate;
	int64_t retries;
	uint64_t retry_ms;
};

struct sluice_config {
	char *state;
	int log_level;                    /* enum log_level */
	int log_levels[LOG_N_SUBSYSTEMS]; /* 0: log_level; else 1 + enum log_level */
	int log_format;                   /* enum log_format */
	struct supervisor_settings supervisor;
	/* An engine's section: what an item of `engines` has, too (engines.c). */
	struct engine_settings engine;
	struct echo_settings echo;
	struct upstream_settings upstream;
	struct conf_list engines; /* struct engine_item; its place ends the section */
	uint64_t handover_memory; /* of the area in which prompts' pages pass between engines */
	struct hub_settings hub;
	struct gw_config gateway;
	struct casc_settings cascade;
	/* Derived: state/run/engine.sock, where the configuration names no socket; of one by name engine-NAME.sock. */
	char default_socket[108];
	/* Derived: state/cuda-products, the products that a device's library computes faster. */
	char cuda_products[4096 + 16];
	char default_weights[108]; /* state/weights, where the configuration names no folder for them */
	char default_kv[108];      /* likewise state/kv */
	char models_folder[4128];  /* hub.folder, or state/models */
	/* The paths of models that are configured by a name in that folder; owned. engine.models points to them. */
	char *model_paths[PROTO_MAX_MODELS];
	/* Derived of engine.adapters: clients' names of them, "MODEL:NAME", owned. */
	struct eng_adapter_config adapters[PROTO_MAX_MODELS];
	struct eng_adapter_config served_adapters[PROTO_MAX_MODELS]; /* by this engine; their names are those above */
	struct eng_adapter_folder served_folders[MOST_ADAPTER_FOLDERS];
	int n_served_adapters, n_served_folders;
	struct eng_adapter_folder adapter_folders[MOST_ADAPTER_FOLDERS];
	struct gw_grant grants[PROTO_MAX_MODELS + MOST_ADAPTER_FOLDERS];
	/* In a child of `sluice serve`: the state folder by its descriptor (sluice_config_state_fd), and the configured
	 * paths in that folder. */
	char state_by_fd[32], socket_by_fd[128], link_by_fd[128], weights_by_fd[4128], kv_by_fd[4128];
	struct conf *conf; /* owns everything above */
};

/* An item of `engines`. What it does not give is unset in its section, and is as in `engine`. */
struct engine_item {
	char *name;
	struct conf_strings models; /* names; empty: as engine.serves */
	int role;                   /* enum gw_engine_role */
	/* As in struct sluice_config from engine to engines. */
	unsigned char section[offsetof(struct sluice_config, engines) - offsetof(struct sluice_config, engine)];
};

/* Reads path (NULL: defaults only) and the overrides, checks, derives. On failure *err is one readable line. 0 or a
 * code; after 0 the caller must call sluice_config_free. cfg must not move. */
int sluice_config_load(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
		       struct sl_err *err);
/* The configuration of the engine that `engines` has by that name: its keys stand in the section engine. NULL: of the
 * first one. */
int sluice_config_load_engine(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
			      const char *name, struct sl_err *err);
void sluice_config_free(struct sluice_config *cfg);

/* Configurations use this descriptor as their state folder from now on: this process may not be able to enter its
 * parents. */
void sluice_config_state_fd(int fd);

/* Levels of all subsystems. */
void sluice_log_levels(const struct sluice_config *cfg, struct log_levels *out);

/* The table of keys; ends with key == NULL. */
const struct conf_row *sluice_config_rows(void);

/* What a change of a root key needs. */
enum restart_need {
	RESTART_NOT,     /* a reload */
	RESTART_ENGINE,  /* a reload, in which new engines take over from the running ones */
	RESTART_GATEWAY, /* a new gateway process: an upgrade or a restart */
	RESTART_ALL,     /* a restart */
};
enum restart_need sluice_config_restart(const char *key);

/* The engine's part. models: room for cfg->engine.models.n; everything borrows from cfg. */
void sluice_engine_config(const struct sluice_config *cfg, struct eng_model_config *models, struct eng_config *out);
/* Whether the engine computes on a device if there is one. */
bool sluice_wants_device(const struct sluice_config *cfg);
/* Opens backends that are shared objects while this process can still read their files. */
void sluice_load_backends(const struct sluice_config *cfg);
/* engine.serves has the model, or is empty. */
bool engines_serves(const struct sluice_config *cfg, const char *model);
/* The upstream of engine number k: 0 is the first one, k that of engines[k - 1]. url "": it runs its models itself. */
struct engine_upstream {
	const char *url, *key_file, *ca_file;
};
struct engine_upstream engines_upstream(const struct sluice_config *cfg, int k);
/* Engines of this role (enum gw_engine_role), a bit for each number. */
uint32_t engines_of_role(const struct sluice_config *cfg, int role);
/* Whether prompts can be computed apart: which engines do, a bit for each number; 0: none. */
uint32_t engines_prefill(const struct sluice_config *cfg);
/* The number of an engine by its name; NULL: 0, the first one. */
uint32_t engines_number(const struct sluice_config *cfg, const char *name);
/* Pins this process, and the threads that it makes from now on, to engine.cores. 0, SL_EINVAL: it may use none of them.
 */
int engines_pin(const struct sluice_config *cfg, struct sl_err *err);
void sluice_echo_config(const struct sluice_config *cfg, struct eng_echo_config *out);
/* Does another server run the models? */
bool sluice_has_upstream(const struct sluice_config *cfg);
/* At most so many models it serves by name. */
size_t sluice_remote_models(const struct sluice_config *cfg);
/* models: room for them. */
void sluice_remote_config(const struct sluice_config *cfg, struct eng_remote_model *models,
			  struct eng_remote_config *out);

#endif
