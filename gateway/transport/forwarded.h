/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's address behind proxies, from X-Forwarded-For or Forwarded (RFC 7239). Any client can send these fields,
 * so an entry counts only if the hop that wrote it is trusted. Pure.
 */
#ifndef GATEWAY_FORWARDED_H
#define GATEWAY_FORWARDED_H

#include "gateway/transport/http.h"
#include "gateway/loop/net_addr.h"

/* The field that the proxies write. Reading both would be unsafe: a proxy passes the field that it does not know. */
enum forwarded_kind { FORWARDED_OFF, FORWARDED_X_FORWARDED_FOR, FORWARDED_RFC7239 };

/* *client: the right-most address that is not trusted, starting with the peer; the left-most one if all are trusted. An
 * entry without an address (`unknown`, `_name`) ends the search at the hop that wrote it. 0, or SL_EPROTO: a Forwarded
 * field is malformed, so its elements can't be separated. */
int forwarded_client(enum forwarded_kind kind, const struct http_field *fields, size_t n_fields,
		     const struct net_blocks *trusted, const struct net_addr *peer, struct net_addr *client);

#endif
