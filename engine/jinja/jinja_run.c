/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements, and what statements define. Names live in frames: one for the template, one for each
 * pass of a loop, call of a macro and body of a `with` or block `set`, so that what is set there is
 * gone afterwards (only a namespace carries values out). An `if` has no frame of its own. A macro
 * keeps the frame it was defined in, so frames live in the arena; one in whose time no macro was
 * made is used again.
 *
 * Text that is no output yet (of a macro, a block) is put on the output and taken off again.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

/* ---- names ---- */

struct jframe *jframe_new(struct jrun *r, struct jframe *outer)
{
	struct jframe *f = r->free_frames;
	if (f != NULL)
		r->free_frames = f->outer;
	else
		f = jrun_alloc(r, sizeof(*f));
	if (f != NULL)
		*f = (struct jframe){.outer = outer, .n_macros = r->n_macros};
	return f;
}

/* The end of a frame that jframe_new gave. */
static void frame_end(struct jrun *r, struct jframe *f)
{
	if (f == NULL || f->n_macros != r->n_macros)
		return;
	for (struct jvar *v = f->vars, *next; v != NULL; v = next) {
		next = v->next;
		v->next = r->free_vars;
		r->free_vars = v;
	}
	f->outer = r->free_frames;
	r->free_frames = f;
}

int jinja_bind(struct jrun *r, struct proto_str name, const struct jvalue *value)
{
	size_t passed = 0;
	for (struct jvar *v = r->frame->vars; v != NULL; v = v->next, passed++)
		if (proto_str_same(v->name, name)) {
			v->value = *value;
			return jrun_charge(r, passed * 16);
		}
	struct jvar *v = r->free_vars;
	if (v != NULL)
		r->free_vars = v->next;
	else
		v = jrun_alloc(r, sizeof(*v));
	if (v == NULL)
		return r->err->code;
	*v = (struct jvar){.name = name, .value = *value, .next = r->frame->vars};
	r->frame->vars = v;
	return jrun_charge(r, passed * 16);
}

/* Charges for the names that were passed: a template may define thousands. */
int jinja_look_up(struct jrun *r, struct proto_str name, struct jvalue *out)
{
	size_t passed = 0;
	for (const struct jframe *f = r->frame; f != NULL; f = f->outer)
		for (const struct jvar *v = f->vars; v != NULL; v = v->next, passed++)
			if (proto_str_same(v->name, name)) {
				*out = v->value;
				return jrun_charge(r, passed * 16);
			}
	const struct jfunction *fn = jinja_find_global(name);
	*out = fn != NULL ? (struct jvalue){.type = JV_FUNCTION, .function = {.fn = fn}} : jvalue_undefined(name);
	return jrun_charge(r, passed * 16);
}

static int assign(struct jrun *r, const struct jnode *target, const struct jvalue *value);

static int assign_several(struct jrun *r, const struct jnode *target, const struct jvalue *value)
{
	struct jlist *l;
	size_t i = 0, n = 0;
	int rc = jvalue_items(r, value, &l);
	for (const struct jnode *t = target->a; t != NULL; t = t->next)
		n++;
	if (rc == 0 && l->n != n)
		rc = jrun_fail(r, SL_EINVAL, "%zu names for %zu values", n, l->n);
	for (const struct jnode *t = target->a; t != NULL && rc == 0; t = t->next)
		rc = assign(r, t, &l->items[i++]);
	return rc;
}

static int assign(struct jrun *r, const struct jnode *target, const struct jvalue *value)
{
	struct jvalue space;
	if (target->kind == JN_NAME)
		return jinja_bind(r, target->text, value);
	if (target->kind == JN_TUPLE)
		return assign_several(r, target, value);
	struct jvalue key = jvalue_literal(target->text);
	int rc = jinja_look_up(r, target->a->text, &space);
	if (rc == 0 && space.type != JV_NAMESPACE)
		rc = jrun_fail(r, SL_EINVAL, "set of an attribute of %s", jvalue_type_name(&space));
	return rc == 0 ? jdict_put(r, space.dict, &key, value) : rc;
}

/* ---- text that is a value ---- */

/* The text of body, run in a frame within outer. */
static int text_of(struct jrun *r, const struct jnode *body, struct jframe *frame, struct jvalue *out)
{
	struct jframe *before = r->frame;
	size_t mark = r->text->len;
	r->frame = frame;
	int rc = jinja_run(r, body);
	r->frame = before;
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jrun_capture(r, mark, &out->s) : rc;
}

