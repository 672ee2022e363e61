/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4), for the names of keys; this folder doesn't link OpenSSL for one digest.
 */
#ifndef CACHE_SHA256_H
#define CACHE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void cache_sha256(const void *data, size_t n, uint8_t out[32]);
/* 64 lower-case hex digits and a terminator. */
void cache_sha256_hex(const void *data, size_t n, char out[65]);

#endif
