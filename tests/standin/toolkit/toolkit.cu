/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the numbers that the stand-in declares are those of an installed toolkit's headers. Only compiled.
 */
#include <stddef.h>
#include <stdint.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#define STANDIN_TOOLKIT
namespace standin
{
#include "tests/standin/include/cublasLt.h"
#include "tests/standin/include/cuda_runtime.h"
} // namespace standin

#define SAME(name) static_assert((int)standin::name == (int)::name, #name);
SAME(cudaSuccess)
SAME(cudaErrorInvalidValue)
SAME(cudaErrorMemoryAllocation)
SAME(cudaErrorInvalidConfiguration)
SAME(cudaErrorInsufficientDriver)
SAME(cudaErrorInvalidDeviceFunction)
SAME(cudaErrorNoDevice)
SAME(cudaErrorInvalidDevice)
SAME(cudaErrorInvalidResourceHandle)
SAME(cudaErrorNotReady)
SAME(cudaErrorIllegalAddress)
SAME(cudaErrorLaunchOutOfResources)
SAME(cudaErrorLaunchFailure)
SAME(cudaErrorNotSupported)
SAME(cudaErrorStreamCaptureUnsupported)
SAME(cudaErrorStreamCaptureInvalidated)
SAME(cudaErrorStreamCaptureUnmatched)
SAME(cudaErrorStreamCaptureIsolation)
SAME(cudaErrorCapturedEvent)
SAME(cudaErrorStreamCaptureWrongThread)
SAME(cudaErrorUnknown)
SAME(cudaMemcpyDefault)
SAME(cudaStreamCaptureModeGlobal)
SAME(cudaStreamCaptureModeThreadLocal)
SAME(cudaStreamCaptureModeRelaxed)
SAME(cudaFuncAttributeMaxDynamicSharedMemorySize)
SAME(cudaDevAttrMultiProcessorCount)
SAME(cudaDevAttrComputeCapabilityMajor)
SAME(cudaDevAttrComputeCapabilityMinor)
SAME(cudaDevAttrPageableMemoryAccess)
SAME(cudaDevAttrMaxSharedMemoryPerBlockOptin)
SAME(cudaDevAttrPageableMemoryAccessUsesHostPageTables)
SAME(CUBLAS_STATUS_SUCCESS)
SAME(CUBLAS_STATUS_NOT_INITIALIZED)
SAME(CUBLAS_STATUS_ALLOC_FAILED)
SAME(CUBLAS_STATUS_INVALID_VALUE)
SAME(CUBLAS_STATUS_ARCH_MISMATCH)
SAME(CUBLAS_STATUS_EXECUTION_FAILED)
SAME(CUBLAS_STATUS_INTERNAL_ERROR)
SAME(CUBLAS_STATUS_NOT_SUPPORTED)
SAME(CUBLAS_OP_N)
SAME(CUBLAS_COMPUTE_32F)
SAME(CUDA_R_32F)
SAME(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
SAME(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
SAME(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE)
SAME(CUBLASLT_MATMUL_DESC_TRANSA)
SAME(CUBLASLT_MATMUL_DESC_TRANSB)
SAME(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)
SAME(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)
SAME(CUBLASLT_MATMUL_DESC_FAST_ACCUM)
SAME(CUBLASLT_MATMUL_DESC_A_SCALE_MODE)
SAME(CUBLASLT_MATMUL_DESC_B_SCALE_MODE)
SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
SAME(CUBLAS_OP_T)
SAME(CUDA_R_16F)
SAME(CUDA_R_16BF)
SAME(CUDA_R_8F_E4M3)
static_assert(sizeof(standin::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t), "an algorithm");
