/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which products the vendor's library computes (library.h), and runs them.
 *
 * The choice for a type, a shape and a power of two of rows is made on first use: the step's recorded commands run,
 * then our own kernels and each of the library's algorithms compute the product several times, and the fastest is
 * remembered, permanently if there is a file. All write the right result, so nothing needs undoing. A choice takes at
 * most about BUDGET_NS of device time, and all choices TUNE_NS; after that, and once the model serves, our own kernels
 * compute new products.
 *
 * The library gets packed weights only, and only more rows than a matrix unit's tile has: with fewer rows memory is
 * the limit, and unpacked weights need two to eight times the bandwidth. FP8 is also tried without conversion.
 *
 * VERSIONS
 *  1  weights are unpacked for each product into one scratch: 2 bytes a weight written and read once more than they
 *     must be. Counted for a layer of an 8B model on an H200 (218 million weights, 0.87 GB more at 4.3 TB/s: 0.2 ms)
 *     against its product of 2048 rows (0.9 TFLOP at 790 TFLOP/s: 1.13 ms): 18 %; of 8192 rows 4.5 %. mma.cu is bound
 *     by mma.sync, about 60 % of wgmma's rate: so the library should win from some 1024 rows on. Not measured on a
 *     device.
 *  2  FP8 as it is: half the bytes unpacked (0.44 GB a layer of an 8B model: 0.1 ms) and twice the matrix rate: 0.57 ms
 *     for its product of 2048 rows. Where the library takes a scale for each output and row (9.0) the pass over y goes.
 *     Not measured on a device.
 *  3  blocks of integers: for a product of a layer of an 8B model in INT4 (218 million weights) 0.11 GB are read and
 *     0.44 GB written and read again, 0.23 ms at 4.3 TB/s more than the product of float16 takes, 1.13 ms for 2048
 *     rows. mma.cu unpacks in registers each time a tile of rows comes by, beside mma.sync: so the library should win
 *     from about the same number of rows on as with 16 bits. Where it does not, it is not taken: what unpacking costs
 *     is timed with it. Not measured on a device.
 */
#include "kernels/cuda/device/library.h"

#include <stdio.h>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/matmul.h"

enum { THREADS = 128, LEAST_ROWS = KN_ROWS + 1, LEAST_CLASS = 16, MOST_CLASS = 1 << 14, TRIES = 3, ALIGNED = 16 };

static const uint64_t BUDGET_NS = 100000000, TUNE_NS = 5000000000;

/* ---- matrices in the library's layout ---- */

/* Unpacks row blockIdx.x of the weights to float16 (BF16: bfloat16), padded to whole chunks. */
template <int TYPE> __global__ void unpack(const uint8_t *w, int n_chunks, uint16_t *to)
{
	kn_begin();
	to += (int64_t)blockIdx.x * n_chunks * KN_CHUNK;
	kn_each_weight<TYPE>(w, (int)blockIdx.x, n_chunks,
			     [&](int k, float v) { to[k] = TYPE == KN_BF16 ? kn_float_bf16(v) : kn_float_f16(v); });
}

/* The largest magnitude of a code after subtracting its offset. */
template <int TYPE> __device__ static inline float largest_code()
{
	typedef kn_form<TYPE> form;
	if (TYPE == KN_IQ4_NL || TYPE == KN_IQ4_XS)
		return 127;
	if (TYPE == KN_MXFP4)
		return 12; /* twice the value: packed.h */
	return form::off > 0 ? (float)form::off : (float)((1 << (form::main + form::more)) - 1);
}

/* Unpacks row blockIdx.x of block-quantized weights to float16, times the power of two that brings the largest value
 * that its scales allow to [2^14, 2^15). scale: the factor for its sums. */
