/* SPDX-License-Identifier: Apache-2.0
 *
 * An HTTP client that makes load: many connections with many streams on one thread, HTTP/2 (TLS with
 * ALPN, cleartext with prior knowledge) or HTTP/1.1. It reports when bytes came and judges nothing.
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
	char authority[300]; /* host and port, as the URL has them */
	char path[512];      /* the URL's own, without a slash at its end; may be empty */
	struct sockaddr_storage addr;
	socklen_t addr_bytes;
	bool tls;
	bool http1;          /* else HTTP/2 */
	bool verify;         /* the certificate; false by default on loopback only */
	const char *ca_file; /* NULL: the system's */
};

/* http://HOST[:PORT][/PATH] or https://…; resolves the name. SL_EINVAL or SL_EIO with a line. */
int load_target_parse(const char *url, struct load_target *out, struct sl_err *err);

enum load_end {
	LOAD_DONE,  /* the answer is whole */
	LOAD_RESET, /* the server ended the stream */
	LOAD_LOST,  /* the connection broke, or could not be made */
};

struct load_call;
struct load_ops {
	void (*on_head)(struct load_call *call, int status, uint64_t now_ns);
	/* Borrowed for the call; now_ns is when the bytes were read. */
	void (*on_data)(struct load_call *call, const uint8_t *bytes, size_t n, uint64_t now_ns);
	/* The last one; the call may be started again in it. */
	void (*on_end)(struct load_call *call, enum load_end how, uint64_t now_ns);
};

/* A request in flight, embedded in its owner, which keeps it until on_end or the client's end. */
struct load_call {
	const struct load_ops *ops;
	struct list node;
	struct load_conn *conn; /* NULL: not in flight */
	int32_t stream;
	const char *body; /* borrowed until on_end */
	size_t n_body, body_at;
};

/* The connections are made when first used, or by load_client_connect. target: copied. */
int load_client_create(const struct load_target *target, int n_conns, struct load_client **out, struct sl_err *err);
/* Calls in flight get no callback. */
void load_client_destroy(struct load_client *c);
/* Begins to connect, if it is not there. */
int load_client_connect(struct load_client *c, int conn);
/* Connections that are ready for requests (after the handshake). */
int load_client_n_up(const struct load_client *c);
/* POST of JSON to target.path + path, with a bearer key (NULL: none). Strings are copied, the body
 * is not. With HTTP/1.1 a connection takes one call at a time. 0, SL_ELIMIT (busy), SL_ECLOSED (the
 * server takes no more on this connection, which still has calls), SL_ENOMEM, SL_EIO. */
int load_client_start(struct load_client *c, int conn, struct load_call *call, const char *path, const char *key,
		      const char *body, size_t n_body);
/* Handles what there is, waits for it until until_ns at most. */
void load_client_turn(struct load_client *c, uint64_t until_ns);
/* Why the last connection broke or was not made; "" when none did. */
const char *load_client_why(const struct load_client *c);

#endif
