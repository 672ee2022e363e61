/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt, opened at run time if there is a device (cuBLAS documentation, "Using the cuBLASLt API"); the backend
 * works without it. The headers are the toolkit's; the parts used here are the same in versions 12 and 13.
 *
 * Matrices here are row-major, the library's column-major, so it sees them transposed: y's columns are rows of
 * activations, y = wᵀ · x with w transposed.
 *
 * e4m3 needs compute capability 8.9. Scales per output and row need exactly 9.0 (same documentation, "FP8 data
 * types"); elsewhere the sums come unscaled. The faster accumulation with fewer bits stays off, as by default.
 */
#include "kernels/cuda/device/library.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>

#include "kernels/cuda/device/device_stream.h"

enum { WORKSPACE = 32 << 20, ALIGNED = 16 };

static_assert(sizeof(struct dev_algo) == sizeof(cublasLtMatmulAlgo_t), "an algorithm is so many words");

// clang-format off
#define FUNCTIONS(X)                                                                                                  \
	X(create, Create) X(destroy, Destroy) X(version, GetVersion) X(matmul, Matmul)                                \
	X(desc_create, MatmulDescCreate) X(desc_destroy, MatmulDescDestroy) X(desc_set, MatmulDescSetAttribute)       \
	X(layout_create, MatrixLayoutCreate) X(layout_destroy, MatrixLayoutDestroy)                                   \
	X(preference_create, MatmulPreferenceCreate) X(preference_destroy, MatmulPreferenceDestroy)                   \
	X(preference_set, MatmulPreferenceSetAttribute) X(heuristic, MatmulAlgoGetHeuristic) X(check, MatmulAlgoCheck)
// clang-format on
#define POINTER(member, name) decltype(&cublasLt##name) member;
#define GET(member, name) &&get(so, "cublasLt" #name, &c->member)

struct calls {
	FUNCTIONS(POINTER)
};

struct dev_library {
	struct dev *dev;
	void *so;
	struct calls call;
	cublasLtHandle_t handle;
	void *workspace;
	enum dev_fp8 fp8;
	char key[256], lacks[96];
};

template <class F> static bool get(void *so, const char *name, F *out)
{
	void *symbol = dlsym(so, name);
	memcpy(out, &symbol, sizeof symbol);
	return symbol != NULL;
}

static bool get_all(void *so, struct calls *c) { return true FUNCTIONS(GET); }

static bool done(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

/* The library's description of a product. The caller drops it, even if incomplete. */
struct product {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t w, x, y;
};

static void drop(const struct dev_library *l, const struct product *p)
{
	if (p->desc != NULL)
		(void)l->call.desc_destroy(p->desc);
	const cublasLtMatrixLayout_t all[] = {p->w, p->x, p->y};
	for (int i = 0; i < 3; i++)
		if (all[i] != NULL)
			(void)l->call.layout_destroy(all[i]);
}

/* Sets the call's scales; for queries any address will do, because it is not read. */
static bool describe_scales(const struct dev_library *l, const struct dev_product_call *c, struct product *p)
{
	const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
	const void *w = c != NULL ? c->w_scale : l->workspace, *x = c != NULL ? c->x_scale : l->workspace;
	return done(l->call.desc_set(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode)) &&
	       done(l->call.desc_set(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode)) &&
	       done(l->call.desc_set(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w, sizeof w)) &&
	       done(l->call.desc_set(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x, sizeof x));
}

enum dev_fp8 dev_library_fp8(const struct dev_library *l) { return l->fp8; }

const char *dev_library_lacks(const struct dev_library *l) { return l->lacks; }

/* c NULL: for a query. */
static bool describe(const struct dev_library *l, const struct dev_product *s, const struct dev_product_call *c,
		     struct product *p)
{
	const cudaDataType type = s->numbers == DEV_E4M3   ? CUDA_R_8F_E4M3
				  : s->numbers == DEV_BF16 ? CUDA_R_16BF
							   : CUDA_R_16F;
	const bool scaled = s->numbers == DEV_E4M3 && dev_library_fp8(l) == DEV_FP8_SCALED;
	const cublasOperation_t turned = CUBLAS_OP_T;
	const uint64_t n_out = (uint64_t)s->n_out, n_in = (uint64_t)s->n_in, n_rows = (uint64_t)s->n_rows;
	*p = {};
	return done(l->call.desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
	       done(l->call.desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned)) &&
	       (!scaled || describe_scales(l, c, p)) &&
	       done(l->call.layout_create(&p->w, type, n_in, n_out, s->n_in)) &&
	       done(l->call.layout_create(&p->x, type, n_in, n_rows, s->n_in)) &&
	       done(l->call.layout_create(&p->y, CUDA_R_32F, n_out, n_rows, s->n_out));
}

/* Whether there is an algorithm for a plain shape in that mode. */
static bool can_fp8(struct dev_library *l, enum dev_fp8 mode)
{
	const struct dev_product any = {4096, 4096, 256, DEV_E4M3};
	struct dev_algo ways[DEV_MOST_WAYS];
	l->fp8 = mode;
	return dev_library_ways(l, &any, ways) > 0;
}

/* The best mode that both the device and this version of the library support. An older one refuses an attribute that it
 * does not know, or has no algorithm: the log names that. */
static void find_fp8(struct dev_library *l)
{
	int capability = dev_capability(l->dev), version = (int)l->call.version();
	if (capability < 89) {
		l->fp8 = DEV_FP8_NONE;
	} else if (capability == 90 && can_fp8(l, DEV_FP8_SCALED)) {
		return;
	} else if (can_fp8(l, DEV_FP8_PLAIN)) {
		if (capability == 90)
			snprintf(l->lacks, sizeof l->lacks, "cuBLASLt %d.%d has no FP8 with scales per row (12.9 has)",
				 version / 10000, version / 100 % 100);
	} else {
		l->fp8 = DEV_FP8_NONE;
		snprintf(l->lacks, sizeof l->lacks, "cuBLASLt %d.%d has no FP8 for this device", version / 10000,
			 version / 100 % 100);
	}
}

static int open_handle(struct dev_library *l, struct sl_err *err)
{
	const struct kn_plugin_host *host = dev_host(l->dev);
	if (!get_all(l->so, &l->call))
		return host->errf(err, SL_ENOTFOUND, "libcublasLt lacks a function: %s", dlerror());
	if (!done(l->call.create(&l->handle))) {
		l->handle = NULL;
		return host->errf(err, SL_ENOTFOUND, "libcublasLt can't be used with this device");
	}
	if (dev_alloc(l->dev, WORKSPACE, &l->workspace) != 0) {
		l->workspace = NULL;
		return host->errf(err, SL_ENOMEM, "no memory for libcublasLt's workspace");
	}
	find_fp8(l);
	/* dev_name, not dev_describe: free memory must not be part of a key. */
	snprintf(l->key, sizeof l->key, "%.180s, cuBLASLt %zu", dev_name(l->dev), l->call.version());
	return 0;
}

int dev_library_open(struct dev *d, struct dev_library **out, struct sl_err *err)
{
	static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
	const struct kn_plugin_host *host = dev_host(d);
	struct dev_library *l = (struct dev_library *)host->zalloc(sizeof *l);
	if (l == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for libcublasLt");
	l->dev = d;
	for (int i = 0; i < 2 && l->so == NULL; i++)
		l->so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	int rc = l->so != NULL ? open_handle(l, err) : host->errf(err, SL_ENOTFOUND, "%s", dlerror());
	if (rc != 0) {
		dev_library_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void dev_library_close(struct dev_library *l)
{
	if (l->handle != NULL)
		(void)l->call.destroy(l->handle);
	if (l->workspace != NULL)
		dev_free(l->dev, l->workspace);
	/* The shared object stays open: its threads and handlers, like the runtime's, would not survive closing. */
	dev_host(l->dev)->free(l);
}

const char *dev_library_key(const struct dev_library *l) { return l->key; }

int dev_library_ways(struct dev_library *l, const struct dev_product *s, struct dev_algo *out)
{
	const uint64_t most = WORKSPACE;
	const uint32_t aligned = ALIGNED;
	cublasLtMatmulHeuristicResult_t found[DEV_MOST_WAYS];
	cublasLtMatmulPreference_t preference = NULL;
	struct product p;
	int n = 0, used = 0;
	bool good =
	    describe(l, s, NULL, &p) && done(l->call.preference_create(&preference)) &&
	    done(l->call.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
	const cublasLtMatmulPreferenceAttributes_t each[] = {
	    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
	    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
	for (int i = 0; i < 4 && good; i++)
		good = done(l->call.preference_set(preference, each[i], &aligned, sizeof aligned));
	if (good &&
	    done(l->call.heuristic(l->handle, p.desc, p.w, p.x, p.y, p.y, preference, DEV_MOST_WAYS, found, &n)))
		for (int i = 0; i < n; i++)
			if (found[i].state == CUBLAS_STATUS_SUCCESS)
				memcpy(&out[used++], &found[i].algo, sizeof *out);
	if (preference != NULL)
		(void)l->call.preference_destroy(preference);
	drop(l, &p);
	return used;
}

bool dev_library_takes(struct dev_library *l, const struct dev_product *s, const struct dev_algo *a)
{
	cublasLtMatmulAlgo_t algo;
	cublasLtMatmulHeuristicResult_t result;
	struct product p;
	memcpy(&algo, a, sizeof algo);
	bool good = describe(l, s, NULL, &p) &&
		    done(l->call.check(l->handle, p.desc, p.w, p.x, p.y, p.y, &algo, &result)) &&
		    result.workspaceSize <= WORKSPACE;
	drop(l, &p);
	return good;
}

int dev_library_run(const struct dev_product_call *c)
{
	const struct dev_library *l = c->library;
	const float one = 1, zero = 0;
	cublasLtMatmulAlgo_t algo;
	struct product p;
	memcpy(&algo, &c->algo, sizeof algo);
	bool good = describe(l, &c->shape, c, &p) &&
		    done(l->call.matmul(l->handle, p.desc, &one, c->w, p.w, c->x, p.x, &zero, c->y, p.y, c->y, p.y,
					&algo, l->workspace, WORKSPACE, dev_stream(l->dev)));
	drop(l, &p);
	return good ? 0 : SL_EIO;
}
