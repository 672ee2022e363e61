/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/api/engine_gauges.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/generation/role_planner.h"
#include "gateway/observe/label.h"

/* A metric and the field of the report that it repeats: 4 or 8 bytes. */
struct reported {
	size_t at, size;
	struct metric m;
};

#define REPORTED(report, field, kind_, name_, scale_, help_)                          \
	{                                                                             \
		offsetof(struct report, field), sizeof((struct report *)NULL)->field, \
		{                                                                     \
			.kind = kind_, .name = name_, .scale = scale_, .help = help_  \
		}                                                                     \
	}
#define ENGINE_GAUGE(field, name, help) REPORTED(proto_stats, field, METRIC_GAUGE, name, 0, help)
#define ENGINE_COUNTER(field, name, help) REPORTED(proto_stats, field, METRIC_COUNTER, name "_total", 0, help)
/* Of the tier on disk. */
#define DISK_COUNTER(field, name_, labels_, scale_, help_)                                                          \
	{                                                                                                           \
		offsetof(struct proto_stats, field), sizeof((struct proto_stats *)NULL)->field,                     \
		{                                                                                                   \
			.kind = METRIC_COUNTER, .name = "sluice_engine_kv_disk_" name_ "_total", .labels = labels_, \
			.scale = scale_, .help = help_                                                              \
		}                                                                                                   \
	}
#define DISK_MISS(i, reason)                                                  \
	DISK_COUNTER(kv_disk_misses[i], "misses", "reason=\"" reason "\"", 0, \
		     "Prompts whose pages were not read from disk, by reason")
#define DEVICE_GAUGE(field, name, scale, help) \
	REPORTED(proto_device, field, METRIC_GAUGE, "sluice_device_" name, scale, help)

#define DEVICE_COUNTER(field, name, help) \
	REPORTED(proto_device, field, METRIC_COUNTER, "sluice_device_" name "_total", 0, help)

