# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Only the first mark is ever recorded.
s/cudaEventRecord(d->event\[MARK + mark\], d->stream)/mark ? cudaSuccess : cudaEventRecord(d->event[MARK], d->stream)/
