/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of a run: to its client, and to the access log, metrics and outcome log (etc/cascade.md).
 *
 * The state machine has no prompt lengths: they are unknown until the engine has counted. So costs are computed from a
 * copy that has them. If the large model computed no prompt, the small model's length is used.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/metrics.h"
#include "cascade/outcome.h"
#include "gateway/cascade/cascade_run_priv.h"

enum { N_PLANS = CASC_PLAN_RACE + 1, N_REASONS = CASC_FOR_FAILURE + 1, LABEL_BYTES = 48, MAX_LINE = 1 << 20 };

static const double hold_bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1, 2.5};

static struct metric requests[N_PLANS][CASC_N_WHYS], escalations[N_REASONS];
static char request_labels[N_PLANS][CASC_N_WHYS][LABEL_BYTES], escalation_labels[N_REASONS][LABEL_BYTES];
#define TOKENS(var, model, what)                                                                                      \
	METRIC(                                                                                                       \
	    var, METRIC_COUNTER, "sluice_cascade_tokens_total", "model=\"" model "\",what=\"" what "\"",              \
	    "Tokens of the cascade by model: prompt, shown, wasted (generated, but not shown), given (tokens of the " \
	    "small model that the large model computed)")
TOKENS(small_prompt, "small", "prompt");
TOKENS(small_shown, "small", "shown");
TOKENS(small_wasted, "small", "wasted");
TOKENS(large_prompt, "large", "prompt");
TOKENS(large_shown, "large", "shown");
TOKENS(large_wasted, "large", "wasted");
TOKENS(large_given, "large", "given");
COUNTER(refused, "sluice_cascade_refused_total", "Escalations that the tier's budget did not allow");
COUNTER(disagreed, "sluice_cascade_disagreed_total", "Escalations where the large model disagreed with shown text");
COUNTER(offered, "sluice_cascade_offered_tokens_total", "Tokens of the small model that the large model was to verify");
COUNTER(accepted, "sluice_cascade_accepted_tokens_total", "Offered tokens that the large model accepted");
static struct metric hold =
    HISTOGRAM_OF("sluice_cascade_hold_seconds", NULL,
		 "Time from the first generated token to the first shown, for held answers", hold_bounds);
METRICS(hold);

__attribute__((constructor)) static void register_metrics(void)
{
	for (int p = 0; p < N_PLANS; p++)
		for (int w = 0; w < CASC_N_WHYS; w++) {
			snprintf(request_labels[p][w], LABEL_BYTES, "plan=\"%s\",why=\"%s\"", casc_plan_name(p),
				 casc_why_name(w));
			requests[p][w] = (struct metric)METRIC_OF(METRIC_COUNTER, "sluice_cascade_requests_total",
								  request_labels[p][w],
								  "Requests of the cascade by plan and its reason");
			metric_register(&requests[p][w]);
		}
	for (int i = 1; i < N_REASONS; i++) {
		snprintf(escalation_labels[i], LABEL_BYTES, "reason=\"%s\"", casc_reason_name(i));
		escalations[i] =
		    (struct metric)METRIC_OF(METRIC_COUNTER, "sluice_cascade_escalations_total", escalation_labels[i],
					     "Answers that the large model took over (race: or won)");
		metric_register(&escalations[i]);
	}
}

/* ---- costs ---- */

static struct casc with_prompts(const struct cascade_run *r)
{
	struct casc c = r->casc;
	uint32_t known = r->large.n_prompt > 0 ? r->large.n_prompt : r->small.n_prompt;
	c.small.prompt = r->small.n_prompt;
	c.large.prompt = known;
	c.lost_prompt = r->large.lost_prompt;
	return c;
}

static void count(const struct cascade_run *r, const struct casc *c)
{
	struct casc_cost cost = {0};
	casc_cost_add(&cost, c);
	metric_add(&requests[c->plan][c->why], 1);
	if (c->escalated != CASC_NOT_ESCALATED)
		metric_add(&escalations[c->escalated], 1);
	metric_add(&small_prompt, (int64_t)cost.small_prompt);
	metric_add(&small_shown, (int64_t)cost.small_shown);
	metric_add(&small_wasted, (int64_t)cost.small_wasted);
	metric_add(&large_prompt, (int64_t)cost.large_prompt);
	metric_add(&large_shown, (int64_t)cost.large_shown);
	metric_add(&large_wasted, (int64_t)cost.large_wasted);
	metric_add(&large_given, (int64_t)cost.large_given);
	metric_add(&offered, (int64_t)cost.offered);
	metric_add(&accepted, (int64_t)cost.accepted);
	metric_add(&refused, c->refused);
	metric_add(&disagreed, c->disagreed);
	if (r->shown_ns > 0 && (c->plan == CASC_PLAN_CHECK || c->plan == CASC_PLAN_RACE))
		metric_observe(&hold, (int64_t)(r->shown_ns - r->first_ns));
}

