/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model quantize --calibrate`: the second moments of what a model's matrices get as inputs while it reads a
 * text. Products are watched from outside, in a table of operations in front of the backend's, so that a model that
 * nobody watches runs no other code. One calibration at a time; main thread.
 */
#ifndef CMD_CALIBRATE_H
#define CMD_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/source/quantize_model.h"

struct calibration;

struct calibration_report {
	size_t n_tokens, n_pieces; /* read each time */
	size_t n,
	    n_without; /* matrices rounded for their inputs, and not: another type, or inputs that are not watched */
};

/* path: the model; text: as text_pieces_read. report: NULL: none. */
int calibration_open(const char *path, const char *text, int n_threads,
		     void (*report)(void *ctx, uint64_t done, uint64_t total), void *ctx, struct calibration **out,
		     struct sl_err *err);
/* For quantize_how, of the same model. */
struct quantize_inputs calibration_inputs(struct calibration *c);
struct calibration_report calibration_report(const struct calibration *c);
void calibration_close(struct calibration *c); /* NULL is allowed */

#endif
