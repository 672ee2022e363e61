# SPDX-License-Identifier: Apache-2.0
# tests/emulation/emu_warp.cu
# A transposed pair has its numbers the other way round.
s/turned ? m\[8 \* i + k\]\[g\]/turned ? m[8 * i + k + 1][g]/
s/turned ? m\[8 \* i + k + 1\]\[g\] : m\[8 \* i + g\]\[k + 1\]/turned ? m[8 * i + k][g] : m[8 * i + g][k + 1]/
