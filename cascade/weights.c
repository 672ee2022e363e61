/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear model and its format. Files are untrusted: a malformed one gives a one-line error, and since weights are
 * finite and bounded, every score is between 0 and 1.
 */
#include "cascade/weights.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

static const uint8_t magic[4] = {'S', 'L', 'C', 'W'};
enum {
	VERSION = 2,
	FIRST_VERSION = 1, /* without a reference */
	REFERENCE = 4 * (3 + CASC_DRIFT_BINS),
	HEAD = 16, /* magic, version, bits, number of dense weights */
	SUM = 8,
	DENSE_MOST = 256,
};
#define WEIGHT_MOST 1e4f

float casc_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct casc_weights *casc_weights_create(uint32_t bits)
{
	BUG_IF(bits < CASC_BITS_MIN || bits > CASC_BITS_MAX, "cascade: weights of %u bits", bits);
	struct casc_weights *w = sl_zalloc(sizeof *w + sizeof w->grams[0] * ((size_t)1 << bits));
	if (w != NULL)
		w->bits = bits;
	return w;
}

void casc_weights_destroy(struct casc_weights *w) { sl_free(w); }

float casc_weights_logit(const struct casc_weights *w, const float dense[CASC_N_FEATURES], const uint32_t *grams,
			 uint32_t n_grams)
{
	float sum = w->bias, of_grams = 0;
	for (int i = 0; i < CASC_N_FEATURES; i++)
		sum += w->dense[i] * dense[i];
	for (uint32_t i = 0; i < n_grams; i++)
		of_grams += w->grams[grams[i] >> (32 - w->bits)];
	/* Otherwise a long text would score more extremely than a short one. */
	return n_grams > 0 ? sum + of_grams / sqrtf((float)n_grams) : sum;
}

static void put_u32(uint8_t *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* FNV-1a, 64 bits: detects damage, not tampering. */
static uint64_t checksum(const uint8_t *s, size_t n)
{
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 1099511628211u;
	return h;
}

static bool get_weight(const uint8_t *at, float *out)
{
	uint32_t v = get_u32(at);
	memcpy(out, &v, 4);
	return isfinite(*out) && fabsf(*out) <= WEIGHT_MOST;
}

static void put_weight(uint8_t *at, float w)
{
	uint32_t v;
	memcpy(&v, &w, 4);
	put_u32(at, v);
}

static int check_head(const uint8_t *data, size_t n, const char *name, struct sl_err *err)
{
	if (n < HEAD + 4 + SUM || memcmp(data, magic, 4) != 0)
		return sl_errf(err, SL_EINVAL, "%s: not a cascade weights file", name);
	uint32_t version = get_u32(data + 4), bits = get_u32(data + 8), n_dense = get_u32(data + 12);
	if (version < FIRST_VERSION || version > VERSION)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: version %u; this program reads versions %d to %d", name,
			       version, FIRST_VERSION, VERSION);
	if (bits < CASC_BITS_MIN || bits > CASC_BITS_MAX)
		return sl_errf(err, SL_EINVAL, "%s: %u bits, not between %d and %d", name, bits, CASC_BITS_MIN,
			       CASC_BITS_MAX);
	if (n_dense == 0 || n_dense > DENSE_MOST)
		return sl_errf(err, SL_EINVAL, "%s: %u dense weights, not between 1 and %d", name, n_dense, DENSE_MOST);
	if (n_dense > CASC_N_FEATURES)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %u dense weights; this version supports %d", name, n_dense,
			       CASC_N_FEATURES);
	size_t want = HEAD + 4 + 4 * ((size_t)n_dense + ((size_t)1 << bits)) + SUM;
	want += version > FIRST_VERSION ? REFERENCE : 0;
	if (n != want)
		return sl_errf(err, SL_EINVAL, "%s: %zu bytes, not %zu", name, n, want);
	uint64_t sum = get_u32(data + n - 8) | (uint64_t)get_u32(data + n - 4) << 32;
	if (sum != checksum(data, n - SUM))
		return sl_errf(err, SL_EINVAL, "%s: wrong checksum: the file is damaged", name);
	return 0;
}

