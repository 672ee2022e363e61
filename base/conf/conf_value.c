/* SPDX-License-Identifier: Apache-2.0
 *
 * The types of configuration values: text to value, checked against the row's range, and back. One spelling per type,
 * no guessing: `yes` is not a bool, `30` is not a duration, 0x10 is not a number. An error shows the wrong value and
 * the expected form.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/conf/conf_priv.h"
#include "base/range.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first: formatting takes the first that divides. */
static const struct unit byte_units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"", 1}, {NULL, 0}};
static const struct unit time_units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0}};

const char *conf_type_wants(enum conf_type type)
{
	switch (type) {
	case CONF_STRING: return "a text";
	case CONF_BOOL: return "true or false";
	case CONF_INT: return "a whole number";
	case CONF_FLOAT: return "a number";
	case CONF_BYTES: return "a size such as 512, 64KiB, 16MiB or 2GiB";
	case CONF_DURATION: return "a time such as 250ms, 30s, 5m or 1h";
	case CONF_ENUM: return "one of its choices";
	case CONF_ADDRESS: return "an address such as 127.0.0.1:8443, \"[::1]:8443\", \"*:80\" or off";
	case CONF_STRINGS: return "a list of texts";
	case CONF_LIST: return "a list";
	}
	return "a value";
}

static int wrong(const struct conf_row *row, const char *text, struct sl_err *why)
{
	bool word = row->type == CONF_BYTES && row->choices != NULL;
	return sl_errf(why, SL_EINVAL, "'%.60s' is not %s%s%s", text, conf_type_wants(row->type), word ? ", or " : "",
		       word ? row->choices[0] : "");
}

static bool has_range(const struct conf_row *row) { return row->min < row->max; }

/* v and the bounds as they would be written, for messages. */
static int out_of_range(const struct conf_row *row, const char *text, struct sl_err *why)
{
	if (!has_range(row))
		return sl_errf(why, SL_ERANGE, "'%.60s' is too large", text);
	char bounds[2][64];
	double ends[2] = {row->min, row->max};
	for (int i = 0; i < 2; i++) {
		union conf_value v;
		struct sl_buf b;
		memset(&v, 0, sizeof v);
		if (row->type == CONF_INT)
			v.integer = (int64_t)ends[i];
		else if (row->type == CONF_FLOAT)
			v.number = ends[i];
		else
			v.amount = (uint64_t)ends[i];
		buf_init(&b, sizeof bounds[i] - 1);
		bounds[i][0] = '\0';
		if (conf_value_format(row, &v, &b) == 0)
			snprintf(bounds[i], sizeof bounds[i], "%.*s", (int)b.len,
				 b.len ? (const char *)buf_data(&b) : "");
		buf_dispose(&b);
	}
	char range[160];
	return sl_errf(why, SL_ERANGE, "must be %s, not '%.60s'",
		       range_text(bounds[0], false, bounds[1], range, sizeof range), text);
}

static int parse_int(const struct conf_row *row, const char *text, int64_t *out, struct sl_err *why)
{
	size_t digits = strspn(text + (*text == '-'), "0123456789");
	if (digits == 0 || text[(*text == '-') + digits] != '\0')
		return wrong(row, text, why);
	errno = 0;
	long long v = strtoll(text, NULL, 10);
	if (errno == ERANGE || (has_range(row) && ((double)v < row->min || (double)v > row->max)))
		return out_of_range(row, text, why);
	*out = v;
	return 0;
}

