# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# Every fourth number is not added.
s/v->w += a.w;//
