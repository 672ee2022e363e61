# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# What a gate opens is the next row.
s/gate + c.width/gate + 2 * c.width/
