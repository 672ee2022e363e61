# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Rows keep their sequence's own number though the tables were cut down.
s/seq\[r\] = b->numbers\[seq\[r\]\]/seq[r] = seq[r]/
