/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of base/conf share: conf_yaml.c (a file becomes a small bounded tree), conf_value.c (a text
 * becomes a value of a row's type and back), conf.c (the tables) and conf_show.c (printing them).
 */
#ifndef BASE_CONF_PRIV_H
#define BASE_CONF_PRIV_H

#include "base/conf/conf.h"

enum {
	CONF_MAX_FILE_BYTES = 1 << 20,
	CONF_MAX_DEPTH = 16,
	CONF_MAX_NODES = 1 << 14,
	CONF_MAX_CHILDREN = 1024, /* of one mapping (keys and values count) or sequence */
	CONF_MAX_STRING = 4096,   /* bytes of a string whose row gives no other bound */
};

/* ---- conf_yaml.c ---- */

enum conf_node_kind { CONF_NODE_SCALAR, CONF_NODE_MAPPING, CONF_NODE_SEQUENCE };

struct conf_node {
	enum conf_node_kind kind;
	unsigned line, column;   /* from 1 */
	bool quoted;             /* scalar: written in quotes, so it is text whatever it looks like */
	char *text;              /* scalar: owned, without control characters */
	struct conf_node **kids; /* owned; a mapping's alternate key, value */
	size_t n, cap;
};

/* Reads a whole file. *out is NULL when it holds no document. Errors are `FILE:LINE:COLUMN: …`. */
int conf_yaml_read(const char *path, struct conf_node **out, struct sl_err *err);
void conf_node_free(struct conf_node *n);

/* ---- conf_value.c ---- */

union conf_value {
	char *string; /* owned */
	bool boolean;
	int64_t integer;
	double number;
	uint64_t amount; /* bytes, or milliseconds */
	int choice;
	struct conf_address address;
	struct conf_strings strings; /* owned */
};

/* text as a row's type; everything but CONF_LIST. quoted: see struct conf_node. 0, SL_EINVAL, SL_ERANGE, SL_ENOMEM with
 * the reason in why (without line and key). The caller owns it and releases it with conf_value_dispose. */
int conf_value_parse(const struct conf_row *row, const char *text, bool quoted, union conf_value *out,
		     struct sl_err *why);
/* Appends one more item to a CONF_STRINGS value. */
int conf_value_add_string(const struct conf_row *row, union conf_value *v, const char *text, size_t n,
			  struct sl_err *why);
void conf_value_dispose(const struct conf_row *row, union conf_value *v);
int conf_value_format(const struct conf_row *row, const union conf_value *v, struct sl_buf *out);
/* "a number", "true or false": what the row wants, for messages. */
const char *conf_type_wants(enum conf_type type);

/* ---- conf.c ---- */

enum conf_origin { CONF_ORIGIN_UNSET, CONF_ORIGIN_DEFAULT, CONF_ORIGIN_FILE, CONF_ORIGIN_COMMAND_LINE };

/* Where a key or value is; line 0: not in the file. */
struct conf_place {
	enum conf_origin origin;
	unsigned line, column;
};

struct conf_table;

struct conf_slot {
	struct conf_place place;
	union conf_value value;
	struct conf_table *items; /* CONF_LIST: owned */
	size_t n_items;
	void *written; /* CONF_LIST: the caller's view of the items, owned */
};

/* One instance of a row table: the root, or one item of a list. Its values are beside the rows, each with its
 * origin. Tables own every string and every item array; the caller's struct borrows them until conf_free.
 */
struct conf_table {
	const struct conf_row *rows;
	size_t n_rows;
	struct conf_slot *slots; /* n_rows */
	struct conf_place place;
};

struct conf {
	char *path; /* NULL: no file */
	struct conf_table root;
};

/* A key's full name while the tree is walked. Truncation only shortens messages: comparisons are
 * made on names that fit, and no known key is anywhere near this long. */
struct conf_name {
	char text[256];
};

void conf_name_join(struct conf_name *out, const char *prefix, const char *key);
/* The name of an item, or NULL while it has none. */
const char *conf_item_name(const struct conf_row *list, const struct conf_table *item);

#endif
