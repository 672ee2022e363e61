# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/then.h
# Keys are written before other lanes have turned them, at the end of a product.
s/kn_barrier(); \/\* other lanes.*$//
