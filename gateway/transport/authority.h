/* SPDX-License-Identifier: Apache-2.0
 *
 * The authority of a request: Host, :authority, or what an absolute-form target names.
 */
#ifndef GATEWAY_AUTHORITY_H
#define GATEWAY_AUTHORITY_H

#include <stdbool.h>
#include <stddef.h>

/* host [":" port] as RFC 3986 3.2 writes them, and nothing else: no userinfo (RFC 9110 4.2.4, RFC 9113 8.3.1), no empty
 * host (RFC 9110 4.2.1). text need not be terminated. */
bool authority_is_valid(const char *text, size_t n);

#endif
