/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the bodies of POST /v1/load_lora_adapter and /v1/unload_lora_adapter, in vLLM's forms. Pure.
 */
#ifndef GATEWAY_ADAPTER_REQUEST_H
#define GATEWAY_ADAPTER_REQUEST_H

#include "base/proto/proto.h"
#include "gateway/request/request_fields.h"

struct adapter_request {
	struct json_doc body; /* owned; texts point into it */
	struct proto_adapter adapter;
};

int adapter_load_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct adapter_request *out,
			       struct request_error *e);
int adapter_unload_request_parse(const void *bytes, size_t n, const struct request_limits *l,
				 struct adapter_request *out, struct request_error *e);
void adapter_request_dispose(struct adapter_request *r);

#endif
