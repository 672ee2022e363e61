# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.h
# The second part of an adapter takes the numbers of the first.
s/i < part ? l->parts\[i\].rank : 0/0/
