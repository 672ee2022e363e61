# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Values that other warps still need are overwritten.
s/kn_barrier(); \/\* all warps are done.*$/;/
