# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/matmul.cu
# Activations of another operation are taken for converted.
s/ \&\& c->serial == dev_serial(b->dev))/)/
