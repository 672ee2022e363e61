/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all keys. etc/sluice.yaml documents every key; `sluice config show` prints their values and where each
 * came from. Defaults are safe: loopback only, no keys, a number for every limit.
 */
#include "cmd/config/schema_priv.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/conf/conf_rows.h"
#include "base/log.h"
#include "cmd/config/model_path.h"
#include "engine/model/adapters.h"
#include "engine/sched/spec.h"

#define ROOT(field) offsetof(struct sluice_config, field)
#define MODEL(field) offsetof(struct model_settings, field)
#define ADAPTER(field) offsetof(struct adapter_settings, field)
#define UPSTREAM_MODEL(field) offsetof(struct upstream_model_settings, field)
#define FOLDER(field) offsetof(struct adapter_folder_settings, field)
#define TIER(field) offsetof(struct gw_tier_config, field)
#define KEY(field) offsetof(struct gw_key_config, field)
#define PROMPT(field) offsetof(struct gw_prompt_config, field)
#define VARIANT(field) offsetof(struct gw_variant_config, field)
#define CERT(field) offsetof(struct gw_cert_config, field)
#define LISTENER(field) offsetof(struct gw_listener_config, field)

#define KIB 1024.0
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define SECOND 1000.0
#define MINUTE 60000.0
#define HOUR 3600000.0

