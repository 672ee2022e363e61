/* SPDX-License-Identifier: Apache-2.0
 *
 * What the vendor's library needs of the device layer on CUDA.
 */
#ifndef KERNELS_CUDA_DEVICE_STREAM_H
#define KERNELS_CUDA_DEVICE_STREAM_H

#include <cuda_runtime.h>

#include "kernels/cuda/device.h"

/* Of the architecture: 89, 90, 100. 0: not known. */
int dev_capability(const struct dev *d);
cudaStream_t dev_stream(const struct dev *d);
/* Name, architecture, driver: what stays the same from start to start. Borrowed from d. */
const char *dev_name(const struct dev *d);

#endif
