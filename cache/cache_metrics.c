/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/priv.h"

#define OPS "sluice_cache_operations_total"
#define OPS_HELP "Operations answered, by store"
struct metric cache_m_redis_ops = METRIC_OF(METRIC_COUNTER, OPS, "store=\"redis\"", OPS_HELP);
struct metric cache_m_memory_ops = METRIC_OF(METRIC_COUNTER, OPS, "store=\"memory\"", OPS_HELP);
struct metric cache_m_refused = METRIC_OF(METRIC_COUNTER, "sluice_cache_refused_total", NULL,
					  "Operations refused because too many were outstanding");
struct metric cache_m_timeouts = METRIC_OF(METRIC_COUNTER, "sluice_cache_timeouts_total", NULL,
					   "Operations that ended with their time and no answer");
struct metric cache_m_expired = METRIC_OF(METRIC_COUNTER, "sluice_cache_expired_total", NULL,
					  "Records of the memory store whose time to live was over");
struct metric cache_m_connects =
    METRIC_OF(METRIC_COUNTER, "sluice_cache_connects_total", NULL, "Attempts to connect to Redis");
struct metric cache_m_opened =
    METRIC_OF(METRIC_COUNTER, "sluice_cache_circuit_opened_total", NULL, "Times that a thread stopped asking Redis");
struct metric cache_m_up =
    METRIC_OF(METRIC_GAUGE, "sluice_cache_up", NULL, "Threads with a working connection to Redis");

static const double redis_bounds[] = {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3};
struct metric cache_m_redis_seconds =
    HISTOGRAM_OF("sluice_cache_redis_seconds", NULL, "From a command to its answer", redis_bounds);

#define FAILURE(reason)                                                                   \
	METRIC_OF(METRIC_COUNTER, "sluice_cache_failures_total", "reason=\"" reason "\"", \
		  "What Redis failed at, by reason")
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

#define BY_KIND(metric, kind, name, help) METRIC_OF(metric, name, "kind=\"" kind "\"", help)
#define EACH_KIND(metric, name, help)                                                               \
	{                                                                                           \
		BY_KIND(metric, "limit", name, help), BY_KIND(metric, "session", name, help),       \
		    BY_KIND(metric, "replay", name, help), BY_KIND(metric, "identity", name, help), \
		    BY_KIND(metric, "shared", name, help)                                           \
	}
struct metric cache_m_degraded[CACHE_N_KINDS] =
    EACH_KIND(METRIC_COUNTER, "sluice_cache_degraded_total", "Operations that ended by policy because Redis failed");
struct metric cache_m_evicted[CACHE_N_KINDS] =
    EACH_KIND(METRIC_COUNTER, "sluice_cache_evicted_total", "Records of the memory store that gave way to others");
struct metric cache_m_bytes[CACHE_N_KINDS] =
    EACH_KIND(METRIC_GAUGE, "sluice_cache_memory_bytes", "Held by the memory store");

METRICS(cache_m_redis_ops);
METRICS(cache_m_memory_ops);
METRICS(cache_m_refused);
METRICS(cache_m_timeouts);
METRICS(cache_m_expired);
METRICS(cache_m_connects);
METRICS(cache_m_opened);
METRICS(cache_m_up);
METRICS(cache_m_redis_seconds);
METRICS(cache_m_failures);
METRICS(cache_m_degraded);
METRICS(cache_m_evicted);
METRICS(cache_m_bytes);
