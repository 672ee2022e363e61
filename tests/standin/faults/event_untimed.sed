# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# No event has a time.
s/i < BEFORE_ASIDE ? cudaEventDefault : cudaEventDisableTiming/cudaEventDisableTiming/
