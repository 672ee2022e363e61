# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/library_cuda.cu
# Scales for each row without asking whether the library has them.
s/capability == 90 \&\& can_fp8(l, DEV_FP8_SCALED)/(l->fp8 = DEV_FP8_SCALED) != DEV_FP8_NONE/
