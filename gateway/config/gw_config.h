/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header: the gateway's configuration, which all its rooms read. cmd/config fills it in; a snapshot
 * (auth/snapshot.h) keeps it immutable. Any thread may read it.
 *
 *   tier   the priority, pace and limits of a group of keys
 *   key    an API key; belongs to one tier
 *   block  a range of addresses in CIDR notation
 */
#ifndef GATEWAY_GW_CONFIG_H
#define GATEWAY_GW_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf/conf.h"
#include "base/err.h"

/* The scope in which identical requests share one generation. */
enum gw_coalesce { GW_COALESCE_OFF, GW_COALESCE_USER, GW_COALESCE_TENANT };
/* Which newer prompts end older ones of their conversation: none; those that name the conversation; also those that
 * seem to continue it. */
enum gw_supersede { GW_SUPERSEDE_OFF, GW_SUPERSEDE_NAMED, GW_SUPERSEDE_ANY };

/* What happens to a request whose predicted first token is later than its tier's ttft_target. */
enum gw_late { GW_LATE_QUEUE, GW_LATE_DEGRADE, GW_LATE_REFUSE };

struct casc_settings;

struct gw_tier_config {
	char *name;
	char *default_model;        /* for a request that names "default"; "" or NULL: gateway.default_model */
	int64_t priority;           /* 0 first */
	double pace_tps;            /* tokens per second of one stream; 0: unpaced */
	int64_t pace_burst;         /* tokens sent at once before the pace applies */
	int64_t max_output;         /* tokens; the largest max_tokens, and the cap of its default */
	int64_t concurrency;        /* concurrent generations of one key; more get 429 */
	uint64_t deadline_ms;       /* of one generation; 0: none */
	int64_t max_prompt;         /* tokens; 0: as long as the model's context */
	int64_t weight;             /* a tenant's share relative to others of the same priority */
	struct conf_strings models; /* names this tier may use; empty: all */
	int coalesce;               /* enum gw_coalesce */
	int supersede;              /* enum gw_supersede */
	/* Of one key, prompt and answer together; 0: no limit. */
	int64_t requests_per_minute, tokens_per_minute, tokens_per_day;
	int64_t subject_requests_per_minute; /* of one subject of browser tokens, within the above; 0: no limit */
	int cleanse;                         /* enum cleanse_level, of users' messages */
	int compress;                        /* enum compress_mode, of conversations that grow too long */
	uint64_t ttft_target_ms;             /* 0: none */
	uint64_t itl_target_ms;              /* for goodput; 0: none */
	double floor_tps;           /* tokens per second of its streams that worse priorities must leave; 0: none */
	uint64_t max_wait_ms;       /* for a first token, once admitted; 0: limits.first_token_ms */
	int when_late;              /* enum gw_late */
	char *degrade_model;        /* "": the requested model */
	int64_t degrade_max_tokens; /* 0: as requested */
	int64_t load_prompt, load_output; /* tokens, under load; 0: unchanged */
	bool hedge;                       /* a late first token may be computed on a second engine, too */
	uint64_t keep_alive_ms;           /* the longest that a request may ask for; 0: it has no effect */
};

struct gw_key_config {
	char *name;   /* for logs and metrics; never the key itself */
	char *sha256; /* 64 hex digits, of the key's bytes */
	char *tier;   /* a tier's name, or "admin": may only read /metrics, and load and unload adapters */
	struct conf_strings origins; /* of web pages that may use the key; empty: all of cors_origins */
};

enum gw_client_certs { GW_CLIENT_CERTS_NONE, GW_CLIENT_CERTS_OPTIONAL, GW_CLIENT_CERTS_REQUIRED };
enum gw_tls_min { GW_TLS_1_2, GW_TLS_1_3 };

/* An additional certificate, for the server names in it. */
struct gw_cert_config {
	char *name;
	char *cert_file, *key_file;
};

/* A listener in addition to https and http: either address or unix_path. */
struct gw_listener_config {
	char *name;
	struct conf_address address;
	char *unix_path; /* "": none */
	char *unix_mode; /* octal, "0660" */
	bool tls;
	bool proxy;       /* every connection begins with a PROXY header */
	int client_certs; /* enum gw_client_certs */
};

