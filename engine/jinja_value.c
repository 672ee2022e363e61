/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of values: truth, equality, order, indexing, text. Python's, as Jinja has them; where a
 * template would get Python's text of a list or dictionary, or a TypeError, the run fails instead.
 *
 * Trust: a string knows byte by byte whether the template wrote it. Strings of one kind carry no
 * mask; joining different ones makes one. Values of the request are wrapped, not copied.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja.h"

enum { MAX_VALUE_DEPTH = 64 };

/* ---- the run's account ---- */

int jrun_fail(struct jrun *r, int code, const char *fmt, ...)
{
	char text[384];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A long text from the request may have been cut inside a character. */
	text[utf8_whole_prefix((const uint8_t *)text, strlen(text))] = '\0';
	return sl_errf(r->err, code, "chat template line %d: %s", r->line, text);
}

int jrun_charge(struct jrun *r, size_t n)
{
	r->steps += 1 + n / JINJA_BYTES_PER_STEP;
	if (r->steps > JINJA_MAX_STEPS)
		return jrun_fail(r, SL_ELIMIT, "more than %d steps", JINJA_MAX_STEPS);
	return 0;
}

void *jrun_alloc(struct jrun *r, size_t n)
{
	void *at = jarena_alloc(&r->arena, n);
	if (at == NULL) {
		bool bound = n > r->arena.max || r->arena.total + n > r->arena.max;
		jrun_fail(r, bound ? SL_ELIMIT : SL_ENOMEM, "not enough memory");
	}
	return at;
}

/* Guards recursion into nested lists and dictionaries, whose depth the request chose. */
static int descend(struct jrun *r)
{
	int rc = jrun_charge(r, 0);
	if (rc == 0 && r->depth >= MAX_VALUE_DEPTH)
		rc = jrun_fail(r, SL_ELIMIT, "values nested deeper than %d", MAX_VALUE_DEPTH);
	if (rc == 0)
		r->depth++;
	return rc;
}

/* ---- making and asking ---- */

const char *jvalue_type_name(const struct jvalue *v)
{
	static const char *const names[] = {"undefined", "none", "a boolean",    "an integer",  "a number",
					    "a string",  "a list", "a dictionary", "a namespace", "loop"};
	return names[v->type];
}

struct jvalue jvalue_int(int64_t i, bool trusted)
{
	return (struct jvalue){.type = JV_INT, .trusted = trusted, .i = i};
}

struct jvalue jvalue_bool(bool b)
{
	return (struct jvalue){.type = JV_BOOL, .trusted = true, .b = b};
}

struct jvalue jvalue_string_of(struct jstr s)
{
	return (struct jvalue){.type = JV_STRING, .s = s};
}

struct jvalue jvalue_literal(struct proto_str text)
{
	return jvalue_string_of((struct jstr){.at = text.at, .n = text.n, .trust = JTRUST_ALL});
}

struct jvalue jvalue_undefined(struct proto_str name)
{
	return (struct jvalue){.type = JV_UNDEFINED, .name = name};
}

struct jvalue jvalue_list_of(const struct jvalue *items, size_t n)
{
	return (struct jvalue){.type = JV_LIST, .list = {.items = items, .n = n}};
}

struct jvalue jvalue_from_json(const json_t *j)
{
	switch (json_typeof(j)) {
	case JSON_STRING:
		return jvalue_string_of((struct jstr){
		    .at = json_string_value(j), .n = json_string_length(j), .trust = JTRUST_NONE});
	case JSON_INTEGER:
		return jvalue_int(json_integer_value(j), false);
	case JSON_REAL:
		return (struct jvalue){.type = JV_FLOAT, .f = json_real_value(j)};
	case JSON_TRUE:
	case JSON_FALSE:
		return (struct jvalue){.type = JV_BOOL, .b = json_is_true(j)};
	case JSON_ARRAY:
		return (struct jvalue){.type = JV_LIST, .list = {.json = j, .n = json_array_size(j)}};
	case JSON_OBJECT:
		return (struct jvalue){.type = JV_DICT, .dict = {.json = j}};
	default:
		return (struct jvalue){.type = JV_NONE};
	}
}

