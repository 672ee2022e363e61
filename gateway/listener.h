/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets of one thread.
 */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include <event2/event_struct.h>

#include "gateway/transport.h"

struct listener {
	struct list node;
	struct gw_transport *tr;
	int fd;
	bool tls;
	uint16_t port;
	struct event ev;
};

/* One socket for each address that addr names (localhost: both loopbacks when there are two). */
int listeners_open(struct gw_transport *tr, const struct conf_address *addr, bool tls,
		   struct sl_err *err);
void listeners_close(struct gw_transport *tr);
/* From the tick: accept again after a pause. */
void listeners_tick(struct gw_transport *tr, uint64_t now_ns);

#endif
