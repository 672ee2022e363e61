# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# The mark of another step is waited for.
s/cudaEventSynchronize(d->event\[MARK + mark\])/cudaEventSynchronize(d->event[MARK + (mark + 1) % DEV_MARKS])/
s/^\tawait_nearly(d, mark);//
