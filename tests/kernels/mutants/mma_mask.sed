# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# A row sees the position after its own.
s|pos < end\[e / 2\]|pos <= end[e / 2]|
