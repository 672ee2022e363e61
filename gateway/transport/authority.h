/* SPDX-License-Identifier: Apache-2.0
 *
 * The authority of a request: the value of Host or :authority, or the authority in an absolute-form target. Pure.
 */
#ifndef GATEWAY_AUTHORITY_H
#define GATEWAY_AUTHORITY_H

#include <stdbool.h>
#include <stddef.h>

/* Is text exactly host [":" port] (RFC 3986 3.2)? Userinfo (RFC 9110 4.2.4, RFC 9113 8.3.1) and an empty host
 * (RFC 9110 4.2.1) are invalid. text need not be terminated. */
bool authority_is_valid(const char *text, size_t n);

#endif
