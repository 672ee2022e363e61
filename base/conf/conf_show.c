/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what was read: values with their origins, differences between two configurations, and values as the overrides
 * that would set them.
 */
#include "base/conf/conf.h"

#include <string.h>

#include "base/conf/conf_priv.h"

/* ---- showing ---- */

static int show_origin(const struct conf *c, struct conf_place at, const char *note, struct sl_buf *out)
{
	int rc = 0;
	switch (at.origin) {
	case CONF_ORIGIN_FILE: rc = buf_printf(out, "  # %s:%u", c->path, at.line); break;
	case CONF_ORIGIN_COMMAND_LINE: rc = buf_append_str(out, "  # command line"); break;
	case CONF_ORIGIN_UNSET:
	case CONF_ORIGIN_DEFAULT: rc = buf_append_str(out, "  # default"); break;
	}
	if (rc == 0 && note != NULL)
		rc = buf_printf(out, "; %s", note);
	return rc == 0 ? buf_append_str(out, "\n") : rc;
}

/* note: appended to each line of this row; NULL: none. */
static int show_row(const struct conf *c, const struct conf_row *r, const struct conf_slot *s, const char *prefix,
		    const char *note, struct sl_buf *out)
{
	int rc = 0;
	struct conf_name full;
	if (s->place.origin == CONF_ORIGIN_UNSET)
		return 0;
	conf_name_join(&full, prefix, r->key);
	for (size_t k = 0; rc == 0 && k < s->n_items; k++) {
		const struct conf_table *item = &s->items[k];
		struct conf_name prefix_of_item;
		conf_name_join(&prefix_of_item, full.text, conf_item_name(r, item));
		for (size_t i = 0; rc == 0 && i < item->n_rows; i++)
			rc = show_row(c, &item->rows[i], &item->slots[i], prefix_of_item.text, note, out);
	}
	if (rc != 0 || s->n_items > 0)
		return rc;
	rc = buf_printf(out, "%s: ", full.text);
	if (rc == 0)
		rc = r->type == CONF_LIST ? buf_append_str(out, "[]") : conf_value_format(r, &s->value, out);
	return rc == 0 ? show_origin(c, s->place, note, out) : rc;
}

int conf_show(const struct conf *c, const char *(*note)(const char *key), struct sl_buf *out)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < c->root.n_rows; i++) {
		const struct conf_row *r = &c->root.rows[i];
		rc = show_row(c, r, &c->root.slots[i], "", note != NULL ? note(r->key) : NULL, out);
	}
	return rc;
}

/* ---- comparing, and values as overrides ---- */

static bool tables_equal(const struct conf_table *a, const struct conf_table *b, struct sl_buf *scratch, int *rc);

/* Compares the printed text, which is equal exactly when the values are. */
static bool slots_equal(const struct conf_row *r, const struct conf_slot *a, const struct conf_slot *b,
			struct sl_buf *scratch, int *rc)
{
	if (r->type == CONF_LIST) {
		bool same = a->n_items == b->n_items;
		for (size_t k = 0; same && k < a->n_items; k++)
			same = tables_equal(&a->items[k], &b->items[k], scratch, rc);
		return same;
	}
	bool unset = a->place.origin == CONF_ORIGIN_UNSET;
	if (unset || b->place.origin == CONF_ORIGIN_UNSET)
		return unset && b->place.origin == CONF_ORIGIN_UNSET;
	buf_clear(scratch, SIZE_MAX);
	if ((*rc = conf_value_format(r, &a->value, scratch)) != 0)
		return false;
	size_t n = scratch->len;
	if ((*rc = conf_value_format(r, &b->value, scratch)) != 0)
		return false;
	const uint8_t *text = buf_data(scratch);
	return scratch->len == 2 * n && (n == 0 || memcmp(text, text + n, n) == 0);
}

static bool tables_equal(const struct conf_table *a, const struct conf_table *b, struct sl_buf *scratch, int *rc)
{
	bool same = true;
	for (size_t i = 0; same && i < a->n_rows; i++)
		same = slots_equal(&a->rows[i], &a->slots[i], &b->slots[i], scratch, rc);
	return same;
}

