/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments, and the functions that every template knows. A function's parameters have names, so
 * each can be given by its place or by its name, as in Python; the parser checks a call's shape
 * against them where the function is known then, and the same check runs again before every call.
 */
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

/* ---- parameters ---- */

/* The k-th parameter's name; false when there is none. */
static bool parameter(const struct jfunction *fn, int k, struct proto_str *out)
{
	const char *at = fn->params;
	for (; *at != '\0'; k--) {
		size_t n = strcspn(at, ",");
		if (at[0] == '*')
			return false;
		if (k == 0) {
			*out = (struct proto_str){at, n};
			return true;
		}
		at += n + (at[n] == ',');
	}
	return false;
}

static int n_parameters(const struct jfunction *fn)
{
	struct proto_str name;
	int n = 0;
	while (parameter(fn, n, &name))
		n++;
	return n;
}

static int find_parameter(const struct jfunction *fn, struct proto_str name)
{
	struct proto_str p;
	for (int k = 0; parameter(fn, k, &p); k++)
		if (proto_str_same(p, name))
			return k;
	return -1;
}

static bool takes_more(const struct jfunction *fn)
{
	size_t n = strlen(fn->params);
	return strcmp(fn->params, "*") == 0 || strcmp(fn->params, "*,**") == 0 ||
	       (n > 2 && (strcmp(fn->params + n - 2, ",*") == 0 || strstr(fn->params, ",*,") != NULL));
}

static bool takes_names(const struct jfunction *fn) { return strstr(fn->params, "**") != NULL; }

/* Goes through arguments one by one: given[k] tells which parameters have one. */
struct shape {
	const struct jfunction *fn;
	int n, more, n_params;
	bool given[JINJA_MAX_ARGS];
};

static const char *shape_positional(struct shape *s)
{
	if (s->n < s->n_params)
		s->given[s->n++] = true;
	else if (takes_more(s->fn))
		s->more++;
	else
		return "too many arguments";
	return NULL;
}

static const char *shape_named(struct shape *s, struct proto_str name, int *k)
{
	*k = find_parameter(s->fn, name);
	if (*k < 0)
		return takes_names(s->fn) ? NULL : "the keyword argument";
	if (s->given[*k])
		return "an argument given twice";
	s->given[*k] = true;
	return NULL;
}

static const char *shape_end(const struct shape *s)
{
	for (int k = 0; k < s->fn->min; k++)
		if (k >= s->n_params ? s->more < s->fn->min - s->n_params : !s->given[k])
			return "too few arguments";
	return NULL;
}

const char *jinja_wrong_args(const struct jfunction *fn, const struct jnode *args, struct proto_str *name)
{
	struct shape s = {.fn = fn, .n_params = n_parameters(fn)};
	const char *wrong = NULL;
	int k;
	*name = (struct proto_str){NULL, 0};
	for (; args != NULL && wrong == NULL; args = args->next) {
		if (args->kind == JN_SPREAD || args->kind == JN_SPREAD_NAMES)
			return NULL; /* what it has shows in the call */
		wrong = args->kind == JN_KEYWORD ? shape_named(&s, args->text, &k) : shape_positional(&s);
		if (wrong != NULL && args->kind == JN_KEYWORD && k < 0)
			*name = args->text;
	}
	return wrong != NULL ? wrong : shape_end(&s);
}

int jinja_call_function(struct jrun *r, const struct jfunction *fn, const struct jvalue *self, const struct jargs *args,
			struct jvalue *out)
{
	struct shape s = {.fn = fn, .n_params = n_parameters(fn)};
	struct jvalue slots[JINJA_MAX_ARGS] = {{0}};
	const char *wrong = NULL;
	BUG_IF(s.n_params > JINJA_MAX_ARGS, "%s has too many parameters", fn->name);
	for (size_t i = 0; i < args->n && wrong == NULL; i++) {
		wrong = shape_positional(&s);
		if (wrong == NULL && (int)i < s.n_params)
			slots[i] = args->at[i];
	}
	for (size_t i = 0; i < args->n_named && wrong == NULL; i++) {
		int k;
		wrong = shape_named(&s, args->named[i].name, &k);
		if (wrong == NULL && k >= 0)
			slots[k] = args->named[i].value;
	}
	if (wrong == NULL)
		wrong = shape_end(&s);
	if (wrong == NULL && args->caller != NULL)
		wrong = "a call block";
	if (wrong != NULL)
		return jrun_fail(r, SL_EINVAL, "\"%s\" with %s", fn->name, wrong);
	*out = (struct jvalue){.type = JV_UNDEFINED};
	return fn->call(r, self, slots, args, out);
}

int jinja_want_string(struct jrun *r, const struct jvalue *v)
{
	if (v->type == JV_STRING)
		return 0;
	if (v->type == JV_UNDEFINED)
		return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined", v->name.n < 64 ? (int)v->name.n : 64,
				 v->name.at);
	return jrun_fail(r, SL_EINVAL, "a string expected, not %s", jvalue_type_name(v));
}

