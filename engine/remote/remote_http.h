/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the upstream: libcurl's multi interface on the engine's event loop. Connections are kept and shared; over
 * TLS they speak HTTP/2 if the upstream does, and then carry many requests each. Streams without TLS are read without
 * libcurl once they are connected (remote_plain.c). Redirects are not followed and proxies of the environment are not
 * used, so the key reaches no other host.
 *
 * libcurl must not be called from within its own callbacks. So a call's bytes are taken there and nothing else; what
 * follows from them happens in on_progress and on_end, which run outside, where calls may be started and stopped.
 *
 *   IDLE ──remote_call_start──► GOING ──the response ends, or fails──► ENDED (on_end)
 *                                 └──remote_call_stop──► IDLE, without a callback
 *
 * I/O thread.
 */
#ifndef ENGINE_REMOTE_HTTP_H
#define ENGINE_REMOTE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/proto/proto.h"

enum {
	REMOTE_URL_MAX = 1024,
	REMOTE_KEY_MAX = 4096,
	REMOTE_HEAD_MAX = 64 << 10, /* bytes of a response's head */
	REMOTE_BODY_MAX = 4 << 20,  /* of a body that is kept */
	REMOTE_WHY_MAX = 256,
};

struct event_base;
struct remote_http;
struct remote_plain;

struct remote_http_config {
	const char *url; /* without a trailing slash */
	const char *key; /* the bearer token; "": none */
	const char *ca;  /* certificates, PEM, n_ca bytes; NULL: the system's */
	size_t n_ca;
	bool verify;
	uint64_t connect_ms;
	int connections; /* kept */
};

enum remote_call_kind {
	REMOTE_STREAM, /* a 2xx response must be text/event-stream; its bytes go to on_data */
	REMOTE_WHOLE,  /* the body is kept */
};

/* Memory, as a hint: it is never dereferenced. */
enum { REMOTE_SOON = 6 };
struct remote_soon {
	const void *at;
	size_t n; /* bytes */
};

/* One request; embedded in its owner, which keeps it until on_end returned or it was stopped. Set the first group. */
struct remote_call {
	enum remote_call_kind kind;
	const char *path;   /* from the URL on; borrowed */
	bool at_origin;     /* path begins behind the host and port instead */
	const char *accept; /* the type that is wanted; NULL: an event stream or JSON, by kind */
	const char *body;   /* JSON; NULL: a GET; borrowed until the end */
	size_t n_body;
	bool fresh; /* on a new connection */
	/* What the next bytes will touch; NULL: unknown. */
	void (*on_soon)(const struct remote_call *c, struct remote_soon out[REMOTE_SOON]);
	/* Bytes of a stream. False stops the call; on_end follows with the fault that was set by remote_call_fail. */
	bool (*on_data)(struct remote_call *c, const char *bytes, size_t n);
	void (*on_progress)(struct remote_call *c); /* after bytes came; may stop the call */
	void (*on_end)(struct remote_call *c);

	struct remote_http *http; /* NULL: not going */
	struct list node, touched, over;
	void *easy, *lines;
	struct remote_plain *conn; /* without TLS, once it is connected */
	bool paused, failed, connecting;
	int status;         /* 0: no byte of a response came */
	size_t n_head;      /* bytes of the response's head so far */
	bool is_stream;     /* its type is text/event-stream */
	uint32_t retry_s;   /* its Retry-After, where that is a number of seconds */
	struct sl_buf text; /* the body of WHOLE, or of an error */
	enum proto_fault fault;
	char why[REMOTE_WHY_MAX];  /* of a failure: one line */
	char said[REMOTE_WHY_MAX]; /* libcurl's own words */
};

/* SL_EUNSUPPORTED: no libcurl; SL_EINVAL: not a URL of a server; SL_ENOMEM. Copies cfg's strings. */
int remote_http_create(struct event_base *base, const struct remote_http_config *cfg, struct remote_http **out,
		       struct sl_err *err);
/* No call may be going. */
void remote_http_destroy(struct remote_http *h);
bool remote_url_fits(const char *url);

/* 0 or SL_ENOMEM. */
int remote_call_start(struct remote_http *h, struct remote_call *c);
/* Closes the stream towards the upstream: its connection with HTTP/1.1, a RST_STREAM with HTTP/2. No callback follows.
 * Any state. */
void remote_call_stop(struct remote_call *c);
/* Frees what the call holds. It must not be going. */
void remote_call_dispose(struct remote_call *c);
/* While paused nothing is read, so the upstream has to wait. May deliver bytes at once: on_progress may run. */
void remote_call_pause(struct remote_call *c, bool pause);
/* In on_data: why it returns false. Keeps the first fault. */
void remote_call_fail(struct remote_call *c, enum proto_fault fault, const char *why);
/* The call has ended: does a status or a failure make it a fault? Then c->fault and c->why are set. */
bool remote_call_failed(const struct remote_call *c);

#endif
