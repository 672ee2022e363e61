# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/list.cu
# A list that was refused is captured again.
s/!was_refused(g, digest) \&\& //
