/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS between buffers: wire bytes in, wire bytes out, no socket. Thread: the connection's.
 */
#ifndef GATEWAY_TLS_H
#define GATEWAY_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct tls_context; /* gateway/transport/tls_context.h */
struct tls_conn;

/* client_certs: the listener's enum gw_client_certs. NULL: no memory. */
struct tls_conn *tls_conn_create(struct tls_context *ctx, int client_certs);
void tls_conn_destroy(struct tls_conn *tc);

/* The longest record. Earlier calls may have buffered that much. */
enum { TLS_RECORD_BYTES = 16384 };

/* Takes n wire bytes, decrypts into text (room ≥ n + TLS_RECORD_BYTES, so that everything fits) and appends TLS's own
 * records (handshake, alerts) to wire. *n_text: plain bytes; *eof: the peer has sent close_notify. 0, or SL_EPROTO
 * after an alert is appended. */
int tls_input(struct tls_conn *tc, const uint8_t *data, size_t n, uint8_t *text, size_t room, size_t *n_text, bool *eof,
	      struct sl_buf *wire);
/* Has the peer sent no byte yet? */
bool tls_is_untouched(const struct tls_conn *tc);
bool tls_handshake_done(const struct tls_conn *tc);
/* After the handshake: did it resume a session of an earlier connection? */
bool tls_resumed(const struct tls_conn *tc);
/* After the handshake: was HTTP/2 negotiated? */
bool tls_chose_h2(const struct tls_conn *tc);
/* The subject of the client's verified certificate (RFC 2253), truncated if it is long; the caller frees it. NULL: no
 * certificate, or no memory. */
char *tls_peer_subject(const struct tls_conn *tc);
/* Encrypts n bytes into wire. 0, SL_EPROTO or SL_ENOMEM. */
int tls_output(struct tls_conn *tc, const uint8_t *text, size_t n, struct sl_buf *wire);
/* Appends close_notify. */
void tls_shutdown(struct tls_conn *tc, struct sl_buf *wire);

#endif
