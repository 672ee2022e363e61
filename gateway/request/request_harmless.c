/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/request_harmless.h"

#include <string.h>

bool harmless_empty(const json_t *v, const json_t *object)
{
	(void)object;
	return (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0) ||
	       (json_is_string(v) && json_string_length(v) == 0);
}

bool harmless_false(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_false(v);
}

bool harmless_true(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_true(v);
}

bool harmless_one(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) == 1.0;
}

bool harmless_zero(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) == 0.0;
}

/* It may be called with NULL: a member that is not there. */
static bool is_text(const json_t *v, const char *want)
{
	return json_is_string(v) && strcmp(json_string_value(v), want) == 0;
}

bool harmless_disabled(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(v, "disabled");
}

bool harmless_text_format(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(json_object_get(v, "type"), "text");
}

bool harmless_modalities(const json_t *v, const json_t *object)
{
	(void)object;
	return json_array_size(v) == 1 && is_text(json_array_get(v, 0), "text");
}

bool harmless_negative(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) < 0;
}

bool harmless_not_positive(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) <= 0;
}

bool harmless_at_most_one(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_number(v) && json_number_value(v) <= 1;
}

bool harmless_reasoning_format(const json_t *v, const json_t *object)
{
	(void)object;
	return is_text(v, "auto") || is_text(v, "deepseek");
}

/* The whole text. */
bool harmless_window(const json_t *v, const json_t *object)
{
	(void)object;
	return json_is_integer(v) && json_integer_value(v) == -1;
}