static double ms_after_first(const struct cascade_run *r, uint64_t then_ns)
{
	return then_ns > r->first_ns && r->first_ns > 0 ? (double)(then_ns - r->first_ns) / NS_PER_MS : 0;
}

static void log_outcome(const struct cascade_run *r, const struct casc *c)
{
	struct sl_buf line;
	uint64_t ttft = r->shown_ns > r->started_ns ? (r->shown_ns - r->started_ns) / NS_PER_MS : 0;
	struct casc_outcome_log o = {.id = r->id_text,
				     .tier = cascade_tier_name(r->tier),
				     .at_unix_s = clock_unix_s(),
				     .request = c,
				     .score = r->score,
				     .features = r->features,
				     .trace = r->trace,
				     .n_trace = r->n_trace,
				     .hold_ms = ms_after_first(r, r->decided_ns),
				     .shown_ms = ms_after_first(r, r->shown_ns),
				     .ttft_ms = ttft < UINT32_MAX ? (uint32_t)ttft : UINT32_MAX};
	buf_init(&line, MAX_LINE);
	if (casc_outcome_print(&line, &o) == 0)
		cascade_log_write(r->log, buf_data(&line), line.len);
	buf_dispose(&line);
}

void cascade_run_book(struct cascade_run *r)
{
	if (r->booked)
		return;
	r->booked = true;
	struct casc c = with_prompts(r);
	count(r, &c);
	if (r->log != NULL)
		log_outcome(r, &c);
}

/* ---- the reply and the access log ---- */

static int put_part(struct sl_buf *out, const struct cascade_side *s, uint8_t choice, bool *first)
{
	uint32_t n = s->sent_by == NULL ? s->n_sent : choice < s->run->n_choices ? s->sent_by[choice] : 0;
	if (n == 0)
		return 0;
	int rc = buf_append_str(out, *first ? "{\"model\":" : ",{\"model\":");
	*first = false;
	if (rc == 0)
		rc = json_out_string(out, s->name, strlen(s->name));
	return rc == 0 ? buf_printf(out, ",\"tokens\":%u}", n) : rc;
}

static bool is_switched(const struct cascade_run *r) { return r->casc.escalated != CASC_NOT_ESCALATED; }

int cascade_run_about(const struct cascade_run *r, uint8_t choice, struct sl_buf *out)
{
	const struct casc *c = &r->casc;
	bool first = true;
	int rc = buf_printf(out, "{\"plan\":\"%s\",\"why\":\"%s\",\"parts\":[", casc_plan_name(c->plan),
			    casc_why_name(c->why));
	if (rc == 0)
		rc = put_part(out, &r->small, choice, &first);
	if (rc == 0)
		rc = put_part(out, &r->large, choice, &first);
	if (rc == 0)
		rc = buf_printf(out, "],\"escalated\":%s", is_switched(r) ? "true" : "false");
	if (rc == 0 && is_switched(r))
		rc = buf_printf(out, ",\"reason\":\"%s\"", casc_reason_name(c->escalated));
	if (rc == 0 && r->tells_disagreement)
		rc = buf_printf(out, ",\"disagreed_at\":%u", r->disagreed_at);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

uint64_t cascade_run_switched_ns(const struct cascade_run *r) { return r->switched_ns; }

void cascade_run_line(const struct cascade_run *r, char *out, size_t size)
{
	const struct casc *c = &r->casc;
	snprintf(out, size, "%s/%s%s%s, small %u of %u, large %u of %u", casc_plan_name(c->plan), casc_why_name(c->why),
		 is_switched(r) ? ", escalated: " : "", is_switched(r) ? casc_reason_name(c->escalated) : "",
		 c->small.shown, c->small.made, c->large.shown, c->large.made + c->lost_made);
}