static const char *const subsystem_levels[] = {"default", "debug", "info", "warn", "error", NULL};
#define ROW_LEVEL(key, of) ROW_ENUM(key, ROOT(log_levels[of]), "default", subsystem_levels)
static const char *const log_formats[] = {"text", "json", NULL};
const char *const schema_backends[] = {"auto",    "cpu-ref",      "cpu-avx2", "cpu-avx2-int8", "cpu-avx512", "cpu-vnni",
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
static const char *const eases[] = {"auto", "off", NULL};
static const char *const pins[] = {"auto", "on", "off", NULL};          /* as enum places_how */
static const char *const disk_policies[] = {"lru", "lfu", "ttl", NULL}; /* enum disk_policy */
static const char *const spec_modes[] = {"off", "ngram", "draft", "auto", "head", NULL};
static const char *const late_kinds[] = {"queue", "degrade", "refuse", NULL};
const char *const schema_poolings[] = {"auto", "none", "mean", "cls", "last", NULL};
const char *const schema_matryoshkas[] = {"auto", "on", "off", NULL};
static const char *const kv_rotations[] = {"auto", "on", "off", NULL}; /* in the order of enum model_kv_rotation */
/* The first means engine.kv_type. */
const char *const schema_kv_types[] = {"default", "auto", "f32", "f16", "bf16", "q8", "fp8", NULL};
/* Instead of a size: 0. */
static const char *const automatic[] = {"auto", NULL};
static const char *const starts[] = {"always", "on_demand", NULL};
/* By enum eng_remote_dialect. */
static const char *const dialects[] = {"openai", "vllm", "llama.cpp", NULL};
const char *const schema_adapter_types[] = {"auto", "int8", "bf16", "f32", NULL};
const char *const schema_roles[] = {"none", "small", "large", NULL};

static const char *const routing_policies[] = {"cost", "round_robin", "least_requests", "prefix", "kv", NULL};
static const char *const route_firsts[] = {"any", "local", "remote", NULL};
#define WEIGHT(name, part, least) \
	ROW("gateway.routing.weights." name, CONF_FLOAT, ROOT(gateway.routing.weights[part]), least, 0, 1000)

static const struct conf_row model_rows[] = {
    ROW("name", CONF_STRING, MODEL(name), NULL, 1, PROTO_MAX_NAME),
    ROW("path", CONF_STRING, MODEL(path), NULL, 1, 4095),
    ROW("head", CONF_STRING, MODEL(head), "", 0, 4095),
    ROW_ENUM("role", MODEL(role), "none", schema_roles),
    ROW("quantize", CONF_STRING, MODEL(quantize), "", 0, 16),
    ROW_ENUM("kv_type", MODEL(kv_type), "default", schema_kv_types),
    ROW_ENUM("pooling", MODEL(pooling), "auto", schema_poolings),
    ROW_ENUM("matryoshka", MODEL(matryoshka), "auto", schema_matryoshkas),
    ROW_ENUM("start", MODEL(start), "always", starts),
    ROW("keep_alive", CONF_DURATION, MODEL(keep_alive_ms), "5m", 0, 30 * 24 * HOUR),
    ROW_END,
};

static const struct conf_row adapter_rows[] = {
    ROW("name", CONF_STRING, ADAPTER(name), NULL, 1, PROTO_MAX_NAME),
    ROW("path", CONF_STRING, ADAPTER(path), NULL, 1, 4095),
    ROW("model", CONF_STRING, ADAPTER(model), NULL, 1, PROTO_MAX_NAME),
    ROW("tiers", CONF_STRINGS, ADAPTER(tiers), "", 0, 256),
    ROW("tenants", CONF_STRINGS, ADAPTER(tenants), "", 0, 256),
    ROW_END,
};

static const struct conf_row adapter_folder_rows[] = {
    ROW("name", CONF_STRING, FOLDER(name), NULL, 1, PROTO_MAX_NAME),
    ROW("path", CONF_STRING, FOLDER(path), NULL, 1, 4000),
    ROW("model", CONF_STRING, FOLDER(model), NULL, 1, PROTO_MAX_NAME),
    ROW("watch", CONF_BOOL, FOLDER(watch), "false", 0, 0),
    ROW("tiers", CONF_STRINGS, FOLDER(tiers), "", 0, 256),
    ROW("tenants", CONF_STRINGS, FOLDER(tenants), "", 0, 256),
    ROW_END,
};

static const struct conf_row upstream_model_rows[] = {
    ROW("name", CONF_STRING, UPSTREAM_MODEL(name), NULL, 1, PROTO_MAX_NAME),
    ROW("model", CONF_STRING, UPSTREAM_MODEL(model), "", 0, PROTO_MAX_NAME),
    ROW_ENUM("role", UPSTREAM_MODEL(role), "none", schema_roles),
    ROW("context", CONF_INT, UPSTREAM_MODEL(context), "0", 0, 1 << 28),
    ROW("embeddings", CONF_INT, UPSTREAM_MODEL(embeddings), "0", 0, PROTO_MAX_EMBEDDING),
    ROW("shorten", CONF_BOOL, UPSTREAM_MODEL(shorten), "false", 0, 0),
    ROW("scores", CONF_BOOL, UPSTREAM_MODEL(scores), "false", 0, 0),
    ROW_END,
};

static const struct conf_row tier_rows[] = {
    ROW("name", CONF_STRING, TIER(name), NULL, 1, 64),
    ROW("priority", CONF_INT, TIER(priority), "1", 0, 9),
    ROW("default_model", CONF_STRING, TIER(default_model), "", 0, PROTO_MAX_NAME),
    ROW("pace_tps", CONF_FLOAT, TIER(pace_tps), "0", 0, 100000),
    ROW("burst", CONF_INT, TIER(pace_burst), "8", 1, 100000),
    ROW("max_output", CONF_INT, TIER(max_output), "1024", 1, 1000000),
    ROW("concurrency", CONF_INT, TIER(concurrency), "4", 1, 100000),
    ROW("deadline", CONF_DURATION, TIER(deadline_ms), "0", 0, 24 * HOUR),
    ROW("max_prompt", CONF_INT, TIER(max_prompt), "0", 0, 100000000),
    ROW("weight", CONF_INT, TIER(weight), "100", 1, PROTO_MAX_WEIGHT),
    ROW("requests_per_minute", CONF_INT, TIER(requests_per_minute), "0", 0, 60000000),
    ROW("subject_requests_per_minute", CONF_INT, TIER(subject_requests_per_minute), "0", 0, 60000000),
    ROW("tokens_per_minute", CONF_INT, TIER(tokens_per_minute), "0", 0, 60000000),
    ROW("tokens_per_day", CONF_INT, TIER(tokens_per_day), "0", 0, 1e12),
    ROW_ENUM("coalesce", TIER(coalesce), "user", coalesce_kinds),
    ROW_ENUM("supersede", TIER(supersede), "named", supersede_kinds),
    ROW("models", CONF_STRINGS, TIER(models), "", 0, PROTO_MAX_MODELS),
    ROW_ENUM("cleanse", TIER(cleanse), "light", cleanse_levels),
    ROW_ENUM("compress", TIER(compress), "off", compress_modes),
    ROW("ttft_target", CONF_DURATION, TIER(ttft_target_ms), "0", 0, HOUR),
    ROW("itl_target", CONF_DURATION, TIER(itl_target_ms), "0", 0, MINUTE),
    ROW("floor_tps", CONF_FLOAT, TIER(floor_tps), "4", 0, 100000),
    ROW_ENUM("when_late", TIER(when_late), "queue", late_kinds),
    ROW("max_wait", CONF_DURATION, TIER(max_wait_ms), "0", 0, HOUR),
    ROW("keep_alive", CONF_DURATION, TIER(keep_alive_ms), "5m", 0, 24 * 24 * HOUR),
    ROW("hedge", CONF_BOOL, TIER(hedge), "false", 0, 0),
    ROW("degrade.model", CONF_STRING, TIER(degrade_model), "", 0, PROTO_MAX_NAME),
    ROW("degrade.max_tokens", CONF_INT, TIER(degrade_max_tokens), "0", 0, 1000000),
    ROW("under_load.prompt_limit", CONF_INT, TIER(load_prompt), "0", 0, 100000000),
    ROW("under_load.output_limit", CONF_INT, TIER(load_output), "0", 0, 1000000),
    ROW_END,
};

static const struct conf_row prompt_rows[] = {
    ROW("name", CONF_STRING, PROMPT(name), NULL, 1, 64),
    ROW("version", CONF_STRING, PROMPT(version), "", 0, 64),
    ROW("text", CONF_STRING, PROMPT(text), NULL, 1, 65536),
    ROW_END,
};

static const struct conf_row variant_rows[] = {
    ROW("name", CONF_STRING, VARIANT(name), NULL, 1, 32),
    ROW("of", CONF_STRING, VARIANT(of), NULL, 1, PROTO_MAX_NAME),
    ROW("model", CONF_STRING, VARIANT(model), NULL, 1, PROTO_MAX_NAME),
    ROW("weight", CONF_FLOAT, VARIANT(weight), "0", 0, 1000),
    ROW("shadow", CONF_FLOAT, VARIANT(shadow), "0", 0, 1),
    ROW("rollback", CONF_BOOL, VARIANT(rollback), "true", 0, 0),
    ROW("temperature", CONF_FLOAT, VARIANT(temperature), "-1", -1, 2),
    ROW("top_p", CONF_FLOAT, VARIANT(top_p), "0", 0, 1),
    ROW("min_p", CONF_FLOAT, VARIANT(min_p), "-1", -1, 1),
    ROW("repetition_penalty", CONF_FLOAT, VARIANT(repetition_penalty), "0", 0, 2),
    ROW("max_tokens", CONF_INT, VARIANT(max_tokens), "0", 0, 1000000),
    ROW_END,
};

static const struct conf_row key_rows[] = {
    ROW("name", CONF_STRING, KEY(name), NULL, 1, 64),
    ROW("sha256", CONF_STRING, KEY(sha256), NULL, 64, 64),
    ROW("tier", CONF_STRING, KEY(tier), NULL, 1, 64),
    ROW("origins", CONF_STRINGS, KEY(origins), "", 0, 16),
    ROW_END,
};

static const struct conf_row cert_rows[] = {
    ROW("name", CONF_STRING, CERT(name), NULL, 1, 64),
    ROW("cert", CONF_STRING, CERT(cert_file), NULL, 1, 4095),
    ROW("key", CONF_STRING, CERT(key_file), NULL, 1, 4095),
    ROW_END,
};

static const struct conf_row listener_rows[] = {
    ROW("name", CONF_STRING, LISTENER(name), NULL, 1, 64),
    ROW("address", CONF_ADDRESS, LISTENER(address), "off", 0, 0),
    ROW("unix", CONF_STRING, LISTENER(unix_path), "", 0, 107),
    ROW("mode", CONF_STRING, LISTENER(unix_mode), "0660", 1, 4),
    ROW("tls", CONF_BOOL, LISTENER(tls), "false", 0, 0),
    ROW("proxy", CONF_BOOL, LISTENER(proxy), "false", 0, 0),
    ROW_ENUM("client_certs", LISTENER(client_certs), "none", client_certs),
    ROW_END,
};

static const struct conf_row all_rows[] = {
    ROW("state", CONF_STRING, ROOT(state), "state", 1, 80),
    ROW_ENUM("log.level", ROOT(log_level), "info", log_level_names),
    ROW_LEVEL("log.levels.general", LOG_GENERAL),
    ROW_LEVEL("log.levels.step", LOG_STEP),
    ROW_LEVEL("log.levels.cache", LOG_CACHE),
    ROW_LEVEL("log.levels.cascade", LOG_CASCADE),
    ROW_LEVEL("log.levels.routing", LOG_ROUTING),
    ROW_LEVEL("log.levels.admission", LOG_ADMISSION),
    ROW_LEVEL("log.levels.access", LOG_ACCESS),
    ROW_LEVEL("log.levels.store", LOG_STORE),
    ROW_LEVEL("log.levels.admin", LOG_ADMIN),
    ROW_ENUM("log.format", ROOT(log_format), "text", log_formats),
    ROW("log.requests.to", CONF_STRING, ROOT(gateway.requests.to), "off", 1, 4000),
    ROW("log.requests.sample", CONF_FLOAT, ROOT(gateway.requests.sample), "1", 0, 1),

    ROW("trace.endpoint", CONF_STRING, ROOT(gateway.trace.endpoint), "", 0, 500),
    ROW("trace.sample", CONF_FLOAT, ROOT(gateway.trace.sample), "0.1", 0, 1),
    ROW("trace.timeout", CONF_DURATION, ROOT(gateway.trace.timeout_ms), "2s", 10, MINUTE),

    ROW("supervisor.heartbeat", CONF_DURATION, ROOT(supervisor.heartbeat_ms), "500ms", 10, MINUTE),
    ROW("supervisor.hang", CONF_DURATION, ROOT(supervisor.hang_ms), "3s", 50, 10 * MINUTE),
    ROW("supervisor.backoff_min", CONF_DURATION, ROOT(supervisor.backoff_min_ms), "250ms", 1, MINUTE),
    ROW("supervisor.backoff_max", CONF_DURATION, ROOT(supervisor.backoff_max_ms), "15s", 1, HOUR),
    ROW("supervisor.drain", CONF_DURATION, ROOT(supervisor.drain_ms), "15s", 10, HOUR),
    ROW("supervisor.takeover", CONF_DURATION, ROOT(supervisor.takeover_ms), "30s", 10, HOUR),
    ROW("supervisor.core_dumps", CONF_BOOL, ROOT(supervisor.core_dumps), "false", 0, 0),
    ROW("supervisor.user", CONF_STRING, ROOT(supervisor.user), "", 0, 64),
    ROW("supervisor.sandbox", CONF_BOOL, ROOT(supervisor.sandbox), "true", 0, 0),

    ROW("engine.socket", CONF_STRING, ROOT(engine.socket), "", 0, 107),
    ROW_ENUM("engine.backend", ROOT(engine.backend), "auto", schema_backends),
    ROW_ENUM("engine.pin", ROOT(engine.pin), "auto", pins),
    ROW("engine.threads", CONF_INT, ROOT(engine.threads), "0", 0, 1024),
    ROW("engine.text_workers", CONF_INT, ROOT(engine.text_workers), "1", 1, 64),
    ROW("engine.page_tokens", CONF_INT, ROOT(engine.page_tokens), "16", 1, 256),
    ROW_BYTES_OR("engine.kv_memory", ROOT(engine.kv_memory), "auto", automatic, MIB, TIB),
    ROW_BYTES_OR("engine.memory", ROOT(engine.memory), "auto", automatic, MIB, 16 * TIB),
    ROW_ENUM("engine.kv_type", ROOT(engine.kv_type), "auto", schema_kv_types + 1),
    ROW_ENUM("engine.kv_rotation", ROOT(engine.kv_rotation), "auto", kv_rotations),
    ROW("engine.max_model_memory", CONF_BYTES, ROOT(engine.max_model_memory), "0", 0, TIB),
    ROW_BYTES_OR("engine.on_demand.memory", ROOT(engine.on_demand_memory), "auto", automatic, MIB, 16 * TIB),
    ROW("engine.on_demand.turn", CONF_DURATION, ROOT(engine.on_demand_turn_ms), "10s", 1, HOUR),
    ROW("engine.on_demand.max_wait", CONF_DURATION, ROOT(engine.on_demand_wait_ms), "45s", 0, HOUR),
    ROW("engine.max_sequences", CONF_INT, ROOT(engine.max_sequences), "32", 1, 4096),
    ROW("engine.max_waiting", CONF_INT, ROOT(engine.max_waiting), "256", 1, 65536),
    ROW("engine.step_tokens", CONF_INT, ROOT(engine.step_tokens), "0", 0, 8192),
    ROW("engine.most_chunk", CONF_INT, ROOT(engine.most_chunk), "0", 0, 8192),
    ROW("engine.itl_target", CONF_DURATION, ROOT(engine.itl_target_ms), "50ms", 0, 60 * 1000),
    ROW_ENUM("engine.ease", ROOT(engine.ease), "auto", eases),
    ROW("engine.prefix_cache", CONF_BOOL, ROOT(engine.prefix_cache), "true", 0, 0),
    ROW("engine.share_prefixes", CONF_BOOL, ROOT(engine.share_prefixes), "false", 0, 0),
    ROW_ENUM("engine.launch_ahead", ROOT(engine.launch_ahead), "auto", launch_ahead),
    ROW("engine.max_prompt", CONF_BYTES, ROOT(engine.max_prompt), "1MiB", 1, 3 * MIB),
    ROW_ENUM("engine.speculation.mode", ROOT(engine.spec_mode), "auto", spec_modes),
    ROW("engine.speculation.max_draft", CONF_INT, ROOT(engine.spec_max_draft), "8", 1, SPEC_MAX_DRAFT),
    ROW("engine.speculation.fixed", CONF_BOOL, ROOT(engine.spec_fixed), "false", 0, 0),
    ROW("engine.cuda.batch_invariant", CONF_BOOL, ROOT(engine.cuda_batch_invariant), "true", 0, 0),
    ROW("engine.cuda.memory", CONF_FLOAT, ROOT(engine.cuda_memory), "0.9", 0, 1),
    ROW("engine.cuda.swap", CONF_BYTES, ROOT(engine.cuda_swap), "4GiB", 0, TIB),
    ROW("engine.weight_cache", CONF_STRING, ROOT(engine.weight_cache), "", 0, 4000),
    ROW("engine.weight_cache_size", CONF_BYTES, ROOT(engine.weight_cache_size), "64GiB", 0, 16 * TIB),
    ROW("engine.kv_disk.bytes", CONF_BYTES, ROOT(engine.kv_disk_bytes), "0", 0, 16 * TIB),
    ROW("engine.kv_disk.age", CONF_DURATION, ROOT(engine.kv_disk_age_ms), "168h", 0, 8784 * HOUR),
    ROW_ENUM("engine.kv_disk.policy", ROOT(engine.kv_disk_policy), "lru", disk_policies),
    ROW("engine.kv_disk.folder", CONF_STRING, ROOT(engine.kv_disk), "", 0, 4000),
    ROW("engine.kv_disk.always", CONF_BOOL, ROOT(engine.kv_disk_always), "false", 0, 0),
    ROW_ENUM("engine.role", ROOT(engine.role), "both", schema_engine_roles),
    ROW("engine.serves", CONF_STRINGS, ROOT(engine.serves), "", 0, PROTO_MAX_MODELS),
    ROW("engine.cores", CONF_STRING, ROOT(engine.cores), "", 0, 256),
    ROW_LIST("engine.models", ROOT(engine.models), model_rows, struct model_settings, 0, PROTO_MAX_MODELS),
    ROW_LIST("engine.adapters", ROOT(engine.adapters), adapter_rows, struct adapter_settings, 0, PROTO_MAX_MODELS),
    ROW_LIST("engine.adapter_folders", ROOT(engine.adapter_folders), adapter_folder_rows,
	     struct adapter_folder_settings, 0, MOST_ADAPTER_FOLDERS),
    ROW_ENUM("engine.adapter_type", ROOT(engine.adapter_type), "auto", schema_adapter_types),
    ROW("engine.adapter_memory", CONF_BYTES, ROOT(engine.adapter_memory), "1GiB", MIB, TIB),
    ROW("engine.adapter_slots", CONF_INT, ROOT(engine.adapter_slots), "16", 1, MODEL_MAX_ADAPTERS),
    ROW("engine.adapter_turn", CONF_DURATION, ROOT(engine.adapter_turn_ms), "200ms", 1, HOUR),
    ROW("engine.adapter_wait", CONF_DURATION, ROOT(engine.adapter_wait_ms), "30s", 0, HOUR),

    ROW("engine.upstream.url", CONF_STRING, ROOT(upstream.url), "", 0, 1000),
    ROW("engine.upstream.key_file", CONF_STRING, ROOT(upstream.key_file), "", 0, 4095),
    ROW("engine.upstream.ca_file", CONF_STRING, ROOT(upstream.ca_file), "", 0, 4095),
    ROW("engine.upstream.verify", CONF_BOOL, ROOT(upstream.verify), "true", 0, 0),
    ROW_ENUM("engine.upstream.dialect", ROOT(upstream.dialect), "openai", dialects),
    ROW("engine.upstream.connections", CONF_INT, ROOT(upstream.connections), "64", 1, 4096),
    ROW("engine.upstream.connect_timeout", CONF_DURATION, ROOT(upstream.connect_ms), "2s", 10, MINUTE),
    ROW("engine.upstream.idle_timeout", CONF_DURATION, ROOT(upstream.idle_ms), "60s", 10, HOUR),
    ROW("engine.upstream.total_timeout", CONF_DURATION, ROOT(upstream.total_ms), "30m", 10, 24 * HOUR),
    ROW("engine.upstream.health_interval", CONF_DURATION, ROOT(upstream.health_ms), "10s", 10, HOUR),
    ROW("engine.upstream.metrics", CONF_STRING, ROOT(upstream.metrics), "", 0, 200),
    ROW("engine.upstream.metrics_interval", CONF_DURATION, ROOT(upstream.metrics_ms), "1s", 100, HOUR),
    ROW("engine.upstream.failures", CONF_INT, ROOT(upstream.failures), "3", 1, 1000),
    ROW("engine.upstream.cool_down", CONF_DURATION, ROOT(upstream.cool_down_ms), "2s", 10, HOUR),
    ROW_LIST("engine.upstream.models", ROOT(upstream.models), upstream_model_rows, struct upstream_model_settings, 0,
	     PROTO_MAX_MODELS),

    ROW("engine.echo.enabled", CONF_BOOL, ROOT(echo.enabled), "false", 0, 0),
    ROW("engine.echo.rate", CONF_FLOAT, ROOT(echo.rate), "50", 0, 10000000),
    ROW("engine.echo.burst", CONF_INT, ROOT(echo.burst), "1", 1, PROTO_MAX_TOKENS_PER_FRAME),
    ROW("engine.echo.ttft", CONF_DURATION, ROOT(echo.ttft_ms), "50ms", 0, HOUR),
    ROW("engine.echo.fail_after", CONF_INT, ROOT(echo.fail_after), "0", 0, INT_MAX),
    ROW("engine.echo.hang_after", CONF_INT, ROOT(echo.hang_after), "0", 0, INT_MAX),
    ROW("engine.echo.die_after", CONF_INT, ROOT(echo.die_after), "0", 0, INT_MAX),
    ROW("engine.echo.context", CONF_INT, ROOT(echo.context), "4096", 16, 1 << 20),
    ROW("engine.echo.stamp", CONF_BOOL, ROOT(echo.stamp), "false", 0, 0),
    ROW("engine.echo.step", CONF_DURATION, ROOT(echo.step_ms), "0", 0, HOUR),
    ROW("engine.echo.slots", CONF_INT, ROOT(echo.slots), "0", 0, 4096),
    ROW("engine.echo.waiting", CONF_INT, ROOT(echo.waiting), "0", 0, 65536),
    ROW("engine.echo.step_active", CONF_INT, ROOT(echo.step_active), "0", 0, 1 << 20),

    ROW_LIST("engines", ROOT(engines), engine_item_rows, struct engine_item, 0, GW_MAX_ENGINES - 1),

    ROW("handover.memory", CONF_BYTES, ROOT(handover_memory), "256MiB", 4 * MIB, TIB),
    ROW("handover.tokens", CONF_INT, ROOT(gateway.prefill.tokens), "256", 0, 1 << 24),
    ROW("handover.queue", CONF_INT, ROOT(gateway.prefill.queue), "10", 0, 1 << 20),
    ROW("handover.busy", CONF_INT, ROOT(gateway.prefill.busy), "8", 0, 1 << 20),
    ROW("handover.busy_tokens", CONF_INT, ROOT(gateway.prefill.busy_tokens), "64", 0, 1 << 24),
    ROW("handover.local_priority", CONF_INT, ROOT(gateway.prefill.local_priority), "2", 0, 255),
    ROW("handover.wait", CONF_DURATION, ROOT(gateway.prefill.wait_ms), "30s", 1, HOUR),

    ROW("planner.period", CONF_DURATION, ROOT(gateway.planner.period_ms), "1s", 100, HOUR),
    ROW("planner.dwell", CONF_DURATION, ROOT(gateway.planner.dwell_ms), "10s", 0, HOUR),

    ROW("hub.endpoint", CONF_STRING, ROOT(hub.endpoint), "https://huggingface.co", 8, 300),
    ROW("hub.folder", CONF_STRING, ROOT(hub.folder), "", 0, 4000),
    ROW("hub.token_file", CONF_STRING, ROOT(hub.token_file), "", 0, 4095),
    ROW("hub.ca_file", CONF_STRING, ROOT(hub.ca_file), "", 0, 4095),
    ROW("hub.connect_timeout", CONF_DURATION, ROOT(hub.connect_ms), "15s", 10, 10 * MINUTE),
    ROW("hub.stall", CONF_DURATION, ROOT(hub.stall_ms), "30s", SECOND, HOUR),
    ROW("hub.least_rate", CONF_BYTES, ROOT(hub.least_rate), "4KiB", 1, GIB),
    ROW("hub.retries", CONF_INT, ROOT(hub.retries), "5", 0, 1000),
    ROW("hub.retry_wait", CONF_DURATION, ROOT(hub.retry_ms), "1s", 1, 10 * MINUTE),

    ROW_ENUM("cache.store", ROOT(gateway.store.kind), "auto", stores),
    ROW("cache.address", CONF_STRING, ROOT(gateway.store.address), "", 0, 2000),
    ROW("cache.user", CONF_STRING, ROOT(gateway.store.user), "", 0, 128),
    ROW("cache.password_file", CONF_STRING, ROOT(gateway.store.password_file), "", 0, 4095),
    ROW("cache.sentinel_password_file", CONF_STRING, ROOT(gateway.store.sentinel_password_file), "", 0, 4095),
    ROW("cache.database", CONF_INT, ROOT(gateway.store.database), "0", 0, 65535),
    ROW("cache.prefix", CONF_STRING, ROOT(gateway.store.prefix), "sluice:", 0, 32),
    ROW("cache.gateways", CONF_INT, ROOT(gateway.store.gateways), "1", 1, 10000),
    ROW("cache.connect_timeout", CONF_DURATION, ROOT(gateway.store.connect_timeout_ms), "500ms", 1, MINUTE),
    ROW("cache.timeout", CONF_DURATION, ROOT(gateway.store.timeout_ms), "100ms", 4, MINUTE),
    ROW("cache.backoff_min", CONF_DURATION, ROOT(gateway.store.backoff_min_ms), "50ms", 1, MINUTE),
    ROW("cache.backoff_max", CONF_DURATION, ROOT(gateway.store.backoff_max_ms), "5s", 1, HOUR),
    ROW("cache.failures", CONF_INT, ROOT(gateway.store.failures), "5", 1, 10000),
    ROW("cache.operations", CONF_INT, ROOT(gateway.store.operations), "4096", 1, 1 << 20),
    ROW("cache.value_bytes", CONF_BYTES, ROOT(gateway.store.value_bytes), "1MiB", 1024, 256 * MIB),
    ROW("cache.log_bytes", CONF_BYTES, ROOT(gateway.store.log_bytes), "4MiB", 1024, 256 * MIB),
    ROW("cache.keys_per_tenant", CONF_INT, ROOT(gateway.store.keys_per_tenant), "1000", 1, 10000),
    ROW("cache.memory", CONF_BYTES, ROOT(gateway.store.memory_bytes), "64MiB", MIB, TIB),
    ROW("cache.server_memory", CONF_BYTES, ROOT(gateway.store.server_memory), "256MiB", 16 * MIB, TIB),

    ROW("cascade.weights", CONF_STRING, ROOT(cascade.weights), "", 0, 4095),
    ROW_LIST("cascade.cues", ROOT(cascade.cues), casc_cue_rows, struct casc_cue_setting, 0, 64),
    ROW_LIST("cascade.rules", ROOT(cascade.rules), casc_rule_rows, struct casc_rule_setting, 0, 256),
    ROW_LIST("cascade.tiers", ROOT(cascade.tiers), casc_tier_rows, struct casc_tier_setting, 0, 32),
    ROW("cascade.hold.tokens", CONF_INT, ROOT(cascade.hold_tokens), "16", 1, 1024),
    ROW("cascade.hold.min_tokens", CONF_INT, ROOT(cascade.hold_min), "3", 1, 1024),
    ROW("cascade.hold.time", CONF_DURATION, ROOT(cascade.hold_ms), "250ms", 0, MINUTE),
    ROW("cascade.confidence.window", CONF_INT, ROOT(cascade.window), "6", 1, CASC_MAX_WINDOW),
    ROW("cascade.confidence.smooth", CONF_FLOAT, ROOT(cascade.smooth), "0.25", 0.001, 1),
    ROW("cascade.confidence.mean", CONF_FLOAT, ROOT(cascade.w_mean), "0.5", 0, 100),
    ROW("cascade.confidence.minimum", CONF_FLOAT, ROOT(cascade.w_min), "0.2", 0, 100),
    ROW("cascade.confidence.entropy", CONF_FLOAT, ROOT(cascade.w_entropy), "0.15", 0, 100),
    ROW("cascade.confidence.margin", CONF_FLOAT, ROOT(cascade.w_margin), "0.15", 0, 100),
    ROW("cascade.takeover", CONF_DURATION, ROOT(cascade.takeover_ms), "5s", 1, HOUR),
    ROW("cascade.fallback", CONF_BOOL, ROOT(cascade.fallback), "true", 0, 0),
    ROW("cascade.least_escalations", CONF_INT, ROOT(cascade.floor), "2", 0, 1000000),
    ROW("cascade.small_cost", CONF_FLOAT, ROOT(cascade.small_cost), "0.1", 0, 1),
    ROW("cascade.load.enter", CONF_DURATION, ROOT(cascade.enter_ms), "500ms", 0, HOUR),
    ROW("cascade.load.leave_ratio", CONF_FLOAT, ROOT(cascade.leave_ratio), "0.7", 0.01, 1),
    ROW("cascade.load.leave", CONF_DURATION, ROOT(cascade.leave_ms), "2s", 0, HOUR),
    ROW("cascade.load.recover", CONF_DURATION, ROOT(cascade.recover_ms), "10s", 0, HOUR),
    ROW("cascade.log", CONF_STRING, ROOT(gateway.cascade_log), "", 0, 4000),
    ROW("cascade.log_size", CONF_BYTES, ROOT(gateway.cascade_log_bytes), "64MiB", 0, TIB),

    ROW("gateway.https", CONF_ADDRESS, ROOT(gateway.https), "127.0.0.1:8443", 0, 0),
    ROW("gateway.http", CONF_ADDRESS, ROOT(gateway.http), "127.0.0.1:8080", 0, 0),
    ROW("gateway.threads", CONF_INT, ROOT(gateway.threads), "1", 0, 64),
    ROW("gateway.cert", CONF_STRING, ROOT(gateway.cert_file), "", 0, 4095),
    ROW("gateway.key", CONF_STRING, ROOT(gateway.key_file), "", 0, 4095),
    ROW_LIST("gateway.certificates", ROOT(gateway.certificates), cert_rows, struct gw_cert_config, 0, 64),
    ROW_ENUM("gateway.tls_min", ROOT(gateway.tls_min), "1.2", tls_versions),
    ROW("gateway.tls_tickets", CONF_DURATION, ROOT(gateway.ticket_ms), "12h", 0, 7 * 24 * HOUR),
    ROW("gateway.client_ca", CONF_STRING, ROOT(gateway.client_ca), "", 0, 4095),
    ROW_ENUM("gateway.client_certs", ROOT(gateway.client_certs), "none", client_certs),
    ROW_LIST("gateway.listeners", ROOT(gateway.listeners), listener_rows, struct gw_listener_config, 0, 32),
    ROW("gateway.trusted_proxies", CONF_STRINGS, ROOT(gateway.trusted_proxies), "", 0, 64),
    ROW_ENUM("gateway.forwarded", ROOT(gateway.forwarded), "off", forwarded_kinds),
    ROW("gateway.engine_socket", CONF_STRING, ROOT(gateway.engine_socket), "", 0, 107),
    ROW_ENUM("gateway.routing.policy", ROOT(gateway.routing.policy), "cost", routing_policies),
    WEIGHT("occupancy", GW_ROUTE_OCCUPANCY, "3"),
    WEIGHT("active", GW_ROUTE_ACTIVE, "1"),
    WEIGHT("cache", GW_ROUTE_CACHE, "10"),
    WEIGHT("queue", GW_ROUTE_QUEUE, "0.5"),
    WEIGHT("recent", GW_ROUTE_RECENT, "1"),
    WEIGHT("affinity", GW_ROUTE_AFFINITY, "5"),
    ROW_ENUM("gateway.routing.first", ROOT(gateway.routing.first), "any", route_firsts),
    ROW("gateway.routing.saturated_wait", CONF_DURATION, ROOT(gateway.routing.saturated_wait_ms), "2s", 0, HOUR),
    ROW("gateway.hedge.percentile", CONF_FLOAT, ROOT(gateway.hedge.percentile), "0.95", 0.5, 0.999),
    ROW("gateway.hedge.share", CONF_FLOAT, ROOT(gateway.hedge.share), "0.05", 0, 1),
    ROW("gateway.hedge.least", CONF_DURATION, ROOT(gateway.hedge.least_ms), "50ms", 1, HOUR),
    ROW("gateway.dev_keys", CONF_BOOL, ROOT(gateway.dev_keys), "false", 0, 0),
    ROW("gateway.metrics_public", CONF_BOOL, ROOT(gateway.metrics_public), "false", 0, 0),
    ROW("gateway.anonymous", CONF_STRING, ROOT(gateway.anonymous), "", 0, 64),
    ROW("gateway.default_model", CONF_STRING, ROOT(gateway.default_model), "", 0, PROTO_MAX_NAME),
    ROW("gateway.heartbeat", CONF_DURATION, ROOT(gateway.heartbeat_ms), "10s", 10, HOUR),
    ROW("gateway.drain", CONF_DURATION, ROOT(gateway.drain_ms), "10s", 0, HOUR),
    ROW("gateway.upgrade_drain", CONF_DURATION, ROOT(gateway.upgrade_drain_ms), "5m", 0, 24 * HOUR),
    ROW("gateway.resume.grace", CONF_DURATION, ROOT(gateway.resume.grace_ms), "30s", 0, HOUR),
    ROW("gateway.resume.keep", CONF_DURATION, ROOT(gateway.resume.keep_ms), "5m", 0, 24 * HOUR),
    ROW("gateway.resume.stream_bytes", CONF_BYTES, ROOT(gateway.resume.stream_bytes), "4MiB", 64 << 10, 64 << 20),
    ROW("gateway.resume.memory_bytes", CONF_BYTES, ROOT(gateway.resume.memory_bytes), "256MiB", 0, (int64_t)1 << 40),
    ROW("gateway.resume.store", CONF_BOOL, ROOT(gateway.resume.store), "true", 0, 0),
    ROW("gateway.cors_origins", CONF_STRINGS, ROOT(gateway.cors_origins), "", 0, 64),
    ROW("gateway.flush.hold", CONF_DURATION, ROOT(gateway.flush.hold_ms), "0", 0, SECOND),
    ROW("gateway.flush.tokens", CONF_INT, ROOT(gateway.flush.tokens), "2", 1, 5),
    ROW("gateway.responses.keep", CONF_DURATION, ROOT(gateway.responses.keep_ms), "720h", MINUTE, 8784 * HOUR),
    ROW("gateway.conversations.keep", CONF_DURATION, ROOT(gateway.conversations.keep_ms), "720h", MINUTE, 8784 * HOUR),
    ROW("gateway.conversations.per_tenant", CONF_INT, ROOT(gateway.conversations.per_tenant), "500", 0, 10000),
    ROW("gateway.conversations.bytes", CONF_BYTES, ROOT(gateway.conversations.bytes), "512KiB", 1024, 64 << 20),
    ROW("gateway.conversations.tenant_bytes", CONF_BYTES, ROOT(gateway.conversations.tenant_bytes), "64MiB", 0,
	(int64_t)1 << 40),
    ROW("gateway.files.keep", CONF_DURATION, ROOT(gateway.files.keep_ms), "720h", MINUTE, 8784 * HOUR),
    ROW("gateway.files.per_tenant", CONF_INT, ROOT(gateway.files.per_tenant), "100", 0, 1000),
    ROW("gateway.files.bytes", CONF_BYTES, ROOT(gateway.files.bytes), "768KiB", 1, 16 * MIB),
    ROW("gateway.files.tenant_bytes", CONF_BYTES, ROOT(gateway.files.tenant_bytes), "16MiB", 0, (int64_t)1 << 40),
    ROW("gateway.warm", CONF_INT, ROOT(gateway.warm), "64", 0, 1000),
    ROW("gateway.coalesce.window", CONF_DURATION, ROOT(gateway.coalescing.window_ms), "1s", 0, MINUTE),
    ROW("gateway.coalesce.burst", CONF_DURATION, ROOT(gateway.coalescing.burst_ms), "3ms", 0, SECOND),
    ROW("gateway.compress.wait", CONF_DURATION, ROOT(gateway.compress.wait_ms), "10s", 100, 10 * MINUTE),
    ROW("gateway.idempotency.keep", CONF_DURATION, ROOT(gateway.coalescing.idempotency_ms), "24h", MINUTE, 720 * HOUR),
    ROW("gateway.queue.size", CONF_INT, ROOT(gateway.queue.most), "200", 1, 1000000),
    ROW("gateway.queue.tell", CONF_DURATION, ROOT(gateway.queue.tell_ms), "1s", 10, HOUR),
    ROW("gateway.load.high", CONF_DURATION, ROOT(gateway.queue.load_high_ms), "2s", 10, HOUR),
    ROW("gateway.load.low", CONF_DURATION, ROOT(gateway.queue.load_low_ms), "500ms", 1, HOUR),
    ROW_LIST("gateway.prompts", ROOT(gateway.prompts), prompt_rows, struct gw_prompt_config, 0, 1024),
    ROW_LIST("gateway.variants", ROOT(gateway.variants), variant_rows, struct gw_variant_config, 0, 32),
    ROW_LIST("gateway.tiers", ROOT(gateway.tiers), tier_rows, struct gw_tier_config, 0, 32),
    ROW_LIST("gateway.keys", ROOT(gateway.keys), key_rows, struct gw_key_config, 0, 1024),

    ROW("gateway.limits.connections", CONF_INT, ROOT(gateway.limits.connections), "4096", 1, 1000000),
    ROW("gateway.limits.connections_per_address", CONF_INT, ROOT(gateway.limits.connections_per_address), "256", 0,
	1000000),
    ROW("gateway.limits.streams_per_address", CONF_INT, ROOT(gateway.limits.streams_per_address), "1024", 0, 1000000),
    ROW("gateway.limits.exempt_addresses", CONF_STRINGS, ROOT(gateway.limits.exempt_addresses), "127.0.0.0/8,::1", 0,
	64),
    ROW("gateway.limits.requests_per_key", CONF_INT, ROOT(gateway.limits.requests_per_key), "64", 0, 1000000),
    ROW("gateway.limits.memory", CONF_BYTES, ROOT(gateway.limits.memory), "2GiB", 0, TIB),
    ROW("gateway.limits.handshakes_per_turn", CONF_INT, ROOT(gateway.limits.handshakes_per_turn), "4", 0, 100000),
    ROW("gateway.limits.response", CONF_DURATION, ROOT(gateway.limits.response_ms), "1h", 0, 24 * HOUR),
    ROW("gateway.limits.streams_per_connection", CONF_INT, ROOT(gateway.limits.streams_per_connection), "100", 1,
	10000),
    ROW("gateway.limits.header_bytes", CONF_BYTES, ROOT(gateway.limits.header_bytes), "16KiB", 512, MIB),
    ROW("gateway.limits.header_fields", CONF_INT, ROOT(gateway.limits.header_fields), "100", 8, 1000),
    ROW("gateway.limits.body_bytes", CONF_BYTES, ROOT(gateway.limits.body_bytes), "1MiB", 16, 64 * MIB),
    ROW("gateway.limits.handshake", CONF_DURATION, ROOT(gateway.limits.handshake_ms), "10s", 10, HOUR),
    ROW("gateway.limits.header", CONF_DURATION, ROOT(gateway.limits.header_ms), "10s", 10, HOUR),
    ROW("gateway.limits.body", CONF_DURATION, ROOT(gateway.limits.body_ms), "30s", 10, HOUR),
    ROW("gateway.limits.idle", CONF_DURATION, ROOT(gateway.limits.idle_ms), "5m", 10, 24 * HOUR),
    ROW("gateway.limits.stall", CONF_DURATION, ROOT(gateway.limits.stall_ms), "30s", 10, HOUR),
    ROW("gateway.limits.output_bytes", CONF_BYTES, ROOT(gateway.limits.output_bytes), "256KiB", 16 * KIB, 64 * MIB),
    ROW("gateway.limits.resets_per_s", CONF_INT, ROOT(gateway.limits.resets_per_s), "10", 1, 100000),
    ROW("gateway.limits.resets_burst", CONF_INT, ROOT(gateway.limits.resets_burst), "100", 1, 100000),
    ROW("gateway.limits.refused_per_s", CONF_INT, ROOT(gateway.limits.refused_per_s), "5", 1, 100000),
    ROW("gateway.limits.refused_burst", CONF_INT, ROOT(gateway.limits.refused_burst), "50", 1, 100000),
    ROW("gateway.limits.control_frames_per_s", CONF_INT, ROOT(gateway.limits.control_frames_per_s), "50", 1, 100000),
    ROW("gateway.limits.control_frames_burst", CONF_INT, ROOT(gateway.limits.control_frames_burst), "200", 1, 100000),
    ROW("gateway.limits.window_tokens", CONF_INT, ROOT(gateway.limits.window_tokens), "64", 1, 65536),
    ROW("gateway.limits.messages", CONF_INT, ROOT(gateway.limits.messages), "512", 1, 100000),
    ROW("gateway.limits.json_depth", CONF_INT, ROOT(gateway.limits.json_depth), "32", 4, 1000),
    ROW("gateway.limits.json_values", CONF_INT, ROOT(gateway.limits.json_values), "160000", 0, 100000000),
    ROW("gateway.limits.submit_wait", CONF_DURATION, ROOT(gateway.limits.submit_wait_ms), "5s", 10, HOUR),
    ROW("gateway.limits.first_token", CONF_DURATION, ROOT(gateway.limits.first_token_ms), "60s", 10, HOUR),
    ROW("gateway.limits.quota_wait", CONF_DURATION, ROOT(gateway.limits.quota_wait_ms), "5s", 0, HOUR),
    ROW_END,
};

void sluice_log_levels(const struct sluice_config *cfg, struct log_levels *out)
{
	for (int i = 0; i < LOG_N_SUBSYSTEMS; i++)
		out->least[i] = (uint8_t)(cfg->log_levels[i] > 0 ? cfg->log_levels[i] - 1 : cfg->log_level);
}

/* ---- keys that need a restart ---- */

/* A key, or with a dot at the end all keys below it. All other keys change with a reload. */
static const struct {
	const char *key;
	enum restart_need need;
} restart_rows[] = {
    {"state", RESTART_ALL},
    {"engine.socket", RESTART_ALL},
    {"engine.role", RESTART_ALL},
    {"engine.serves", RESTART_ALL},
    {"engine.", RESTART_ENGINE},
    {"engines", RESTART_ALL},
    {"handover.memory", RESTART_ALL},
    {"hub.folder", RESTART_ALL},
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

static int state_fd = -1;

void sluice_config_state_fd(int fd) { state_fd = fd; }

/* What follows the folder in path, from the slash on; the folder has two names. NULL: path is not in it. */
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

/* Paths in the state folder become paths through its descriptor. */
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
		   {&cfg->engine.weight_cache, cfg->weights_by_fd, sizeof cfg->weights_by_fd},
		   {&cfg->engine.kv_disk, cfg->kv_by_fd, sizeof cfg->kv_by_fd}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const char *rest = below(*all[i].path, cfg->state, real);
		if (rest == NULL)
			continue;
		snprintf(all[i].to, all[i].room, "%s%s", cfg->state_by_fd, rest);
		*all[i].path = all[i].to;
	}
	cfg->state = cfg->state_by_fd;
}

