# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# Products run in no stream.
s/dev_stream(l->dev)));/(cudaStream_t)NULL));/
