/* SPDX-License-Identifier: Apache-2.0
 *
 * One client connection: the socket, TLS if the listener uses it, and output that the socket has not taken. A protocol
 * (h1.c, h2.c) sits on top and sees plain bytes only.
 *
 *   PROXY ─proxy_input─► HANDSHAKE, DETECT    the PROXY header is complete
 *   HANDSHAKE, DETECT ─attach─► OPEN          the handshake is done, or the cleartext protocol is known
 *   any ─flush_conn─► FINISHING               conn_finish was called and output is left
 *   any ─begin_linger─► LINGER                the last byte is out; our side is shut
 *   any ─conn_close─► CLOSED
 *
 * Thread: the transport's.
 */
#ifndef GATEWAY_CONN_H
#define GATEWAY_CONN_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/loop/deadline.h"
#include "gateway/transport/http.h"
#include "gateway/loop/net_addr.h"
#include "gateway/transport/transport.h"

struct addr_count;
struct conn;
struct listener_options;
struct tls_conn;

/* Protocol callbacks run inside conn.c's events, one at a time. They must not close the connection; they return an
 * error, or call conn_finish or conn_doom. */
struct conn_proto {
	/* Takes all n bytes from the peer, borrowed for the call. 0, or a negative code: the connection closes after a
	 * last fill. */
	int (*on_input)(struct conn *c, const uint8_t *data, size_t n);
	/* Appends output, at most about `room` bytes (one frame more is allowed). *more: output is left. */
	int (*fill)(struct conn *c, struct sl_buf *out, size_t room, bool *more);
	/* Bytes of output queued inside the protocol. */
	size_t (*queued)(struct conn *c);
	/* Ends the connection when its open streams have ended. */
	void (*drain)(struct conn *c);
	/* The connection's deadline (c->deadline) has passed. */
	void (*on_deadline)(struct conn *c);
	/* Closes every open stream and frees the protocol's state. */
	void (*destroy)(struct conn *c, enum http_close_reason why);
	/* Callbacks of one stream. */
	int (*respond)(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields);
	void (*body_ready)(struct http_stream *s);
	void (*reset)(struct http_stream *s);
	/* A stream's receive or stall deadline has passed. */
	void (*stream_timeout)(struct http_stream *s);
};

extern const struct conn_proto h1_proto, h2_proto;
int h1_attach(struct conn *c); /* sets c->p; 0 or SL_ENOMEM */
enum { H1_HOT_BYTES = 192 };   /* of its state, what an event of a response uses */
int h2_attach(struct conn *c);
int h2_env_create(const struct gw_config *cfg, struct h2_env **out);
void h2_env_destroy(struct h2_env *e);

/* Only conn_set_state assigns it. */
enum conn_state {
	CONN_PROXY,     /* reading a balancer's PROXY header */
	CONN_HANDSHAKE, /* TLS */
	CONN_DETECT,    /* cleartext; the protocol is not known yet */
	CONN_OPEN,
	CONN_FINISHING, /* input is discarded; the remaining output goes out */
	CONN_LINGER,    /* our side is shut; input is discarded so that the peer can read the response */
	CONN_CLOSED,    /* unlinked; freed at the end of the iteration */
};

enum { CONN_PREFACE_BYTES = 24 };

/* What the expired deadline waited for. */
enum conn_timeout {
	TIMEOUT_HANDSHAKE,
	TIMEOUT_HEADER, /* the head of a request */
	TIMEOUT_BODY,
	TIMEOUT_IDLE,
	TIMEOUT_STALL,    /* the peer takes no bytes of a stream */
	TIMEOUT_OUTPUT,   /* the peer takes no bytes of the connection */
	TIMEOUT_RESPONSE, /* the absolute limit of a response */
	TIMEOUT_PROXY,
};

struct conn {
	struct list node; /* in the transport's conns */
	struct gw_transport *tr;
	const struct conn_proto *proto; /* NULL before CONN_OPEN */
	void *p;                        /* the protocol's state, owned by it */
	struct tls_conn *tls;           /* owned; NULL: cleartext */
	int fd;
	enum conn_state state;
	bool read_on, write_on; /* events added */
	bool late;              /* accepted while draining */
	bool eof;               /* the peer has shut its side */
	bool finish;            /* end when the output is out */
	bool doomed;            /* close at the end of the iteration, for the reason below */
	enum http_close_reason doom;
	uint8_t n_preface;
	uint8_t preface[CONN_PREFACE_BYTES];
	struct event ev_read, ev_write;
	struct sl_buf pending;    /* wire bytes that the socket did not take */
	struct deadline deadline; /* handshake, header, idle or linger */
	struct deadline stall;    /* pending without progress */
	struct gw_deferred flush;
	uint64_t filled_turn; /* the iteration of the last fill */
	size_t filled;        /* plain bytes filled in that iteration */
	uint32_t number;      /* counts the thread's connections from 1 */
	struct list streams;  /* struct http_stream */
	struct list holds;    /* struct http_hold: slots held by streams that have ended */
	int64_t n_streams, n_holds;
	size_t lingered;
	struct net_addr addr;       /* the peer's, or the PROXY header's */
	struct addr_count *counted; /* the count of that address; NULL: not counted */
	bool wants_tls;             /* cleartext HTTP on a TLS port: the request gets an error response */
	bool over;                  /* the address is over its limit: the first request gets 429 */
	uint8_t client_certs;       /* enum gw_client_certs */
	struct list shaking;        /* in the transport's list while the handshake waits */
	struct sl_buf proxy_head;   /* an incomplete PROXY header */
	char *subject;              /* owned: the subject of the client's certificate */
	struct http_kept *kept;     /* the application's; NULL: nothing */
	char peer[NET_ADDR_TEXT];   /* addr, "" for a unix socket */
};

/* Takes fd; closes it on failure. */
void conn_accept(struct gw_transport *tr, int fd, const struct listener_options *o, const struct net_addr *peer);
/* Event callback: runs the next waiting handshakes. arg: the transport. */
void conn_shake_turn(evutil_socket_t fd, short what, void *arg);
/* Schedules a flush at the end of the iteration or at the next gw_run_output. Any number of calls is fine. */
void conn_schedule(struct conn *c);
/* Stops input and ends the connection in order when its output is out. */
void conn_finish(struct conn *c);
/* Closes the connection at the end of the iteration; the first reason counts. */
void conn_doom(struct conn *c, enum http_close_reason why);
/* Closes at once; streams get on_close. Must not be called from protocol or application callbacks. */
void conn_close(struct conn *c, enum http_close_reason why);
/* Counts an expired deadline. */
void conn_count_timeout(enum conn_timeout phase);
/* Drains the protocol. A connection without a protocol drains when it gets one. */
void conn_drain(struct conn *c);

#endif
