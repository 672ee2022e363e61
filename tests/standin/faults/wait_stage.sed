# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Staging memory is filled again before it was copied.
s/cudaEventSynchronize(d->event\[STAGED + i\])/cudaSuccess/