static struct reported engine[] = {
    ENGINE_GAUGE(running, "sluice_engine_running", "Sequences in the engine's batch, or paused with their pages"),
    ENGINE_GAUGE(waiting, "sluice_engine_waiting", "Sequences that wait in the engine"),
    ENGINE_GAUGE(pages_total, "sluice_engine_pages", "KV pages of the engine"),
    ENGINE_GAUGE(pages_free, "sluice_engine_pages_free", "KV pages of the engine that are free"),
    ENGINE_GAUGE(prefix_pages, "sluice_engine_prefix_pages", "KV pages that the prefix tree holds"),
    ENGINE_GAUGE(swap_places, "sluice_engine_swap_pages", "KV pages that fit into the host's swap memory"),
    ENGINE_GAUGE(swap_used, "sluice_engine_swap_pages_used", "KV pages in the host's swap memory"),
    ENGINE_GAUGE(kv_bytes, "sluice_engine_kv_bytes", "Memory for keys and values"),
    ENGINE_GAUGE(kv_withheld, "sluice_engine_kv_withheld_bytes",
		 "Memory for keys and values that was given back to the system and is not used for now"),
    ENGINE_COUNTER(kv_released, "sluice_engine_kv_released_bytes",
		   "Memory of keys and values given back to the system under pressure"),
    ENGINE_COUNTER(kv_restored, "sluice_engine_kv_restored_bytes",
		   "Memory for keys and values used again once there was no pressure"),
    ENGINE_GAUGE(models_here, "sluice_engine_models_resident", "Models on demand whose weights are in memory"),
    ENGINE_GAUGE(load_waiting, "sluice_engine_load_waiting", "Requests that wait for a model's weights"),
    ENGINE_COUNTER(model_loads, "sluice_engine_model_loads",
		   "Times that weights of a model on demand came into memory"),
    ENGINE_COUNTER(model_drops, "sluice_engine_model_evictions", "Times that they left it"),
    REPORTED(proto_stats, model_load_ms, METRIC_COUNTER, "sluice_engine_model_load_seconds_total", 1e-3,
	     "How long loads of weights took together"),
    ENGINE_GAUGE(adapters_here, "sluice_engine_adapters_in_memory", "Adapters in memory"),
    ENGINE_GAUGE(adapter_bytes, "sluice_engine_adapter_bytes", "Memory that adapters take"),
    ENGINE_COUNTER(adapter_loads, "sluice_engine_adapter_loads", "Adapters that came into memory"),
    ENGINE_COUNTER(adapter_drops, "sluice_engine_adapter_drops", "Adapters that left memory"),
    ENGINE_GAUGE(slowed, "sluice_engine_slowed",
		 "1 while an engine's device or processor is slowed, so that steps keep the tiers' itl_target by fewer "
		 "sequences"),
    ENGINE_GAUGE(held, "sluice_engine_held", "Sequences that wait with their pages because of that"),
    ENGINE_COUNTER(slowdowns, "sluice_engine_slowdowns", "Times that an engine's device or processor became slowed"),
    ENGINE_COUNTER(steps, "sluice_engine_steps", "Steps of the engine"),
    ENGINE_COUNTER(prefill_tokens, "sluice_engine_prefill_tokens", "Prompt tokens computed"),
    ENGINE_COUNTER(decode_tokens, "sluice_engine_decode_tokens", "Tokens generated"),
    ENGINE_COUNTER(submitted, "sluice_engine_submitted", "Sequences submitted to the engine"),
    ENGINE_COUNTER(cancelled, "sluice_engine_cancelled", "Sequences cancelled"),
    ENGINE_COUNTER(displaced, "sluice_engine_displaced", "Requests displaced from the engine's queue by others"),
    ENGINE_COUNTER(preemptions, "sluice_engine_preemptions", "Sequences pre-empted, to be recomputed or swapped"),
    ENGINE_COUNTER(swapped_out, "sluice_engine_swapped_out_pages", "KV pages swapped out to the host's memory"),
    ENGINE_COUNTER(swapped_in, "sluice_engine_swapped_in_pages", "KV pages swapped in again"),
    ENGINE_COUNTER(swap_full, "sluice_engine_swap_full",
		   "Sequences pre-empted while the swap memory had no room for them"),
    ENGINE_GAUGE(kv_disk_bytes, "sluice_engine_kv_disk_bytes", "What keys and values on disk take"),
    ENGINE_GAUGE(kv_disk_pages, "sluice_engine_kv_disk_pages", "KV pages on disk"),
    DISK_COUNTER(kv_disk_hits[0], "hits", "policy=\"lru\"", 0, "KV pages read from disk, by what decides which go"),
    DISK_COUNTER(kv_disk_hits[1], "hits", "policy=\"lfu\"", 0, "KV pages read from disk, by what decides which go"),
    DISK_COUNTER(kv_disk_hits[2], "hits", "policy=\"ttl\"", 0, "KV pages read from disk, by what decides which go"),
    DISK_MISS(0, "absent"),
    DISK_MISS(1, "slow"),
    DISK_MISS(2, "busy"),
    DISK_MISS(3, "late"),
    DISK_MISS(4, "failed"),
    DISK_COUNTER(kv_disk_written, "written_pages", NULL, 0, "KV pages written to disk"),
    DISK_COUNTER(kv_disk_evicted, "evicted_pages", NULL, 0, "KV pages on disk that made room, or were too old"),
    DISK_COUNTER(kv_disk_erased, "erased_pages", NULL, 0, "KV pages erased from disk with their conversation"),
    DISK_COUNTER(kv_disk_dropped, "dropped_pages", NULL, 0,
		 "KV pages that were not written: the disk was behind, full or failed"),
    DISK_COUNTER(kv_disk_errors[0], "errors", "kind=\"read\"", 0, "Faults of the tier on disk, and damaged pages"),
    DISK_COUNTER(kv_disk_errors[1], "errors", "kind=\"write\"", 0, "Faults of the tier on disk, and damaged pages"),
    DISK_COUNTER(kv_disk_errors[2], "errors", "kind=\"damaged\"", 0, "Faults of the tier on disk, and damaged pages"),
    DISK_COUNTER(kv_disk_read_bytes, "read_bytes", NULL, 0, "Bytes of KV pages read from disk"),
    DISK_COUNTER(kv_disk_write_bytes, "write_bytes", NULL, 0, "Bytes of KV pages written to disk"),
    DISK_COUNTER(kv_disk_read_us, "read_seconds", NULL, 1e-6, "How long reads of KV pages took together"),
    DISK_COUNTER(kv_disk_write_us, "write_seconds", NULL, 1e-6, "How long writes of KV pages took together"),
    ENGINE_COUNTER(forced_tokens, "sluice_engine_forced_tokens",
		   "Tokens of constrained answers that their grammar forced: each saved a step of its sequence"),
    ENGINE_COUNTER(prefix_queries, "sluice_engine_prefix_queries", "Prompt tokens looked up in the prefix tree"),
    ENGINE_COUNTER(prefix_hits, "sluice_engine_prefix_hits", "Prompt tokens found in the prefix tree"),
    ENGINE_COUNTER(spec_drafts, "sluice_spec_drafts", "Drafts that the engine verified"),
    ENGINE_COUNTER(spec_drafted, "sluice_spec_drafted_tokens", "Tokens in verified drafts"),
    ENGINE_COUNTER(spec_accepted, "sluice_spec_accepted_tokens",
		   "Drafted tokens accepted: each saved a step of its sequence"),
};

