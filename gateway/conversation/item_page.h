/* SPDX-License-Identifier: Apache-2.0
 *
 * One page of a list of objects that have ids: limit, order and after in the URL's query.
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

/* False: x has its error response. */
bool item_page_read(struct exchange *x, struct item_page *p);
/* Sends a page of items, which are in ascending order; NULL: no memory. */
void item_page_reply(struct exchange *x, const json_t *items, const struct item_page *p);
/* Sends 400; returns false. */
bool page_bad_query(struct exchange *x, const char *name, const char *want);

#endif
