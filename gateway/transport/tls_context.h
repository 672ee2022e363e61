/* SPDX-License-Identifier: Apache-2.0
 *
 * What TLS connections share: certificates, versions, ALPN, trust anchors. A context is immutable and
 * reference-counted, so threads share one. After a reload new connections get a new context; open ones keep theirs.
 */
#ifndef GATEWAY_TLS_CONTEXT_H
#define GATEWAY_TLS_CONTEXT_H

#include <openssl/ssl.h>

#include "base/err.h"
#include "gateway/config/gw_config.h"

struct tls_context;
struct gw_thread;

/* Reads the files that cfg names. On failure *err names the file. The caller owns one reference. */
int tls_context_create(const struct gw_config *cfg, struct tls_context **out, struct sl_err *err);
/* Any thread. */
struct tls_context *tls_context_ref(struct tls_context *ctx);
void tls_context_unref(struct tls_context *ctx); /* NULL is fine */

/* An SSL object for a listener with that enum gw_client_certs; has no reference to ctx. NULL: no memory. */
SSL *tls_context_ssl(struct tls_context *ctx, int client_certs);

/* Reads the files again and sends a new context to the transports of all threads, which use it for new connections. On
 * failure nothing changes. Any thread; the threads' inboxes must outlive the call. */
int tls_reload(const struct gw_config *cfg, struct gw_thread *const *threads, size_t n, struct sl_err *err);

#endif
