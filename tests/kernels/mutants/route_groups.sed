# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/route.cu
# One group more than allowed.
s/>= c.n_groups_used)/> c.n_groups_used)/