template <int TYPE> __global__ void unpack_blocks(const uint8_t *w, int n_chunks, uint16_t *to, float *scale)
{
	kn_begin();
	float all = 0, by[2], min[2];
	int out = (int)blockIdx.x, n_slabs = n_chunks * KN_SLABS;
	const uint8_t *records = w + (int64_t)(out / KN_OUTS) * n_chunks * kn_form<TYPE>::record;
	to += (int64_t)out * n_chunks * KN_CHUNK;
	for (int i = (int)threadIdx.x; i < n_slabs; i += THREADS) {
		struct kn_heads heads =
		    kn_load_heads<TYPE>(records + (int64_t)(i / KN_SLABS) * kn_form<TYPE>::record, out % KN_OUTS);
		kn_scales<TYPE>(heads, i % KN_SLABS, by, min);
		for (int h = 0; h < 2; h++)
			all = fmaxf(all, fabsf(by[h]) * largest_code<TYPE>() + fabsf(min[h]));
	}
	all = kn_block_largest(all, THREADS);
	int exponent = kn_scaling_exponent(all);
	float power = kn_power(exponent);
	if (threadIdx.x == 0)
		scale[out] = kn_power(-exponent);
	kn_each_weight<TYPE>(w, out, n_chunks, [&](int k, float v) { to[k] = kn_float_f16(v * power); });
}

/* Writes row blockIdx.x of the activations, rounded as in matmul.h and padded with zeros. */
template <bool BF16> __global__ void flatten(const float *x, int n_in, int wide, uint16_t *to, float *inverse)
{
	kn_begin();
	int exponent = 0;
	x += (int64_t)blockIdx.x * n_in;
	to += (int64_t)blockIdx.x * wide;
	if (!BF16)
		exponent = kn_row_exponent(x, n_in, true);
	float scale = kn_power(exponent), v[4];
	if (threadIdx.x == 0)
		inverse[blockIdx.x] = kn_power(-exponent);
	for (int k = 4 * (int)threadIdx.x; k < wide; k += 4 * KN_ROW_THREADS) {
		kn_load4(x, k, n_in, true, v);
		for (int e = 0; e < 4; e++)
			to[k + e] = BF16 ? kn_float_bf16(v[e] * scale) : kn_float_f16(v[e] * scale);
	}
}

/* Unpacks row blockIdx.x of e4m3 weights without conversion, padded to whole chunks. */
__global__ void unpack_e4m3(const uint8_t *w, int n_chunks, uint8_t *to)
{
	kn_begin();
	typedef kn_form<KN_CUDA_FP8> form;
	int out = (int)blockIdx.x, half = out % KN_OUTS / 8;
	const uint8_t *records = w + (int64_t)(out / KN_OUTS) * n_chunks * form::record;
	to += (int64_t)out * n_chunks * KN_CHUNK;
	for (int i = (int)threadIdx.x; i < n_chunks * KN_SLABS * 4; i += THREADS) {
		int slab = i / 4, t = i % 4;
		const uint8_t *lane = records + (int64_t)(slab / KN_SLABS) * form::record + slab % KN_SLABS * KN_PIECE +
				      (out % 8 * 4 + t) * 16 + half * 8;
		for (int h = 0; h < 2; h++)
			*reinterpret_cast<uint32_t *>(to + slab * KN_SLAB + h * 16 + 4 * t) =
			    *reinterpret_cast<const uint32_t *>(lane + 4 * h);
	}
}

/* Writes row blockIdx.x of the activations as e4m3, padded with zeros, and its scale. A non-finite activation makes
 * the row's codes NaN. */
__global__ void flatten_e4m3(const float *x, int n_in, int wide, uint8_t *to, float *scale)
{
	kn_begin();
	x += (int64_t)blockIdx.x * n_in;
	to += (int64_t)blockIdx.x * wide;
	float by = kn_row_largest(x, n_in, true) / 448.0f, v[4];
	if (threadIdx.x == 0)
		scale[blockIdx.x] = by;
	for (int k = 4 * (int)threadIdx.x; k < wide; k += 4 * KN_ROW_THREADS) {
		uint32_t four = 0;
		kn_load4(x, k, n_in, true, v);
		for (int e = 0; e < 4; e++) {
			uint32_t code = by > 0 || v[e] != v[e] ? kn_float_e4m3(v[e] / by) : 0;
			four |= (code & 255) << 8 * e;
		}
		*reinterpret_cast<uint32_t *>(to + k) = four;
	}
}

/* Multiplies the sums with the factors' scales. */
__global__ void finish(float *y, int64_t all, int n_out, const float *inverse, const float *w_scale)
{
	kn_begin();
	int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i < all) {
		float v = y[i] * inverse[i / n_out];
		y[i] = w_scale != NULL ? v * w_scale[i % n_out] : v;
	}
}

