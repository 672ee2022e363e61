# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A capture waits for its stream.
s/^\tcudaGraphExec_t exec = NULL;/&\n\tif (n > 0)\n\t\t(void)cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), (void)cudaStreamSynchronize(d->stream), (void)cudaStreamEndCapture(d->stream, \&graph);/
