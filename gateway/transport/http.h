/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange of request and response, whatever carries it: HTTP/2 over TLS or cleartext, HTTP/1.1.
 * Below this interface are connections and protocols (listener.c, conn.c, tls.c, h1.c, h2.c); above
 * it the application (route.c and the api_*.c). Neither sees through.
 *
 * Everything of a stream happens on its connection's thread. Writing is pull-based: the transport
 * asks the body's source for bytes when the peer's window and the socket can take them, and never
 * buffers more than one turn's worth. Exactly one on_close for each on_request; after it the stream
 * is gone. Closing inside a callback is deferred to the end of the loop's turn.
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

/* Valid from on_request to on_close; owned by the stream. Once http_reply_stream has answered it there may be no more
 * of it than version, tls, method, peer and subject: strings are empty, there are no fields. */
struct http_request {
	enum http_version version;
	bool tls;
	bool has_body;         /* false: on_body_end follows on_request at once */
	const char *method;    /* "GET" */
	const char *path;      /* as sent, without the query: exact match, nothing decoded */
	const char *query;     /* after '?', "" when none */
	const char *authority; /* Host or :authority */
	const struct http_field *fields;
	size_t n_fields;
	int64_t content_length; /* -1: unknown */
	const char *peer;       /* the client's address, "127.0.0.1", also behind trusted proxies; "" when
				   it came by a unix socket */
	const char *subject;    /* of the client's verified certificate; NULL: it has shown none */
};

/* A character of a token (RFC 9110 5.6.2). */
static inline bool http_is_token(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* The first field of that (lower-case) name, or NULL. */
const char *http_header(const struct http_request *r, const char *name);

/* Where a response body comes from. */
struct http_source {
	/* Writes up to room bytes (room ≥ 1) and returns how many. Fewer than room with *end false:
	 * nothing more now, http_body_ready follows. Sets *end with or after the last bytes. Negative: the body
	 * can't be finished, the stream is reset. */
	ssize_t (*pull)(void *ctx, uint8_t *dst, size_t room, bool *end);
	void *ctx;
};

enum http_close_reason {
	HTTP_CLOSE_DONE,    /* the response went out whole */
	HTTP_CLOSE_PEER,    /* the client left or reset the stream */
	HTTP_CLOSE_TIMEOUT, /* no progress within the limit, or an absolute deadline */
	HTTP_CLOSE_SHUTDOWN,
	HTTP_CLOSE_ERROR, /* protocol error, http_reset, source failure */
};

/* An error that the transport answers by itself, before the application has seen the request: what is known of that,
 * and the fields that every answer of the application has. */
enum { HTTP_REFUSAL_FIELDS = 6 };
struct http_refusal {
	int status;
	const char *peer;   /* as in http_request */
	const char *origin; /* the request's Origin; NULL: none */
	char id[40];        /* room for what a field points to */
	struct http_field fields[HTTP_REFUSAL_FIELDS];
	size_t n; /* 0 at first */
};

/* What the application gives the transport. ctx is the gw_thread's application state. */
struct http_app {
	/* Headers are complete. The application may answer now or later. */
	void (*on_request)(void *ctx, struct http_stream *s, const struct http_request *r);
	/* A piece of the body; borrowed for the call. Neither on_body nor on_body_end is called once
	 * the stream is answered. A body over limits.body_bytes ends in on_close(ERROR); the
	 * transport answers 413 by itself. */
	void (*on_body)(void *ctx, struct http_stream *s, const uint8_t *data, size_t n);
	/* The body is complete. */
	void (*on_body_end)(void *ctx, struct http_stream *s);
	/* The last call for this stream. */
	void (*on_close)(void *ctx, struct http_stream *s, enum http_close_reason why);
	/* Before the transport answers an error by itself. NULL: nothing is added. */
	void (*on_refusal)(void *ctx, struct http_refusal *r);
};

void http_set_user(struct http_stream *s, void *user);
void *http_user(struct http_stream *s);
struct gw_thread *http_thread(struct http_stream *s);
/* Of its connection, among the thread's: never 0; after 2^32 connections they begin again. */
uint32_t http_conn_number(const struct http_stream *s);
/* What an event of its answer's body will touch. */
struct prefetch_hints;
void http_prefetch(const struct http_stream *s, struct prefetch_hints *f);
/* Its connection came when the process was about to end: nothing long should begin. */
bool http_is_late(const struct http_stream *s);
const struct http_request *http_request(struct http_stream *s);

/* What the application keeps with a connection from one request to the next: where it is kept; NULL at first. dispose
 * is called once, when the connection is freed. */
struct http_kept {
	void (*dispose)(struct http_kept *k);
};
struct http_kept **http_kept(struct http_stream *s);

enum { HTTP_MAX_ANSWER_FIELDS = 32 };

/* Answers with a body of known content, copied. `date` and `content-length` are added; fields have
 * lower-case names. SL_EINVAL (and the stream is reset) when a value holds a control character. At most one
 * answer a stream: a second one is a BUG; ask http_answered. A request body not read yet is
 * discarded up to a bound, then the connection (HTTP/1.1) closes or the stream is reset. */
int http_reply(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields, const void *body,
	       size_t n);
/* Answers with a body pulled from src; headers go out at once, without content-length. */
int http_reply_stream(struct http_stream *s, int status, const struct http_field *fields, size_t n_fields,
		      struct http_source src);
/* The source has bytes again (or its end). Cheap; may be called any number of times. */
void http_body_ready(struct http_stream *s);
bool http_answered(const struct http_stream *s);

/* Keeps a stream's place among limits.streams_per_connection after the stream has ended, until
 * http_release: what a reset has not yet stopped elsewhere is still work, and a peer gets no new
 * place for it. NULL: no memory, nothing is kept. At most one a stream. */
struct http_hold;
struct http_hold *http_hold(struct http_stream *s);
/* h may be NULL; the connection may have gone. On the stream's thread. */
void http_release(struct http_hold *h);
/* Ends the stream without finishing the response (HTTP/2: INTERNAL_ERROR; HTTP/1.1: closes). */
void http_reset(struct http_stream *s);

#endif
