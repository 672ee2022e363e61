# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Weights are relative to the maximum before their tile.
s/x->base\[tile\]\[query\] = base/x->base[tile][query] = was > -INFINITY ? was : base/
