/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prompts: replaces a response's `prompt: {id, version, variables}` by the configured text of that name.
 */
#ifndef GATEWAY_RESPONSE_PROMPT_H
#define GATEWAY_RESPONSE_PROMPT_H

#include "gateway/config/gw_config.h"
#include "gateway/request/response_request.h"

/* Inserts r's prompt, with its variables filled in, as a developer message before r's input. The variables given must
 * be exactly those of the text. 0 (also if r has no prompt); SL_ENOTFOUND (no such prompt or version) or SL_EINVAL,
 * with *e; SL_ENOMEM. */
int response_prompt_apply(const struct gw_config *cfg, struct response_request *r, struct request_error *e);

#endif
