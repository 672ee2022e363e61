# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/experts.h
# A slot has another expert's bias.
s/expert = c.order.chosen\[slot\]/expert = c.order.chosen[s]/
