# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Activations of another operation are taken for converted.
/c->numbers == (int)bf16 &&$/{N;s/ &&\n.*;$/;/}
