/* SPDX-License-Identifier: Apache-2.0
 *
 * Unpredictable random numbers for names and seeds. A call of OpenSSL's generator costs thousands of instructions for
 * any number of bytes, so each thread keeps a stock. Each number is used once and wiped. Any thread may call.
 */
#ifndef GATEWAY_RANDOM_H
#define GATEWAY_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

enum { RANDOM_NAME_CHARS = 32 };

/* False: OpenSSL failed. */
bool random_u64(uint64_t *out);
/* True for that share of the calls, 0 to 1; false if OpenSSL failed and share is below 1. */
bool random_share(double share);
/* 128 random bits as lower-case hex digits and a NUL: RANDOM_NAME_CHARS + 1 bytes at dst. */
bool random_name(char *dst);

#endif
