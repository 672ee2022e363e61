# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_units.h
# Keys of the next page.
/bool there = pos + CHUNK > s.from/,/kn_cp_async/s/kn_block_at(p, s.seq, pos, /kn_block_at(p, s.seq, pos + p.page_tokens, /
