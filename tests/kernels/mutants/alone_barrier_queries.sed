# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Queries are used before other warps have converted them.
s/kn_barrier(); \/\* all queries are there.*$//
