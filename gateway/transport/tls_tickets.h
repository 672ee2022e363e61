/* SPDX-License-Identifier: Apache-2.0
 *
 * Session tickets: keys shared by all contexts and threads of the process, replaced in time.
 */
#ifndef GATEWAY_TLS_TICKETS_H
#define GATEWAY_TLS_TICKETS_H

#include <openssl/ssl.h>
#include <stdint.h>

/* Lets sessions of ctx be resumed by tickets. A key makes tickets for rotation_ms and opens them for
 * as long again. 0 or SL_EIO. */
int tls_tickets_enable(SSL_CTX *ctx, uint64_t rotation_ms);
/* Forgets the keys: every ticket becomes useless at once. */
void tls_tickets_forget(void);

#endif
