/* SPDX-License-Identifier: Apache-2.0
 *
 * The room's front header: the transport of one gateway thread.
 *
 * It owns the thread's listeners, connections and streams, and what they share: buffers, deadline lists, the TLS
 * context.
 *   listener    a listening socket and its options
 *   connection  one accepted socket, with TLS or without (conn.h)
 *   protocol    HTTP/1.1 or HTTP/2 on a connection (h1.c, h2*.c)
 *   stream      one exchange of request and response (http.h, the application's interface)
 * Thread: one gateway thread, without locks; client counts and memory pressure are per process.
 * The struct is open to this room only. gateway/server calls the functions at the end.
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
	/* Streams that have ended in this turn (struct http_stream, node): their closers may still use them. */
	struct list closed;
	struct gw_deferred free_closed;
	uint32_t last_number;    /* of a connection */
	struct tls_context *tls; /* one count; NULL: no listener with TLS */
	/* Handshakes that wait for a turn of the loop (struct conn, shaking), and how many may run in
	 * this one. */
	struct list shaking;
	int64_t shakes_left;
	struct event *shake_turn;
	struct h2_env *h2;
	struct event *tick;
	int reserve_fd;           /* given up for a moment when descriptors run out */
	uint64_t accept_after_ns; /* accepting is paused until then; 0: not paused */
	bool draining;
	bool replaced;  /* draining: another process listens */
	bool accepting; /* the listeners are in the loop */
	/* Waits, one list a length. */
	struct deadline_list handshake, header, body, idle, stall, response, linger;
	/* Shared by all connections, used within one event only: nothing of a connection stays
	 * here. */
	uint8_t *read_buf; /* TRANSPORT_READ_BYTES from a socket */
	uint8_t *text_buf; /* TRANSPORT_TEXT_BYTES, decrypted */
	struct sl_buf plain, wire;
	/* Of the configuration: addresses exempt from limits, and trusted proxies. */
	struct net_blocks exempt, trusted;
	/* "Fri, 20 Nov 2026 20:00:00 GMT", renewed each second. */
	char date[32];
	int64_t date_s;
};

/* Listens on t->cfg's addresses and serves app, whose callbacks get app_ctx; accepts at once unless
 * t->cfg->takeover or another process was there before (handover_given). On failure *err is one line that names the
 * address. */
int transport_create(struct gw_thread *t, const struct http_app *app, void *app_ctx, struct gw_transport **out,
		     struct sl_err *err);
/* Begins to accept, if it has not yet. 0 or SL_EIO. */
int transport_accept(struct gw_transport *tr);
/* t->cfg has changed: deadlines that begin from now on are its, and so are lists of addresses. */
void transport_reload(struct gw_transport *tr);
/* Asks every connection to end when its streams have. replaced: another process listens on the same
 * sockets; this one stops accepting, and connections of HTTP/1.1 that are idle may ask once more.
 * Otherwise it keeps accepting, so that /live and /ready stay true to the last (http_is_late), and idle
 * connections end. May be called again with replaced false. */
void transport_drain(struct gw_transport *tr, bool replaced);
bool transport_empty(const struct gw_transport *tr);
/* No connection is left that a drain waits for. */
bool transport_drained(const struct gw_transport *tr);
/* Streams that are still open get on_close(HTTP_CLOSE_SHUTDOWN). */
void transport_destroy(struct gw_transport *tr);

/* SL_EIO and one line when another process listens on one of the configured addresses. Sockets with
 * SO_REUSEPORT would silently share the port with another instance of the same user, so this is checked
 * once, before the first thread listens. */
int transport_check_ports(const struct gw_config *cfg, struct sl_err *err);
/* The port really bound (tests listen on port 0); 0 when there is no such listener. */
uint16_t transport_port(const struct gw_transport *tr, bool tls);
/* New connections get ctx, of which tr takes one count. Only for a transport that has TLS listeners;
 * otherwise it is released. */
void transport_set_tls(struct gw_transport *tr, struct tls_context *ctx);
/* The current `date` value. */
const char *transport_date(struct gw_transport *tr);

#endif
