/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all keys. etc/sluice.yaml shows every one of them with a comment; `sluice config
 * show` prints them with their values and where each came from. Defaults are safe: loopback only,
 * nobody has a key, every limit has a number.
 */
#include "cmd/config/schema.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/sched/spec.h"
#include "gateway/auth/cors.h"
#include "gateway/loop/net_addr.h"
#include "gateway/transport/unix_listen.h"
#include "kernels/kernels.h"
#include "kernels/plugin.h"

#define ROOT(field) offsetof(struct sluice_config, field)
#define MODEL(field) offsetof(struct model_settings, field)
#define TIER(field) offsetof(struct gw_tier_config, field)
#define KEY(field) offsetof(struct gw_key_config, field)
#define PROMPT(field) offsetof(struct gw_prompt_config, field)
#define CERT(field) offsetof(struct gw_cert_config, field)
#define LISTENER(field) offsetof(struct gw_listener_config, field)

/* One line a row: key, type, where, default, least, most, what it means. */
#define ROW(k, t, o, d, lo, hi, h)                                                               \
	{                                                                                        \
		.key = k, .type = t, .offset = o, .fallback = d, .min = lo, .max = hi, .help = h \
	}
#define ROW_ENUM(k, o, d, c, h)                                                                  \
	{                                                                                        \
		.key = k, .type = CONF_ENUM, .offset = o, .fallback = d, .choices = c, .help = h \
	}
#define ROW_LIST(k, o, rows, type_, lo, hi, h)                                                           \
	{                                                                                                \
		.key = k, .type = CONF_LIST, .offset = o, .item_rows = rows, .item_size = sizeof(type_), \
		.item_name = "name", .min = lo, .max = hi, .help = h                                     \
	}
#define ROW_END             \
	{                   \
		.key = NULL \
	}

#define KIB 1024.0
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define SECOND 1000.0
#define MINUTE 60000.0
#define HOUR 3600000.0

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const backends[] = {"auto",    "cpu-ref",      "cpu-avx2", "cpu-avx2-int8", "cpu-avx512", "cpu-vnni",
				       "cpu-amx", "cpu-amx-int8", "cuda",     "cuda-emulated", NULL};
static const char *const stores[] = {"auto", "memory", "redis", NULL};
static const char *const client_certs[] = {"none", "optional", "required", NULL};
static const char *const tls_versions[] = {"1.2", "1.3", NULL};
static const char *const forwarded_kinds[] = {"off", "x-forwarded-for", "forwarded", NULL};
static const char *const coalesce_kinds[] = {"off", "user", "tenant", NULL};
static const char *const supersede_kinds[] = {"off", "named", "any", NULL};
static const char *const cleanse_levels[] = {"off", "light", "full", NULL};
static const char *const compress_modes[] = {"off", "trim", "summary", NULL};
static const char *const launch_ahead[] = {"auto", "off", NULL};
static const char *const spec_modes[] = {"off", "ngram", "draft", "auto", NULL};
static const char *const late_kinds[] = {"queue", "degrade", "refuse", NULL};
/* The first stands for engine.kv_type. */
static const char *const kv_types[] = {"default", "auto", "f32", "f16", "bf16", "q8", "fp8", NULL};
static const char *const roles[] = {"none", "small", "large", NULL};

static const struct conf_row model_rows[] = {
    ROW("name", CONF_STRING, MODEL(name), NULL, 1, PROTO_MAX_NAME, "As clients ask for it."),
    ROW("path", CONF_STRING, MODEL(path), NULL, 1, 4095,
	"A GGUF file (any part of a split one) or a Hugging Face folder; relative paths start at the "
	"working directory."),
    ROW_ENUM("role", MODEL(role), "none", roles,
	     "small and large are the pair that tiers and the default choose from."),
    ROW("quantize", CONF_STRING, MODEL(quantize), "", 0, 16,
	"A weight type (q8_0, q4_k, ...; int4; fp8 with CUDA) that float matrices become on load; empty: as in the "
	"file."),
    ROW_ENUM("kv_type", MODEL(kv_type), "default", kv_types,
	     "What its keys and values are kept in; default: engine.kv_type."),
    ROW_END,
};

static const struct conf_row tier_rows[] = {
    ROW("name", CONF_STRING, TIER(name), NULL, 1, 64, "As keys name it."),
    ROW("priority", CONF_INT, TIER(priority), "1", 0, 9, "0 is served first."),
    ROW("default_model", CONF_STRING, TIER(default_model), "", 0, PROTO_MAX_NAME,
	"What a request for the model named default gets; empty: gateway.default_model."),
    ROW("pace_tps", CONF_FLOAT, TIER(pace_tps), "0", 0, 100000, "Tokens per second of one stream; 0: unpaced."),
    ROW("burst", CONF_INT, TIER(pace_burst), "8", 1, 100000, "Tokens that may come at once before the pace begins."),
    ROW("max_output", CONF_INT, TIER(max_output), "1024", 1, 1000000, "The most tokens of one answer."),
    ROW("concurrency", CONF_INT, TIER(concurrency), "4", 1, 100000,
	"Answers of one key at once, each prompt x choice of a request counted."),
    ROW("deadline", CONF_DURATION, TIER(deadline_ms), "0", 0, 24 * HOUR,
	"The longest time of one answer, from arrival; 0: none."),
    ROW("max_prompt", CONF_INT, TIER(max_prompt), "0", 0, 100000000,
	"The most tokens of one prompt; 0: as many as the model takes."),
    ROW("weight", CONF_INT, TIER(weight), "100", 1, PROTO_MAX_WEIGHT,
	"The share of each of its tenants beside the others of the same priority."),
    ROW("requests_per_minute", CONF_INT, TIER(requests_per_minute), "0", 0, 60000000,
	"Requests of one key per minute; 0: no limit."),
    ROW("subject_requests_per_minute", CONF_INT, TIER(subject_requests_per_minute), "0", 0, 60000000,
	"Requests per minute of one subject of a key's browser tokens, within those of the key; 0: no limit."),
    ROW("tokens_per_minute", CONF_INT, TIER(tokens_per_minute), "0", 0, 60000000,
	"Tokens of one key per minute, of prompts and answers; 0: no limit."),
    ROW("tokens_per_day", CONF_INT, TIER(tokens_per_day), "0", 0, 1e12,
	"Tokens of one key per day (UTC); 0: no limit."),
    ROW_ENUM("coalesce", TIER(coalesce), "user", coalesce_kinds,
	     "Whose identical requests in flight share one generation: one user's, or of all users of a key "
	     "(only at temperature 0 or with a seed)."),
    ROW_ENUM("supersede", TIER(supersede), "named", supersede_kinds,
	     "A newer prompt ends the older one of its conversation: where x-sluice-conversation says so, or "
	     "also where the messages do."),
    ROW("models", CONF_STRINGS, TIER(models), "", 0, PROTO_MAX_MODELS,
	"Model names this tier may ask for; empty: all."),
    ROW_ENUM("cleanse", TIER(cleanse), "light", cleanse_levels,
	     "What is removed from users' messages: nothing, what nobody sees (light), or also pasted "
	     "HTML, Markdown's decoration and typography (full)."),
    ROW_ENUM("compress", TIER(compress), "off", compress_modes,
	     "A conversation past 75 % of the model's context: stays as it is, loses its oldest turns (trim), or "
	     "has a summary by the small model instead of them (summary)."),
    ROW("ttft_target", CONF_DURATION, TIER(ttft_target_ms), "0", 0, HOUR,
	"The longest predicted wait for a first token, beyond it: when_late; 0: limits.first_token only."),
    ROW_ENUM("when_late", TIER(when_late), "queue", late_kinds,
	     "Predicted later than ttft_target: wait all the same, be degraded (degrade.*), or be refused at once."),
    ROW("max_wait", CONF_DURATION, TIER(max_wait_ms), "0", 0, HOUR,
	"Who has waited so long for a first token is degraded or refused; 0: limits.first_token."),
    ROW("degrade.model", CONF_STRING, TIER(degrade_model), "", 0, PROTO_MAX_NAME,
	"The model that answers instead; empty: the one that was asked for."),
    ROW("degrade.max_tokens", CONF_INT, TIER(degrade_max_tokens), "0", 0, 1000000,
	"Tokens of a degraded answer; 0: as asked for."),
    ROW("under_load.prompt_limit", CONF_INT, TIER(load_prompt), "0", 0, 100000000,
	"The most tokens of a prompt while gateway.load says so; 0: as ever."),
    ROW("under_load.output_limit", CONF_INT, TIER(load_output), "0", 0, 1000000,
	"The same of an answer, those that go on included; 0: as ever."),
    ROW_END,
};