struct gw_limits {
	int64_t connections;                                  /* per thread */
	int64_t connections_per_address, streams_per_address; /* of all threads; 0: no limit */
	struct conf_strings exempt_addresses;                 /* blocks without these two limits */
	int64_t requests_per_key;    /* in progress, beyond its tier's concurrency; 0: no limit */
	uint64_t memory;             /* resident bytes of the process; above it work is shed; 0: no limit */
	int64_t handshakes_per_turn; /* reads of TLS handshakes per loop iteration; 0: no limit */
	uint64_t response_ms;        /* absolute, of one response; 0: no limit */
	int64_t streams_per_connection;
	uint64_t header_bytes; /* name + value + 32 for each field, RFC 9113 6.5.2 */
	int64_t header_fields;
	uint64_t body_bytes;
	uint64_t handshake_ms, header_ms, body_ms; /* absolute deadlines */
	uint64_t idle_ms;                          /* a connection without streams */
	uint64_t stall_ms;                         /* a response without progress */
	uint64_t output_bytes;                     /* pending output of a connection; above it nothing is read */
	int64_t resets_per_s, resets_burst;
	int64_t refused_per_s, refused_burst; /* HTTP/2: malformed and oversized requests of a connection */
	int64_t control_frames_per_s, control_frames_burst; /* PING, SETTINGS, PRIORITY, empty DATA, … */
	int64_t window_tokens;                              /* unsent tokens buffered for one subscriber */
	int64_t messages;                                   /* of one chat request */
	int64_t json_depth;
	int64_t json_values;     /* an object or array counts 8, a key 4, an element 1; 0: no limit */
	uint64_t submit_wait_ms; /* for QUEUED after SUBMIT; with a constraint, the longer of this and first_token_ms */
	uint64_t quota_wait_ms;  /* for tokens that other answers of the key reserve */
	uint64_t first_token_ms; /* the longest predicted or actual wait for a first token */
};

/* Streams that can be resumed. */
struct gw_resume {
	uint64_t grace_ms;     /* how long an answer without readers continues */
	uint64_t keep_ms;      /* how long a stream is kept after its end */
	uint64_t stream_bytes; /* of one stream; the oldest events are dropped first */
	uint64_t memory_bytes; /* of all streams */
	bool store;            /* keep them in the store too, if gateways share it */
};

/* How tokens become events. */
struct gw_flush {
	uint64_t hold_ms; /* how long fewer than `tokens` tokens wait for more; 0: they do not wait */
	int64_t tokens;
};

/* A stored prompt that requests refer to by name. */
struct gw_prompt_config {
	char *name;    /* its id */
	char *version; /* "": matches any version */
	char *text;    /* {{name}} is a variable */
};

struct gw_responses {
	uint64_t keep_ms; /* of a stored response */
};

/* Conversations that have grown too long. */
struct gw_compress {
	uint64_t wait_ms; /* for all summaries of one request; blocks without one are then dropped */
};

/* Conversations (/v1/conversations). */
struct gw_conversations {
	uint64_t keep_ms;      /* after the last change */
	int64_t per_tenant;    /* conversations; 0: no limit */
	uint64_t bytes;        /* of one conversation */
	uint64_t tenant_bytes; /* of all conversations of a tenant; 0: no limit */
};

/* Files of text (/v1/files). */
struct gw_files {
	uint64_t keep_ms;      /* unless its request says how long */
	int64_t per_tenant;    /* files; 0: no limit */
	uint64_t bytes;        /* of one file */
	uint64_t tenant_bytes; /* of all files of a tenant; 0: no limit */
};

/* Identical and nearly identical requests. */
struct gw_coalescing {
	uint64_t window_ms;      /* how long after its end an answer can be joined */
	uint64_t burst_ms;       /* nearly identical prompts of one user at shorter intervals count as typing */
	uint64_t idempotency_ms; /* how long the answer to a request with an Idempotency-Key is kept */
};

