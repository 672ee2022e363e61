# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# Inputs go by the other stream.
s/cudaMemcpyAsync(to, host, bytes, cudaMemcpyDefault, d->stream)/cudaMemcpyAsync(to, host, bytes, cudaMemcpyDefault, d->aside)/
