/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_SUBSYSTEM LOG_ADMISSION

#include "gateway/admission/error_limits.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/proto/proto.h"
#include "gateway/admission/error_limit.h"

COUNTER(limited_total, "sluice_error_limits_total", "Times that an engine's errors began to limit a model's requests");
COUNTER(opened_total, "sluice_error_limits_ended_total", "Times that such a limit ended, after a time without errors");
COUNTER(errors_total, "sluice_engine_errors_total", "Requests that an engine, or the server it uses, failed");
GAUGE(limited_now, "sluice_error_limits", "Models of engines whose requests are limited now, because many failed");

static struct error_limit limits[GW_MAX_ENGINES][PROTO_MAX_MODELS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void error_limits_clear(void)
{
	pthread_mutex_lock(&lock);
	memset(limits, 0, sizeof limits);
	pthread_mutex_unlock(&lock);
	metric_set(&limited_now, 0);
}

/* With the lock, until release; NULL: no such engine or model. */
static struct error_limit *take(const struct error_limit_key *k)
{
	if (k->engine < 0 || k->engine >= GW_MAX_ENGINES || k->model < 0 || k->model >= PROTO_MAX_MODELS)
		return NULL;
	pthread_mutex_lock(&lock);
	return &limits[k->engine][k->model];
}

static void release(void) { pthread_mutex_unlock(&lock); }

static void say_limited(const struct error_limit_key *k, uint32_t most, double share)
{
	metric_add(&limited_total, 1);
	metric_add(&limited_now, 1);
	log_warn("engine %s: %.0f %% of the requests for %s fail: at most %u at a time", k->engine_name, 100 * share,
		 k->model_name, most);
}

static void say_opened(const struct error_limit_key *k)
{
	metric_add(&opened_total, 1);
	metric_add(&limited_now, -1);
	log_info("engine %s: requests for %s do not fail any more and are not limited", k->engine_name, k->model_name);
}

bool error_limits_any(void) { return metric_get(&limited_now) > 0; }

bool error_limits_admit(const struct error_limit_key *k, uint64_t now_ns, uint64_t *retry_ms)
{
	*retry_ms = 0;
	/* While nothing is limited a request takes no lock to be admitted. */
	struct error_limit *l = error_limits_any() ? take(k) : NULL;
	if (l == NULL)
		return true;
	const bool opened = error_limit_look(l, now_ns), yes = error_limit_admits(l);
	if (!yes)
		*retry_ms = error_limit_retry_ms(l, now_ns);
	release();
	if (opened)
		say_opened(k);
	return yes;
}

void error_limits_enter(const struct error_limit_key *k, uint64_t now_ns)
{
	struct error_limit *l = take(k);
	if (l == NULL)
		return;
	error_limit_enter(l, now_ns);
	release();
}

void error_limits_success(const struct error_limit_key *k, uint8_t group, uint64_t now_ns)
{
	struct error_limit *l = take(k);
	if (l == NULL)
		return;
	error_limit_success(l, group, now_ns);
	release();
}

void error_limits_error(const struct error_limit_key *k, uint8_t group, bool begun, uint64_t now_ns)
{
	struct error_limit *l = take(k);
	metric_add(&errors_total, 1);
	if (l == NULL)
		return;
	const bool limited = error_limit_error(l, group, begun, now_ns);
	const uint32_t most = (uint32_t)l->limit;
	const double share = error_limit_share(l, now_ns);
	release();
	if (limited)
		say_limited(k, most, share);
}

void error_limits_leave(const struct error_limit_key *k, uint64_t held_ns, uint64_t now_ns)
{
	struct error_limit *l = take(k);
	if (l == NULL)
		return;
	error_limit_leave(l, held_ns, now_ns);
	const bool opened = error_limit_look(l, now_ns);
	release();
	if (opened)
		say_opened(k);
}
