/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS between memory: bytes from the wire in, bytes for the wire out, no socket.
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

/* client_certs: enum gw_client_certs of the listener. NULL on exhaustion. */
struct tls_conn *tls_conn_create(struct tls_context *ctx, int client_certs);
void tls_conn_destroy(struct tls_conn *tc);

/* The longest record; that much of one may have come with earlier calls. */
enum { TLS_RECORD_BYTES = 16384 };

/* Takes n bytes of the wire, decrypts into text (room at least n + TLS_RECORD_BYTES: then
 * everything fits), and writes the protocol's own records (handshake, alerts) to wire. *n_text:
 * plain bytes; *eof: the peer has sent close_notify. 0, or SL_EPROTO after writing an alert. */
int tls_input(struct tls_conn *tc, const uint8_t *data, size_t n, uint8_t *text, size_t room, size_t *n_text, bool *eof,
	      struct sl_buf *wire);
/* Nothing has come yet. */
bool tls_is_untouched(const struct tls_conn *tc);
bool tls_handshake_done(const struct tls_conn *tc);
/* After the handshake: it went on with a session of an earlier connection. */
bool tls_resumed(const struct tls_conn *tc);
/* After the handshake: the peer chose HTTP/2. */
bool tls_chose_h2(const struct tls_conn *tc);
/* The subject of the client's (verified) certificate as RFC 2253 writes it, cut to some length; the
 * caller frees. NULL: it has shown none, or no memory. */
char *tls_peer_subject(const struct tls_conn *tc);
/* Encrypts n bytes into wire. 0, SL_EPROTO or SL_ENOMEM. */
int tls_output(struct tls_conn *tc, const uint8_t *text, size_t n, struct sl_buf *wire);
/* close_notify. */
void tls_shutdown(struct tls_conn *tc, struct sl_buf *wire);

#endif
