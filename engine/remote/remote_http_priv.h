/* SPDX-License-Identifier: Apache-2.0
 *
 * What remote_http.c (calls, libcurl) and remote_plain.c (connections without TLS) share. I/O thread.
 */
#ifndef ENGINE_REMOTE_HTTP_PRIV_H
#define ENGINE_REMOTE_HTTP_PRIV_H

#include "base/http/curl_library.h"
#include "engine/remote/remote_http.h"

enum { REMOTE_RECEIVE_BYTES = 16 << 10 }; /* that a call gets at once */

struct event;

struct remote_http {
	const struct curl_library *lib;
	CURLM *multi;
	struct event_base *base;
	struct event *timer;
	uint64_t armed_ns, wanted_ns; /* when it fires; when libcurl wants to be called. UINT64_MAX: never */
	struct list calls, touched, over;
	struct list idle; /* struct remote_plain.node, the latest last */
	int n_idle, idle_most;
	uint64_t quick_until_ns; /* acknowledgements are not delayed before (remote_plain.c) */
	char url[REMOTE_URL_MAX], authorization[REMOTE_KEY_MAX + 32];
	int n_origin; /* bytes of url up to its path */
	char *ca;     /* owned, or NULL */
	size_t n_ca;
	bool verify, tls;
	long connect_ms;
	int depth;           /* of remote_http_settle */
	bool may_have_ended; /* libcurl has been called since its ends were taken */
	char in[REMOTE_RECEIVE_BYTES];
};

/* ---- remote_http.c ---- */

/* A line of a response's head; c->status is set. False: it is too long. */
bool remote_call_line(struct remote_call *c, const char *line, size_t n);
/* Bytes of a response's body. False: the call has failed. */
bool remote_call_bytes(struct remote_call *c, const char *bytes, size_t n);
/* What c->accept, or its kind, makes of the field Accept. */
const char *remote_call_accept(const struct remote_call *c);
/* Resolves and connects; then remote_plain_adopt, or on_end. SL_ENOMEM. */
int remote_http_connect(struct remote_http *h, struct remote_call *c);
/* The call is over: on_end follows in remote_http_settle. */
void remote_call_over(struct remote_call *c);
/* After what may have moved bytes. What follows may start, stop and resume calls, which comes here again: the
 * outermost does it all. */
void remote_http_settle(struct remote_http *h);

/* ---- remote_plain.c ---- */

/* Sends the request on a kept connection, or on a new one. SL_ENOMEM. */
int remote_plain_start(struct remote_http *h, struct remote_call *c);
/* Takes fd, which is connected. SL_ENOMEM: it is closed. */
int remote_plain_adopt(struct remote_http *h, struct remote_call *c, int fd);
/* Closes the call's connection, if it has one. */
void remote_plain_drop(struct remote_call *c);
/* The call is no longer paused. */
void remote_plain_resume(struct remote_call *c);
/* Closes the kept connections. */
void remote_plain_forget(struct remote_http *h);

#endif
