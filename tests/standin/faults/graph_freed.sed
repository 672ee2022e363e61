# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# An executable is destroyed before it is used.
s/^\t\*out = (struct dev_graph \*)exec;/\t(void)cudaGraphExecDestroy(exec);\n&/
