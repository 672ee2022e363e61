/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/json_tree.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/json/json_depth.h"
#include "base/json/json_scan.h"
#include "base/utf8.h"
#include "engine/constraint/decimal.h"

enum { INDEX_FROM = 12 }; /* members */

bool str_equal(struct proto_str a, struct proto_str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

bool jv_is(const struct jv *v, enum jv_kind kind) { return v != NULL && v->kind == kind; }

bool jv_text_is(const struct jv *v, const char *text)
{
	return jv_is(v, JV_STRING) && str_equal(v->text, (struct proto_str){text, strlen(text)});
}

/* ---- reading ---- */

struct reader {
	struct con *c;
	struct json_scan scan;
};

static struct proto_str decoded(struct reader *r, struct proto_str raw)
{
	char *text = con_alloc(r->c, raw.n + 1, 1);
	if (text == NULL)
		return (struct proto_str){"", 0};
	size_t n = json_unescape(raw, text);
	if (n == SIZE_MAX || !utf8_valid(text, n)) {
		con_fail(r->c, SL_EINVAL, "malformed JSON: a string is malformed at byte %zu",
			 (size_t)(raw.at - r->scan.text));
		n = 0;
	}
	return (struct proto_str){text, n};
}

static struct jv *read_value(struct reader *r, const struct jv *parent, size_t at);

static uint32_t hash_key(struct proto_str s) { return (uint32_t)XXH3_64bits(s.at, s.n); }

/* The position of a key, or its free slot. */
static uint32_t *slot_of(const struct jv *o, struct proto_str key)
{
	for (size_t i = hash_key(key);; i++) {
		uint32_t *slot = &o->index[i & (o->n_index - 1)];
		if (*slot == 0 || str_equal(o->members[*slot - 1].key, key))
			return slot;
	}
}

static void index_members(struct con *c, struct jv *o)
{
	size_t n = 16;
	while (n < o->n * 2)
		n *= 2;
	o->index = con_alloc(c, n, sizeof *o->index);
	if (o->index == NULL)
		return;
	o->n_index = n;
	for (size_t i = 0; i < o->n; i++)
		*slot_of(o, o->members[i].key) = (uint32_t)i + 1;
}

const struct jv *jv_get_str(const struct jv *o, struct proto_str key)
{
	if (!jv_is(o, JV_OBJECT))
		return NULL;
	if (o->n_index > 0) {
		uint32_t slot = *slot_of(o, key);
		return slot == 0 ? NULL : o->members[slot - 1].value;
	}
	for (size_t i = o->n; i-- > 0;)
		if (str_equal(o->members[i].key, key))
			return o->members[i].value;
	return NULL;
}

const struct jv *jv_get(const struct jv *o, const char *key)
{
	return jv_get_str(o, (struct proto_str){key, strlen(key)});
}

static void check_duplicates(struct con *c, const struct jv *o)
{
	for (size_t i = 0; i < o->n && con_step(c, 1); i++)
		if (jv_get_str(o, o->members[i].key) != o->members[i].value)
			con_fail(c, SL_EINVAL, "malformed JSON: the key \"%.*s\" appears twice in an object",
				 (int)(o->members[i].key.n < 100 ? o->members[i].key.n : 100), o->members[i].key.at);
}

static void read_object(struct reader *r, struct jv *o)
{
	size_t cap = 0;
	struct proto_str raw;
	json_scan_object(&r->scan);
	while (json_scan_key(&r->scan, &raw) && con_step(r->c, 1)) {
		struct jv_member *grown = con_grow(r->c, o->members, o->n, &cap, sizeof *grown);
		if (grown == NULL)
			return;
		o->members = grown;
		o->members[o->n].key = decoded(r, raw);
		o->members[o->n].value = read_value(r, o, o->n);
		if (o->members[o->n].value == NULL)
			return;
		o->n++;
	}
	if (o->n >= INDEX_FROM)
		index_members(r->c, o);
	check_duplicates(r->c, o);
}

static void read_array(struct reader *r, struct jv *a)
{
	size_t cap = 0;
	json_scan_array(&r->scan);
	while (json_scan_item(&r->scan) && con_step(r->c, 1)) {
		struct jv **grown = con_grow(r->c, a->items, a->n, &cap, sizeof *grown);
		if (grown == NULL)
			return;
		a->items = grown;
		a->items[a->n] = read_value(r, a, a->n);
		if (a->items[a->n] == NULL)
			return;
		a->n++;
	}
}

static void read_scalar(struct reader *r, struct jv *v)
{
	const char *begin = r->scan.at;
	struct proto_str raw;
	if (*begin == '"') {
		v->kind = JV_STRING;
		if (json_scan_string(&r->scan, &raw))
			v->text = decoded(r, raw);
		return;
	}
	json_scan_skip(&r->scan);
	v->text = (struct proto_str){begin, (size_t)(r->scan.at - begin)};
	v->kind = *begin == 'n' ? JV_NULL : *begin == 't' ? JV_TRUE : *begin == 'f' ? JV_FALSE : JV_NUMBER;
	static const char *const words[] = {"null", "false", "true"};
	bool known = v->kind == JV_NUMBER
			 ? decimal_is_number(v->text)
			 : str_equal(v->text, (struct proto_str){words[v->kind], strlen(words[v->kind])});
	if (!known && r->scan.bad == NULL)
		r->scan.bad = "not a value";
}

static struct jv *read_value(struct reader *r, const struct jv *parent, size_t at)
{
	struct jv *v = con_alloc(r->c, 1, sizeof *v);
	char first = json_scan_peek(&r->scan);
	if (v == NULL)
		return NULL;
	v->parent = parent;
	v->at = at;
	v->kind = first == '{' ? JV_OBJECT : JV_ARRAY;
	if (first == '{')
		read_object(r, v);
	else if (first == '[')
		read_array(r, v);
	else if (first != '\0')
		read_scalar(r, v);
	else if (r->scan.bad == NULL)
		r->scan.bad = "unexpected end";
	return r->c->rc == 0 && r->scan.bad == NULL ? v : NULL;
}

struct jv *jv_parse(struct con *c, const char *text, size_t n)
{
	struct reader r = {.c = c};
	if (json_deeper_than(text, n, c->max_depth)) {
		con_fail(c, SL_ELIMIT, "the JSON is nested more than %zu levels deep", c->max_depth);
		return NULL;
	}
	json_scan_init(&r.scan, text, n);
	struct jv *v = read_value(&r, NULL, 0);
	if (c->rc == 0 && (v == NULL || !json_scan_end(&r.scan)))
		con_fail(c, SL_EINVAL, "malformed JSON: %s at byte %zu",
			 r.scan.bad != NULL ? r.scan.bad : "text after the end", (size_t)(r.scan.at - text));
	return c->rc == 0 ? v : NULL;
}

/* ---- pointers ---- */

static void add_token(struct sl_buf *b, const struct jv *parent, size_t at)
{
	if (parent->kind == JV_ARRAY) {
		buf_printf(b, "/%zu", at);
		return;
	}
	struct proto_str key = parent->members[at].key;
	buf_append_str(b, "/");
	for (size_t i = 0; i < key.n && i < 80; i++)
		if (key.at[i] == '~' || key.at[i] == '/')
			buf_append_str(b, key.at[i] == '~' ? "~0" : "~1");
		else
			buf_append(b, &key.at[i], 1);
}

const char *jv_pointer(const struct jv *v, char *out, size_t room)
{
	const struct jv *path[CON_MAX_DEPTH * 2];
	size_t n = 0;
	struct sl_buf b;
	for (; v != NULL && v->parent != NULL && n < sizeof path / sizeof *path; v = v->parent)
		path[n++] = v;
	buf_init(&b, room - 1);
	while (n-- > 0)
		add_token(&b, path[n]->parent, path[n]->at);
	size_t len = utf8_whole_prefix(buf_data(&b), b.len);
	if (len > 0)
		memcpy(out, buf_data(&b), len);
	out[len] = '\0';
	buf_dispose(&b);
	return out;
}

/* The token up to the next slash, unescaped into `out`. */
static struct proto_str next_token(struct proto_str *rest, char *out, size_t room)
{
	size_t n = 0;
	rest->at++, rest->n--; /* the slash */
	while (rest->n > 0 && *rest->at != '/') {
		char ch = *rest->at;
		size_t used = 1;
		if (ch == '~' && rest->n > 1) {
			ch = rest->at[1] == '1' ? '/' : '~';
			used = 2;
		}
		if (n < room)
			out[n++] = ch;
		rest->at += used, rest->n -= used;
	}
	return (struct proto_str){out, n};
}

static const struct jv *item_at(const struct jv *a, struct proto_str token)
{
	size_t at = 0;
	if (token.n == 0 || token.n > 9)
		return NULL;
	for (size_t i = 0; i < token.n; i++) {
		if (token.at[i] < '0' || token.at[i] > '9')
			return NULL;
		at = at * 10 + (size_t)(token.at[i] - '0');
	}
	return at < a->n ? a->items[at] : NULL;
}

const struct jv *jv_follow(const struct jv *root, struct proto_str pointer)
{
	const struct jv *v = root;
	char token[1024];
	while (v != NULL && pointer.n > 0) {
		if (*pointer.at != '/')
			return NULL;
		struct proto_str key = next_token(&pointer, token, sizeof token);
		v = v->kind == JV_ARRAY ? item_at(v, key) : jv_get_str(v, key);
	}
	return v;
}

/* ---- equality ---- */

static bool equal_members(struct con *c, const struct jv *a, const struct jv *b)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct jv *other = jv_get_str(b, a->members[i].key);
		if (other == NULL || !jv_equal(c, a->members[i].value, other))
			return false;
	}
	return true;
}