int conf_compare(const struct conf *a, const struct conf *b, int (*changed)(void *ctx, const char *key), void *ctx)
{
	struct sl_buf scratch;
	int rc = 0;
	BUG_IF(a->root.rows != b->root.rows, "conf_compare: two tables");
	buf_init(&scratch, 1 << 20);
	for (size_t i = 0; rc == 0 && i < a->root.n_rows; i++) {
		const struct conf_row *r = &a->root.rows[i];
		if (!slots_equal(r, &a->root.slots[i], &b->root.slots[i], &scratch, &rc) && rc == 0)
			rc = changed(ctx, r->key);
	}
	buf_dispose(&scratch);
	return rc;
}

/* A value as override reads it: texts without quotes, string lists with commas. */
static int format_override(const struct conf_row *r, const union conf_value *v, struct sl_buf *out)
{
	if (r->type == CONF_STRING)
		return buf_append_str(out, v->string);
	if (r->type == CONF_ADDRESS)
		return buf_append_str(out, v->address.off ? "off" : v->address.text);
	if (r->type != CONF_STRINGS)
		return conf_value_format(r, v, out);
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < v->strings.n; i++) {
		if (strchr(v->strings.items[i], ',') != NULL)
			return SL_EINVAL;
		rc = i > 0 ? buf_append_str(out, ",") : 0;
		if (rc == 0)
			rc = buf_append_str(out, v->strings.items[i]);
	}
	return rc;
}

static int override_of(const struct conf_row *r, const struct conf_slot *s, const char *prefix,
		       int (*add)(void *ctx, const char *set), void *ctx)
{
	struct sl_buf text;
	if (s->place.origin == CONF_ORIGIN_UNSET)
		return 0;
	buf_init(&text, 1 << 16);
	int rc = buf_printf(&text, "%s%s%s=", prefix, *prefix ? "." : "", r->key);
	if (rc == 0 && r->type != CONF_LIST)
		rc = format_override(r, &s->value, &text);
	if (rc == 0)
		rc = buf_append(&text, "", 1);
	if (rc == 0)
		rc = add(ctx, (const char *)buf_data(&text));
	buf_dispose(&text);
	for (size_t k = 0; rc == 0 && k < s->n_items; k++) {
		const struct conf_table *item = &s->items[k];
		struct conf_name full;
		conf_name_join(&full, r->key, conf_item_name(r, item));
		for (size_t i = 0; rc == 0 && i < item->n_rows; i++)
			rc = override_of(&item->rows[i], &item->slots[i], full.text, add, ctx);
	}
	return rc;
}

int conf_overrides(const struct conf *c, const char *key, int (*add)(void *ctx, const char *set), void *ctx)
{
	for (size_t i = 0; i < c->root.n_rows; i++) {
		if (strcmp(c->root.rows[i].key, key) == 0)
			return override_of(&c->root.rows[i], &c->root.slots[i], "", add, ctx);
	}
	BUG("conf_overrides: no key %s", key);
}

static int overrides_of_item(const struct conf_row *list, const struct conf_table *item, const char *prefix,
			     int (*add)(void *ctx, const char *set), void *ctx)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < item->n_rows; i++)
		if (item->slots[i].place.origin > CONF_ORIGIN_DEFAULT &&
		    strcmp(item->rows[i].key, list->item_name) != 0)
			rc = override_of(&item->rows[i], &item->slots[i], prefix, add, ctx);
	return rc;
}

int conf_item_overrides(const struct conf *c, const char *list, const char *name, const char *prefix,
			int (*add)(void *ctx, const char *set), void *ctx)
{
	for (size_t i = 0; i < c->root.n_rows; i++) {
		const struct conf_slot *s = &c->root.slots[i];
		for (size_t k = 0; strcmp(c->root.rows[i].key, list) == 0 && k < s->n_items; k++)
			if (strcmp(conf_item_name(&c->root.rows[i], &s->items[k]), name) == 0)
				return overrides_of_item(&c->root.rows[i], &s->items[k], prefix, add, ctx);
	}
	return 0;
}
