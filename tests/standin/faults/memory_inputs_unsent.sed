# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/list.cu
# A list runs before its inputs are sent.
s/int rc = l->before(l->ctx);/int rc = 0;/