struct jvalue jlist_at(const struct jlist *l, size_t i)
{
	BUG_IF(i >= l->n, "item %zu of a list of %zu", i, l->n);
	return l->json ? jvalue_from_json(json_array_get(l->json, i)) : l->items[i];
}

size_t jdict_count(const struct jdict *d)
{
	return d->json ? json_object_size(d->json) : d->made->n;
}

bool jvalue_true(const struct jvalue *v)
{
	switch (v->type) {
	case JV_UNDEFINED:
	case JV_NONE:
		return false;
	case JV_BOOL:
		return v->b;
	case JV_INT:
		return v->i != 0;
	case JV_FLOAT:
		return v->f != 0;
	case JV_STRING:
		return v->s.n > 0;
	case JV_LIST:
		return v->list.n > 0;
	case JV_DICT:
		return jdict_count(&v->dict) > 0;
	default:
		return true;
	}
}

/* ---- dictionaries ---- */

static bool same_text(struct jstr a, struct jstr b)
{
	return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

static struct jpair *find_pair(const struct jpairs *d, struct jstr key)
{
	for (struct jpair *p = d->first; p != NULL; p = p->next)
		if (same_text(p->key.s, key))
			return p;
	return NULL;
}

bool jdict_find(const struct jdict *d, struct jstr key, struct jvalue *out)
{
	if (d->json != NULL) {
		const json_t *j = json_object_getn(d->json, key.at, key.n);
		if (j != NULL)
			*out = jvalue_from_json(j);
		return j != NULL;
	}
	const struct jpair *p = find_pair(d->made, key);
	if (p != NULL)
		*out = p->value;
	return p != NULL;
}

int jdict_put(struct jrun *r, struct jpairs *d, const struct jvalue *key,
	      const struct jvalue *value)
{
	if (key->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "%s as the key of a dictionary", jvalue_type_name(key));
	int rc = jrun_charge(r, d->n * 16);
	if (rc != 0)
		return rc;
	struct jpair *p = find_pair(d, key->s);
	if (p != NULL) {
		p->value = *value;
		return 0;
	}
	p = jrun_alloc(r, sizeof(*p));
	if (p == NULL)
		return r->err->code;
	*p = (struct jpair){.key = *key, .value = *value};
	if (d->last != NULL)
		d->last->next = p;
	else
		d->first = p;
	d->last = p;
	d->n++;
	return 0;
}

/* Goes through either kind of dictionary. Begin with a zeroed cursor. */
struct cursor {
	bool begun;
	void *iter;
	const struct jpair *pair;
};

static bool next_pair(const struct jdict *d, struct cursor *c, struct jvalue *key,
		      struct jvalue *value)
{
	if (d->json != NULL) {
		json_t *object = (json_t *)d->json; /* the iterator only reads */
		c->iter = c->begun ? json_object_iter_next(object, c->iter)
				   : json_object_iter(object);
		c->begun = true;
		if (c->iter == NULL)
			return false;
		*key = jvalue_string_of((struct jstr){.at = json_object_iter_key(c->iter),
						      .n = json_object_iter_key_len(c->iter)});
		*value = jvalue_from_json(json_object_iter_value(c->iter));
		return true;
	}
	c->pair = c->begun ? c->pair->next : d->made->first;
	c->begun = true;
	if (c->pair == NULL)
		return false;
	*key = c->pair->key;
	*value = c->pair->value;
	return true;
}

int jdict_list(struct jrun *r, const struct jdict *d, bool pairs, struct jvalue *out)
{
	size_t n = jdict_count(d), i = 0;
	struct jvalue *items = jrun_alloc(r, (n + 1) * sizeof(*items));
	if (items == NULL)
		return r->err->code;
	struct cursor c = {0};
	struct jvalue key, value;
	while (i < n && next_pair(d, &c, &key, &value)) {
		items[i] = key;
		if (pairs) {
			struct jvalue *both = jrun_alloc(r, 2 * sizeof(*both));
			if (both == NULL)
				return r->err->code;
			both[0] = key;
			both[1] = value;
			items[i] = jvalue_list_of(both, 2);
		}
		i++;
	}
	*out = jvalue_list_of(items, i);
	return jrun_charge(r, n * sizeof(*items));
}

/* ---- comparing ---- */

static bool is_number(const struct jvalue *v)
{
	return v->type == JV_BOOL || v->type == JV_INT || v->type == JV_FLOAT;
}

/* -1, 0, 1; 2 when a number is not one. */
static int order_numbers(const struct jvalue *a, const struct jvalue *b)
{
	if (a->type != JV_FLOAT && b->type != JV_FLOAT) {
		int64_t x = a->type == JV_BOOL ? a->b : a->i, y = b->type == JV_BOOL ? b->b : b->i;
		return (x > y) - (x < y);
	}
	double x = a->type == JV_FLOAT ? a->f : a->type == JV_BOOL ? a->b : (double)a->i;
	double y = b->type == JV_FLOAT ? b->f : b->type == JV_BOOL ? b->b : (double)b->i;
	if (isnan(x) || isnan(y))
		return 2;
	return (x > y) - (x < y);
}

static int equal_lists(struct jrun *r, const struct jlist *a, const struct jlist *b, bool *out)
{
	int rc = 0;
	*out = a->n == b->n;
	for (size_t i = 0; i < a->n && *out && rc == 0; i++) {
		struct jvalue x = jlist_at(a, i), y = jlist_at(b, i);
		rc = jvalue_equal(r, &x, &y, out);
	}
	return rc;
}

static int equal_dicts(struct jrun *r, const struct jdict *a, const struct jdict *b, bool *out)
{
	int rc = 0;
	struct cursor c = {0};
	struct jvalue key, x, y;
	*out = jdict_count(a) == jdict_count(b);
	while (*out && rc == 0 && next_pair(a, &c, &key, &x)) {
		*out = jdict_find(b, key.s, &y);
		if (*out)
			rc = jvalue_equal(r, &x, &y, out);
	}
	return rc;
}

int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool *out)
{
	*out = false;
	if (is_number(a) && is_number(b)) {
		*out = order_numbers(a, b) == 0;
		return 0;
	}
	if (a->type != b->type)
		return 0;
	int rc;
	switch (a->type) {
	case JV_UNDEFINED:
	case JV_NONE:
		*out = true;
		return 0;
	case JV_STRING:
		*out = same_text(a->s, b->s);
		return jrun_charge(r, a->s.n);
	case JV_LIST:
	case JV_DICT:
		rc = descend(r);
		if (rc != 0)
			return rc;
		rc = a->type == JV_LIST ? equal_lists(r, &a->list, &b->list, out)
					: equal_dicts(r, &a->dict, &b->dict, out);
		r->depth--;
		return rc;
	default:
		return jrun_fail(r, SL_EINVAL, "%s can't be compared", jvalue_type_name(a));
	}
}

