# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Values that nobody sees are taken as they are.
s/alone_sees(a, pos + r \* ROWS, 1)/true/