static const struct conf_row prompt_rows[] = {
    ROW("name", CONF_STRING, PROMPT(name), NULL, 1, 64, "The id that requests name."),
    ROW("version", CONF_STRING, PROMPT(version), "", 0, 64,
	"A request that names another version is refused; empty: any is answered by it."),
    ROW("text", CONF_STRING, PROMPT(text), NULL, 1, 65536, "The developer's message; {{name}} stands for a variable."),
    ROW_END,
};

static const struct conf_row key_rows[] = {
    ROW("name", CONF_STRING, KEY(name), NULL, 1, 64, "For logs and metrics, never the key."),
    ROW("sha256", CONF_STRING, KEY(sha256), NULL, 64, 64, "SHA-256 of the key, 64 hex digits."),
    ROW("tier", CONF_STRING, KEY(tier), NULL, 1, 64, "A tier's name, or admin: may only read /metrics."),
    ROW("origins", CONF_STRINGS, KEY(origins), "", 0, 16,
	"Web origins that may use the key; a request with another Origin is refused; empty: any."),
    ROW_END,
};

static const struct conf_row cert_rows[] = {
    ROW("name", CONF_STRING, CERT(name), NULL, 1, 64, "For messages."),
    ROW("cert", CONF_STRING, CERT(cert_file), NULL, 1, 4095, "PEM certificate chain."),
    ROW("key", CONF_STRING, CERT(key_file), NULL, 1, 4095, "PEM private key."),
    ROW_END,
};

static const struct conf_row listener_rows[] = {
    ROW("name", CONF_STRING, LISTENER(name), NULL, 1, 64, "For messages."),
    ROW("address", CONF_ADDRESS, LISTENER(address), "off", 0, 0, "An address, or off with unix."),
    ROW("unix", CONF_STRING, LISTENER(unix_path), "", 0, 107, "A socket's path instead of an address."),
    ROW("mode", CONF_STRING, LISTENER(unix_mode), "0660", 1, 4, "Its permissions, octal: who may connect."),
    ROW("tls", CONF_BOOL, LISTENER(tls), "false", 0, 0, "TLS, or cleartext."),
    ROW("proxy", CONF_BOOL, LISTENER(proxy), "false", 0, 0,
	"Connections begin with a PROXY header (version 1 or 2), from gateway.trusted_proxies only."),
    ROW_ENUM("client_certs", LISTENER(client_certs), "none", client_certs,
	     "Ask clients for certificates of gateway.client_ca."),
    ROW_END,
};

