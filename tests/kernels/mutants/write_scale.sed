# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rope.h
# A scale is the largest of one lane.
s/most = kn_warp_max(most);/most *= 1.0f;/