/* ---- a product ---- */

int dev_library_product(struct dev *d, const struct dev_product_call *call)
{
	return kn_command_of(d, KN_PRODUCT, "the library's product", *call);
}

static struct dev_product shape_of(const struct kn_weight *w, int n_rows, bool fp8)
{
	return {w->n_out, (int32_t)kn_cuda_chunks(w->n_in) * KN_CHUNK, n_rows,
		fp8                  ? DEV_E4M3
		: w->type == KN_BF16 ? DEV_BF16
				     : DEV_F16};
}

/* Bytes per row of either factor. */
static size_t wide_of(const struct dev_product *s) { return (size_t)s->n_in * (s->numbers == DEV_E4M3 ? 1 : 2); }

/* Whether the weights are inexact in 16 bits and so get a scale per output. */
static bool in_blocks(const struct kn_weight *w)
{
	return w->type != KN_F16 && w->type != KN_BF16 && w->type != KN_CUDA_FP8;
}

/* They follow the unpacked weights. */
static float *block_scales(const struct kn_backend *b, const struct kn_weight *w)
{
	return (float *)(void *)((uint8_t *)b->flat_weights.at +
				 (size_t)w->n_out * (size_t)kn_cuda_chunks(w->n_in) * KN_CHUNK * 2);
}

template <int TYPE> static int unpacked(struct kn_backend *b, const struct kn_weight *w)
{
	unsigned rows = (unsigned)w->n_out;
	int n_chunks = (int)kn_cuda_chunks(w->n_in);
	const uint8_t *from = (const uint8_t *)w->data;
	uint16_t *to = (uint16_t *)b->flat_weights.at;
	if constexpr (kn_form<TYPE>::none)
		return KN_LAUNCH(b->dev, unpack<TYPE>, rows, THREADS, 0, from, n_chunks, to);
	else
		return KN_LAUNCH(b->dev, unpack_blocks<TYPE>, rows, THREADS, THREADS / KN_WARP * sizeof(float), from,
				 n_chunks, to, block_scales(b, w));
}

static int unpacked(struct kn_backend *b, const struct kn_weight *w, bool fp8)
{
	if (fp8)
		return KN_LAUNCH(b->dev, unpack_e4m3, (unsigned)w->n_out, THREADS, 0, (const uint8_t *)w->data,
				 (int)kn_cuda_chunks(w->n_in), (uint8_t *)b->flat_weights.at);
	return kn_of_packed(w->type, (int)SL_EIO, [&](auto t) { return unpacked<decltype(t)::type>(b, w); });
}

/* Writes the rows to b->flat_rows, followed by their factors; once for consecutive products of the same rows. */
static int flattened(struct kn_backend *b, const float *x, int n_rows, const struct kn_weight *w,
		     const struct dev_product *s)
{
	struct kn_converted *c = &b->flat;
	int rc;
	if (c->x == x && c->n_rows == n_rows && c->n_in == w->n_in && c->numbers == (int)s->numbers &&
	    c->serial == dev_serial(b->dev))
		return 0;
	c->x = NULL;
	uint8_t *to = (uint8_t *)b->flat_rows.at;
	float *inverse = (float *)(void *)(to + (size_t)n_rows * wide_of(s));
	size_t shared = KN_ROW_THREADS / KN_WARP * sizeof(float);
	if (s->numbers == DEV_E4M3)
		rc = KN_LAUNCH(b->dev, flatten_e4m3, (unsigned)n_rows, KN_ROW_THREADS, shared, x, w->n_in, s->n_in, to,
			       inverse);
	else
		rc = kn_launch(b->dev, "flatten", s->numbers == DEV_BF16 ? flatten<true> : flatten<false>,
			       (unsigned)n_rows, KN_ROW_THREADS, shared, x, w->n_in, s->n_in, (uint16_t *)(void *)to,
			       inverse);
	if (rc == 0)
		*c = {x, n_rows, w->n_in, (int)s->numbers, 0, 0};
	return rc;
}

