# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device_cuda.cu
# The arguments of a launch are in another order.
s/^\t\tc->thunk(c, where);/&\n\t\tvoid *first = where[0];\n\t\twhere[0] = where[1];\n\t\twhere[1] = first;/
