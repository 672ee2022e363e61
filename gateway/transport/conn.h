/* SPDX-License-Identifier: Apache-2.0
 *
 * One client connection: the socket, TLS on it or not, and what could not be sent yet. A protocol
 * (h1.c, h2.c) sits on top and sees plain bytes only.
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

/* Protocol callbacks run inside conn.c's events, one at a time; none may close the connection
 * itself: they return an error, or call conn_finish or conn_doom. */
struct conn_proto {
	/* Bytes from the peer, borrowed for the call, all of them taken. 0 or a negative code: the
	 * connection is closed after a last fill. */
	int (*on_input)(struct conn *c, const uint8_t *data, size_t n);
	/* Appends output, about `room` bytes at most (a frame more is fine). *more: there is more
	 * to write as soon as there is room. */
	int (*fill)(struct conn *c, struct sl_buf *out, size_t room, bool *more);
	/* Bytes of output that wait inside the protocol. */
	size_t (*queued)(struct conn *c);
	/* End when the open streams have ended. */
	void (*drain)(struct conn *c);
	/* The connection's deadline (c->deadline) has passed. */
	void (*on_deadline)(struct conn *c);
	/* Closes every open stream and frees the protocol's state. */
	void (*destroy)(struct conn *c, enum http_close_reason why);
	/* Of streams. */
	int (*respond)(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields);
	void (*body_ready)(struct http_stream *s);
	void (*reset)(struct http_stream *s);
	/* A stream's receive or stall deadline has passed. */
	void (*stream_timeout)(struct http_stream *s);
};

extern const struct conn_proto h1_proto, h2_proto;
int h1_attach(struct conn *c); /* sets c->p; 0 or SL_ENOMEM */
int h2_attach(struct conn *c);
int h2_env_create(const struct gw_config *cfg, struct h2_env **out);
void h2_env_destroy(struct h2_env *e);

/* Moved only by conn_set_state. */
enum conn_state {
	CONN_PROXY,     /* reading a balancer's PROXY header */
	CONN_HANDSHAKE, /* TLS */
	CONN_DETECT,    /* cleartext: which protocol? */
	CONN_OPEN,
	CONN_FINISHING, /* nothing is read any more; the rest of the output goes out */
	CONN_LINGER,    /* our side is shut; input is thrown away so that the peer can read the answer
			 */
	CONN_CLOSED,    /* unlinked; freed at the end of the turn */
};

enum { CONN_PREFACE_BYTES = 24 };

/* What a deadline was waiting for. */
enum conn_timeout {
	TIMEOUT_HANDSHAKE,
	TIMEOUT_HEADER, /* a request's head */
	TIMEOUT_BODY,
	TIMEOUT_IDLE,
	TIMEOUT_STALL,    /* a stream's reader takes nothing */
	TIMEOUT_OUTPUT,   /* a connection's reader takes nothing */
	TIMEOUT_RESPONSE, /* an answer, absolutely */
	TIMEOUT_PROXY,
};

struct conn {
	struct list node; /* transport's conns */
	struct gw_transport *tr;
	const struct conn_proto *proto; /* NULL before CONN_OPEN */
	void *p;                        /* the protocol's state, owned by it */
	struct tls_conn *tls;           /* owned; NULL: cleartext */
	int fd;
	enum conn_state state;
	bool read_on, write_on; /* events added */
	bool late;              /* accepted while draining */
	bool eof;               /* the peer has ended its side */
	bool finish;            /* end once the output is out */
	bool doomed;            /* close at the end of the turn, for the reason below */
	enum http_close_reason doom;
	uint8_t n_preface;
	uint8_t preface[CONN_PREFACE_BYTES];
	struct event ev_read, ev_write;
	struct sl_buf pending;    /* wire bytes the socket did not take */
	struct deadline deadline; /* handshake, header, idle or linger */
	struct deadline stall;    /* pending without progress */
	struct gw_deferred flush;
	uint64_t filled_turn; /* the turn of the loop in which it was last asked for output */
	size_t filled;        /* and the plain bytes that came in that turn */
	uint32_t number;      /* among the thread's connections, from 1 on */
	struct list streams;  /* struct http_stream */
	struct list holds;    /* struct http_hold of streams that have ended */
	int64_t n_streams, n_holds;
	size_t lingered;
	struct net_addr addr;       /* the peer's, or the PROXY header's */
	struct addr_count *counted; /* among those of that address; NULL: not counted */
	bool wants_tls;             /* cleartext HTTP came to a TLS port: it gets an error response */
	bool over;                  /* its address has too many: its first request is answered so */
	uint8_t client_certs;       /* enum gw_client_certs */
	struct list shaking;        /* while it waits for its turn to shake hands */
	struct sl_buf proxy_head;   /* while it is not whole */
	char *subject;              /* owned: of the client's certificate */
	struct http_kept *kept;     /* the application's; NULL: nothing */
	char peer[NET_ADDR_TEXT];   /* addr, "" for a unix socket */
};

/* Takes fd. On failure it is closed. */
void conn_accept(struct gw_transport *tr, int fd, const struct listener_options *o, const struct net_addr *peer);
/* A turn of the loop has passed: the next of those that wait to shake hands. arg: the transport. */
void conn_shake_turn(evutil_socket_t fd, short what, void *arg);
/* Output is due at the end of the turn, or at the next gw_run_output. Any number of times. */
void conn_schedule(struct conn *c);
/* No further input; when the output is out, an orderly end. */
void conn_finish(struct conn *c);
/* Close at the end of the turn; the first reason counts. */
void conn_doom(struct conn *c, enum http_close_reason why);
/* At once: streams get on_close, the socket is closed. Not from protocol or application callbacks. */
void conn_close(struct conn *c, enum http_close_reason why);
/* Counts what ended by a deadline. */
void conn_count_timeout(enum conn_timeout phase);
/* Asks the protocol to end when it is idle; one that has none yet will be asked when it has. */
void conn_drain(struct conn *c);

#endif
