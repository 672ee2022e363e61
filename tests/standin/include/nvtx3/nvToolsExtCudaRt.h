/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of streams (NVTX), declared for the stand-in.
 */
#ifndef TESTS_STANDIN_NVTX_CUDA_H
#define TESTS_STANDIN_NVTX_CUDA_H

#include <cuda_runtime.h>

extern "C" void nvtxNameCudaStreamA(cudaStream_t s, const char *name);

#endif
