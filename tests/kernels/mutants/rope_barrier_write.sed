# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/pages.cu
# Keys are written before other lanes have turned them.
s/kn_barrier(); \/\* other lanes.*$//
