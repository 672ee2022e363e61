/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts weights from a file's layout (kernels/blocks.h) to the device's (packed.h), on the device: pieces of whole
 * tiles are copied through a buffer of fixed size, and a kernel reorders each piece. So loading takes about as long as
 * the bus transfer, and no second copy of a weight remains.
 *
 * Matrices of F32 stay as they are: they are few (routers, small tests), and no matrix unit multiplies them.
 *
 * Floats that become FP8 (kn_config.fp8_weights): each output's weights are divided by a scale that makes the largest
 * 448, then rounded to the nearest e4m3: off by at most 2^-4 of itself, or 2^-10 of the scale. Non-finite values become
 * the largest.
 *
 * VERSIONS
 *  1  a block a record, each thread makes its 16 bytes weight by weight. Loads are of bytes; counted some 20
 *     instructions a weight: 8 billion weights take 0.4 s on 132 multiprocessors at a quarter of their rate,
 *     below the time of the copy (16 GB at 50 GB/s: 0.3 s) or about it. Not measured on a device.
 */
#include "kernels/blocks.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packed.h"

enum {
	THREADS = 128,
#ifdef KN_EMULATED
	STAGE_BYTES = 64 << 10, /* so that small matrices come in several pieces */
#else
	STAGE_BYTES = 16 << 20,
#endif
	APART = 256, /* bytes: where a matrix of several may begin */
};

__device__ static inline uint32_t u16_at(const uint8_t *at) { return at[0] | (uint32_t)at[1] << 8; }

/* As in a file. */
template <int TYPE> struct file_block;
#define BLOCK(name, n, n_bytes)                                    \
	template <> struct file_block<KN_##name> {                 \
		static constexpr int weights = n, bytes = n_bytes; \
	};
KN_TYPES(BLOCK)
#undef BLOCK
template <> struct file_block<KN_CUDA_FP8> : file_block<KN_F32> {
}; /* never in files, so never used */

/* Address of the row's block that has weight k. */
template <int TYPE> __device__ static inline const uint8_t *block_of(const uint8_t *row, int k)
{
	typedef file_block<TYPE> block;
	return row + (int64_t)(k / block::weights) * block::bytes;
}

__device__ static inline uint32_t nibble(const uint8_t *qs, int i) { return i < 16 ? qs[i] & 15u : qs[i - 16] >> 4; }

/* The stored code of weight k (kernels/blocks.h). */
template <int TYPE> __device__ static inline uint32_t code_of(const uint8_t *row, int k)
{
	if (TYPE == KN_F16 || TYPE == KN_BF16)
		return u16_at(row + 2 * (int64_t)k);
	const uint8_t *at = block_of<TYPE>(row, k);
	const int i = k % 32, in = k % 256;
	switch (TYPE) {
	case KN_Q8_0: return at[2 + i] ^ 128u;
	case KN_Q4_0:
	case KN_IQ4_NL: return nibble(at + 2, i);
	case KN_INT4: return nibble(at + 2 + k % 128 / 32 * 16, i);
	case KN_Q4_1: return nibble(at + 4, i);
	case KN_MXFP4: return nibble(at + 1, i);
	case KN_Q5_0: return nibble(at + 6, i) | (at[2 + i / 8] >> i % 8 & 1u) << 4;
	case KN_Q5_1: return nibble(at + 8, i) | (at[4 + i / 8] >> i % 8 & 1u) << 4;
	case KN_Q2_K: return at[16 + in / 128 * 32 + i] >> in / 32 % 4 * 2 & 3u;
	case KN_Q3_K: return (at[32 + in / 128 * 32 + i] >> in / 32 % 4 * 2 & 3u) | (at[i] >> in / 32 & 1u) << 2;
	case KN_Q4_K: return at[16 + in / 64 * 32 + i] >> in / 32 % 2 * 4 & 15u;
	case KN_Q5_K: return (at[48 + in / 64 * 32 + i] >> in / 32 % 2 * 4 & 15u) | (at[16 + i] >> in / 32 & 1u) << 4;
	case KN_Q6_K:
		return (at[in / 128 * 64 + in % 64] >> in / 64 % 2 * 4 & 15u) |
		       (at[128 + in / 128 * 32 + i] >> in / 32 % 4 * 2 & 3u) << 4;
	default: /* IQ4_XS */ return nibble(at + 8 + in / 32 * 16, i);
	}
}

