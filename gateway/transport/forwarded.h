/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's address behind proxies: X-Forwarded-For and Forwarded (RFC 7239). Any client can send
 * such a field, so entries are believed only as far as the hops that wrote them are trusted. A pure
 * function over header fields.
 */
#ifndef GATEWAY_FORWARDED_H
#define GATEWAY_FORWARDED_H

#include "gateway/transport/http.h"
#include "gateway/loop/net_addr.h"

/* Which of the two the proxies write. Never both: a proxy passes on what it does not know. */
enum forwarded_kind { FORWARDED_OFF, FORWARDED_X_FORWARDED_FOR, FORWARDED_RFC7239 };

/* The right-most address that is not trusted, starting with the peer itself; when all are, the
 * left-most. An entry that is no address (`unknown`, `_name`) ends the search at the hop that wrote
 * it. 0, or SL_EPROTO: a Forwarded field that breaks its grammar, so its elements can't be
 * separated. */
int forwarded_client(enum forwarded_kind kind, const struct http_field *fields, size_t n_fields,
		     const struct net_blocks *trusted, const struct net_addr *peer, struct net_addr *client);

#endif
