# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Angles of the last step are taken for those of this one.
s/b->freqs\[i\].turned = false;//