/* FP8 only: the source's float type and its scales. */
struct floats {
	int type;
	const float *scale; /* of the first output of the piece */
};

__device__ static inline float float_of(const uint8_t *row, int type, int k)
{
	if (type == KN_F32)
		return reinterpret_cast<const float *>(row)[k];
	uint16_t h = reinterpret_cast<const uint16_t *>(row)[k];
	return type == KN_F16 ? kn_f16_float(h) : kn_bf16_float(h);
}

__device__ static inline uint32_t fp8_code(const uint8_t *row, int k, const struct floats &f, int out)
{
	float scale = f.scale[out], v = float_of(row, f.type, k);
	uint32_t code = scale > 0 ? kn_float_e4m3(v / scale) : 0;
	return (code & 127) == 127 ? code - 1 : code;
}

/* Stores P bits, from bit `low` on, of eight codes in the P bytes of a lane's slab and half. */
template <int P> __device__ static inline void put_bits(uint8_t *to, const uint32_t *code, int low)
{
	if (P == 16)
		for (int e = 0; e < 8; e++) {
			to[2 * e] = (uint8_t)code[e];
			to[2 * e + 1] = (uint8_t)(code[e] >> 8);
		}
	else if (P == 8)
		for (int e = 0; e < 8; e++)
			to[e] = (uint8_t)code[e];
	else
		for (int b = 0; b < P; b++) {
			uint32_t byte = 0;
			for (int i = 0; i < 8 / P; i++) { /* the fields of this byte */
				int place = b * (8 / P) + i, e = place % 4 * 2 + place / 4;
				byte |= (code[e] >> low & ((1u << P) - 1)) << P * i;
			}
			to[b] = (uint8_t)byte;
		}
}

template <int TYPE>
__device__ static inline void get_codes(uint32_t *code, const uint8_t *rows, int64_t row_bytes, int n_rows, int n_in,
					const struct floats &f, int out, int k0, int t)
{
	for (int e = 0; e < 8; e++) {
		int k = k0 + e / 4 * 16 + 4 * t + e % 4;
		const uint8_t *row = rows + out * row_bytes;
		code[e] = kn_form<TYPE>::off; /* a weight of zero, whatever its scale */
		if (out < n_rows && k < n_in)
			code[e] = TYPE == KN_CUDA_FP8 ? fp8_code(row, k, f, out) : code_of<TYPE>(row, k);
	}
}

/* Writes a record's plane of P bits per weight, from bit `low` on. */
template <int TYPE, int P>
__device__ static inline void put_plane(uint8_t *plane, int low, const uint8_t *rows, int64_t row_bytes, int n_rows,
					int n_in, const struct floats &f, int tile, int chunk)
{
	for (int i = (int)threadIdx.x; i < KN_SLABS * 2 * KN_WARP; i += THREADS) {
		int lane = i % KN_WARP, half = i / KN_WARP % 2, slab = i / KN_WARP / 2, b = (slab * 2 + half) * P;
		uint32_t code[8];
		uint8_t bytes[P];
		get_codes<TYPE>(code, rows, row_bytes, n_rows, n_in, f, tile * KN_OUTS + half * 8 + lane / 4,
				chunk * KN_CHUNK + slab * KN_SLAB, lane % 4);
		put_bits<P>(bytes, code, low);
		uint8_t *to = plane + b / 16 * KN_PIECE + lane * 16 + b % 16;
		for (int j = 0; j < P; j++)
			to[j] = bytes[j];
	}
}

