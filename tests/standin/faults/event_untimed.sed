# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# No event has a time.
s/(i < BEFORE_ASIDE ? 0u : cudaEventDisableTiming)/cudaEventDisableTiming/
