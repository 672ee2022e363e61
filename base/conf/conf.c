/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a configuration: defaults, then the file, then overrides, then checks. The caller's struct is written only
 * after all of these succeed, so a failed load leaves it unchanged and a reload can be tried beside the running
 * configuration. conf_show.c prints and compares what was read.
 */
#include "base/conf/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/conf/conf_priv.h"
#include "base/text.h"

static const struct conf_place from_default = {.origin = CONF_ORIGIN_DEFAULT};
static const struct conf_place from_command_line = {.origin = CONF_ORIGIN_COMMAND_LINE};

/* ---- tables ---- */

static int table_init(struct conf_table *t, const struct conf_row *rows, struct conf_place place)
{
	size_t n = 0;
	while (rows[n].key != NULL)
		n++;
	*t = (struct conf_table){.rows = rows, .n_rows = n, .place = place};
	t->slots = sl_zalloc_n(n, sizeof *t->slots);
	return t->slots != NULL ? 0 : SL_ENOMEM;
}

static void table_dispose(struct conf_table *t);

static void slot_clear(const struct conf_row *row, struct conf_slot *s)
{
	if (row->type == CONF_LIST) {
		for (size_t i = 0; i < s->n_items; i++)
			table_dispose(&s->items[i]);
		sl_free(s->items);
		sl_free(s->written);
	} else if (s->place.origin != CONF_ORIGIN_UNSET) {
		conf_value_dispose(row, &s->value);
	}
	memset(s, 0, sizeof *s);
}

static void table_dispose(struct conf_table *t)
{
	for (size_t i = 0; t->slots != NULL && i < t->n_rows; i++)
		slot_clear(&t->rows[i], &t->slots[i]);
	sl_free(t->slots);
	t->slots = NULL;
}

void conf_free(struct conf *c)
{
	if (c == NULL)
		return;
	table_dispose(&c->root);
	sl_free(c->path);
	sl_free(c);
}

/* ---- messages ---- */

/* `FILE:LINE:COLUMN: key: what`, or `--set: key: what`. */
static int fail(const struct conf *c, struct conf_place at, const char *key, const struct sl_err *why,
		struct sl_err *err)
{
	if (at.origin == CONF_ORIGIN_COMMAND_LINE)
		return sl_errf(err, why->code, "--set: %.120s: %.200s", key, why->text);
	if (at.origin == CONF_ORIGIN_FILE)
		return sl_errf(err, why->code, "%.120s:%u:%u: %.120s: %.200s", c->path, at.line, at.column, key,
			       why->text);
	if (c->path != NULL)
		return sl_errf(err, why->code, "%.120s: %.120s: %.200s", c->path, key, why->text);
	return sl_errf(err, why->code, "%.120s: %.200s", key, why->text);
}

__attribute__((format(printf, 6, 7))) static int fail_text(const struct conf *c, struct conf_place at, const char *key,
							   int code, struct sl_err *err, const char *fmt, ...)
{
	struct sl_err why = {.code = code};
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why.text, sizeof why.text, fmt, ap);
	va_end(ap);
	return fail(c, at, key, &why, err);
}

static int fail_memory(struct sl_err *err) { return sl_errf(err, SL_ENOMEM, "configuration: no memory"); }

void conf_name_join(struct conf_name *out, const char *prefix, const char *key)
{
	snprintf(out->text, sizeof out->text, "%.120s%s%.120s", prefix, *prefix ? "." : "", key);
}

/* ---- unknown keys ---- */

enum { NAME_MOST = 63 };

/* Levenshtein distance of two short names. */
static unsigned name_distance(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b);
	if (na > NAME_MOST || nb > NAME_MOST)
		return NAME_MOST;
	unsigned row[NAME_MOST + 1];
	for (unsigned j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[nb];
}

static const char *last_word(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot != NULL ? dot + 1 : key;
}

/* The known key or section nearest to an unknown one, or "" when none is near. A key in the wrong section matches
 * itself. */
