# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/device/device_cuda.cu
# A mark that is to be waited for is recorded in a capture.
s/cudaError_t end = cudaStreamEndCapture(d->stream, \&graph);/for (int k = 0; k < KN_STEPS_AHEAD; k++)\n\t\t\t(void)cudaEventRecord(d->event[MARK + k], d->stream);\n\t\t&/
