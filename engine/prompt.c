/* SPDX-License-Identifier: Apache-2.0
 *
 * The depth is checked on the bytes before the parser sees them: the parser recurses, and its own
 * bound is far deeper than a chat needs.
 */
#include "engine/prompt.h"

#include <stdbool.h>
#include <string.h>

#include "base/json_depth.h"

static int check_message(const json_t *m, size_t i, struct sl_err *err)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
	const char *role = json_string_value(json_object_get(m, "role"));
	if (role == NULL)
		return sl_errf(err, SL_EINVAL, "messages[%zu].role must be a string.", i);
	bool known = false;
	for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
		known = known || strcmp(role, roles[r]) == 0;
	if (!known)
		return sl_errf(err, SL_EINVAL,
			       "messages[%zu].role must be one of system, user, assistant, tool and "
			       "developer.", i);
	if (!json_is_string(json_object_get(m, "content")))
		return sl_errf(err, SL_EINVAL, "messages[%zu].content must be a string.", i);
	return 0;
}

int prompt_parse_chat(const char *text, size_t n, json_t **out, struct sl_err *err)
{
	if (json_deeper_than(text, n, PROMPT_MAX_DEPTH))
		return sl_errf(err, SL_EINVAL, "The chat is nested deeper than %d levels.",
			       PROMPT_MAX_DEPTH);
	json_error_t je;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
	if (root == NULL)
		return sl_errf(err, SL_EINVAL, "The chat is not valid JSON (at byte %d).", je.position);
	json_t *messages = json_object_get(root, "messages");
	size_t n_messages = json_array_size(messages);
	int rc = 0;
	if (n_messages == 0 || n_messages > PROMPT_MAX_MESSAGES)
		rc = sl_errf(err, SL_EINVAL, "messages must be an array of 1 to %d objects.",
			     PROMPT_MAX_MESSAGES);
	for (size_t i = 0; rc == 0 && i < n_messages; i++)
		rc = check_message(json_array_get(messages, i), i, err);
	if (rc == 0)
		*out = json_incref(messages);
	json_decref(root);
	return rc;
}
