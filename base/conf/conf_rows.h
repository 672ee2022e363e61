/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table of keys (conf.h), for the sources that have one: key, type, offset of the member, default, least,
 * most. The meaning of each key is in etc/sluice.yaml.
 */
#ifndef BASE_CONF_ROWS_H
#define BASE_CONF_ROWS_H

#include "base/conf/conf.h"

#define ROW(k, t, o, d, lo, hi)                                                       \
	{                                                                             \
		.key = k, .type = t, .offset = o, .fallback = d, .min = lo, .max = hi \
	}
#define ROW_ENUM(k, o, d, c)                                                          \
	{                                                                             \
		.key = k, .type = CONF_ENUM, .offset = o, .fallback = d, .choices = c \
	}
/* A size, or the one word of c, which is 0. */
#define ROW_BYTES_OR(k, o, d, c, lo, hi)                                                                     \
	{                                                                                                    \
		.key = k, .type = CONF_BYTES, .offset = o, .fallback = d, .choices = c, .min = lo, .max = hi \
	}
/* rows: of an item, which is a type_. */
#define ROW_LIST(k, o, rows, type_, lo, hi)                                                              \
	{                                                                                                \
		.key = k, .type = CONF_LIST, .offset = o, .item_rows = rows, .item_size = sizeof(type_), \
		.item_name = "name", .min = lo, .max = hi                                                \
	}
#define ROW_END             \
	{                   \
		.key = NULL \
	}

#endif
