# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Inputs go by the other stream.
s/cudaMemcpyAsync(to, stage, bytes, cudaMemcpyDefault, d->stream)/cudaMemcpyAsync(to, stage, bytes, cudaMemcpyDefault, d->aside)/
