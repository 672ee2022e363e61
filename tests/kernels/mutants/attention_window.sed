# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# The window is one position too long.
s/? \*end - c.attn.window : 0/? *end - c.attn.window - 1 : 0/