bool jv_equal(struct con *c, const struct jv *a, const struct jv *b)
{
	if (!con_step(c, 1) || a->kind != b->kind || a->n != b->n)
		return false;
	if (a->kind == JV_STRING)
		return str_equal(a->text, b->text);
	if (a->kind == JV_NUMBER) {
		struct decimal x, y;
		return decimal_read(c, a->text, &x) && decimal_read(c, b->text, &y) && decimal_compare(&x, &y) == 0;
	}
	for (size_t i = 0; a->kind == JV_ARRAY && i < a->n; i++)
		if (!jv_equal(c, a->items[i], b->items[i]))
			return false;
	return a->kind != JV_OBJECT || equal_members(c, a, b);
}

/* ---- values that are alike ---- */

struct unifier {
	struct con *c;
	struct jv **slots;
	size_t n_slots, n;
};

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9E3779B97F4A7C15u ^ h >> 29; }

static uint64_t shallow_hash(const struct jv *v)
{
	uint64_t h = mix(XXH3_64bits(v->text.at, v->text.n), (uint64_t)v->kind << 32 | v->n);
	for (size_t i = 0; v->kind == JV_ARRAY && i < v->n; i++)
		h = mix(h, v->items[i]->same->hash);
	for (size_t i = 0; v->kind == JV_OBJECT && i < v->n; i++)
		h = mix(mix(h, XXH3_64bits(v->members[i].key.at, v->members[i].key.n)),
			v->members[i].value->same->hash);
	return h;
}