int jinja_want_int(struct jrun *r, const struct jvalue *v, int64_t *out)
{
	if (v->type != JV_INT && v->type != JV_BOOL)
		return jrun_fail(r, SL_EINVAL, "an integer expected, not %s", jvalue_type_name(v));
	*out = v->type == JV_INT ? v->i : v->b;
	return 0;
}

/* ---- the functions ---- */

static int global_raise(JSELF)
{
	struct jstr text;
	(void)self, (void)all, (void)out;
	int rc = jvalue_string(r, &args[0], &text);
	if (rc != 0)
		return rc;
	return jrun_fail(r, SL_EINVAL, "%.*s", text.n < 300 ? (int)text.n : 300, text.at);
}

static int global_range(JSELF)
{
	int64_t from = 0, to = 0, step = 1, span;
	(void)self, (void)all;
	int rc = jinja_want_int(r, &args[0], &to);
	if (rc == 0 && args[1].type != JV_ABSENT) {
		from = to;
		rc = jinja_want_int(r, &args[1], &to);
	}
	if (rc == 0 && args[2].type != JV_ABSENT)
		rc = jinja_want_int(r, &args[2], &step);
	if (rc != 0)
		return rc;
	if (step == 0 || __builtin_sub_overflow(to, from, &span) || step == INT64_MIN)
		return jrun_fail(r, SL_EINVAL, "range with these bounds");
	int64_t n = (span > 0) == (step > 0) && span != 0 ? span / step + (span % step != 0) : 0;
	if (n > JINJA_MAX_STEPS)
		return jrun_fail(r, SL_ELIMIT, "range of %lld numbers", (long long)n);
	struct jlist *l = jlist_new(r, (size_t)n);
	if (l == NULL)
		return r->err->code;
	for (int64_t i = 0; i < n; i++)
		l->items[l->n++] = jvalue_int(from + i * step, true);
	*out = jvalue_list_of(l);
	return 0;
}

static int copy_pairs(struct jrun *r, const struct jdict *from, struct jdict *to)
{
	int rc = 0;
	for (const struct jpair *p = from->first; p != NULL && rc == 0; p = p->next)
		rc = jdict_put(r, to, &p->key, &p->value);
	return rc;
}

/* A dictionary, a namespace or a list of pairs. */
static int put_all(struct jrun *r, struct jdict *d, const struct jvalue *from)
{
	struct jlist *l;
	if (from->type == JV_DICT || from->type == JV_NAMESPACE)
		return copy_pairs(r, from->dict, d);
	int rc = jvalue_items(r, from, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		const struct jvalue *pair = &l->items[i];
		if (!jvalue_is_list(pair) || pair->list->n != 2)
			return jrun_fail(r, SL_EINVAL, "a dictionary of %s", jvalue_type_name(pair));
		rc = jdict_put(r, d, &pair->list->items[0], &pair->list->items[1]);
	}
	return rc;
}

static int put_named(struct jrun *r, struct jdict *d, const struct jargs *all)
{
	int rc = 0;
	for (size_t i = 0; i < all->n_named && rc == 0; i++) {
		struct jvalue key = jvalue_literal(all->named[i].name);
		rc = jdict_put(r, d, &key, &all->named[i].value);
	}
	return rc;
}

static int new_pairs(struct jrun *r, uint8_t type, const struct jargs *all, struct jvalue *out)
{
	struct jdict *d = jdict_new(r);
	if (d == NULL)
		return r->err->code;
	int rc = 0;
	if (rc == 0 && all->n > 0)
		rc = put_all(r, d, &all->at[0]);
	if (rc == 0)
		rc = put_named(r, d, all);
	*out = (struct jvalue){.type = type, .dict = d};
	return rc;
}

static int global_dict(JSELF)
{
	(void)self, (void)args;
	return new_pairs(r, JV_DICT, all, out);
}

static int global_namespace(JSELF)
{
	(void)self, (void)args;
	return new_pairs(r, JV_NAMESPACE, all, out);
}

/* In the table of methods; here because it shares all with dict(). */
int jinja_method_update(JSELF)
{
	(void)args;
	int rc = all->n > 0 ? put_all(r, self->dict, &all->at[0]) : 0;
	*out = jvalue_none();
	return rc == 0 ? put_named(r, self->dict, all) : rc;
}
static int global_cycler(JSELF)
{
	(void)self, (void)args;
	struct jlist *l = jlist_new(r, all->n);
	if (l == NULL)
		return r->err->code;
	for (size_t i = 0; i < all->n; i++)
		l->items[l->n++] = all->at[i];
	*out = (struct jvalue){.type = JV_CYCLER, .list = l};
	return 0;
}

