# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# Events are left when a device is closed.
s/if (d->event\[i\] != NULL)/if (d->event[i] == NULL)/
