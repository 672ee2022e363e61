/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of POST /v1/files: its fields, checked. Pure.
 */
#ifndef GATEWAY_UPLOAD_H
#define GATEWAY_UPLOAD_H

#include <stdint.h>

#include "gateway/files/multipart.h"
#include "gateway/request/request_error.h"

enum { UPLOAD_PURPOSE_BYTES = 32 };

struct upload {
	struct multipart_part file; /* text with a name; borrows the form's bytes */
	char purpose[UPLOAD_PURPOSE_BYTES];
	uint64_t keep_s; /* expires_after[seconds]; 0: absent */
};

/* content_type: the request's, NULL: none. 0, or SL_EINVAL with *e, which names the field. */
int upload_read(const char *content_type, const char *bytes, size_t n, struct upload *out, struct request_error *e);

#endif
