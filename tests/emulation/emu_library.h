/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_CUDA_EMU_LIBRARY_H
#define KERNELS_CUDA_EMU_LIBRARY_H

#include "kernels/cuda/device/library.h"

/* A product's time by the emulated device's clock. */
uint64_t emu_library_takes_ns(const struct dev_product_call *c);

#endif
