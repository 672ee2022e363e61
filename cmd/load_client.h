/* SPDX-License-Identifier: Apache-2.0
 *
 * A client for measuring: streamed chat requests over HTTP/1.1, in cleartext or TLS, one connection a
 * worker, on one event loop; when each token came is written down. It checks no certificate: it is
 * for one's own server.
 */
#ifndef CMD_LOAD_CLIENT_H
#define CMD_LOAD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct load_plan {
	const char *url;  /* "http://127.0.0.1:8080" or https */
	const char *key;  /* NULL: none */
	const char *model;
	int n_streams;    /* at once; with a rate, the most at once */
	int n_requests;
	double rate;      /* arrivals a second, at random; 0: each stream begins again when it has ended */
	int prompt_words, shared_words; /* the first so many words are every request's */
	int max_tokens;
	double seconds;   /* after so long no request begins; those that run get as long again */
	uint64_t seed;
	bool progress;    /* a line on standard error */
};

struct load_request {
	uint64_t begin_ns, first_ns, last_ns; /* first 0: no token came */
	uint64_t *token_ns; /* [n_events], owned */
	int n_events, room;
	int n_prompt, n_cached, n_tokens; /* as the server says at the end */
	int status;                       /* 0: no answer */
	bool ok;                          /* ended with [DONE] and without an error */
	char error[64];                   /* its code */
};

struct load_result {
	struct load_request *requests; /* those that were begun; owned */
	int n;
	double seconds; /* from the first's begin to the last's end */
	bool interrupted;
};

/* SL_EINVAL for a URL that can't be used, SL_EIO when nobody listens there, SL_ENOMEM. */
int load_run(const struct load_plan *plan, struct load_result *out, struct sl_err *err);
void load_result_dispose(struct load_result *r);

#endif
