/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "cache/priv.h"

#define COUNTER(name_, help_, labels_)                                                        \
	{                                                                                     \
		.kind = METRIC_COUNTER, .name = (name_), .help = (help_), .labels = (labels_) \
	}

#define OPS "sluice_cache_operations_total"
#define OPS_HELP "Operations answered, by who answered"
struct metric cache_m_redis_ops = COUNTER(OPS, OPS_HELP, "store=\"redis\"");
struct metric cache_m_memory_ops = COUNTER(OPS, OPS_HELP, "store=\"memory\"");
struct metric cache_m_refused =
    COUNTER("sluice_cache_refused_total", "Operations refused because too many were outstanding", NULL);
struct metric cache_m_timeouts =
    COUNTER("sluice_cache_timeouts_total", "Operations that ended with their time and no answer", NULL);
struct metric cache_m_expired =
    COUNTER("sluice_cache_expired_total", "Records of the memory store whose time to live was over", NULL);
struct metric cache_m_connects = COUNTER("sluice_cache_connects_total", "Attempts to connect to Redis", NULL);
struct metric cache_m_opened =
    COUNTER("sluice_cache_circuit_opened_total", "Times that a thread stopped asking Redis", NULL);
struct metric cache_m_up = {
    .kind = METRIC_GAUGE, .name = "sluice_cache_up", .help = "Threads with a working connection to Redis"};

static const double redis_bounds[] = {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3};
struct metric cache_m_redis_seconds = {.kind = METRIC_HISTOGRAM,
				       .name = "sluice_cache_redis_seconds",
				       .help = "From a command to its answer",
				       .n_buckets = sizeof redis_bounds / sizeof *redis_bounds,
				       .bounds = redis_bounds,
				       .scale = 1e-9};

#define FAILURE(reason) \
	COUNTER("sluice_cache_failures_total", "What Redis failed at, by reason", "reason=\"" reason "\"")
struct metric cache_m_failures[N_FAILURES] = {
    [FAILED_CLOSED] = FAILURE("closed"),
    [FAILED_TIMEOUT] = FAILURE("timeout"),
    [FAILED_LOADING] = FAILURE("loading"),
    [FAILED_READONLY] = FAILURE("readonly"),
    [FAILED_OOM] = FAILURE("oom"),
    [FAILED_NOAUTH] = FAILURE("noauth"),
    [FAILED_MOVED] = FAILURE("moved"),
    [FAILED_BUSY] = FAILURE("busy"),
    [FAILED_WRONG_TYPE] = FAILURE("wrong_type"),
    [FAILED_MALFORMED] = FAILURE("malformed"),
    [FAILED_FULL] = FAILURE("full"),
    [FAILED_OTHER] = FAILURE("other"),
};

#define BY_KIND(kind, name, help) COUNTER(name, help, "kind=\"" kind "\"")
#define EACH_KIND(name, help)                                                                                \
	{                                                                                                    \
		BY_KIND("limit", name, help), BY_KIND("session", name, help), BY_KIND("replay", name, help), \
		    BY_KIND("identity", name, help), BY_KIND("shared", name, help)                           \
	}
struct metric cache_m_degraded[CACHE_N_KINDS] =
    EACH_KIND("sluice_cache_degraded_total", "Operations that ended by policy because Redis failed");
struct metric cache_m_evicted[CACHE_N_KINDS] =
    EACH_KIND("sluice_cache_evicted_total", "Records of the memory store that gave way to others");
struct metric cache_m_bytes[CACHE_N_KINDS] = EACH_KIND("sluice_cache_memory_bytes", "Held by the memory store");

static void register_all(void)
{
	metric_register(&cache_m_redis_ops);
	metric_register(&cache_m_memory_ops);
	metric_register(&cache_m_refused);
	metric_register(&cache_m_timeouts);
	for (int i = 0; i < N_FAILURES; i++)
		metric_register(&cache_m_failures[i]);
	for (int i = 0; i < CACHE_N_KINDS; i++)
		metric_register(&cache_m_degraded[i]);
	metric_register(&cache_m_redis_seconds);
	metric_register(&cache_m_up);
	metric_register(&cache_m_connects);
	metric_register(&cache_m_opened);
	for (int i = 0; i < CACHE_N_KINDS; i++)
		metric_register(&cache_m_evicted[i]);
	metric_register(&cache_m_expired);
	for (int i = 0; i < CACHE_N_KINDS; i++) {
		cache_m_bytes[i].kind = METRIC_GAUGE;
		metric_register(&cache_m_bytes[i]);
	}
}

void cache_metrics_register(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, register_all);
}
