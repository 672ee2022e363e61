# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/memory.cu
# Only the first copy of a page waits for the steps before it.
s/if (b->aside_serial != dev_serial(b->dev) + 1)/if (b->aside_serial == 0)/
