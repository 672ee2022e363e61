/* SPDX-License-Identifier: Apache-2.0
 *
 * A page of a list of things that have ids: limit, order and after of a URL's query.
 */
#ifndef GATEWAY_ITEM_PAGE_H
#define GATEWAY_ITEM_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/exchange/exchange.h"

struct item_page {
	uint64_t limit;
	bool ascending;
	char after[64]; /* "": from the beginning */
};

/* False with x answered. */
bool item_page_read(struct exchange *x, struct item_page *p);
/* Answers x with a page of items, which are in ascending order; NULL: there was no memory for them. */
void item_page_reply(struct exchange *x, const json_t *items, const struct item_page *p);
/* Answers x; false. */
bool page_bad_query(struct exchange *x, const char *name, const char *want);

#endif
