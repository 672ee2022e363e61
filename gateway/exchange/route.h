/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of what is served. What is not in it is 404; a path is matched exactly as it was
 * sent (nothing decoded, nothing normalised), so no writing of it can go around its row's access.
 */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

enum access {
	ACCESS_PUBLIC,
	ACCESS_KEY,   /* a key with a tier */
	ACCESS_ADMIN, /* an administrator's key, or public if so configured */
};

struct route {
	const char *method; /* "GET" (answers HEAD too), "POST" or "DELETE" */
	const char *path;   /* exact, but for `{name}`, which is any one part that is not empty, and `{model}` at the
			     * end: one or more of them, as models may be named org/name */
	enum access access;
	bool takes_body;                    /* JSON */
	void (*handle)(struct exchange *x); /* the body is complete */
	const char *name;                   /* for metrics and the access log */
	bool takes_idempotency_key;         /* idempotent.h */
};

extern const struct route routes[];
extern const size_t n_routes;

/* The row for method and path; NULL with *allow set to the path's methods when only the method is
 * wrong, or NULL when the path is unknown, which one below /v1/responses/ also is when its name can't be a response's.
 */
const struct route *route_find(const char *method, const char *path, const char **allow);
/* The text at the first `{name}` of the path that r was found for. False when it is longer than
 * room - 1 bytes. */
bool route_part(const struct route *r, const char *path, char *out, size_t room);
/* Such a part as it was before a client wrote %2F for / (RFC 3986, section 2.1), in place: for names that are looked
 * up, never for finding a route. False, with part undefined, when an escape is none, or what comes of it is a control
 * character or not UTF-8. */
bool route_unescape(char *part);
/* The methods of a path ("GET, HEAD, OPTIONS"), or NULL. */
const char *route_methods(const char *path);

#endif
