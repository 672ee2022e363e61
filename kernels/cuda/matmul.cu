/* SPDX-License-Identifier: Apache-2.0
 *
 * Products and embedding rows: selects the kernel, and has the kernels without a file of their own.
 *
 * Activations are converted once for consecutive products of the same rows (queries, keys and values; gate and up): a
 * conversion stays valid while only products of it are given to the stream. Norms and gates write the converted form
 * along with their result if all weights of that width take the same format; its bits equal those of `convert`.
 *
 * F32 weights are multiplied without matrix units: a warp computes one output for up to KN_TILE rows. Lanes take four
 * weights each in rotation, and a fixed tree adds the lanes. The order depends on the width alone.
 *
 * VERSIONS
 *  1  every type by the kernel that F32 has now, decoding eight weights at a time as the file has them.
 *  2  packed weights (packed.h) on matrix units: matvec.cu, mma.cu. The conversion is one launch of a block a
 *     row, twice through the row (the second time from the cache): 1.5 to 3 µs, for four of a layer's seven
 *     products. F32 by loads of 16 bytes: 4.65 weights a cycle and multiprocessor at 4.3 TB/s, 2 operations each
 *     and row: 8 rows are 75 of 128 lanes. Not measured on a device.
 */
#include "kernels/cuda/activations.h"
#include "kernels/cuda/matmul.h"

enum { THREADS = 128, F32_OUTS = THREADS / KN_WARP, F32_STEP = 4 * KN_WARP };

/* ---- activations ---- */

/* One block per row; writes the format of matmul.h. */
template <bool BF16>
__global__ void convert(const float *x, int n_rows, int n_in, int n_slabs, bool matrices, uint8_t *units, float *sums,
			float *inverse)
{
	kn_begin();
	int row = (int)blockIdx.x, tile = row / KN_ROWS, in = row % KN_ROWS;
	bool there = row < n_rows;
	int exponent = 0;
	x += (int64_t)row * n_in;
	if (!BF16)
		exponent = kn_row_exponent(x, n_in, there);
	float scale = kn_power(exponent);
	if (threadIdx.x == 0)
		inverse[row] = kn_power(-exponent);
	for (int i = (int)threadIdx.x; i < n_slabs * 4; i += KN_ROW_THREADS) { /* whole warps */
		int slab = i / 4, t = i % 4;
		float v[8], sum[2] = {0, 0};
		uint32_t pair[4];
		kn_load4(x, slab * KN_SLAB + 4 * t, n_in, there, v);
		kn_load4(x, slab * KN_SLAB + 16 + 4 * t, n_in, there, v + 4);
		for (int e = 0; e < 4; e++) {
			float low = v[2 * e] * scale, high = v[2 * e + 1] * scale;
			pair[e] = BF16 ? kn_pair_bf16(low, high) : kn_pair_f16(low, high);
			if (!BF16)
				sum[e / 2] += kn_f16_float((uint16_t)pair[e]) + kn_f16_float((uint16_t)(pair[e] >> 16));
		}
		uint8_t *unit = units + ((int64_t)tile * n_slabs + slab) * KN_PIECE;
		if (!matrices)
			*reinterpret_cast<struct kn_u4 *>(unit + (in * 4 + t) * 16) = {pair[0], pair[1], pair[2],
										       pair[3]};
		for (int e = 0; e < 4 && matrices; e++)
			reinterpret_cast<uint32_t *>(unit)[kn_unit_at(true, in, t, e)] = pair[e];
		if constexpr (!BF16)
			for (int h = 0; h < 2; h++) {
				sum[h] += kn_shuffle_xor(sum[h], 1);
				sum[h] += kn_shuffle_xor(sum[h], 2);
				if (t == 0)
					sums[kn_sum_at((int64_t)tile * n_slabs + slab, h, in)] = sum[h];
			}
	}
}

/* Where rows are converted to: not to where the last ones are, since blocks of a product that still read these may run
 * beside one that makes the next (then.h, wgmma_gated). */
static int room_of(const struct kn_backend *b) { return 1 - b->converted.room; }