int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int *out)
{
	if (is_number(a) && is_number(b)) {
		*out = order_numbers(a, b);
		return 0;
	}
	if (a->type != JV_STRING || b->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "%s and %s have no order", jvalue_type_name(a),
				 jvalue_type_name(b));
	/* UTF-8's bytes order as its code points do. */
	size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
	int d = n > 0 ? memcmp(a->s.at, b->s.at, n) : 0;
	*out = d != 0 ? (d > 0) - (d < 0) : (a->s.n > b->s.n) - (a->s.n < b->s.n);
	return jrun_charge(r, n);
}

int jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what, bool *out)
{
	int rc = 0;
	struct jvalue found;
	*out = false;
	switch (in->type) {
	case JV_UNDEFINED: /* an undefined value has no items */
		return 0;
	case JV_STRING:
		if (what->type != JV_STRING)
			break;
		*out = what->s.n == 0 || memmem(in->s.at, in->s.n, what->s.at, what->s.n) != NULL;
		return jrun_charge(r, in->s.n);
	case JV_LIST:
		for (size_t i = 0; i < in->list.n && !*out && rc == 0; i++) {
			found = jlist_at(&in->list, i);
			rc = jrun_charge(r, 0);
			if (rc == 0)
				rc = jvalue_equal(r, &found, what, out);
		}
		return rc;
	case JV_DICT:
		*out = what->type == JV_STRING && jdict_find(&in->dict, what->s, &found);
		return jrun_charge(r, jdict_count(&in->dict));
	default:
		break;
	}
	return jrun_fail(r, SL_EINVAL, "%s in %s", jvalue_type_name(what), jvalue_type_name(in));
}

