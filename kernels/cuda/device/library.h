/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by the device vendor's library (cuBLASLt), used only if a row's bits may depend on the number of rows
 * (kn_config.loose_products). library_cuda.cu wraps the library, tests/emulation/emu_library.cu replaces it,
 * library.cu decides and runs, choices.cu remembers.
 *
 * The library needs plain matrices, but weights here are packed. So a product takes four commands: unpack the weights
 * and round the activations, both into scratch; multiply; apply the scales. Measurements include all four. 16-bit and
 * FP8 weights are exact, and activations are rounded as for every product (matmul.h). Only the order of summation
 * differs, so the error bound is the same: gamma(K) times the sum of the magnitudes.
 *
 * Block-quantized weights are rounded to float16, each output with a power of two of its own: a weight is off by at
 * most 2^-11 of itself, or 2^-39 of the largest value that its output's scales allow. That doubles the activations'
 * error.
 *
 * FP8 weights are multiplied as float16, or, if the library can and it is faster, without conversion and with FP8
 * activations: each row is divided by a scale that makes its largest magnitude 448 and rounded to the nearest e4m3.
 * Then an activation is off by at most 2^-4 of itself, or 2^-10 of its scale, and a result by the same share of the
 * magnitudes of its products. That exceeds the error of all other products, so it needs loose_products.
 */
#ifndef KERNELS_CUDA_LIBRARY_H
#define KERNELS_CUDA_LIBRARY_H

#include "kernels/cuda/device/list.h"

enum { DEV_ALGO_WORDS = 8, DEV_MOST_WAYS = 8 };

/* An algorithm of the library. Its words are opaque; a file may store them together with the library's key. */
struct dev_algo {
	uint64_t word[DEV_ALGO_WORDS];
};

/* The format of both factors. */
enum dev_numbers : int32_t { DEV_F16, DEV_BF16, DEV_E4M3 };

/* y[n_rows][n_out] = x[n_rows][n_in] · w[n_out][n_in]ᵀ, sums and y in float32; a row of n_in numbers is a multiple of
 * 16 bytes. Has no padding, since it is part of commands. */
struct dev_product {
	int32_t n_out, n_in, n_rows;
	enum dev_numbers numbers;
};

/* A library's support for e4m3: none, plain products, or products with a scale per output and per row. */
enum dev_fp8 { DEV_FP8_NONE, DEV_FP8_PLAIN, DEV_FP8_SCALED };

struct dev_library;

/* The arguments of KN_PRODUCT; addresses are multiples of 16. */
struct dev_product_call {
	struct dev_library *library;
	struct dev_product shape;
	struct dev_algo algo;
	const void *w, *x;
	float *y;
	const float *w_scale, *x_scale; /* [n_out], [n_rows] for e4m3 with DEV_FP8_SCALED; otherwise NULL */
};

/* SL_ENOTFOUND: not available; *err has the reason. */
int dev_library_open(struct dev *d, struct dev_library **out, struct sl_err *err);
void dev_library_close(struct dev_library *l);
/* One line without control characters: device, driver and library with their versions. Stored algorithms are valid
 * for the same key only. */
const char *dev_library_key(const struct dev_library *l);
enum dev_fp8 dev_library_fp8(const struct dev_library *l);
/* What this device could do with another version of the library, one line for the log; "": nothing. Borrowed from l. */
const char *dev_library_lacks(const struct dev_library *l);
/* Writes algorithms for the product, promising ones first, and returns how many: at most DEV_MOST_WAYS. */
int dev_library_ways(struct dev_library *l, const struct dev_product *s, struct dev_algo *out);
/* Whether the algorithm supports this product. */
bool dev_library_takes(struct dev_library *l, const struct dev_product *s, const struct dev_algo *a);
/* Gives the product to the stream; dev_run of a KN_PRODUCT calls it. 0 or SL_EIO. */
int dev_library_run(const struct dev_product_call *c);
/* Records or runs a command for the product. */
int dev_library_product(struct dev *d, const struct dev_product_call *c);

/* ---- choices ---- */

enum { KN_MAX_CHOICES = 256 };

/* The implementation for products of a type and shape with up to `rows` rows. */
struct kn_choice {
	int32_t type, n_out, n_in, rows;
	bool own; /* our own kernels; otherwise algo */
	bool fp8; /* algo multiplies e4m3; only for weights of that type */
	struct dev_algo algo;
	int32_t taken_rows; /* the number of rows for which the library last accepted algo; 0: not checked. Not stored
			       in files */
};

struct kn_choices {
	int n;
	struct kn_choice all[KN_MAX_CHOICES];
};

/* NULL: undecided. Borrowed until the next put. */
struct kn_choice *kn_choices_find(struct kn_choices *c, int type, int n_out, int n_in, int rows);
/* Adds a choice or replaces the one for the same product. False: full. */
bool kn_choices_put(struct kn_choices *c, const struct kn_choice *one);
/* Adds missing choices from the file at path if it has that key; ignores malformed lines. */
void kn_choices_load(struct kn_choices *c, const char *path, const char *key);
/* Writes all choices, merged with those that another process has stored meanwhile, atomically. SL_EIO: the file is
 * unchanged. */
int kn_choices_save(struct kn_choices *c, const char *path, const char *key);

#endif
