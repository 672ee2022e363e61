/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: HTTP for the commands that are clients of a server (`chat`, `batch`, `doctor`).
 *
 * Requests to one server, several at once, over libcurl. A call reports its body as it comes, or keeps it; every wait
 * has a deadline. Redirects are not followed: an API has none, and a key must not go elsewhere.
 */
#ifndef CMD_HTTP_CLIENT_H
#define CMD_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

enum {
	HTTP_URL_MAX = 1024,
	HTTP_HEAD_MAX = 64 << 10,
	HTTP_TEXT_MAX = 64 << 20, /* of a body that is kept */
	HTTP_CONNECT_S = 10,
	HTTP_IDLE_S = 120, /* without a byte; streams have heartbeats */
	HTTP_MAX_HEADERS = 8,
};

/* A server and how to reach it. Strings are borrowed and outlive the client. */
struct http_server {
	const char *url;     /* http://HOST[:PORT][/PATH] or https://…, without a trailing slash */
	const char *key;     /* the bearer token; NULL: none */
	const char *ca_file; /* NULL: the system's authorities */
	bool insecure;       /* the certificate is not checked */
};

struct http_client;

enum http_end {
	HTTP_DONE,    /* the response is complete */
	HTTP_LOST,    /* no connection, or it broke */
	HTTP_LATE,    /* a deadline passed */
	HTTP_TOO_BIG, /* over HTTP_TEXT_MAX */
	HTTP_STOPPED, /* on_data said so */
};

/* One request, embedded in its owner, which keeps it until on_end returns. Set the first group; http_call_start sets
 * the rest. */
struct http_call {
	const char *method, *path;             /* path: from the server's URL on; borrowed */
	const char *headers[HTTP_MAX_HEADERS]; /* "Name: value", until NULL; borrowed until http_call_start returns */
	const char *body;                      /* JSON; NULL: none; borrowed until on_end */
	size_t n_body;
	uint32_t idle_s; /* 0: HTTP_IDLE_S */
	/* Bytes of a 2xx response's body; false stops the call. NULL: the body is kept in `text`. */
	bool (*on_data)(struct http_call *c, const char *bytes, size_t n);
	void (*on_end)(struct http_call *c); /* may be NULL; may start the call again */

	struct http_client *client; /* NULL: not in flight */
	struct list node;
	enum http_end end;
	int status;         /* 0: no response */
	struct sl_buf head; /* the response's head, as it came */
	struct sl_buf text; /* the body, where on_data did not get it */
	char why[256];      /* of another end than HTTP_DONE */
	/* From the start of the call, in microseconds; 0: did not come to it. */
	uint64_t us_connected, us_tls, us_first_byte, us_end;
	int version; /* 10, 11, 20, 30 */
	void *easy;
	void *lines;
};

/* SL_EUNSUPPORTED: no libcurl; SL_EINVAL: no such URL; both with *err. */
int http_client_create(const struct http_server *server, struct http_client **out, struct sl_err *err);
/* Calls in flight get no callback. */
void http_client_destroy(struct http_client *c);
/* 0 or SL_ENOMEM. */
int http_call_start(struct http_client *c, struct http_call *call);
/* Frees what the call holds. It must not be in flight. */
void http_call_dispose(struct http_call *call);
/* Waits for at most ms and handles what came. Returns early after a signal. */
void http_client_turn(struct http_client *c, int ms);
/* Starts a call and waits for its end, or until *stop is set (then its end is HTTP_STOPPED). stop may be NULL. */
int http_call_run(struct http_client *c, struct http_call *call, const volatile int *stop);
/* The value of a field of the response, into out, terminated (shortened if need be); false: it has none. */
bool http_call_field(const struct http_call *call, const char *name, char *out, size_t room);
/* One line that says why a call failed: the server's error.message, or what broke. */
void http_call_explain(const struct http_call *call, char *out, size_t room);

#endif