/* ---- parts ---- */

static size_t count_chars(struct jstr s)
{
	size_t n = 0;
	for (size_t i = 0; i < s.n; i++)
		n += ((uint8_t)s.at[i] & 0xC0) != 0x80;
	return n;
}

/* The byte at which the k-th character begins; n for the one past the last. */
static size_t char_offset(struct jstr s, size_t k)
{
	size_t i = 0;
	for (; i < s.n; i++)
		if (((uint8_t)s.at[i] & 0xC0) != 0x80 && k-- == 0)
			return i;
	return s.n;
}

int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out)
{
	switch (v->type) {
	case JV_UNDEFINED:
		*out = 0;
		return 0;
	case JV_STRING:
		*out = (int64_t)count_chars(v->s);
		return jrun_charge(r, v->s.n);
	case JV_LIST:
		*out = (int64_t)v->list.n;
		return 0;
	case JV_DICT:
		*out = (int64_t)jdict_count(&v->dict);
		return 0;
	default:
		return jrun_fail(r, SL_EINVAL, "%s has no length", jvalue_type_name(v));
	}
}

int jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key,
		 struct jvalue *out)
{
	*out = jvalue_undefined(key->type == JV_STRING ? (struct proto_str){key->s.at, key->s.n}
						       : (struct proto_str){"an item", 7});
	if (v->type == JV_UNDEFINED)
		return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined",
				 v->name.n < 64 ? (int)v->name.n : 64, v->name.at);
	if ((v->type == JV_DICT || v->type == JV_NAMESPACE) && key->type == JV_STRING) {
		(void)jdict_find(&v->dict, key->s, out);
		return jrun_charge(r, v->dict.json ? 0 : v->dict.made->n * 16);
	}
	if ((v->type == JV_LIST || v->type == JV_STRING) && key->type == JV_INT) {
		int64_t n, i = key->i;
		int rc = jvalue_length(r, v, &n);
		if (rc != 0)
			return rc;
		if (i < 0)
			i += n;
		if (i < 0 || i >= n)
			return 0;
		if (v->type == JV_LIST) {
			*out = jlist_at(&v->list, (size_t)i);
			return 0;
		}
		size_t from = char_offset(v->s, (size_t)i), to = char_offset(v->s, (size_t)i + 1);
		*out = jvalue_string_of(jstr_sub(v->s, from, to - from));
	}
	return 0;
}

static int slice_part(struct jrun *r, const struct jvalue *v, int64_t absent, int64_t *out)
{
	*out = absent;
	if (v == NULL || v->type == JV_NONE)
		return 0;
	if (v->type != JV_INT)
		return jrun_fail(r, SL_EINVAL, "%s in a slice", jvalue_type_name(v));
	*out = v->i;
	return 0;
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
	if (i < 0)
		i += n;
	return i < low ? low : i > high ? high : i;
}

int jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3],
		 struct jvalue *out)
{
	int64_t n, from, to, step;
	if (v->type != JV_LIST && v->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "a slice of %s", jvalue_type_name(v));
	int rc = jvalue_length(r, v, &n);
	if (rc == 0)
		rc = slice_part(r, part[2], 1, &step);
	if (rc == 0 && step == 0)
		rc = jrun_fail(r, SL_EINVAL, "a slice with step 0");
	if (rc == 0)
		rc = slice_part(r, part[0], step > 0 ? 0 : INT64_MAX, &from);
	if (rc == 0)
		rc = slice_part(r, part[1], step > 0 ? INT64_MAX : -n - 1, &to);
	if (rc != 0)
		return rc;
	int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
	from = clamp(from, n, low, high);
	to = clamp(to, n, low, high);
	if (v->type == JV_STRING) {
		if (step != 1)
			return jrun_fail(r, SL_EUNSUPPORTED, "a slice of a string with a step");
		size_t begin = char_offset(v->s, (size_t)from);
		size_t end = to > from ? char_offset(v->s, (size_t)to) : begin;
		*out = jvalue_string_of(jstr_sub(v->s, begin, end - begin));
		return 0;
	}
	struct jvalue *items = jrun_alloc(r, ((size_t)n + 1) * sizeof(*items));
	if (items == NULL)
		return r->err->code;
	size_t k = 0;
	/* from stays within [-1, n], so only the step can overflow. */
	for (int64_t i = from; step > 0 ? i < to : i > to;) {
		items[k++] = jlist_at(&v->list, (size_t)i);
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	*out = jvalue_list_of(items, k);
	return jrun_charge(r, k * sizeof(*items));
}

/* ---- text ---- */

struct jstr jstr_sub(struct jstr s, size_t from, size_t n)
{
	s.at += from;
	s.n = n;
	if (s.trust == JTRUST_MASK)
		s.mask += from;
	return s;
}

int jstr_concat(struct jrun *r, const struct jstr *parts, size_t n, struct jstr *out)
{
	size_t total = 0, filled = 0;
	bool mixed = false;
	const struct jstr *first = NULL;
	for (size_t i = 0; i < n; i++) {
		if (parts[i].n == 0)
			continue;
		total += parts[i].n; /* each is below the arena's bound, and n is small or charged */
		filled++;
		mixed |= parts[i].trust == JTRUST_MASK || (first && first->trust != parts[i].trust);
		first = first ? first : &parts[i];
	}
	if (filled < 2) {
		*out = filled ? *first : (struct jstr){.at = "", .trust = JTRUST_NONE};
		return 0;
	}
	char *at = jrun_alloc(r, total);
	uint8_t *mask = at && mixed ? jrun_alloc(r, total) : NULL;
	if (at == NULL || (mixed && mask == NULL))
		return r->err->code;
	*out = (struct jstr){.at = at, .n = total, .mask = mask,
			     .trust = mixed ? JTRUST_MASK : first->trust};
	for (size_t i = 0; i < n; i++) {
		if (parts[i].n == 0)
			continue;
		memcpy(at, parts[i].at, parts[i].n);
		at += parts[i].n;
		if (!mixed)
			continue;
		if (parts[i].trust == JTRUST_MASK)
			memcpy(mask, parts[i].mask, parts[i].n);
		else
			memset(mask, parts[i].trust == JTRUST_ALL, parts[i].n);
		mask += parts[i].n;
	}
	return jrun_charge(r, total);
}

void jinja_print_float(double f, char *out)
{
	char digits[40];
	int precision = 0;
	/* The fewest digits that read back as the same number. */
	do
		snprintf(digits, sizeof(digits), "%.*e", precision, f);
	while (strtod(digits, NULL) != f && ++precision < 17);
	int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
	if (exponent < -4 || exponent >= 16)
		snprintf(out, 32, "%.*e", precision, f);
	else if (precision <= exponent)
		snprintf(out, 32, "%.1f", f);
	else
		snprintf(out, 32, "%.*f", precision - exponent, f);
}

int jvalue_string(struct jrun *r, const struct jvalue *v, struct jstr *out)
{
	static const char *const fixed[] = {"False", "True", "None", ""};
	const char *word = NULL;
	char *at;
	switch (v->type) {
	case JV_STRING:
		*out = v->s;
		return 0;
	case JV_UNDEFINED:
		word = fixed[3];
		break;
	case JV_NONE:
		word = fixed[2];
		break;
	case JV_BOOL:
		word = fixed[v->b];
		break;
	case JV_INT:
	case JV_FLOAT:
		at = jrun_alloc(r, 32);
		if (at == NULL)
			return r->err->code;
		if (v->type == JV_INT)
			snprintf(at, 32, "%lld", (long long)v->i);
		else if (isfinite(v->f))
			jinja_print_float(v->f, at);
		else
			return jrun_fail(r, SL_EINVAL, "a number that is not finite");
		word = at;
		break;
	default:
		return jrun_fail(r, SL_EINVAL, "%s can't be printed", jvalue_type_name(v));
	}
	*out = (struct jstr){.at = word, .n = strlen(word),
			     .trust = v->trusted ? JTRUST_ALL : JTRUST_NONE};
	return 0;
}

/* ---- JSON ---- */

static int json_put_string(struct sl_buf *b, struct jstr s)
{
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	int rc = buf_append_str(b, "\"");
	size_t begin = 0;
	for (size_t i = 0; i <= s.n && rc == 0; i++) {
		bool end = i == s.n;
		const char *known = end ? NULL : memchr(from, s.at[i], sizeof(from) - 1);
		if (!end && known == NULL && (uint8_t)s.at[i] >= 0x20)
			continue;
		rc = buf_append(b, s.at + begin, i - begin);
		begin = i + 1;
		if (rc == 0 && known != NULL)
			rc = buf_printf(b, "\\%c", to[known - from]);
		else if (rc == 0 && !end)
			rc = buf_printf(b, "\\u%04x", (unsigned)(uint8_t)s.at[i]);
	}
	return rc == 0 ? buf_append_str(b, "\"") : rc;
}

static int json_put(struct jrun *r, struct sl_buf *b, const struct jvalue *v);

static int json_put_items(struct jrun *r, struct sl_buf *b, const struct jvalue *v)
{
	int rc = buf_append_str(b, v->type == JV_LIST ? "[" : "{");
	struct cursor c = {0};
	struct jvalue key, item;
	for (size_t i = 0; rc == 0; i++) {
		if (v->type == JV_LIST ? i >= v->list.n : !next_pair(&v->dict, &c, &key, &item))
			break;
		if (i > 0)
			rc = buf_append_str(b, ", ");
		if (v->type == JV_LIST) {
			item = jlist_at(&v->list, i);
		} else {
			if (rc == 0)
				rc = json_put_string(b, key.s);
			if (rc == 0)
				rc = buf_append_str(b, ": ");
		}
		if (rc == 0)
			rc = json_put(r, b, &item);
	}
	return rc == 0 ? buf_append_str(b, v->type == JV_LIST ? "]" : "}") : rc;
}

static int json_put(struct jrun *r, struct sl_buf *b, const struct jvalue *v)
{
	int rc = jrun_charge(r, v->type == JV_STRING ? v->s.n : 0);
	struct jstr s;
	if (rc != 0)
		return rc;
	switch (v->type) {
	case JV_NONE:
		return buf_append_str(b, "null");
	case JV_BOOL:
		return buf_append_str(b, v->b ? "true" : "false");
	case JV_INT:
	case JV_FLOAT:
		rc = jvalue_string(r, v, &s);
		return rc == 0 ? buf_append(b, s.at, s.n) : rc;
	case JV_STRING:
		return json_put_string(b, v->s);
	case JV_LIST:
	case JV_DICT:
		rc = descend(r);
		if (rc != 0)
			return rc;
		rc = json_put_items(r, b, v);
		r->depth--;
		return rc;
	default:
		return jrun_fail(r, SL_EINVAL, "%s as JSON", jvalue_type_name(v));
	}
}

int jvalue_json(struct jrun *r, const struct jvalue *v, struct jstr *out)
{
	struct sl_buf b;
	buf_init(&b, JINJA_MAX_OUTPUT);
	r->err->code = 0;
	int rc = json_put(r, &b, v);
	if (rc != 0 && r->err->code == 0)
		rc = jrun_fail(r, rc, "the JSON text is too long");
	if (rc == 0) {
		char *at = jrun_alloc(r, b.len + 1);
		if (at == NULL)
			rc = r->err->code;
		else
			memcpy(at, buf_data(&b), b.len);
		*out = (struct jstr){.at = at, .n = b.len};
	}
	buf_dispose(&b);
	return rc;
}
