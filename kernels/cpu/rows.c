/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on each row or each element. Threads divide the rows. A row that needs a sum is computed by one thread, so
 * the number of threads changes no result.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/some.h"

enum { STEP = 16 }; /* a part is a multiple of this many elements: a cache line */

struct rows {
	const struct kn_backend *b;
	void (*each)(const struct rows *r, int row);
	void (*elements)(const struct rows *r, size_t from, size_t to); /* all rows, contiguous */
	float *x;
	const float *y;
	const float *gain, *bias;
	const int32_t *picks;
	float *out;
	float number; /* eps, factor or cap */
	int n_rows, width, n_parts, n_groups;
};

static void run_rows(void *ctx, int part)
{
	const struct rows *r = ctx;
	int from = (int)((int64_t)r->n_rows * part / r->n_parts);
	int to = (int)((int64_t)r->n_rows * (part + 1) / r->n_parts);
	for (int row = from; row < to; row++)
		r->each(r, row);
}

/* cost: of an element, in multiply-adds. */
static int for_rows(struct kn_backend *b, struct rows *r, int cost)
{
	int parts = kn_parts_of(b, (int64_t)r->n_rows * r->width * cost);
	b->packed_of = NULL;
	r->b = b;
	r->n_parts = parts < r->n_rows ? parts : r->n_rows;
	kn_run_parts(b, r->n_parts, run_rows, r);
	return 0;
}

static void run_elements(void *ctx, int part)
{
	const struct rows *r = ctx;
	size_t n = (size_t)r->n_rows * (size_t)r->width, parts = (size_t)r->n_parts, i = (size_t)part;
	r->elements(r, n * i / parts / STEP * STEP, i + 1 == parts ? n : n * (i + 1) / parts / STEP * STEP);
}

static int for_elements(struct kn_backend *b, struct rows *r, int cost)
{
	b->packed_of = NULL;
	r->b = b;
	r->n_parts = kn_parts_of(b, (int64_t)r->n_rows * r->width * cost);
	kn_run_parts(b, r->n_parts, run_elements, r);
	return 0;
}

static float *row_of(const struct rows *r, float *x, int row) { return x + (size_t)row * (size_t)r->width; }

static const float *other_row(const struct rows *r, int row) { return r->y + (size_t)row * (size_t)r->width; }

static void add_floats(float *x, const float *y, size_t n)
{
	size_t i = 0;
	for (; i + SOME <= n; i += SOME)
		some_store(x + i, some_load(x + i) + some_load(y + i));
	for (; i < n; i++)
		x[i] += y[i];
}

void kn_norm_floats(const struct kn_backend *b, const float *x, const float *gain, float eps, int width, float *y)
{
	float scale = 1.0f / sqrtf(b->isa->sum_squares(x, width) / (float)width + eps);
	int i = 0;
	for (; i + SOME <= width; i += SOME)
		some_store(y + i, some_load(x + i) * scale * some_load(gain + i));
	for (; i < width; i++)
		y[i] = x[i] * scale * gain[i];
}

static void norm_floats(const struct rows *r, const float *x, float *y)
{
	kn_norm_floats(r->b, x, r->gain, r->number, r->width, y);
}

static void norm_row(const struct rows *r, int row) { norm_floats(r, other_row(r, row), row_of(r, r->out, row)); }

int kn_cpu_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width, float *y)
{
	struct rows r = {
	    .each = norm_row, .y = x, .gain = gain, .out = y, .number = eps, .n_rows = n_rows, .width = width};
	return for_rows(b, &r, 6);
}

/* A row here is one group, and n_rows counts groups. */
static void norm_group(const struct rows *r, int row)
{
	const float *gain = r->gain + (size_t)(row % r->n_groups) * (size_t)r->width;
	kn_norm_floats(r->b, other_row(r, row), gain, r->number, r->width, row_of(r, r->out, row));
}

int kn_cpu_rmsnorm_groups(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int n_groups,
			  int width, float *y)
{
	struct rows r = {.each = norm_group,
			 .y = x,
			 .gain = gain,
			 .out = y,
			 .number = eps,
			 .n_rows = n_rows * n_groups,
			 .n_groups = n_groups,
			 .width = width};
	return for_rows(b, &r, 6);
}

