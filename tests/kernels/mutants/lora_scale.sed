# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/lora.cu
# Bytes without their scales.
s/l.scales != NULL ? total \* l.scales\[j\] : total/total/
