# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Graphs run in the stream of copies aside.
s/cudaGraphLaunch((cudaGraphExec_t)g, d->stream)/cudaGraphLaunch((cudaGraphExec_t)g, d->aside)/
