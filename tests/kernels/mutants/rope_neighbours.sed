# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/rope.h
# Neighbours that were turned four at a time return to each other's places.
s/kn_f4{even.z, odd.z, even.w, odd.w}/kn_f4{even.w, odd.w, even.z, odd.z}/
