/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that use local memory on the device at hand. What the build's own code needs is known (`make kernel-table`),
 * but a driver compiles the PTX for a device that has no code here, and may run out of registers where the build did
 * not.
 */
#ifndef KERNELS_CUDA_SPILLS_H
#define KERNELS_CUDA_SPILLS_H

#include "kernels/cuda/device/device.h"

/* Kernels that were looked at; more are not, so this is twice what the backend has. Zero at first. */
struct kn_spills {
	const void *kernel[512]; /* by address, hashed; NULL: free */
	int n;
};

/* When a kernel comes for the first time: a line of the log at debug if a thread of it needs local memory. Takes as
 * long as loading the kernel, which its launch would do next. Not during a capture. */
void kn_spills_look(struct kn_spills *s, const struct kn_plugin_host *host, const struct kn_command *c);

#endif
