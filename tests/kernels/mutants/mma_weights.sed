# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# Each unit of values gets the weights of the first.
s/j == i ? weights/j < 0 ? weights/
