/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/serve_stats.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json/json_out.h"

static double ms(uint64_t ns) { return (double)ns / 1e6; }

/* Mean time between a finished request's events. */
static double mean_itl_ms(const struct serve_outcome *o)
{
	return o->n_events > 1 ? ms(o->last_ns - o->first_ns) / (double)(o->n_events - 1) : 0;
}

/* The same, of its tokens where the server counted them. */
static double tpot_ns(const struct serve_outcome *o)
{
	uint64_t n = o->has_usage ? o->n_completion : o->n_events;
	return n > 1 ? (double)(o->last_ns - o->first_ns) / (double)(n - 1) : 0;
}

static bool is_within(double limit, double value) { return limit <= 0 || value <= limit; }

bool serve_slo_any(const struct serve_slo *slo)
{
	return slo->ttft_ms > 0 || slo->itl_ms > 0 || slo->tpot_ms > 0 || slo->total_ms > 0;
}

bool serve_is_late(const struct serve_outcome *o, uint64_t now_ns, const struct serve_slo *slo)
{
	double age = ms(now_ns - o->started_ns);
	return !is_within(slo->total_ms, age) || (o->first_ns == 0 && !is_within(slo->ttft_ms, age));
}

void serve_stats_init(struct serve_stats *s)
{
	memset(s, 0, sizeof *s);
	batch_means_init(&s->batches);
}

void serve_stats_done(struct serve_stats *s, const struct serve_outcome *o, const struct serve_slo *slo)
{
	uint64_t first = o->first_ns != 0 ? o->first_ns : o->ended_ns;
	double tpot = tpot_ns(o);
	const uint64_t figures[BATCH_FIGURES] = {first - o->started_ns, (uint64_t)tpot, o->ended_ns - o->started_ns};
	s->n_done++;
	s->n_prompt += o->n_prompt;
	s->n_cached += o->n_cached;
	s->n_completion += o->has_usage ? o->n_completion : o->n_events;
	s->n_counted += o->has_usage ? o->n_completion : 0;
	histogram_add(&s->total, o->ended_ns - o->started_ns);
	if (tpot > 0)
		histogram_add(&s->tpot, (uint64_t)tpot);
	batch_means_add(&s->batches, figures);
	s->n_good += is_within(slo->ttft_ms, ms(first - o->started_ns)) && is_within(slo->itl_ms, mean_itl_ms(o)) &&
		     is_within(slo->tpot_ms, tpot / 1e6) && is_within(slo->total_ms, ms(o->ended_ns - o->started_ns));
}

void serve_stats_error(struct serve_stats *s, const char *what)
{
	int i = 0;
	s->n_failed++;
	while (i < s->n_errors && strcmp(s->errors[i].what, what) != 0)
		i++;
	if (i == STATS_MAX_ERRORS)
		i--; /* the last entry counts all further errors */
	else if (i == s->n_errors)
		snprintf(s->errors[s->n_errors++].what, STATS_NAME_BYTES, "%s", what);
	s->errors[i].n++;
}

static double rate(uint64_t n, const struct serve_stats *s) { return s->seconds > 0 ? (double)n / s->seconds : 0; }

static double share(uint64_t n, uint64_t of) { return of > 0 ? (double)n / (double)of : 0; }

double serve_stats_good(const struct serve_stats *s) { return share(s->n_good, s->n_done + s->n_failed + s->n_late); }

static void times(const char *name, const struct histogram *h)
{
	if (h->n == 0)
		return;
	printf("  %-26s p50 %9.2f   p95 %9.2f   p99 %9.2f   max %9.2f   mean %9.2f ms\n", name,
	       ms(histogram_percentile(h, 50)), ms(histogram_percentile(h, 95)), ms(histogram_percentile(h, 99)),
	       ms(h->max_ns), histogram_mean(h) / 1e6);
}