/* Reserves room in b->rows[room] for converted rows: units, then sums, then inverses. */
static int room_for(struct kn_backend *b, int room, int n_rows, int n_in, bool bf16, struct kn_into *out)
{
	int n_slabs = (int)kn_cuda_chunks(n_in) * KN_SLABS, tiles = (n_rows + KN_ROWS - 1) / KN_ROWS;
	size_t all = (size_t)tiles * KN_ROWS, units = (size_t)tiles * (size_t)n_slabs * KN_PIECE;
	size_t sums = (size_t)tiles * (size_t)n_slabs * 2 * KN_ROWS * sizeof(float);
	int rc = kn_cuda_room(b, &b->rows[room], units + sums + all * sizeof(float));
	if (rc != 0)
		return rc;
	uint8_t *at = (uint8_t *)b->rows[room].at;
	*out = {}; /* it becomes part of commands: padding must be zero */
	out->units = at;
	out->sums = (float *)(at + units);
	out->inverse = (float *)(at + units + sums);
	out->n_slabs = n_slabs;
	out->n_rows = n_rows;
	out->n_all = (int)all;
	out->bf16 = bf16;
	out->matrices = n_rows > KN_FEW_ROWS;
	return 0;
}

/* The rows in the format of products, converted unless they already are. */
static int converted(struct kn_backend *b, const float *x, int n_rows, int n_in, bool bf16, struct kn_rows *out)
{
	struct kn_converted *c = &b->converted;
	struct kn_into to;
	bool there = c->x == x && c->n_rows == n_rows && c->n_in == n_in && c->numbers == (int)bf16 &&
		     c->serial == dev_serial(b->dev);
	int room = there ? c->room : room_of(b), rc = room_for(b, room, n_rows, n_in, bf16, &to);
	if (rc != 0)
		return rc;
	*out = {to.units, to.sums, to.inverse, n_rows, to.n_slabs};
	if (there)
		return 0;
	c->x = NULL;
	rc = kn_launch(b->dev, "convert", bf16 ? convert<true> : convert<false>, (unsigned)to.n_all, KN_ROW_THREADS,
		       KN_ROW_THREADS / KN_WARP * sizeof(float), x, n_rows, n_in, to.n_slabs, to.matrices, to.units,
		       to.sums, to.inverse);
	if (rc == 0)
		*c = {x, n_rows, n_in, bf16, room, 0};
	return rc;
}

/* ---- conversions by the operation that makes the rows ---- */

static struct kn_width *width_of(struct kn_backend *b, int n_in)
{
	for (int i = 0; i < b->n_widths; i++)
		if (b->widths[i].n_in == n_in)
			return &b->widths[i];
	return NULL;
}

void kn_cuda_note_width(struct kn_backend *b, int type, int n_in)
{
	enum { SEVERAL = -1, NONE = -2 };
	int numbers = type == KN_BF16;
	struct kn_width *w = width_of(b, n_in);
	if (w == NULL && b->n_widths == KN_N_WIDTHS)
		return; /* further widths are converted by `convert` */
	if (w == NULL) {
		w = &b->widths[b->n_widths++];
		*w = {n_in, NONE, false};
	}
	if (type == KN_F32)
		w->rows = true;
	else
		w->numbers = w->numbers == NONE || w->numbers == numbers ? numbers : (int)SEVERAL;
}

bool kn_cuda_reads_rows(struct kn_backend *b, int n_in)
{
	const struct kn_width *w = width_of(b, n_in);
	return w == NULL || w->rows;
}

int kn_cuda_into(struct kn_backend *b, int n_rows, int n_in, struct kn_into *out)
{
	const struct kn_width *w = width_of(b, n_in);
	*out = {};
	if (w == NULL || w->numbers < 0 || b->library != NULL)
		return 0;
	b->converted.x = NULL;
	return room_for(b, room_of(b), n_rows, n_in, w->numbers != 0, out);
}

void kn_cuda_converted(struct kn_backend *b, const float *x, int n_in, const struct kn_into *to)
{
	int room = to->units == b->rows[1].at;
	b->converted = {x, to->n_rows, n_in, (int)to->bf16, room, dev_serial(b->dev)};
}

