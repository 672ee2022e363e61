# SPDX-License-Identifier: Apache-2.0
# kernels/cuda/step.cu
# Steps in flight share their staging memory.
s/b->set = (b->set + 1) % KN_STEPS_AHEAD/b->set = (b->set + 0) % KN_STEPS_AHEAD/
