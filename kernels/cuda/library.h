/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by the library of the device's vendor (cuBLASLt), where a row's bits may depend on how many rows there are
 * (kn_config.loose_products): library_cuda.cu is the library, tests/emulation/emu_library.cu its stand-in, library.cu
 * decides and carries out, choices.cu remembers.
 *
 * The library wants matrices as they are written; here they are packed. So a product by it is four commands: the
 * weights unpacked and the activations rounded, both into scratch, the product, and its scales. What that costs is in
 * what is timed when it is decided. Weights of 16 bits and of FP8 are exact there and the activations those of every
 * product (matmul.h); only the order of a sum is another one, so the error is bounded as there: by gamma(K) times the
 * sum of the magnitudes.
 *
 * Weights in blocks of integers are rounded to float16, each output's times a power of two of its own: each is off by
 * 2^-11 of itself at most, or by 2^-39 of the largest that its output's scales allow. That is as much again as the
 * activations' error.
 *
 * Weights of FP8 are multiplied as float16, or, where the library does so and it is quicker, as they are, with
 * activations of FP8 too: each row is divided by a scale that makes its largest 448 and rounded to the nearest e4m3.
 * Then an activation is off by 2^-4 of itself at most, or 2^-10 of its scale, and a result by as much of the magnitudes
 * of its products: that is more than all other products' error, so it is only where products may be loose.
 */
#ifndef KERNELS_CUDA_LIBRARY_H
#define KERNELS_CUDA_LIBRARY_H

#include "kernels/cuda/list.h"

enum { DEV_ALGO_WORDS = 8, DEV_MOST_WAYS = 8 };

/* One of the library's ways to make a product. What the words mean is its own; they may be kept in a file beside its
 * key. */
struct dev_algo {
	uint64_t word[DEV_ALGO_WORDS];
};

/* Of both factors. */
enum dev_numbers : int32_t { DEV_F16, DEV_BF16, DEV_E4M3 };

/* y[n_rows][n_out] = x[n_rows][n_in] · w[n_out][n_in]ᵀ, sums and y in float32; a row of n_in numbers is a multiple of 16 bytes. No
 * bytes between its members: it is a part of commands. */
struct dev_product {
	int32_t n_out, n_in, n_rows;
	enum dev_numbers numbers;
};

/* What a library does with e4m3: nothing, plain products, or products with a scale for each output and each row. */
enum dev_fp8 { DEV_FP8_NONE, DEV_FP8_PLAIN, DEV_FP8_SCALED };

struct dev_library;

/* What KN_PRODUCT carries; addresses are multiples of 16. */
struct dev_product_call {
	struct dev_library *library;
	struct dev_product shape;
	struct dev_algo algo;
	const void *w, *x;
	float *y;
	const float *w_scale, *x_scale; /* of e4m3 where the library is DEV_FP8_SCALED: [n_out], [n_rows]; else NULL */
};

/* SL_ENOTFOUND and *err: why there is none. */
int dev_library_open(struct dev *d, struct dev_library **out, struct sl_err *err);
void dev_library_close(struct dev_library *l);
/* One line without control characters: device, driver and library with their versions. What is kept of ways is for
 * that. */
const char *dev_library_key(const struct dev_library *l);
enum dev_fp8 dev_library_fp8(const struct dev_library *l);
/* Ways to make it, likely ones first; how many of at most DEV_MOST_WAYS. */
int dev_library_ways(struct dev_library *l, const struct dev_product *s, struct dev_algo *out);
/* Whether the library takes that way for this product. */
bool dev_library_takes(struct dev_library *l, const struct dev_product *s, const struct dev_algo *a);
/* Puts the product on the stream; 0 or SL_EIO. By dev_run of a KN_PRODUCT. */
int dev_library_run(const struct dev_product_call *c);
/* A command of it, recorded or run. */
int dev_library_product(struct dev *d, const struct dev_product_call *c);

/* ---- choices ---- */

enum { KN_MAX_CHOICES = 256 };

/* What makes products of a type and shape of up to `rows` rows. */
struct kn_choice {
	int32_t type, n_out, n_in, rows;
	bool own; /* the kernels here; otherwise algo */
	bool fp8; /* algo multiplies e4m3; only of weights of that type */
	struct dev_algo algo;
	int32_t taken_rows; /* the library was asked for so many last, and takes it; 0: not asked. In no file. */
};

struct kn_choices {
	int n;
	struct kn_choice all[KN_MAX_CHOICES];
};

/* NULL: not decided yet. Borrowed until the next put. */
struct kn_choice *kn_choices_find(struct kn_choices *c, int type, int n_out, int n_in, int rows);
/* Adds it or takes the place of the one for the same; false: there is no room. */
bool kn_choices_put(struct kn_choices *c, const struct kn_choice *one);
/* Adds those of the file at path that are not there, if it is of that key; what is not as written here is left out. */
void kn_choices_load(struct kn_choices *c, const char *path, const char *key);
/* Writes all, and what another wrote there meanwhile, atomically. SL_EIO: the file is as it was. */
int kn_choices_save(struct kn_choices *c, const char *path, const char *key);

#endif
