# SPDX-License-Identifier: Apache-2.0
# tests/emulation/emu_warp.cu
# The second register of A has columns 8 on, the third rows 8 on.
s/rows\[g + r % 2 \* 8\]\[2 \* t + r \/ 2 \* 8\]/rows[g + r \/ 2 * 8][2 * t + r % 2 * 8]/
