/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates whose models number their calls write a call's id as its name ("functions.f:0"). Clients may bring ids of
 * another model.
 */
#include "engine/core/prompt.h"

#include <string.h>

#include "base/alloc.h"

struct call {
	json_t *old; /* the client's id, counted; NULL: none */
	json_t *id;  /* borrowed from the call */
	bool answered;
};

struct numbering {
	struct call *calls; /* of all messages so far */
	size_t n, turn;     /* turn: the first of the last message with calls */
};

static bool same(const json_t *a, const json_t *b)
{
	return json_is_string(a) && json_is_string(b) && strcmp(json_string_value(a), json_string_value(b)) == 0;
}

/* The call that a result belongs to. Ids may repeat: the last turn's calls come first, in order. NULL: none. */
static struct call *call_of(const struct numbering *n, const json_t *id)
{
	for (size_t i = n->turn; i < n->n; i++)
		if (!n->calls[i].answered && same(n->calls[i].old, id))
			return &n->calls[i];
	for (size_t i = n->n; i-- > 0;)
		if (same(n->calls[i].old, id))
			return &n->calls[i];
	return NULL;
}

static int number_call(struct numbering *n, json_t *call, const char *prefix)
{
	const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
	json_t *old = json_incref(json_object_get(call, "id"));
	json_t *id = json_sprintf("%s%s:%zu", prefix, name != NULL ? name : "", n->n);
	n->calls[n->n++] = (struct call){.old = old, .id = id};
	return id != NULL ? json_object_set_new(call, "id", id) : -1;
}

static int number_message(struct numbering *n, json_t *m, const char *prefix)
{
	json_t *calls = json_object_get(m, "tool_calls");
	const json_t *answers = json_object_get(m, "tool_call_id");
	struct call *call = json_is_string(answers) ? call_of(n, answers) : NULL;
	int rc = 0;
	if (json_array_size(calls) > 0)
		n->turn = n->n;
	for (size_t i = 0; rc == 0 && i < json_array_size(calls); i++)
		rc = number_call(n, json_array_get(calls, i), prefix);
	if (call == NULL || rc != 0)
		return rc;
	call->answered = true;
	return json_object_set(m, "tool_call_id", call->id);
}

static size_t count_calls(const json_t *messages)
{
	size_t n = 0;
	for (size_t i = 0; i < json_array_size(messages); i++)
		n += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
	return n;
}

int prompt_number_calls(struct prompt_chat *c, const char *prefix)
{
	size_t n = count_calls(c->messages);
	struct numbering all = {.calls = n > 0 ? sl_zalloc_n(n, sizeof *all.calls) : NULL};
	int rc = n > 0 && all.calls == NULL ? -1 : 0;
	for (size_t i = 0; rc == 0 && n > 0 && i < json_array_size(c->messages); i++)
		rc = number_message(&all, json_array_get(c->messages, i), prefix);
	for (size_t i = 0; i < all.n; i++)
		json_decref(all.calls[i].old);
	sl_free(all.calls);
	return rc == 0 ? 0 : SL_ENOMEM;
}
