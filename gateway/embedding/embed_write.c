/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/embedding/embed_write.h"

#include <math.h>
#include <string.h>

static double squares(const float *v, uint32_t n)
{
	double sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += (double)v[i] * (double)v[i];
	return sum;
}

void embed_unit(const float *v, uint32_t n, float *out)
{
	double length = sqrt(squares(v, n));
	for (uint32_t i = 0; i < n; i++)
		out[i] = length > 0 ? (float)((double)v[i] / length) : 0;
}

double embed_cosine(const float *a, const float *b, uint32_t n)
{
	double dot = 0, lengths = sqrt(squares(a, n)) * sqrt(squares(b, n));
	for (uint32_t i = 0; i < n; i++)
		dot += (double)a[i] * (double)b[i];
	return lengths > 0 ? fmax(-1, fmin(1, dot / lengths)) : 0;
}

double embed_sigmoid(double logit) { return 1 / (1 + exp(-logit)); }

static int put_numbers(struct sl_buf *out, const float *v, uint32_t n)
{
	int rc = buf_append_str(out, "[");
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = buf_printf(out, "%s%.9g", i > 0 ? "," : "", (double)v[i]);
	return rc != 0 ? rc : buf_append_str(out, "]");
}

static uint8_t byte_at(const float *v, size_t i)
{
	uint32_t bits;
	memcpy(&bits, &v[i / 4], sizeof bits);
	return (uint8_t)(bits >> (8 * (i % 4)));
}

int embed_put(struct sl_buf *out, const float *v, uint32_t n, bool base64)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t bytes = (size_t)n * sizeof *v, chars = (bytes + 2) / 3 * 4;
	uint8_t *to;
	if (!base64)
		return put_numbers(out, v, n);
	int rc = buf_reserve(out, chars + 2, &to);
	if (rc != 0)
		return rc;
	*to++ = '"';
	for (size_t i = 0; i < bytes; i += 3) {
		size_t left = bytes - i;
		uint32_t three = (uint32_t)byte_at(v, i) << 16 | (left > 1 ? (uint32_t)byte_at(v, i + 1) << 8 : 0) |
				 (left > 2 ? byte_at(v, i + 2) : 0);
		*to++ = (uint8_t)digits[three >> 18];
		*to++ = (uint8_t)digits[three >> 12 & 63];
		*to++ = left > 1 ? (uint8_t)digits[three >> 6 & 63] : '=';
		*to++ = left > 2 ? (uint8_t)digits[three & 63] : '=';
	}
	*to = '"';
	buf_commit(out, chars + 2);
	return 0;
}
