/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers that the handlers share.
 */
#ifndef GATEWAY_API_REQUEST_H
#define GATEWAY_API_REQUEST_H

#include <stdbool.h>

#include "gateway/answer/answer.h"
#include "gateway/conversation/conversation_proc.h"
#include "gateway/exchange/exchange.h"
#include "gateway/request/request_fields.h"

/* The bounds of the exchange's configuration. */
struct request_limits api_limits(const struct exchange *x);
/* Frees the body. rc and e: a parser's result. False with x answered. */
bool api_parsed(struct exchange *x, int rc, const struct request_error *e);
/* What the answer's header reports of the request: what cleansing removed, which is counted, and unknown fields. */
void api_report(struct exchange *x, const struct request_common *c);
/* The latter alone. */
void api_report_ignored(struct exchange *x, const struct request_ignored *r);
/* As answer_choose_model, of c's model. A variant's settings take the place of those that c does not give. */
int api_choose_model(struct exchange *x, struct request_common *c);
/* False with x answered: the model can't do what c asks for. */
bool api_model_fits(struct exchange *x, const struct request_common *c, int model);
/* Its key's tier may use the model. (api_models.c) */
bool api_model_visible(const struct exchange *x, const struct link_model *m);
/* "ready", "absent", "loading" (api_model_loads: its percent counts) or "failed". */
const char *api_model_state(const struct link_model *m);
bool api_model_loads(const struct link_model *m);
/* The id in x's path. False with x answered: it is none of this tenant's. (api_conversations.c) */
bool api_conversation_on_path(struct exchange *x, char id[CONVERSATION_ID_BYTES]);
/* False with x answered (403): its key is a browser token or anonymous. */
bool api_needs_key(struct exchange *x, const char *message);
/* The client sent `x-sluice-events: 1`: it resumes streams by event numbers. */
bool api_wants_ids(const struct exchange *x);
/* The spec of an answer as far as the common fields and x determine it. */
struct answer_spec api_spec(const struct exchange *x, const struct request_common *c,
			    const struct answer_format *format, int model);

#endif
