/* SPDX-License-Identifier: Apache-2.0
 *
 * One request as the application sees it: its route, its key, its body as it grows, and the ways to
 * answer it. Every answer goes through here, so that all carry the request's id and the CORS fields,
 * all errors have OpenAI's shape, and each request leaves one line in the access log.
 */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/auth/auth.h"
#include "gateway/transport/http.h"
#include "gateway/exchange/quota.h"

struct access_wait;
struct gw_app;
struct idempotent;
struct gw_snapshot;
struct route;

struct exchange {
	struct gw_app *app;
	struct http_stream *stream;
	const struct route *route;
	struct gw_snapshot *snapshot;     /* the configuration it began with; counted */
	struct auth_key *key;             /* of snapshot, or counted; NULL on public routes */
	struct auth_key *counted;         /* among whose open requests it is; NULL: of nobody's */
	const char *subject;              /* of key: whom a browser token was made for; "" or NULL: nobody */
	struct access_wait *access;       /* while it is being found out who asks */
	struct sl_buf body;               /* of the request, bounded by limits.body_bytes */
	char id[40];                      /* "req_…" */
	uint64_t started_ns, complete_ns; /* its head has come; its body, too */
	int status;                       /* of the answer; 0: none yet */
	bool body_ended;                  /* while it was being found out who asks, the body has come */
	bool cleansed;                    /* a user's message was changed: the answer says by how much it is shorter */
	struct quota_result *quota;       /* what every answer says of the key's limits; owned; NULL: nothing */
	uint64_t cleansed_bytes;
	const char *degraded;            /* how the answer is less than was asked for; NULL: it is not */
	uint32_t n_prompt, n_completion; /* for the access log */
	unsigned retry_ms;               /* an error that says when to come back: the same more exactly; 0: no header */
	char *cascade; /* the same: plan/why, tokens, of each prompt; owned; NULL: it was none, or no memory */
	struct idempotent *idempotent; /* of its Idempotency-Key, until the answer takes it; NULL: none */
	/* The handler's own: closed by on_close before the exchange is freed. */
	void *state;
	void (*on_close)(struct exchange *x);
};

/* What an error says. retry_after_s 0: no such header. */
struct api_error {
	int status;
	const char *type;  /* "invalid_request_error", … */
	const char *code;  /* NULL: null */
	const char *param; /* NULL or "": null */
	unsigned retry_after_s;
};

/* The request's body as bytes; never NULL. */
const char *exchange_body(const struct exchange *x);
/* From now on x's answer tells of this; nothing, when there is no memory for it. */
void exchange_set_quota(struct exchange *x, const struct quota_result *r);
/* Answers with JSON text, copied. fields: the handler's own, up to EXCHANGE_MAX_FIELDS. */
enum { EXCHANGE_MAX_FIELDS = 8 };
void exchange_reply(struct exchange *x, int status, const char *content_type, const struct http_field *fields,
		    size_t n_fields, const void *body, size_t n);
/* The fields of every answer that is an event stream. */
enum { STREAM_FIELDS = 2 };
extern const struct http_field stream_fields[STREAM_FIELDS];
void exchange_reply_stream(struct exchange *x, const struct http_field *fields, size_t n_fields,
			   struct http_source src);
void exchange_error(struct exchange *x, const struct api_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* 503, "overloaded". */
extern const struct api_error exchange_no_memory;
void exchange_reply_no_memory(struct exchange *x);

/* Appends {"error":{"message":…,"type":…,"param":…,"code":…}}. */
int api_error_print(struct sl_buf *out, const struct api_error *e, const char *message);

#endif
