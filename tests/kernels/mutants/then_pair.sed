# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/then.h
# A gate does not wait for what it opens.
s/return {tile % (n_tiles \/ 2), 2};/return {tile % (n_tiles \/ 2), 1};/