static int run_capture(struct jrun *r, const struct jnode *n)
{
	struct jvalue text;
	struct jframe *frame = jframe_new(r, r->frame);
	if (frame == NULL)
		return r->err->code;
	int rc = text_of(r, n->b, frame, &text);
	frame_end(r, frame);
	if (rc == 0 && r->flow != JFLOW_ON)
		return 0;
	struct jvalue value = text;
	if (rc == 0 && n->c != NULL)
		rc = jinja_eval_filters(r, n->c, &text, &value);
	r->place = n->place;
	if (rc == 0 && n->kind == JN_CAPTURE)
		return assign(r, n->a, &value);
	struct jstr s;
	if (rc == 0)
		rc = jvalue_string(r, &value, &s);
	return rc == 0 ? jrun_put(r, s) : rc;
}

/* ---- macros ---- */

static int bind_more(struct jrun *r, const struct jnode *n, const struct jargs *args, size_t used)
{
	struct jlist *more = jlist_new(r, 0);
	if (more == NULL)
		return r->err->code;
	int rc = 0;
	if (rc == 0 && used < args->n && (n->i & JMACRO_VARARGS) == 0)
		rc = jrun_fail(r, SL_EINVAL, "too many arguments for the macro \"%.*s\"", (int)n->text.n, n->text.at);
	for (; rc == 0 && used < args->n; used++)
		rc = jlist_add(r, more, &args->at[used]);
	struct jvalue v = jvalue_tuple_of(more);
	if (rc == 0 && (n->i & JMACRO_VARARGS) != 0)
		rc = jinja_bind(r, (struct proto_str){"varargs", 7}, &v);
	return rc;
}

static const struct jnode *find_param(const struct jnode *n, struct proto_str name)
{
	for (const struct jnode *p = n->a; p != NULL; p = p->next)
		if (proto_str_same(p->text, name))
			return p;
	return NULL;
}

static int bind_named(struct jrun *r, const struct jnode *n, const struct jargs *args)
{
	struct jdict *more = jdict_new(r);
	if (more == NULL)
		return r->err->code;
	int rc = 0;
	for (size_t i = 0; i < args->n_named && rc == 0; i++) {
		struct jvalue key = jvalue_literal(args->named[i].name);
		if (find_param(n, args->named[i].name) != NULL)
			continue;
		if ((n->i & JMACRO_KWARGS) == 0)
			return jrun_fail(r, SL_EINVAL, "the macro \"%.*s\" has no parameter \"%.*s\"", (int)n->text.n,
					 n->text.at, (int)args->named[i].name.n, args->named[i].name.at);
		rc = jdict_put(r, more, &key, &args->named[i].value);
	}
	struct jvalue v = {.type = JV_DICT, .dict = more};
	if (rc == 0 && (n->i & JMACRO_KWARGS) != 0)
		rc = jinja_bind(r, (struct proto_str){"kwargs", 6}, &v);
	return rc;
}

static const struct jvalue *named_arg(const struct jargs *args, struct proto_str name)
{
	for (size_t i = 0; i < args->n_named; i++)
		if (proto_str_same(args->named[i].name, name))
			return &args->named[i].value;
	return NULL;
}

/* Binds parameters one by one: a default may use those before it. */
static int bind_params(struct jrun *r, const struct jnode *n, const struct jargs *args)
{
	size_t used = 0;
	int rc = 0;
	for (const struct jnode *p = n->a; p != NULL && rc == 0; p = p->next) {
		struct jvalue v = jvalue_undefined(p->text);
		const struct jvalue *named = named_arg(args, p->text);
		if (used < args->n) {
			if (named != NULL)
				return jrun_fail(r, SL_EINVAL, "the parameter \"%.*s\" given twice", (int)p->text.n,
						 p->text.at);
			v = args->at[used++];
		} else if (named != NULL) {
			v = *named;
		} else if (p->a != NULL) {
			rc = jinja_eval(r, p->a, &v);
		}
		if (rc == 0)
			rc = jinja_bind(r, p->text, &v);
	}
	if (rc == 0)
		rc = bind_more(r, n, args, used);
	if (rc == 0)
		rc = bind_named(r, n, args);
	struct jvalue caller = jvalue_undefined((struct proto_str){"caller", 6});
	if (args->caller != NULL)
		caller = *args->caller;
	if (rc == 0 && args->caller != NULL && (n->i & JMACRO_CALLER) == 0)
		return jrun_fail(r, SL_EINVAL, "the macro \"%.*s\" has no use for a call block", (int)n->text.n,
				 n->text.at);
	if (rc == 0 && (n->i & JMACRO_CALLER) != 0 && find_param(n, caller.name) == NULL)
		rc = jinja_bind(r, (struct proto_str){"caller", 6}, &caller);
	return rc;
}