static const struct conf_row all_rows[] = {
    ROW("state", CONF_STRING, ROOT(state), "state", 1, 80,
	"Folder for what Sluice keeps: sockets, development certificate and keys."),
    ROW_ENUM("log.level", ROOT(log_level), "info", log_levels, "The least level that is logged."),

    ROW("supervisor.heartbeat", CONF_DURATION, ROOT(supervisor.heartbeat_ms), "500ms", 10, MINUTE,
	"The engine and the gateway send a sign of life that often."),
    ROW("supervisor.hang", CONF_DURATION, ROOT(supervisor.hang_ms), "3s", 50, 10 * MINUTE,
	"A process silent for that long is killed and started again."),
    ROW("supervisor.backoff_min", CONF_DURATION, ROOT(supervisor.backoff_min_ms), "250ms", 1, MINUTE,
	"The wait before the second restart in a row; it doubles from there."),
    ROW("supervisor.backoff_max", CONF_DURATION, ROOT(supervisor.backoff_max_ms), "15s", 1, HOUR,
	"The longest wait before a restart."),
    ROW("supervisor.drain", CONF_DURATION, ROOT(supervisor.drain_ms), "15s", 10, HOUR,
	"The longest wait for a process to end by itself."),
    ROW("supervisor.takeover", CONF_DURATION, ROOT(supervisor.takeover_ms), "30s", 10, HOUR,
	"In an upgrade: how long a new gateway may take to be ready before the old one goes on."),
    ROW("supervisor.core_dumps", CONF_BOOL, ROOT(supervisor.core_dumps), "false", 0, 0,
	"Whether a crash may leave a core file: it would hold prompts, answers and keys."),
    ROW("supervisor.user", CONF_STRING, ROOT(supervisor.user), "", 0, 64,
	"Started as root: the user (name, UID or UID:GID) the engine, the gateway and Redis run as; empty: sluice, or "
	"uid 65532."),
    ROW("supervisor.sandbox", CONF_BOOL, ROOT(supervisor.sandbox), "true", 0, 0,
	"Whether the engine and the gateway give up what they don't need: system calls (seccomp) and files "
	"(Landlock)."),

    ROW("engine.socket", CONF_STRING, ROOT(engine.socket), "", 0, 107,
	"The engine's unix socket; empty: STATE/run/engine.sock."),
    ROW_ENUM("engine.backend", ROOT(engine.backend), "auto", backends,
	     "Which kernels compute; auto takes the fastest this processor has. cuda-emulated is for tests."),
    ROW("engine.threads", CONF_INT, ROOT(engine.threads), "0", 0, 1024, "Threads that compute; 0: one for each core."),
    ROW("engine.text_workers", CONF_INT, ROOT(engine.text_workers), "1", 1, 64,
	"Threads for templates and tokenizers."),
    ROW("engine.page_tokens", CONF_INT, ROOT(engine.page_tokens), "16", 1, 256, "Tokens in one page of the KV cache."),
    ROW("engine.kv_memory", CONF_BYTES, ROOT(engine.kv_memory), "256MiB", MIB, TIB,
	"Memory for the KV cache of all models together; on a device see engine.cuda.memory."),
    ROW_ENUM("engine.kv_type", ROOT(engine.kv_type), "auto", kv_types + 1,
	     "What keys and values are kept in; auto: f16 where the backend has it, otherwise f32."),
    ROW("engine.max_model_memory", CONF_BYTES, ROOT(engine.max_model_memory), "0", 0, TIB,
	"A larger model file is refused; 0: what memory allows."),
    ROW("engine.max_sequences", CONF_INT, ROOT(engine.max_sequences), "32", 1, 4096, "Answers in progress at once."),
    ROW("engine.max_waiting", CONF_INT, ROOT(engine.max_waiting), "256", 1, 65536,
	"Answers that may wait, each choice counted; one more displaces a worse one, or is refused."),
    ROW("engine.step_tokens", CONF_INT, ROOT(engine.step_tokens), "128", 1, 8192,
	"Tokens computed in one step; long prompts are cut to it."),
    ROW("engine.itl_target", CONF_DURATION, ROOT(engine.itl_target_ms), "50ms", 0, 60 * 1000,
	"What computing prompts may add to the time between an answer's tokens; 0: no target."),
    ROW("engine.prefix_cache", CONF_BOOL, ROOT(engine.prefix_cache), "true", 0, 0,
	"Prompts that begin alike are computed once."),
    ROW("engine.share_prefixes", CONF_BOOL, ROOT(engine.share_prefixes), "false", 0, 0,
	"Also between tenants; then one can tell by the time what another has sent."),
    ROW_ENUM("engine.launch_ahead", ROOT(engine.launch_ahead), "auto", launch_ahead,
	     "A device's next step is launched while one runs; off: when its tokens have come."),
    ROW("engine.max_prompt", CONF_BYTES, ROOT(engine.max_prompt), "1MiB", 1, 3 * MIB,
	"Bytes of one prompt before it is tokenized."),
    ROW_ENUM("engine.speculation.mode", ROOT(engine.spec_mode), "auto", spec_modes,
	     "Drafts that a step verifies besides making a token: from the text itself (ngram), from the "
	     "small model for the large one (draft), both (auto). Answers are the same, bit for bit."),
    ROW("engine.speculation.max_draft", CONF_INT, ROOT(engine.spec_max_draft), "8", 1, SPEC_MAX_DRAFT,
	"Tokens of a draft at most."),
    ROW("engine.speculation.fixed", CONF_BOOL, ROOT(engine.spec_fixed), "false", 0, 0,
	"Drafts are always as long as can be, whether they pay or not: for measuring."),
    ROW("engine.cuda.batch_invariant", CONF_BOOL, ROOT(engine.cuda_batch_invariant), "true", 0, 0,
	"An answer's bits don't depend on what runs beside it. false: products of many rows are made by cuBLASLt "
	"where it is quicker, so they may differ within rounding, and seeds and drafts promise nothing."),
    ROW("engine.cuda.memory", CONF_FLOAT, ROOT(engine.cuda_memory), "0.9", 0, 1,
	"Part of a device's memory that may be taken in all: what weights and steps leave of it is for the KV cache, "
	"and "
	"engine.kv_memory counts for nothing. 0: that counts."),
    ROW("engine.cuda.swap", CONF_BYTES, ROOT(engine.cuda_swap), "4GiB", 0, TIB,
	"The host's memory for KV pages of answers that are pre-empted on a device, an eighth of the machine's at "
	"most; 0: none."),
    ROW("engine.weight_cache", CONF_STRING, ROOT(engine.weight_cache), "", 0, 4000,
	"Folder where weights are kept as the kernels rearrange them, for the next start; empty: STATE/weights; off: "
	"not kept."),
    ROW("engine.weight_cache_size", CONF_BYTES, ROOT(engine.weight_cache_size), "64GiB", 0, 16 * TIB,
	"Room for all files in it; the least recently used ones go."),
    ROW_LIST("engine.models", ROOT(engine.models), model_rows, struct model_settings, 0, PROTO_MAX_MODELS,
	     "The models to serve."),

    ROW("engine.echo.enabled", CONF_BOOL, ROOT(echo.enabled), "false", 0, 0,
	"Serve no model but an echo with programmable behaviour, for tests."),
    ROW("engine.echo.rate", CONF_FLOAT, ROOT(echo.rate), "50", 0, 10000000,
	"Tokens per second of one answer; 0: as fast as the gateway takes them."),
    ROW("engine.echo.burst", CONF_INT, ROOT(echo.burst), "1", 1, PROTO_MAX_TOKENS_PER_FRAME, "Tokens sent together."),
    ROW("engine.echo.ttft", CONF_DURATION, ROOT(echo.ttft_ms), "50ms", 0, HOUR, "The wait before the first token."),
    ROW("engine.echo.fail_after", CONF_INT, ROOT(echo.fail_after), "0", 0, INT_MAX,
	"An answer fails after that many tokens; 0: never."),
    ROW("engine.echo.hang_after", CONF_INT, ROOT(echo.hang_after), "0", 0, INT_MAX,
	"An answer falls silent after that many tokens; 0: never."),
    ROW("engine.echo.die_after", CONF_INT, ROOT(echo.die_after), "0", 0, INT_MAX,
	"The engine exits after that many tokens in all; 0: never."),
    ROW("engine.echo.context", CONF_INT, ROOT(echo.context), "4096", 16, 1 << 20, "The context it claims, in tokens."),
    ROW("engine.echo.stamp", CONF_BOOL, ROOT(echo.stamp), "false", 0, 0,
	"Every token is the time of its making (CLOCK_MONOTONIC, nanoseconds), for measurements."),
    ROW("engine.echo.step", CONF_DURATION, ROOT(echo.step_ms), "0", 0, HOUR,
	"All answers get their tokens in common steps at that distance; 0: each at its own rate."),
    ROW("engine.echo.slots", CONF_INT, ROOT(echo.slots), "0", 0, 4096,
	"Answers of each model that go on at once, the others wait by priority; 0: all."),
    ROW("engine.echo.waiting", CONF_INT, ROOT(echo.waiting), "0", 0, 65536,
	"Answers that may wait, as engine.max_waiting says for real engines; 0: any number."),
    ROW("engine.echo.step_active", CONF_INT, ROOT(echo.step_active), "0", 0, 1 << 20,
	"Answers that get tokens in one step, in turn; 0: all."),

    ROW_ENUM("cache.store", ROOT(gateway.store.kind), "auto", stores,
	     "redis, memory, or auto: Redis at cache.address; without an address serve starts a "
	     "redis-server of its own; where that isn't installed, memory."),
    ROW("cache.address", CONF_STRING, ROOT(gateway.store.address), "", 0, 300,
	"Redis: unix:/path, host:port or [::1]:port; empty: none of yours."),
    ROW("cache.user", CONF_STRING, ROOT(gateway.store.user), "", 0, 128, "For AUTH; empty: the default user."),
    ROW("cache.password_file", CONF_STRING, ROOT(gateway.store.password_file), "", 0, 4095,
	"A file whose first line is the password; empty: none."),
    ROW("cache.database", CONF_INT, ROOT(gateway.store.database), "0", 0, 65535, "Number of the database in Redis."),
    ROW("cache.prefix", CONF_STRING, ROOT(gateway.store.prefix), "sluice:", 0, 32, "Before every key in Redis."),
    ROW("cache.gateways", CONF_INT, ROOT(gateway.store.gateways), "1", 1, 10000,
	"Gateways that share this Redis: while it fails each enforces that part of every limit."),
    ROW("cache.connect_timeout", CONF_DURATION, ROOT(gateway.store.connect_timeout_ms), "500ms", 1, MINUTE,
	"The longest wait for a connection to Redis."),
    ROW("cache.timeout", CONF_DURATION, ROOT(gateway.store.timeout_ms), "100ms", 4, MINUTE,
	"The longest time of one operation, the answer by policy when Redis fails included."),
    ROW("cache.backoff_min", CONF_DURATION, ROOT(gateway.store.backoff_min_ms), "50ms", 1, MINUTE,
	"The wait before Redis is tried again; it doubles from there, with some chance in it."),
    ROW("cache.backoff_max", CONF_DURATION, ROOT(gateway.store.backoff_max_ms), "5s", 1, HOUR,
	"The longest such wait."),
    ROW("cache.failures", CONF_INT, ROOT(gateway.store.failures), "5", 1, 10000,
	"Failures in a row after which a thread asks Redis no more until a trial succeeds."),
    ROW("cache.operations", CONF_INT, ROOT(gateway.store.operations), "4096", 1, 1 << 20,
	"Operations of one thread that may be under way."),
    ROW("cache.value_bytes", CONF_BYTES, ROOT(gateway.store.value_bytes), "1MiB", 1024, 256 * MIB,
	"The largest value."),
    ROW("cache.log_bytes", CONF_BYTES, ROOT(gateway.store.log_bytes), "4MiB", 1024, 256 * MIB,
	"The largest log; its oldest entries go first."),
    ROW("cache.keys_per_tenant", CONF_INT, ROOT(gateway.store.keys_per_tenant), "1000", 1, 10000,
	"Keys of one tenant and kind; what expires soonest goes first."),
    ROW("cache.memory", CONF_BYTES, ROOT(gateway.store.memory_bytes), "64MiB", MIB, TIB,
	"The memory store's, which also stands in for a failing Redis; at least 12 of the largest "
	"value or log."),
    ROW("cache.server_memory", CONF_BYTES, ROOT(gateway.store.server_memory), "256MiB", 16 * MIB, TIB,
	"Memory of the redis-server that serve starts; what was used least lately goes first."),

    ROW("cascade.weights", CONF_STRING, ROOT(cascade.weights), "", 0, 4095,
	"Weights of the score, as sluice cascade train makes them; empty: the built-in ones and cascade.cues."),
    ROW_LIST("cascade.cues", ROOT(cascade.cues), casc_cue_rows, struct casc_cue_setting, 0, 64,
	     "Built-in weights of the score that are to be others."),
    ROW_LIST("cascade.rules", ROOT(cascade.rules), casc_rule_rows, struct casc_rule_setting, 0, 256,
	     "What the last user message holds, and which model that is for, or how hard it makes it."),
    ROW_LIST("cascade.tiers", ROOT(cascade.tiers), casc_tier_rows, struct casc_tier_setting, 0, 32,
	     "Thresholds of a tier; one that is not listed has the defaults."),
    ROW("cascade.hold.tokens", CONF_INT, ROOT(cascade.hold_tokens), "16", 1, 1024,
	"The most tokens of the small model that wait for its confidence to form."),
    ROW("cascade.hold.min_tokens", CONF_INT, ROOT(cascade.hold_min), "3", 1, 1024,
	"Tokens before which nothing is decided."),
    ROW("cascade.hold.time", CONF_DURATION, ROOT(cascade.hold_ms), "250ms", 0, MINUTE,
	"The longest time they wait, from the first one on."),
    ROW("cascade.confidence.window", CONF_INT, ROOT(cascade.window), "6", 1, CASC_MAX_WINDOW, "Tokens of the minimum."),
    ROW("cascade.confidence.smooth", CONF_FLOAT, ROOT(cascade.smooth), "0.25", 0.001, 1,
	"Weight of the newest token in the means."),
    ROW("cascade.confidence.mean", CONF_FLOAT, ROOT(cascade.w_mean), "0.5", 0, 100,
	"Share of the mean probability in the confidence."),
    ROW("cascade.confidence.minimum", CONF_FLOAT, ROOT(cascade.w_min), "0.2", 0, 100,
	"Share of the least probability in the window."),
    ROW("cascade.confidence.entropy", CONF_FLOAT, ROOT(cascade.w_entropy), "0.15", 0, 100,
	"Share of the entropy of the likeliest tokens."),
    ROW("cascade.confidence.margin", CONF_FLOAT, ROOT(cascade.w_margin), "0.15", 0, 100,
	"Share of the distance between the two likeliest tokens."),
    ROW("cascade.takeover", CONF_DURATION, ROOT(cascade.takeover_ms), "5s", 1, HOUR,
	"The longest wait for the large model to take over; then the small one goes on."),
    ROW("cascade.fallback", CONF_BOOL, ROOT(cascade.fallback), "true", 0, 0,
	"A model that fails before anything was shown is replaced by the other one."),
    ROW("cascade.least_escalations", CONF_INT, ROOT(cascade.floor), "2", 0, 1000000,
	"Escalations of a tier per minute that its share does not limit."),
    ROW("cascade.small_cost", CONF_FLOAT, ROOT(cascade.small_cost), "0.1", 0, 1,
	"A token of the small model, in tokens of the large one, for the accounting."),
    ROW("cascade.load.enter", CONF_DURATION, ROOT(cascade.enter_ms), "500ms", 0, HOUR,
	"A tier is degraded when the predicted TTFT has been above its target for that long."),
    ROW("cascade.load.leave_ratio", CONF_FLOAT, ROOT(cascade.leave_ratio), "0.7", 0.01, 1,
	"It recovers below this part of the target ..."),
    ROW("cascade.load.leave", CONF_DURATION, ROOT(cascade.leave_ms), "2s", 0, HOUR, "... for that long."),
    ROW("cascade.load.recover", CONF_DURATION, ROOT(cascade.recover_ms), "10s", 0, HOUR,
	"Over that long more and more of its requests may use the large model again."),
    ROW("cascade.log", CONF_STRING, ROOT(gateway.cascade_log), "", 0, 4000,
	"File of outcomes for sluice cascade train, calibrate and report (no text is in it); empty: none."),
    ROW("cascade.log_size", CONF_BYTES, ROOT(gateway.cascade_log_bytes), "64MiB", 0, TIB,
	"Beyond it the file becomes FILE.1 and a new one begins; 0: it grows."),

    ROW("gateway.https", CONF_ADDRESS, ROOT(gateway.https), "127.0.0.1:8443", 0, 0,
	"Where TLS is served (HTTP/2 and HTTP/1.1); off: nowhere."),
    ROW("gateway.http", CONF_ADDRESS, ROOT(gateway.http), "127.0.0.1:8080", 0, 0,
	"Where cleartext is served (HTTP/1.1, HTTP/2 with prior knowledge); off: nowhere."),
    ROW("gateway.threads", CONF_INT, ROOT(gateway.threads), "1", 0, 64, "Event loops; 0: one for each core."),
    ROW("gateway.cert", CONF_STRING, ROOT(gateway.cert_file), "", 0, 4095,
	"PEM certificate chain; empty: a self-signed one in STATE/tls, for development."),
    ROW("gateway.key", CONF_STRING, ROOT(gateway.key_file), "", 0, 4095, "PEM private key of gateway.cert."),
    ROW_LIST("gateway.certificates", ROOT(gateway.certificates), cert_rows, struct gw_cert_config, 0, 64,
	     "More certificates, each for the names that stand in it (SNI)."),
    ROW_ENUM("gateway.tls_min", ROOT(gateway.tls_min), "1.2", tls_versions, "The oldest TLS that is spoken."),
    ROW("gateway.tls_tickets", CONF_DURATION, ROOT(gateway.ticket_ms), "12h", 0, 7 * 24 * HOUR,
	"How long a key makes session tickets; they are taken for as long again. 0: no resumption."),
    ROW("gateway.client_ca", CONF_STRING, ROOT(gateway.client_ca), "", 0, 4095,
	"PEM certificates whose clients' certificates are believed."),
    ROW_ENUM("gateway.client_certs", ROOT(gateway.client_certs), "none", client_certs,
	     "Whether gateway.https asks clients for a certificate."),
    ROW_LIST("gateway.listeners", ROOT(gateway.listeners), listener_rows, struct gw_listener_config, 0, 32,
	     "More listeners: further addresses, unix sockets, balancers with the PROXY protocol."),
    ROW("gateway.trusted_proxies", CONF_STRINGS, ROOT(gateway.trusted_proxies), "", 0, 64,
	"Addresses or blocks (10.0.0.0/8) that may say whose a request is."),
    ROW_ENUM("gateway.forwarded", ROOT(gateway.forwarded), "off", forwarded_kinds,
	     "Which field they say it in; the right-most address that is not trusted is the client."),
    ROW("gateway.engine_socket", CONF_STRING, ROOT(gateway.engine_socket), "", 0, 107,
	"The engine to talk to; empty: engine.socket."),
    ROW("gateway.dev_keys", CONF_BOOL, ROOT(gateway.dev_keys), "false", 0, 0,
	"Accept the keys in STATE/dev-keys.yaml, made on first start."),
    ROW("gateway.metrics_public", CONF_BOOL, ROOT(gateway.metrics_public), "false", 0, 0,
	"Let anybody read /metrics; false: only admin keys."),
    ROW("gateway.anonymous", CONF_STRING, ROOT(gateway.anonymous), "", 0, 64,
	"The tier of who shows no key, with limits by address; empty: a key is needed."),
    ROW("gateway.default_model", CONF_STRING, ROOT(gateway.default_model), "", 0, PROTO_MAX_NAME,
	"What a request for the model named default gets: a name, auto (the cascade); empty: the large one."),
    ROW("gateway.heartbeat", CONF_DURATION, ROOT(gateway.heartbeat_ms), "10s", 10, HOUR,
	"A stream silent for that long sends an SSE comment, so that proxies keep it open."),
    ROW("gateway.drain", CONF_DURATION, ROOT(gateway.drain_ms), "10s", 0, HOUR,
	"How long running answers may take to finish when the gateway ends."),
    ROW("gateway.upgrade_drain", CONF_DURATION, ROOT(gateway.upgrade_drain_ms), "5m", 0, 24 * HOUR,
	"How long they may take in a gateway that an upgrade has replaced."),
    ROW("gateway.resume.grace", CONF_DURATION, ROOT(gateway.resume.grace_ms), "30s", 0, HOUR,
	"How long a resumable answer goes on when nobody reads it."),
    ROW("gateway.resume.keep", CONF_DURATION, ROOT(gateway.resume.keep_ms), "5m", 0, 24 * HOUR,
	"How long its events can be read again after its end."),
    ROW("gateway.resume.stream_bytes", CONF_BYTES, ROOT(gateway.resume.stream_bytes), "4MiB", 64 << 10, 64 << 20,
	"Events kept of one answer; the oldest go first."),
    ROW("gateway.resume.memory_bytes", CONF_BYTES, ROOT(gateway.resume.memory_bytes), "256MiB", 0, (int64_t)1 << 40,
	"Events kept of all answers; beyond it the ended ones go, then new ones can't be resumed."),
    ROW("gateway.resume.store", CONF_BOOL, ROOT(gateway.resume.store), "true", 0, 0,
	"Events are kept in Redis too, so that answers go on in another gateway when theirs dies."),
    ROW("gateway.cors_origins", CONF_STRINGS, ROOT(gateway.cors_origins), "", 0, 64,
	"Web origins that may call from a browser; http://localhost:* allows every port."),
    ROW("gateway.flush.hold", CONF_DURATION, ROOT(gateway.flush.hold_ms), "0", 0, SECOND,
	"After an answer's first token, fewer than flush.tokens wait so long for more; 0: every token goes out at "
	"once."),
    ROW("gateway.flush.tokens", CONF_INT, ROOT(gateway.flush.tokens), "2", 1, 5,
	"So many tokens, or the end of a line or sentence, end the wait."),
    ROW("gateway.responses.keep", CONF_DURATION, ROOT(gateway.responses.keep_ms), "720h", MINUTE, 8784 * HOUR,
	"How long a stored response (/v1/responses) is kept."),
    ROW("gateway.conversations.keep", CONF_DURATION, ROOT(gateway.conversations.keep_ms), "720h", MINUTE, 8784 * HOUR,
	"How long a conversation (/v1/conversations) is kept after its last change."),
    ROW("gateway.conversations.per_tenant", CONF_INT, ROOT(gateway.conversations.per_tenant), "500", 0, 10000,
	"The most conversations of one tenant; 0: no limit."),
    ROW("gateway.conversations.bytes", CONF_BYTES, ROOT(gateway.conversations.bytes), "512KiB", 1024, 64 << 20,
	"The most bytes of one conversation, as JSON; well below cache.value_bytes."),
    ROW("gateway.conversations.tenant_bytes", CONF_BYTES, ROOT(gateway.conversations.tenant_bytes), "64MiB", 0,
	(int64_t)1 << 40, "The most bytes of all conversations of one tenant; 0: no limit."),
    ROW("gateway.warm", CONF_INT, ROOT(gateway.warm), "64", 0, 1000,
	"After a restart of the engine so many prompts of conversations, the hottest first, are computed again while "
	"it is "
	"idle; 0: none."),
    ROW("gateway.coalesce.window", CONF_DURATION, ROOT(gateway.coalescing.window_ms), "1s", 0, MINUTE,
	"How long after its end an answer is also that of an identical request of its user."),
    ROW("gateway.coalesce.burst", CONF_DURATION, ROOT(gateway.coalescing.burst_ms), "3ms", 0, SECOND,
	"Nearly identical prompts of one user that come so close together end but for the last (supersede: any)."),
    ROW("gateway.compress.wait", CONF_DURATION, ROOT(gateway.compress.wait_ms), "10s", 100, 10 * MINUTE,
	"For the summaries of one request; what has none by then is left out of the conversation."),
    ROW("gateway.idempotency.keep", CONF_DURATION, ROOT(gateway.coalescing.idempotency_ms), "24h", MINUTE, 720 * HOUR,
	"How long the answer to a request with an Idempotency-Key is kept for its repetitions."),
    ROW("gateway.queue.size", CONF_INT, ROOT(gateway.queue.most), "200", 1, 1000000,
	"Answers that may wait for their first token; then one of the worst tier goes, or of the tenant with most."),
    ROW("gateway.queue.tell", CONF_DURATION, ROOT(gateway.queue.tell_ms), "1s", 10, HOUR,
	"Streams that wait so long begin, with their place in comments; till then a refusal is a status."),
    ROW("gateway.load.high", CONF_DURATION, ROOT(gateway.queue.load_high_ms), "2s", 10, HOUR,
	"Tiers whose newcomers would wait so long are under load (under_load)."),
    ROW("gateway.load.low", CONF_DURATION, ROOT(gateway.queue.load_low_ms), "500ms", 1, HOUR,
	"They are no more when the wait is shorter."),
    ROW_LIST("gateway.prompts", ROOT(gateway.prompts), prompt_rows, struct gw_prompt_config, 0, 1024,
	     "Stored prompts: a response's prompt: {id, variables} names one."),
    ROW_LIST("gateway.tiers", ROOT(gateway.tiers), tier_rows, struct gw_tier_config, 0, 32, "What keys of a kind get."),
    ROW_LIST("gateway.keys", ROOT(gateway.keys), key_rows, struct gw_key_config, 0, 1024,
	     "Who may ask; only hashes of keys stand here."),

    ROW("gateway.limits.connections", CONF_INT, ROOT(gateway.limits.connections), "4096", 1, 1000000,
	"Open connections of one thread."),
    ROW("gateway.limits.connections_per_address", CONF_INT, ROOT(gateway.limits.connections_per_address), "256", 0,
	1000000, "Open connections of one address (IPv6: of one /64), all threads; 0: no limit."),
    ROW("gateway.limits.streams_per_address", CONF_INT, ROOT(gateway.limits.streams_per_address), "1024", 0, 1000000,
	"Requests of one address in progress, all threads; 0: no limit."),
    ROW("gateway.limits.exempt_addresses", CONF_STRINGS, ROOT(gateway.limits.exempt_addresses), "127.0.0.0/8,::1", 0,
	64, "Addresses or blocks that those two do not count; gateway.trusted_proxies are not counted either."),
    ROW("gateway.limits.requests_per_key", CONF_INT, ROOT(gateway.limits.requests_per_key), "64", 0, 1000000,
	"Requests of one key in progress, beyond the answers its tier allows; 0: no limit."),
    ROW("gateway.limits.memory", CONF_BYTES, ROOT(gateway.limits.memory), "2GiB", 0, TIB,
	"The gateway's memory above which idle connections end and requests get 503; 0: no limit."),
    ROW("gateway.limits.handshakes_per_turn", CONF_INT, ROOT(gateway.limits.handshakes_per_turn), "4", 0, 100000,
	"Handshakes a thread goes on with before it looks at its streams again; 0: all."),
    ROW("gateway.limits.response", CONF_DURATION, ROOT(gateway.limits.response_ms), "1h", 0, 24 * HOUR,
	"The longest time of one answer, however fast it is read; 0: no limit."),
    ROW("gateway.limits.streams_per_connection", CONF_INT, ROOT(gateway.limits.streams_per_connection), "100", 1, 10000,
	"Open HTTP/2 streams of one connection."),
    ROW("gateway.limits.header_bytes", CONF_BYTES, ROOT(gateway.limits.header_bytes), "16KiB", 512, MIB,
	"Header block: name, value and 32 for each field."),
    ROW("gateway.limits.header_fields", CONF_INT, ROOT(gateway.limits.header_fields), "100", 8, 1000,
	"Header fields of one request."),
    ROW("gateway.limits.body_bytes", CONF_BYTES, ROOT(gateway.limits.body_bytes), "1MiB", 16, 64 * MIB,
	"Body of one request."),
    ROW("gateway.limits.handshake", CONF_DURATION, ROOT(gateway.limits.handshake_ms), "10s", 10, HOUR,
	"From accept to the end of the TLS handshake."),
    ROW("gateway.limits.header", CONF_DURATION, ROOT(gateway.limits.header_ms), "10s", 10, HOUR,
	"From a request's first byte to the end of its headers."),
    ROW("gateway.limits.body", CONF_DURATION, ROOT(gateway.limits.body_ms), "30s", 10, HOUR,
	"From the headers to the end of the body."),
    ROW("gateway.limits.idle", CONF_DURATION, ROOT(gateway.limits.idle_ms), "5m", 10, 24 * HOUR,
	"A connection without streams is closed after that long."),
    ROW("gateway.limits.stall", CONF_DURATION, ROOT(gateway.limits.stall_ms), "30s", 10, HOUR,
	"A response whose reader takes nothing for that long is ended."),
    ROW("gateway.limits.output_bytes", CONF_BYTES, ROOT(gateway.limits.output_bytes), "256KiB", 16 * KIB, 64 * MIB,
	"Unsent output of a connection above which nothing is read from it."),
    ROW("gateway.limits.resets_per_s", CONF_INT, ROOT(gateway.limits.resets_per_s), "10", 1, 100000,
	"Streams a peer may reset per second (rapid reset), or make the server reset."),
    ROW("gateway.limits.resets_burst", CONF_INT, ROOT(gateway.limits.resets_burst), "100", 1, 100000,
	"Resets that may come at once."),
    ROW("gateway.limits.refused_per_s", CONF_INT, ROOT(gateway.limits.refused_per_s), "5", 1, 100000,
	"Malformed or oversized requests per second of an HTTP/2 connection that get an error; past them it ends."),
    ROW("gateway.limits.refused_burst", CONF_INT, ROOT(gateway.limits.refused_burst), "50", 1, 100000,
	"Such requests that may come at once."),
    ROW("gateway.limits.control_frames_per_s", CONF_INT, ROOT(gateway.limits.control_frames_per_s), "50", 1, 100000,
	"Frames per second that carry nothing: PING, SETTINGS, PRIORITY, empty DATA, unknown ones."),
    ROW("gateway.limits.control_frames_burst", CONF_INT, ROOT(gateway.limits.control_frames_burst), "200", 1, 100000,
	"Such frames that may come at once."),
    ROW("gateway.limits.window_tokens", CONF_INT, ROOT(gateway.limits.window_tokens), "64", 1, 65536,
	"Tokens made but not yet taken by a slow reader."),
    ROW("gateway.limits.messages", CONF_INT, ROOT(gateway.limits.messages), "512", 1, 100000,
	"Messages of one chat request."),
    ROW("gateway.limits.json_depth", CONF_INT, ROOT(gateway.limits.json_depth), "32", 4, 1000,
	"Nesting of a request's JSON."),
    ROW("gateway.limits.json_values", CONF_INT, ROOT(gateway.limits.json_values), "160000", 0, 100000000,
	"What it may hold: an object or array counts 8, a key 4, an element 1; 0: no limit."),
    ROW("gateway.limits.submit_wait", CONF_DURATION, ROOT(gateway.limits.submit_wait_ms), "5s", 10, HOUR,
	"The longest wait for the engine to answer a request at all."),
    ROW("gateway.limits.first_token", CONF_DURATION, ROOT(gateway.limits.first_token_ms), "60s", 10, HOUR,
	"The longest predicted or real wait for a first token."),
    ROW("gateway.limits.quota_wait", CONF_DURATION, ROOT(gateway.limits.quota_wait_ms), "5s", 0, HOUR,
	"The longest wait for tokens of the day that other answers of the key hold in reserve."),
    ROW_END,
};