/* Writes the heads of one output in a record. */
template <int TYPE>
__device__ static inline void put_heads(uint8_t *first, uint8_t *second, const uint8_t *row, int n_in, int chunk)
{
	typedef kn_form<TYPE> form;
	const uint8_t *at = block_of<TYPE>(row, chunk * KN_CHUNK);
	if (form::scaled == KN_D || form::scaled == KN_D_M || form::scaled == KN_E) {
		for (int s = 0; s < KN_SLABS && chunk * KN_CHUNK + s * KN_SLAB < n_in; s++) {
			const uint8_t *d = block_of<TYPE>(row, chunk * KN_CHUNK + s * KN_SLAB);
			if constexpr (form::scaled == KN_E)
				first[s] = d[0];
			else
				for (int i = 0; i < 2; i++) {
					first[2 * s + i] = d[i];
					if (form::scaled == KN_D_M)
						second[2 * s + i] = d[2 + i];
				}
		}
		return;
	}
	if (form::scaled == KN_D_128) {
		for (int i = 0; i < 2; i++) {
			second[i] = at[i];
			if (chunk * KN_CHUNK + KN_CHUNK / 2 < n_in)
				second[2 + i] = block_of<TYPE>(row, chunk * KN_CHUNK + KN_CHUNK / 2)[i];
		}
		return;
	}
	const int scales_at = TYPE == KN_Q6_K ? 192 : TYPE == KN_Q3_K ? 96 : TYPE == KN_Q2_K ? 0 : 4;
	const int d_at = TYPE == KN_Q6_K ? 208 : TYPE == KN_Q3_K ? 108 : TYPE == KN_Q2_K ? 80 : 0;
	const uint8_t *sc = at + scales_at;
	for (int i = 0; i < form::second; i++)
		second[i] = at[d_at + i];
	for (int j = 0; j < form::first; j++)
		if (TYPE == KN_Q6_K)
			first[j] = sc[j] ^ 128;
		else if (TYPE == KN_Q2_K)
			first[j] = sc[j];
		else if (TYPE == KN_Q3_K)
			first[j] =
			    (uint8_t)((j < 8 ? sc[j] & 15 : sc[j - 8] >> 4) | (sc[8 + j % 4] >> 2 * (j / 4) & 3) << 4);
		else if (TYPE == KN_IQ4_XS)
			first[j] = (uint8_t)((sc[j / 2] >> 4 * (j % 2) & 15) | ((u16_at(at + 2) >> 2 * j & 3) << 4));
		else if (j < 4 || (j >= 8 && j < 12)) /* Q4_K, Q5_K: scales, then minimums */
			first[j] = sc[j < 4 ? j : j - 4] & 63;
		else if (j < 8)
			first[j] = (uint8_t)((sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4);
		else
			first[j] = (uint8_t)(sc[j - 4] >> 4 | (sc[j - 8] >> 6) << 4);
}

/* Writes the record of a tile and a chunk; missing weights stay zero, as allocated. */
template <int TYPE>
__global__ void pack(const uint8_t *rows, int64_t row_bytes, int n_rows, int n_in, struct floats f, uint8_t *to)
{
	kn_begin();
	typedef kn_form<TYPE> form;
	int chunk = (int)blockIdx.x, tile = (int)blockIdx.y, out = tile * KN_OUTS + (int)threadIdx.x;
	uint8_t *record = to + ((int64_t)tile * gridDim.x + chunk) * form::record;
	put_plane<TYPE, form::main>(record, 0, rows, row_bytes, n_rows, n_in, f, tile, chunk);
	if (form::more > 0)
		put_plane<TYPE, form::more ? form::more : 1>(record + form::main * KN_PIECE, form::main, rows,
							     row_bytes, n_rows, n_in, f, tile, chunk);
	if (form::scaled != KN_PLAIN && threadIdx.x < KN_OUTS && out < n_rows)
		put_heads<TYPE>(record + form::heads_at + (int)threadIdx.x * form::first,
				record + form::second_at + (int)threadIdx.x * form::second, rows + out * row_bytes,
				n_in, chunk);
}

/* scale[out] = max |w| / 448 over finite weights; one warp per output. */
__global__ void fp8_scales(const uint8_t *rows, int64_t row_bytes, int type, int n_rows, int n_in, float *scale)
{
	kn_begin();
	int out = (int)blockIdx.x * (THREADS / KN_WARP) + (int)threadIdx.x / KN_WARP;
	if (out >= n_rows)
		return; /* the whole warp */
	float most = 0;
	for (int k = (int)threadIdx.x % KN_WARP; k < n_in; k += KN_WARP) {
		float v = fabsf(float_of(rows + out * row_bytes, type, k));
		if (v <= 3.402823466e38f)
			most = fmaxf(most, v);
	}
	most = kn_warp_max(most);
	if (threadIdx.x % KN_WARP == 0)
		scale[out] = most / 448.0f;
}

/* ---- on the host ---- */

int64_t kn_cuda_record_bytes(int type)
{
	return kn_of_packed(type, (int64_t)0, [](auto t) { return (int64_t)kn_form<decltype(t)::type>::record; });
}

template <int TYPE>
static int pack_rows(struct kn_backend *b, const uint8_t *rows, int64_t row_bytes, int n_rows, int n_in,
		     const struct floats &f, uint8_t *to)
{
	dim3 grid((unsigned)kn_cuda_chunks(n_in), (unsigned)kn_cuda_tiles(n_rows));
	return KN_LAUNCH(b->dev, pack<TYPE>, grid, THREADS, 0, rows, row_bytes, n_rows, n_in, f, to);
}

/* Packs n rows of the matrix, which are on the device at `rows`. */
static int pack_piece(struct kn_backend *b, const struct kn_weight *w, int from, const uint8_t *rows, int64_t row_bytes,
		      int first, int n)
{
	int64_t tile_bytes = kn_cuda_chunks(w->n_in) * kn_cuda_record_bytes(w->type);
	uint8_t *to = (uint8_t *)const_cast<void *>(w->data) + first / KN_OUTS * tile_bytes;
	struct floats f = {from, NULL};
	if (w->type == KN_CUDA_FP8) {
		float *scale = const_cast<float *>(kn_cuda_fp8_scales(w)) + first;
		unsigned blocks = ((unsigned)n + THREADS / KN_WARP - 1) / (THREADS / KN_WARP);
		int rc = KN_LAUNCH(b->dev, fp8_scales, blocks, THREADS, 0, rows, row_bytes, from, n, w->n_in, scale);
		if (rc != 0)
			return rc;
		f.scale = scale;
	}
	return kn_of_packed(w->type, (int)SL_EUNSUPPORTED, [&](auto t) {
		return pack_rows<decltype(t)::type>(b, rows, row_bytes, n, w->n_in, f, to);
	});
}

const float *kn_cuda_fp8_scales(const struct kn_weight *w)
{
	int64_t records = kn_cuda_tiles(w->n_out) * kn_cuda_chunks(w->n_in);
	return (const float *)((const uint8_t *)w->data + records * kn_form<KN_CUDA_FP8>::record);
}

/* The source of a matrix: rows on the host, or noise. */
struct source {
	const void *const *host;
	const struct kn_noise *noise; /* used if host is NULL */
	int first;                    /* of the noise's rows */
};

/* Brings rows [first, first + n) of matrix `which` to the device, in the file layout of that type: to `to`, or if NULL
 * to *at. */
static int bring(struct kn_backend *b, const struct source *s, int which, int type, int64_t row_bytes, int first, int n,
		 int n_in, uint8_t *to, uint8_t **at)
{
	size_t bytes = (size_t)row_bytes * (size_t)n;
	if (s->host != NULL)
		return kn_cuda_bring(b, (const uint8_t *)s->host[which] + first * row_bytes, bytes, to, at);
	int rc = to == NULL ? kn_cuda_room(b, &b->stage, bytes) : 0;
	if (rc != 0)
		return rc;
	*at = to != NULL ? to : (uint8_t *)b->stage.at;
	return kn_cuda_noise_rows(b, &s->noise[which], type, row_bytes, s->first + first, n, n_in, *at);
}

/* Writes the n_rows rows of matrix `which` to w->data, which is zero, from row `begin` on. */
static int fill(struct kn_backend *b, const struct kn_weight *w, const struct source *s, int which, int from,
		int64_t row_bytes, int begin, int n_rows)
{
	bool packed = w->type != KN_F32;
	uint8_t *data = (uint8_t *)const_cast<void *>(w->data), *at;
	int64_t least = KN_OUTS, fits = STAGE_BYTES / row_bytes / least * least,
		most = 65535 * least; /* a grid's limit */
	int rc = 0;
	fits = fits < least ? least : fits > most ? most : fits;
	for (int first = 0, n; rc == 0 && first < n_rows; first += n) {
		n = n_rows - first < fits ? n_rows - first : (int)fits;
		uint8_t *to = packed ? NULL : data + (begin + first) * row_bytes;
		rc = bring(b, s, which, from, row_bytes, first, n, w->n_in, to, &at);
		if (rc == 0 && packed)
			rc = pack_piece(b, w, from, at, row_bytes, begin + first, n);
		if (rc == 0 && s->host != NULL)
			rc = kn_cuda_brought(b);
	}
	return rc;
}

/* The bytes of the matrix on the device, and of a row in the file. 0 or SL_EINVAL. */
static int size_of(struct kn_backend *b, const struct kn_weight *w, int from, size_t *bytes, size_t *row_bytes)
{
	if (w->n_out < 1 || w->n_in < 1 || w->n_in % b->host->type_block(from) != 0)
		return SL_EINVAL;
	*row_bytes = b->host->row_bytes(from, (size_t)w->n_in);
	if (w->type == KN_F32)
		return __builtin_mul_overflow(*row_bytes, (size_t)w->n_out, bytes) ? SL_EINVAL : 0;
	if (w->n_in > INT32_MAX - KN_CHUNK || w->n_out > INT32_MAX - KN_OUTS)
		return SL_EINVAL;
	size_t records = (size_t)kn_cuda_tiles(w->n_out) * (size_t)kn_cuda_chunks(w->n_in), scales = 0;
	if (w->type == KN_CUDA_FP8)
		scales = (size_t)kn_cuda_tiles(w->n_out) * KN_OUTS * sizeof(float);
	return __builtin_mul_overflow(records, (size_t)kn_cuda_record_bytes(w->type), bytes) ||
		       __builtin_add_overflow(*bytes, scales, bytes)
		   ? SL_EINVAL
		   : 0;
}

/* The sum of the rows; 0: invalid. */
static int rows_of_all(const int *n_outs, int n)
{
	int all = 0;
	for (int i = 0; i < n; i++)
		if (n_outs[i] < 1 || __builtin_add_overflow(all, n_outs[i], &all))
			return 0;
	return all;
}

static int type_on_device(const struct kn_backend *b, int type)
{
	bool floats = type == KN_F32 || type == KN_F16 || type == KN_BF16;
	return floats && b->fp8_weights ? (int)KN_CUDA_FP8 : type;
}

static int check_type(struct kn_backend *b, int type, struct sl_err *err)
{
	if (b->host->type_block(type) != 0 && (type == KN_F32 || kn_cuda_record_bytes(type) != 0))
		return 0;
	return b->host->errf(err, SL_EUNSUPPORTED, "weights of type %s are not supported by the CUDA backend",
			     b->host->type_name(type));
}

static int failed(struct kn_backend *b, int rc, size_t bytes, int n_out, int n_in, int type, struct sl_err *err)
{
	return b->host->errf(err, rc, "%zu bytes for a matrix of %d × %d %s on the device: %s", bytes, n_out, n_in,
			     b->host->type_name(type), rc == SL_ENOMEM ? "no memory" : dev_fault(b->dev));
}

static void note_loaded(struct kn_backend *b, const struct kn_weight *w)
{
	b->widest_in = w->n_in > b->widest_in ? w->n_in : b->widest_in;
	b->longest_out = w->n_out > b->longest_out ? w->n_out : b->longest_out;
	kn_cuda_note_width(b, w->type, w->n_in);
}

/* If packed, each matrix but the last has whole tiles only, so a tile's records are the same as without joining. */
static int load(struct kn_backend *b, const struct source *s, const int *n_outs, int n, int type, int n_in,
		struct kn_weight *out, struct sl_err *err)
{
	int n_out = rows_of_all(n_outs, n);
	struct kn_weight w = {NULL, type_on_device(b, type), n_out, n_in, false};
	size_t bytes, row_bytes;
	void *at;
	int rc = check_type(b, type, err);
	if (rc != 0)
		return rc;
	if (size_of(b, &w, type, &bytes, &row_bytes) != 0)
		return b->host->errf(err, SL_EINVAL, "a weight of %d × %d %s", n_out, n_in, b->host->type_name(type));
	for (int i = 0; i + 1 < n; i++)
		if (w.type != KN_F32 && n_outs[i] % KN_OUTS != 0)
			return b->host->errf(err, SL_EUNSUPPORTED, "%d rows are not joined with others", n_outs[i]);
	rc = dev_alloc(b->dev, bytes, &at);
	w.data = at;
	for (int i = 0, begin = 0; i < n && rc == 0; begin += n_outs[i++])
		if ((rc = fill(b, &w, s, i, type, (int64_t)row_bytes, begin, n_outs[i])) != 0)
			dev_free(b->dev, at);
	if (rc != 0)
		return failed(b, rc, bytes, n_out, n_in, type, err);
	*out = w;
	note_loaded(b, &w);
	return 0;
}

int kn_cuda_weight_load_joined(struct kn_backend *b, const void *const *host, const int *n_outs, int n, int type,
			       int n_in, struct kn_weight *out, struct sl_err *err)
{
	const struct source s = {host, NULL, 0};
	return load(b, &s, n_outs, n, type, n_in, out, err);
}

int kn_cuda_weight_load(struct kn_backend *b, const void *host, int type, int n_out, int n_in, struct kn_weight *out,
			struct sl_err *err)
{
	return kn_cuda_weight_load_joined(b, &host, &n_out, 1, type, n_in, out, err);
}

static bool is_noise(const struct kn_noise *n) { return n->spread > 0 && n->spread < INFINITY; }

int kn_cuda_weight_random(struct kn_backend *b, const struct kn_noise *noise, const int *n_outs, int n, int type,
			  int n_in, struct kn_weight *out, struct sl_err *err)
{
	const struct source s = {NULL, noise, 0};
	for (int i = 0; i < n; i++)
		if (!is_noise(&noise[i]))
			return b->host->errf(err, SL_EINVAL, "noise of a spread of %g", (double)noise[i].spread);
	return load(b, &s, n_outs, n, type, n_in, out, err);
}

/* Bytes from one of several matrices to the next. 0 or SL_EINVAL. */
static int apart(struct kn_backend *b, const struct kn_weight *w, int type, int n, size_t *bytes, size_t *row_bytes)
{
	int rows;
	size_t all;
	if (n < 1 || size_of(b, w, type, bytes, row_bytes) != 0 || __builtin_mul_overflow(n, w->n_out, &rows) ||
	    __builtin_add_overflow(*bytes, APART - 1, bytes))
		return SL_EINVAL;
	*bytes = *bytes / APART * APART;
	return __builtin_mul_overflow(*bytes, (size_t)n, &all) ? SL_EINVAL : 0;
}

int kn_cuda_weights_load(struct kn_backend *b, const void *host, const struct kn_noise *noise, int n, int type,
			 int n_out, int n_in, struct kn_weight *out, struct sl_err *err)
{
	struct kn_weight w = {NULL, type_on_device(b, type), n_out, n_in, false};
	size_t each, row_bytes;
	void *at = NULL;
	int rc = check_type(b, type, err);
	if (rc != 0)
		return rc;
	if (apart(b, &w, type, n, &each, &row_bytes) != 0 || (host == NULL && !is_noise(noise)))
		return b->host->errf(err, SL_EINVAL, "%d weights of %d × %d %s", n, n_out, n_in,
				     b->host->type_name(type));
	rc = dev_alloc(b->dev, each * (size_t)n, &at);
	for (int i = 0; i < n && rc == 0; i++) {
		const void *one = host != NULL ? (const uint8_t *)host + (size_t)i * (size_t)n_out * row_bytes : NULL;
		const struct source s = {host != NULL ? &one : NULL, noise, i * n_out};
		w.data = (uint8_t *)at + (size_t)i * each;
		w.borrowed = i > 0;
		out[i] = w;
		rc = fill(b, &w, &s, 0, type, (int64_t)row_bytes, 0, n_out);
	}
	if (rc == 0)
		note_loaded(b, &w);
	else if (at != NULL)
		dev_free(b->dev, at);
	for (int i = 0; i < n && rc != 0; i++)
		out[i] = {};
	return rc == 0 ? 0 : failed(b, rc, each * (size_t)n, n * n_out, n_in, type, err);
}

void kn_cuda_weight_free(struct kn_backend *b, struct kn_weight *w)
{
	b->freed++;
	if (w->data != NULL && !w->borrowed)
		dev_free(b->dev, const_cast<void *>(w->data));
	w->data = NULL;
}
