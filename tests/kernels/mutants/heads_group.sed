# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/recurrent.cu
# A head has the keys of another.
s/: head \/ (c.heads \/ c.key_heads)/: head % c.key_heads/