static int by_library(struct kn_backend *b, const struct kn_weight *w, const float *x, const struct dev_product *s,
		      const struct dev_algo *algo, float *y)
{
	int64_t all = (int64_t)s->n_rows * s->n_out;
	const uint8_t *rows = (const uint8_t *)b->flat_rows.at;
	const float *inverse = (const float *)(const void *)(rows + (size_t)s->n_rows * wide_of(s));
	const float *w_scale = w->type == KN_CUDA_FP8 ? kn_cuda_fp8_scales(w)
			       : in_blocks(w)         ? block_scales(b, w)
						      : NULL;
	bool scaled = s->numbers == DEV_E4M3 && dev_library_fp8(b->library) == DEV_FP8_SCALED;
	struct dev_product_call call = {
	    b->library, *s, *algo, b->flat_weights.at, rows, y, scaled ? w_scale : NULL, scaled ? inverse : NULL};
	int rc = flattened(b, x, s->n_rows, w, s);
	if (rc == 0)
		rc = unpacked(b, w, s->numbers == DEV_E4M3);
	if (rc == 0)
		rc = dev_library_product(b->dev, &call);
	if (rc == 0 && s->numbers != DEV_BF16 && !scaled) {
		rc = KN_LAUNCH(b->dev, finish, (unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, y, all, s->n_out,
			       inverse, w_scale);
	}
	b->flat.serial = dev_serial(b->dev); /* y is not x, so the conversion stays valid */
	return rc;
}

/* ---- the choice ---- */

/* Measures the device time of a product by the library (algo NULL: by our own kernels). 0 or SL_EIO. */
static int timed(struct kn_backend *b, const struct kn_weight *w, const float *x, const struct dev_product *s,
		 const struct dev_algo *algo, float *y, uint64_t *out)
{
	int rc = 0;
	uint64_t begin = 0;
	for (int i = 0; i <= TRIES && rc == 0; i++) { /* the first run is a warm-up */
		b->flat.x = NULL;
		b->converted.x = NULL;
		rc = algo != NULL ? by_library(b, w, x, s, algo, y) : kn_cuda_own_product(b, w, x, s->n_rows, y);
		if (i == 0 && rc == 0) {
			rc = dev_sync(b->dev);
			begin = dev_busy_ns(b->dev);
		}
	}
	if (rc == 0)
		rc = dev_sync(b->dev);
	*out = dev_busy_ns(b->dev) - begin;
	return rc;
}

/* Tries the library's algorithms for one number format; updates *best if one is faster. 0 or SL_EIO. */
static int try_ways(struct kn_backend *b, const struct kn_weight *w, const float *x, const struct dev_product *s,
		    float *y, uint64_t *best, struct kn_choice *c)
{
	struct dev_algo ways[DEV_MOST_WAYS];
	uint64_t begin = dev_busy_ns(b->dev), took;
	int rc = 0, n = dev_library_ways(b->library, s, ways);
	for (int i = 0; i < n && rc == 0 && dev_busy_ns(b->dev) - begin < BUDGET_NS; i++) {
		rc = timed(b, w, x, s, &ways[i], y, &took);
		if (rc == 0 && took < *best) {
			*best = took;
			c->own = false;
			c->fp8 = s->numbers == DEV_E4M3;
			c->algo = ways[i];
		}
	}
	return rc;
}

static bool multiplies_fp8(const struct kn_backend *b, const struct kn_weight *w)
{
	return w->type == KN_CUDA_FP8 && dev_library_fp8(b->library) != DEV_FP8_NONE;
}

/* 0 or SL_EIO. */
static int tune(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y,
		struct kn_choice *c)
{
	struct dev_product s = shape_of(w, n_rows, false), s8 = shape_of(w, n_rows, true);
	struct kn_list *recording = dev_recording(b->dev);
	uint64_t begin = dev_busy_ns(b->dev), best = 0;
	int rc = kn_list_flush(b->dev);
	dev_record(b->dev, NULL);
	if (rc == 0)
		rc = timed(b, w, x, &s, NULL, y, &best);
	if (rc == 0 && multiplies_fp8(b, w))
		rc = try_ways(b, w, x, &s8, y, &best, c);
	if (rc == 0)
		rc = try_ways(b, w, x, &s, y, &best, c);
	dev_record(b->dev, recording);
	b->flat.x = NULL;
	b->converted.x = NULL;
	b->tuned_ns += dev_busy_ns(b->dev) - begin;
	return rc;
}

/* Reserves scratch for both matrices. False: out of memory, so our own kernels compute the product. */
static bool room(struct kn_backend *b, const struct kn_weight *w, const struct dev_product *s)
{
	size_t wide = (size_t)s->n_in * sizeof(uint16_t); /* enough for any format */
	return kn_cuda_room(b, &b->flat_weights, (size_t)w->n_out * (wide + sizeof(float))) == 0 &&
	       kn_cuda_room(b, &b->flat_rows, (size_t)s->n_rows * (wide + sizeof(float))) == 0;
}

/* A choice read from a file may be invalid for this product or number of rows: the library checks it. A check takes
 * microseconds, so its result is kept for that number of rows. */
static bool taken(struct kn_backend *b, const struct dev_product *s, struct kn_choice *c)
{
	if (c->taken_rows != s->n_rows)
		c->taken_rows = dev_library_takes(b->library, s, &c->algo) ? s->n_rows : 0;
	return c->taken_rows != 0;
}

void kn_cuda_library_open(struct kn_backend *b, const char *path)
{
	struct sl_err why;
	b->choices = (struct kn_choices *)b->host->zalloc(sizeof *b->choices);
	if (b->choices == NULL || dev_library_open(b->dev, &b->library, &why) != 0) {
		b->library = NULL; /* our own kernels compute everything */
		snprintf(b->lacks, sizeof b->lacks, "no vendor's library: %.90s",
			 b->choices == NULL ? "no memory" : why.text);
		return;
	}
	snprintf(b->lacks, sizeof b->lacks, "%s", dev_library_lacks(b->library));
	if (path == NULL || path[0] == '\0' || strlen(path) >= sizeof b->choices_path)
		return;
	memcpy(b->choices_path, path, strlen(path) + 1);
	kn_choices_load(b->choices, path, dev_library_key(b->library));
}

void kn_cuda_library_close(struct kn_backend *b)
{
	if (b->library != NULL)
		dev_library_close(b->library);
	b->host->free(b->choices);
}

int kn_cuda_library_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	if (b->library == NULL || kn_cuda_record_bytes(w->type) == 0 || n_rows < LEAST_ROWS || n_rows > MOST_CLASS ||
	    (uintptr_t)y % ALIGNED != 0)
		return KN_NOT_TAKEN;
	struct dev_product s = shape_of(w, n_rows, false);
	int32_t rows = LEAST_CLASS;
	while (rows < n_rows)
		rows *= 2;
	struct kn_choice *known = kn_choices_find(b->choices, w->type, w->n_out, w->n_in, rows);
	if (known != NULL && known->own)
		return KN_NOT_TAKEN;
	if (known == NULL && (b->serving || b->tuned_ns >= TUNE_NS))
		return KN_NOT_TAKEN;
	if (!room(b, w, &s))
		return dev_fault(b->dev)[0] != '\0' ? (int)SL_EIO : (int)KN_NOT_TAKEN;
	if (known != NULL && known->fp8)
		s = shape_of(w, n_rows, true);
	bool usable = known != NULL && !(known->fp8 && !multiplies_fp8(b, w)) && taken(b, &s, known);
	if (!usable && b->serving)
		return KN_NOT_TAKEN;
	if (!usable) {
		struct kn_choice made = {w->type, w->n_out, w->n_in, rows, true, false, {}, 0};
		int rc = tune(b, w, x, n_rows, y, &made);
		if (rc != 0)
			return rc;
		if (!kn_choices_put(b->choices, &made))
			return KN_NOT_TAKEN;
		if (b->choices_path[0] != '\0')
			(void)kn_choices_save(
			    b->choices, b->choices_path,
			    dev_library_key(b->library)); /* on failure the next start measures again */
		known = kn_choices_find(b->choices, w->type, w->n_out, w->n_in, rows);
		if (known == NULL || known->own)
			return KN_NOT_TAKEN;
		s = shape_of(w, n_rows, known->fp8);
	}
	return by_library(b, w, x, &s, &known->algo, y);
}
