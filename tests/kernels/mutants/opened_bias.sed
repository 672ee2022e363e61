# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/experts.cu
# A slot has another expert's bias.
s/c.order.chosen\[c.order.slot\[s\]\]/c.order.chosen[s]/