static int global_joiner(JSELF)
{
	(void)self, (void)all;
	struct jlist *l = jlist_new(r, 1);
	if (l == NULL)
		return r->err->code;
	l->items[l->n++] = args[0].type != JV_ABSENT ? args[0] : jvalue_literal((struct proto_str){", ", 2});
	*out = (struct jvalue){.type = JV_JOINER, .list = l};
	return 0;
}

/* Local time, as transformers has it. */
static int global_strftime_now(JSELF)
{
	time_t now = r->now_s != 0 ? (time_t)r->now_s : time(NULL);
	struct tm tm;
	char format[128], text[512];
	(void)self, (void)all;
	int rc = jinja_want_string(r, &args[0]);
	if (rc != 0)
		return rc;
	/* An empty result can't be told from too long a one: a blank behind makes the difference. */
	if (args[0].s.n > sizeof(format) - 2 || memchr(args[0].s.at, '\0', args[0].s.n) != NULL)
		return jrun_fail(r, SL_ELIMIT, "a format of a date of more than %zu bytes", sizeof(format) - 2);
	memcpy(format, args[0].s.at, args[0].s.n);
	memcpy(format + args[0].s.n, " ", 2);
	if (localtime_r(&now, &tm) == NULL)
		return jrun_fail(r, SL_EINVAL, "a time that is no date");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	size_t n = strftime(text, sizeof(text), format, &tm);
#pragma GCC diagnostic pop
	if (n == 0 || !utf8_valid(text, n))
		return jrun_fail(r, SL_EINVAL, "a date in this format");
	n--;
	char *copy = jrun_alloc(r, n + 1);
	if (copy == NULL)
		return r->err->code;
	memcpy(copy, text, n);
	*out = jvalue_string_of(
	    (struct jstr){.at = copy, .n = n, .trust = args[0].s.trust == JTRUST_ALL ? JTRUST_ALL : JTRUST_NONE});
	return 0;
}

const struct jfunction jinja_globals[] = {
    {"raise_exception", "message", 1, global_raise, 0},
    {"range", "start,stop,step", 1, global_range, 0},
    {"namespace", "*,**", 0, global_namespace, 0},
    {"dict", "*,**", 0, global_dict, 0},
    {"strftime_now", "format", 1, global_strftime_now, 0},
    {"cycler", "*", 1, global_cycler, 0},
    {"joiner", "sep", 0, global_joiner, 0},
    {0},
};

/* ---- finding ---- */

static const struct jfunction *find(const struct jfunction *table, struct proto_str name)
{
	for (; table->name != NULL; table++)
		if (proto_str_is(name, table->name))
			return table;
	return NULL;
}

const struct jfunction *jinja_find_global(struct proto_str name) { return find(jinja_globals, name); }

const struct jfunction *jinja_find_filter(struct proto_str name)
{
	const struct jfunction *fn = find(jinja_filters, name);
	return fn != NULL ? fn : find(jinja_list_filters, name);
}

const struct jfunction *jinja_find_test(struct proto_str name) { return find(jinja_tests, name); }

static const struct jfunction *const method_tables[] = {jinja_string_methods, jinja_methods};
enum { N_METHOD_TABLES = sizeof(method_tables) / sizeof(method_tables[0]) };

const struct jfunction *jinja_find_method(struct proto_str name, uint8_t type)
{
	for (int i = 0; i < N_METHOD_TABLES; i++)
		for (const struct jfunction *m = method_tables[i]; m->name != NULL; m++)
			if ((type == JV_ABSENT || type == m->self) && proto_str_is(name, m->name))
				return m;
	return NULL;
}

bool jinja_method_fits(struct proto_str name, const struct jnode *args)
{
	struct proto_str bad;
	for (int i = 0; i < N_METHOD_TABLES; i++)
		for (const struct jfunction *m = method_tables[i]; m->name != NULL; m++)
			if (proto_str_is(name, m->name) && jinja_wrong_args(m, args, &bad) == NULL)
				return true;
	return false;
}

/* ---- calling ---- */

int jinja_call_value(struct jrun *r, const struct jvalue *callee, const struct jargs *args, struct jvalue *out)
{
	switch (callee->type) {
	case JV_FUNCTION: return jinja_call_function(r, callee->function.fn, callee->function.self, args, out);
	case JV_MACRO: return jinja_call_macro(r, callee->macro, args, out);
	case JV_LOOP: return jinja_call_loop(r, callee->loop, args, out);
	case JV_JOINER:
		if (args->n + args->n_named > 0)
			return jrun_fail(r, SL_EINVAL, "a joiner with arguments");
		*out = callee->list->at++ > 0 ? callee->list->items[0] : jvalue_literal((struct proto_str){"", 0});
		return 0;
	case JV_UNDEFINED:
		return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined", callee->name.n < 64 ? (int)callee->name.n : 64,
				 callee->name.at);
	default: return jrun_fail(r, SL_EINVAL, "a call of %s", jvalue_type_name(callee));
	}
}
