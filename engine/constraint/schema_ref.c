/* SPDX-License-Identifier: Apache-2.0
 *
 * References inside the document: pointers, $id (id before draft 6), $anchor. Relative URIs are resolved as RFC 3986,
 * section 5.2 has it, without removing dot segments.
 */
#include <string.h>

#include "engine/constraint/schema.h"

static struct proto_str until_fragment(struct proto_str uri)
{
	const char *hash = uri.n > 0 ? memchr(uri.at, '#', uri.n) : NULL;
	return hash == NULL ? uri : (struct proto_str){uri.at, (size_t)(hash - uri.at)};
}

static struct proto_str fragment_of(struct proto_str uri)
{
	struct proto_str before = until_fragment(uri);
	if (before.n == uri.n)
		return (struct proto_str){"", 0};
	return (struct proto_str){uri.at + before.n + 1, uri.n - before.n - 1};
}

static bool has_scheme(struct proto_str uri)
{
	for (size_t i = 0; i < uri.n; i++) {
		char ch = uri.at[i];
		if (ch == ':')
			return i > 0;
		if (!((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') && (i == 0 || strchr("0123456789+-.", ch) == NULL))
			return false;
	}
	return false;
}

/* How much of the base precedes a relative reference. */
static size_t kept(struct proto_str base, struct proto_str uri)
{
	const char *scheme = base.n > 0 ? memmem(base.at, base.n, "://", 3) : NULL;
	size_t authority = scheme == NULL ? 0 : (size_t)(scheme - base.at) + 3;
	size_t path = authority;
	while (path < base.n && base.at[path] != '/')
		path++;
	if (uri.n > 0 && uri.at[0] == '/')
		return scheme == NULL ? 0 : path;
	size_t last = base.n;
	while (last > path && base.at[last - 1] != '/')
		last--;
	return scheme == NULL && base.n > 0 && memchr(base.at, '/', base.n) == NULL ? 0 : last;
}

/* uri without fragment, resolved; empty: the base. */
static struct proto_str resolve_uri(struct schema *s, struct proto_str base, struct proto_str uri)
{
	if (uri.n == 0)
		return base;
	if (has_scheme(uri))
		return uri;
	size_t n = kept(base, uri);
	char *text = con_alloc(s->c, n + uri.n + 1, 1);
	if (text == NULL)
		return uri;
	if (n > 0)
		memcpy(text, base.at, n);
	memcpy(text + n, uri.at, uri.n);
	return (struct proto_str){text, n + uri.n};
}

static const struct jv *id_of(const struct schema *s, const struct jv *of)
{
	const struct jv *v = jv_get(of, "$id");
	if (v == NULL && s->draft == DRAFT_4)
		v = jv_get(of, "id");
	if (!jv_is(v, JV_STRING) || (s->draft <= DRAFT_7 && jv_get(of, "$ref") != NULL))
		return NULL;
	return v;
}

/* The URI of the resource that v is in. */
static struct proto_str base_of(struct schema *s, const struct jv *v)
{
	const struct jv *path[CON_MAX_DEPTH * 2];
	size_t n = 0;
	struct proto_str base = {"", 0};
	for (; v != NULL && n < sizeof path / sizeof *path; v = v->parent)
		if (id_of(s, v) != NULL)
			path[n++] = v;
	while (n-- > 0)
		base = resolve_uri(s, base, until_fragment(id_of(s, path[n])->text));
	return base;
}

static void add_resource(struct schema *s, struct proto_str uri, const struct jv *at)
{
	struct resource *grown = con_grow(s->c, s->resources, s->n_resources, &s->cap_resources, sizeof *grown);
	if (grown == NULL)
		return;
	s->resources = grown;
	s->resources[s->n_resources++] = (struct resource){uri, at};
}

/* "uri#name" */
static struct proto_str with_fragment(struct schema *s, struct proto_str uri, struct proto_str name)
{
	char *text = con_alloc(s->c, uri.n + name.n + 2, 1);
	if (text == NULL)
		return uri;
	if (uri.n > 0)
		memcpy(text, uri.at, uri.n);
	text[uri.n] = '#';
	if (name.n > 0)
		memcpy(text + uri.n + 1, name.at, name.n);
	return (struct proto_str){text, uri.n + 1 + name.n};
}

static void add_names(struct schema *s, const struct jv *v)
{
	static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
	const struct jv *id = id_of(s, v);
	if (id != NULL) {
		struct proto_str uri = base_of(s, v), fragment = fragment_of(id->text);
		add_resource(s, fragment.n > 0 ? with_fragment(s, uri, fragment) : uri, v);
	}
	for (size_t i = 0; i < 2; i++) {
		const struct jv *anchor = jv_get(v, anchors[i]);
		if (jv_is(anchor, JV_STRING))
			add_resource(s, with_fragment(s, base_of(s, v), anchor->text), v);
	}
}

/* Keywords that apply to an object as a whole, so its members have no natural order. Unknown formats count too, because
 * producers of such documents follow no single schema. */
static bool frees_order(const struct jv *v)
{
	static const char *const keywords[] = {"oneOf",
					       "not",
					       "if",
					       "dependencies",
					       "dependentRequired",
					       "dependentSchemas",
					       "contains",
					       "propertyNames",
					       "minProperties",
					       "maxProperties",
					       "extends"};
	for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
		if (jv_get(v, keywords[i]) != NULL)
			return true;
	const struct jv *format = jv_get(v, "format");
	return jv_is(format, JV_STRING) && !schema_knows_format(format->text);
}

static void find_in(struct schema *s, const struct jv *v)
{
	if (!con_step(s->c, 1))
		return;
	if (v->kind == JV_OBJECT)
		add_names(s, v);
	s->any_order = s->any_order || (v->kind == JV_OBJECT && frees_order(v));
	for (size_t i = 0; i < v->n; i++)
		find_in(s, v->kind == JV_OBJECT ? v->members[i].value : v->items[i]);
}

void schema_find_resources(struct schema *s) { find_in(s, s->root); }

static const struct jv *resource_at(const struct schema *s, struct proto_str uri)
{
	for (size_t i = 0; i < s->n_resources; i++)
		if (str_equal(s->resources[i].uri, uri))
			return s->resources[i].at;
	return NULL;
}

static int hex(char ch)
{
	return ch >= '0' && ch <= '9'                     ? ch - '0'
	       : (ch | 0x20) >= 'a' && (ch | 0x20) <= 'f' ? (ch | 0x20) - 'a' + 10
							  : -1;
}

static struct proto_str percent_decoded(struct schema *s, struct proto_str text)
{
	char *out = con_alloc(s->c, text.n + 1, 1);
	size_t n = 0;
	for (size_t i = 0; out != NULL && i < text.n; i++) {
		bool escape =
		    text.at[i] == '%' && text.n - i > 2 && hex(text.at[i + 1]) >= 0 && hex(text.at[i + 2]) >= 0;
		out[n++] = escape ? (char)(hex(text.at[i + 1]) * 16 + hex(text.at[i + 2])) : text.at[i];
		i += escape ? 2 : 0;
	}
	return (struct proto_str){out, n};
}

static const struct jv *find(struct schema *s, const struct jv *at, struct proto_str ref)
{
	struct proto_str base = base_of(s, at), name = until_fragment(ref), fragment = fragment_of(ref);
	struct proto_str uri = resolve_uri(s, base, name), decoded = percent_decoded(s, fragment);
	const struct jv *root = name.n == 0 && base.n == 0 ? s->root : resource_at(s, uri), *found = NULL;
	if (fragment.n > 0 && fragment.at[0] != '/') {
		found = resource_at(s, with_fragment(s, uri, decoded));
		return found != NULL ? found : resource_at(s, with_fragment(s, (struct proto_str){"", 0}, decoded));
	}
	if (root != NULL)
		found = jv_follow(root, decoded);
	/* Documents assembled from others keep ids that their pointers ignore. */
	if (found == NULL && name.n == 0)
		found = jv_follow(s->root, decoded);
	return found;
}

const struct jv *schema_resolve(struct schema *s, const struct jv *at, const char *keyword, const struct jv *ref)
{
	if (ref->kind != JV_STRING) {
		schema_fail(s, SL_EINVAL, at, keyword, "must be a string");
		return NULL;
	}
	const struct jv *found = find(s, at, ref->text);
	if (found == NULL) {
		bool local = ref->text.n == 0 || ref->text.at[0] == '#';
		schema_fail(s, local ? SL_EINVAL : SL_EUNSUPPORTED, at, keyword, "%.*s is not in this document",
			    (int)(ref->text.n < 120 ? ref->text.n : 120), ref->text.at);
	}
	return found;
}
