# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/then.h
# A head is turned when one of its tiles is missing.
s/return {head, n_tiles \/ n};/return {head, n_tiles \/ n - 1};/
