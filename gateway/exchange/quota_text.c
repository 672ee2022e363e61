/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits as OpenAI's header fields and error, which client libraries read their retry delay from. They honour
 * retry-after-ms and retry-after, but at most a minute or two; longer waits come with x-should-retry: false.
 */
#include <stdio.h>

#include "gateway/exchange/exchange.h"
#include "gateway/exchange/quota.h"

#define PATIENCE_US (INT64_C(60) * 1000000) /* of the least patient library */

void quota_duration(int64_t us, char *out, size_t size)
{
	int64_t ms = us <= 0 ? 0 : (us + 999) / 1000;
	if (ms > 0 && ms < 1000) {
		snprintf(out, size, "%dms", (int)ms);
		return;
	}
	int64_t s = ms / 1000;
	int rest = (int)(ms % 1000), digits = 3;
	char fraction[8] = "";
	while (rest > 0 && rest % 10 == 0) {
		rest /= 10;
		digits--;
	}
	if (rest > 0)
		snprintf(fraction, sizeof fraction, ".%0*d", digits, rest);
	int n = 0;
	if (s >= 3600)
		n = snprintf(out, size, "%lldh", (long long)(s / 3600));
	if (s >= 60 && n >= 0 && (size_t)n < size)
		n += snprintf(out + n, size - (size_t)n, "%dm", (int)(s % 3600 / 60));
	if (n >= 0 && (size_t)n < size)
		snprintf(out + n, size - (size_t)n, "%d%ss", (int)(s % 60), fraction);
}

/* The limit on tokens that the header reports. */
static enum quota_limit of_tokens(const struct quota_result *r)
{
	const struct quota_left *minute = &r->each[QUOTA_TOKENS], *day = &r->each[QUOTA_DAY];
	bool refused = r->code >= 0 && !r->admitted;
	if (refused && r->refused_by != QUOTA_REQUESTS && r->refused_by != QUOTA_SUBJECT)
		return r->refused_by;
	if (day->limit > 0 && (minute->limit == 0 || day->remaining < minute->remaining))
		return QUOTA_DAY;
	return QUOTA_TOKENS;
}

struct writer {
	struct quota_text *text;
	struct http_field *out;
	size_t n;
};

/* The text of a new field, to be filled in. */
static char *add_field(struct writer *w, const char *name)
{
	char *text = w->text->at[w->n];
	w->out[w->n++] = (struct http_field){name, text};
	return text;
}

static void add_number(struct writer *w, const char *name, int64_t value)
{
	snprintf(add_field(w, name), QUOTA_TEXT_BYTES, "%lld", (long long)value);
}

static void add_left(struct writer *w, const struct quota_left *l, const char *const names[3])
{
	if (l->limit == 0)
		return;
	add_number(w, names[0], l->limit);
	add_number(w, names[1], l->remaining);
	quota_duration(l->reset_us, add_field(w, names[2]), QUOTA_TEXT_BYTES);
}

size_t quota_fields(const struct quota_result *r, struct quota_text *text, struct http_field out[QUOTA_MAX_FIELDS])
{
	static const char *const requests[] = {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
					       "x-ratelimit-reset-requests"};
	static const char *const tokens[] = {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
					     "x-ratelimit-reset-tokens"};
	struct writer w = {.text = text, .out = out};
	if (r->code < 0)
		return 0;
	add_left(&w, &r->each[QUOTA_REQUESTS], requests);
	add_left(&w, &r->each[of_tokens(r)], tokens);
	if (r->admitted)
		return w.n;
	if (r->retry_after_us >= 0) {
		int64_t ms = (r->retry_after_us + 999) / 1000;
		add_number(&w, "retry-after", (ms + 999) / 1000);
		add_number(&w, "retry-after-ms", ms);
	}
	bool soon = r->retry_after_us >= 0 && r->retry_after_us <= PATIENCE_US;
	w.out[w.n++] = (struct http_field){"x-should-retry", soon ? "true" : "false"};
	return w.n;
}

void quota_refuse(struct exchange *x, const struct quota_result *r)
{
	static const struct {
		const char *type, *what;
	} names[QUOTA_N_LIMITS] = {
	    [QUOTA_REQUESTS] = {"requests", "requests per minute"},
	    [QUOTA_SUBJECT] = {"requests", "requests per minute of one user"},
	    [QUOTA_TOKENS] = {"tokens", "tokens per minute"},
	    [QUOTA_DAY] = {"tokens", "tokens per day"},
	};
	char wait[QUOTA_TEXT_BYTES];
	if (r->code < 0) {
		exchange_refuse(x, 503, "overloaded", NULL,
				"The server is busy: your limits could not be checked in time.");
		return;
	}
	const char *what = names[r->refused_by].what;
	const struct api_error e = {429, names[r->refused_by].type, "rate_limit_exceeded", NULL, 0};
	long long limit = r->each[r->refused_by].limit;
	exchange_set_quota(x, r);
	quota_duration(r->retry_after_us, wait, sizeof wait);
	if (r->retry_after_us < 0)
		exchange_error(x, &e, "Request too large: the limit of this key is %lld %s.", limit, what);
	else if (r->contended)
		exchange_error(x, &e,
			       "Rate limit reached: running requests of this key reserve the rest of its %lld %s. "
			       "Please try again in %s.",
			       limit, what, wait);
	else
		exchange_error(x, &e, "Rate limit reached: %lld %s for this key. Please try again in %s.", limit, what,
			       wait);
}
