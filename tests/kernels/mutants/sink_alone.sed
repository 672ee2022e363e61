# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_alone.h
# A head has its key head's sink.
s/kn_attn_whole<true>(c, head, r.max/kn_attn_whole<true>(c, a.span.kv_head, r.max/
