/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL's memory.
 */
#ifndef GATEWAY_TLS_MEMORY_H
#define GATEWAY_TLS_MEMORY_H

/* For the whole process, before OpenSSL has allocated anything; afterwards without effect. */
void tls_memory_install(void);

#endif
