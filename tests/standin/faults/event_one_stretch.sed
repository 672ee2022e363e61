# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The beginnings of all steps have one event.
s/d->open = (d->open + 1) % (DEV_MARKS + 1);/d->open = 0;/
