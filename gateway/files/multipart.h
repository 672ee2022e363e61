/* SPDX-License-Identifier: Apache-2.0
 *
 * A form of the type multipart/form-data (RFC 7578, RFC 2046 5.1), complete in memory: its parts, one after the other,
 * borrowed from its bytes. Pure, in one pass.
 *
 * It is read strictly: CRLF ends lines, nothing but a line break comes before the first delimiter, and what follows the
 * last one does not matter. Lines of a part's head, their number and the number of parts are bounded.
 */
#ifndef GATEWAY_MULTIPART_H
#define GATEWAY_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
	MULTIPART_BOUNDARY_BYTES = 71, /* RFC 2046: 70, and a NUL */
	MULTIPART_MOST_PARTS = 16,
	MULTIPART_MOST_HEADERS = 8,  /* of a part */
	MULTIPART_LINE_BYTES = 1024, /* of a header, with its line break */
	MULTIPART_NAME_BYTES = 64,   /* of a field's name, with a NUL */
	MULTIPART_FILENAME_BYTES = 512,
};

struct multipart {
	const char *at, *end;
	char delimiter[MULTIPART_BOUNDARY_BYTES + 4]; /* CRLF, "--", the boundary */
	size_t n_delimiter;
	unsigned n_parts;
};

struct multipart_part {
	char name[MULTIPART_NAME_BYTES];
	char filename[MULTIPART_FILENAME_BYTES]; /* without a NUL inside */
	bool has_filename;
	const char *type; /* of its Content-Type; NULL: none */
	size_t n_type;
	const char *bytes;
	size_t n;
};

/* content_type: the request's header. 0; SL_EINVAL with err: it has no boundary, or the form does not begin with it. */
int multipart_init(struct multipart *m, const char *content_type, const char *bytes, size_t n, struct sl_err *err);
/* 1: *out is the next part; 0: that was the last one; SL_EINVAL with err. */
int multipart_next(struct multipart *m, struct multipart_part *out, struct sl_err *err);

#endif
