/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets of one thread.
 */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include <event2/event_struct.h>

#include "gateway/transport/transport.h"

/* Of its connections. */
struct listener_options {
	bool tls;
	bool proxy;       /* each begins with a PROXY header */
	int client_certs; /* enum gw_client_certs */
};

struct listener {
	struct list node;
	struct gw_transport *tr;
	int fd;
	struct listener_options options;
	uint16_t port;   /* 0: a unix socket */
	char *unix_path; /* owned; NULL: TCP */
	struct event ev;
};

/* One socket for each address that addr names (localhost: both loopbacks when there are two). */
int listeners_open(struct gw_transport *tr, const struct conf_address *addr, const struct listener_options *o,
		   struct sl_err *err);
/* One more of the configuration. */
int listeners_open_config(struct gw_transport *tr, const struct gw_listener_config *l, struct sl_err *err);
void listeners_close(struct gw_transport *tr);
/* From the tick: accept again after a pause. */
void listeners_tick(struct gw_transport *tr, uint64_t now_ns);

#endif
