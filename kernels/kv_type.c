/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of keys and values, element by element, as kv_type.h defines them. Plain code: the reference uses it, and the
 * tests compare other backends with it.
 */
#include "kernels/kv_type.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "kernels/half.h"
#include "kernels/quantize_blocks.h"

static const struct {
	int type;
	const char *name;
} types[] = {{KN_F32, "f32"}, {KN_F16, "f16"}, {KN_BF16, "bf16"}, {KN_KV_Q8, "q8"}, {KN_FP8, "fp8"}};

enum { N_TYPES = sizeof types / sizeof types[0] };

const char *kn_kv_type_name(int type)
{
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	return "unknown";
}

int kn_kv_type_from_name(const char *name)
{
	for (int i = 0; i < N_TYPES; i++)
		if (strcasecmp(types[i].name, name) == 0)
			return types[i].type;
	return -1;
}

int kn_kv_type_at(int i) { return i >= 0 && i < N_TYPES ? types[i].type : -1; }

int kn_kv_type_auto(const struct kn_ops *ops) { return ops->kv_type(KN_F16) ? KN_F16 : KN_F32; }

const char *kn_kv_types_of(const struct kn_ops *ops, char *out, size_t n)
{
	size_t at = 0;
	out[0] = '\0';
	for (int i = 0; i < N_TYPES; i++)
		if (ops->kv_type(types[i].type) && at < n)
			at += (size_t)snprintf(out + at, n - at, "%s%s", at > 0 ? ", " : "", types[i].name);
	return out;
}

/* ---- e4m3 ---- */

enum { FP8_NAN = 0x7F, FP8_MOST = 0x7E };

uint8_t kn_fp8_from_f32(float x)
{
	float a = fabsf(x);
	uint8_t sign = signbit(x) ? 0x80 : 0;
	if (isnan(x))
		return FP8_NAN;
	if (a >= 448)
		return sign | FP8_MOST;
	int exp;
	frexpf(a, &exp); /* a < 2^exp */
	exp = exp - 1 < -6 ? -6 : exp - 1;
	/* In steps of the last bit; rounding up to the next power of two carries into the exponent. */
	int steps = (int)rintf(ldexpf(a, 3 - exp));
	int code = steps < 8 ? steps : (exp + 7) * 8 + steps - 8;
	return sign | (uint8_t)code;
}

float kn_f32_from_fp8(uint8_t code)
{
	int exp = code >> 3 & 15, man = code & 7;
	if ((code & 0x7F) == FP8_NAN)
		return NAN;
	float a = exp == 0 ? (float)man * 0x1p-9f : ldexpf((float)(8 + man), exp - 10);
	return code & 0x80 ? -a : a;
}

/* ---- elements ---- */

/* x, or the largest number of a type with its sign; NaN stays. */
static float within(float x, float most) { return x > most ? most : x < -most ? -most : x; }

static float scale_of(int type, const float *x, int n)
{
	float most = 0;
	for (int d = 0; d < n; d++) {
		if (!isfinite(x[d]))
			return NAN;
		most = fabsf(x[d]) > most ? fabsf(x[d]) : most;
	}
	float scale = most / (type == KN_KV_Q8 ? 127.0f : 448.0f);
	return scale >= FLT_MIN ? scale : 0;
}

static int8_t q8_of(float x, float scale)
{
	float q = rintf(x / scale);
	return (int8_t)(q >= 127 ? 127 : q > -127 ? q : -127); /* also for NaN */
}

/* A token's element d lies at token + d · page_tokens in keys, at token · head_dim + d in values. */
static size_t place(bool keys, int page_tokens, int head_dim, int token, int d)
{
	return keys ? (size_t)d * (size_t)page_tokens + (size_t)token : (size_t)token * (size_t)head_dim + (size_t)d;
}

static float *scale_at(int type, const void *block, int page_tokens, int head_dim, int token)
{
	return (float *)((uintptr_t)block + kn_kv_scales_at(type, page_tokens, head_dim)) + token;
}

void kn_kv_put(int type, void *block, bool keys, int page_tokens, int head_dim, int token, const float *x)
{
	bool scaled = kn_kv_has_scales(type);
	float scale = scaled ? scale_of(type, x, head_dim) : 1;
	if (scaled)
		*scale_at(type, block, page_tokens, head_dim, token) = scale;
	bool nothing = scaled && !(scale > 0);
	for (int d = 0; d < head_dim; d++) {
		size_t at = place(keys, page_tokens, head_dim, token, d);
		switch (type) {
		case KN_F32: ((float *)block)[at] = x[d]; break;
		case KN_F16: ((uint16_t *)block)[at] = kn_f16_from_f32(within(x[d], 65504)); break;
		case KN_BF16: ((uint16_t *)block)[at] = kn_bf16_from_f32(within(x[d], 0x1.FEp127f)); break;
		case KN_KV_Q8: ((int8_t *)block)[at] = nothing ? 0 : q8_of(x[d], scale); break;
		case KN_FP8: ((uint8_t *)block)[at] = nothing ? 0 : kn_fp8_from_f32(x[d] / scale); break;
		default: BUG("keys and values of type %d", type);
		}
	}
}

float kn_kv_get(int type, const void *block, bool keys, int page_tokens, int head_dim, int token, int d)
{
	size_t at = place(keys, page_tokens, head_dim, token, d);
	switch (type) {
	case KN_F32: return ((const float *)block)[at];
	case KN_F16: return kn_f32_from_f16(((const uint16_t *)block)[at]);
	case KN_BF16: return kn_f32_from_bf16(((const uint16_t *)block)[at]);
	case KN_KV_Q8: return *scale_at(type, block, page_tokens, head_dim, token) * (float)((const int8_t *)block)[at];
	case KN_FP8:
		return *scale_at(type, block, page_tokens, head_dim, token) *
		       kn_f32_from_fp8(((const uint8_t *)block)[at]);
	default: BUG("keys and values of type %d", type);
	}
}
