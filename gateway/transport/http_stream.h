/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream object behind gateway/transport/http.h, for h1.c and h2.c: collecting a request head under limits,
 * calling the application, answering, pulling a body, a stream's deadlines.
 */
#ifndef GATEWAY_HTTP_STREAM_H
#define GATEWAY_HTTP_STREAM_H

#include "base/buf.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/http.h"

/* A request head being collected: strings one after the other, terminated, found by offset until
 * the head is complete. */
struct http_head {
	struct sl_buf text;
	struct http_field *fields; /* the request's, once it is complete */
	uint32_t *offsets;         /* name and value of each field */
	uint32_t n_fields, cap_fields;
	uint64_t charged; /* RFC 9113 6.5.2: name + value + 32 for each field */
	uint32_t method, path, query, authority, origin;
	bool has_method, has_path, has_authority;
	bool bad_authority; /* HTTP/2: :authority is none */
	bool has_origin;    /* kept apart, for an error: of a head over its limit too */
};

/* Far above any legal length: only ever an offset into a bounded text. */
enum { HTTP_HEAD_TEXT_MAX = 1 << 20 };

struct http_stream {
	struct list node; /* the connection's streams; once closed, the transport's closed ones */
	struct conn *conn;
	struct http_request req;
	struct http_head *head; /* owned; NULL once the request is no longer needed */
	void *user;
	struct http_source src; /* of the answer's body */
	uint8_t *body;          /* http_reply's copy; owned */
	uint32_t body_len, body_off;
	int64_t expect_bytes;  /* the answer's content-length; -1: unknown */
	uint64_t received;     /* body bytes */
	uint64_t body_max;     /* limits.body_bytes when it began */
	struct list due, owed; /* HTTP/2: in lists of h2_out.c, which has the next three to itself */
	int32_t window;        /* what may be written of it, at that epoch of its connection's windows */
	uint32_t epoch;
	uint32_t unbooked; /* bytes written that the library does not know of */
	int32_t id;        /* HTTP/2 */
	int head_status;   /* HTTP/2: what a head that can't be processed is answered; 0: fine */
	/* What few events look at is packed: there are as many streams as users. */
	bool head_done : 1, peer_reset : 1, timed_out : 1, end_sent : 1; /* HTTP/2 */
	bool head_sent : 1;                                              /* HTTP/2: the answer's head is out */
	bool end_due : 1;   /* HTTP/2: its end is written, and to be booked */
	bool recv_done : 1; /* the request is complete */
	bool no_body : 1;   /* HEAD, 204, 304: the answer has no content */
	bool to_app;        /* the application knows it: on_request was, on_close was not called */
	bool answered;
	bool sent_done; /* the answer's last byte has been handed to the connection */
	bool reset_wanted;
	bool waiting; /* the source had nothing; http_body_ready follows */
	bool dry;     /* it gave less than it might have: asking once more brings nothing */
	bool ready;   /* http_body_ready came and has not been acted on */
	bool closed;
	struct http_hold *hold;     /* borrowed from its holder */
	struct deadline recv;       /* the request's head, then its body */
	struct deadline stall;      /* bytes are there and the peer does not take them */
	struct deadline response;   /* the answer, absolutely */
	struct addr_count *counted; /* among those of its address; NULL: not counted */
	char *peer;                 /* owned: req.peer where it is not the connection's */
};

/* Fields of a head. 0, SL_ELIMIT (431) or SL_ENOMEM. Charged also when refused. */
int http_head_add(struct http_stream *s, const void *name, size_t n_name, const void *value, size_t n_value);
/* The value of Origin, of a head that may never be complete. The first one counts; one that is too long is none. */
void http_head_origin(struct http_stream *s, const void *value, size_t n);
/* One string of the head, not a field; its offset goes out. */
int http_head_text(struct http_stream *s, const void *text, size_t n, uint32_t *off);
/* Splits and checks an origin-form target (or "*"): visible ASCII, no fragment. SL_EINVAL. */
int http_head_target(struct http_stream *s, const void *target, size_t n);
/* Turns offsets into s->req. 0 or SL_ENOMEM. */
int http_head_complete(struct http_stream *s);

/* A reserved stream slot. Owned by the holder. */
struct http_hold {
	struct http_stream *s; /* NULL once the stream has ended */
	struct conn *c;        /* while it keeps a place: then in c->holds */
	struct list node;
};
/* The connection goes: its holds keep no place any more. */
void stream_drop_holds(struct conn *c);

/* In c->streams, unknown to the application yet. NULL on exhaustion. */
struct http_stream *stream_create(struct conn *c, enum http_version version);
/* The head is complete: calls the application. */
void stream_begin(struct http_stream *s);
/* SL_ELIMIT: over limits.body_bytes; SL_ENOMEM: no memory for more of it. Then on_close has been
 * called. */
int stream_body(struct http_stream *s, const uint8_t *data, size_t n);
void stream_body_end(struct http_stream *s);
/* on_close, if the application still knows it. */
void stream_tell_close(struct http_stream *s, enum http_close_reason why);
/* Tells, unlinks, frees at the end of the turn. */
void stream_close(struct http_stream *s, enum http_close_reason why);
/* Frees the transport's closed streams. d: its free_closed. */
void stream_free_closed(struct gw_deferred *d);
/* The next bytes of the answer's body; like http_source.pull, with the deadlines kept. */
ssize_t stream_pull(struct http_stream *s, uint8_t *dst, size_t room, bool *end);
/* Forgets an answer of which nothing has left. */
void stream_retract(struct http_stream *s);
/* The transport's own answer, to a stream the application does not know (any more). */
int stream_error(struct http_stream *s, int status, const char *message);
/* Counts a request that the transport refuses; stream_error does. */
void stream_count_rejected(int status);
const char *http_reason(int status);
enum { HTTP_LENGTH_CHARS = 24 };
/* A content-length of n ≥ 0 as decimal digits, at the end of `room`. */
const char *http_length_text(int64_t n, char room[HTTP_LENGTH_CHARS]);

#endif
