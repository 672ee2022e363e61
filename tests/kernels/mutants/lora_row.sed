# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# A tile's rows all read the first one's numbers.
s/(r < tile.n ? r : 0)/0/
