/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments, and the functions that every template knows. Arguments are given by position or by name, as in Python.
 * The parser checks a call against the parameters if it knows the function; the same check runs before every call.
 */
#include <time.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

/* ---- parameters ---- */

/* The name of the parameter *at begins with, which moves behind it; false at the end or a star. */
static bool next_parameter(const char **at, struct proto_str *out)
{
	size_t n = strcspn(*at, ",");
	*out = (struct proto_str){*at, n};
	if (n == 0 || **at == '*')
		return false;
	*at += n + ((*at)[n] == ',');
	return true;
}

static int n_parameters(const struct jfunction *fn)
{
	struct proto_str name;
	int n = 0;
	for (const char *at = fn->params; next_parameter(&at, &name);)
		n++;
	return n;
}

static int find_parameter(const struct jfunction *fn, struct proto_str name)
{
	struct proto_str p;
	int k = 0;
	for (const char *at = fn->params; next_parameter(&at, &p); k++)
		if (proto_str_same(p, name))
			return k;
	return -1;
}

/* A single star: at the end or before a comma. */
static bool takes_more(const struct jfunction *fn)
{
	const char *star = strchr(fn->params, '*');
	return star != NULL && star[1] != '*';
}

static bool takes_names(const struct jfunction *fn) { return strstr(fn->params, "**") != NULL; }

/* The arguments seen so far: given[k] if parameter k has one. */
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
			return NULL; /* checked at the call */
		wrong = args->kind == JN_KEYWORD ? shape_named(&s, args->text, &k) : shape_positional(&s);
		if (wrong != NULL && args->kind == JN_KEYWORD && k < 0)
			*name = args->text;
	}
	return wrong != NULL ? wrong : shape_end(&s);
}

struct jvalue jinja_call_function(struct jrun *r, const struct jfunction *fn, const struct jvalue *self,
				  const struct jargs *args)
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
		jrun_fail(r, SL_EINVAL, "\"%s\" with %s", fn->name, wrong);
	return fn->call(r, &(struct jcall){.self = self, .args = slots, .all = args, .how = fn->how});
}

struct jstr jinja_want_string(struct jrun *r, const struct jvalue *v)
{
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	if (v->type != JV_STRING)
		jrun_fail(r, SL_EINVAL, "a string expected, not %s", jvalue_type_name(v));
	return v->s;
}

int64_t jinja_want_int(struct jrun *r, const struct jvalue *v)
{
	if (!jvalue_is_integer(v))
		jrun_fail(r, SL_EINVAL, "an integer expected, not %s", jvalue_type_name(v));
	return v->i;
}

int64_t jinja_want_int_or(struct jrun *r, const struct jvalue *v, int64_t otherwise)
{
	return v->type != JV_ABSENT ? jinja_want_int(r, v) : otherwise;
}

/* ---- the functions ---- */

static struct jvalue global_raise(struct jrun *r, const struct jcall *c)
{
	struct jstr text = jvalue_string(r, &c->args[0]);
	jrun_fail(r, SL_EINVAL, "%.*s", text.n < 300 ? (int)text.n : 300, text.at);
}

static struct jvalue global_range(struct jrun *r, const struct jcall *c)
{
	bool two = c->args[1].type != JV_ABSENT;
	int64_t first = jinja_want_int(r, &c->args[0]), second = jinja_want_int_or(r, &c->args[1], 0), span;
	int64_t from = two ? first : 0, to = two ? second : first, step = jinja_want_int_or(r, &c->args[2], 1);
	if (step == 0 || __builtin_sub_overflow(to, from, &span) || step == INT64_MIN)
		jrun_fail(r, SL_EINVAL, "range with these bounds");
	int64_t n = (span > 0) == (step > 0) && span != 0 ? span / step + (span % step != 0) : 0;
	if (n > JINJA_MAX_STEPS)
		jrun_fail(r, SL_ELIMIT, "range of %lld numbers", (long long)n);
	struct jlist *l = jlist_new(r, (size_t)n);
	for (int64_t i = 0; i < n; i++)
		jlist_put(l, jvalue_int(from + i * step, true));
	return jvalue_list_of(l);
}

/* A dictionary, a namespace or a list of pairs, then the named arguments. */
static void put_all(struct jrun *r, struct jdict *d, const struct jargs *all)
{
	if (all->n > 0 && jvalue_has_pairs(&all->at[0])) {
		jdict_put_all(r, d, all->at[0].dict);
	} else if (all->n > 0) {
		struct jlist *l = jvalue_items(r, &all->at[0]);
		for (size_t i = 0; i < l->n; i++) {
			const struct jvalue *pair = &l->items[i];
			if (!jvalue_is_list(pair) || pair->list->n != 2)
				jrun_fail(r, SL_EINVAL, "a dictionary of %s", jvalue_type_name(pair));
			jdict_put(r, d, pair->list->items[0], pair->list->items[1]);
		}
	}
	for (size_t i = 0; i < all->n_named; i++)
		jdict_put(r, d, jvalue_literal(all->named[i].name), all->named[i].value);
}

