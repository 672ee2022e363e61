/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of an answer: the constraint, tools and reasoning that a request asks for, in terms of the model that
 * answers. Thread: the exchange's.
 */
#ifndef GATEWAY_API_FORM_H
#define GATEWAY_API_FORM_H

#include <stdbool.h>

#include "gateway/answer/answer.h"
#include "gateway/request/request_fields.h"

/* Completes c->submit, and spec->split, which the answer then owns. model: as answer_choose_model has it. False: x is
 * answered, and spec->split NULL. */
bool api_form(struct exchange *x, struct request_common *c, int model, struct answer_spec *spec);

#endif