int jinja_call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args, struct jvalue *out)
{
	struct jframe *before = r->frame, *frame = jframe_new(r, m->frame);
	if (frame == NULL)
		return r->err->code;
	r->frame = frame;
	int rc = bind_params(r, m->node, args);
	r->frame = before;
	if (rc == 0)
		rc = text_of(r, m->node->b, frame, out);
	frame_end(r, frame);
	return rc;
}

static int make_macro(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jmacro *m = jrun_alloc(r, sizeof(*m));
	if (m == NULL)
		return r->err->code;
	r->n_macros++;
	*m = (struct jmacro){.node = n, .frame = r->frame};
	*out = (struct jvalue){.type = JV_MACRO, .macro = m};
	return 0;
}

static int run_macro(struct jrun *r, const struct jnode *n)
{
	struct jvalue v;
	int rc = make_macro(r, n, &v);
	return rc == 0 ? jinja_bind(r, n->text, &v) : rc;
}

static int run_call_block(struct jrun *r, const struct jnode *n)
{
	const struct jnode *call = n->a;
	struct jvalue callee, caller, text;
	struct jargs args;
	struct jstr s;
	int rc = jinja_eval(r, call->a, &callee);
	if (rc == 0)
		rc = jinja_eval_args(r, call->b, &args);
	if (rc == 0)
		rc = make_macro(r, n->b, &caller);
	if (rc != 0)
		return rc;
	args.caller = &caller;
	r->place = n->place;
	rc = jinja_call_value(r, &callee, &args, &text);
	if (rc == 0)
		rc = jvalue_string(r, &text, &s);
	return rc == 0 ? jrun_put(r, s) : rc;
}

/* ---- loops ---- */

/* What remains of the list after `if`: the condition sees the loop's names, not the loop. */
static int filter_list(struct jrun *r, const struct jnode *n, struct jlist *in, struct jlist **out)
{
	struct jlist *kept = jlist_new(r, 0);
	struct jframe *outer = r->frame;
	if (kept == NULL)
		return r->err->code;
	int rc = 0;
	for (size_t i = 0; i < in->n && rc == 0; i++) {
		struct jvalue item = in->items[i], yes;
		r->frame = jframe_new(r, outer);
		rc = r->frame != NULL ? jrun_charge(r, 0) : r->err->code;
		if (rc == 0)
			rc = assign(r, n->a, &item);
		if (rc == 0)
			rc = jinja_eval(r, n->c, &yes);
		if (rc == 0 && jvalue_true(&yes))
			rc = jlist_add(r, kept, &item);
		frame_end(r, r->frame);
		r->frame = outer;
	}
	*out = kept;
	return rc;
}

static int run_pass(struct jrun *r, const struct jnode *n, struct jloop *loop)
{
	struct jvalue self = {.type = JV_LOOP, .loop = loop};
	struct jvalue item = loop->list->items[loop->index];
	r->frame = jframe_new(r, loop->outer);
	int rc = r->frame != NULL ? jrun_charge(r, 0) : r->err->code;
	if (rc == 0)
		rc = jinja_bind(r, (struct proto_str){"loop", 4}, &self);
	if (rc == 0)
		rc = assign(r, n->a, &item);
	if (rc == 0)
		rc = jinja_run(r, n->d->a);
	frame_end(r, r->frame);
	r->frame = loop->outer;
	if (r->flow == JFLOW_CONTINUE)
		r->flow = JFLOW_ON;
	return rc;
}

static int run_loop(struct jrun *r, const struct jnode *n, const struct jvalue *list, int depth0)
{
	struct jlist *items;
	int rc = jvalue_items(r, list, &items);
	if (rc == 0 && n->c != NULL)
		rc = filter_list(r, n, items, &items);
	if (rc != 0)
		return rc;
	if (items->n == 0)
		return jinja_run(r, n->d->b);
	struct jloop *loop = jrun_alloc(r, sizeof(*loop));
	if (loop == NULL)
		return r->err->code;
	*loop = (struct jloop){.list = items, .depth0 = depth0, .recursive = n->i != 0 ? n : NULL, .outer = r->frame};
	for (; loop->index < items->n && rc == 0 && r->flow == JFLOW_ON; loop->index++)
		rc = run_pass(r, n, loop);
	loop->over = true;
	if (r->flow == JFLOW_BREAK)
		r->flow = JFLOW_ON;
	return rc;
}

