# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/then.h
# A gate waits for its neighbour, not for what it opens.
s/return {tile % (n_tiles \/ 2), 2};/return {tile \/ 2, 2};/