static void add_norm_row(const struct rows *r, int row)
{
	float *x = row_of(r, r->x, row);
	add_floats(x, other_row(r, row), (size_t)r->width);
	norm_floats(r, x, row_of(r, r->out, row));
}

int kn_cpu_add_rmsnorm(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
		       int width, float *y)
{
	struct rows r = {.each = add_norm_row,
			 .x = x,
			 .y = add,
			 .gain = gain,
			 .out = y,
			 .number = eps,
			 .n_rows = n_rows,
			 .width = width};
	return for_rows(b, &r, 8);
}

static float sum_of(some v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/* The mean is subtracted first: if the numbers are close together, their deviations have small squares. */
static void layer_norm_row(const struct rows *r, int row)
{
	float *x = row_of(r, r->x, row), *y = row_of(r, r->out, row);
	some sums = {0}, squares = {0};
	float sum = 0, square = 0;
	int i = 0;
	if (r->y != NULL)
		add_floats(x, other_row(r, row), (size_t)r->width);
	for (; i + SOME <= r->width; i += SOME)
		sums += some_load(x + i);
	for (; i < r->width; i++)
		sum += x[i];
	float mean = (sum_of(sums) + sum) / (float)r->width;
	for (i = 0; i + SOME <= r->width; i += SOME) {
		some apart = some_load(x + i) - mean;
		squares += apart * apart;
	}
	for (; i < r->width; i++)
		square += (x[i] - mean) * (x[i] - mean);
	float scale = 1.0f / sqrtf((sum_of(squares) + square) / (float)r->width + r->number);
	for (i = 0; i + SOME <= r->width; i += SOME)
		some_store(y + i, (some_load(x + i) - mean) * scale * some_load(r->gain + i));
	for (; i < r->width; i++)
		y[i] = (x[i] - mean) * scale * r->gain[i];
	if (r->bias != NULL)
		add_floats(y, r->bias, (size_t)r->width);
}

int kn_cpu_layernorm(struct kn_backend *b, float *x, const float *add, const float *gain, const float *bias, float eps,
		     int n_rows, int width, float *y)
{
	struct rows r = {.each = layer_norm_row,
			 .out = y,
			 .x = x,
			 .y = add,
			 .gain = gain,
			 .bias = bias,
			 .number = eps,
			 .n_rows = n_rows,
			 .width = width};
	return for_rows(b, &r, 8);
}

static void add_table_row(const struct rows *r, int row)
{
	size_t at = r->picks != NULL ? (size_t)r->picks[row] : 0;
	add_floats(row_of(r, r->x, row), r->gain + at * (size_t)r->width, (size_t)r->width);
}

int kn_cpu_embed_add(struct kn_backend *b, const float *w, enum kn_embed_by by, int width, float *y)
{
	struct rows r = {.each = add_table_row,
			 .x = y,
			 .gain = w,
			 .picks = by == KN_EMBED_POS ? b->step->row_pos : b->step->row_type,
			 .n_rows = b->step->n_rows,
			 .width = width};
	return for_rows(b, &r, 1);
}

static void gelu_erf(const struct rows *r, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		r->x[i] = 0.5f * r->x[i] * (1.0f + erff(r->x[i] * 0.70710678f));
}

int kn_cpu_gelu(struct kn_backend *b, float *x, int n_rows, int width)
{
	struct rows r = {.elements = gelu_erf, .x = x, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 40);
}

static void square_positive(const struct rows *r, size_t from, size_t to)
{
	float *x = r->x;
	for (size_t i = from; i < to; i++)
		x[i] = x[i] < 0 ? 0 : x[i] * x[i]; /* NaN stays */
}

int kn_cpu_relu_square(struct kn_backend *b, float *x, int n_rows, int width)
{
	struct rows r = {.elements = square_positive, .x = x, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 1);
}

static void silu(const struct rows *r, size_t from, size_t to)
{
	float *gate = r->x;
	const float *up = r->y;
	for (size_t i = from; i < to; i++)
		gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

int kn_cpu_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	struct rows r = {.elements = silu, .x = gate, .y = up, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 32);
}

static void sigmoid_mul(const struct rows *r, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		r->x[i] *= 1.0f / (1.0f + expf(-r->y[i]));
}

int kn_cpu_sigmoid_mul(struct kn_backend *b, float *x, const float *gate, int n_rows, int width)
{
	struct rows r = {.elements = sigmoid_mul, .x = x, .y = gate, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 32);
}

static void gelu(const struct rows *r, size_t from, size_t to)
{
	const float root = 0.7978845608028654f; /* sqrt(2/π) */
	float *gate = r->x;
	const float *up = r->y;
	for (size_t i = from; i < to; i++) {
		float g = gate[i];
		/* ½(1 + tanh x) is the logistic function of 2x. */
		float inner = root * (g + 0.044715f * g * g * g);
		gate[i] = g / (1.0f + expf(-2.0f * inner)) * up[i];
	}
}

static void clamped(const struct rows *r, size_t from, size_t to)
{
	float *gate = r->x;
	const float *up = r->y;
	for (size_t i = from; i < to; i++) {
		float g = gate[i] > KN_CLAMP ? KN_CLAMP : gate[i], u = up[i];
		u = u > KN_CLAMP ? KN_CLAMP : u < -KN_CLAMP ? -KN_CLAMP : u;
		gate[i] = g / (1.0f + expf(-KN_CLAMP_SLOPE * g)) * (u + 1.0f);
	}
}

int kn_cpu_clamped_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	struct rows r = {.elements = clamped, .x = gate, .y = up, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 36);
}