static int parse_float(const struct conf_row *row, const char *text, double *out, struct sl_err *why)
{
	/* strtod alone would also take inf, nan and hexadecimal. */
	if (*text == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
		return wrong(row, text, why);
	char *end;
	double v = strtod(text, &end);
	if (end == text || *end != '\0')
		return wrong(row, text, why);
	if (!isfinite(v) || (has_range(row) && (v < row->min || v > row->max)))
		return out_of_range(row, text, why);
	*out = v;
	return 0;
}

static int parse_amount(const struct conf_row *row, const char *text, const struct unit *units, uint64_t *out,
			struct sl_err *why)
{
	size_t digits = strspn(text, "0123456789");
	if (row->choices != NULL && strcmp(text, row->choices[0]) == 0) {
		*out = 0;
		return 0;
	}
	if (digits == 0)
		return wrong(row, text, why);
	errno = 0;
	unsigned long long count = strtoull(text, NULL, 10);
	if (errno == ERANGE)
		return out_of_range(row, text, why);
	const char *name = text + digits;
	uint64_t v = 0;
	if (count != 0 || *name != '\0') { /* 0 needs no unit */
		while (units->name != NULL && strcmp(units->name, name) != 0)
			units++;
		if (units->name == NULL)
			return wrong(row, text, why);
		if (__builtin_mul_overflow((uint64_t)count, units->factor, &v))
			return out_of_range(row, text, why);
	}
	if (has_range(row) && ((double)v < row->min || (double)v > row->max))
		return out_of_range(row, text, why);
	*out = v;
	return 0;
}

static int parse_enum(const struct conf_row *row, const char *text, int *out, struct sl_err *why)
{
	char all[160] = "";
	for (int i = 0; row->choices[i] != NULL; i++) {
		if (strcmp(row->choices[i], text) == 0) {
			*out = i;
			return 0;
		}
		size_t n = strlen(all);
		snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", row->choices[i]);
	}
	return sl_errf(why, SL_EINVAL, "'%.60s' is not one of %s", text, all);
}

static int parse_address(const struct conf_row *row, const char *text, struct conf_address *out, struct sl_err *why)
{
	memset(out, 0, sizeof *out);
	size_t n_text = strlen(text);
	if (n_text >= sizeof out->text)
		return wrong(row, text, why);
	memcpy(out->text, text, n_text + 1);
	if (strcmp(text, "off") == 0) {
		out->off = true;
		return 0;
	}

	const char *colon = strrchr(text, ':');
	if (colon == NULL)
		return wrong(row, text, why);
	size_t digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || digits > 5 || colon[1 + digits] != '\0')
		return wrong(row, text, why);
	long port = strtol(colon + 1, NULL, 10);
	if (port > 65535) /* 0: any free one */
		return sl_errf(why, SL_ERANGE, "the port must be between 0 and 65535, not %ld", port);
	out->port = (uint16_t)port;

	const char *host = text;
	size_t n = (size_t)(colon - text);
	bool v6 = n >= 2 && host[0] == '[' && host[n - 1] == ']';
	if (v6) {
		host++;
		n -= 2;
	}
	if (n == 1 && *host == '*' && !v6)
		return 0;
	uint8_t bytes[16];
	if (n >= sizeof out->host)
		return wrong(row, text, why);
	memcpy(out->host, host, n);
	/* The one name: both loopbacks. */
	if (!v6 && strcmp(out->host, "localhost") == 0)
		return 0;
	if (inet_pton(v6 ? AF_INET6 : AF_INET, out->host, bytes) != 1)
		return sl_errf(why, SL_EINVAL, "'%.47s' is not an IP address; %s is wanted", out->host,
			       conf_type_wants(row->type));
	return 0;
}

int conf_value_add_string(const struct conf_row *row, union conf_value *v, const char *text, size_t n,
			  struct sl_err *why)
{
	if (n > CONF_MAX_STRING)
		return sl_errf(why, SL_ERANGE, "a text longer than %d bytes", CONF_MAX_STRING);
	if (has_range(row) && (double)v->strings.n >= row->max)
		return sl_errf(why, SL_ERANGE, "more than %.0f items", row->max);
	char **items = sl_realloc_n(v->strings.items, v->strings.n + 1, sizeof *items);
	if (items == NULL)
		return sl_errf(why, SL_ENOMEM, "no memory");
	v->strings.items = items;
	items[v->strings.n] = sl_strndup(text, n);
	if (items[v->strings.n] == NULL)
		return sl_errf(why, SL_ENOMEM, "no memory");
	v->strings.n++;
	return 0;
}

static int parse_strings(const struct conf_row *row, const char *text, union conf_value *v, struct sl_err *why)
{
	int rc = 0;
	while (rc == 0 && *text != '\0') {
		size_t n = strcspn(text, ",");
		if (n == 0)
			rc = sl_errf(why, SL_EINVAL, "an empty item in the list");
		else
			rc = conf_value_add_string(row, v, text, n, why);
		text += n;
		if (*text == ',')
			text++;
	}
	if (rc != 0)
		conf_value_dispose(row, v);
	return rc;
}

static int parse_string(const struct conf_row *row, const char *text, char **out, struct sl_err *why)
{
	size_t n = strlen(text);
	double most = has_range(row) ? row->max : CONF_MAX_STRING;
	if ((double)n > most)
		return sl_errf(why, SL_ERANGE, "longer than %.0f bytes", most);
	if ((double)n < row->min)
		return n == 0 ? sl_errf(why, SL_ERANGE, "must not be empty")
			      : sl_errf(why, SL_ERANGE, "shorter than %.0f bytes", row->min);
	*out = sl_strndup(text, n);
	return *out != NULL ? 0 : sl_errf(why, SL_ENOMEM, "no memory");
}

