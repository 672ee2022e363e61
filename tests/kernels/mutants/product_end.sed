# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/activations.h
# What is left of a row over fours is left out.
s/v\[i\] = there \&\& k + i < n_in ? x\[k + i\] : 0.0f;/v[i] = 0.0f;/