/* dict() and namespace(), by the type in how. */
static struct jvalue global_pairs(struct jrun *r, const struct jcall *c)
{
	struct jvalue v = {.type = (uint8_t)c->how, .dict = jdict_new(r)};
	put_all(r, v.dict, c->all);
	return v;
}

/* A method, defined here because it shares its code with dict(). */
struct jvalue jinja_update(struct jrun *r, const struct jcall *c)
{
	put_all(r, c->self->dict, c->all);
	return jvalue_none();
}

static struct jvalue global_cycler(struct jrun *r, const struct jcall *c)
{
	return (struct jvalue){.type = JV_CYCLER, .list = jlist_copy(r, c->all->at, c->all->n)};
}

static struct jvalue global_joiner(struct jrun *r, const struct jcall *c)
{
	struct jvalue sep = c->args[0].type != JV_ABSENT ? c->args[0] : jvalue_literal(jname(", "));
	return (struct jvalue){.type = JV_JOINER, .list = jlist_copy(r, &sep, 1)};
}

/* Local time, as transformers has it. */
static struct jvalue global_strftime_now(struct jrun *r, const struct jcall *c)
{
	time_t now = r->now_s != 0 ? (time_t)r->now_s : time(NULL);
	struct tm tm;
	char format[128], text[512];
	struct jstr s = jinja_want_string(r, &c->args[0]);
	/* strftime returns 0 for an empty and for an overlong result: a blank after the format distinguishes them. */
	if (s.n > sizeof(format) - 2 || memchr(s.at, '\0', s.n) != NULL)
		jrun_fail(r, SL_ELIMIT, "a format of a date of more than %zu bytes", sizeof(format) - 2);
	memcpy(format, s.at, s.n);
	memcpy(format + s.n, " ", 2);
	if (localtime_r(&now, &tm) == NULL)
		jrun_fail(r, SL_EINVAL, "a time that is no date");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	size_t n = strftime(text, sizeof(text), format, &tm);
#pragma GCC diagnostic pop
	if (n == 0 || !utf8_valid(text, n))
		jrun_fail(r, SL_EINVAL, "a date in this format");
	s = (struct jstr){.at = memcpy(jrun_alloc(r, n), text, n - 1),
			  .n = n - 1,
			  .trust = s.trust == JTRUST_ALL ? JTRUST_ALL : JTRUST_NONE};
	return jvalue_string_of(s, false);
}

static const struct jfunction globals[] = {
    {"raise_exception", "message", 1, global_raise, 0, 0},
    {"range", "start,stop,step", 1, global_range, 0, 0},
    {"namespace", "*,**", 0, global_pairs, JV_NAMESPACE, 0},
    {"dict", "*,**", 0, global_pairs, JV_DICT, 0},
    {"strftime_now", "format", 1, global_strftime_now, 0, 0},
    {"cycler", "*", 1, global_cycler, 0, 0},
    {"joiner", "sep", 0, global_joiner, 0, 0},
    {0},
};

/* ---- finding ---- */

/* type JV_ABSENT: any. */
static const struct jfunction *find(const struct jfunction *table, struct proto_str name, uint8_t type)
{
	for (; table->name != NULL; table++)
		if ((type == JV_ABSENT || type == table->self) && proto_str_is(name, table->name))
			return table;
	return NULL;
}

const struct jfunction *jinja_find_global(struct proto_str name) { return find(globals, name, JV_ABSENT); }

const struct jfunction *jinja_find_filter(struct proto_str name)
{
	const struct jfunction *fn = find(jinja_filters, name, JV_ABSENT);
	return fn != NULL ? fn : find(jinja_list_filters, name, JV_ABSENT);
}

const struct jfunction *jinja_find_test(struct proto_str name) { return find(jinja_tests, name, JV_ABSENT); }

const struct jfunction *jinja_find_method(struct proto_str name, uint8_t type)
{
	const struct jfunction *fn = find(jinja_string_methods, name, type);
	return fn != NULL ? fn : find(jinja_methods, name, type);
}

bool jinja_method_fits(struct proto_str name, const struct jnode *args)
{
	struct proto_str bad;
	for (int type = JV_ABSENT + 1; type <= JV_JOINER; type++) {
		const struct jfunction *m = jinja_find_method(name, (uint8_t)type);
		if (m != NULL && jinja_wrong_args(m, args, &bad) == NULL)
			return true;
	}
	return false;
}

/* ---- calling ---- */

struct jvalue jinja_call_value(struct jrun *r, const struct jvalue *callee, const struct jargs *args)
{
	switch (callee->type) {
	case JV_FUNCTION: return jinja_call_function(r, callee->function.fn, callee->function.self, args);
	case JV_MACRO: return jinja_call_macro(r, callee->macro, args);
	case JV_LOOP: return jinja_call_loop(r, callee->loop, args);
	case JV_JOINER:
		if (args->n + args->n_named > 0)
			jrun_fail(r, SL_EINVAL, "a joiner with arguments");
		return callee->list->at++ > 0 ? callee->list->items[0] : jvalue_literal(jname(""));
	case JV_UNDEFINED: jrun_fail_undefined(r, callee);
	default: jrun_fail(r, SL_EINVAL, "a call of %s", jvalue_type_name(callee));
	}
}