static int set_model_path(struct sluice_config *cfg, size_t i)
{
	struct model_settings *m = LIST_AT(cfg->engine.models, struct model_settings, i);
	char path[PATH_MAX];
	if (access(m->path, F_OK) == 0 || !model_path_find(cfg->models_folder, m->path, path, sizeof path))
		return 0;
	cfg->model_paths[i] = sl_strdup(path);
	if (cfg->model_paths[i] == NULL)
		return SL_ENOMEM;
	m->path = cfg->model_paths[i];
	return 0;
}

/* Models that are configured by a name get the path of that entry of the models folder. */
static int find_models(struct sluice_config *cfg, struct sl_err *err)
{
	const char *folder = cfg->hub.folder;
	int rc = 0;
	if (folder[0] != '\0')
		snprintf(cfg->models_folder, sizeof cfg->models_folder, "%s", folder);
	else
		snprintf(cfg->models_folder, sizeof cfg->models_folder, "%s/models", cfg->state);
	for (size_t i = 0; rc == 0 && i < cfg->engine.models.n; i++)
		rc = set_model_path(cfg, i);
	return rc == 0 ? 0 : sl_errf(err, rc, "no memory for the configuration");
}

/* Their bases must be known (schema_check.c): until then one that is not is -1. */
static int name_adapters(struct sluice_config *cfg, struct sl_err *err)
{
	for (size_t i = 0; i < cfg->engine.adapters.n; i++) {
		const struct adapter_settings *a = LIST_AT(cfg->engine.adapters, const struct adapter_settings, i);
		size_t n = strlen(a->model) + strlen(a->name) + 2;
		char *name = sl_alloc(n);
		if (name == NULL)
			return sl_errf(err, SL_ENOMEM, "no memory for the configuration");
		snprintf(name, n, "%s:%s", a->model, a->name);
		cfg->adapters[i] = (struct eng_adapter_config){.name = name, .path = a->path, .model = -1};
		for (size_t k = 0; k < cfg->engine.models.n; k++)
			if (strcmp(LIST_AT(cfg->engine.models, const struct model_settings, k)->name, a->model) == 0)
				cfg->adapters[i].model = (int)k;
	}
	return 0;
}

