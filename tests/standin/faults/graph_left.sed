# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The captured graph is left.
s/(void)cudaGraphDestroy(graph);/(void)graph;/
