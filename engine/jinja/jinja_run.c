/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements, and what statements define. Names live in frames: one for the template, one for each pass of a loop, call
 * of a macro and body of a `with` or block `set`. Names set there are gone afterwards; only a namespace carries values
 * out. An `if` has no frame of its own. A macro keeps the frame that defines it, so frames live in the arena; a frame
 * is reused if no macro was made while it was active.
 *
 * Text that is not output yet (of a macro or block) is written to the output and then captured.
 */
#include "engine/jinja/jinja.h"

/* ---- names ---- */

static struct jframe *frame_new(struct jrun *r, struct jframe *outer)
{
	struct jframe *f = r->free_frames;
	if (f != NULL)
		r->free_frames = f->outer;
	else
		f = jrun_alloc(r, sizeof(*f));
	*f = (struct jframe){.outer = outer, .n_macros = r->n_macros};
	return f;
}

/* The end of a frame that frame_new gave. */
static void frame_end(struct jrun *r, struct jframe *f)
{
	if (f->n_macros != r->n_macros)
		return;
	for (struct jvar *v = f->vars, *next; v != NULL; v = next) {
		next = v->next;
		v->next = r->free_vars;
		r->free_vars = v;
	}
	f->outer = r->free_frames;
	r->free_frames = f;
}

/* *passed: the names compared in vain, which are charged: a template may define thousands. */
static struct jvar *find_var(const struct jframe *f, struct proto_str name, size_t *passed)
{
	for (struct jvar *v = f->vars; v != NULL; v = v->next, (*passed)++)
		if (proto_str_same(v->name, name))
			return v;
	return NULL;
}

void jinja_bind(struct jrun *r, struct proto_str name, struct jvalue value)
{
	size_t passed = 0;
	struct jvar *v = find_var(r->frame, name, &passed);
	if (v == NULL) {
		v = r->free_vars;
		if (v != NULL)
			r->free_vars = v->next;
		else
			v = jrun_alloc(r, sizeof(*v));
		*v = (struct jvar){.name = name, .next = r->frame->vars};
		r->frame->vars = v;
	}
	v->value = value;
	jrun_charge(r, passed * 16);
}

struct jvalue jinja_look_up(struct jrun *r, struct proto_str name)
{
	size_t passed = 0;
	const struct jvar *v = NULL;
	for (const struct jframe *f = r->frame; f != NULL && v == NULL; f = f->outer)
		v = find_var(f, name, &passed);
	jrun_charge(r, passed * 16);
	if (v != NULL)
		return v->value;
	const struct jfunction *fn = jinja_find_global(name);
	return fn != NULL ? (struct jvalue){.type = JV_FUNCTION, .function = {.fn = fn}} : jvalue_undefined(name);
}

static void assign(struct jrun *r, const struct jnode *target, struct jvalue value);

static void assign_several(struct jrun *r, const struct jnode *target, const struct jvalue *value)
{
	const struct jlist *l = jvalue_items(r, value);
	size_t i = 0, n = 0;
	for (const struct jnode *t = target->a; t != NULL; t = t->next)
		n++;
	if (l->n != n)
		jrun_fail(r, SL_EINVAL, "%zu names for %zu values", n, l->n);
	for (const struct jnode *t = target->a; t != NULL; t = t->next)
		assign(r, t, l->items[i++]);
}

static void assign(struct jrun *r, const struct jnode *target, struct jvalue value)
{
	if (target->kind == JN_NAME) {
		jinja_bind(r, target->text, value);
	} else if (target->kind == JN_TUPLE) {
		assign_several(r, target, &value);
	} else {
		struct jvalue space = jinja_look_up(r, target->a->text);
		if (space.type != JV_NAMESPACE)
			jrun_fail(r, SL_EINVAL, "set of an attribute of %s", jvalue_type_name(&space));
		jdict_put(r, space.dict, jvalue_literal(target->text), value);
	}
}

static void put_value(struct jrun *r, struct jvalue v) { jrun_put(r, jvalue_string(r, &v)); }

/* ---- text that is a value ---- */

/* The text of body, run in frame. */
static struct jvalue text_of(struct jrun *r, const struct jnode *body, struct jframe *frame)
{
	struct jframe *before = r->frame;
	size_t mark = r->text->len;
	r->frame = frame;
	jinja_run(r, body);
	r->frame = before;
	return jvalue_string_of(jrun_capture(r, mark), false);
}

static void run_capture(struct jrun *r, const struct jnode *n)
{
	struct jframe *frame = frame_new(r, r->frame);
	struct jvalue value = text_of(r, n->b, frame);
	frame_end(r, frame);
	if (r->flow != JFLOW_ON)
		return;
	if (n->c != NULL)
		value = jinja_eval_filters(r, n->c, value);
	r->place = n->place;
	if (n->kind == JN_CAPTURE)
		assign(r, n->a, value);
	else
		put_value(r, value);
}

/* ---- macros ---- */

