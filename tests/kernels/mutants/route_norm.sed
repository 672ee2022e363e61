# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# Weights are not divided by their sum.
s/(c.norm ? sum : 1)/1/