static bool is_share(float x) { return x >= 0 && x <= 1; }

/* at: behind the weights. */
static int get_reference(const uint8_t *at, const char *name, struct casc_reference *out, struct sl_err *err)
{
	float sum = 0;
	out->n = get_u32(at);
	bool good = get_weight(at += 4, &out->easy) && get_weight(at += 4, &out->hard) && is_share(out->easy) &&
		    is_share(out->hard) && out->easy <= out->hard;
	for (int i = 0; i < CASC_DRIFT_BINS && good; i++) {
		good = get_weight(at += 4, &out->share[i]) && is_share(out->share[i]);
		sum += out->share[i];
	}
	if (!good || (out->n > 0 && fabsf(sum - 1) > 1e-3f))
		return sl_errf(err, SL_EINVAL,
			       "%s: its shares and thresholds must be between 0 and 1, and the shares' sum 1", name);
	return 0;
}

static void put_reference(uint8_t *at, const struct casc_reference *ref)
{
	put_u32(at, ref->n);
	put_weight(at += 4, ref->easy);
	put_weight(at += 4, ref->hard);
	for (int i = 0; i < CASC_DRIFT_BINS; i++)
		put_weight(at += 4, ref->share[i]);
}

int casc_weights_decode(const uint8_t *data, size_t n, const char *name, struct casc_weights **out, struct sl_err *err)
{
	int rc = check_head(data, n, name, err);
	if (rc != 0)
		return rc;
	uint32_t bits = get_u32(data + 8), n_dense = get_u32(data + 12);
	struct casc_weights *w = casc_weights_create(bits);
	if (w == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", name);
	const uint8_t *at = data + HEAD;
	bool good = get_weight(at, &w->bias);
	for (uint32_t i = 0; i < n_dense && good; i++)
		good = get_weight(at += 4, &w->dense[i]);
	for (size_t i = 0; i < (size_t)1 << bits && good; i++)
		good = get_weight(at += 4, &w->grams[i]);
	if (!good) {
		casc_weights_destroy(w);
		return sl_errf(err, SL_EINVAL, "%s: the weight at byte %zu is not a number between %g and %g", name,
			       (size_t)(at - data), (double)-WEIGHT_MOST, (double)WEIGHT_MOST);
	}
	if (get_u32(data + 4) > FIRST_VERSION && (rc = get_reference(at + 4, name, &w->ref, err)) != 0) {
		casc_weights_destroy(w);
		return rc;
	}
	*out = w;
	return 0;
}

int casc_weights_encode(const struct casc_weights *w, struct sl_buf *out)
{
	size_t n = HEAD + 4 + 4 * (CASC_N_FEATURES + ((size_t)1 << w->bits)) + REFERENCE + SUM;
	uint8_t *begin, *at;
	int rc = buf_reserve(out, n, &begin);
	if (rc != 0)
		return rc;
	memcpy(begin, magic, 4);
	put_u32(begin + 4, VERSION);
	put_u32(begin + 8, w->bits);
	put_u32(begin + 12, CASC_N_FEATURES);
	put_weight(at = begin + HEAD, w->bias);
	for (size_t i = 0; i < CASC_N_FEATURES; i++)
		put_weight(at += 4, w->dense[i]);
	for (size_t i = 0; i < (size_t)1 << w->bits; i++)
		put_weight(at += 4, w->grams[i]);
	put_reference(at + 4, &w->ref);
	uint64_t sum = checksum(begin, n - SUM);
	put_u32(begin + n - 8, (uint32_t)sum);
	put_u32(begin + n - 4, (uint32_t)(sum >> 32));
	buf_commit(out, n);
	return 0;
}