static struct reported device[] = {
    DEVICE_GAUGE(known, "up", 0, "1 while the driver reports on the engine's device"),
    DEVICE_GAUGE(busy_percent, "busy_ratio", 0.01, "Share of the last moments in which a kernel ran on the device"),
    DEVICE_GAUGE(memory_busy_percent, "memory_busy_ratio", 0.01,
		 "Share of them in which its memory was read or written"),
    DEVICE_GAUGE(memory_bytes, "memory_bytes", 0, "Memory of the device"),
    DEVICE_GAUGE(memory_used_bytes, "memory_used_bytes", 0, "Memory of the device in use, by any process"),
    DEVICE_GAUGE(celsius, "temperature_celsius", 0, "Temperature of the device"),
    DEVICE_GAUGE(milliwatts, "power_watts", 1e-3, "Power that the device draws"),
    DEVICE_GAUGE(limit_milliwatts, "power_limit_watts", 1e-3, "Power that the device may draw"),
    DEVICE_GAUGE(sm_mhz, "sm_clock_hertz", 1e6, "Clock of the device's multiprocessors"),
    DEVICE_GAUGE(memory_mhz, "memory_clock_hertz", 1e6, "Clock of the device's memory"),
    DEVICE_GAUGE(nvlinks, "nvlinks_up", 0, "Links to other devices that are up"),
    REPORTED(proto_device, ecc_uncorrected, METRIC_COUNTER, "sluice_device_ecc_errors_total", 0,
	     "Uncorrected errors of the device's memory since the driver was loaded"),
    DEVICE_COUNTER(nvlink_replays, "nvlink_replays", "Packets that links to other devices sent again"),
    DEVICE_COUNTER(nvlink_crc, "nvlink_crc_errors", "Wrong checksums on links to other devices"),
    DEVICE_COUNTER(pcie_replays, "pcie_replays", "Packets that the device's PCIe link sent again"),
    DEVICE_GAUGE(pcie_sent, "pcie_sent_bytes_per_second", 0, "What the device sends over PCIe"),
    DEVICE_GAUGE(pcie_received, "pcie_received_bytes_per_second", 0, "What the device receives over PCIe"),
    DEVICE_COUNTER(xids, "xid_errors", "Critical errors (Xid) that the driver has reported since the engine's start"),
    DEVICE_GAUGE(last_xid, "last_xid", 0, "The number of the last one; 0: there was none"),
};

#define SLOWED(reason)                                                           \
	METRIC_OF(METRIC_GAUGE, "sluice_device_slowed", "reason=\"" reason "\"", \
		  "1 while the device's clocks are held down for this reason")
/* By bit of enum proto_slowed. */
static struct metric slowed[] = {SLOWED("power"), SLOWED("thermal"), SLOWED("hardware"), SLOWED("other")};