/* ---- what can't change under processes that run ---- */

/* A key, or with a dot at the end all keys below. What no row names is taken at a reload. */
static const struct {
	const char *key;
	enum restart_need need;
} restart_rows[] = {
    {"state", RESTART_ALL},
    {"engine.", RESTART_ALL},
    {"supervisor.heartbeat", RESTART_ALL}, /* the engine's too */
    {"supervisor.hang", RESTART_ALL},
    {"supervisor.core_dumps", RESTART_ALL},
    {"supervisor.user", RESTART_ALL},
    {"supervisor.sandbox", RESTART_ALL},
    {"cache.store", RESTART_ALL}, /* whether a redis-server is started */
    {"cache.address", RESTART_ALL},
    {"cache.server_memory", RESTART_ALL},
    {"cache.", RESTART_GATEWAY},
    {"gateway.https", RESTART_GATEWAY},
    {"gateway.http", RESTART_GATEWAY},
    {"gateway.threads", RESTART_GATEWAY},
    {"gateway.engine_socket", RESTART_GATEWAY},
    {"gateway.listeners", RESTART_GATEWAY},
    {"gateway.client_certs", RESTART_GATEWAY},
    {"gateway.resume.keep", RESTART_GATEWAY},
    {"gateway.resume.stream_bytes", RESTART_GATEWAY},
    {"gateway.resume.memory_bytes", RESTART_GATEWAY},
};

