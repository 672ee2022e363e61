/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-origin requests (Fetch standard, "CORS protocol"): the origins that may read responses, and the response to a
 * preflight. The built-in page is same-origin and needs none of it.
 */
#ifndef GATEWAY_CORS_H
#define GATEWAY_CORS_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/config/gw_config.h"
#include "gateway/transport/http.h"

enum { CORS_MAX_FIELDS = 3, CORS_PREFLIGHT_FIELDS = 4 };

/* scheme://host or scheme://host:port; the port may be a star. */
bool cors_is_origin(const char *entry);
/* Does an entry match this origin? ":*" at its end matches every port. */
bool cors_matches(const char *entry, const char *origin);
/* Is this origin on the list? An entry may end in ":*" for any port. */
bool cors_allows(const struct gw_config *cfg, const char *origin);
/* Fields for an ordinary response; returns their number (at most CORS_MAX_FIELDS). They borrow from the request and
 * from constants. */
size_t cors_fields(const struct gw_config *cfg, const struct http_request *r, struct http_field *out);
/* The same where only the request's Origin is known; NULL: none. */
size_t cors_origin_fields(const struct gw_config *cfg, const char *origin, struct http_field *out);
/* Is it the preflight of a cross-origin request? */
bool cors_is_preflight(const struct http_request *r);
/* Fields for an allowed preflight, in addition to cors_fields; methods: the route's list. headers has room for
 * CORS_HEADERS_BYTES and must outlive the response. */
enum { CORS_HEADERS_BYTES = 1024 };
size_t cors_preflight_fields(const struct http_request *r, const char *methods, char *headers, struct http_field *out);

#endif
