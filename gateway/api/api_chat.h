/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation is answered: compressed if it is too long, held to its form, and submitted.
 */
#ifndef GATEWAY_API_CHAT_H
#define GATEWAY_API_CHAT_H

#include "gateway/answer/answer.h"
#include "gateway/request/chat_request.h"

/* x gets r's answer in that format, or an error. What it keeps of r it takes, and leaves zeros. own: the format's,
 * taken in any case. */
void api_chat_answer(struct exchange *x, struct chat_request *r, const struct answer_format *format, void *own);

#endif
