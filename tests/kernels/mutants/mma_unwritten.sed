# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/attention_mma.h
# Values that nobody sees are taken as they are.
/bool there = pos >= s.from \&\& pos < s.to;/{n;n;s/if (there)/there = true;/}
