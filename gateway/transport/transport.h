/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header: the transport of one gateway thread. It owns the thread's listeners, connections and
 * streams, and the resources that they share: buffers, deadline lists, the TLS context.
 *
 *   listener    a listening socket and its options
 *   connection  one accepted socket, with or without TLS (conn.h)
 *   protocol    HTTP/1.1 or HTTP/2 on a connection (h1.c, h2*.c)
 *   stream      one request with its response (http.h, the application's interface)
 *   drain       the end of the transport: each connection closes when its streams have ended
 *
 * Thread: one gateway thread, without locks. Client counts, memory pressure, session tickets and inherited sockets
 * are per process. Only this room accesses the struct. gateway/server calls the functions below; the other gateway
 * rooms use http.h.
 */
#ifndef GATEWAY_TRANSPORT_H
#define GATEWAY_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/loop/deadline.h"
#include "gateway/transport/http.h"
#include "gateway/loop/net_addr.h"
#include "gateway/loop/thread.h"
#include "gateway/transport/tls.h"

struct h2_env;
struct listener;

enum {
	TRANSPORT_READ_BYTES = 65536,
	TRANSPORT_TEXT_BYTES = TRANSPORT_READ_BYTES + TLS_RECORD_BYTES,
	TRANSPORT_TICK_MS = 250,
};

struct gw_transport {
	struct gw_thread *t;
	const struct http_app *app; /* borrowed */
	void *app_ctx;
	struct list listeners; /* struct listener */
	struct list conns;     /* struct conn, also lingering ones */
	int64_t n_conns, n_streams;
	/* Streams that ended in this iteration (struct http_stream, node). The code that closed them may still use
	 * them. */
	struct list closed;
	struct gw_deferred free_closed;
	uint32_t last_number;    /* of the newest connection */
	struct tls_context *tls; /* one reference; NULL: no listener with TLS */
	/* Connections whose handshake waits for a later iteration (struct conn, shaking), and how many handshake
	 * reads this iteration may still run. */
	struct list shaking;
	int64_t shakes_left;
	struct event *shake_turn;
	struct h2_env *h2;
	struct event *tick;
	int reserve_fd;           /* closed for a moment when descriptors run out */
	uint64_t accept_after_ns; /* accepting is paused until then; 0: not paused */
	bool draining;
	bool replaced;  /* draining; another process listens */
	bool accepting; /* the listeners are in the loop */
	/* One list for each length of wait. */
	struct deadline_list handshake, header, body, idle, stall, response, linger;
	/* Scratch buffers of all connections. Their contents are valid within one event only. */
	uint8_t *read_buf; /* TRANSPORT_READ_BYTES from a socket */
	uint8_t *text_buf; /* TRANSPORT_TEXT_BYTES, decrypted */
	struct sl_buf plain, wire;
	/* From the configuration: addresses exempt from limits, and trusted proxies. */
	struct net_blocks exempt, trusted;
	/* "Fri, 20 Nov 2026 20:00:00 GMT"; renewed each second. */
	char date[32];
	int64_t date_s;
};

/* Listens on t->cfg's addresses and serves app, whose callbacks receive app_ctx. Accepts at once, unless
 * t->cfg->takeover is set or sockets were inherited (handover_given). On failure *err is one line that names the
 * address. */
int transport_create(struct gw_thread *t, const struct http_app *app, void *app_ctx, struct gw_transport **out,
		     struct sl_err *err);
/* Starts to accept; does nothing if it accepts already. 0 or SL_EIO. */
int transport_accept(struct gw_transport *tr);
/* Applies a changed t->cfg: its lists of addresses, and its deadlines for waits that begin from now on. */
void transport_reload(struct gw_transport *tr);
/* Closes each connection when its streams have ended. replaced: another process listens on the same sockets; this one
 * stops accepting, and an idle HTTP/1.1 connection may send one more request. Otherwise the transport keeps accepting,
 * so that /live and /ready are answered until the end (http_is_late), and idle connections close. May be called again
 * with replaced false. */
void transport_drain(struct gw_transport *tr, bool replaced);
bool transport_empty(const struct gw_transport *tr);
/* Have all connections closed that a drain waits for? */
bool transport_drained(const struct gw_transport *tr);
/* Open streams get on_close(HTTP_CLOSE_SHUTDOWN). */
void transport_destroy(struct gw_transport *tr);

/* SL_EIO and one line if another process listens on one of the configured addresses. With SO_REUSEPORT two instances
 * of one user would share the port silently. So this check runs once, before the first thread listens. */
int transport_check_ports(const struct gw_config *cfg, struct sl_err *err);
/* The bound port (tests listen on port 0); 0: no such listener. */
uint16_t transport_port(const struct gw_transport *tr, bool tls);
/* Uses ctx for new connections; takes the caller's reference. A transport without TLS listeners releases it. */
void transport_set_tls(struct gw_transport *tr, struct tls_context *ctx);
/* The value of the response's `date` field. */
const char *transport_date(struct gw_transport *tr);

#endif
