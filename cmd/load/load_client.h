/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is the load generator of `sluice bench`: this HTTP client, the parsers for its replies (base/http,
 * chat_chunk), what is sent and when (load_run, workload, arrivals), and the statistics (histogram,
 * serve_stats, batch_means, sweep). The client drives many connections with many streams over HTTP/2 (TLS with ALPN, or
 * cleartext with prior knowledge) or HTTP/1.1. It reports when bytes arrived and leaves their meaning to its caller.
 *
 *   call      one request in flight and its callbacks
 *   turn      one pass of the client's event loop
 *
 * Thread: one per client; cmd/bench calls it.
 */
#ifndef CMD_LOAD_CLIENT_H
#define CMD_LOAD_CLIENT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/list.h"

struct load_client;
struct load_conn;

struct load_target {
	char host[256];
	char authority[300]; /* host and port as in the URL */
	char path[512];      /* of the URL, without a trailing slash; may be empty */
	struct sockaddr_storage addr;
	socklen_t addr_bytes;
	bool tls;
	bool http1;          /* else HTTP/2 */
	bool verify;         /* the certificate; by default false only for loopback */
	const char *ca_file; /* NULL: the system's */
};

/* Parses http://HOST[:PORT][/PATH] or https://… and resolves HOST. SL_EINVAL or SL_EIO with *err. */
int load_target_parse(const char *url, struct load_target *out, struct sl_err *err);

enum load_end {
	LOAD_DONE,  /* the response is complete */
	LOAD_RESET, /* the server reset the stream */
	LOAD_LOST,  /* the connection broke or could not be opened */
};

struct load_call;
struct load_ops {
	void (*on_head)(struct load_call *call, int status, uint64_t now_ns);
	/* bytes: borrowed until it returns. now_ns: when they were read. */
	void (*on_data)(struct load_call *call, const uint8_t *bytes, size_t n, uint64_t now_ns);
	/* The last callback. It may start the call again. */
	void (*on_end)(struct load_call *call, enum load_end how, uint64_t now_ns);
};

/* A request in flight, embedded in its owner, which keeps it until on_end or load_client_destroy. */
struct load_call {
	const struct load_ops *ops;
	struct list node;
	struct load_conn *conn; /* NULL: not in flight */
	int32_t stream;
	const char *body; /* borrowed until on_end */
	size_t n_body, body_at;
};

/* Connections open on first use or by load_client_connect. target is copied. */
int load_client_create(const struct load_target *target, int n_conns, struct load_client **out, struct sl_err *err);
/* Calls in flight get no callback. */
void load_client_destroy(struct load_client *c);
/* Starts connecting if the connection is closed. */
int load_client_connect(struct load_client *c, int conn);
/* The number of connections ready for requests, past the handshake. */
int load_client_n_up(const struct load_client *c);
/* Sends a POST of JSON to target.path + path with a bearer key (NULL: none). Strings are copied, the body is borrowed.
 * Over HTTP/1.1 a connection carries one call at a time. 0, SL_ELIMIT (busy), SL_ECLOSED (the server accepts no more
 * requests on this connection, which still has calls), SL_ENOMEM, SL_EIO. */
int load_client_start(struct load_client *c, int conn, struct load_call *call, const char *path, const char *key,
		      const char *body, size_t n_body);
/* Runs one turn: waits for input until until_ns at most, then handles it. */
void load_client_turn(struct load_client *c, uint64_t until_ns);
/* Why a connection last failed; "": none has. */
const char *load_client_why(const struct load_client *c);

#endif
