/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration: YAML read by libyaml against one table of keys with their types, ranges and
 * defaults. A key that the table does not name is an error; so are duplicate keys, aliases
 * and tags. Every error is one line `FILE:LINE:COLUMN: key: what is wrong`. Every value knows its
 * origin (default, file and line, command line), which `sluice config show` prints.
 *
 * Values are written straight into a struct of the caller's: a table row holds the offset. Lists of
 * structs (models, tiers, keys) are rows of kind CONF_LIST with a table of their own; their items
 * have a key that names them, so that the command line can reach one (`--set
 * engine.models.small.path=x.gguf`; an item that does not exist yet is appended; `--set
 * engine.models=` empties the list).
 */
#ifndef BASE_CONF_H
#define BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum conf_type {
	CONF_STRING,   /* char * (owned by the conf) */
	CONF_BOOL,     /* bool */
	CONF_INT,      /* int64_t, min..max */
	CONF_FLOAT,    /* double, min..max */
	CONF_BYTES,    /* uint64_t: 16MiB, 64KiB, 512 (min..max) */
	CONF_DURATION, /* uint64_t milliseconds: 30s, 250ms, 5m (min..max in ms) */
	CONF_ENUM,     /* int: index into choices */
	CONF_ADDRESS,  /* struct conf_address: 127.0.0.1:8443, [::1]:8443, *:80, off */
	CONF_STRINGS,  /* struct conf_strings: a YAML list; on the command line comma-separated */
	CONF_LIST,     /* struct conf_list: a YAML list of mappings with their own table */
};

struct conf_address {
	char text[64]; /* as written, for messages */
	bool off;
	char host[48]; /* without brackets; "" means every address, localhost both loopbacks */
	uint16_t port;
};

struct conf_strings {
	char **items;
	size_t n;
};

struct conf_list {
	void *items; /* n structs of the row's item_size */
	size_t n;
};

struct conf_row {
	const char *key; /* dotted: "gateway.limits.body"; inside a list relative to the item */
	enum conf_type type;
	size_t offset;                    /* into the root struct, or into the item */
	const char *fallback;             /* default as it would be written; NULL: must be given */
	double min, max;                  /* numbers, bytes, durations; items for lists; length for strings;
					     no range when both are 0 */
	const char *const *choices;       /* CONF_ENUM: NULL-terminated; CONF_BYTES: a word for 0, or NULL */
	const struct conf_row *item_rows; /* CONF_LIST: its table, ends with key == NULL */
	size_t item_size;
	const char *item_name; /* CONF_LIST: the key that names an item ("name") */
	bool optional;         /* without a default it may be missing: its member is then all zero */
};

struct conf; /* owns every string and list it wrote into the root struct */

/* Reads path (NULL: defaults only), then the overrides `key=value` in order, and fills *root.
 * On failure *err holds the one line and root is untouched. */
int conf_load(const struct conf_row *rows, const char *path, const char *const *sets, size_t n_sets, void *root,
	      struct conf **out, struct sl_err *err);
void conf_free(struct conf *c);
/* `key: value  # origin`, one line a key, in the table's order, lists expanded, with note's text for a root key after
 * its origin; note may be NULL or return NULL. */
int conf_show(const struct conf *c, const char *(*note)(const char *key), struct sl_buf *out);
/* Compares two loads of one table: the callback is called for each root key whose values differ, in the table's order,
 * until it returns a value other than 0, which is the result. */
int conf_compare(const struct conf *a, const struct conf *b, int (*changed)(void *ctx, const char *key), void *ctx);
/* The overrides (`KEY=VALUE`, as conf_load takes them) that give a root key the value it has in c:
 * one for a plain key, several for a list. add copies what it is given and returns 0 or a code.
 * SL_EINVAL when a value can't be written as an override (a string list with commas in it). */
int conf_overrides(const struct conf *c, const char *key, int (*add)(void *ctx, const char *set), void *ctx);
/* The overrides PREFIX.KEY=VALUE for the keys that an item was given, without its name. None: there is no such item. */
int conf_item_overrides(const struct conf *c, const char *list, const char *name, const char *prefix,
			int (*add)(void *ctx, const char *set), void *ctx);
/* Reports that the caller's own check failed for this key (of an item: LIST.NAME.KEY), in the same form, with the
 * position of the key's value. Returns SL_EINVAL. */
int conf_fail(const struct conf *c, const char *key, struct sl_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