enum restart_need sluice_config_restart(const char *key)
{
	for (size_t i = 0; i < sizeof restart_rows / sizeof *restart_rows; i++) {
		const char *k = restart_rows[i].key;
		size_t n = strlen(k);
		if (k[n - 1] == '.' ? strncmp(key, k, n) == 0 : strcmp(key, k) == 0)
			return restart_rows[i].need;
	}
	return RESTART_NOT;
}

/* ---- checks between keys ---- */

#define LIST_AT(list, type, i) ((type *)(list).items + (i))

static const struct model_settings *find_model(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		const struct model_settings *m = LIST_AT(cfg->engine.models, const struct model_settings, i);
		if (strcmp(m->name, name) == 0)
			return m;
	}
	return NULL;
}

static bool has_tier(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->gateway.tiers.n; i++) {
		if (strcmp(LIST_AT(cfg->gateway.tiers, const struct gw_tier_config, i)->name, name) == 0)
			return true;
	}
	return false;
}

/* Does this configuration say which models there are? Not when the gateway superseding to an engine
 * started otherwise, or to the echo. */
static bool knows_models(const struct sluice_config *cfg)
{
	return !cfg->echo.enabled && cfg->engine.models.n > 0 &&
	       strcmp(cfg->gateway.engine_socket, cfg->engine.socket) == 0;
}

