# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Rows that pad the step have outputs of their own.
s/? rows - s->n_rows : 0, 0}/? 0 : 0, 0}/
