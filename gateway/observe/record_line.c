/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json/json_out.h"
#include "gateway/observe/record.h"
#include "gateway/observe/trace.h"

/* Appends ,"name":"text"; without text nothing. */
static int put_text(struct sl_buf *out, const char *name, const char *text)
{
	if (text == NULL || text[0] == '\0')
		return 0;
	int rc = buf_printf(out, ",\"%s\":", name);
	return rc == 0 ? json_out_string(out, text, strlen(text)) : rc;
}

static int put_number(struct sl_buf *out, const char *name, bool known, uint64_t n)
{
	return known ? buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)n) : 0;
}

/* To a microsecond. */
static int put_ms(struct sl_buf *out, const char *name, bool known, uint64_t ns)
{
	return known ? buf_printf(out, ",\"%s\":%llu.%03llu", name, (unsigned long long)(ns / NS_PER_MS),
				  (unsigned long long)(ns % NS_PER_MS / 1000))
		     : 0;
}

static int put_time(struct sl_buf *out, uint64_t unix_ms)
{
	time_t s = (time_t)(unix_ms / 1000);
	struct tm tm;
	char text[32];
	gmtime_r(&s, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	return buf_printf(out, "{\"time\":\"%s.%03uZ\"", text, (unsigned)(unix_ms % 1000));
}

static int put_names(struct sl_buf *out, const struct observed *o, enum observed_verdict v, uint64_t tenant)
{
	static const char *const verdicts[] = {
	    [OBSERVED_NOT_JUDGED] = "null", [OBSERVED_GOOD] = "true", [OBSERVED_BAD] = "false"};
	int rc = put_text(out, "request_id", o->request_id);
	if (rc == 0)
		rc = put_text(out, "trace_id", o->trace != NULL ? o->trace->hex : NULL);
	if (rc == 0)
		rc = put_text(out, "model", o->model);
	if (rc == 0)
		rc = put_text(out, "variant", o->variant);
	if (rc == 0)
		rc = put_text(out, "tier", o->tier);
	if (rc == 0 && o->tier != NULL)
		rc = buf_printf(out, ",\"tenant\":\"%016llx\"", (unsigned long long)tenant);
	if (rc == 0)
		rc = buf_printf(out, ",\"status\":%d", o->status);
	if (rc == 0)
		rc = put_text(out, "ended_by", o->ended_by);
	return rc == 0 ? buf_printf(out, ",\"good\":%s", verdicts[v]) : rc;
}

static int put_times(struct sl_buf *out, const struct observed *o)
{
	const bool engine = o->has_engine, gaps = o->gaps.n > 0;
	int rc = put_ms(out, "queue_ms", engine, observed_queue_ns(o));
	if (rc == 0)
		rc = put_ms(out, "prefill_ms", engine, o->prefill_us * (uint64_t)1000);
	if (rc == 0)
		rc = put_ms(out, "ttft_ms", o->first_ns > 0 && o->has_answer, observed_ttft_ns(o));
	if (rc == 0)
		rc = put_ms(out, "itl_ms", observed_tpot_ns(o) > 0, observed_tpot_ns(o));
	if (rc == 0)
		rc = put_ms(out, "itl_max_ms", gaps, o->gaps.max_ns);
	if (rc == 0)
		rc = put_ms(out, "slow_ms", o->gaps.slow_ns > 0, o->gaps.slow_ns);
	if (rc == 0)
		rc = put_ms(out, "decode_ms", engine, o->decode_us * (uint64_t)1000);
	return rc == 0 ? put_ms(out, "e2e_ms", true, o->ended_ns > o->started_ns ? o->ended_ns - o->started_ns : 0)
		       : rc;
}

static int put_counts(struct sl_buf *out, const struct observed *o)
{
	const bool counted = o->n_prompt > 0, drafts = o->n_drafted > 0;
	int rc = put_number(out, "tokens_in", counted, o->n_prompt);
	if (rc == 0)
		rc = put_number(out, "tokens_cached", counted, o->n_cached);
	if (rc == 0)
		rc = put_number(out, "tokens_out", counted, o->n_answer);
	if (rc == 0)
		rc = put_number(out, "drafted", drafts, o->n_drafted);
	if (rc == 0)
		rc = put_number(out, "accepted", drafts, o->n_accepted);
	if (rc == 0)
		rc = put_text(out, "cascade", o->cascade);
	if (rc == 0)
		rc = put_number(out, "stopped_at", o->left && o->has_answer, o->n_answer);
	if (rc == 0 && o->shared)
		rc = buf_append_str(out, ",\"shared\":true");
	return rc == 0 && o->continued ? buf_append_str(out, ",\"continued\":true") : rc;
}

static int put_prefill(struct sl_buf *out, const struct observed_route *r)
{
	if (r->prefill == NULL)
		return 0;
	int rc = buf_printf(out, ",\"prefill\":{\"where\":\"%s\",\"missing\":%u", r->prefill, r->n_missing);
	if (rc == 0)
		rc = put_text(out, "engine", r->prefill_engine);
	if (rc == 0 && r->handed != NULL)
		rc = buf_printf(out, ",\"end\":\"%s\",\"pages\":%u,\"wait_ms\":%.4g", r->handed, r->n_pages,
				r->waited_us / 1e3);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_hedge(struct sl_buf *out, const struct observed_route *r)
{
	if (r->hedge == NULL)
		return 0;
	int rc = buf_printf(out, ",\"hedge\":{\"end\":\"%s\",\"after_ms\":%u", r->hedge, r->hedge_ms);
	if (rc == 0)
		rc = put_text(out, "from", r->hedge_from);
	if (rc == 0)
		rc = put_text(out, "to", r->hedge_to);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_route(struct sl_buf *out, const struct observed_route *r)
{
	int rc = put_text(out, "engine", r->engine);
	if (rc != 0 || r->engine == NULL)
		return rc;
	rc = buf_printf(out,
			",\"routing\":{\"policy\":\"%s\",\"of\":%u,\"cost\":%.4g,\"occupancy\":%.4g,\"active\":%.4g,"
			"\"cache\":%.4g,\"queue\":%.4g,\"recent\":%.4g,\"affinity\":%.4g,\"cached\":%.4g%s}",
			r->policy, r->n_engines, r->cost, r->occupancy, r->active, r->cache, r->queue, r->recent,
			r->affinity, r->cached, r->spilled ? ",\"spilled\":true" : "");
	if (rc == 0)
		rc = put_prefill(out, r);
	if (rc == 0)
		rc = put_hedge(out, r);
	return rc == 0 ? put_number(out, "remade", r->n_remade > 0, r->n_remade) : rc;
}

int record_print(struct sl_buf *out, const struct observed *o, enum observed_verdict v, uint64_t tenant,
		 uint64_t unix_ms)
{
	int rc = put_time(out, unix_ms);
	if (rc == 0)
		rc = put_names(out, o, v, tenant);
	if (rc == 0)
		rc = put_times(out, o);
	if (rc == 0)
		rc = put_counts(out, o);
	if (rc == 0)
		rc = put_route(out, &o->route);
	return rc == 0 ? buf_append_str(out, "}\n") : rc;
}
