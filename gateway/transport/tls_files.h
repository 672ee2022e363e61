/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the PEM files of a TLS context. Each file is read into memory once, up to a bound. An error is one line that
 * names the configuration key and the file.
 */
#ifndef GATEWAY_TLS_FILES_H
#define GATEWAY_TLS_FILES_H

#include <openssl/types.h>
#include <stdint.h>

#include "base/err.h"

struct tls_file {
	const char *path;
	const char *key, *of, *end; /* the configuration key, in three pieces */
};

enum { TLS_FILES_DIGEST = 32 };

/* Loads the chain (the server's certificate first) and its private key. 0, SL_EIO; SL_EINVAL: they do not match. */
int tls_files_certificate(SSL_CTX *c, const struct tls_file *cert, const struct tls_file *key, struct sl_err *err);
/* Loads the authorities that verify clients' certificates; the handshake sends their names. digest: SHA-256 of the
 * file.
 */
int tls_files_authorities(SSL_CTX *c, const struct tls_file *file, uint8_t digest[TLS_FILES_DIGEST],
			  struct sl_err *err);

#endif
