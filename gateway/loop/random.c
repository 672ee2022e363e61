/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/loop/random.h"

#include <openssl/rand.h>

enum { STOCK = 64 };

static _Thread_local struct {
	uint64_t at[STOCK];
	int n; /* unused numbers */
} stock;

bool random_u64(uint64_t *out)
{
	if (stock.n == 0) {
		if (RAND_bytes((uint8_t *)stock.at, sizeof stock.at) != 1)
			return false;
		stock.n = STOCK;
	}
	stock.n--;
	*out = stock.at[stock.n];
	stock.at[stock.n] = 0;
	return true;
}

bool random_share(double share)
{
	uint64_t v;
	if (share <= 0 || share >= 1)
		return share >= 1;
	return random_u64(&v) && (double)(v >> 11) * 0x1p-53 < share;
}

bool random_name(char *dst)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t v[2];
	if (!random_u64(&v[0]) || !random_u64(&v[1]))
		return false;
	for (int i = 0; i < RANDOM_NAME_CHARS; i++) {
		uint64_t *from = &v[i / 16];
		dst[i] = digits[*from >> 60];
		*from <<= 4;
	}
	dst[RANDOM_NAME_CHARS] = '\0';
	return true;
}
