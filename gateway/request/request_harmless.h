/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of refused fields that ask for nothing and are taken. v: the value; object: what holds the field.
 */
#ifndef GATEWAY_REQUEST_HARMLESS_H
#define GATEWAY_REQUEST_HARMLESS_H

#include <jansson.h>
#include <stdbool.h>

bool harmless_at_most_one(const json_t *v, const json_t *object);
bool harmless_disabled(const json_t *v, const json_t *object);
bool harmless_empty(const json_t *v, const json_t *object);
bool harmless_false(const json_t *v, const json_t *object);
bool harmless_negative(const json_t *v, const json_t *object);
bool harmless_not_positive(const json_t *v, const json_t *object);
bool harmless_one(const json_t *v, const json_t *object);
bool harmless_text_format(const json_t *v, const json_t *object);
bool harmless_true(const json_t *v, const json_t *object);
bool harmless_zero(const json_t *v, const json_t *object);
bool harmless_reasoning_format(const json_t *v, const json_t *object);
bool harmless_window(const json_t *v, const json_t *object);
bool harmless_modalities(const json_t *v, const json_t *object);

#endif
