/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of routes. Other paths get 404. A path is matched exactly as sent, without decoding or normalising, so no
 * spelling of it can bypass its row's access.
 */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

enum access {
	ACCESS_PUBLIC,
	ACCESS_KEY,        /* a key with a tier */
	ACCESS_ADMIN,      /* an administrator's key, or public if configured */
	ACCESS_ADMIN_ONLY, /* an administrator's key in any case */
};

enum route_body {
	BODY_NONE,
	BODY_JSON,
	BODY_FORM, /* multipart/form-data */
};

struct route {
	const char *method; /* "GET" (answers HEAD too), "POST" or "DELETE" */
	const char *path;   /* exact, except `{name}`: any non-empty segment, and `{model}` at the end: one or more
			     * segments, because models may be named org/name */
	enum access access;
	enum route_body body;
	void (*handle)(struct exchange *x); /* the body is complete */
	const char *name;                   /* for metrics and the access log */
	bool takes_idempotency_key;         /* idempotent.h */
};

extern const struct route routes[];
extern const size_t n_routes;

/* The row for method and path. NULL: only the method is wrong (*allow: the path's methods), or the path is unknown
 * (*allow NULL). A path below /v1/responses/ whose name can't be a response's is unknown. */
const struct route *route_find(const char *method, const char *path, const char **allow);
/* The text at the first `{name}` of the path that r was found for. False: longer than room - 1 bytes. */
bool route_part(const struct route *r, const char *path, char *out, size_t room);
/* Decodes percent escapes (RFC 3986 2.1) in place: for names that are looked up, never for finding a route. False, with
 * part undefined: an escape is malformed, or the result has control characters or is not UTF-8. */
bool route_unescape(char *part);
/* The methods of a path ("GET, HEAD, OPTIONS"), or NULL. */
const char *route_methods(const char *path);

#endif