static int check_models(const struct sluice_config *cfg, struct sl_err *err)
{
	const char *with_role[3] = {NULL, NULL, NULL};
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		const struct model_settings *m = LIST_AT(cfg->engine.models, const struct model_settings, i);
		char key[256];
		snprintf(key, sizeof key, "engine.models.%s.role", m->name);
		if (m->role != 0 && with_role[m->role] != NULL)
			return conf_fail(cfg->conf, key, err, "'%.60s' is the %s model already", with_role[m->role],
					 roles[m->role]);
		with_role[m->role] = m->name;
		snprintf(key, sizeof key, "engine.models.%s.name", m->name);
		for (const char *p = m->name; *p != '\0'; p++) {
			if (!isalnum((unsigned char)*p) && strchr("._:/-", *p) == NULL)
				return conf_fail(cfg->conf, key, err,
						 "a name is made of letters, digits and . _ : / -");
		}
		snprintf(key, sizeof key, "engine.models.%s.quantize", m->name);
		if (m->quantize[0] != '\0' && kn_type_from_name(m->quantize) < 0 && strcasecmp(m->quantize, "fp8") != 0)
			return conf_fail(cfg->conf, key, err, "no weight type is named '%.16s'", m->quantize);
		snprintf(key, sizeof key, "engine.models.%s.name", m->name);
		if (strcmp(m->name, "default") == 0)
			return conf_fail(cfg->conf, key, err, "default stands for gateway.default_model");
		if (strcmp(m->name, "auto") == 0)
			return conf_fail(cfg->conf, key, err, "auto stands for the cascade");
	}
	return 0;
}

/* What a request may name, but for "default". */
static bool is_model(const struct sluice_config *cfg, const char *name)
{
	return strcmp(name, "auto") == 0 || find_model(cfg, name) != NULL;
}

