# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# Keys and values of the page of the group after.
s/(pos >> p.page_shift)/((pos + GROUP) >> p.page_shift)/