int conf_value_parse(const struct conf_row *row, const char *text, bool quoted, union conf_value *out,
		     struct sl_err *why)
{
	memset(out, 0, sizeof *out);
	bool is_text = row->type == CONF_STRING || row->type == CONF_STRINGS || row->type == CONF_ENUM ||
		       row->type == CONF_ADDRESS;
	if (quoted && !is_text)
		return sl_errf(why, SL_EINVAL, "%s is wanted, not a text in quotes", conf_type_wants(row->type));
	switch (row->type) {
	case CONF_STRING: return parse_string(row, text, &out->string, why);
	case CONF_BOOL:
		out->boolean = strcmp(text, "true") == 0;
		return out->boolean || strcmp(text, "false") == 0 ? 0 : wrong(row, text, why);
	case CONF_INT: return parse_int(row, text, &out->integer, why);
	case CONF_FLOAT: return parse_float(row, text, &out->number, why);
	case CONF_BYTES: return parse_amount(row, text, byte_units, &out->amount, why);
	case CONF_DURATION: return parse_amount(row, text, time_units, &out->amount, why);
	case CONF_ENUM: return parse_enum(row, text, &out->choice, why);
	case CONF_ADDRESS: return parse_address(row, text, &out->address, why);
	case CONF_STRINGS: return parse_strings(row, text, out, why);
	case CONF_LIST: break;
	}
	BUG("conf: a list of mappings has no text");
}

void conf_value_dispose(const struct conf_row *row, union conf_value *v)
{
	if (row->type == CONF_STRING)
		sl_free(v->string);
	if (row->type == CONF_STRINGS) {
		for (size_t i = 0; i < v->strings.n; i++)
			sl_free(v->strings.items[i]);
		sl_free(v->strings.items);
	}
	memset(v, 0, sizeof *v);
}

static int format_amount(uint64_t v, const struct unit *units, struct sl_buf *out)
{
	if (v == 0)
		return buf_append_str(out, "0");
	while (v % units->factor != 0) /* the last factor is 1 */
		units++;
	return buf_printf(out, "%" PRIu64 "%s", v / units->factor, units->name);
}

/* Quotes whenever YAML could read it as something else. */
static int format_text(const char *s, struct sl_buf *out)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789/._-";
	static const char *const words[] = {"true", "false", "null", "off", "on", "yes", "no", "~", NULL};
	bool quote = *s == '\0' || *s == '-' || s[strspn(s, plain)] != '\0';
	for (int i = 0; words[i] != NULL; i++)
		quote = quote || strcmp(s, words[i]) == 0;
	if (!quote)
		return buf_append_str(out, s);
	int rc = buf_append(out, "\"", 1);
	for (; rc == 0 && *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			rc = buf_append(out, "\\", 1);
		if (rc == 0)
			rc = buf_append(out, s, 1);
	}
	return rc == 0 ? buf_append(out, "\"", 1) : rc;
}

int conf_value_format(const struct conf_row *row, const union conf_value *v, struct sl_buf *out)
{
	switch (row->type) {
	case CONF_STRING: return format_text(v->string, out);
	case CONF_BOOL: return buf_append_str(out, v->boolean ? "true" : "false");
	case CONF_INT: return buf_printf(out, "%" PRId64, v->integer);
	case CONF_FLOAT: return buf_printf(out, "%.15g", v->number);
	case CONF_BYTES:
		return v->amount == 0 && row->choices != NULL ? buf_append_str(out, row->choices[0])
							      : format_amount(v->amount, byte_units, out);
	case CONF_DURATION: return format_amount(v->amount, time_units, out);
	case CONF_ENUM: return buf_append_str(out, row->choices[v->choice]);
	case CONF_ADDRESS: return v->address.off ? buf_append_str(out, "off") : format_text(v->address.text, out);
	case CONF_STRINGS: {
		int rc = buf_append_str(out, "[");
		for (size_t i = 0; rc == 0 && i < v->strings.n; i++) {
			if (i > 0)
				rc = buf_append_str(out, ", ");
			if (rc == 0)
				rc = format_text(v->strings.items[i], out);
		}
		return rc == 0 ? buf_append_str(out, "]") : rc;
	}
	case CONF_LIST: break;
	}
	BUG("conf: a list of mappings has no text");
}