/* Where values, logs and limits are kept (cache/cache.h). */
enum gw_store_kind {
	GW_STORE_AUTO, /* Redis when there is an address, otherwise memory */
	GW_STORE_MEMORY,
	GW_STORE_REDIS,
};

struct gw_store_settings { /* 0: the default of cache_config_init */
	int kind;
	char *address, *user, *password_file, *sentinel_password_file, *prefix; /* "" is none, except prefix */
	bool own_server; /* the address is a socket in the state folder */
	int64_t database;
	uint64_t connect_timeout_ms, timeout_ms, backoff_min_ms, backoff_max_ms;
	int64_t failures, operations, keys_per_tenant, gateways;
	uint64_t value_bytes, log_bytes, memory_bytes;
	uint64_t server_memory; /* of the redis-server that `sluice serve` starts */
};

/* The queue of waiting requests, and when its waits count as load. */
struct gw_queue_config {
	int64_t most;     /* requests, over all threads; 0: no limit */
	uint64_t tell_ms; /* the interval at which positions are reported; 0: never */
	uint64_t load_high_ms,
	    load_low_ms; /* predicted waits: a tier is under load from high until below low; high 0: never */
};

/* Requests' records (gateway/observe/record.h). */
struct gw_requests {
	char *to; /* a file, "stderr" or "off" */
	double sample;
};

/* Traces (gateway/observe/tracer.h). */
struct gw_trace {
	char *endpoint; /* "": off */
	double sample;
	uint64_t timeout_ms;
};

/* Which of the engines that have a model gets a request (gateway/generation/routing.h). */
enum gw_routing_policy {
	GW_ROUTE_BY_COST,
	GW_ROUTE_ROUND_ROBIN,
	GW_ROUTE_LEAST_REQUESTS,
	GW_ROUTE_BY_PREFIX,
	GW_ROUTE_BY_KV,
};
enum gw_route_part {
	GW_ROUTE_OCCUPANCY,
	GW_ROUTE_ACTIVE,
	GW_ROUTE_CACHE,
	GW_ROUTE_QUEUE,
	GW_ROUTE_RECENT,
	GW_ROUTE_AFFINITY,
	GW_ROUTE_PARTS
};
/* Which engines get requests as long as they are not saturated. */
enum gw_route_first { GW_ROUTE_ANY, GW_ROUTE_LOCAL, GW_ROUTE_REMOTE };
struct gw_routing {
	int policy; /* enum gw_routing_policy */
	double weights[GW_ROUTE_PARTS];
	int first;                  /* enum gw_route_first; remote: another server runs the engine's models */
	uint64_t saturated_wait_ms; /* a longer predicted wait for a first token saturates an engine */
};

/* A second engine for answers whose first token is late (gateway/generation/hedge.h). */
struct gw_hedge {
	double percentile; /* of an engine's times to the first token, 0 … 1; later ones are late */
	double share;      /* the most hedges a request, 0 … 1 */
	uint64_t least_ms; /* no token is late before */
};

/* Where prompts are computed (gateway/generation/prefill_choice.h). */
struct gw_prefill {
	int64_t tokens, queue, busy, busy_tokens, local_priority;
	uint64_t wait_ms; /* that a sequence waits for its pages */
};

/* When roles of engines of role auto change (gateway/generation/role_planner.h). */
struct gw_planner {
	uint64_t period_ms, dwell_ms; /* between decisions; that an engine keeps a role */
};

enum gw_engine_role {
	GW_ENGINE_BOTH,    /* gets requests and computes their prompts */
	GW_ENGINE_PREFILL, /* computes prompts for engines of role decode */
	GW_ENGINE_DECODE,  /* gets requests, whose prompts one of role prefill may compute */
	GW_ENGINE_AUTO,    /* one of these at a time, as the planner decides */
};

/* A further engine process. */
struct gw_engine {
	const char *name;
	char socket[108];
	int role; /* enum gw_engine_role */
};
enum { GW_MAX_ENGINES = 8 /* the first one included */ };
/* Who may use an adapter, or (prefix) all of a base that have no entry of their own. */
struct gw_grant {
	const char *name; /* BASE:NAME; prefix: BASE */
	bool prefix;
	const struct conf_strings *tiers, *tenants; /* empty: all */
};

