/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of www/, embedded by the build (etc/embed.sh writes the table).
 */
#ifndef GATEWAY_WWW_H
#define GATEWAY_WWW_H

#include <stddef.h>

struct www_file {
	const char *name; /* "index.html" */
	const char *content_type;
	const char *etag; /* quoted */
	const unsigned char *bytes;
	size_t n_bytes;
};

extern const struct www_file www_files[]; /* ends with name == NULL */

/* NULL when there is none of that name. */
const struct www_file *www_find(const char *name);

#endif
