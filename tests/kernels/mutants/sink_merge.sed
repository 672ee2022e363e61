# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_merge.h
# Merged parts lack the sink.
s/1.0f \/ kn_attn_whole<true>(c, head, max, sum)/1.0f \/ sum/