/* Adapters, and their folders, of models that the engine serves, which are numbered without the others. */
static void serve_adapters(struct sluice_config *cfg)
{
	int served[PROTO_MAX_MODELS] = {0}, n = 0;
	for (size_t k = 0; k < cfg->engine.models.n; k++) {
		bool is = engines_serves(cfg, LIST_AT(cfg->engine.models, const struct model_settings, k)->name);
		served[k] = is ? n++ : -1;
	}
	for (size_t i = 0; i < cfg->engine.adapters.n; i++) {
		struct eng_adapter_config a = cfg->adapters[i];
		if (a.model < 0 || served[a.model] < 0)
			continue;
		a.model = served[a.model];
		cfg->served_adapters[cfg->n_served_adapters++] = a;
	}
	for (size_t i = 0; i < cfg->engine.adapter_folders.n; i++) {
		struct eng_adapter_folder f = cfg->adapter_folders[i];
		if (f.model < 0 || served[f.model] < 0)
			continue;
		f.model = served[f.model];
		cfg->served_folders[cfg->n_served_folders++] = f;
	}
}

static void name_folders(struct sluice_config *cfg)
{
	for (size_t i = 0; i < cfg->engine.adapter_folders.n; i++) {
		const struct adapter_folder_settings *f =
		    LIST_AT(cfg->engine.adapter_folders, const struct adapter_folder_settings, i);
		cfg->adapter_folders[i] =
		    (struct eng_adapter_folder){.path = f->path, .model = -1, .watched = f->watch};
		for (size_t k = 0; k < cfg->engine.models.n; k++)
			if (strcmp(LIST_AT(cfg->engine.models, const struct model_settings, k)->name, f->model) == 0)
				cfg->adapter_folders[i].model = (int)k;
	}
}