static struct reported upstream[] = {
    REPORTED(proto_upstream, open, METRIC_GAUGE, "sluice_upstream_open", 0,
	     "1 while the server that runs the models has failed and nothing is sent to it"),
    REPORTED(proto_upstream, openings, METRIC_COUNTER, "sluice_upstream_openings_total", 0,
	     "Times that it was found to have failed"),
    REPORTED(proto_upstream, retries, METRIC_COUNTER, "sluice_upstream_retries_total", 0,
	     "Requests sent again, because nothing of a response had come"),
    REPORTED(proto_upstream, false_usages, METRIC_COUNTER, "sluice_upstream_false_usages_total", 0,
	     "Answers whose usage was out of bounds and was bounded"),
    REPORTED(proto_upstream, running, METRIC_GAUGE, "sluice_upstream_running", 0,
	     "Requests that run there by its own metrics, whoever sent them"),
    REPORTED(proto_upstream, waiting, METRIC_GAUGE, "sluice_upstream_waiting", 0,
	     "Requests that wait there by its own metrics"),
    REPORTED(proto_upstream, others, METRIC_GAUGE, "sluice_upstream_others", 0,
	     "Requests there by its own metrics that this server did not send"),
    REPORTED(proto_upstream, kv_permille, METRIC_GAUGE, "sluice_upstream_kv_used", 1e-3,
	     "Share of its KV cache in use by its own metrics"),
    REPORTED(proto_upstream, reads, METRIC_COUNTER, "sluice_upstream_metrics_reads_total", 0,
	     "Times that its metrics were requested"),
    REPORTED(proto_upstream, failed_reads, METRIC_COUNTER, "sluice_upstream_metrics_failures_total", 0,
	     "Times that its metrics could not be read or believed"),
};

#define FAULT(kind)                                                                     \
	METRIC_OF(METRIC_COUNTER, "sluice_upstream_faults_total", "fault=\"" kind "\"", \
		  "Requests to the server that runs the models that failed, by what happened")
/* By enum proto_fault. */
static struct metric faults[PROTO_FAULTS] = {
    FAULT("resolve"), FAULT("connect"), FAULT("tls"),      FAULT("key"),     FAULT("no_model"),  FAULT("limited"),
    FAULT("refused"), FAULT("server"),  FAULT("redirect"), FAULT("headers"), FAULT("no_stream"), FAULT("event"),
    FAULT("long"),    FAULT("cut"),     FAULT("stall"),    FAULT("slow"),    FAULT("away")};

static struct metric link_up = {
    .kind = METRIC_GAUGE, .name = "sluice_engine_up", .help = "1 while the link to the engine is up"};

enum { N_ENGINE = sizeof engine / sizeof *engine, N_DEVICE = sizeof device / sizeof *device };
enum { N_SLOWED = sizeof slowed / sizeof *slowed, N_UPSTREAM = sizeof upstream / sizeof *upstream };

static void register_all(struct reported *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		metric_register(&all[i].m);
}

/* Not the counters of a device that does not answer: they would look reset. */
static void set_all(struct reported *all, size_t n, const void *report, bool counters)
{
	for (size_t i = 0; i < n; i++) {
		const void *at = (const char *)report + all[i].at;
		if (counters || all[i].m.kind != METRIC_COUNTER)
			metric_set(&all[i].m,
				   all[i].size == 4 ? *(const uint32_t *)at : (int64_t) * (const uint64_t *)at);
	}
}

