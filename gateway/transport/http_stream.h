/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream object behind http.h, for h1.c and h2.c: it collects the request head under limits, calls the application,
 * sends the response, pulls its body and has the stream's deadlines.
 */
#ifndef GATEWAY_HTTP_STREAM_H
#define GATEWAY_HTTP_STREAM_H

#include "base/buf.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/http.h"

/* A request head while it is read: terminated strings in one buffer, referred to by offset. */
struct http_head {
	struct sl_buf text;
	struct http_field *fields; /* of the complete head */
	uint32_t *offsets;         /* name and value of each field */
	uint32_t n_fields, cap_fields;
	uint64_t charged; /* RFC 9113 6.5.2: name + value + 32 for each field */
	uint32_t method, path, query, authority, origin;
	bool has_method, has_path, has_authority;
	bool bad_authority; /* HTTP/2: :authority is malformed */
	bool has_origin;    /* for error responses; also kept from a head over its limit */
};

/* Above any length that header_bytes allows. */
enum { HTTP_HEAD_TEXT_MAX = 1 << 20 };

struct http_stream {
	struct list node; /* in the connection's streams; after the close in the transport's closed */
	struct conn *conn;
	struct http_request req;
	struct http_head *head; /* owned; NULL when the request is no longer needed */
	void *user;
	struct http_source src; /* of the response body */
	uint8_t *body;          /* http_reply's copy; owned */
	uint32_t body_len, body_off;
	int64_t expect_bytes;  /* the response's content-length; -1: unknown */
	uint64_t received;     /* body bytes */
	uint64_t body_max;     /* limits.body_bytes at the beginning */
	struct list due, owed; /* HTTP/2: in lists of h2_out.c, which alone uses the next three fields */
	int32_t window;        /* bytes that may be written, valid in that epoch */
	uint32_t epoch;
	uint32_t unbooked; /* bytes written and not booked */
	int32_t id;        /* HTTP/2 */
	int head_status;   /* HTTP/2: the error status for a head that can't be processed; 0: none */
	/* Rarely used flags are packed: each open response is a stream. */
	bool head_done : 1, peer_reset : 1, timed_out : 1, end_sent : 1; /* HTTP/2 */
	bool head_sent : 1;                                              /* HTTP/2: the response head is out */
	bool end_due : 1;                                                /* HTTP/2: the end is written and not booked */
	bool recv_done : 1;                                              /* the request is complete */
	bool no_body : 1; /* HEAD, 204, 304: the response has no content */
	bool to_app;      /* on_request was called, on_close was not */
	bool answered;
	bool sent_done; /* the connection has the last byte of the response */
	bool reset_wanted;
	bool waiting; /* the source had no bytes; http_body_ready follows */
	bool dry;     /* the last pull was short: another one would return nothing */
	bool ready;   /* http_body_ready was called since the last pull */
	bool closed;
	struct http_hold *hold;     /* borrowed from its holder */
	struct deadline recv;       /* the request's head, then its body */
	struct deadline stall;      /* the peer does not take the bytes that the source has */
	struct deadline response;   /* the absolute limit of the response */
	struct addr_count *counted; /* the count of its address; NULL: not counted */
	char *peer;                 /* owned: req.peer if it differs from the connection's; otherwise NULL */
};

/* Adds a field to the head. 0, SL_ELIMIT (431) or SL_ENOMEM. A refused field is charged too. */
int http_head_add(struct http_stream *s, const void *name, size_t n_name, const void *value, size_t n_value);
/* Keeps the value of Origin for error responses. Only the first one counts; one that is too long is ignored. */
void http_head_origin(struct http_stream *s, const void *value, size_t n);
/* Adds a string that is not a field; *off: its offset. */
int http_head_text(struct http_stream *s, const void *text, size_t n, uint32_t *off);
/* Checks and splits an origin-form target or "*": visible ASCII, no fragment. 0, SL_EINVAL or SL_ENOMEM. */
int http_head_target(struct http_stream *s, const void *target, size_t n);
/* Fills s->req from the complete head. 0 or SL_ENOMEM. */
int http_head_complete(struct http_stream *s);

/* A slot of limits.streams_per_connection that outlives its stream. Owned by the holder. */
struct http_hold {
	struct http_stream *s; /* NULL after the stream's end */
	struct conn *c;        /* after the stream's end: the hold is in c->holds */
	struct list node;
};
/* The connection closes: detaches its holds. */
void stream_drop_holds(struct conn *c);

/* Adds a stream to c->streams; the application does not know it yet. NULL: no memory. */
struct http_stream *stream_create(struct conn *c, enum http_version version);
/* The head is complete: calls the application. */
void stream_begin(struct http_stream *s);
/* SL_ELIMIT: over limits.body_bytes; SL_ENOMEM: memory is short. In both cases on_close has been called. */
int stream_body(struct http_stream *s, const uint8_t *data, size_t n);
void stream_body_end(struct http_stream *s);
/* Reports the close to the application (on_close), once. */
void stream_notify_close(struct http_stream *s, enum http_close_reason why);
/* Calls on_close unless it was called, unlinks s and frees it at the end of the iteration. */
void stream_close(struct http_stream *s, enum http_close_reason why);
/* Frees the transport's closed streams. d: its free_closed. */
void stream_free_closed(struct gw_deferred *d);
/* Pulls the next bytes of the response body; as http_source.pull, and updates the deadlines. */
ssize_t stream_pull(struct http_stream *s, uint8_t *dst, size_t room, bool *end);
/* Withdraws an answer of which no byte was sent. */
void stream_retract(struct http_stream *s);
/* Sends an error response of the transport, to a stream that the application does not know (any more). */
int stream_error(struct http_stream *s, int status, const char *message);
/* Counts a request that the transport refuses; stream_error calls it. */
void stream_count_rejected(int status);
const char *http_reason(int status);
enum { HTTP_LENGTH_CHARS = 24 };
/* n ≥ 0 as decimal digits, written at the end of `room`. */
const char *http_length_text(int64_t n, char room[HTTP_LENGTH_CHARS]);

#endif