/* Who may use which: those of the configuration by name, then all others of a folder's base. */
static void grant_adapters(struct sluice_config *cfg)
{
	size_t n = 0;
	for (size_t i = 0; i < cfg->engine.adapters.n; i++) {
		const struct adapter_settings *a = LIST_AT(cfg->engine.adapters, const struct adapter_settings, i);
		cfg->grants[n++] = (struct gw_grant){cfg->adapters[i].name, false, &a->tiers, &a->tenants};
	}
	for (size_t i = 0; i < cfg->engine.adapter_folders.n; i++) {
		const struct adapter_folder_settings *f =
		    LIST_AT(cfg->engine.adapter_folders, const struct adapter_folder_settings, i);
		cfg->grants[n++] = (struct gw_grant){f->model, true, &f->tiers, &f->tenants};
	}
	cfg->gateway.grants = (struct gw_grants){cfg->grants, n};
}

/* Fills in derived defaults. */
static int derive(struct sluice_config *cfg, const char *engine, struct sl_err *err)
{
	if (state_fd >= 0)
		go_by_descriptor(cfg);
	int n = snprintf(cfg->default_socket, sizeof cfg->default_socket, "%s/run/engine%s%s.sock", cfg->state,
			 engine != NULL ? "-" : "", engine != NULL ? engine : "");
	if (n < 0 || (size_t)n >= sizeof cfg->default_socket)
		return conf_fail(cfg->conf, "state", err, "too long for a socket in it");
	if (cfg->engine.socket[0] == '\0' || engine != NULL)
		cfg->engine.socket = cfg->default_socket;
	snprintf(cfg->cuda_products, sizeof cfg->cuda_products, "%s/cuda-products", cfg->state);
	snprintf(cfg->default_weights, sizeof cfg->default_weights, "%s/weights",
		 cfg->state); /* shorter than the socket */
	if (cfg->engine.weight_cache[0] == '\0')
		cfg->engine.weight_cache = cfg->default_weights;
	/* Of its own for each engine: a folder has one writer. */
	snprintf(cfg->default_kv, sizeof cfg->default_kv, "%s/kv%s%s", cfg->state, engine != NULL ? "-" : "",
		 engine != NULL ? engine : "");
	if (cfg->engine.kv_disk[0] == '\0')
		cfg->engine.kv_disk = cfg->default_kv;
	if (cfg->gateway.engine_socket[0] == '\0')
		cfg->gateway.engine_socket = cfg->engine.socket;
	int rc = engines_derive(cfg, err);
	if (rc != 0)
		return rc;
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

/* An override that empties the list of models empties those of their adapters, too. */
static int load_rows(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
		     struct sl_err *err)
{
	static const char *const emptied[] = {"engine.models=", "engine.adapters=", "engine.adapter_folders="};
	enum { EMPTIED = sizeof emptied / sizeof *emptied };
	const char **all = sl_zalloc_n(n_sets * EMPTIED + 1, sizeof *all);
	size_t n = 0;
	if (all == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the configuration");
	for (size_t i = 0; i < n_sets; i++) {
		size_t more = strcmp(sets[i], emptied[0]) == 0 ? EMPTIED : 1;
		all[n] = sets[i];
		for (size_t k = 1; k < more; k++)
			all[n + k] = emptied[k];
		n += more;
	}
	int rc = conf_load(all_rows, path, all, n, cfg, &cfg->conf, err);
	sl_free(all);
	return rc;
}

int schema_load(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets, const char *name,
		struct sl_err *err)
{
	memset(cfg, 0, sizeof *cfg);
	engines_prepare(all_rows);
	int rc = load_rows(cfg, path, sets, n_sets, err);
	if (rc != 0)
		return rc;
	rc = derive(cfg, name, err);
	if (rc == 0)
		rc = find_models(cfg, err);
	if (rc == 0)
		rc = name_adapters(cfg, err);
	if (rc == 0) {
		name_folders(cfg);
		grant_adapters(cfg);
	}
	if (rc == 0)
		rc = schema_check(cfg, err);
	if (rc == 0)
		serve_adapters(cfg);
	if (rc != 0)
		sluice_config_free(cfg);
	return rc;
}

int sluice_config_load(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
		       struct sl_err *err)
{
	return schema_load(cfg, path, sets, n_sets, NULL, err);
}

void sluice_config_free(struct sluice_config *cfg)
{
	for (size_t i = 0; i < PROTO_MAX_MODELS; i++) {
		sl_free(cfg->model_paths[i]);
		cfg->model_paths[i] = NULL;
		sl_free((char *)(uintptr_t)cfg->adapters[i].name);
		cfg->adapters[i].name = NULL;
	}
	conf_free(cfg->conf);
	cfg->conf = NULL;
}

const struct conf_row *sluice_config_rows(void)
{
	engines_prepare(all_rows);
	return all_rows;
}