static int check_tiers(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	char key[256];
	for (size_t i = 0; i < g->tiers.n; i++) {
		const struct gw_tier_config *t = LIST_AT(g->tiers, const struct gw_tier_config, i);
		snprintf(key, sizeof key, "gateway.tiers.%s.name", t->name);
		if (strcmp(t->name, "admin") == 0)
			return conf_fail(cfg->conf, key, err, "admin is not a tier's name");
		snprintf(key, sizeof key, "gateway.tiers.%s.degrade.model", t->name);
		if (t->degrade_model[0] != '\0' && knows_models(cfg) && find_model(cfg, t->degrade_model) == NULL)
			return conf_fail(cfg->conf, key, err, "no model is named '%.60s'", t->degrade_model);
		snprintf(key, sizeof key, "gateway.tiers.%s.when_late", t->name);
		if (t->when_late == GW_LATE_DEGRADE && t->degrade_model[0] == '\0' && t->degrade_max_tokens == 0)
			return conf_fail(cfg->conf, key, err, "degrade needs degrade.model or degrade.max_tokens");
		snprintf(key, sizeof key, "gateway.tiers.%s.models", t->name);
		for (size_t k = 0; knows_models(cfg) && k < t->models.n; k++) {
			if (!is_model(cfg, t->models.items[k]))
				return conf_fail(cfg->conf, key, err, "no model is named '%.60s'", t->models.items[k]);
		}
		snprintf(key, sizeof key, "gateway.tiers.%s.default_model", t->name);
		if (t->default_model[0] != '\0' && knows_models(cfg) && !is_model(cfg, t->default_model))
			return conf_fail(cfg->conf, key, err, "no model is named '%.60s'", t->default_model);
	}
	for (size_t i = 0; i < g->keys.n; i++) {
		const struct gw_key_config *k = LIST_AT(g->keys, const struct gw_key_config, i);
		snprintf(key, sizeof key, "gateway.keys.%s.sha256", k->name);
		if (strspn(k->sha256, "0123456789abcdefABCDEF") != 64)
			return conf_fail(cfg->conf, key, err, "64 hex digits are wanted (printf %%s KEY | sha256sum)");
		snprintf(key, sizeof key, "gateway.keys.%s.tier", k->name);
		if (strcmp(k->tier, "admin") != 0 && !has_tier(cfg, k->tier))
			return conf_fail(cfg->conf, key, err, "no tier is named '%.60s'", k->tier);
	}
	for (size_t i = 0; i < g->keys.n; i++) {
		const struct gw_key_config *k = LIST_AT(g->keys, const struct gw_key_config, i);
		snprintf(key, sizeof key, "gateway.keys.%s.origins", k->name);
		for (size_t n = 0; n < k->origins.n; n++)
			if (!cors_is_origin(k->origins.items[n]))
				return conf_fail(cfg->conf, key, err,
						 "'%.80s' is not an origin such as https://chat.example",
						 k->origins.items[n]);
	}
	if (g->anonymous[0] != '\0' && !has_tier(cfg, g->anonymous))
		return conf_fail(cfg->conf, "gateway.anonymous", err, "no tier is named '%.60s'", g->anonymous);
	if (g->dev_keys && (!has_tier(cfg, "free") || !has_tier(cfg, "paid")))
		return conf_fail(cfg->conf, "gateway.dev_keys", err, "needs the tiers free and paid in gateway.tiers");
	return 0;
}

static int check_blocks(const struct sluice_config *cfg, const struct conf_strings *blocks, const char *key,
			struct sl_err *err)
{
	struct net_block b;
	for (size_t i = 0; i < blocks->n; i++) {
		if (!net_block_parse(blocks->items[i], &b))
			return conf_fail(cfg->conf, key, err,
					 "'%.60s' is neither an address nor a block such as 10.0.0.0/8",
					 blocks->items[i]);
	}
	return 0;
}

static int check_listeners(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	char key[256];
	mode_t mode;
	for (size_t i = 0; i < g->listeners.n; i++) {
		const struct gw_listener_config *l = LIST_AT(g->listeners, const struct gw_listener_config, i);
		bool is_unix = l->unix_path[0] != '\0';
		snprintf(key, sizeof key, "gateway.listeners.%s.address", l->name);
		if (is_unix != l->address.off)
			return conf_fail(cfg->conf, key, err, "either an address or unix must be given");
		snprintf(key, sizeof key, "gateway.listeners.%s.mode", l->name);
		if (is_unix && !unix_mode_parse(l->unix_mode, &mode))
			return conf_fail(cfg->conf, key, err, "octal permissions are wanted, such as 0660");
		snprintf(key, sizeof key, "gateway.listeners.%s.client_certs", l->name);
		if (l->client_certs != GW_CLIENT_CERTS_NONE && (!l->tls || g->client_ca[0] == '\0'))
			return conf_fail(cfg->conf, key, err, "needs tls and gateway.client_ca");
		snprintf(key, sizeof key, "gateway.listeners.%s.proxy", l->name);
		if (l->proxy && !is_unix && g->trusted_proxies.n == 0)
			return conf_fail(cfg->conf, key, err, "needs gateway.trusted_proxies");
	}
	if (g->client_certs != GW_CLIENT_CERTS_NONE && g->client_ca[0] == '\0')
		return conf_fail(cfg->conf, "gateway.client_certs", err, "needs gateway.client_ca");
	return 0;
}

static int check_gateway(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	int rc = check_listeners(cfg, err);
	if (rc == 0)
		rc = check_blocks(cfg, &g->trusted_proxies, "gateway.trusted_proxies", err);
	if (rc == 0)
		rc = check_blocks(cfg, &g->limits.exempt_addresses, "gateway.limits.exempt_addresses", err);
	if (rc != 0)
		return rc;
	if (g->https.off && g->http.off && g->listeners.n == 0)
		return conf_fail(cfg->conf, "gateway.https", err,
				 "off, and gateway.http is off too: nothing would be served");
	if (!g->https.off && !g->http.off && g->https.port == g->http.port && g->http.port != 0 &&
	    (strcmp(g->https.host, g->http.host) == 0 || g->https.host[0] == '\0' || g->http.host[0] == '\0'))
		return conf_fail(cfg->conf, "gateway.http", err, "port %u is gateway.https's already",
				 (unsigned)g->http.port);
	if ((g->cert_file[0] != '\0') != (g->key_file[0] != '\0'))
		return conf_fail(cfg->conf, g->cert_file[0] ? "gateway.key" : "gateway.cert", err,
				 "must be given together with gateway.%s", g->cert_file[0] ? "cert" : "key");
	if (g->queue.load_low_ms > g->queue.load_high_ms)
		return conf_fail(cfg->conf, "gateway.load.low", err, "must not be above gateway.load.high");
	for (size_t i = 0; i < g->cors_origins.n; i++) {
		if (!cors_is_origin(g->cors_origins.items[i]))
			return conf_fail(cfg->conf, "gateway.cors_origins", err,
					 "'%.80s' is not an origin such as https://chat.example or "
					 "http://localhost:*",
					 g->cors_origins.items[i]);
	}
	if (g->default_model[0] != '\0' && knows_models(cfg) && !is_model(cfg, g->default_model))
		return conf_fail(cfg->conf, "gateway.default_model", err, "no model is named '%.60s'",
				 g->default_model);
	return 0;
}

static int check_store(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_store_settings *s = &cfg->gateway.store;
	uint64_t largest = s->value_bytes > s->log_bytes ? s->value_bytes : s->log_bytes;
	if (s->kind == GW_STORE_MEMORY && s->address[0] != '\0')
		return conf_fail(cfg->conf, "cache.address", err, "given, but cache.store is memory");
	if (s->backoff_max_ms < s->backoff_min_ms)
		return conf_fail(cfg->conf, "cache.backoff_max", err, "must be at least cache.backoff_min");
	if (s->memory_bytes / 12 < largest)
		return conf_fail(cfg->conf, "cache.memory", err,
				 "must be at least 12 times the larger of cache.value_bytes and "
				 "cache.log_bytes");
	if (strspn(s->prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-") !=
	    strlen(s->prefix))
		return conf_fail(cfg->conf, "cache.prefix", err, "is made of letters, digits and : . _ -");
	return 0;
}

static int check_cascade(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct casc_settings *c = &cfg->cascade;
	char key[256], full[272];
	struct sl_err why;
	if (casc_settings_check(c, key, sizeof key, &why) != 0) {
		snprintf(full, sizeof full, "cascade.%s", key);
		return conf_fail(cfg->conf, full, err, "%.300s", why.text);
	}
	for (size_t i = 0; i < c->tiers.n; i++) {
		const struct casc_tier_setting *t = LIST_AT(c->tiers, const struct casc_tier_setting, i);
		snprintf(full, sizeof full, "cascade.tiers.%s.name", t->name);
		if (!has_tier(cfg, t->name))
			return conf_fail(cfg->conf, full, err, "no tier is named '%.60s'", t->name);
	}
	for (size_t i = 0; i < c->rules.n; i++) {
		const struct casc_rule_setting *r = LIST_AT(c->rules, const struct casc_rule_setting, i);
		bool role = r->model[0] == '\0' || strcmp(r->model, "small") == 0 || strcmp(r->model, "large") == 0;
		snprintf(full, sizeof full, "cascade.rules.%s.model", r->name);
		if (!role && knows_models(cfg) && find_model(cfg, r->model) == NULL)
			return conf_fail(cfg->conf, full, err, "no model is named '%.60s'", r->model);
	}
	return 0;
}

static int check_supervisor(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct supervisor_settings *s = &cfg->supervisor;
	if (s->hang_ms < 2 * s->heartbeat_ms)
		return conf_fail(cfg->conf, "supervisor.hang", err, "must be at least twice supervisor.heartbeat");
	if (s->backoff_max_ms < s->backoff_min_ms)
		return conf_fail(cfg->conf, "supervisor.backoff_max", err, "must be at least supervisor.backoff_min");
	if (s->drain_ms < cfg->gateway.drain_ms)
		return conf_fail(cfg->conf, "supervisor.drain", err, "must be at least gateway.drain");
	return 0;
}

static int state_fd = -1;

void sluice_config_state_fd(int fd) { state_fd = fd; }

/* What path is below one of two names of a folder, or NULL. */
static const char *below(const char *path, const char *folder, const char *real)
{
	const char *const names[] = {folder, real};
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(names[i]);
		if (n > 0 && strncmp(path, names[i], n) == 0 && path[n] == '/')
			return path + n;
	}
	return NULL;
}