/* Arguments without a parameter. */
static void bind_more(struct jrun *r, const struct jnode *n, const struct jargs *args, size_t used)
{
	struct jlist *more = jlist_new(r, 0);
	if (used < args->n && (n->i & JMACRO_VARARGS) == 0)
		jrun_fail(r, SL_EINVAL, "too many arguments for the macro \"%.*s\"", (int)n->text.n, n->text.at);
	for (; used < args->n; used++)
		jlist_add(r, more, args->at[used]);
	if ((n->i & JMACRO_VARARGS) != 0)
		jinja_bind(r, jname("varargs"), jvalue_tuple_of(more));
}

static bool has_param(const struct jnode *n, struct proto_str name)
{
	const struct jnode *p = n->a;
	while (p != NULL && !proto_str_same(p->text, name))
		p = p->next;
	return p != NULL;
}

static void bind_named(struct jrun *r, const struct jnode *n, const struct jargs *args)
{
	struct jdict *more = jdict_new(r);
	for (size_t i = 0; i < args->n_named; i++) {
		struct proto_str name = args->named[i].name;
		if (has_param(n, name))
			continue;
		if ((n->i & JMACRO_KWARGS) == 0)
			jrun_fail(r, SL_EINVAL, "the macro \"%.*s\" has no parameter \"%.*s\"", (int)n->text.n,
				  n->text.at, (int)name.n, name.at);
		jdict_put(r, more, jvalue_literal(name), args->named[i].value);
	}
	if ((n->i & JMACRO_KWARGS) != 0)
		jinja_bind(r, jname("kwargs"), jvalue_dict_of(more));
}

static const struct jvalue *named_arg(const struct jargs *args, struct proto_str name)
{
	for (size_t i = 0; i < args->n_named; i++)
		if (proto_str_same(args->named[i].name, name))
			return &args->named[i].value;
	return NULL;
}

/* Binds parameters one by one: a default may use those before it. */
static void bind_params(struct jrun *r, const struct jnode *n, const struct jargs *args)
{
	size_t used = 0;
	for (const struct jnode *p = n->a; p != NULL; p = p->next) {
		const struct jvalue *named = named_arg(args, p->text);
		if (used < args->n && named != NULL)
			jrun_fail(r, SL_EINVAL, "the parameter \"%.*s\" given twice", (int)p->text.n, p->text.at);
		jinja_bind(r, p->text,
			   used < args->n  ? args->at[used++]
			   : named != NULL ? *named
			   : p->a != NULL  ? jinja_eval(r, p->a)
					   : jvalue_undefined(p->text));
	}
	bind_more(r, n, args, used);
	bind_named(r, n, args);
	struct proto_str caller = jname("caller");
	if (args->caller != NULL && (n->i & JMACRO_CALLER) == 0)
		jrun_fail(r, SL_EINVAL, "the macro \"%.*s\" has no use for a call block", (int)n->text.n, n->text.at);
	if ((n->i & JMACRO_CALLER) != 0 && !has_param(n, caller))
		jinja_bind(r, caller, args->caller != NULL ? *args->caller : jvalue_undefined(caller));
}

struct jvalue jinja_call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args)
{
	struct jframe *before = r->frame, *frame = frame_new(r, m->frame);
	r->frame = frame;
	bind_params(r, m->node, args);
	r->frame = before;
	struct jvalue text = text_of(r, m->node->b, frame);
	frame_end(r, frame);
	return text;
}

static struct jvalue make_macro(struct jrun *r, const struct jnode *n)
{
	struct jmacro *m = jrun_alloc(r, sizeof(*m));
	r->n_macros++;
	*m = (struct jmacro){.node = n, .frame = r->frame};
	return (struct jvalue){.type = JV_MACRO, .macro = m};
}

static void run_call_block(struct jrun *r, const struct jnode *n)
{
	struct jvalue callee = jinja_eval(r, n->a->a);
	struct jargs args = jinja_eval_args(r, n->a->b);
	struct jvalue caller = make_macro(r, n->b);
	args.caller = &caller;
	r->place = n->place;
	put_value(r, jinja_call_value(r, &callee, &args));
}

/* ---- loops ---- */

/* The items that pass the loop's `if`: the condition sees the loop's names but not `loop`. */
static struct jlist *filter_list(struct jrun *r, const struct jnode *n, const struct jlist *in)
{
	struct jlist *kept = jlist_new(r, 0);
	struct jframe *outer = r->frame;
	for (size_t i = 0; i < in->n; i++) {
		struct jvalue item = in->items[i];
		r->frame = frame_new(r, outer);
		jrun_charge(r, 0);
		assign(r, n->a, item);
		struct jvalue yes = jinja_eval(r, n->c);
		if (jvalue_true(&yes))
			jlist_add(r, kept, item);
		frame_end(r, r->frame);
		r->frame = outer;
	}
	return kept;
}

