# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/experts.cu
# Outputs are added in the order of slots.
s/c.order.place\[slot\] \* c.width/slot * c.width/
