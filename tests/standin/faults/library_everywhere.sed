# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/library_cuda.cu
# Scales for each row on devices that have none.
s/capability == 90 \&\& can_fp8/capability >= 90 \&\& can_fp8/
