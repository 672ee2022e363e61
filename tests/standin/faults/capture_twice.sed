# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A capture begins twice.
s/rc = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);/&\n\trc = cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal);/
