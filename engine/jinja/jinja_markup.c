/* SPDX-License-Identifier: Apache-2.0
 *
 * Markup: text that `safe` or `escape` has marked as HTML. It prints as any text does, but values added to it,
 * formatted into it or joined by it are escaped first, and results made from it are markup again: `'<b>'|safe + '<'` is
 * `<b>&lt;`. Chat templates are rendered without autoescape, and there too jinja2's `safe` returns a markupsafe.Markup.
 *
 * A value is markup only where that class's methods return it; filters that begin with str(value) (replace, title,
 * join) give plain text, as does `~`.
 */
#include "engine/jinja/jinja.h"

struct jstr jinja_escape(struct jrun *r, const struct jvalue *v)
{
	static const struct {
		const char *from, *to;
	} pairs[] = {{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
	struct jstr s = jvalue_string(r, v);
	for (size_t i = 0; !v->markup && i < sizeof(pairs) / sizeof(pairs[0]); i++)
		s = jstr_replace(r, s, (struct jstr){.at = pairs[i].from, .n = 1},
				 (struct jstr){.at = pairs[i].to, .n = strlen(pairs[i].to)}, -1);
	return s;
}
