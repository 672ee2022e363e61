# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# A unit is used while it is on its way.
s/kn_cp_async_wait<P::slots - 1>/kn_cp_async_wait<P::slots>/
