# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A step is not waited for.
s/cudaEventSynchronize(d->event\[MARK + mark\])/cudaSuccess/
s/^\tawait_nearly(d, mark);//
