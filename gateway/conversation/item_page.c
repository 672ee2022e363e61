/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/conversation/item_page.h"

#include <string.h>

#include "gateway/request/query.h"

enum { ITEMS_PAGE = 20, ITEMS_MOST = 100 };

bool page_bad_query(struct exchange *x, const char *name, const char *want)
{
	return exchange_refuse(x, 400, "invalid_value", name,
			       "Invalid value for the query parameter '%s': it must be %s.", name, want);
}

bool item_page_read(struct exchange *x, struct item_page *p)
{
	const char *query = http_request(x->stream)->query;
	char order[8] = "desc";
	*p = (struct item_page){.limit = ITEMS_PAGE};
	if (query_get_u64(query, "limit", &p->limit) < 0 || p->limit < 1 || p->limit > ITEMS_MOST)
		return page_bad_query(x, "limit", "between 1 and 100");
	if (query_get(query, "order", order, sizeof order) < 0 ||
	    (strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0))
		return page_bad_query(x, "order", "asc or desc");
	if (query_get(query, "after", p->after, sizeof p->after) < 0)
		return page_bad_query(x, "after", "the id of an item");
	p->ascending = order[0] == 'a';
	return true;
}

/* {"object":"list", …}. NULL: no memory. *bad: no item has the id p->after. */
static json_t *page_of(const json_t *items, const struct item_page *p, bool *bad)
{
	size_t n = json_array_size(items), from = 0;
	json_t *data = json_array();
	*bad = p->after[0] != '\0';
	for (size_t i = 0; *bad && i < n; i++) {
		const json_t *item = json_array_get(items, p->ascending ? i : n - 1 - i);
		const char *id = json_string_value(json_object_get(item, "id"));
		*bad = id == NULL || strcmp(id, p->after) != 0;
		from = i + 1;
	}
	size_t end = n - from > p->limit ? from + (size_t)p->limit : n;
	for (size_t i = from; i < end && !*bad && data != NULL; i++) {
		if (json_array_append(data, json_array_get(items, p->ascending ? i : n - 1 - i)) != 0) {
			json_decref(data);
			return NULL;
		}
	}
	json_t *first = json_incref(json_object_get(json_array_get(data, 0), "id"));
	json_t *last = json_incref(json_object_get(json_array_get(data, json_array_size(data) - 1), "id"));
	return json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "data", data, "first_id",
			 first != NULL ? first : json_null(), "last_id", last != NULL ? last : json_null(), "has_more",
			 end < n);
}

void item_page_reply(struct exchange *x, const json_t *items, const struct item_page *p)
{
	bool bad = false;
	json_t *list = items != NULL ? page_of(items, p, &bad) : NULL;
	if (list == NULL || !bad) {
		exchange_reply_json(x, list);
		return;
	}
	page_bad_query(x, "after", "the id of an item in the list");
	json_decref(list);
}
