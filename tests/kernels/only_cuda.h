/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the engine upon the CUDA kernels in their emulation: whatever name is selected, it is theirs. Included
 * by one file of a test, which is then linked without kernels/backend/select.c.
 */
#ifndef TESTS_KERNELS_ONLY_CUDA_H
#define TESTS_KERNELS_ONLY_CUDA_H

#include "tests/kernels/tables.h"

/* Instead of kernels/backend/select.c's. */
static const struct kn_ops *emulated[2];

const struct kn_ops *const *kn_available(void) { return emulated; }

const struct kn_ops *kn_select(const char *name, struct sl_err *err)
{
	(void)name;
	(void)err;
	emulated[0] = open_cuda();
	return emulated[0];
}

#endif
