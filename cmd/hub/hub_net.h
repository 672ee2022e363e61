/* SPDX-License-Identifier: Apache-2.0
 *
 * One GET, with redirects followed by hand: each target is checked, and the token goes to the endpoint's own origin
 * only. Bounded: redirects, headers, bytes of the body (by the caller), speed from below, time to connect.
 */
#ifndef CMD_HUB_NET_H
#define CMD_HUB_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cmd/config/schema.h"
#include "base/http/curl_library.h"
#include "cmd/hub/hub_plan.h"

struct hub_net {
	const struct curl_library *curl;
	CURL *easy;
	const struct hub_settings *set; /* borrowed */
	const char *token;              /* borrowed; "": none */
	const struct sl_buf *ca;        /* borrowed; NULL: the system's authorities */
	char base[304];                 /* the endpoint, without a slash at its end */
	char origin[HUB_URL_BYTES];     /* of the endpoint */
	bool plain;                     /* the endpoint is http:// */
};

struct hub_reply {
	long status;
	int64_t length;                   /* of this body; -1: not announced */
	int64_t start, total;             /* Content-Range; -1 */
	int64_t linked_size;              /* X-Linked-Size; -1 */
	char linked_etag[HUB_ETAG_BYTES]; /* X-Linked-ETag, without quotes */
	char etag[HUB_ETAG_BYTES];        /* strong, with quotes; "": none */
	char commit[HUB_COMMIT_BYTES];
	char next[HUB_URL_BYTES]; /* Link, rel="next" */
	uint64_t retry_after_s;   /* 0: not said */
};

struct hub_ask {
	const char *url;
	bool stays;           /* redirects to another origin are refused: lists of files */
	char range[48];       /* of bytes: "1000-"; "": all */
	const char *if_range; /* "" or NULL: none */
	/* Before the first byte of a 200 or 206, and for empty ones: a code other than 0 ends the transfer. */
	int (*begin)(void *ctx, const struct hub_reply *r, struct sl_err *err);
	int (*take)(void *ctx, const void *bytes, size_t n, struct sl_err *err);
	void *ctx;
};

int hub_net_open(struct hub_net *n, const struct sluice_config *cfg, const char *token, const struct sl_buf *ca,
		 struct sl_err *err);
void hub_net_close(struct hub_net *n);
/* 0: a 200 or 206 was read to its end. SL_EAGAIN: it may succeed later (r->retry_after_s). Else a code for good. */
int hub_net_get(struct hub_net *n, const struct hub_ask *a, struct hub_reply *r, struct sl_err *err);

#endif
