# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention.cu
# A row sees the position after its own.
s/p + e >= all.end\[j\]/p + e > all.end[j]/