static void suggest(const struct conf_row *rows, const char *key, struct conf_name *out)
{
	unsigned best = (unsigned)strlen(key) / 3 + 1;
	best = best < 3 ? 3 : best > 5 ? 5 : best;
	out->text[0] = '\0';
	for (const struct conf_row *r = rows; r->key != NULL; r++) {
		/* The whole key, then each section that contains it. */
		for (size_t n = strlen(r->key); n > 0;) {
			struct conf_name known;
			snprintf(known.text, sizeof known.text, "%.*s", (int)n, r->key);
			unsigned d = name_distance(key, known.text);
			if (d >= 2 && strcmp(last_word(key), last_word(known.text)) == 0)
				d = 2;
			if (d < best) {
				best = d;
				*out = known;
			}
			while (n > 0 && r->key[n - 1] != '.')
				n--;
			n -= n > 0;
		}
	}
}

static int fail_unknown(const struct conf *c, struct conf_place at, const struct conf_row *rows, const char *shown,
			const char *key, struct sl_err *err)
{
	struct conf_name near;
	suggest(rows, key, &near);
	if (near.text[0] == '\0')
		return fail_text(c, at, shown, SL_EINVAL, err, "no such key");
	return fail_text(c, at, shown, SL_EINVAL, err, "no such key; did you mean %s?", near.text);
}

/* ---- values ---- */

static int set_text(const struct conf *c, struct conf_table *t, size_t i, const char *text, bool quoted,
		    struct conf_place at, const char *shown, struct sl_err *err)
{
	union conf_value v;
	struct sl_err why;
	if (conf_value_parse(&t->rows[i], text, quoted, &v, &why) != 0)
		return fail(c, at, shown, &why, err);
	slot_clear(&t->rows[i], &t->slots[i]);
	t->slots[i].value = v;
	t->slots[i].place = at;
	return 0;
}

