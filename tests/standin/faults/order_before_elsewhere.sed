# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The event before copies aside is recorded in their own stream.
s/cudaEventRecord(d->event\[BEFORE_ASIDE\], d->stream)/cudaEventRecord(d->event[BEFORE_ASIDE], d->aside)/
