# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# A unit is used while it is on its way.
s/kn_cp_async_wait<P::slots - 2>/kn_cp_async_wait<P::slots - 1>/
