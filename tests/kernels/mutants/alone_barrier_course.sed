# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Weights are relative to what is not there yet.
s/kn_barrier(); \/\* it is there.*$//