static bool shallow_equal(const struct jv *a, const struct jv *b)
{
	if (a->hash != b->hash || a->kind != b->kind || a->n != b->n || !str_equal(a->text, b->text))
		return false;
	for (size_t i = 0; a->kind == JV_ARRAY && i < a->n; i++)
		if (a->items[i]->same != b->items[i]->same)
			return false;
	for (size_t i = 0; a->kind == JV_OBJECT && i < a->n; i++)
		if (a->members[i].value->same != b->members[i].value->same ||
		    !str_equal(a->members[i].key, b->members[i].key))
			return false;
	return true;
}

static struct jv **unified_slot(struct unifier *u, const struct jv *v)
{
	for (size_t i = v->hash;; i++) {
		struct jv **slot = &u->slots[i & (u->n_slots - 1)];
		if (*slot == NULL || shallow_equal(*slot, v))
			return slot;
	}
}

static bool more_slots(struct unifier *u)
{
	struct jv **old = u->slots;
	size_t n = u->n_slots;
	u->n_slots = n == 0 ? 256 : n * 2;
	u->slots = con_alloc(u->c, u->n_slots, sizeof(struct jv *));
	for (size_t i = 0; u->slots != NULL && i < n; i++)
		if (old[i] != NULL)
			*unified_slot(u, old[i]) = old[i];
	return u->slots != NULL;
}

static bool unify(struct unifier *u, struct jv *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (!unify(u, v->kind == JV_OBJECT ? v->members[i].value : v->items[i]))
			return false;
	if (!con_step(u->c, 1) || (u->n * 2 >= u->n_slots && !more_slots(u)))
		return false;
	v->hash = shallow_hash(v);
	struct jv **slot = unified_slot(u, v);
	u->n += *slot == NULL;
	if (*slot == NULL)
		*slot = v;
	v->same = *slot;
	return true;
}

void jv_unify(struct con *c, struct jv *root)
{
	struct unifier u = {.c = c};
	unify(&u, root);
}
