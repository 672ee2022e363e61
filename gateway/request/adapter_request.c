/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/adapter_request.h"

#include <string.h>

/* A text of 1 to `most` bytes without control characters. */
static int get_text(const json_t *body, const char *name, size_t most, struct proto_str *out, struct request_error *e)
{
	const json_t *v = request_get(body, name);
	if (v == NULL)
		return request_missing(e, name);
	if (!json_is_string(v))
		return request_wrong_type(e, name, "a string", v);
	*out = (struct proto_str){json_string_value(v), json_string_length(v)};
	if (out->n > most)
		return request_bad(e, "string_above_max_length", name,
				   "Invalid '%s': it has at most %zu bytes, not %zu.", name, most, out->n);
	if (out->n == 0)
		return request_bad(e, "invalid_value", name, "Invalid '%s': it is empty.", name);
	for (size_t i = 0; i < out->n; i++)
		if ((unsigned char)out->at[i] < ' ' || out->at[i] == 0x7f)
			return request_bad(e, "invalid_value", name, "Invalid '%s': it has a control character.", name);
	return 0;
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, bool load, struct adapter_request *out,
		 struct request_error *e)
{
	*out = (struct adapter_request){.adapter = {.load = load, .path = {"", 0}}};
	*e = (struct request_error){0};
	int rc = request_parse_doc(bytes, n, l, &out->body, e);
	if (rc == 0)
		rc = get_text(out->body.root, "lora_name", PROTO_MAX_NAME, &out->adapter.name, e);
	if (rc == 0 && load)
		rc = get_text(out->body.root, "lora_path", PROTO_MAX_PATH, &out->adapter.path, e);
	if (rc != 0)
		adapter_request_dispose(out);
	return rc;
}

int adapter_load_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct adapter_request *out,
			       struct request_error *e)
{
	return parse(bytes, n, l, true, out, e);
}

int adapter_unload_request_parse(const void *bytes, size_t n, const struct request_limits *l,
				 struct adapter_request *out, struct request_error *e)
{
	return parse(bytes, n, l, false, out, e);
}

void adapter_request_dispose(struct adapter_request *r)
{
	json_doc_dispose(&r->body);
	r->adapter = (struct proto_adapter){.load = false};
}
