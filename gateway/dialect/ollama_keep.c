/* SPDX-License-Identifier: Apache-2.0
 *
 * Ollama's keep_alive: a number of seconds, or a text in Go's syntax of durations: numbers with units, as in "1h30m"
 * (pkg.go.dev/time, ParseDuration). Negative: for ever. A text without a unit counts seconds, too: clients send "-1".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/dialect/ollama_request.h"

enum { MAX_TEXT = 64 };

static const struct unit {
	const char *name;
	double ms;
} units[] = {{"ns", 1e-6}, {"us", 1e-3}, {"µs", 1e-3}, {"μs", 1e-3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};

static const struct unit *unit_at(const char *at)
{
	size_t n = strcspn(at, "0123456789.");
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strlen(units[i].name) == n && strncmp(units[i].name, at, n) == 0)
			return &units[i];
	return NULL;
}

/* Digits with at most one point among them, as Go has them: no exponent, no sign. Returns what follows; NULL: none. */
static const char *number_at(const char *at, double *out)
{
	size_t whole = strspn(at, "0123456789");
	size_t fraction = at[whole] == '.' ? strspn(at + whole + 1, "0123456789") : 0;
	if (whole + fraction == 0)
		return NULL;
	*out = strtod(at, NULL);
	return at + whole + (at[whole] == '.') + fraction;
}

/* False: it is no duration. */
static bool parse(const char *at, double *ms)
{
	bool negative = *at == '-', first = true;
	double sum = 0, number;
	at += *at == '-' || *at == '+';
	do {
		if ((at = number_at(at, &number)) == NULL)
			return false;
		const struct unit *u = *at == '\0' && first ? &(struct unit){"", 1e3} : unit_at(at);
		if (u == NULL)
			return false;
		sum += number * u->ms;
		at += strlen(u->name);
		first = false;
	} while (*at != '\0');
	*ms = negative ? -sum : sum;
	return true;
}

int ollama_keep_read(const json_t *v, int64_t *out, struct request_error *e)
{
	const char *text = json_string_value(v);
	double ms = 0;
	*out = OLLAMA_KEEP_UNSAID;
	if (v == NULL)
		return 0;
	if (text == NULL)
		ms = json_number_value(v) * 1e3;
	else if (json_string_length(v) != strlen(text) || strlen(text) > MAX_TEXT || !parse(text, &ms))
		return request_bad(
		    e, "invalid_value", "keep_alive",
		    "Invalid value for 'keep_alive': a number of seconds, or a duration such as \"5m\".");
	*out = ms < 0 || ms >= OLLAMA_KEEP_EVER ? OLLAMA_KEEP_EVER : (int64_t)ceil(ms);
	return 0;
}
