/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for cuBLASLt, built as libcublasLt.so.13 and found by dlopen like the real one. It takes what the manual
 * says the library takes ("Using the cuBLASLt API": supported types, layouts and scale modes, alignments) and answers
 * the rest with the library's status; a call of cublasLtMatmul that breaks a promise (an alignment, a workspace, a
 * scale without an address) is a finding of the runtime's stand-in, to whose stream the product goes.
 */
#include <cublasLt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/standin_api.h"

enum { MAGIC = 0x57A2D1, ALIGNED = 16, WORKSPACE = 1 << 20 };

struct cublasLtContext {
	int version;
};

struct cublasLtMatmulDescOpaque_t {
	int32_t trans_a, trans_b, a_mode, b_mode;
	const void *a_scale, *b_scale;
	bool fast;
};

struct cublasLtMatrixLayoutOpaque_t {
	cudaDataType type;
	uint64_t rows, columns;
	int64_t ld;
};

struct cublasLtMatmulPreferenceOpaque_t {
	uint64_t workspace;
	uint32_t aligned[4];
};

/* An algorithm's words: MAGIC, its number, the product it was named for, and the alignments that the preference
 * promised of A, B, C and D, of 16 bits each. */
struct algo {
	uint64_t magic, way, m, n, k, type, needs, aligned;
};

static_assert(sizeof(struct algo) == sizeof(cublasLtMatmulAlgo_t), "an algorithm is so many words");

static struct standin_library library = {false, 130000, 2, 120900, 90};

extern "C" __attribute__((visibility("default"))) void sluice_standin_library(const struct standin_library *set)
{
	library = *set;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
	if (library.missing)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	*out = (cublasLtHandle_t)calloc(1, sizeof **out);
	return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t l)
{
	free(l);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT size_t cublasLtGetVersion(void) { return library.version; }

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
					       cudaDataType scale)
{
	if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
		return CUBLAS_STATUS_INVALID_VALUE;
	*out = (cublasLtMatmulDesc_t)calloc(1, sizeof **out);
	return *out != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	free(d);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take(void *to, size_t size, const void *value, size_t bytes)
{
	if (value == NULL || bytes != size)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(to, value, size);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
						     const void *value, size_t bytes)
{
	switch (attr) {
	case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->trans_a, sizeof d->trans_a, value, bytes);
	case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->trans_b, sizeof d->trans_b, value, bytes);
	case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(&d->a_scale, sizeof d->a_scale, value, bytes);
	case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(&d->b_scale, sizeof d->b_scale, value, bytes);
	case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return take(&d->fast, 1, value, bytes);
	default: break;
	}
	if (library.version < (size_t)library.scales_since)
		return CUBLAS_STATUS_INVALID_VALUE; /* an attribute that it does not know */
	if (attr == CUBLASLT_MATMUL_DESC_A_SCALE_MODE)
		return take(&d->a_mode, sizeof d->a_mode, value, bytes);
	if (attr == CUBLASLT_MATMUL_DESC_B_SCALE_MODE)
		return take(&d->b_mode, sizeof d->b_mode, value, bytes);
	return CUBLAS_STATUS_INVALID_VALUE;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
						 uint64_t columns, int64_t ld)
{
	*out = (cublasLtMatrixLayout_t)calloc(1, sizeof **out);
	if (*out == NULL)
		return CUBLAS_STATUS_ALLOC_FAILED;
	**out = {type, rows, columns, ld};
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
	free(m);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
	*out = (cublasLtMatmulPreference_t)calloc(1, sizeof **out);
	if (*out == NULL)
		return CUBLAS_STATUS_ALLOC_FAILED;
	for (int i = 0; i < 4; i++)
		(*out)->aligned[i] = 256; /* the manual's default */
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
	free(p);
	return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
							   cublasLtMatmulPreferenceAttributes_t attr, const void *value,
							   size_t bytes)
{
	if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		return take(&p->workspace, sizeof p->workspace, value, bytes);
	int at = (int)attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
	if (at < 0 || at > 3)
		return CUBLAS_STATUS_INVALID_VALUE;
	return take(&p->aligned[at], sizeof p->aligned[at], value, bytes);
}

/* ---- what it takes ---- */

static uint64_t bytes_of(cudaDataType t) { return t == CUDA_R_8F_E4M3 ? 1 : t == CUDA_R_32F ? 4 : 2; }

static bool rows_aligned(const struct cublasLtMatrixLayoutOpaque_t *m)
{
	return m->ld >= (int64_t)m->rows && (uint64_t)m->ld * bytes_of(m->type) % ALIGNED == 0;
}

