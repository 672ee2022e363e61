# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# The window is one position too short.
s|x = pos >= first|x = pos > first|
