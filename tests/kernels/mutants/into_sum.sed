# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/activations.h
# Sums of activations lack a lane.
s/sum += kn_shuffle_xor(sum, 2);//
