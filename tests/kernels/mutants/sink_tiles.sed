# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# The last block of a run of rows lacks the sink.
s/last ? 1.0f \/ kn_attn_whole<true>(c, head, max, sum)/last ? 1.0f \/ sum/