static void run_pass(struct jrun *r, const struct jnode *n, struct jloop *loop)
{
	struct jvalue item = loop->list->items[loop->index];
	r->frame = frame_new(r, loop->outer);
	jrun_charge(r, 0);
	jinja_bind(r, jname("loop"), (struct jvalue){.type = JV_LOOP, .loop = loop});
	assign(r, n->a, item);
	jinja_run(r, n->d->a);
	frame_end(r, r->frame);
	r->frame = loop->outer;
	if (r->flow == JFLOW_CONTINUE)
		r->flow = JFLOW_ON;
}

static void run_loop(struct jrun *r, const struct jnode *n, const struct jvalue *list, int depth0)
{
	struct jlist *items = jvalue_items(r, list);
	if (n->c != NULL)
		items = filter_list(r, n, items);
	if (items->n == 0) {
		jinja_run(r, n->d->b);
		return;
	}
	struct jloop *loop = jrun_alloc(r, sizeof(*loop));
	*loop = (struct jloop){.list = items, .depth0 = depth0, .recursive = n->i != 0 ? n : NULL, .outer = r->frame};
	for (; loop->index < items->n && r->flow == JFLOW_ON; loop->index++)
		run_pass(r, n, loop);
	loop->over = true;
	if (r->flow == JFLOW_BREAK)
		r->flow = JFLOW_ON;
}

static void run_for(struct jrun *r, const struct jnode *n)
{
	struct jvalue list = jinja_eval(r, n->b);
	r->place = n->place;
	run_loop(r, n, &list, 0);
}

struct jvalue jinja_call_loop(struct jrun *r, const struct jloop *l, const struct jargs *args)
{
	struct jframe *before = r->frame;
	size_t mark = r->text->len;
	if (l->recursive == NULL || l->over || args->n != 1 || args->n_named > 0 || args->caller != NULL)
		jrun_fail(r, SL_EINVAL, "loop is called with one list, in a recursive loop");
	if (r->nodes_deep >= JINJA_MAX_RUN_DEPTH)
		jrun_fail(r, SL_ELIMIT, "loops too deep in each other");
	r->frame = l->outer;
	run_loop(r, l->recursive, &args->at[0], l->depth0 + 1);
	r->frame = before;
	return jvalue_string_of(jrun_capture(r, mark), false);
}

/* ---- the rest ---- */

static void run_output(struct jrun *r, const struct jnode *n)
{
	struct jvalue v = jinja_eval(r, n->a);
	r->place = n->place;
	put_value(r, v);
}

static void run_if(struct jrun *r, const struct jnode *n)
{
	for (const struct jnode *branch = n->a; branch != NULL; branch = branch->next) {
		struct jvalue c = branch->a != NULL ? jinja_eval(r, branch->a) : jvalue_bool(true);
		if (jvalue_true(&c)) {
			jinja_run(r, branch->b);
			return;
		}
	}
}

static void run_set(struct jrun *r, const struct jnode *n)
{
	struct jvalue v = jinja_eval(r, n->b);
	r->place = n->place;
	assign(r, n->a, v);
}

static void run_with(struct jrun *r, const struct jnode *n)
{
	struct jframe *outer = r->frame, *frame = frame_new(r, outer);
	for (const struct jnode *s = n->a; s != NULL; s = s->next) {
		struct jvalue v = jinja_eval(r, s->b); /* sees outer names, not its neighbours */
		r->frame = frame;
		assign(r, s->a, v);
		r->frame = outer;
	}
	r->frame = frame;
	jinja_run(r, n->b);
	frame_end(r, frame);
	r->frame = outer;
}

static void run_node(struct jrun *r, const struct jnode *n)
{
	switch ((enum jnode_kind)n->kind) {
	case JN_TEXT: jrun_put(r, jvalue_literal(n->text).s); break;
	case JN_OUT: run_output(r, n); break;
	case JN_IF: run_if(r, n); break;
	case JN_FOR: run_for(r, n); break;
	case JN_SET: run_set(r, n); break;
	case JN_CAPTURE:
	case JN_FILTERED: run_capture(r, n); break;
	case JN_MACRO: jinja_bind(r, n->text, make_macro(r, n)); break;
	case JN_CALL_BLOCK: run_call_block(r, n); break;
	case JN_WITH: run_with(r, n); break;
	case JN_DO: (void)jinja_eval(r, n->a); break;
	case JN_BREAK: r->flow = JFLOW_BREAK; break;
	case JN_CONTINUE: r->flow = JFLOW_CONTINUE; break;
	default: BUG("node %d is no statement", n->kind);
	}
}

void jinja_run(struct jrun *r, const struct jnode *body)
{
	if (r->nodes_deep++ >= JINJA_MAX_RUN_DEPTH)
		jrun_fail(r, SL_ELIMIT, "more than %d calls and parts in each other", JINJA_MAX_RUN_DEPTH);
	for (const struct jnode *n = body; n != NULL && r->flow == JFLOW_ON; n = n->next) {
		r->place = n->place;
		jrun_charge(r, 0);
		run_node(r, n);
	}
	r->nodes_deep--;
}
