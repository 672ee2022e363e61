# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# The cosine of an angle in the third quarter has the wrong sign.
s/quarter == 1 || quarter == 2/quarter == 1/