struct gw_grants {
	const struct gw_grant *all;
	size_t n;
};

/* A variant of a model (gateway/variant). */
struct gw_variant_config {
	char *name;  /* its own, in metrics and records */
	char *of;    /* the name that clients ask for */
	char *model; /* that answers: a model or an adapter */
	double weight;
	double shadow;                    /* share of the requests for `of` that it gets a copy of */
	double temperature, min_p;        /* below 0: not set */
	double top_p, repetition_penalty; /* 0: not set */
	int64_t max_tokens;               /* 0: not set */
	bool rollback;                    /* once it is shown to be worse than the first of `of` */
};

struct gw_config {
	struct conf_address https, http;
	int64_t threads;
	char *state_dir;
	char *cert_file, *key_file;          /* "": the development certificate in state_dir/tls */
	struct conf_list certificates;       /* struct gw_cert_config */
	char *client_ca;                     /* PEM; issuers of accepted client certificates; "": none */
	int client_certs;                    /* enum gw_client_certs, of https */
	int tls_min;                         /* enum gw_tls_min */
	uint64_t ticket_ms;                  /* the lifetime of a key for session tickets; 0: no resumption */
	struct conf_list listeners;          /* struct gw_listener_config */
	struct conf_strings trusted_proxies; /* blocks; client addresses that these proxies report are trusted */
	int forwarded;                       /* enum forwarded_kind: the header field that they write */
	char *engine_socket;
	struct gw_engine engines[GW_MAX_ENGINES - 1];
	int n_engines;   /* further ones */
	int engine_role; /* of the first one; enum gw_engine_role */
	const char
	    *models[256]; /* names of all engines' models, in the order of the configuration, as far as it has them */
	int n_models;
	struct gw_routing routing;
	struct gw_hedge hedge;
	struct gw_prefill prefill;
	struct gw_planner planner;
	bool dev_keys; /* accept state_dir/dev-keys.yaml */
	bool metrics_public;
	char *anonymous;                  /* the tier of requests without a key; "": they are refused */
	char *default_model;              /* for a request that names "default"; "": the large model */
	uint64_t heartbeat_ms;            /* an SSE comment is sent after this time without events */
	struct conf_strings cors_origins; /* exact, or with a `*` for the port: http://localhost:* */
	struct conf_list tiers;           /* struct gw_tier_config */
	struct conf_list keys;            /* struct gw_key_config */
	struct gw_grants grants;          /* of adapters */
	struct gw_limits limits;
	uint64_t drain_ms, upgrade_drain_ms; /* time for running answers: at shutdown, in an upgrade */
	struct gw_resume resume;
	struct gw_store_settings store;
	struct gw_flush flush;
	struct gw_responses responses;
	struct gw_conversations conversations;
	struct gw_files files;
	int64_t warm; /* prefixes recomputed after a restart of the engine; 0: none */
	struct gw_coalescing coalescing;
	struct gw_compress compress;
	struct gw_queue_config queue;
	struct conf_list prompts;  /* struct gw_prompt_config */
	struct conf_list variants; /* struct gw_variant_config */
	struct gw_requests requests;
	struct gw_trace trace;
	const struct casc_settings *cascade; /* NULL: no model "auto" */
	char *cascade_log;                   /* the file of outcomes; "": none */
	uint64_t cascade_log_bytes;          /* of cascade_log; 0: no limit */
	int beat_fd;
	int handover_fd;   /* to the supervisor, which keeps the listening sockets; 0 or less: none */
	bool sockets_stay; /* inherited from a service manager: files of unix sockets are never removed */
	bool takeover;     /* accept only when requests can be served; another gateway serves until then */
	unsigned beat_ms;
	unsigned stale_ms; /* supervisor.hang: a loop, or an engine, that is silent for that long is hung */
};

/* Does a listener use TLS? */
bool gateway_serves_tls(const struct gw_config *cfg);
/* Does a listener use TLS without a configured certificate? Then the development pair in state_dir is used. */
bool gateway_wants_dev_cert(const struct gw_config *cfg);

#endif
