# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rows.h
# Rows that are converted where they are made are not scaled back.
s/to.inverse\[row\] = kn_power(-exponent);/to.inverse[row] = 1;/
