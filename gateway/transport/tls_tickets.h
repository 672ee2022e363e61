/* SPDX-License-Identifier: Apache-2.0
 *
 * Session tickets. All contexts and threads of the process share the keys, which rotate.
 */
#ifndef GATEWAY_TLS_TICKETS_H
#define GATEWAY_TLS_TICKETS_H

#include <openssl/ssl.h>
#include <stdint.h>

/* Enables tickets in ctx. A key encrypts tickets for rotation_ms and decrypts them for as long again. 0 or SL_EIO. */
int tls_tickets_enable(SSL_CTX *ctx, uint64_t rotation_ms);
/* Erases the keys, which invalidates every ticket. */
void tls_tickets_forget(void);

#endif
