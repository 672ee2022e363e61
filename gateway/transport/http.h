/* SPDX-License-Identifier: Apache-2.0
 *
 * One stream: one request with its response, over HTTP/2 with or without TLS, or HTTP/1.1. Below this interface are
 * connections and protocols (listener.c, conn.c, tls.c, h1.c, h2.c), above it the application (gateway/exchange,
 * gateway/api). Neither depends on the other's details.
 *
 * Writing is pull-based: the transport asks the body's source for bytes when the peer's window and the socket can take
 * them, and buffers at most one loop iteration's output. Each on_request is followed by exactly one on_close; the
 * stream is then invalid. A stream that closes inside a callback is freed at the end of the iteration.
 *
 * Thread: the connection's.
 */
#ifndef GATEWAY_HTTP_H
#define GATEWAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "base/err.h"

struct http_stream;
struct gw_thread;

struct http_field {
	const char *name;  /* lower case, terminated */
	const char *value; /* terminated; holds no NUL, CR or LF */
};

enum http_version { HTTP_1_0, HTTP_1_1, HTTP_2 };

/* Valid from on_request to on_close; owned by the stream. After http_reply_stream only version, tls, method, peer and
 * subject are certain to remain: the other strings may be empty and the fields gone. */
struct http_request {
	enum http_version version;
	bool tls;
	bool has_body;         /* false: on_body_end follows on_request at once */
	const char *method;    /* "GET" */
	const char *path;      /* as sent, not decoded, without the query */
	const char *query;     /* after '?', "" when none */
	const char *authority; /* Host or :authority */
	const struct http_field *fields;
	size_t n_fields;
	int64_t content_length; /* -1: unknown */
	const char *peer;       /* the client's address, "127.0.0.1", also behind trusted proxies; "": a unix socket */
	const char *subject;    /* of the client's verified certificate; NULL: none */
};

/* A character of a token (RFC 9110 5.6.2). */
static inline bool http_is_token(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* The first field of that lower-case name, or NULL. */
const char *http_header(const struct http_request *r, const char *name);

/* The source of a response body. */
struct http_source {
	/* Writes up to room bytes (room ≥ 1) and returns how many. Fewer than room with *end false: no more bytes now;
	 * http_body_ready follows. Sets *end with or after the last bytes. Negative: the body can't be finished; the
	 * stream is reset. */
	ssize_t (*pull)(void *ctx, uint8_t *dst, size_t room, bool *end);
	void *ctx;
};

enum http_close_reason {
	HTTP_CLOSE_DONE,    /* the response is complete */
	HTTP_CLOSE_PEER,    /* the client disconnected or reset the stream */
	HTTP_CLOSE_TIMEOUT, /* no progress within the limit, or an absolute deadline */
	HTTP_CLOSE_SHUTDOWN,
	HTTP_CLOSE_ERROR, /* protocol error, http_reset, source failure */
};

/* An error response of the transport, to a request that the application does not see: the known parts of the request,
 * and the fields that the application adds to every response. */
enum { HTTP_REFUSAL_FIELDS = 6 };
struct http_refusal {
	int status;
	const char *peer;   /* as in http_request */
	const char *origin; /* the request's Origin; NULL: none */
	char id[40];        /* storage for a field's value */
	struct http_field fields[HTTP_REFUSAL_FIELDS];
	size_t n; /* 0 at first */
};

/* The application's callbacks. ctx is the application state of the gw_thread. */
struct http_app {
	/* The head is complete. The application may answer now or later. */
	void (*on_request)(void *ctx, struct http_stream *s, const struct http_request *r);
	/* A piece of the body; borrowed for the call. Neither on_body nor on_body_end is called after the stream is
	 * answered. For a body over limits.body_bytes, on_close(ERROR) is called and the transport answers 413. */
	void (*on_body)(void *ctx, struct http_stream *s, const uint8_t *data, size_t n);
	/* The body is complete. */
	void (*on_body_end)(void *ctx, struct http_stream *s);
	/* The last call for this stream. */
	void (*on_close)(void *ctx, struct http_stream *s, enum http_close_reason why);
	/* Called before the transport sends an error response. NULL: no field is added. */
	void (*on_refusal)(void *ctx, struct http_refusal *r);
};

void http_set_user(struct http_stream *s, void *user);
void *http_user(struct http_stream *s);
struct gw_thread *http_thread(struct http_stream *s);
/* The number of its connection on this thread: never 0; wraps after 2^32 connections. */
uint32_t http_conn_number(const struct http_stream *s);
/* Adds the memory that an event of the response body will access. */
struct prefetch_hints;
void http_prefetch(const struct http_stream *s, struct prefetch_hints *f);
/* Was its connection accepted during a drain? Then no long work should begin. */
bool http_is_late(const struct http_stream *s);
const struct http_request *http_request(struct http_stream *s);

/* State that the application keeps with a connection between requests; *http_kept is NULL at first. dispose is called
 * once, when the connection is freed. */
struct http_kept {
	void (*dispose)(struct http_kept *k);
};
struct http_kept **http_kept(struct http_stream *s);

enum { HTTP_MAX_ANSWER_FIELDS = 32 };

/* Answers with a complete body, copied. Adds `date` and `content-length`; fields have lower-case names. SL_EINVAL: a
 * value has a control character; the stream is reset. A second answer to a stream is a BUG (check http_answered). The
 * unread rest of the request body is discarded up to a bound; then the connection closes (HTTP/1.1) or the stream is
 * reset. */
int http_reply(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields, const void *body,
	       size_t n);
/* Answers with a body pulled from src. The head is sent at once, without content-length. */
int http_reply_stream(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields,
		      struct http_source src);
/* The source has bytes or its end. Cheap; any number of calls is fine. */
void http_body_ready(struct http_stream *s);
bool http_answered(const struct http_stream *s);

/* Keeps the stream's slot of limits.streams_per_connection after the stream's end, until http_release. Without it a
 * peer could open new streams while the work of reset ones has not stopped. NULL: no memory, the slot is not kept. At
 * most one hold per stream. */
struct http_hold;
struct http_hold *http_hold(struct http_stream *s);
/* On the stream's thread. h may be NULL; the connection may have closed. */
void http_release(struct http_hold *h);
/* Ends the stream with an incomplete response (HTTP/2: INTERNAL_ERROR; HTTP/1.1: the connection closes). */
void http_reset(struct http_stream *s);

#endif