static int set_defaults(const struct conf *c, struct conf_table *t, struct sl_err *err)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct conf_row *r = &t->rows[i];
		if (r->type == CONF_LIST) {
			t->slots[i].place = from_default;
			continue;
		}
		if (r->fallback == NULL)
			continue;
		int rc = set_text(c, t, i, r->fallback, false, from_default, r->key, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Appends an item with its defaults to the list in slot i. */
static int add_item(const struct conf *c, struct conf_table *t, size_t i, struct conf_place at, const char *shown,
		    struct conf_table **out, struct sl_err *err)
{
	const struct conf_row *r = &t->rows[i];
	struct conf_slot *s = &t->slots[i];
	if ((r->max > 0 && (double)s->n_items >= r->max) || s->n_items >= CONF_MAX_CHILDREN)
		return fail_text(c, at, shown, SL_ERANGE, err, "more than %.0f items",
				 r->max > 0 ? r->max : (double)CONF_MAX_CHILDREN);
	struct conf_table *items = sl_realloc_n(s->items, s->n_items + 1, sizeof *items);
	if (items == NULL)
		return fail_memory(err);
	s->items = items;
	struct conf_table *item = &items[s->n_items];
	if (table_init(item, r->item_rows, at) != 0)
		return fail_memory(err);
	s->n_items++;
	s->place = at;
	*out = item;
	return set_defaults(c, item, err);
}

static size_t item_name_index(const struct conf_row *list)
{
	size_t i = 0;
	while (strcmp(list->item_rows[i].key, list->item_name) != 0)
		i++;
	return i;
}

const char *conf_item_name(const struct conf_row *list, const struct conf_table *item)
{
	const struct conf_slot *s = &item->slots[item_name_index(list)];
	return s->place.origin != CONF_ORIGIN_UNSET ? s->value.string : NULL;
}

/* ---- the file ---- */

static int walk_mapping(const struct conf *c, struct conf_table *t, const struct conf_node *map, const char *prefix,
			const char *shown_prefix, struct sl_err *err);

/* `key:` without a value. */
static bool is_nothing(const struct conf_node *n)
{
	return n->kind == CONF_NODE_SCALAR && !n->quoted &&
	       (n->text[0] == '\0' || strcmp(n->text, "~") == 0 || strcmp(n->text, "null") == 0);
}

static struct conf_place place_of(const struct conf_node *n)
{
	return (struct conf_place){CONF_ORIGIN_FILE, n->line, n->column};
}

static int walk_list(const struct conf *c, struct conf_table *t, size_t i, const struct conf_node *n, const char *shown,
		     struct sl_err *err)
{
	if (is_nothing(n)) {
		t->slots[i].place = place_of(n);
		return 0;
	}
	if (n->kind != CONF_NODE_SEQUENCE)
		return fail_text(c, place_of(n), shown, SL_EINVAL, err,
				 "a list is wanted (each item begins with '- ')");
	t->slots[i].place = place_of(n);
	for (size_t k = 0; k < n->n; k++) {
		const struct conf_node *kid = n->kids[k];
		struct conf_table *item;
		if (kid->kind != CONF_NODE_MAPPING)
			return fail_text(c, place_of(kid), shown, SL_EINVAL, err,
					 "an item must be a mapping (key: value)");
		int rc = add_item(c, t, i, place_of(kid), shown, &item, err);
		if (rc == 0)
			rc = walk_mapping(c, item, kid, "", shown, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int walk_strings(const struct conf *c, struct conf_table *t, size_t i, const struct conf_node *n,
			const char *shown, struct sl_err *err)
{
	const struct conf_row *r = &t->rows[i];
	union conf_value v;
	memset(&v, 0, sizeof v);
	for (size_t k = 0; k < n->n; k++) {
		const struct conf_node *kid = n->kids[k];
		struct sl_err why;
		int rc = 0;
		if (kid->kind != CONF_NODE_SCALAR || is_nothing(kid))
			rc = sl_errf(&why, SL_EINVAL, "an item must be a text");
		else if (kid->text[0] == '\0')
			rc = sl_errf(&why, SL_EINVAL, "an empty item in the list");
		else
			rc = conf_value_add_string(r, &v, kid->text, strlen(kid->text), &why);
		if (rc != 0) {
			conf_value_dispose(r, &v);
			return fail(c, place_of(kid), shown, &why, err);
		}
	}
	slot_clear(r, &t->slots[i]);
	t->slots[i].value = v;
	t->slots[i].place = place_of(n);
	return 0;
}

static int walk_value(const struct conf *c, struct conf_table *t, size_t i, const struct conf_node *n,
		      const char *shown, struct sl_err *err)
{
	const struct conf_row *r = &t->rows[i];
	if (r->type == CONF_LIST)
		return walk_list(c, t, i, n, shown, err);
	if (r->type == CONF_STRINGS && n->kind == CONF_NODE_SEQUENCE)
		return walk_strings(c, t, i, n, shown, err);
	if (n->kind != CONF_NODE_SCALAR || r->type == CONF_STRINGS)
		return fail_text(c, place_of(n), shown, SL_EINVAL, err, "%s is wanted%s", conf_type_wants(r->type),
				 n->kind == CONF_NODE_SEQUENCE && r->type == CONF_ADDRESS ? ", in quotes" : "");
	if (is_nothing(n))
		return fail_text(c, place_of(n), shown, SL_EINVAL, err, "has no value; %s is wanted",
				 conf_type_wants(r->type));
	return set_text(c, t, i, n->text, n->quoted, place_of(n), shown, err);
}

static bool is_section(const struct conf_table *t, const char *key)
{
	size_t n = strlen(key);
	for (size_t i = 0; i < t->n_rows; i++)
		if (strncmp(t->rows[i].key, key, n) == 0 && t->rows[i].key[n] == '.')
			return true;
	return false;
}

/* prefix: inside this table; shown_prefix: from the file's root, for messages. */
static int walk_mapping(const struct conf *c, struct conf_table *t, const struct conf_node *map, const char *prefix,
			const char *shown_prefix, struct sl_err *err)
{
	for (size_t k = 0; k + 1 < map->n; k += 2) {
		const struct conf_node *key = map->kids[k], *value = map->kids[k + 1];
		struct conf_name full, shown;
		conf_name_join(&full, prefix, key->text);
		conf_name_join(&shown, shown_prefix, key->text);
		size_t i = 0;
		while (i < t->n_rows && strcmp(t->rows[i].key, full.text) != 0)
			i++;
		int rc;
		/* A dot inside a written key would name the same value a second way. */
		bool dotted = strchr(key->text, '.') != NULL;
		if (i < t->n_rows && !dotted)
			rc = walk_value(c, t, i, value, shown.text, err);
		else if (dotted)
			rc = fail_text(c, place_of(key), shown.text, SL_EINVAL, err,
				       "write sections as nested keys, not with dots");
		else if (!is_section(t, full.text))
			rc = fail_unknown(c, place_of(key), t->rows, shown.text, full.text, err);
		else if (is_nothing(value)) /* a section with everything commented out */
			rc = 0;
		else if (value->kind != CONF_NODE_MAPPING)
			rc =
			    fail_text(c, place_of(value), shown.text, SL_EINVAL, err, "keys are wanted below this one");
		else
			rc = walk_mapping(c, t, value, full.text, shown.text, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int read_file(struct conf *c, struct sl_err *err)
{
	struct conf_node *tree = NULL;
	int rc = conf_yaml_read(c->path, &tree, err);
	if (rc != 0 || tree == NULL)
		return rc;
	if (tree->kind == CONF_NODE_MAPPING)
		rc = walk_mapping(c, &c->root, tree, "", "", err);
	else if (!is_nothing(tree))
		rc = sl_errf(err, SL_EINVAL, "%s:%u:%u: keys are wanted (key: value)", c->path, tree->line,
			     tree->column);
	conf_node_free(tree);
	return rc;
}

/* ---- the command line ---- */

/* key is `NAME.item-key` below a list. An item's name may contain dots, so the item's key is matched at the end. */
static int override_item(const struct conf *c, struct conf_table *t, size_t i, const char *key, const char *value,
			 const char *shown, struct sl_err *err)
{
	const struct conf_row *list = &t->rows[i];
	size_t n_key = strlen(key), at = SIZE_MAX, n_name = 0;
	for (size_t k = 0; list->item_rows[k].key != NULL; k++) {
		size_t n = strlen(list->item_rows[k].key);
		if (n_key > n + 1 && key[n_key - n - 1] == '.' &&
		    strcmp(key + n_key - n, list->item_rows[k].key) == 0 &&
		    (at == SIZE_MAX || n_key - n - 1 < n_name)) {
			at = k;
			n_name = n_key - n - 1;
		}
	}
	if (at == SIZE_MAX)
		return fail_unknown(c, from_command_line, list->item_rows, shown, last_word(key), err);

	struct conf_slot *s = &t->slots[i];
	struct conf_table *item = NULL;
	for (size_t k = 0; k < s->n_items && item == NULL; k++) {
		const char *name = conf_item_name(list, &s->items[k]);
		if (name != NULL && strlen(name) == n_name && memcmp(name, key, n_name) == 0)
			item = &s->items[k];
	}
	int rc = 0;
	if (item == NULL) {
		char *name = sl_strndup(key, n_name);
		if (name == NULL)
			return fail_memory(err);
		rc = add_item(c, t, i, from_command_line, shown, &item, err);
		if (rc == 0)
			rc = set_text(c, item, item_name_index(list), name, true, from_command_line, shown, err);
		sl_free(name);
	}
	if (rc == 0 && list->item_rows[at].type == CONF_LIST)
		rc = fail_text(c, from_command_line, shown, SL_EINVAL, err,
			       "a list in a list can't be set from the command line");
	if (rc == 0)
		rc = set_text(c, item, at, value, false, from_command_line, shown, err);
	return rc;
}

static int override_key(const struct conf *c, struct conf_table *t, const char *key, const char *value,
			struct sl_err *err)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct conf_row *r = &t->rows[i];
		size_t n = strlen(r->key);
		if (r->type == CONF_LIST && strncmp(key, r->key, n) == 0 && key[n] == '.')
			return override_item(c, t, i, key + n + 1, value, key, err);
		if (strcmp(key, r->key) != 0)
			continue;
		if (r->type != CONF_LIST)
			return set_text(c, t, i, value, false, from_command_line, key, err);
		if (*value != '\0')
			return fail_text(c, from_command_line, key, SL_EINVAL, err,
					 "a list is emptied (KEY=) or its items are set by name (KEY.NAME.…=…)");
		slot_clear(r, &t->slots[i]);
		t->slots[i].place = from_command_line;
		return 0;
	}
	if (is_section(t, key))
		return fail_text(c, from_command_line, key, SL_EINVAL, err, "a section: its keys are set one by one");
	return fail_unknown(c, from_command_line, t->rows, key, key, err);
}

static int override(const struct conf *c, struct conf_table *t, const char *set, struct sl_err *err)
{
	if (text_has_control(set, strlen(set)))
		return sl_errf(err, SL_EINVAL, "--set: control characters are not allowed");
	const char *equals = strchr(set, '=');
	if (equals == NULL || equals == set)
		return sl_errf(err, SL_EINVAL, "--set: '%.120s' is not KEY=VALUE", set);
	char *key = sl_strndup(set, (size_t)(equals - set));
	if (key == NULL)
		return fail_memory(err);
	int rc = override_key(c, t, key, equals + 1, err);
	sl_free(key);
	return rc;
}

/* ---- checking and writing ---- */

static int check(const struct conf *c, const struct conf_table *t, const char *shown_prefix, struct sl_err *err);

static int check_list(const struct conf *c, const struct conf_row *r, const struct conf_slot *s, const char *shown,
		      struct sl_err *err)
{
	if ((double)s->n_items < r->min)
		return fail_text(c, s->place, shown, SL_ERANGE, err, "needs at least %.0f item%s", r->min,
				 r->min > 1 ? "s" : "");
	for (size_t i = 0; i < s->n_items; i++) {
		const char *name = conf_item_name(r, &s->items[i]);
		struct conf_name full;
		conf_name_join(&full, shown, name != NULL ? name : "(item)");
		int rc = check(c, &s->items[i], full.text, err);
		if (rc != 0)
			return rc;
		for (size_t k = 0; k < i; k++) {
			const char *other = conf_item_name(r, &s->items[k]);
			BUG_IF(name == NULL || other == NULL, "conf: an item without a name");
			if (strcmp(name, other) == 0)
				return fail_text(c, s->items[i].place, shown, SL_EINVAL, err,
						 "two items have the %s '%.80s'", r->item_name, name);
		}
	}
	return 0;
}

static int check(const struct conf *c, const struct conf_table *t, const char *shown_prefix, struct sl_err *err)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		struct conf_name shown;
		conf_name_join(&shown, shown_prefix, t->rows[i].key);
		int rc = 0;
		if (t->slots[i].place.origin == CONF_ORIGIN_UNSET && !t->rows[i].optional)
			rc = fail_text(c, t->place, shown.text, SL_EINVAL, err, "must be given");
		else if (t->rows[i].type == CONF_LIST)
			rc = check_list(c, &t->rows[i], &t->slots[i], shown.text, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Allocates the arrays that the caller's struct will point at: the only part of writing that can fail. */
static int allocate_items(struct conf_table *t)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		struct conf_slot *s = &t->slots[i];
		if (t->rows[i].type != CONF_LIST || s->n_items == 0)
			continue;
		s->written = sl_zalloc_n(s->n_items, t->rows[i].item_size);
		if (s->written == NULL)
			return SL_ENOMEM;
		for (size_t k = 0; k < s->n_items; k++)
			if (allocate_items(&s->items[k]) != 0)
				return SL_ENOMEM;
	}
	return 0;
}

static void write_out(const struct conf_table *t, void *base)
{
	static const size_t sizes[] = {
	    [CONF_STRING] = sizeof(char *),
	    [CONF_BOOL] = sizeof(bool),
	    [CONF_INT] = sizeof(int64_t),
	    [CONF_FLOAT] = sizeof(double),
	    [CONF_BYTES] = sizeof(uint64_t),
	    [CONF_DURATION] = sizeof(uint64_t),
	    [CONF_ENUM] = sizeof(int),
	    [CONF_ADDRESS] = sizeof(struct conf_address),
	    [CONF_STRINGS] = sizeof(struct conf_strings),
	};
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct conf_row *r = &t->rows[i];
		const struct conf_slot *s = &t->slots[i];
		char *at = (char *)base + r->offset;
		if (r->type != CONF_LIST) {
			memcpy(at, &s->value, sizes[r->type]);
			continue;
		}
		struct conf_list list = {s->written, s->n_items};
		memcpy(at, &list, sizeof list);
		for (size_t k = 0; k < s->n_items; k++)
			write_out(&s->items[k], (char *)s->written + k * r->item_size);
	}
}

int conf_load(const struct conf_row *rows, const char *path, const char *const *sets, size_t n_sets, void *root,
	      struct conf **out, struct sl_err *err)
{
	struct conf *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return fail_memory(err);
	int rc = 0;
	if (table_init(&c->root, rows, from_default) != 0 || (path != NULL && (c->path = sl_strdup(path)) == NULL))
		rc = fail_memory(err);
	if (rc == 0)
		rc = set_defaults(c, &c->root, err);
	if (rc == 0 && path != NULL)
		rc = read_file(c, err);
	for (size_t i = 0; rc == 0 && i < n_sets; i++)
		rc = override(c, &c->root, sets[i], err);
	if (rc == 0)
		rc = check(c, &c->root, "", err);
	if (rc == 0 && allocate_items(&c->root) != 0)
		rc = fail_memory(err);
	if (rc != 0) {
		conf_free(c);
		return rc;
	}
	write_out(&c->root, root);
	*out = c;
	return 0;
}

/* ---- places ---- */

/* The slot that a dotted key names: a row, or `LIST.NAME.item-key`, or `LIST.NAME`. */
static bool find_place(const struct conf_table *t, const char *key, struct conf_place *out)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct conf_row *r = &t->rows[i];
		size_t n = strlen(r->key);
		if (strcmp(r->key, key) == 0) {
			*out = t->slots[i].place;
			return true;
		}
		if (r->type != CONF_LIST || strncmp(r->key, key, n) != 0 || key[n] != '.')
			continue;
		for (size_t k = 0; k < t->slots[i].n_items; k++) {
			const struct conf_table *item = &t->slots[i].items[k];
			const char *name = conf_item_name(r, item), *rest = key + n + 1;
			size_t n_name = strlen(name);
			if (strncmp(rest, name, n_name) != 0)
				continue;
			if (rest[n_name] == '\0') {
				*out = item->place;
				return true;
			}
			if (rest[n_name] == '.' && find_place(item, rest + n_name + 1, out))
				return true;
		}
	}
	return false;
}

int conf_fail(const struct conf *c, const char *key, struct sl_err *err, const char *fmt, ...)
{
	struct sl_err why = {.code = SL_EINVAL};
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why.text, sizeof why.text, fmt, ap);
	va_end(ap);
	struct conf_place at = from_default;
	find_place(&c->root, key, &at);
	return fail(c, at, key, &why, err);
}
