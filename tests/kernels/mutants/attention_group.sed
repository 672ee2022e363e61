# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# Heads of the second part of a group are those of the first.
s/c.group + (begin + j) % c.group/c.group + j % c.group/
