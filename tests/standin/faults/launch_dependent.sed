# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Kernels may start early on devices that have no such launch.
s/a.ptxVersion >= 90/a.ptxVersion > 0/
