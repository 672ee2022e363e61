# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A graph is uploaded while its stream captures the next one.
s/rc = cudaGraphUpload(exec, d->stream);/(void)cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), &/
