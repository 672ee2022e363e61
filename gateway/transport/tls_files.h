/* SPDX-License-Identifier: Apache-2.0
 *
 * The PEM files of a TLS context. Each is read into memory once, with a bound, so that no file can hold the process;
 * an error is one line that names the configuration's key and the file.
 */
#ifndef GATEWAY_TLS_FILES_H
#define GATEWAY_TLS_FILES_H

#include <openssl/types.h>
#include <stdint.h>

#include "base/err.h"

struct tls_file {
	const char *path;
	const char *key, *of, *end; /* the key that names it, in three pieces */
};

enum { TLS_FILES_DIGEST = 32 };

/* The chain (the server's certificate first) and its private key, which must belong together. 0, SL_EIO, SL_EINVAL. */
int tls_files_certificate(SSL_CTX *c, const struct tls_file *cert, const struct tls_file *key, struct sl_err *err);
/* Clients' certificates are checked with these, and their names are sent to clients. digest: of the file's bytes. */
int tls_files_authorities(SSL_CTX *c, const struct tls_file *file, uint8_t digest[TLS_FILES_DIGEST],
			  struct sl_err *err);

#endif