static bool scaled(const struct cublasLtMatmulDescOpaque_t *d)
{
	return d->a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ||
	       d->b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}

/* Eight bits: A transposed and B not, everything aligned, since 8.9; a scale for each row and column on 9.0 alone. */
static bool takes_e4m3(const struct cublasLtMatmulDescOpaque_t *d, const struct cublasLtMatrixLayoutOpaque_t *a,
		       const struct cublasLtMatrixLayoutOpaque_t *b, const struct cublasLtMatrixLayoutOpaque_t *y)
{
	if (library.capability < 89 || d->trans_a != CUBLAS_OP_T || d->trans_b != CUBLAS_OP_N)
		return false;
	if (a->rows % ALIGNED != 0 || y->rows % ALIGNED != 0 || !rows_aligned(a) || !rows_aligned(b) ||
	    !rows_aligned(y))
		return false;
	return !scaled(d) || (library.capability == 90 && d->a_mode == d->b_mode);
}

static cublasStatus_t takes(const struct cublasLtMatmulDescOpaque_t *d, const struct cublasLtMatrixLayoutOpaque_t *a,
			    const struct cublasLtMatrixLayoutOpaque_t *b, const struct cublasLtMatrixLayoutOpaque_t *c,
			    const struct cublasLtMatrixLayoutOpaque_t *y)
{
	if (d == NULL || a == NULL || b == NULL || c == NULL || y == NULL)
		return CUBLAS_STATUS_INVALID_VALUE;
	uint64_t m = d->trans_a ? a->columns : a->rows, k = d->trans_a ? a->rows : a->columns;
	if ((d->trans_b ? b->columns : b->rows) != k || (d->trans_b ? b->rows : b->columns) != y->columns ||
	    y->rows != m || c->rows != y->rows || c->columns != y->columns || a->ld < (int64_t)a->rows ||
	    b->ld < (int64_t)b->rows || y->ld < (int64_t)y->rows)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (a->type != b->type || y->type != CUDA_R_32F || c->type != CUDA_R_32F)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	if (a->type == CUDA_R_8F_E4M3)
		return takes_e4m3(d, a, b, y) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
	return scaled(d) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static struct algo algo_of(int way, const struct cublasLtMatrixLayoutOpaque_t *a,
			   const struct cublasLtMatrixLayoutOpaque_t *y)
{
	return {MAGIC,
		(uint64_t)way,
		y->rows,
		y->columns,
		a->rows,
		(uint64_t)a->type,
		way % 2 == 1 ? (uint64_t)WORKSPACE : 0,
		0};
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
						     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
						     cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t p, int most,
						     cublasLtMatmulHeuristicResult_t *found, int *n)
{
	cublasStatus_t rc = takes(d, a, b, c, y);
	*n = 0;
	if (rc != CUBLAS_STATUS_SUCCESS)
		return rc;
	for (int i = 0; i < library.ways && *n < most; i++) {
		struct algo algo = algo_of(i, a, y);
		if (algo.needs > p->workspace)
			continue;
		for (int k = 0; k < 4; k++)
			algo.aligned |= (uint64_t)(uint16_t)p->aligned[k] << 16 * k;
		cublasLtMatmulHeuristicResult_t *r = &found[(*n)++];
		*r = {};
		memcpy(&r->algo, &algo, sizeof algo);
		r->workspaceSize = algo.needs;
		r->state = CUBLAS_STATUS_SUCCESS;
		r->wavesCount = 1;
	}
	return *n > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Whether the algorithm is one of the library's, and for such a product. */
static bool is_for(const struct algo *algo, const struct cublasLtMatrixLayoutOpaque_t *a,
		   const struct cublasLtMatrixLayoutOpaque_t *y)
{
	return algo->magic == MAGIC && algo->way < (uint64_t)library.ways && algo->m == y->rows && algo->k == a->rows &&
	       algo->type == (uint64_t)a->type;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
					      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
					      cublasLtMatrixLayout_t y, const cublasLtMatmulAlgo_t *given,
					      cublasLtMatmulHeuristicResult_t *result)
{
	struct algo algo;
	cublasStatus_t rc = takes(d, a, b, c, y);
	memcpy(&algo, given, sizeof algo);
	*result = {};
	if (rc != CUBLAS_STATUS_SUCCESS)
		return rc;
	if (!is_for(&algo, a, y))
		return CUBLAS_STATUS_INVALID_VALUE;
	result->algo = *given;
	result->workspaceSize = algo.needs;
	result->state = CUBLAS_STATUS_SUCCESS;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- a product ---- */

static float value(const void *at, int64_t i, int numbers)
{
	if (numbers == 2)
		return kn_e4m3_float(static_cast<const uint8_t *>(at)[i]);
	uint16_t h = static_cast<const uint16_t *>(at)[i];
	return numbers == 1 ? kn_bf16_float(h) : kn_f16_float(h);
}

static void multiply(const struct standin_product *p)
{
	const int half = p->way % 2 ? p->n_in / 2 : p->n_in;
	for (int64_t r = 0; r < p->n_rows; r++)
		for (int64_t o = 0; o < p->n_out; o++) {
			float sum[2] = {0, 0};
			for (int64_t k = 0; k < p->n_in; k++)
				sum[k >= half] +=
				    value(p->w, o * p->n_in + k, p->numbers) * value(p->x, r * p->n_in + k, p->numbers);
			float scale = p->w_scale != NULL ? p->w_scale[o] * p->x_scale[r] : 1.0f;
			p->y[r * p->n_out + o] = (sum[0] + sum[1]) * scale;
		}
}

static bool aligned(const void *p) { return p != NULL && (uintptr_t)p % ALIGNED == 0; }

/* As the library needs it, and as this algorithm was promised for operand k. */
static bool promised(const struct algo *algo, int k, const void *p)
{
	uint64_t to = algo->aligned >> 16 * k & 0xFFFF;
	return aligned(p) && to != 0 && (uintptr_t)p % to == 0;
}

/* NULL, or what a device would have got wrong. */
static const char *misuse(const struct cublasLtMatmulDescOpaque_t *d, const struct algo *algo, const float *alpha,
			  const float *beta, const void *a, const void *b, const void *c, const void *y,
			  const void *workspace, size_t workspace_bytes)
{
	if (!promised(algo, 0, a) || !promised(algo, 1, b) || !promised(algo, 2, c) || !promised(algo, 3, y))
		return "cublasLtMatmul: an address without the alignment that the preference promised";
	if (algo->needs > workspace_bytes || (algo->needs > 0 && !aligned(workspace)))
		return "cublasLtMatmul: the algorithm needs more workspace";
	if (scaled(d) && (d->a_scale == NULL || d->b_scale == NULL))
		return "cublasLtMatmul: a scale mode without the scales' address";
	if (*alpha != 1 || *beta != 0)
		return "cublasLtMatmul: factors other than 1 and 0, which this stand-in does not have";
	return NULL;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t l, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
				     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
				     const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *y,
				     cublasLtMatrixLayout_t y_layout, const cublasLtMatmulAlgo_t *given,
				     void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
	const struct standin_calls *calls =
	    stream != NULL ? *(const struct standin_calls *const *)(const void *)stream : NULL;
	struct algo algo;
	cublasStatus_t rc = takes(d, a_layout, b_layout, c_layout, y_layout);
	if (l == NULL || calls == NULL)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (rc != CUBLAS_STATUS_SUCCESS)
		return rc;
	memcpy(&algo, given, sizeof algo);
	if (!is_for(&algo, a_layout, y_layout) || d->trans_a != CUBLAS_OP_T ||
	    a_layout->ld != (int64_t)a_layout->rows || b_layout->ld != (int64_t)b_layout->rows ||
	    y_layout->ld != (int64_t)y_layout->rows)
		return CUBLAS_STATUS_INVALID_VALUE;
	const char *wrong =
	    misuse(d, &algo, (const float *)alpha, (const float *)beta, a, b, c, y, workspace, workspace_bytes);
	if (wrong != NULL) {
		calls->finding(wrong);
		return CUBLAS_STATUS_INVALID_VALUE;
	}
	struct standin_product p = {};
	p.numbers = a_layout->type == CUDA_R_8F_E4M3 ? 2 : a_layout->type == CUDA_R_16BF ? 1 : 0;
	p.n_out = (int)y_layout->rows;
	p.n_in = (int)a_layout->rows;
	p.n_rows = (int)y_layout->columns;
	p.way = (int)algo.way;
	p.w = a;
	p.x = b;
	p.y = (float *)y;
	p.w_scale = scaled(d) ? (const float *)d->a_scale : NULL;
	p.x_scale = scaled(d) ? (const float *)d->b_scale : NULL;
	p.workspace = workspace;
	p.workspace_bytes = algo.needs;
	p.run = multiply;
	return calls->product(stream, &p) == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
