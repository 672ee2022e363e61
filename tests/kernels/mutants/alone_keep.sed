# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# The sum so far is not made smaller when a larger maximum comes.
s/r->sum\[j\] \* x->keep\[i\]\[query\]/r->sum[j]/