static int run_for(struct jrun *r, const struct jnode *n)
{
	struct jvalue list;
	int rc = jinja_eval(r, n->b, &list);
	r->place = n->place;
	return rc == 0 ? run_loop(r, n, &list, 0) : rc;
}

int jinja_call_loop(struct jrun *r, const struct jloop *l, const struct jargs *args, struct jvalue *out)
{
	struct jframe *before = r->frame;
	size_t mark = r->text->len;
	if (l->recursive == NULL || l->over || args->n != 1 || args->n_named > 0 || args->caller != NULL)
		return jrun_fail(r, SL_EINVAL, "loop is called with one list, in a recursive loop");
	if (r->nodes_deep >= JINJA_MAX_RUN_DEPTH)
		return jrun_fail(r, SL_ELIMIT, "loops too deep in each other");
	r->frame = l->outer;
	int rc = run_loop(r, l->recursive, &args->at[0], l->depth0 + 1);
	r->frame = before;
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jrun_capture(r, mark, &out->s) : rc;
}

/* ---- the rest ---- */

static int run_output(struct jrun *r, const struct jnode *n)
{
	struct jvalue v;
	struct jstr s;
	int rc = jinja_eval(r, n->a, &v);
	r->place = n->place;
	if (rc == 0)
		rc = jvalue_string(r, &v, &s);
	return rc == 0 ? jrun_put(r, s) : rc;
}

static int run_if(struct jrun *r, const struct jnode *n)
{
	for (const struct jnode *branch = n->a; branch != NULL; branch = branch->next) {
		struct jvalue c = jvalue_bool(true);
		int rc = branch->a ? jinja_eval(r, branch->a, &c) : 0;
		if (rc != 0)
			return rc;
		if (jvalue_true(&c))
			return jinja_run(r, branch->b);
	}
	return 0;
}

static int run_set(struct jrun *r, const struct jnode *n)
{
	struct jvalue v;
	int rc = jinja_eval(r, n->b, &v);
	r->place = n->place;
	return rc == 0 ? assign(r, n->a, &v) : rc;
}

static int run_with(struct jrun *r, const struct jnode *n)
{
	struct jframe *outer = r->frame, *frame = jframe_new(r, outer);
	if (frame == NULL)
		return r->err->code;
	int rc = 0;
	for (const struct jnode *s = n->a; s != NULL && rc == 0; s = s->next) {
		struct jvalue v;
		rc = jinja_eval(r, s->b, &v); /* sees what is outside, not what stands beside it */
		r->frame = frame;
		if (rc == 0)
			rc = assign(r, s->a, &v);
		r->frame = outer;
	}
	if (rc != 0)
		return rc;
	r->frame = frame;
	rc = jinja_run(r, n->b);
	frame_end(r, frame);
	r->frame = outer;
	return rc;
}

static int run_node(struct jrun *r, const struct jnode *n)
{
	struct jvalue ignored;
	switch ((enum jnode_kind)n->kind) {
	case JN_TEXT: return jrun_put(r, (struct jstr){.at = n->text.at, .n = n->text.n, .trust = JTRUST_ALL});
	case JN_OUT: return run_output(r, n);
	case JN_IF: return run_if(r, n);
	case JN_FOR: return run_for(r, n);
	case JN_SET: return run_set(r, n);
	case JN_CAPTURE:
	case JN_FILTERED: return run_capture(r, n);
	case JN_MACRO: return run_macro(r, n);
	case JN_CALL_BLOCK: return run_call_block(r, n);
	case JN_WITH: return run_with(r, n);
	case JN_DO: return jinja_eval(r, n->a, &ignored);
	case JN_BREAK: r->flow = JFLOW_BREAK; return 0;
	case JN_CONTINUE: r->flow = JFLOW_CONTINUE; return 0;
	default: BUG("node %d is no statement", n->kind);
	}
}

int jinja_run(struct jrun *r, const struct jnode *body)
{
	int rc = 0;
	if (r->nodes_deep >= JINJA_MAX_RUN_DEPTH)
		return jrun_fail(r, SL_ELIMIT, "more than %d calls and parts in each other", JINJA_MAX_RUN_DEPTH);
	r->nodes_deep++;
	for (const struct jnode *n = body; n != NULL && rc == 0 && r->flow == JFLOW_ON; n = n->next) {
		r->place = n->place;
		rc = jrun_charge(r, 0);
		if (rc == 0)
			rc = run_node(r, n);
	}
	r->nodes_deep--;
	return rc;
}
