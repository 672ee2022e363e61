/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in page: the files of gateway/www, inside the executable. The table is made by
 * gateway/embed.sh at build time.
 */
#ifndef GATEWAY_WWW_H
#define GATEWAY_WWW_H

#include <stddef.h>
#include <stdint.h>

struct www_file {
	const char *path;         /* of a request: "/www/app.js"; index.html is "/" */
	const char *content_type; /* "text/javascript; charset=utf-8" */
	const char *etag;         /* with its quotes; changes with the content */
	const uint8_t *bytes;
	size_t n;
};

/* The file at a request's path (exact match), or NULL. Static: never freed. */
const struct www_file *www_find(const char *path);

/* The table itself, n_www_files long, for listings and tests. */
extern const struct www_file www_files[];
extern const size_t n_www_files;

#endif
