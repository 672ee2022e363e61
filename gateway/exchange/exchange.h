/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: what every request has before its handler and beside it: a key and its check (access.h), limits (quota.h),
 * the reply, and the state of a thread's application (app_state.h).
 *
 * An exchange is one request as the application sees it: its route, its key, its growing body, and its reply. All
 * replies go through here, so that each carries the request's id and the CORS fields and all errors have the shape
 * of the API that was asked: OpenAI's, or that of its reply_form. An exchange lives on one thread, from the request's
 * head to the close of its stream. Handlers (gateway/api) and the rooms below them may call it.
 */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/observe/observe.h"
#include "gateway/auth/auth.h"
#include "gateway/transport/http.h"
#include "gateway/exchange/quota.h"

struct access_wait;
struct gw_app;
struct idempotent;
struct json_t;
struct gw_snapshot;
struct route;
struct trace;
struct variant;

struct api_error;
struct exchange;

/* How replies of another API than OpenAI's look (gateway/dialect). */
struct reply_form {
	const char *stream_type; /* the media type of a stream of events */
	const char *id_field;    /* one more header with the request's id; NULL: none */
	/* The body of an error, appended; 0, SL_ELIMIT, SL_ENOMEM. x NULL: it has no request any more. */
	int (*print_error)(struct sl_buf *out, const struct exchange *x, const struct api_error *e,
			   const char *message);
	int (*status_of)(int status); /* of an error; NULL: as it is */
};

/* Of a request's id: "req_…", or the client's x-request-id of 1 to 128 visible characters. */
enum { EXCHANGE_ID_BYTES = 129 };

struct exchange {
	struct gw_app *app;
	struct http_stream *stream;
	const struct route *route;
	const struct reply_form *form; /* NULL: OpenAI's */
	struct gw_snapshot *snapshot;  /* the configuration it began with; counted */
	struct auth_key *key;          /* of snapshot, or counted; NULL on public routes */
	struct auth_key *counted;      /* the key that counts it among its open requests; NULL: none */
	const char *subject;           /* of key: the user that a browser token was made for; "" or NULL: none */
	struct access_wait *access;    /* while access is checked */
	struct sl_buf body;            /* of the request, bounded by limits.body_bytes */
	char id[EXCHANGE_ID_BYTES];
	struct trace *trace;              /* owned, until its answer takes it; NULL: none */
	bool body_ended;                  /* the body is complete */
	bool observed;                    /* an answer was made for it, which is observed (gateway/observe) */
	bool cleansed;                    /* a user's message was changed: the reply reports the bytes removed */
	uint64_t started_ns, complete_ns; /* its head has come; its body, too */
	struct quota_result *quota;       /* the key's limits for the reply's header; owned; NULL: none */
	uint64_t cleansed_bytes;
	char *ignored;                             /* for x-sluice-ignored-fields; owned; NULL: none */
	const char *degraded;                      /* for x-sluice-degraded; NULL: not degraded */
	const struct variant *variant;             /* of its snapshot, that answers; NULL: its model has none */
	unsigned variant_given;                    /* sampling fields of the request: bits of enum request_sampling */
	uint64_t variant_user;                     /* a digest: whom it is chosen for */
	uint32_t n_prompt, n_completion, n_cached; /* for the access log, as are the next two */
	uint64_t first_token_ns;                   /* 0: none came */
	char model[64];                            /* "": none answered */
	unsigned retry_ms;                         /* for retry-after-ms beside retry-after; 0: no header */
	int status;                                /* of the answer; 0: none yet */
	char *cascade;                   /* for the access log: plan/why and tokens of each prompt; owned; NULL: none */
	struct observed_route by_engine; /* for the access log */
	struct idempotent *idempotent;   /* of its Idempotency-Key, until the answer takes it; NULL: none */
	/* The handler's own: closed by on_close before the exchange is freed. */
	void *state;
	void (*on_close)(struct exchange *x);
};

/* retry_after_s 0: no such header. */
struct api_error {
	int status;
	const char *type;  /* "invalid_request_error", … */
	const char *code;  /* NULL: null */
	const char *param; /* NULL or "": null */
	unsigned retry_after_s;
};

/* Whose request it is within its tenant: the subject of its browser token, else `user`, its body's own (NULL: none). */
static inline const char *exchange_user(const struct exchange *x, const char *user)
{
	return x->subject != NULL && x->subject[0] != '\0' ? x->subject : user;
}
/* The request's body as bytes; never NULL. */
const char *exchange_body(const struct exchange *x);
/* x's reply reports r from now on; dropped without memory. */
void exchange_set_quota(struct exchange *x, const struct quota_result *r);
/* Answers with JSON text, copied. fields: the handler's own, up to EXCHANGE_MAX_FIELDS. */
enum { EXCHANGE_MAX_FIELDS = 8 };
void exchange_reply(struct exchange *x, int status, const char *content_type, const struct http_field *fields,
		    size_t n_fields, const void *body, size_t n);
/* 200 with v, which it takes; NULL: there was no memory for it. */
void exchange_reply_json(struct exchange *x, struct json_t *v);
/* 200 with the JSON text in out, which is disposed of, if rc, of what has written it, is 0. */
void exchange_reply_text(struct exchange *x, struct sl_buf *out, int rc);
/* The same as exchange_reply_json, and no cache may store it. */
void exchange_reply_json_no_store(struct exchange *x, struct json_t *v);
/* The fields of every answer that is an event stream. */
enum { STREAM_FIELDS = 2 };
extern const struct http_field stream_fields[STREAM_FIELDS];
void exchange_reply_stream(struct exchange *x, const struct http_field *fields, size_t n_fields,
			   struct http_source src);
/* 200 with a JSON text that is rendered as it is read. */
void exchange_reply_json_stream(struct exchange *x, struct http_source src);
void exchange_error(struct exchange *x, const struct api_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The usual error of a status: "invalid_request_error" below 500, "rate_limit_error" with 429, else "server_error";
 * 409, 429 and 503 ask for a retry after a second. Always false, for checks that return whether x continues. */
bool exchange_refuse(struct exchange *x, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The media type of x's streams. */
const char *exchange_stream_type(const struct exchange *x);
/* Appends an error's body in x's form. */
int exchange_print_error(struct sl_buf *out, const struct exchange *x, const struct api_error *e, const char *message);
/* 503, "overloaded". */
extern const struct api_error exchange_no_memory;
void exchange_reply_no_memory(struct exchange *x);

/* The zeroed state of x's handler; on_close frees it. NULL: x is answered. */
void *exchange_own(struct exchange *x, size_t size, void (*on_close)(struct exchange *x));
/* The handler's state is the caller's again: on_close is not called. */
void exchange_disown(struct exchange *x);

/* Appends {"error":{"message":…,"type":…,"param":…,"code":…}}. */
int api_error_print(struct sl_buf *out, const struct api_error *e, const char *message);

#endif
