/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening sockets of one thread. Thread: the transport's.
 */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include <event2/event_struct.h>

#include "gateway/transport/transport.h"

/* Options of the listener's connections. */
struct listener_options {
	bool tls;
	bool proxy;       /* each connection begins with a PROXY header */
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

/* Opens a socket for each address that addr names ("localhost": both loopbacks, if there are two). */
int listeners_open(struct gw_transport *tr, const struct conf_address *addr, const struct listener_options *o,
		   struct sl_err *err);
/* Opens an additional listener of the configuration. */
int listeners_open_config(struct gw_transport *tr, const struct gw_listener_config *l, struct sl_err *err);
void listeners_close(struct gw_transport *tr);
/* Called each tick: resumes accepting after a pause. */
void listeners_tick(struct gw_transport *tr, uint64_t now_ns);

#endif
