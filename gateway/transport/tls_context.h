/* SPDX-License-Identifier: Apache-2.0
 *
 * What TLS connections share: certificates, versions, ALPN, trust anchors. Counted and immutable, so
 * threads share one, and new connections get another while old ones keep theirs.
 */
#ifndef GATEWAY_TLS_CONTEXT_H
#define GATEWAY_TLS_CONTEXT_H

#include <openssl/ssl.h>

#include "base/err.h"
#include "gateway/config/gw_config.h"

struct tls_context;
struct gw_thread;

/* Reads the files that cfg names. On failure *err names the file. The caller owns one count. */
int tls_context_create(const struct gw_config *cfg, struct tls_context **out, struct sl_err *err);
/* Any thread. */
struct tls_context *tls_context_ref(struct tls_context *ctx);
void tls_context_unref(struct tls_context *ctx); /* NULL is fine */

/* A server's SSL for a listener with that enum gw_client_certs; holds no count. NULL on exhaustion. */
SSL *tls_context_ssl(struct tls_context *ctx, int client_certs);

/* Reads the files again and gives the result to the transports of all threads, by message; only
 * connections that come later see it. Where it fails nothing changes. Any thread; the threads'
 * inboxes outlive the call. */
int tls_reload(const struct gw_config *cfg, struct gw_thread *const *threads, size_t n, struct sl_err *err);

#endif