/* ---- F32 ---- */

/* Adds a lane's part of the products of an output with n rows. WIDE: of whole, aligned 16 bytes, several of which are
 * on their way together; past the end, some that are there are read and not used. */
template <int ROWS, bool WIDE>
__device__ static inline void f32_sums(const float *w, int n_in, const float *x, int n, int lane, float *sum)
{
	constexpr int AHEAD = WIDE ? 8 / ROWS : 1;
	for (int k = 4 * lane; k < n_in; k += AHEAD * F32_STEP) {
		float v[AHEAD][4], xv[AHEAD][ROWS][4];
		UNROLL_FOR(int j = 0; j < AHEAD; j++) {
			int at = k + j * F32_STEP < n_in ? k + j * F32_STEP : k;
			if (WIDE)
				kn_take4(w + at, v[j]);
			else
				kn_load4(w, at, n_in, true, v[j]);
			UNROLL_FOR(int r = 0; r < ROWS; r++) {
				const float *row = x + (int64_t)(r < n ? r : 0) * n_in;
				if (WIDE)
					kn_take4(row + at, xv[j][r]);
				else
					kn_load4(row, at, n_in, true, xv[j][r]);
			}
		}
		UNROLL_FOR(int j = 0; j < AHEAD; j++)
			UNROLL_FOR(int r = 0; r < ROWS; r++)
				UNROLL_FOR(int i = 0; i < 4; i++) {
					float next = kn_fma(v[j][i], xv[j][r][i], sum[r]);
					sum[r] = k + j * F32_STEP + i < n_in ? next : sum[r];
				}
	}
}

/* From row `first` on. */
template <int ROWS>
__device__ static inline void f32_rows(const float *w, int n_out, int n_in, const float *x, int n_rows, int first,
				       float *y)
{
	int lane = (int)threadIdx.x % KN_WARP;
	int out = (int)blockIdx.x * F32_OUTS + (int)threadIdx.x / KN_WARP;
	if (out >= n_out)
		return; /* the whole warp */
	int n = n_rows - first < ROWS ? n_rows - first : ROWS;
	float sum[ROWS] = {};
	w += (int64_t)out * n_in;
	x += (int64_t)first * n_in;
	if (n_in % 4 == 0 && ((uintptr_t)w | (uintptr_t)x) % sizeof(struct kn_f4) == 0)
		f32_sums<ROWS, true>(w, n_in, x, n, lane, sum);
	else
		f32_sums<ROWS, false>(w, n_in, x, n, lane, sum);
	UNROLL_FOR(int r = 0; r < ROWS; r++)
		if (r < n) {
			float all = kn_warp_sum(sum[r]);
			if (lane == 0)
				y[(int64_t)(first + r) * n_out + out] = all;
		}
}

template <int ROWS> __global__ void f32(const float *w, int n_out, int n_in, const float *x, int n_rows, float *y)
{
	kn_begin();
	f32_rows<ROWS>(w, n_out, n_in, x, n_rows, (int)blockIdx.y * ROWS, y);
}

__global__ void f32_grouped(int n_out, int n_in, const float *x, struct kn_grouped g)
{
	kn_begin();
	int i = (int)blockIdx.y, second = (int)blockIdx.z;
	if (i >= *g.n_groups)
		return; /* the whole block */
	struct kn_group at = g.groups[i];
	struct kn_matrix m = (second ? g.matrices[1] : g.matrices[0])[at.matrix];
	float *y = (second ? g.y[1] : g.y[0]) + (int64_t)at.row * n_out;
	x += (int64_t)at.row * n_in;
	for (int first = 0; m.type == KN_F32 && first < at.n; first += KN_TILE)
		f32_rows<KN_TILE>(reinterpret_cast<const float *>(m.w), n_out, n_in, x, at.n, first, y);
}

int kn_cuda_f32_grouped(struct kn_backend *b, int n_out, int n_in, const float *x, const struct kn_grouped *g)
{
	dim3 grid(((unsigned)n_out + F32_OUTS - 1) / F32_OUTS, (unsigned)g->most, (unsigned)g->n_sides);
	return KN_LAUNCH(b->dev, f32_grouped, grid, THREADS, 0, n_out, n_in, x, *g);
}

