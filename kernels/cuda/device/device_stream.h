/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA's device layer that the vendor's library needs.
 */
#ifndef KERNELS_CUDA_DEVICE_STREAM_H
#define KERNELS_CUDA_DEVICE_STREAM_H

#include <cuda_runtime.h>

#include "kernels/cuda/device/device.h"

/* The compute capability: 89, 90, 100. 0: unknown. */
int dev_capability(const struct dev *d);
cudaStream_t dev_stream(const struct dev *d);
/* Name, architecture, driver: the same at every start. Borrowed from d. */
const char *dev_name(const struct dev *d);

#endif
