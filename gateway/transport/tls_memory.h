/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocator for OpenSSL's record buffers.
 */
#ifndef GATEWAY_TLS_MEMORY_H
#define GATEWAY_TLS_MEMORY_H

/* Called once, before OpenSSL allocates anything (otherwise without effect); applies to the whole process. */
void tls_memory_install(void);

#endif
