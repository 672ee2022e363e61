/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prompts: a response's `prompt: {id, version, variables}` as the text that the configuration
 * has under that name.
 */
#ifndef GATEWAY_RESPONSE_PROMPT_H
#define GATEWAY_RESPONSE_PROMPT_H

#include "gateway/config/gw_config.h"
#include "gateway/request/response_request.h"

/* Puts the prompt that r names, with its variables filled in, before r's input as a developer's
 * message. Every variable of the text must be given and each given one be in it. 0 (also when r names
 * none), SL_ENOTFOUND (no such prompt or version) or SL_EINVAL with *e filled, SL_ENOMEM. */
int response_prompt_apply(const struct gw_config *cfg, struct response_request *r, struct request_error *e);

#endif