/* Names in the state folder become names by its descriptor. */
static void go_by_descriptor(struct sluice_config *cfg)
{
	char real[PATH_MAX] = "";
	snprintf(cfg->state_by_fd, sizeof cfg->state_by_fd, "/proc/self/fd/%d", state_fd);
	ssize_t n = readlink(cfg->state_by_fd, real, sizeof real - 1);
	real[n > 0 ? n : 0] = '\0';
	const struct {
		char **path, *to;
		size_t room;
	} all[] = {{&cfg->engine.socket, cfg->socket_by_fd, sizeof cfg->socket_by_fd},
		   {&cfg->gateway.engine_socket, cfg->link_by_fd, sizeof cfg->link_by_fd},
		   {&cfg->engine.weight_cache, cfg->weights_by_fd, sizeof cfg->weights_by_fd}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const char *rest = below(*all[i].path, cfg->state, real);
		if (rest == NULL)
			continue;
		snprintf(all[i].to, all[i].room, "%s%s", cfg->state_by_fd, rest);
		*all[i].path = all[i].to;
	}
	cfg->state = cfg->state_by_fd;
}

/* Fills in what the configuration leaves to the program. */
static int derive(struct sluice_config *cfg, struct sl_err *err)
{
	if (state_fd >= 0)
		go_by_descriptor(cfg);
	int n = snprintf(cfg->default_socket, sizeof cfg->default_socket, "%s/run/engine.sock", cfg->state);
	if (n < 0 || (size_t)n >= sizeof cfg->default_socket)
		return conf_fail(cfg->conf, "state", err, "too long for a socket in it");
	if (cfg->engine.socket[0] == '\0')
		cfg->engine.socket = cfg->default_socket;
	snprintf(cfg->cuda_products, sizeof cfg->cuda_products, "%s/cuda-products", cfg->state);
	snprintf(cfg->default_weights, sizeof cfg->default_weights, "%s/weights",
		 cfg->state); /* shorter than the socket */
	if (cfg->engine.weight_cache[0] == '\0')
		cfg->engine.weight_cache = cfg->default_weights;
	if (cfg->gateway.engine_socket[0] == '\0')
		cfg->gateway.engine_socket = cfg->engine.socket;
	const char *address = cfg->gateway.store.address;
	size_t n_state = strlen(cfg->state);
	cfg->gateway.store.own_server = strncmp(address, "unix:", 5) == 0 &&
					strncmp(address + 5, cfg->state, n_state) == 0 && address[5 + n_state] == '/';
	cfg->gateway.state_dir = cfg->state;
	cfg->gateway.cascade = &cfg->cascade;
	if (cfg->gateway.threads == 0) {
		long cores = sysconf(_SC_NPROCESSORS_ONLN);
		cfg->gateway.threads = cores < 1 ? 1 : cores > 64 ? 64 : cores;
	}
	cfg->gateway.beat_fd = -1;
	cfg->gateway.beat_ms = (unsigned)cfg->supervisor.heartbeat_ms;
	cfg->gateway.stale_ms = (unsigned)cfg->supervisor.hang_ms;
	return 0;
}

int sluice_config_load(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
		       struct sl_err *err)
{
	memset(cfg, 0, sizeof *cfg);
	int rc = conf_load(all_rows, path, sets, n_sets, cfg, &cfg->conf, err);
	if (rc != 0)
		return rc;
	rc = derive(cfg, err);
	if (rc == 0)
		rc = check_supervisor(cfg, err);
	if (rc == 0)
		rc = check_models(cfg, err);
	if (rc == 0)
		rc = check_tiers(cfg, err);
	if (rc == 0)
		rc = check_gateway(cfg, err);
	if (rc == 0)
		rc = check_store(cfg, err);
	if (rc == 0)
		rc = check_cascade(cfg, err);
	if (rc != 0)
		sluice_config_free(cfg);
	return rc;
}

void sluice_config_free(struct sluice_config *cfg)
{
	conf_free(cfg->conf);
	cfg->conf = NULL;
}

void sluice_engine_config(const struct sluice_config *cfg, struct eng_model_config *models, struct eng_config *out)
{
	const struct engine_settings *e = &cfg->engine;
	for (size_t i = 0; i < e->models.n; i++) {
		const struct model_settings *m = LIST_AT(e->models, const struct model_settings, i);
		models[i] = (struct eng_model_config){.name = m->name,
						      .path = m->path,
						      .role = m->role,
						      .quantize = m->quantize,
						      .kv_type = m->kv_type > 0 ? kv_types[m->kv_type] : NULL};
	}
	*out = (struct eng_config){
	    .models = models,
	    .n_models = (int)e->models.n,
	    .backend = backends[e->backend],
	    .n_threads = (int)e->threads,
	    .n_text_workers = (int)e->text_workers,
	    .page_tokens = (int)e->page_tokens,
	    .kv_bytes = e->kv_memory,
	    .kv_type = (kv_types + 1)[e->kv_type],
	    .max_model_bytes = e->max_model_memory,
	    .max_sequences = (int)e->max_sequences,
	    .max_waiting = (int)e->max_waiting,
	    .step_tokens = (int)e->step_tokens,
	    .max_prompt_bytes = (uint32_t)e->max_prompt,
	    .itl_target_ms = (int)e->itl_target_ms,
	    .no_prefix_cache = !e->prefix_cache,
	    .share_prefixes = e->share_prefixes,
	    .no_launch_ahead = e->launch_ahead == 1,
	    .spec_mode = e->spec_mode,
	    .spec_max_draft = (int)e->spec_max_draft,
	    .spec_fixed = e->spec_fixed,
	    .device_memory = e->cuda_memory,
	    .swap_bytes = e->cuda_swap,
	    .loose_products = !e->cuda_batch_invariant,
	    .choices_path = cfg->cuda_products,
	    .weight_cache = strcmp(e->weight_cache, "off") != 0 ? e->weight_cache : NULL,
	    .weight_cache_bytes = e->weight_cache_size,
	};
}

void sluice_load_backends(const struct sluice_config *cfg)
{
	if (cfg->echo.enabled)
		return;
	kn_plugin_load("cuda"); /* auto takes it, and the start says whether it is there */
	kn_plugin_load(backends[cfg->engine.backend]);
}

void sluice_echo_config(const struct sluice_config *cfg, struct eng_echo_config *out)
{
	const struct echo_settings *e = &cfg->echo;
	*out = (struct eng_echo_config){
	    .rate_tps = e->rate,
	    .tokens_per_burst = (int)e->burst,
	    .ttft_ms = (int)e->ttft_ms,
	    .fail_after = (int)e->fail_after,
	    .hang_after = (int)e->hang_after,
	    .die_after = (int)e->die_after,
	    .n_ctx = (int)e->context,
	    .stamp = e->stamp,
	    .step_ms = (int)e->step_ms,
	    .step_active = (int)e->step_active,
	    .slots = (int)e->slots,
	    .waiting = (int)e->waiting,
	};
}
