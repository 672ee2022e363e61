# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# What a gate opens is the next row.
s/(row \* 2 + 1) \* width/(row * 2 + 2) * width/
