/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures this machine's peak rates, so that other figures of a run can be given relative to them.
 */
#ifndef KERNELS_CEILING_H
#define KERNELS_CEILING_H

#include "base/err.h"

/* Per second, all threads together; 0: this processor has no such instruction. */
struct kn_ceilings {
	double read_bytes; /* from memory */
	double int8_ops;   /* multiply and add count as two */
	double bf16_ops;
	double fp32_ops;
};

/* The overhead of a pool of n_threads in ns: handing out two empty work items per thread and waiting, the median of
 * many within one step. 0 for one thread. SL_ENOMEM, SL_EIO. */
int kn_measure_fork_join(int n_threads, double *ns, struct sl_err *err);

/* Takes about `seconds` per figure. 0, SL_ENOMEM, SL_EIO (no thread). */
int kn_measure_ceilings(int n_threads, double seconds, struct kn_ceilings *out);

/* The first of these figures alone. */
int kn_measure_reading(int n_threads, double seconds, double *bytes);

#endif
