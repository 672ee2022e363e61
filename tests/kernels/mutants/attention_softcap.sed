# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# No cap on scores.
s/if (c.attn.softcap > 0)/if (c.attn.softcap < 0)/