/* Dashboards made for vLLM find its names, with its label, for the figures of each model. */
#define MODEL_GAUGE(field, name, help) REPORTED(proto_figures, field, METRIC_GAUGE, "vllm:" name, 0, help)
#define MODEL_COUNTER(field, name, help) REPORTED(proto_figures, field, METRIC_COUNTER, "vllm:" name "_total", 0, help)
static const struct reported model_figures[] = {
    MODEL_GAUGE(running, "num_requests_running", "As sluice_engine_running, by model"),
    MODEL_GAUGE(waiting, "num_requests_waiting", "As sluice_engine_waiting, by model"),
    MODEL_COUNTER(prefix_queries, "prefix_cache_queries", "As sluice_engine_prefix_queries_total, by model"),
    MODEL_COUNTER(prefix_hits, "prefix_cache_hits", "As sluice_engine_prefix_hits_total, by model"),
    MODEL_COUNTER(preemptions, "num_preemptions", "As sluice_engine_preemptions_total, by model"),
    MODEL_COUNTER(prefill_tokens, "prompt_tokens", "As sluice_engine_prefill_tokens_total, by model"),
    MODEL_COUNTER(decode_tokens, "generation_tokens", "As sluice_engine_decode_tokens_total, by model"),
    MODEL_COUNTER(spec_drafts, "spec_decode_num_drafts", "As sluice_spec_drafts_total, by model"),
    MODEL_COUNTER(spec_drafted, "spec_decode_num_draft_tokens", "As sluice_spec_drafted_tokens_total, by model"),
    MODEL_COUNTER(spec_accepted, "spec_decode_num_accepted_tokens", "As sluice_spec_accepted_tokens_total, by model"),
};
enum { N_MODEL = sizeof model_figures / sizeof *model_figures };

struct model_gauges {
	char name[PROTO_MAX_NAME + 1], labels[2 * PROTO_MAX_NAME + 32];
	struct reported all[N_MODEL];
	struct metric kv_usage[2]; /* by vLLM's present name, and by the one before it */
};

/* By first report; names of models that a new configuration has removed stay. */
static struct model_gauges *models[2 * PROTO_MAX_MODELS];
static int n_models;

static struct model_gauges *add_model(const char *name)
{
	char quoted[2 * PROTO_MAX_NAME];
	struct model_gauges *g = n_models < (int)(sizeof models / sizeof *models) ? sl_zalloc(sizeof *g) : NULL;
	if (g == NULL)
		return NULL;
	snprintf(g->name, sizeof g->name, "%s", name);
	label_escape(quoted, sizeof quoted, name);
	snprintf(g->labels, sizeof g->labels, "model_name=\"%s\"", quoted);
	memcpy(g->all, model_figures, sizeof g->all);
	for (int i = 0; i < N_MODEL; i++)
		g->all[i].m.labels = g->labels;
	register_all(g->all, N_MODEL);
	for (int i = 0; i < 2; i++) {
		g->kv_usage[i] =
		    (struct metric){.kind = METRIC_GAUGE,
				    .name = i == 0 ? "vllm:kv_cache_usage_perc" : "vllm:gpu_cache_usage_perc",
				    .labels = g->labels,
				    .scale = 1e-3,
				    .help = "Share of a model's KV pages that are not free, 1 is all of them"};
		metric_register(&g->kv_usage[i]);
	}
	return models[n_models++] = g;
}

void engine_gauges_model(const char *name, const struct proto_figures *f)
{
	struct model_gauges *g = NULL;
	for (int i = 0; i < n_models && g == NULL; i++)
		if (strcmp(models[i]->name, name) == 0)
			g = models[i];
	if (g == NULL && (g = add_model(name)) == NULL)
		return;
	set_all(g->all, N_MODEL, f, true);
	uint32_t used = f->pages_total > f->pages_free ? f->pages_total - f->pages_free : 0;
	for (int i = 0; i < 2; i++)
		metric_set(&g->kv_usage[i], f->pages_total > 0 ? (int64_t)used * 1000 / f->pages_total : 0);
}

/* Of each engine, where the ones above add them up. */
static const struct reported one_engine[] = {
    ENGINE_GAUGE(running, "sluice_engine_link_running", "As sluice_engine_running, of one engine"),
    ENGINE_GAUGE(waiting, "sluice_engine_link_waiting", "As sluice_engine_waiting, of one engine"),
    ENGINE_GAUGE(pages_free, "sluice_engine_link_pages_free", "As sluice_engine_pages_free, of one engine"),
    ENGINE_COUNTER(prefill_tokens, "sluice_engine_link_prefill_tokens",
		   "As sluice_engine_prefill_tokens_total, of one engine"),
    ENGINE_COUNTER(prefix_hits, "sluice_engine_link_prefix_hits", "As sluice_engine_prefix_hits_total, of one engine"),
};
enum { N_ONE = sizeof one_engine / sizeof *one_engine, MOST_ENGINES = 16, ROLES = GW_ENGINE_AUTO };

