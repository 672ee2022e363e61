/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of an outcome (etc/cascade.md). Its numbers are those of struct casc_cost, so a report over lines matches
 * the counters.
 */
#include "cascade/outcome.h"

#include <string.h>

#include "base/json/json_out.h"

static int put_features(struct sl_buf *out, const struct casc_features *f)
{
	int rc = buf_append_str(out, ",\"features\":{\"dense\":[");
	for (int i = 0; i < CASC_N_FEATURES && rc == 0; i++)
		rc = buf_printf(out, i > 0 ? ",%.6g" : "%.6g", (double)f->dense[i]);
	if (rc == 0)
		rc = buf_append_str(out, "],\"grams\":[");
	for (uint32_t i = 0; i < f->n_grams && rc == 0; i++)
		rc = buf_printf(out, i > 0 ? ",%u" : "%u", f->grams[i]);
	return rc == 0 ? buf_append_str(out, "]}") : rc;
}

static int put_trace(struct sl_buf *out, const float *trace, uint32_t n)
{
	int rc = buf_append_str(out, ",\"trace\":[");
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = buf_printf(out, i > 0 ? ",%.4f" : "%.4f", (double)trace[i]);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

static int put_costs(struct sl_buf *out, const struct casc *c)
{
	struct casc_cost cost = {0};
	casc_cost_add(&cost, c);
	return buf_printf(
	    out,
	    ",\"small\":{\"prompt\":%llu,\"made\":%llu,\"shown\":%llu},\"large\":{\"prompt\":%llu,\"made\":%llu,"
	    "\"shown\":%llu,\"given\":%llu},\"offered\":%llu,\"accepted\":%llu,\"always_large\":%llu",
	    (unsigned long long)cost.small_prompt, (unsigned long long)cost.small_made,
	    (unsigned long long)cost.small_shown, (unsigned long long)cost.large_prompt,
	    (unsigned long long)cost.large_made, (unsigned long long)cost.large_shown,
	    (unsigned long long)cost.large_given, (unsigned long long)cost.offered, (unsigned long long)cost.accepted,
	    (unsigned long long)cost.always_large);
}

static int put(struct sl_buf *out, const struct casc_outcome_log *o)
{
	const struct casc *c = o->request;
	int rc = buf_append_str(out, "{\"v\":1,\"id\":");
	if (rc == 0)
		rc = json_out_string(out, o->id, strlen(o->id));
	if (rc == 0)
		rc = buf_append_str(out, ",\"tier\":");
	if (rc == 0)
		rc = json_out_string(out, o->tier, strlen(o->tier));
	if (rc == 0)
		rc = buf_printf(
		    out,
		    ",\"at\":%lld,\"score\":%.5f,\"plan\":\"%s\",\"why\":\"%s\",\"escalated\":\"%s\",\"refused\":%s,"
		    "\"disagreed\":%s,\"ttft_ms\":%u",
		    (long long)o->at_unix_s, (double)o->score, casc_plan_name(c->plan), casc_why_name(c->why),
		    casc_reason_name(c->escalated), c->refused ? "true" : "false", c->disagreed ? "true" : "false",
		    o->ttft_ms);
	if (rc == 0 && c->held_by != CASC_NOT_HELD)
		rc = buf_printf(out, ",\"hold\":{\"by\":\"%s\",\"tokens\":%u,\"ms\":%.3f,\"shown_ms\":%.3f}",
				casc_held_by_name(c->held_by), c->held, o->hold_ms, o->shown_ms);
	if (rc == 0)
		rc = put_costs(out, c);
	if (rc == 0 && o->features != NULL)
		rc = put_features(out, o->features);
	if (rc == 0 && o->n_trace > 0)
		rc = put_trace(out, o->trace, o->n_trace);
	return rc == 0 ? buf_append_str(out, "}\n") : rc;
}

int casc_outcome_print(struct sl_buf *out, const struct casc_outcome_log *o)
{
	size_t before = out->len;
	int rc = put(out, o);
	if (rc != 0)
		buf_cut(out, before);
	return rc;
}
