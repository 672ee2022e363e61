# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_merge.h
# Past its end a row has what is no number.
s/zero = {0, 0, 0, 0};/zero = {NAN, NAN, NAN, NAN};/
