/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear model, a logistic regression over dense features and hashed n-grams, and its file (etc/cascade.md).
 */
#ifndef CASCADE_WEIGHTS_H
#define CASCADE_WEIGHTS_H

#include "base/buf.h"
#include "cascade/cascade.h"

enum { CASC_BITS_MIN = 8, CASC_BITS_MAX = 20, CASC_BITS_USUAL = 14 };

/* What they were fitted to (casc_refit); n 0: not known. */
struct casc_reference {
	uint32_t n;                   /* requests */
	float share[CASC_DRIFT_BINS]; /* of their scores, in equal parts of 0..1; the sum is 1 */
	float easy, hard;             /* thresholds that pay, 0 and 1: none does */
};

struct casc_weights {
	uint32_t bits; /* 2^bits weights of n-grams */
	struct casc_reference ref;
	float bias, dense[CASC_N_FEATURES];
	float grams[];
};

/* The built-in ones, with as many of n-grams, all zero. NULL: no memory. */
struct casc_weights *casc_weights_usual(uint32_t bits);
/* All zero. NULL: no memory. */
struct casc_weights *casc_weights_create(uint32_t bits);
void casc_weights_destroy(struct casc_weights *w);
/* The log-odds that the small model's answer is not good enough. */
float casc_weights_logit(const struct casc_weights *w, const float dense[CASC_N_FEATURES], const uint32_t *grams,
			 uint32_t n_grams);

/* Parses a file's content and checks all of it. name: for messages. */
int casc_weights_decode(const uint8_t *data, size_t n, const char *name, struct casc_weights **out, struct sl_err *err);
int casc_weights_encode(const struct casc_weights *w, struct sl_buf *out);
int casc_weights_read(const char *path, struct casc_weights **out, struct sl_err *err);
/* Writes the whole file or leaves it unchanged. replace: base/out_file.h. */
int casc_weights_write(const struct casc_weights *w, const char *path, bool replace, struct sl_err *err);

float casc_sigmoid(float x);

#endif
