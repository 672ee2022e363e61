# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Maxima of other warps are taken before they are there.
s/kn_barrier(); \/\* all maxima.*$//
