# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A capture that failed stays open.
s/cudaError_t end = cudaStreamEndCapture(d->stream, \&graph);/cudaError_t end = rc == cudaSuccess ? cudaStreamEndCapture(d->stream, \&graph) : rc;/
