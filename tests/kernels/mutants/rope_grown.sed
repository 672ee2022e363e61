# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rope.h
# What of a query does not turn does not grow either.
s/factor != 1.0f && i < n_heads \* rest/false \&\& i < n_heads * rest/
