# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# The workspace that is given is shorter than promised.
s/\&algo, l->workspace, WORKSPACE, dev_stream/\&algo, l->workspace, WORKSPACE >> 8, dev_stream/
