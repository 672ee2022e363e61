# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The event after copies aside is recorded in the stream of steps.
s/cudaEventRecord(d->event\[AFTER_ASIDE\], d->aside)/cudaEventRecord(d->event[AFTER_ASIDE], d->stream)/
