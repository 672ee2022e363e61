# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The captured graph is destroyed twice.
s/(void)cudaGraphDestroy(graph);/(void)cudaGraphDestroy(graph), &/