int kn_cpu_gelu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	struct rows r = {.elements = gelu, .x = gate, .y = up, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 36);
}

static void add_to(const struct rows *r, size_t from, size_t to) { add_floats(r->x + from, r->y + from, to - from); }

int kn_cpu_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	struct rows r = {.elements = add_to, .x = x, .y = y, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 1);
}

static void add_gain(const struct rows *r, int row) { add_floats(row_of(r, r->x, row), r->gain, (size_t)r->width); }

int kn_cpu_add_row(struct kn_backend *b, float *x, const float *row, int n_rows, int width)
{
	struct rows r = {.each = add_gain, .x = x, .gain = row, .n_rows = n_rows, .width = width};
	return for_rows(b, &r, 1);
}

static void scale(const struct rows *r, size_t from, size_t to)
{
	float *x = r->x;
	for (size_t i = from; i < to; i++)
		x[i] *= r->number;
}

int kn_cpu_scale(struct kn_backend *b, float *x, float factor, int n_rows, int width)
{
	struct rows r = {.elements = scale, .x = x, .number = factor, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 1);
}

static void soft_cap(const struct rows *r, size_t from, size_t to)
{
	float *x = r->x;
	for (size_t i = from; i < to; i++)
		x[i] = r->number * tanhf(x[i] / r->number);
}

int kn_cpu_softcap(struct kn_backend *b, float *x, float cap, int n_rows, int width)
{
	struct rows r = {.elements = soft_cap, .x = x, .number = cap, .n_rows = n_rows, .width = width};
	return for_elements(b, &r, 48);
}

static void add_gated_row(const struct rows *r, int row)
{
	float *x = row_of(r, r->x, row), gate = 1.0f / (1.0f + expf(-r->gain[row]));
	const float *add = other_row(r, row);
	int i = 0;
	for (; i + SOME <= r->width; i += SOME)
		some_store(x + i, some_load(x + i) + some_load(add + i) * gate);
	for (; i < r->width; i++)
		x[i] += add[i] * gate;
}

int kn_cpu_add_gated(struct kn_backend *b, float *x, const float *add, const float *gate, int n_rows, int width)
{
	struct rows r = {.each = add_gated_row, .x = x, .y = add, .gain = gate, .n_rows = n_rows, .width = width};
	return for_rows(b, &r, 2);
}