void serve_stats_table(const struct serve_stats *s, const char *name, const struct serve_slo *slo)
{
	uint64_t n = s->n_done + s->n_failed;
	printf("%s: %llu requests in %.2f s, %llu failed, %llu cut off by the end\n", name, (unsigned long long)n,
	       s->seconds, (unsigned long long)s->n_failed, (unsigned long long)s->n_cut);
	times("time to the first token", &s->ttft);
	times("between events", &s->itl);
	times("per token, by request", &s->tpot);
	times("whole answer", &s->total);
	printf("  %-26s %.2f requests/s, %.1f tokens/s, %.2f events per token\n", "throughput", rate(s->n_done, s),
	       rate(s->n_completion, s), share(s->n_events, s->n_completion));
	printf("  %-26s prompt %.1f (%.1f of it cached), answer %.1f%s\n", "tokens of a request",
	       share(s->n_prompt, s->n_done), share(s->n_cached, s->n_done), share(s->n_completion, s->n_done),
	       s->n_counted == s->n_completion ? "" : " (events where the server reported no usage)");
	if (serve_slo_any(slo))
		printf(
		    "  %-26s %.1f %% of requests, %.2f requests/s (within %g ms to the first token, %g between events, "
		    "%g per token, %g in all; 0: any)\n",
		    "goodput", 100 * serve_stats_good(s), rate(s->n_good, s), slo->ttft_ms, slo->itl_ms, slo->tpot_ms,
		    slo->total_ms);
	for (int i = 0; i < s->n_errors; i++)
		printf("  %-26s %llu × %s\n", i == 0 ? "errors" : "", (unsigned long long)s->errors[i].n,
		       s->errors[i].what);
}

static int json_times(struct sl_buf *out, const char *name, const struct histogram *h)
{
	return buf_printf(out, "\"%s\":{\"n\":%llu,\"p50\":%.4f,\"p95\":%.4f,\"p99\":%.4f,\"max\":%.4f,\"mean\":%.4f},",
			  name, (unsigned long long)h->n, ms(histogram_percentile(h, 50)),
			  ms(histogram_percentile(h, 95)), ms(histogram_percentile(h, 99)), ms(h->max_ns),
			  histogram_mean(h) / 1e6);
}

static int json_errors(const struct serve_stats *s, struct sl_buf *out)
{
	int rc = buf_append_str(out, "\"errors\":{");
	for (int i = 0; i < s->n_errors && rc == 0; i++) {
		/* Text from the server: escaped. */
		char name[6 * STATS_NAME_BYTES + 1];
		*json_escape(name, s->errors[i].what, strlen(s->errors[i].what)) = '\0';
		rc = buf_printf(out, "%s\"%s\":%llu", i == 0 ? "" : ",", name, (unsigned long long)s->errors[i].n);
	}
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

int serve_stats_json(const struct serve_stats *s, struct sl_buf *out)
{
	const struct {
		const char *name;
		const struct histogram *h;
	} all[] = {{"ttft_ms", &s->ttft}, {"itl_ms", &s->itl}, {"tpot_ms", &s->tpot}, {"total_ms", &s->total}};
	uint64_t n = s->n_done + s->n_failed;
	int rc = buf_printf(out, "{\"requests\":%llu,\"failed\":%llu,\"cut\":%llu,\"late\":%llu,\"seconds\":%.4f,",
			    (unsigned long long)n, (unsigned long long)s->n_failed, (unsigned long long)s->n_cut,
			    (unsigned long long)s->n_late, s->seconds);
	for (size_t i = 0; i < sizeof all / sizeof *all && rc == 0; i++)
		rc = json_times(out, all[i].name, all[i].h);
	if (rc == 0)
		rc = buf_printf(out,
				"\"requests_per_s\":%.4f,\"tokens_per_s\":%.4f,\"events\":%llu,\"prompt_tokens\":%llu,"
				"\"cached_tokens\":%llu,\"completion_tokens\":%llu,\"completion_tokens_counted\":%llu,"
				"\"goodput\":{\"share\":%.4f,\"requests_per_s\":%.4f},\"batches\":",
				rate(s->n_done, s), rate(s->n_completion, s), (unsigned long long)s->n_events,
				(unsigned long long)s->n_prompt, (unsigned long long)s->n_cached,
				(unsigned long long)s->n_completion, (unsigned long long)s->n_counted,
				serve_stats_good(s), rate(s->n_good, s));
	if (rc == 0)
		rc = batch_means_json(&s->batches, out);
	if (rc == 0)
		rc = buf_append_str(out, ",");
	if (rc == 0)
		rc = json_errors(s, out);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}