static int f32_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	const float *at = (const float *)w->data;
	unsigned blocks = ((unsigned)w->n_out + F32_OUTS - 1) / F32_OUTS,
		 tiles = ((unsigned)n_rows + KN_TILE - 1) / KN_TILE;
	auto kernel = n_rows == 1 ? f32<1> : n_rows <= 4 ? f32<4> : f32<KN_TILE>;
	return kn_launch(b->dev, "f32", kernel, dim3(blocks, tiles), THREADS, 0, at, w->n_out, w->n_in, x, n_rows, y);
}

int kn_cuda_matmul(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	n_rows = kn_cuda_rows(b, n_rows);
	int rc = kn_cuda_library_product(b, w, x, n_rows, y);
	return rc == KN_NOT_TAKEN ? kn_cuda_own_product(b, w, x, n_rows, y) : rc;
}

int kn_cuda_own_product(struct kn_backend *b, const struct kn_weight *w, const float *x, int n_rows, float *y)
{
	bool valid = b->converted.x == x && b->converted.serial == dev_serial(b->dev);
	int rc;
	if (w->type == KN_F32) {
		rc = f32_product(b, w, x, n_rows, y);
		if (valid)
			b->converted.serial = dev_serial(b->dev); /* y is not x */
	} else {
		struct kn_product p = {};
		if ((rc = converted(b, x, n_rows, w->n_in, w->type == KN_BF16, &p.x)) != 0)
			return rc;
		p.w = (const uint8_t *)w->data;
		p.w_scale = w->type == KN_CUDA_FP8 ? kn_cuda_fp8_scales(w) : NULL;
		p.n_out = w->n_out;
		p.n_chunks = (int)kn_cuda_chunks(w->n_in);
		p.y = y;
		rc = n_rows <= KN_FEW_ROWS ? kn_cuda_matvec(b, w->type, &p) : kn_cuda_wgmma(b, w->type, &p);
		if (rc == KN_NOT_TAKEN)
			rc = kn_cuda_mma(b, w->type, &p);
		b->converted.serial = dev_serial(b->dev); /* y is not x, so the conversion stays valid */
	}
	return rc;
}

/* ---- embedding rows ---- */

template <int TYPE>
__global__ void embed(const uint8_t *w, const float *w_scale, int n_in, int n_chunks, const int32_t *token, float *y)
{
	kn_begin();
	int out = token[blockIdx.x];
	y += (int64_t)blockIdx.x * n_in;
	kn_each_weight<TYPE>(w, out, n_chunks, [&](int k, float v) {
		if (k < n_in)
			y[k] = TYPE == KN_CUDA_FP8 ? v * w_scale[out] : v;
	});
}

__global__ void embed_f32(const float *w, int n_in, const int32_t *token, float *y)
{
	kn_begin();
	w += (int64_t)token[blockIdx.x] * n_in;
	y += (int64_t)blockIdx.x * n_in;
	for (int k = (int)threadIdx.x; k < n_in; k += THREADS)
		y[k] = w[k];
}

template <int TYPE> static int rows_of(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	const float *w_scale = TYPE == KN_CUDA_FP8 ? kn_cuda_fp8_scales(w) : NULL;
	return KN_LAUNCH(b->dev, embed<TYPE>, (unsigned)b->step->n_rows, THREADS, 0, (const uint8_t *)w->data, w_scale,
			 w->n_in, (int)kn_cuda_chunks(w->n_in), b->token, y);
}

int kn_cuda_embed(struct kn_backend *b, const struct kn_weight *w, float *y)
{
	if (w->type == KN_F32)
		return KN_LAUNCH(b->dev, embed_f32, (unsigned)b->step->n_rows, THREADS, 0, (const float *)w->data,
				 w->n_in, b->token, y);
	return kn_of_packed(w->type, (int)SL_EUNSUPPORTED, [&](auto t) { return rows_of<decltype(t)::type>(b, w, y); });
}