struct one_gauges {
	char name[64], labels[128], role_labels[ROLES][160];
	struct reported all[N_ONE];
	struct metric up, prefixes, roles[ROLES]; /* roles: of its role 1, of the others 0 */
};
static struct one_gauges *engines[MOST_ENGINES];
static int n_engines;

static struct one_gauges *add_engine(const char *name)
{
	struct one_gauges *g = n_engines < MOST_ENGINES ? sl_zalloc(sizeof *g) : NULL;
	if (g == NULL)
		return NULL;
	snprintf(g->name, sizeof g->name, "%s", name);
	snprintf(g->labels, sizeof g->labels, "engine=\"%.63s\"", name);
	memcpy(g->all, one_engine, sizeof g->all);
	for (int i = 0; i < N_ONE; i++)
		g->all[i].m.labels = g->labels;
	g->up = (struct metric){.kind = METRIC_GAUGE,
				.name = "sluice_engine_link_up",
				.labels = g->labels,
				.help = "1 while the link to this engine is up"};
	g->prefixes = (struct metric){.kind = METRIC_GAUGE,
				      .name = "sluice_engine_link_prefixes",
				      .labels = g->labels,
				      .help = "Beginnings of prompts that this engine has published as cached"};
	for (int r = 0; r < ROLES; r++) {
		snprintf(g->role_labels[r], sizeof g->role_labels[r], "%s,role=\"%s\"", g->labels, role_name(r));
		g->roles[r] = (struct metric){.kind = METRIC_GAUGE,
					      .name = "sluice_engine_role",
					      .labels = g->role_labels[r],
					      .help = "1: the engine's role now"};
		metric_register(&g->roles[r]);
	}
	register_all(g->all, N_ONE);
	metric_register(&g->up);
	metric_register(&g->prefixes);
	return engines[n_engines++] = g;
}

void engine_gauges_one(const char *name, bool up, const struct proto_stats *st, size_t n_prefixes, int role)
{
	struct one_gauges *g = NULL;
	for (int i = 0; i < n_engines && g == NULL; i++)
		if (strcmp(engines[i]->name, name) == 0)
			g = engines[i];
	if (g == NULL && (g = add_engine(name)) == NULL)
		return;
	metric_set(&g->up, up);
	metric_set(&g->prefixes, (int64_t)n_prefixes);
	for (int r = 0; r < ROLES; r++)
		metric_set(&g->roles[r], r == role);
	set_all(g->all, N_ONE, st, true);
}

void engine_gauges_register(void)
{
	metric_register(&link_up);
	register_all(engine, N_ENGINE);
}

/* Registered by the first report: most engines use no other server. */
static void set_upstream(const struct proto_upstream *u)
{
	static bool registered;
	if (!registered && !u->known)
		return;
	if (!registered) {
		register_all(upstream, N_UPSTREAM);
		for (int i = 0; i < PROTO_FAULTS; i++)
			metric_register(&faults[i]);
	}
	registered = true;
	set_all(upstream, N_UPSTREAM, u, true);
	for (int i = 0; i < PROTO_FAULTS; i++)
		metric_set(&faults[i], (int64_t)u->faults[i]);
}

void engine_gauges_set(bool up, const struct proto_stats *st)
{
	metric_set(&link_up, up);
	set_all(engine, N_ENGINE, st, true);
	device_gauges_set(&st->device);
	set_upstream(&st->upstream);
}

void device_gauges_set(const struct proto_device *d)
{
	static bool registered;
	if (!registered && !d->known)
		return;
	if (!registered) {
		register_all(device, N_DEVICE);
		for (int i = 0; i < N_SLOWED; i++)
			metric_register(&slowed[i]);
	}
	registered = true;
	set_all(device, N_DEVICE, d, d->known != 0);
	for (int i = 0; i < N_SLOWED; i++)
		metric_set(&slowed[i], d->slowed >> i & 1);
}
