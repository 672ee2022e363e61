# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/packed.h
# Sums are scaled a slab too early and the last one not.
s/slab % form::every == form::every - 1/slab % form::every == (form::every - 1) \/ 2/
