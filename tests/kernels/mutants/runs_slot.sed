# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# A sequence has the slot of its number.
s/s->state_of\[s->row_seq\[r\]\]/s->row_seq[r]/
