/* SPDX-License-Identifier: Apache-2.0
 *
 * Markup: text that `safe` or `escape` has marked as HTML. It prints as any text does, but what is added to it,
 * formatted into it or joined by it is escaped first, and what is made of its parts is markup again: `'<b>'|safe + '<'`
 * is `<b>&lt;`. Chat templates are rendered without autoescape, and there too jinja2's `safe` returns a
 * markupsafe.Markup.
 *
 * A value is markup only where that class's methods return it; filters that begin with str(value) (replace, title,
 * join) give plain text, as does `~`.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

struct jvalue jvalue_markup_of(struct jstr s)
{
	struct jvalue v = jvalue_string_of(s);
	v.markup = true;
	return v;
}

int jinja_escape(struct jrun *r, const struct jvalue *v, struct jvalue *out)
{
	static const struct {
		const char *from, *to;
	} pairs[] = {{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
	struct jstr s;
	int rc = jvalue_string(r, v, &s);
	for (size_t i = 0; !v->markup && i < sizeof(pairs) / sizeof(pairs[0]) && rc == 0; i++)
		rc = jstr_replace(r, s, (struct jstr){.at = pairs[i].from, .n = 1},
				  (struct jstr){.at = pairs[i].to, .n = strlen(pairs[i].to)}, -1, &s);
	if (rc == 0)
		*out = jvalue_markup_of(s);
	return rc;
}

int jinja_add_markup(struct jrun *r, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	struct jvalue left, right;
	int rc = jinja_escape(r, a, &left);
	if (rc == 0)
		rc = jinja_escape(r, b, &right);
	*out = jvalue_markup_of((struct jstr){.at = ""});
	return rc == 0 ? jstr_concat(r, (struct jstr[]){left.s, right.s}, 2, &out->s) : rc;
}

int jinja_join_markup(struct jrun *r, const struct jvalue *self, const struct jlist *l, struct jvalue *out)
{
	struct jlist *parts = jlist_new(r, l->n);
	int rc = 0;
	if (parts == NULL)
		return r->err->code;
	for (size_t i = 0; i < l->n && rc == 0; i++)
		rc = jinja_escape(r, &l->items[i], &parts->items[parts->n++]);
	*out = *self;
	return rc == 0 ? jstr_join(r, self->s, parts, true, &out->s) : rc;
}

void jinja_mark_parts(const struct jvalue *self, struct jlist *l)
{
	for (size_t i = 0; self->markup && i < l->n; i++)
		l->items[i].markup = true;
}
